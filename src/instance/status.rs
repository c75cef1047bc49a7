//! The heartbeat of the machine under a job: how the attempt is going, seen from the box.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Notice;
use crate::job::{AttemptPhase, CheckpointSummary, ExitStatus, Progress, Reason};
use crate::market::Span;

/// `attempts/<n>/status.json`: the heartbeat, overwritten every 15 s (5 s on a local disk under a controller) and at each change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub format: u32,
    pub instance: String,
    /// Grows with every write; a smaller one is an old message.
    pub sequence: u64,
    pub at: Timestamp,
    pub phase: AttemptPhase,
    pub started: Timestamp,
    /// The verdict on the workload now, with its reason: `busy`, `idle`, `stalled`, `unknown`, `starting`.
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
    /// When the workload was first seen to work; `None`: not yet.
    #[serde(default)]
    pub working_since: Option<Timestamp>,
    /// The useful time of this attempt that its newest checkpoint holds.
    #[serde(default)]
    pub saved: Span,
    #[serde(default)]
    pub notice: Option<Notice>,
    /// How often the workload was started in this attempt.
    #[serde(default)]
    pub starts: u32,
    /// Until when a kept machine is held after the end.
    #[serde(default)]
    pub held_until: Option<Timestamp>,
    /// What a person should look at: sentences.
    #[serde(default)]
    pub attention: Vec<String>,
    /// The end, once the workload has ended and the drain goes on.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// Its measurements are not taken where they are published: an alarm on their silence says nothing of this machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmeasured: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuStatus {
    pub index: u32,
    #[serde(default)]
    pub name: Option<String>,
    /// Utilisation over the last interval, or over ten seconds at most while it is at work, percent.
    pub util_percent: Option<f64>,
    pub memory_used_mib: Option<u64>,
    pub memory_total_mib: Option<u64>,
    pub power_watts: Option<f64>,
    pub temperature_celsius: Option<f64>,
}
