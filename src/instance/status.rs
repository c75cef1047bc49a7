//! The heartbeat of the machine: the agent's report on the attempt.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Notice;
use crate::job::{AttemptPhase, CheckpointSummary, ExitStatus, Progress, Reason};
use crate::market::Span;

/// `attempts/<n>/status.json`: the heartbeat, overwritten at each change and every 15 s (every 5 s
/// on a local disk under a controller).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub format: u32,
    pub instance: String,
    /// Grows with every write; a smaller one is an old message.
    pub sequence: u64,
    pub at: Timestamp,
    pub phase: AttemptPhase,
    pub started: Timestamp,
    /// The current verdict on the workload: `busy`, `idle`, `stalled`, `unknown`, `starting`.
    pub verdict: String,
    #[serde(default)]
    pub reason: Option<Reason>,
    #[serde(default)]
    pub progress: Option<Progress>,
    #[serde(default)]
    pub gpus: Vec<GpuStatus>,
    /// CPU of the workload's tree in percent of one core; `None` is unknown.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    /// Resident memory of the workload's tree.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    pub useful: Span,
    pub idle: Span,
    #[serde(default)]
    pub last_checkpoint: Option<CheckpointSummary>,
    #[serde(default)]
    pub checkpoints: u32,
    /// When the workload was first seen working; `None`: not yet.
    #[serde(default)]
    pub working_since: Option<Timestamp>,
    /// The useful time of this attempt that its newest checkpoint covers.
    #[serde(default)]
    pub saved: Span,
    #[serde(default)]
    pub notice: Option<Notice>,
    #[serde(default)]
    pub starts: u32,
    /// Until when a kept machine is held after the end.
    #[serde(default)]
    pub held_until: Option<Timestamp>,
    /// Sentences: problems that need a person's attention.
    #[serde(default)]
    pub attention: Vec<String>,
    /// The exit status, set while the drain still runs.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// CloudWatch does not accept its measurements, so an alarm on their silence proves nothing
    /// about the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmeasured: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GpuStatus {
    pub index: u32,
    #[serde(default)]
    pub name: Option<String>,
    /// Utilisation in percent over the last interval, over at most ten seconds while the GPU works.
    pub util_percent: Option<f64>,
    pub memory_used_mib: Option<u64>,
    pub memory_total_mib: Option<u64>,
    pub power_watts: Option<f64>,
    pub temperature_celsius: Option<f64>,
}
