//! A chosen offer with reasons: the intent that is recorded before the machine is bought.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AttemptNo, CheckpointNo, JobId};
use crate::market::{Offer, Span, Usd};

/// `attempts/<n>/plan.json`, created only if absent: whoever creates it owns the attempt.
///
/// It holds all that the launch call needs, so that a retry after a crash repeats the same request byte for byte and
/// cannot buy a second machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub format: u32,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub created: Timestamp,
    /// The controller that created it, for people.
    pub controller: String,
    pub offer: Offer,
    /// Why this offer, in sentences.
    pub reasons: Vec<String>,
    #[serde(default)]
    pub rejected: Vec<RejectedOffer>,
    /// The most that this attempt can cost; `None` when nothing bounds its time and it has a price.
    pub most_usd: Option<Usd>,
    /// The idempotency token of the launch call.
    pub client_token: String,
    /// The hard cap on the machine's life, set once.
    #[serde(default)]
    pub kill_at: Option<Timestamp>,
    pub lease: Span,
    /// The newest complete checkpoint when the plan was made; the agent looks again.
    #[serde(default)]
    pub resume_from: Option<CheckpointNo>,
    /// Tags of the machine.
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedOffer {
    pub offer: Offer,
    pub because: String,
}
