//! The records of one attempt: its holder, its place and the cost of its machine.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AttemptNo, EndedBecause, Outcome};
use crate::market::{Span, Usd};

/// `attempts/<n>/lease.json`: the right to run the attempt. The first agent that asks takes it,
/// once.
///
/// A second machine that finds the lease taken powers itself off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub format: u32,
    pub instance: String,
    /// Drawn at the machine's first boot: two machines with one id differ in it.
    pub nonce: String,
    pub taken: Timestamp,
}

/// `attempts/<n>/ending.json`: why a controller or a sweep ends the attempt's machine. Written
/// before the call to the cloud: later the cloud reports every such end as a user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub format: u32,
    pub at: Timestamp,
    /// The controller's name.
    pub by: String,
    pub why: String,
    /// The newest heartbeat at that moment, by the agent's clock. A later heartbeat shows that this
    /// ending did not end the machine.
    #[serde(default)]
    pub heard: Option<Timestamp>,
    /// When billing ended, if the machine was already stopped; missing if it ran. EC2 shows only
    /// the last change, so this time is lost once the machine is terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood: Option<Timestamp>,
    /// The name of the sweep that ends it; missing if a controller ends it. Records of 0.1.0 say
    /// this only in `by`: read it with [`Ending::sweeper`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_by: Option<String>,
}

/// The beginning of `by` when a sweep ended the machine.
pub(super) const OF_A_SWEEP: &str = "the sweep of ";

impl Ending {
    /// The value of `by` for a sweep of this name.
    pub fn by_sweep(name: &str) -> String {
        format!("{OF_A_SWEEP}{name}")
    }

    /// The name of the sweep that ended it: `lamp sweep`, a daemon's or the cloud's own sweeper.
    /// `None`: a controller ended it.
    pub fn sweeper(&self) -> Option<&str> {
        self.swept_by.as_deref().or_else(|| self.by.strip_prefix(OF_A_SWEEP))
    }
}

/// Where the agent is in its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptPhase {
    /// Lease taken; checks, then fetches code and checkpoint.
    Preparing,
    /// The user's `setup` script runs.
    Setup,
    Running,
    /// Saves, uploads and writes the outcome.
    Draining,
    /// Ended; the machine is kept for a look.
    Held,
    /// The outcome is written; the machine powers off next.
    Ended,
}

impl AttemptPhase {
    /// As in records.
    pub fn word(self) -> &'static str {
        match self {
            AttemptPhase::Preparing => "preparing",
            AttemptPhase::Setup => "setup",
            AttemptPhase::Running => "running",
            AttemptPhase::Draining => "draining",
            AttemptPhase::Held => "held",
            AttemptPhase::Ended => "ended",
        }
    }
}

/// Why a launch was refused because of the place, not because of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// No machine is free there now.
    Capacity,
    /// The bid is below the price.
    Price,
    /// The account's quota for this family, market and region is used up.
    Quota,
    /// The account's quota for disks in this region, or for their speed, is used up.
    Disks,
    /// The cloud still verifies the account's first launch in this region.
    Verification,
    /// The type is not sold there.
    NotSold,
    /// The subnet has no free address; another subnet of the zone may have one.
    Subnet,
    /// No subnet of the zone has a free address.
    Addresses,
    /// The account lacks the role for buying spot machines, in every region.
    SpotRole,
    /// The plan's machine has already run and ended, unseen: the attempt is over.
    Spent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Capacity => "no capacity",
            Refusal::Price => "the bid is below the price",
            Refusal::Quota => "the quota is used up",
            Refusal::Disks => "the limit of disks is reached",
            Refusal::Verification => "the account is still being verified for the region",
            Refusal::NotSold => "not sold there",
            Refusal::Subnet => "no free address in the subnet",
            Refusal::Addresses => "no free address in the zone",
            Refusal::SpotRole => "the role for spot machines is missing",
            Refusal::Spent => "its machine has ended",
        })
    }
}

