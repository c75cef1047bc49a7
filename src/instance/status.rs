//! The heartbeat of the machine: the agent's report on the attempt.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{GpuHealth, GpuProcess, GpuSample, Notice};
use crate::job::{AttemptPhase, CheckpointSummary, ExitStatus, MetricSeries, Progress, Reason};
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
    /// The reports of a trial of a tuning; `None`: it is no trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricSeries>,
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
    /// The subject of each of these sentences, in their order. An older agent leaves it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attention_kinds: Vec<AttentionKind>,
    /// The exit status, set while the drain still runs.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// CloudWatch does not accept its measurements, so an alarm on their silence proves nothing
    /// about the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmeasured: bool,
    /// It obeys a request to keep the job. An older agent, which ignores one, leaves this out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps: bool,
    /// The checkpoint folder has files whose writer was lost. They are not saved as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubts: bool,
}

/// The subject of a sentence in `attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// The command makes no progress.
    Stalled,
    /// The machine is not used.
    Idle,
    /// The stacks of a stalled command were written down.
    Stacks,
    /// Everything else, also what a newer agent tells.
    #[serde(other)]
    Other,
}

/// An older agent tells by the beginning of a sentence what it is about.
const STACKS: &str = "stalled: what the processes wait for";

impl AttentionKind {
    fn by_words(text: &str) -> Self {
        match text {
            _ if text.starts_with(STACKS) => AttentionKind::Stacks,
            _ if text.starts_with("stalled:") => AttentionKind::Stalled,
            _ if text.starts_with("idle:") => AttentionKind::Idle,
            _ => AttentionKind::Other,
        }
    }
}

impl Status {
    /// The sentences about a stall or an idle machine. Only the verdict says whether they hold.
    pub fn watch_sentences(&self) -> Vec<String> {
        let told = self.sentences().filter(|(_, about)| *about != AttentionKind::Other);
        told.map(|(text, _)| text.to_owned()).collect()
    }

    /// The sentences for people, each with its subject.
    pub fn sentences(&self) -> impl Iterator<Item = (&str, AttentionKind)> {
        let is_told = self.attention_kinds.len() == self.attention.len();
        self.attention.iter().enumerate().map(move |(at, text)| {
            let told = self.attention_kinds.get(at).copied().filter(|_| is_told);
            (text.as_str(), told.unwrap_or_else(|| AttentionKind::by_words(text)))
        })
    }
}

/// One GPU, in the heartbeat and in samples. An older agent leaves out what follows the
/// temperature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The power that the driver lets it draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// The clock of its cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Why its clock is below the highest, for example `power limit`. Empty: nothing slows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_by: Option<Vec<String>>,
    /// Uncorrected memory errors since the driver was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// The newest Xid errors since the agent started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
    /// The driver's message that this GPU is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Its driver, replaced memory rows and PCIe.
    #[serde(default, skip_serializing_if = "GpuHealth::is_unknown")]
    pub health: GpuHealth,
    /// The processes that hold it, those of the workload first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<GpuProcess>,
}

/// More processes make each heartbeat longer, and no screen shows more. A GPU that many data
/// loaders hold has a few dozen.
const PROCESSES_MAX: usize = 16;

/// Older Xid errors are in the log of the driver.
const XIDS_MAX: usize = 8;

impl GpuStatus {
    pub fn of(gpu: &GpuSample) -> GpuStatus {
        GpuStatus {
            index: gpu.index,
            name: Some(gpu.name.clone()).filter(|name| !name.is_empty()),
            util_percent: gpu.util_percent.known().copied(),
            memory_used_mib: gpu.memory_used_mib.known().copied(),
            memory_total_mib: gpu.memory_total_mib.known().copied(),
            power_watts: gpu.power_watts.known().copied(),
            temperature_celsius: gpu.temperature_celsius.known().copied(),
            power_limit_watts: gpu.power_limit_watts.known().copied(),
            clock_mhz: gpu.clock_mhz.known().copied(),
            throttled_by: gpu.throttled_by.known().cloned(),
            ecc_uncorrected: gpu.ecc_uncorrected.known().copied(),
            xids: gpu.xids[gpu.xids.len().saturating_sub(XIDS_MAX)..].to_vec(),
            lost: gpu.lost.clone(),
            health: gpu.health.clone(),
            processes: gpu.processes.iter().take(PROCESSES_MAX).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_is_told_by_its_kind_and_of_older_agent_by_its_words() {
        let kinds = |attention: &str, more: &str| -> Vec<AttentionKind> {
            let text = format!(
                r#"{{"format": 1, "instance": "i-1", "sequence": 1, "at": "2026-01-01T00:00:00Z",
                "phase": "running", "started": "2026-01-01T00:00:00Z", "verdict": "busy",
                "useful": "1s", "idle": "0s", "attention": {attention}{more}}}"#
            );
            let status: Status = serde_json::from_str(&text).unwrap();
            status.sentences().map(|(_, kind)| kind).collect()
        };
        let old = r#"["stalled: no step", "idle: nothing", "full",
            "stalled: what the processes wait for is in x"]"#;
        let (stalled, idle, other) =
            (AttentionKind::Stalled, AttentionKind::Idle, AttentionKind::Other);
        assert_eq!(kinds(old, ""), [stalled, idle, other, AttentionKind::Stacks]);
        let new = r#"["the loader is stalled", "idle: a word of a script", "x"]"#;
        let told = r#", "attention_kinds": ["stalled", "other", "of_a_newer_agent"]"#;
        assert_eq!(kinds(new, told), [stalled, other, other]);
    }
}
