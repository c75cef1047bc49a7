//! One reading of all sensors. Counters are cumulative; only their differences have a meaning.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{GpuHealth, Reading};
use crate::market::Cuda;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub at: Timestamp,
    /// A clock that never jumps and counts suspend, so differences are true durations.
    pub mono: Duration,
    /// All GPUs of the machine. `Absent` without an NVIDIA driver, `Unknown` if the driver does not
    /// answer.
    pub gpus: Reading<Vec<GpuSample>>,
    /// The newest CUDA version that the driver supports.
    pub cuda: Reading<Cuda>,
    /// CPU time of the workload's tree over all cores, since a fixed moment. It can shrink if a
    /// child exits unnoticed; a negative difference counts as zero.
    pub tree_cpu: Reading<Duration>,
    /// Busy time of the machine, summed over its cores, and the number of cores.
    pub machine_cpu: Reading<Duration>,
    pub cores: u32,
    pub tree_memory_bytes: Reading<u64>,
    /// (used, total); used means unavailable to programs now.
    pub machine_memory_bytes: Reading<(u64, u64)>,
    /// Bytes that the tree read from and wrote to storage.
    pub tree_disk: Reading<IoCounters>,
    /// Network bytes without the agent's own. From the tree's cgroup if the kernel counts them;
    /// otherwise the machine's total minus the agent's.
    pub network: Reading<IoCounters>,
    /// Free bytes of the file system that holds the workdir.
    pub disk_free_bytes: Reading<u64>,
    pub tree_processes: Reading<u32>,
    /// Time since a user last typed at a terminal; `Known(None)`: no user is logged in.
    pub typing: Reading<Option<Duration>>,
    pub marks: Marks,
}

/// One GPU. Utilisation in percent: the mean of the driver's short samples since the previous
/// sample. While the GPU works, the mean starts at most ten seconds ago.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuSample {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub util_percent: Reading<f64>,
    /// Percent of the time with reads or writes of device memory.
    pub memory_util_percent: Reading<f64>,
    pub memory_used_mib: Reading<u64>,
    pub memory_total_mib: Reading<u64>,
    pub power_watts: Reading<f64>,
    /// The power that the driver lets it draw.
    pub power_limit_watts: Reading<f64>,
    /// The clock of its cores.
    pub clock_mhz: Reading<f64>,
    pub temperature_celsius: Reading<f64>,
    /// Whether a process of the workload's tree holds this GPU; `Unknown` if the driver lists no
    /// processes.
    pub used_by_workload: Reading<bool>,
    pub used_by_others: Reading<bool>,
    /// Why its clock is below the highest, for example `power limit`. Empty: nothing slows it.
    pub throttled_by: Reading<Vec<String>>,
    /// The processes that hold it, those of the workload first; empty if unknown.
    pub processes: Vec<GpuProcess>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_uncorrected: Reading<u64>,
    /// Xid errors since the agent started, newest last.
    pub xids: Vec<u64>,
    pub health: GpuHealth,
    /// The driver's message that this GPU is lost (off the bus, needs a reset). A GPU that fails
    /// one reading is not lost.
    pub lost: Option<String>,
}

/// A process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GpuProcess {
    pub pid: u32,
    #[serde(default)]
    pub name: Option<String>,
    /// Its memory on this GPU.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Whether it belongs to the workload. Null: unknown.
    #[serde(default)]
    pub of_workload: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IoCounters {
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// Signs of activity of the workload, as counters that only grow.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Marks {
    pub log_bytes: u64,
    /// Lines of the progress file and matching log lines.
    pub progress: u64,
    pub step: Option<f64>,
    pub checkpoints: u64,
}
