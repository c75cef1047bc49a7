//! The senses of the agent: GPUs, processors, memory, disk, network, people.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::instance::Sample;

/// Whom to attribute to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The workload's main process; its descendants, also those that were reparented to the holder, are the tree.
    /// `None` while nothing runs, or when the whole machine is watched.
    pub root_pid: Option<u32>,
    /// The holder (subreaper) of the tree; not part of it.
    pub holder_pid: Option<u32>,
    /// The cgroup that holds the workload and nothing else, when there is one.
    pub cgroup: Option<PathBuf>,
    /// Watch the whole machine as if it were the workload (stand-alone `watch`).
    pub whole_machine: bool,
    /// The file system whose free space is asked for.
    pub workdir: PathBuf,
    /// Bytes that the agent itself moved over the network since it started, to be left out.
    pub own_network_bytes: u64,
}

/// Blocking reads of the operating system and the driver, a few milliseconds; called from a small thread of its own.
/// Keeps state between calls (counters, sample buffers).
pub trait Sensors: Send {
    /// Never fails: what cannot be read is `Unknown` in the sample. Leaves `marks` at their default.
    fn sample(&mut self, scope: &Scope) -> Sample;
}

/// The same without waiting: what the agent's loop calls.
#[async_trait]
pub trait SensorFeed: Send {
    /// One sample, or `None` when the previous call still hangs in the driver: everything is then unknown.
    async fn sample(&mut self, scope: &Scope) -> Option<Sample>;
}
