//! The workload's processes: its cgroup's, else the descendants of its root and holder.
//!
//! Not here: resource use (`host::process_usage`), and signals (`host::process_tree`, the workload
//! adapters).

#![expect(clippy::disallowed_methods, reason = "reads the cgroup")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::kernel_file::ProcFile;
use super::process_tree;
use crate::ports::Scope;

/// Limits on the time between two listings of the tree. A listing reads every thread, and new
/// processes are rare. Shorter gains nothing: samples come once a second. Longer counts the work of
/// a new process late.
const RELIST_EVERY_MIN: Duration = Duration::from_millis(900);
const RELIST_EVERY_MAX: Duration = Duration::from_secs(15);

/// A listing may use one part in this many of one core's time. Twenty processes take 0.2 ms: one
/// listing every four seconds. With fifty threads each they take 5 ms: [`RELIST_EVERY_MAX`]. A
/// bigger part is expensive when a script starts a process a second. A smaller part counts new
/// processes late.
const LISTING_SHARE: u32 = 20_000;

/// The owner of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessOwner {
    Workload,
    Other,
    /// Its number has no meaning here: another PID namespace, or it has just ended.
    Hidden,
}

/// The processes now in the tree.
#[derive(Debug, Default)]
pub(crate) struct WorkloadTree {
    pids: Vec<u32>,
    whole_machine: bool,
    key: Option<ScopeKey>,
    listed: Option<Duration>,
    relist_every: Duration,
    newest: NewestProcess,
}

/// The number of this machine's newest process or thread. While it stays the same, no tree has
/// grown.
#[derive(Debug)]
struct NewestProcess {
    file: ProcFile,
    buffer: Vec<u8>,
    number: Option<u64>,
}

impl Default for NewestProcess {
    fn default() -> Self {
        NewestProcess { file: ProcFile::new("/proc/loadavg"), buffer: Vec::new(), number: None }
    }
}

impl NewestProcess {
    /// Whether the number changed since the last call; true if it cannot be read.
    fn moved(&mut self) -> bool {
        let number = self
            .file
            .read(&mut self.buffer)
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(4)?.parse().ok());
        let before = std::mem::replace(&mut self.number, number);
        number.is_none() || number != before
    }
}

/// Identifies the workload: another one has another tree.
#[derive(Clone, Debug, PartialEq)]
struct ScopeKey {
    root: Option<u32>,
    holder: Option<u32>,
    cgroup: Option<PathBuf>,
}

impl WorkloadTree {
    /// Lists the tree again when due, or for another workload.
    pub fn refresh(&mut self, scope: &Scope, now: Duration) {
        let key = ScopeKey {
            root: scope.root_pid,
            holder: scope.holder_pid,
            cgroup: scope.cgroup.clone(),
        };
        self.whole_machine = scope.whole_machine;
        let same = self.key.as_ref() == Some(&key);
        let due = self.listed.is_none_or(|at| now.saturating_sub(at) >= self.relist_every);
        if same && !(due && self.newest.moved()) {
            return;
        }
        let began = thread_time();
        self.pids = if scope.whole_machine { Vec::new() } else { listed(scope) };
        self.pids.sort_unstable();
        self.pids.dedup();
        self.key = Some(key);
        self.listed = Some(now);
        self.relist_every = (thread_time().saturating_sub(began) * LISTING_SHARE)
            .clamp(RELIST_EVERY_MIN, RELIST_EVERY_MAX);
    }

    /// Removes ended processes, without a new listing.
    pub fn forget(&mut self, gone: &[u32]) {
        self.pids.retain(|pid| !gone.contains(pid));
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    pub fn owner(&self, pid: u32) -> ProcessOwner {
        if self.pids.binary_search(&pid).is_ok() {
            return ProcessOwner::Workload;
        }
        if !Path::new("/proc").join(pid.to_string()).exists() {
            return ProcessOwner::Hidden;
        }
        if self.whole_machine && pid != std::process::id() {
            ProcessOwner::Workload
        } else {
            ProcessOwner::Other
        }
    }
}

/// Processor time, not wall time: waiting for a busy machine is free.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// All descendants of the holder are the workload's: it adopts orphans. The holder itself and the
/// agent are not.
fn listed(scope: &Scope) -> Vec<u32> {
    let mut pids = Vec::new();
    if let Some(cgroup) = &scope.cgroup {
        cgroup_pids(cgroup, &mut pids);
    }
    if pids.is_empty() {
        let from_holder = scope.holder_pid.map(process_tree::tree).unwrap_or_default();
        let from_root = match scope.root_pid {
            Some(root) if !from_holder.contains(&root) => process_tree::tree(root),
            _ => Vec::new(),
        };
        pids = from_holder;
        pids.extend(from_root);
    }
    pids.retain(|pid| Some(*pid) != scope.holder_pid && *pid != std::process::id());
    pids
}

/// Processes of the cgroup and of its children, which the workload may have made.
fn cgroup_pids(cgroup: &Path, found: &mut Vec<u32>) {
    if let Ok(text) = fs::read_to_string(cgroup.join("cgroup.procs")) {
        found.extend(text.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok()));
    }
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cgroup_pids(&entry.path(), found);
        }
    }
}
