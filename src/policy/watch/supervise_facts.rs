//! Inputs and results of `supervise`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::hardware::HardwareFault;
use super::verdict::{Activity, WatchVerdict};
use crate::job::{CheckpointNo, EndedBecause, ExitStatus, OnSpec, Reason, RetriesSpec};
use crate::market::Span;
use crate::policy::lifecycle::checkpoint_rollback::StartUp;
use crate::policy::lifecycle::requests::{EndWish, MoveWish};

#[derive(Clone, Debug)]
pub struct SuperviseFacts<'a> {
    pub now: Timestamp,
    pub on: &'a OnSpec,
    pub retries: &'a RetriesSpec,
    pub workload: WorkloadFact,
    /// The running stage, or the last one.
    pub stage: WorkloadStage,
    /// Restarts after a failure in this attempt.
    pub retries_used: u32,
    /// The newest start, if it began from a checkpoint.
    pub start_up: Option<&'a StartUp>,
    pub warning: Warning,
    /// When the attempt must be over because the cloud interrupts the machine, even if no action is
    /// due yet.
    pub over_by: Option<Timestamp>,
    /// The strongest wish that is not yet obeyed.
    pub wish: Option<EndWish>,
    /// A controller wants to end this attempt for the next.
    pub moves: Option<&'a MoveWish>,
    /// The first reached limit, and when the end must be over.
    pub limit: Option<Reached>,
    /// The machine's fault, if another machine can be bought.
    pub hardware: Option<&'a HardwareFault>,
    pub stall: &'a WatchVerdict,
    pub idle: &'a WatchVerdict,
    /// How long the setup script has been running.
    pub setup_for: Option<Span>,
    /// Its limit from the job file.
    pub setup_most: Span,
    /// Time since the workload reported that it is done.
    pub done_for: Option<Span>,
    /// The service manager ended the workload.
    pub told: bool,
    /// Processes left after the command ended.
    pub left_behind: u32,
    /// Those still in its session, unlike daemons.
    pub in_background: u32,
    /// How long the command ran, if its start was seen.
    pub ran_for: Option<Span>,
    /// Time since a user last typed on a machine launched for the job.
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

/// The operating system's facts about the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkloadFact {
    Running,
    Ended {
        exit: ExitStatus,
        stage: WorkloadStage,
    },
    /// It ended and is about to be restarted. Its end is already judged.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadStage {
    Setup,
    Main,
}

/// The result of `policy::watch::spot_notice`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warning {
    None,
    /// Ask for a checkpoint now and continue.
    Save,
    /// End the attempt now, checkpoint first; the manifest must be written `by`, the machine ends
    /// `at`.
    Final {
        by: Timestamp,
        at: Timestamp,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum SuperviseStep {
    Continue,
    /// Ask the workload for a checkpoint and continue.
    Save {
        asked_by: &'static str,
    },
    /// Notify the user and continue.
    Notify,
    /// Record what the processes wait for.
    Stacks,
    /// Restore the newest checkpoint before this one, and restart from it.
    GoBack {
        before: CheckpointNo,
    },
    /// SIGTERM, grace, SIGKILL, wait, start again.
    Restart {
        after: Span,
    },
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub because: EndedBecause,
    /// Ask for a checkpoint first.
    pub save: bool,
    /// When saving and uploading must be over.
    pub by: Option<Timestamp>,
    pub then: Afterwards,
}

/// The machine's state after the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    Terminate,
    Stop,
    /// Kept for the user, then terminated.
    Hold(Span),
    /// The cloud ends it. If it ended itself first, EC2 would bill a first hour that is otherwise
    /// free.
    LeaveToCloud {
        at: Timestamp,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub step: SuperviseStep,
    pub standing: Activity,
    pub reason: Reason,
}