/// `attempts/<n>/settled.json`: what the controller saw of the machine and what it cost. Written
/// once the machine is gone, or its launch has failed for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Settled {
    pub format: u32,
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    /// `None`: no machine was launched, or with the refusal `spent` its id is unknown.
    pub instance: Option<String>,
    /// The outcome's word; `lost` or `launch_failed` if the agent left none.
    pub because: EndedBecause,
    /// When billing began and ended, by the cloud.
    pub billed_from: Option<Timestamp>,
    pub billed_to: Option<Timestamp>,
    pub billed: Span,
    /// Whether `billed_to` or `usd` is an upper bound. If the cloud gives no end of billing,
    /// `billed_to` is when the controller saw it ended, some seconds late. For a machine that was
    /// never seen, it is the latest time that its switches allow. If the cloud gives no spot price,
    /// `usd` uses the bid.
    #[serde(default)]
    pub billed_estimated: bool,
    pub usd: Usd,
    /// Why the place had no machine; the next place may have one. With an `instance`: the cloud
    /// named a machine and then withdrew it.
    #[serde(default)]
    pub refusal: Option<Refusal>,
    /// The cloud's own reason for the state, or the launch error.
    #[serde(default)]
    pub cloud_reason: Option<String>,
    /// The agent's outcome. If it left none (a power cut), taken from its last heartbeat.
    #[serde(default)]
    pub outcome: Option<Outcome>,
    /// Its machine was stopped and keeps its disk. A controller that finds it running stops it and
    /// does not terminate it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// Its plan became too old before a launch, by the clock of the controller that settled it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_too_old: bool,
}

impl Settled {
    /// Whether a machine ran. A machine that was named and withdrawn before it ran counts as
    /// refused.
    pub fn had_machine(&self) -> bool {
        self.instance.is_some() && self.refusal.is_none()
    }

    /// Whether its launch made machines, as far as is known: also one that never ran, or one that
    /// only has a cost because no controller saw it.
    pub fn was_launched(&self) -> bool {
        self.instance.is_some() || self.usd > Usd::ZERO
    }

    /// The part of its billed time that was idle, 0 to 1. `None`: its agent left no count.
    pub fn idle_share(&self) -> Option<f64> {
        // Without billed time there is no money to lose.
        if self.billed == Span::ZERO {
            return Some(0.0);
        }
        self.outcome.as_ref().map(|outcome| self.billed_share(outcome.idle))
    }

    /// The part of its billed time with work that an interruption lost, 0 to 1. `None`: its agent
    /// left no count.
    pub fn lost_share(&self) -> Option<f64> {
        if self.billed == Span::ZERO || !self.because.is_interruption() {
            return Some(0.0);
        }
        self.outcome.as_ref().map(|outcome| self.billed_share(outcome.unsaved()))
    }

    /// Its cost while idle. `None`: its agent left no count.
    pub fn idle_usd(&self) -> Option<Usd> {
        self.idle_share().map(|share| self.usd.part(share))
    }

    /// Its cost for work that an interruption lost. `None`: its agent left no count.
    pub fn lost_usd(&self) -> Option<Usd> {
        self.lost_share().map(|share| self.usd.part(share))
    }

    fn billed_share(&self, time: Span) -> f64 {
        (time.secs_f64() / self.billed.secs_f64()).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_without_sweep_field_is_read_from_its_text() {
        let read = |by: &str| {
            let old = format!(
                r#"{{"format": 1, "at": "2026-11-20T18:00:00Z", "by": "{by}", "why": "orphan"}}"#
            );
            serde_json::from_str::<Ending>(&old).expect("a record of 0.1.0")
        };
        assert_eq!(read("the sweep of me@laptop").sweeper(), Some("me@laptop"));
        assert_eq!(read("me@laptop").sweeper(), None);
        let new = Ending { swept_by: Some("them".into()), ..read("me@laptop") };
        assert_eq!(new.sweeper(), Some("them"), "the field counts");
    }
}
