//! The facts of a decision: the records of a job, the cloud's answer, and what one controller saw.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::observations::{CheckpointSummaries, Damaged, Watched};
use crate::instance::{InstanceView, Status};
use crate::job::{
    AttemptRecord, CheckpointNo, Ending, Lease, Outcome, Plan, Request, ResolvedSpec, Settled,
};
use crate::market::elapsed;

#[derive(Clone, Debug)]
pub struct JobFacts<'a> {
    pub spec: &'a ResolvedSpec,
    /// In order of their numbers.
    pub attempts: &'a [AttemptFacts],
    pub requests: &'a [Request],
    pub cloud: &'a CloudAnswer,
    pub newest_checkpoint: Option<CheckpointNo>,
    /// Our owner: machines with another owner's tag are never touched.
    pub owner: &'a str,
    /// This workstation as a zone of the local cloud. It cannot see the machines of other
    /// workstations.
    pub here: &'a str,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CloudAnswer {
    Known(Vec<InstanceView>),
    /// No answer; different from an empty list.
    Unknown(String),
}

/// The records of one attempt, and this controller's observations.
#[derive(Clone, Debug)]
pub struct AttemptFacts {
    pub plan: Arc<Plan>,
    pub lease: Option<Lease>,
    pub status: Option<Status>,
    pub outcome: Option<Outcome>,
    pub settled: Option<Arc<Settled>>,
    /// Its journal, read only if the agent left no outcome.
    pub journal: CheckpointSummaries,
    pub watched: Watched,
}

/// The settled attempts, for the receipt and `relaunch`.
pub fn history(attempts: &[AttemptFacts]) -> Vec<AttemptRecord> {
    let settled = |attempt: &AttemptFacts| {
        attempt
            .settled
            .clone()
            .map(|settled| AttemptRecord { plan: Arc::clone(&attempt.plan), settled })
    };
    attempts.iter().filter_map(settled).collect()
}

/// Time with failing host checks and without heartbeats until the host counts as dead. With less, a
/// few minutes without network lose the work. With more, it bills for nothing.
const HOST_DEAD: Duration = Duration::from_secs(10 * 60);

pub(crate) fn is_host_dead(attempt: &AttemptFacts) -> bool {
    attempt.heard() && attempt.watched.host_fails_for >= HOST_DEAD
}

/// How long an attempt's machine may be silent.
pub fn patience(attempt: &AttemptFacts) -> Duration {
    let most = if attempt.heard() { attempt.plan.lease } else { attempt.plan.boot }.duration();
    if is_host_dead(attempt) { most.min(HOST_DEAD) } else { most }
}

/// If the agent is heard this long after the recorded ending, that ending did not end the machine.
/// The cloud refused it, or the record belongs to an earlier silence. Longer than the call and one
/// late heartbeat. Shorter than a person needs to read about the refusal and end the machine by
/// hand.
pub(crate) const LAST_BEATS: Duration = Duration::from_secs(2 * 60);

impl AttemptFacts {
    /// Whether its agent ever left a record.
    pub(crate) fn heard(&self) -> bool {
        let Damaged { lease, outcome } = self.watched.damaged;
        self.lease.is_some() || self.status.is_some() || self.outcome.is_some() || lease || outcome
    }

    /// Time of the last heartbeat, by the store's clock if known.
    pub(crate) fn last_heard(&self) -> Option<Timestamp> {
        let status = self.status.as_ref()?;
        Some(self.watched.heard_at.unwrap_or(status.at))
    }

    /// The record of a controller or sweep that it ended this machine.
    pub(crate) fn our_ending(&self) -> Option<&Ending> {
        let ending = self.watched.ended.ending.as_ref()?;
        let status = self.status.as_ref();
        let heard_for = status.map_or(Duration::ZERO, |status| {
            elapsed(ending.heard.unwrap_or(status.started), status.at)
        });
        (heard_for <= LAST_BEATS).then_some(ending)
    }
}
