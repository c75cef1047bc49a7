//! Process trees and process identity, read from `/proc`.
//!
//! [`tree`] lists a process and its descendants. [`ProcessRef`] identifies one process even if its
//! number is reused. The holder and the workload adapters kill with these; the sensors count with
//! them.
//!
//! Not here: what to do with the processes found.

#![expect(clippy::disallowed_methods, reason = "reads /proc, which is what this adapter is for")]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::job::ExitStatus;

/// A larger tree is a fork bomb: the listing stops, and the caller, which kills in rounds, lists
/// again. Lower cuts a legitimate job with many loaders; higher only costs memory.
const PROCESSES_MAX: usize = 65_536;

/// The longest such file lists a thread's children, eight bytes each.
const FILE_BYTES_MAX: u64 = 8 * PROCESSES_MAX as u64;

/// A process, identified by number and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    pub pid: u32,
    /// In clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// Fields of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub parent: u32,
    /// Process group and session; 0 if the leader is outside this PID namespace, as under `docker
    /// exec`.
    pub group: u32,
    pub session: u32,
    pub state: char,
    pub start_ticks: u64,
    /// It was forked and has not called exec since.
    pub is_forked: bool,
}

/// `PF_FORKNOEXEC` in the kernel's process flags.
const FORKED: u64 = 0x40;

impl ProcessRef {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<ProcessRef> {
        Some(ProcessRef { pid, start_ticks: stat(pid)?.start_ticks })
    }

    /// Whether it still exists, also as a zombie.
    pub fn exists(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start_ticks == self.start_ticks)
    }

    /// Whether it can still act: it exists and is no zombie.
    pub fn alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| {
            stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X')
        })
    }

    /// How it ended, while its parent has not waited for it; `None`: it runs, or is gone. Only who
    /// may trace the process is told that.
    pub fn end(self) -> Option<ExitStatus> {
        let line = small(format!("/proc/{}/stat", self.pid))?;
        let stat = parse_stat(&line)?;
        (stat.start_ticks == self.start_ticks && stat.state == 'Z').then(|| parse_end(&line))?
    }

    /// A descriptor for exactly this process. The start time is checked after opening, so a reused
    /// number is never taken for it. `None`: it has ended.
    pub fn open(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        Ok(self.exists().then_some(descriptor))
    }

    /// Sends a signal to this process only; false if it has ended.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        let Some(descriptor) = self.open()? else { return Ok(false) };
        match pidfd_send_signal(&descriptor, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// `root` and all its descendants, parents first; empty if `root` has ended.
///
/// This is a snapshot: to kill a tree, list and kill until nothing is left.
pub fn tree(root: u32) -> Vec<u32> {
    if stat(root).is_none() {
        return Vec::new();
    }
    if has_children_files(root) {
        walk(root, children_of)
    } else {
        let table = parents();
        walk(root, |pid| table.get(&pid).cloned().unwrap_or_default())
    }
}

/// The descendants of `root`, without it, for killing. A process whose parent or number changes
/// during the listing is left to the next round.
pub fn descendants(root: ProcessRef) -> Vec<ProcessRef> {
    let mut found = vec![root];
    let mut next = 0;
    let table = if has_children_files(root.pid) { None } else { Some(parents()) };
    while next < found.len() && found.len() < PROCESSES_MAX {
        let parent = found[next];
        let children = table.as_ref().map_or_else(
            || children_of(parent.pid),
            |table| table.get(&parent.pid).cloned().unwrap_or_default(),
        );
        for pid in children {
            let Some(child) = stat(pid).filter(|child| child.parent == parent.pid) else {
                continue;
            };
            found.push(ProcessRef { pid, start_ticks: child.start_ticks });
        }
        next += 1;
    }
    if !root.exists() {
        return Vec::new();
    }
    found.split_off(1)
}

/// Every process whose initial environment holds `NAME=value`, to find orphans. A process whose
/// environment is unreadable is not ours.
pub fn with_environment(name: &str, value: &str) -> Vec<ProcessRef> {
    let wanted = format!("{name}={value}");
    let marked = |pid: u32| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| {
            bytes.split(|byte| *byte == 0).any(|found| found == wanted.as_bytes())
        })
    };
    // The start time is read first: a later process with this number has another one.
    all_pids().filter_map(ProcessRef::of).filter(|process| marked(process.pid)).collect()
}

/// One line of `/proc/<pid>/stat`; `None` when there is no such process.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&small(format!("/proc/{pid}/stat"))?)
}

