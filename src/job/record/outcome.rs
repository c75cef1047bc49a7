//! Why an attempt ended, and why a job did.

use std::fmt;

use jiff::Timestamp;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

use crate::job::{AttemptNo, CheckpointSummary, JobId, MetricSeries, Progress, Reason};
use crate::market::Span;

/// `attempts/<n>/outcome.json`: the agent writes it once, last before the power-off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Outcome {
    pub format: u32,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub job: JobId,
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    pub instance: String,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub because: EndedBecause,
    /// How the workload ended, if it did.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// The verdicts that led here, oldest first, with their numbers.
    pub reasons: Vec<Reason>,
    pub useful: Span,
    pub idle: Span,
    /// Time without telemetry: neither useful nor idle.
    #[serde(default)]
    pub unknown: Span,
    #[serde(default)]
    pub last_checkpoint: Option<CheckpointSummary>,
    #[serde(default)]
    pub checkpoints: u32,
    /// The checkpoint that this attempt began from.
    #[serde(default)]
    pub resumed_from: Option<CheckpointSummary>,
    /// Why it began from this checkpoint and not from a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<String>,
    #[serde(default)]
    pub progress: Option<Progress>,
    /// The reports of a trial of a tuning; `None`: it is no trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricSeries>,
    /// When the workload was first seen to work; `None`: never.
    #[serde(default)]
    pub working_since: Option<Timestamp>,
    /// The useful time of this attempt that its newest checkpoint holds.
    #[serde(default)]
    pub saved: Span,
    /// Sentences about lost data: a log that was cut, an output that failed to upload.
    #[serde(default)]
    pub losses: Vec<String>,
}

/// Why an attempt ended. The words are stable: receipts and scripts use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndedBecause {
    Succeeded,
    Failed,
    SetupFailed,
    PreflightFailed,
    OutOfMemory,
    Interrupted,
    Idle,
    Stalled,
    MaxRuntime,
    Budget,
    Deadline,
    /// The machine's hard end, which the launch set: the last limit.
    HardEnd,
    UserStopped,
    UserCancelled,
    LaunchFailed,
    /// The machine lost a GPU. The agent saved what it could and ended the machine.
    HardwareLost,
    /// The controller asked for another market, `market = "auto"`: the agent saved, and the job
    /// continues there.
    Moved,
    /// The machine is gone without an outcome, or the holder of the workload was killed.
    Lost,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct ExitStatus {
    /// Its exit code, if it exited.
    #[serde(default)]
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default)]
    pub signal: Option<i32>,
    /// The kernel killed it, or a process of its tree, for lack of memory.
    #[serde(default)]
    pub oom: bool,
}

/// Why a job ended, for the receipt's `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    Succeeded,
    Failed,
    Stopped,
    Cancelled,
    /// A rule or a limit of the job ended it: idle, time, money.
    Ended,
}

impl ExitStatus {
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// It exited with a code. A killed process has no code; after an out-of-memory kill the code
    /// does not count.
    pub fn is_in_order(&self) -> bool {
        self.code.is_some() && !self.oom
    }

    /// The holder was killed too, so the exit is unknown.
    pub fn is_unseen(&self) -> bool {
        *self == ExitStatus::default()
    }

    /// As a shell reports it: the code, or 128 plus the signal.
    pub fn shell_code(&self) -> i32 {
        match (self.code, self.signal) {
            (Some(code), _) => code,
            (None, Some(signal)) => 128 + signal,
            (None, None) => 1,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal, self.oom) {
            (_, _, true) => f.write_str("killed by the kernel for want of memory"),
            (Some(code), _, _) => write!(f, "exit code {code}"),
            (None, Some(signal), _) => {
                write!(f, "killed by {}", crate::job::spec::signal::signal_text(signal))
            }
            (None, None, _) => f.write_str("ended in an unknown way"),
        }
    }
}

impl Outcome {
    /// Useful work that no checkpoint holds.
    pub fn unsaved(&self) -> Span {
        Span::from_duration(self.useful.duration().saturating_sub(self.saved.duration()))
    }
}

impl EndedBecause {
    /// The stable word, as in records.
    pub fn word(self) -> &'static str {
        match self {
            EndedBecause::Succeeded => "succeeded",
            EndedBecause::Failed => "failed",
            EndedBecause::SetupFailed => "setup_failed",
            EndedBecause::PreflightFailed => "preflight_failed",
            EndedBecause::OutOfMemory => "out_of_memory",
            EndedBecause::Interrupted => "interrupted",
            EndedBecause::Idle => "idle",
            EndedBecause::Stalled => "stalled",
            EndedBecause::MaxRuntime => "max_runtime",
            EndedBecause::Budget => "budget",
            EndedBecause::Deadline => "deadline",
            EndedBecause::HardEnd => "hard_end",
            EndedBecause::UserStopped => "user_stopped",
            EndedBecause::UserCancelled => "user_cancelled",
            EndedBecause::LaunchFailed => "launch_failed",
            EndedBecause::HardwareLost => "hardware_lost",
            EndedBecause::Moved => "moved",
            EndedBecause::Lost => "lost",
        }
    }

    /// The inverse of [`EndedBecause::word`].
    pub fn from_word(word: &str) -> Option<Self> {
        let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            word.into_deserializer();
        EndedBecause::deserialize(word).ok()
    }

    /// Whether the machine was interrupted, lost or broke, so that a new attempt may resume.
    pub fn is_interruption(self) -> bool {
        matches!(self, EndedBecause::Interrupted | EndedBecause::HardwareLost | EndedBecause::Lost)
    }

    /// Whether the job may continue in another attempt.
    pub fn goes_on(self) -> bool {
        self.is_interruption() || self == EndedBecause::Moved
    }

    pub fn job_outcome(self) -> JobOutcome {
        match self {
            EndedBecause::Succeeded => JobOutcome::Succeeded,
            EndedBecause::UserStopped => JobOutcome::Stopped,
            EndedBecause::UserCancelled => JobOutcome::Cancelled,
            EndedBecause::Idle
            | EndedBecause::MaxRuntime
            | EndedBecause::Budget
            | EndedBecause::Deadline
            | EndedBecause::HardEnd => JobOutcome::Ended,
            _ => JobOutcome::Failed,
        }
    }
}

impl fmt::Display for EndedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl EndedBecause {
    /// For people: `setup failed`.
    pub fn words(self) -> String {
        self.word().replace('_', " ")
    }
}

impl JobOutcome {
    pub fn word(self) -> &'static str {
        match self {
            JobOutcome::Succeeded => "succeeded",
            JobOutcome::Failed => "failed",
            JobOutcome::Stopped => "stopped",
            JobOutcome::Cancelled => "cancelled",
            JobOutcome::Ended => "ended",
        }
    }

    /// For people: if the job failed other than by its own command, or a rule ended it, the cause.
    pub fn told(self, because: Option<EndedBecause>) -> String {
        because
            .filter(|because| {
                matches!(self, JobOutcome::Failed | JobOutcome::Ended)
                    && *because != EndedBecause::Failed
            })
            .map_or_else(|| self.word().to_owned(), EndedBecause::words)
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
