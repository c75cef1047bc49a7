//! The records of one attempt: who holds it, where it is, what its machine cost.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AttemptNo, EndedBecause, Outcome};
use crate::market::{Span, Usd};

/// `attempts/<n>/lease.json`: the right to run the attempt, taken once by the first agent that asks.
///
/// A second machine that finds somebody else's lease powers itself off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub format: u32,
    pub instance: String,
    /// Drawn by the machine at its first boot: tells two machines with one id apart.
    pub nonce: String,
    pub taken: Timestamp,
}

/// `attempts/<n>/ending.json`: why a controller or a sweep ends the attempt's machine. Written before the cloud is asked to:
/// afterwards the cloud calls every such end a user's, and whoever settles the attempt could only guess.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub format: u32,
    pub at: Timestamp,
    /// Which controller.
    pub by: String,
    pub why: String,
    /// The newest heartbeat at that moment, by the agent's clock. Whoever is heard later was not ended by this.
    #[serde(default)]
    pub heard: Option<Timestamp>,
    /// Since when its machine billed no more, as the cloud said while it stood still; missing where it ran. EC2 dates a machine by its
    /// last change alone, so that after its end nobody could say it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood: Option<Timestamp>,
}

/// How `by` begins where it was no controller that drives the job, but a sweep.
const OF_A_SWEEP: &str = "the sweep of ";

impl Ending {
    /// What a sweep of this name writes into `by`.
    pub fn by_sweep(name: &str) -> String {
        format!("{OF_A_SWEEP}{name}")
    }

    /// Whether a sweep ended it: of `lamp sweep`, of a daemon, or of the cloud's own sweeper.
    pub fn is_of_a_sweep(&self) -> bool {
        self.by.starts_with(OF_A_SWEEP)
    }
}

/// Where the agent is in its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptPhase {
    /// Lease taken; preflight, fetching code and checkpoint.
    Preparing,
    /// The user's `setup` script runs.
    Setup,
    Running,
    /// Saving, uploading, writing the outcome.
    Draining,
    /// Ended, and the machine is kept for a look.
    Held,
    /// The outcome is written; power goes off next.
    Ended,
}

/// Why a launch was refused in a way that says something of the place, and nothing of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// None is free there now.
    Capacity,
    /// The bid is below the price.
    Price,
    /// The account may not run more of the family on this market in this region.
    Quota,
    /// The account may have no more, or no faster, disks in this region.
    Disks,
    /// The cloud still looks at the account's first launch in this region.
    Verification,
    /// The type is not sold there.
    NotSold,
    /// The subnet has no free address, and another one of the zone may have.
    Subnet,
    /// None of the zone's subnets has a free address.
    Addresses,
    /// The account has no role by which spot machines are bought, in any region.
    SpotRole,
    /// The machine of this plan was launched and has ended already, unseen: the attempt is over.
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

/// `attempts/<n>/settled.json`: what the controller saw of the machine's life and what it cost. Written once the machine
/// is observed to be gone, or its launch to have failed for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    pub format: u32,
    pub attempt: AttemptNo,
    /// `None`: no machine was ever launched; or, with the refusal `spent`, one was and nobody ever learned its name.
    pub instance: Option<String>,
    /// The outcome's word, or `lost` or `launch_failed` when the agent left none.
    pub because: EndedBecause,
    /// What the cloud says: when billing began and ended.
    pub billed_from: Option<Timestamp>,
    pub billed_to: Option<Timestamp>,
    pub billed: Span,
    /// The cloud does not say when billing ended: this is when it was seen to have, and may be some seconds too long. Of a
    /// machine that nobody ever saw, it is the latest that its switches let it run to. Or the cloud did not say what a spot machine
    /// was billed by, and it is reckoned with its bid: the most that it can have cost.
    #[serde(default)]
    pub billed_estimated: bool,
    pub usd: Usd,
    /// Why no machine was to be had there, when the next placement may do better. With an `instance`: it was named, and withdrawn.
    #[serde(default)]
    pub refusal: Option<Refusal>,
    /// The cloud's own reason for the state, or the launch error.
    #[serde(default)]
    pub cloud_reason: Option<String>,
    /// The agent's outcome; or, when it left none (the power was cut), what its last heartbeat says of the attempt.
    #[serde(default)]
    pub outcome: Option<Outcome>,
    /// Its machine stood still then, and keeps its disk: who finds it running stops it, and ends nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

impl Settled {
    /// Whether a machine was had. One that had a name, and was withdrawn before it ran, was refused like any other.
    pub fn had_machine(&self) -> bool {
        self.instance.is_some() && self.refusal.is_none()
    }
}
