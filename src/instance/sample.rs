//! What the sensors read at one moment. Counters are cumulative; only differences of two samples mean anything.

use std::time::Duration;

use jiff::Timestamp;

use super::Reading;
use crate::market::Cuda;

/// One reading of everything, once a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub at: Timestamp,
    /// A clock that never steps and counts suspend: differences of it are true lengths of time.
    pub mono: Duration,
    /// All GPUs of the machine. `Absent` when it has no NVIDIA driver at all, `Unknown` when the driver does not answer.
    pub gpus: Reading<Vec<GpuSample>>,
    /// The newest CUDA whose programs the driver runs.
    pub cuda: Reading<Cuda>,
    /// CPU time of the workload's tree, all cores together, since some fixed moment. May shrink when a child is gone
    /// unseen; a difference below zero then counts as zero.
    pub tree_cpu: Reading<Duration>,
    /// Busy time of the whole machine, summed over its cores, and the number of cores.
    pub machine_cpu: Reading<Duration>,
    pub cores: u32,
    pub tree_memory_bytes: Reading<u64>,
    /// (used, total), where used is what programs could not have now.
    pub machine_memory_bytes: Reading<(u64, u64)>,
    /// Bytes that the tree read from and wrote to storage.
    pub tree_disk: Reading<IoCounters>,
    /// Bytes over the network that are not the agent's own: of the tree's cgroup where the kernel counts them, else of
    /// the machine less what the agent sent.
    pub network: Reading<IoCounters>,
    /// Free bytes of the file system that holds the workdir.
    pub disk_free_bytes: Reading<u64>,
    /// Processes in the tree.
    pub tree_processes: Reading<u32>,
    /// Since somebody last typed at a terminal of this machine; `Known(None)`: nobody is logged in.
    pub typing: Reading<Option<Duration>>,
    pub marks: Marks,
}

/// One GPU. Utilisation is the mean of what the driver has counted (its buffer of short samples) since the previous sample, or
/// since one ten seconds ago at most while it is at work, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuSample {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub util_percent: Reading<f64>,
    /// Share of the time in which device memory was read or written.
    pub memory_util_percent: Reading<f64>,
    pub memory_used_mib: Reading<u64>,
    pub memory_total_mib: Reading<u64>,
    pub power_watts: Reading<f64>,
    pub temperature_celsius: Reading<f64>,
    /// Whether a process of the workload's tree holds this GPU; `Unknown` where the driver does not list processes.
    pub used_by_workload: Reading<bool>,
    pub used_by_others: Reading<bool>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_uncorrected: Reading<u64>,
    /// Xid errors seen since the agent started, newest last.
    pub xids: Vec<u64>,
    /// The driver says that this GPU is gone for good (off the bus, in need of a reset), in its words. A GPU that merely
    /// cannot be read is not lost.
    pub lost: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IoCounters {
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// Signs of life that the workload leaves, as counters that only grow.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Marks {
    /// Bytes that the workload printed.
    pub log_bytes: u64,
    /// Lines of the progress file and matching log lines.
    pub progress: u64,
    /// The newest step.
    pub step: Option<f64>,
    /// Changes of the checkpoint folder.
    pub checkpoints: u64,
}