/// Reads a kernel file into a buffer of fitting size. These files report a size of zero. Then
/// the standard library reads 32 bytes at a time.
fn small(path: impl AsRef<std::path::Path>) -> Option<String> {
    let mut text = String::with_capacity(1024);
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The second field, the name, may hold anything. So the fields are counted from its last
/// parenthesis.
fn parse_stat(line: &str) -> Option<ProcessStat> {
    let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(2)?.parse().ok()?;
    let start_ticks = fields.nth(12)?.parse().ok()?;
    Some(ProcessStat { parent, group, session, state, start_ticks, is_forked: flags & FORKED != 0 })
}

/// Field 52, `exit_code`, in the form of waitpid(2).
fn parse_end(line: &str) -> Option<ExitStatus> {
    let status: i32 =
        line[line.rfind(')')? + 1..].split_ascii_whitespace().nth(49)?.parse().ok()?;
    let signal = status & 0x7f;
    Some(if signal == 0 {
        ExitStatus { code: Some((status >> 8) & 0xff), ..ExitStatus::default() }
    } else {
        ExitStatus { signal: Some(signal), ..ExitStatus::default() }
    })
}

fn walk(root: u32, children: impl Fn(u32) -> Vec<u32>) -> Vec<u32> {
    let mut found = vec![root];
    let mut seen = HashSet::from([root]);
    let mut next = 0;
    while next < found.len() && found.len() < PROCESSES_MAX {
        for child in children(found[next]) {
            if seen.insert(child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

fn has_children_files(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/task/{pid}/children")).unwrap_or(false)
}

/// A child belongs to the thread that forked it, so each thread is read.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let Some(text) = small(thread.path().join("children")) else { continue };
        found.extend(text.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok()));
    }
    found
}

/// Children by parent, from one pass over all processes: for kernels without `children` files.
fn parents() -> HashMap<u32, Vec<u32>> {
    let mut table: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all_pids() {
        if let Some(stat) = stat(pid) {
            table.entry(stat.parent).or_default().push(pid);
        }
    }
    table
}

pub fn count() -> u32 {
    u32::try_from(all_pids().count()).unwrap_or(u32::MAX)
}

fn all_pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Killed(Child);
    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A shell with a child that reads until its standard input ends.
    fn family() -> Killed {
        Killed(
            Command::new("sh")
                .args(["-c", "cat; true"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("sh exists"),
        )
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !holds() {
            assert!(std::time::Instant::now() < end, "not within 10 s: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn tree_is_the_root_and_its_descendants() {
        let shell = family();
        let root = shell.0.id();
        until("the shell has a child", || tree(root).len() == 2);
        assert_eq!(tree(root)[0], root);
        assert!(tree(std::process::id()).contains(&root));
        let below: Vec<u32> = descendants(ProcessRef::of(root).expect("it runs"))
            .iter()
            .map(|child| child.pid)
            .collect();
        assert_eq!(below, tree(root)[1..]);
        let table = parents();
        assert_eq!(
            walk(root, |pid| table.get(&pid).cloned().unwrap_or_default()),
            tree(root),
            "both ways agree"
        );
    }

    #[test]
    fn unknown_pid_has_no_tree() {
        assert_eq!(tree(u32::MAX), Vec::<u32>::new());
        assert_eq!(ProcessRef::of(u32::MAX), None);
        assert_eq!(
            descendants(ProcessRef { pid: std::process::id(), start_ticks: 0 }),
            [],
            "an earlier process with this number"
        );
    }

    #[test]
    fn recycled_number_is_not_the_process() {
        let shell = family();
        let real = ProcessRef::of(shell.0.id()).expect("it runs");
        let earlier = ProcessRef { start_ticks: real.start_ticks - 1, ..real };
        assert!(!earlier.exists() && !earlier.alive());
        assert!(!earlier.signal(Signal::KILL).expect("asking is allowed"));
        assert!(real.alive(), "the process that has the number now is untouched");
        assert!(real.signal(Signal::KILL).expect("it is ours"));
        until("it is dead", || !real.alive());
        assert!(real.exists(), "a zombie until it is waited for");
    }

    #[test]
    fn names_with_spaces_and_parentheses_are_read() {
        let line = "42 (a) b (c) S 7 41 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(
            parse_stat(line),
            Some(ProcessStat {
                parent: 7,
                group: 41,
                session: 40,
                state: 'S',
                start_ticks: 987_654,
                is_forked: false
            })
        );
        assert_eq!(parse_stat("42 (broken"), None);
        assert!(
            parse_stat(&line.replace("4194560", "4194368"))
                .is_some_and(|stat| stat.is_forked && stat.start_ticks == 987_654)
        );
    }

    #[test]
    fn zombie_shows_how_it_ended() {
        for (script, code, signal) in [("exit 7", Some(7), None), ("kill -9 $$", None, Some(9))] {
            let child = Killed(Command::new("sh").args(["-c", script]).spawn().expect("sh exists"));
            let process = ProcessRef::of(child.0.id()).expect("nobody has waited for it");
            until("it has ended", || process.end().is_some());
            let end = process.end().expect("it is a zombie");
            assert_eq!((end.code, end.signal), (code, signal), "{script}");
        }
        assert_eq!(ProcessRef::of(std::process::id()).expect("this one").end(), None);
    }

    #[test]
    fn process_is_found_by_its_environment() {
        let value = std::process::id().to_string();
        let child = Killed(
            Command::new("sh")
                .args(["-c", "cat; true"])
                .env("LAMP_TEST_MARK", &value)
                .stdin(Stdio::piped())
                .spawn()
                .expect("sh exists"),
        );
        until("it is found", || {
            with_environment("LAMP_TEST_MARK", &value).iter().any(|found| found.pid == child.0.id())
        });
        assert!(with_environment("LAMP_TEST_MARK", "nobody").is_empty());
    }
}
