//! Which processes are the workload's: those of its cgroup, else the descendants of its root and of its holder.
//!
//! What must never live here: what the processes do (`host_usage`), and signals (`proc_tree`, the workload adapters).

#![expect(clippy::disallowed_methods, reason = "reads the cgroup, which is what this adapter is for")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::proc_tree;
use crate::ports::Scope;

/// Between two listings of the tree by its parents: a few dozen files for a tree with many threads, and new processes are
/// rare. Shorter costs more than everything else together; longer, and the work of a new process is counted later.
const RELIST_EVERY: Duration = Duration::from_secs(3);

/// To whom a process belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Workload,
    Other,
    /// It has a number that means nothing here: it lives in another PID namespace, or has just ended.
    Hidden,
}

/// Who is in the tree now.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pids: Vec<u32>,
    whole_machine: bool,
    key: Option<Key>,
    listed: Option<Duration>,
}

/// Which workload it is: another one has another tree.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    root: Option<u32>,
    holder: Option<u32>,
    cgroup: Option<PathBuf>,
}

impl Tree {
    /// Brings the list up to date. `stale`: a listed process was found to be gone.
    pub fn refresh(&mut self, scope: &Scope, now: Duration, stale: bool) {
        let key = Key { root: scope.root_pid, holder: scope.holder_pid, cgroup: scope.cgroup.clone() };
        let due = self.listed.is_none_or(|at| now.saturating_sub(at) >= RELIST_EVERY);
        self.whole_machine = scope.whole_machine;
        if !due && !stale && self.key.as_ref() == Some(&key) {
            return;
        }
        self.pids = if scope.whole_machine { Vec::new() } else { listed(scope) };
        self.pids.sort_unstable();
        self.pids.dedup();
        self.key = Some(key);
        self.listed = Some(now);
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

/// The holder's descendants are the workload's: it adopts what was orphaned. The holder itself, and the agent, are not.
fn listed(scope: &Scope) -> Vec<u32> {
    let mut pids = Vec::new();
    if let Some(cgroup) = &scope.cgroup {
        cgroup_pids(cgroup, &mut pids);
    }
    if pids.is_empty() {
        let from_holder = scope.holder_pid.map(proc_tree::tree).unwrap_or_default();
        let from_root = match scope.root_pid {
            Some(root) if !from_holder.contains(&root) => proc_tree::tree(root),
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
