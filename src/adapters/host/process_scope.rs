//! Which processes are the workload's: those of its cgroup, else the descendants of its root and of its holder.
//!
//! Not here: what the processes do (`host::process_usage`), and signals (`host::process_tree`, the workload adapters).

#![expect(clippy::disallowed_methods, reason = "reads the cgroup")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::kernel_file::ProcFile;
use super::process_tree;
use crate::ports::Scope;

/// Between two listings of the tree, at least and at most: each asks every thread of every process for its children, and
/// new processes are rare. More often buys nothing, for samples come once a second; less often, and the work of a new
/// process is counted later.
const RELIST_EVERY_MIN: Duration = Duration::from_millis(900);
const RELIST_EVERY_MAX: Duration = Duration::from_secs(15);

/// A listing may take one part in so many of the processor time of one core. Twenty processes take 0.2 ms, so they
/// are listed every four seconds while new ones appear; with fifty threads each it is some 5 ms, and [`RELIST_EVERY_MAX`].
/// A bigger part is dear where a script starts a process a second (a fifth of all that the agent may cost, once); with a
/// smaller one the work of new processes would stay unseen for long.
const LISTING_SHARE: u32 = 20_000;

/// To whom a process belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Workload,
    Other,
    /// It has a number that means nothing here: it lives in another PID namespace, or has just ended.
    Hidden,
}

/// Who is in the tree now.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pids: Vec<u32>,
    whole_machine: bool,
    key: Option<Key>,
    listed: Option<Duration>,
    relist_every: Duration,
    newest: Newest,
}

/// The number of the process or thread that was made last on this machine: while it stands still, no tree has grown.
#[derive(Debug)]
struct Newest {
    file: ProcFile,
    buffer: Vec<u8>,
    number: Option<u64>,
}

impl Default for Newest {
    fn default() -> Self {
        Newest { file: ProcFile::new("/proc/loadavg"), buffer: Vec::new(), number: None }
    }
}

impl Newest {
    /// Whether it is another one than at the last call; true where nobody knows.
    fn moved(&mut self) -> bool {
        let number = self.file.read(&mut self.buffer).ok().and_then(|text| text.split_ascii_whitespace().nth(4)?.parse().ok());
        let before = std::mem::replace(&mut self.number, number);
        number.is_none() || number != before
    }
}

/// Which workload it is: another one has another tree.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    root: Option<u32>,
    holder: Option<u32>,
    cgroup: Option<PathBuf>,
}

impl Tree {
    /// Lists anew if it is time, or another workload.
    pub fn refresh(&mut self, scope: &Scope, now: Duration) {
        let key = Key { root: scope.root_pid, holder: scope.holder_pid, cgroup: scope.cgroup.clone() };
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
        self.relist_every = (thread_time().saturating_sub(began) * LISTING_SHARE).clamp(RELIST_EVERY_MIN, RELIST_EVERY_MAX);
    }

    /// Takes processes off that have ended; that alone is no reason to list anew.
    pub fn forget(&mut self, gone: &[u32]) {
        self.pids.retain(|pid| !gone.contains(pid));
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    pub fn owner(&self, pid: u32) -> Owner {
        if self.pids.binary_search(&pid).is_ok() {
            return Owner::Workload;
        }
        if !Path::new("/proc").join(pid.to_string()).exists() {
            return Owner::Hidden;
        }
        if self.whole_machine && pid != std::process::id() { Owner::Workload } else { Owner::Other }
    }
}

/// Processor time, not wall time: a listing that had to wait for a busy machine was not an expensive one.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The holder's descendants are the workload's: it adopts what was orphaned. The holder itself, and the agent, are not.
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

/// Those of the cgroup and of the cgroups that the workload made in it.
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
