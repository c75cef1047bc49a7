//! The state of a job in one word, derived from its records and never stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::{AttemptPhase, JobOutcome};

/// The words that `lamp status` shows. Stable: scripts use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The spec is written; no machine is planned yet.
    Submitted,
    /// A plan exists; the machine is being bought or boots.
    Provisioning,
    /// The agent prepares: code, checkpoint, `setup`.
    Preparing,
    Running,
    /// The workload has ended or is ending; the agent uploads.
    Draining,
    /// Ended; the machine is kept for a look and bills.
    Held,
    /// The machine was interrupted; the next attempt has not begun.
    Interrupted,
    /// The agent is done; the cloud does not report the machine as gone yet.
    Terminating,
    Succeeded,
    Failed,
    Stopped,
    Cancelled,
    /// A rule or a limit of the job ended it.
    Ended,
}

impl JobState {
    /// Whether the job is over: its attempts have ended and its bill is final.
    pub fn is_final(self) -> bool {
        matches!(
            self,
            JobState::Succeeded
                | JobState::Failed
                | JobState::Stopped
                | JobState::Cancelled
                | JobState::Ended
        )
    }

    pub fn word(self) -> &'static str {
        match self {
            JobState::Submitted => "submitted",
            JobState::Provisioning => "provisioning",
            JobState::Preparing => "preparing",
            JobState::Running => "running",
            JobState::Draining => "draining",
            JobState::Held => "held",
            JobState::Interrupted => "interrupted",
            JobState::Terminating => "terminating",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Stopped => "stopped",
            JobState::Cancelled => "cancelled",
            JobState::Ended => "ended",
        }
    }
}

impl From<AttemptPhase> for JobState {
    fn from(phase: AttemptPhase) -> Self {
        match phase {
            AttemptPhase::Preparing | AttemptPhase::Setup => JobState::Preparing,
            AttemptPhase::Running => JobState::Running,
            AttemptPhase::Draining => JobState::Draining,
            AttemptPhase::Held => JobState::Held,
            AttemptPhase::Ended => JobState::Terminating,
        }
    }
}

impl From<JobOutcome> for JobState {
    fn from(outcome: JobOutcome) -> Self {
        match outcome {
            JobOutcome::Succeeded => JobState::Succeeded,
            JobOutcome::Failed => JobState::Failed,
            JobOutcome::Stopped => JobState::Stopped,
            JobOutcome::Cancelled => JobState::Cancelled,
            JobOutcome::Ended => JobState::Ended,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
