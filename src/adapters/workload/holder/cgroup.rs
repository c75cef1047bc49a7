//! The holder's control groups, and what the kernel reports there about memory.
//!
//! In its own delegated unit the holder makes two groups, `holder` and `workload`. Killing the
//! workload's whole group then spares the holder, which records the end. Without such a unit there
//! is no group, and out-of-memory kills are read from the surrounding group or the machine.

#![expect(clippy::disallowed_methods, reason = "reads and writes the cgroup file system")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The two groups below a delegated unit.
#[derive(Debug)]
pub struct Groups {
    holder: PathBuf,
    pub workload: PathBuf,
}

/// The mount points of cgroup v2: alone, or beside v1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Each has figures about the workload alone. A controller that the kernel lacks is skipped.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "io", "pids"];

impl Groups {
    /// The groups of `unit`, if this process runs in it and may divide it.
    pub fn of_unit(unit: &str) -> Option<Groups> {
        let own = own_group()?;
        if own.file_name()?.to_str()? != unit {
            return None;
        }
        let groups = Groups { holder: own.join("holder"), workload: own.join("workload") };
        fs::create_dir_all(&groups.holder).ok()?;
        fs::create_dir_all(&groups.workload).ok()?;
        enter(&groups.holder).ok()?;
        for controller in CONTROLLERS {
            // It fails if the kernel or the unit lacks the controller; its figures are unknown
            // then.
            let _ = fs::write(own.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        Some(groups)
    }

    /// Runs `start` inside the workload's group, so that new processes begin there.
    pub fn inside<T>(&self, start: impl FnOnce() -> T) -> T {
        let entered = enter(&self.workload);
        let result = start();
        if entered.is_ok() {
            let _ = enter(&self.holder);
        }
        result
    }
}

/// The name of the unit that runs the holder of a start.
pub fn unit_name(start: &str) -> String {
    format!("lamp-{start}.service")
}

/// Kills all processes of a group at once, including new forks. Linux 5.14 and later.
pub fn kill(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.kill"), "1")
}

fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// The folder of this process's cgroup v2.
fn own_group() -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = table.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = ROOTS.iter().find(|root| Path::new(root).join("cgroup.controllers").exists())?;
    Some(Path::new(root).join(path))
}

/// Out-of-memory kills since the workload started.
#[derive(Debug)]
pub struct OomWatch {
    /// The file with the counter, and whether it counts only the workload.
    source: Option<(PathBuf, bool)>,
    before: u64,
}

impl OomWatch {
    /// Reads the most specific counter that exists.
    pub fn begin(groups: Option<&Groups>) -> Self {
        let own = groups.map(|groups| (groups.workload.join("memory.events"), true));
        let around = [
            own_group().map(|group| group.join("memory.events")),
            first_version_group(),
            Some("/proc/vmstat".into()),
        ];
        let source = own
            .into_iter()
            .chain(around.into_iter().flatten().map(|path| (path, false)))
            .find(|(path, _)| oom_kills(path).is_some());
        let before = source.as_ref().and_then(|(path, _)| oom_kills(path)).unwrap_or(0);
        OomWatch { source, before }
    }

    /// Whether the kernel killed a process of the workload for lack of memory. A shared counter
    /// counts only with a SIGKILL that neither the agent nor the holder sent.
    pub fn killed(&self, died_of_sigkill: bool, sent_by_us: bool) -> bool {
        let Some((path, own)) = &self.source else { return false };
        oom_kills(path).is_some_and(|now| now > self.before)
            && (*own || (died_of_sigkill && !sent_by_us))
    }
}

fn oom_kills(path: &Path) -> Option<u64> {
    counter(&fs::read_to_string(path).ok()?, "oom_kill")
}

/// `memory.oom_control` of this process's group in cgroup v1.
fn first_version_group() -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = table.lines().find_map(|line| line.split_once(":memory:/").map(|(_, path)| path))?;
    Some(Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"))
}

/// The number after a word at the beginning of a line.
fn counter(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        let events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(counter(events, "oom_kill"), Some(2));
        assert_eq!(counter(events, "oom"), Some(3));
        assert_eq!(counter(events, "nothing"), None);
    }

    #[test]
    fn shared_counter_needs_a_sigkill_that_was_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("events");
        fs::write(&file, "oom_kill 5\n").expect("written");
        let watch = |own, before| OomWatch { source: Some((file.clone(), own)), before };
        assert!(!watch(true, 5).killed(true, false), "the counter did not move");
        assert!(
            watch(true, 4).killed(false, false),
            "a child died, the main process ended by itself"
        );
        assert!(watch(false, 4).killed(true, false));
        assert!(!watch(false, 4).killed(true, true), "we sent it");
        assert!(!watch(false, 4).killed(false, false), "somebody else's memory");
        assert!(!OomWatch { source: None, before: 0 }.killed(true, false));
    }
}
