//! A proof that an account's unattended machines end: the trials and their results.
//!
//! A **trial** is a small job whose machine gets no agent, only one switch. A **proof** is the
//! record of trials made together. `policy::account::shutdown_proof` judges whether a switch is
//! proven.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attempt::OF_A_SWEEP;
use crate::job::JobId;
use crate::market::{Span, Usd};

/// The switch that a trial tests; the letter is as in docs/promises.md and the decision records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// B: the unit that the user data arm before any download. It powers the machine off, and the
    /// cloud terminates it.
    DeadlineUnit,
    /// E: a sweep by the cloud's sweeper, a daemon or a person. The machine's own switches wait
    /// until a sweep has had its time.
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

/// Part of a spec: the machine gets no agent, and must end all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub switch: Switch,
    /// How long the machine may run before the switch must act.
    pub lease: Span,
}

/// The cause of the machine's end in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// It powered itself off, and the cloud terminated it for that.
    Itself,
    Sweep,
    /// The program that made the trial, after its waiting time.
    Prover,
    /// The cloud says that a user did, and no record of ours says so.
    Somebody,
    /// The cloud itself, or unknown.
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
    /// The time that the switch has, counted from the end of the lease.
    pub within: Span,
    /// From launch to the end of billing, by the cloud's clock. If the cloud gives no end, to the
    /// first look at which billing had ended: some seconds late.
    pub lived: Span,
    /// How long it billed beyond its lease: the measured bound.
    pub after_lease: Span,
    pub ended_by: EndedBy,
    /// The name of the sweep that ended it. Records of 0.1.0 say this only in `said`: read it with
    /// [`Tried::sweeper`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_by: Option<String>,
    /// In a sentence, for people.
    pub said: String,
    pub usd: Usd,
}

impl Tried {
    /// The name of the sweep that ended its machine, if one did.
    pub fn sweeper(&self) -> Option<&str> {
        self.swept_by.as_deref().or_else(|| {
            let (name, _) = self.said.strip_prefix(OF_A_SWEEP)?.split_once(" ended it")?;
            Some(name)
        })
    }
}

/// `proofs/<account>/<region>.json`: the newest proof. Overwritten; its jobs' receipts stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    pub format: u32,
    /// When the last of its machines had ended.
    pub at: Timestamp,
    pub account: String,
    pub region: String,
    /// The person's name, for people.
    pub by: String,
    /// The version of the program that made it.
    pub written_by: String,
    /// Whether every trial has proven its switch.
    pub passed: bool,
    pub trials: Vec<Tried>,
    /// Why the program could not tell whether this owner's sweeper is installed; its effect was
    /// then not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweeper_unknown: Option<String>,
}
