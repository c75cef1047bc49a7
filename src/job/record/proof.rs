//! A proof that machines of an account end when nobody watches them: what is tried, and what came of it.
//!
//! A **trial** is a small job whose machine gets no agent: nothing works there but one switch. A **proof** is the record of
//! the trials that were made together. What must never live here: whether a switch is proven (`policy::account::shutdown_proof`).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::market::{Span, Usd};

/// What a trial leaves to work on its machine: the letter is that of docs/promises.md and the decision records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// B: the unit that user data arm before they fetch anything. It powers the machine off, and the cloud gives it back.
    DeadlineUnit,
    /// E: a sweep, of the cloud's own sweeper, a daemon or a person. Nothing on the machine ends it before a sweep has had its time.
    Sweep,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Switch::DeadlineUnit => "deadline unit",
            Switch::Sweep => "sweep",
        })
    }
}

/// In a spec: its machine gets no agent, and must end all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub switch: Switch,
    /// How long the machine may live before it is the switch's.
    pub lease: Span,
}

/// Who ended the machine of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// It powered itself off, and the cloud terminated it for that.
    Itself,
    Sweep,
    /// Whoever made the trial, when it had waited long enough.
    Prover,
    /// The cloud says that a user did, and nothing of ours has recorded it.
    Somebody,
    /// The cloud itself, or nobody knows.
    Cloud,
}

/// One trial and its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    pub switch: Switch,
    pub proven: bool,
    pub job: JobId,
    pub instance: String,
    pub instance_type: String,
    pub zone: String,
    /// The name of the image, or its id.
    pub image: String,
    pub lease: Span,
    /// By then, counted from the end of the lease, the switch must have done it.
    pub within: Span,
    /// From launch to the end of billing, by the cloud's clock; where it does not say when that was, to the first look at which
    /// it billed no more, which may be some seconds too long.
    pub lived: Span,
    /// How long it billed beyond its lease: the bound that was measured.
    pub after_lease: Span,
    pub ended_by: EndedBy,
    /// In a sentence, for people.
    pub said: String,
    pub usd: Usd,
}

/// `proofs/<account>/<region>.json`: the newest proof. Overwritten; its jobs' receipts stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    pub format: u32,
    /// When the last of its machines had ended.
    pub at: Timestamp,
    pub account: String,
    pub region: String,
    /// Who made it, for people.
    pub by: String,
    /// The version of the program that made it.
    pub written_by: String,
    /// Whether every trial has proven its switch.
    pub passed: bool,
    pub trials: Vec<Tried>,
    /// Why it could not be read whether a sweeper of this owner is installed: what it would have done is neither tried nor known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweeper_unknown: Option<String>,
}
