//! The sensors of the agent: GPUs, processors, memory, disk, network, logged-in users.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::instance::Sample;

/// The processes that samples are attributed to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The workload's main process. The tree is its descendants, also those that now belong to the
    /// holder. `None`: nothing runs, or the whole machine is watched.
    pub root_pid: Option<u32>,
    /// The holder (subreaper) of the tree. It does not count as part of it.
    pub holder_pid: Option<u32>,
    /// The cgroup that contains only the workload, if there is one.
    pub cgroup: Option<PathBuf>,
    /// Watch the whole machine as the workload (stand-alone `watch`).
    pub whole_machine: bool,
    /// The file system whose free space is reported.
    pub workdir: PathBuf,
    /// Bytes that the agent itself sent and received since it started. They are subtracted.
    pub own_network_bytes: u64,
}

/// Blocking reads of the system and the driver, a few milliseconds each, on its own thread. Keeps
/// state.
pub trait Sensors: Send {
    /// Never fails: values that cannot be read are `Unknown` in the sample. Leaves `marks` at their
    /// default.
    fn sample(&mut self, scope: &Scope) -> Sample;
}

/// The same without blocking, for the agent's loop.
#[async_trait]
pub trait SensorFeed: Send {
    /// One sample, or `None` while the previous call still hangs in the driver: all values are
    /// unknown.
    async fn sample(&mut self, scope: &Scope) -> Option<Sample>;
}
