//! What the one place that orders the verdicts is told, and what it answers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::hardware::HardwareFault;
use super::verdict::{Standing, WatchVerdict};
use crate::job::{CheckpointNo, EndedBecause, ExitStatus, OnSpec, Reason, RetriesSpec};
use crate::market::Span;
use crate::policy::lifecycle::checkpoint_rollback::StartUp;
use crate::policy::lifecycle::requests::{EndWish, MoveWish};

/// All that the decision may depend on.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub now: Timestamp,
    pub on: &'a OnSpec,
    pub retries: &'a RetriesSpec,
    pub workload: WorkloadFact,
    /// What runs, or ran last.
    pub stage: Stage,
    /// How often the workload was restarted in this attempt after a failure.
    pub retries_used: u32,
    /// The newest start, if it began from a checkpoint.
    pub start_up: Option<&'a StartUp>,
    pub warning: Warning,
    /// By when the attempt must be over, where the cloud has said that it takes the machine, whether or not anything is done for it yet.
    pub over_by: Option<Timestamp>,
    /// The strongest wish that was not yet obeyed.
    pub wish: Option<EndWish>,
    /// A controller wants this attempt to make room for the next.
    pub moves: Option<&'a MoveWish>,
    /// The first limit that has been reached, and by when the end must be over.
    pub limit: Option<Reached>,
    /// What is broken of the machine, where another one can be had.
    pub hardware: Option<&'a HardwareFault>,
    pub stall: &'a WatchVerdict,
    pub idle: &'a WatchVerdict,
    /// How long the setup script has run, while it does.
    pub setup_for: Option<Span>,
    /// How long it may, as the job file says.
    pub setup_most: Span,
    /// How long ago the workload said that it is done, if it did.
    pub done_for: Option<Span>,
    /// Its service manager has ended the workload.
    pub told: bool,
    /// Processes that the command left behind when it ended.
    pub left_behind: u32,
    /// Those of them that have not left its session, as daemons do.
    pub in_background: u32,
    /// How long the command ran before it ended, where its start was seen.
    pub ran_for: Option<Span>,
    /// How long ago somebody typed on the machine, where it was launched for the job and anybody did.
    pub typed: Option<Span>,
}

/// A limit whose drain begins now.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    pub because: EndedBecause,
    pub reason: Reason,
    /// Billing should have ended by then.
    pub by: Timestamp,
}

/// What the operating system says of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkloadFact {
    Running,
    Ended {
        exit: ExitStatus,
        stage: Stage,
    },
    /// It was ended or has failed, and is about to be started again: nothing runs that could be judged, and how it ended was.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Setup,
    Main,
}

/// What `policy::watch::spot_notice` makes of the cloud's notices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warning {
    None,
    /// Ask for a checkpoint now and go on.
    Save,
    /// End the attempt now, checkpoint first; the manifest must be written `by`, the machine is gone `at`.
    Final {
        by: Timestamp,
        at: Timestamp,
    },
}

/// What the agent does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Continue,
    /// Ask the workload for a checkpoint and go on.
    Save {
        asked_by: &'static str,
    },
    /// Tell somebody and go on.
    Notify,
    /// Record what the processes wait for.
    Stacks,
    /// Bring back the newest checkpoint before this one, and start again from it.
    GoBack {
        before: CheckpointNo,
    },
    /// SIGTERM, grace, SIGKILL, wait, start again.
    Restart {
        after: Span,
    },
    End(End),
}

/// How the attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub because: EndedBecause,
    /// Ask for a checkpoint first.
    pub save: bool,
    /// By when saving and uploading must be over.
    pub by: Option<Timestamp>,
    pub then: Afterwards,
}

/// What becomes of the machine after the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    Terminate,
    Stop,
    /// Kept for a look, then terminated.
    Hold(Span),
    /// The cloud takes it; a machine that ends itself first would be billed for the rest of the hour.
    LeaveToCloud {
        at: Timestamp,
    },
}

/// The decision and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub step: Step,
    pub standing: Standing,
    pub reason: Reason,
}
