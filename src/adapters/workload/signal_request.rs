//! Sends a request to a workload by signal, without ending processes that do not handle the signal.
//!
//! SIGUSR1 ends a process without a handler for it: the shell around a script, a `tee`, a script
//! that is still importing. So only processes with a handler get it; `workload::signal_targets`
//! selects among them. Not here: that rule, and SIGKILL.

#![expect(clippy::disallowed_methods, reason = "this is the adapter that reads /proc/PID/status")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::signal_targets::{Purpose, SignalTargets, TreeProcess, whom};
use crate::adapters::host::process_tree::{ProcessRef, descendants, stat};

/// The name that torch gives to a data loader process.
const DATA_WORKER: &str = "pt_data_worker";
/// Signals that a data loader catches, even if torch is too old to name it. It does not catch
/// SIGABRT, unlike a trainer that prints its stacks on a fault.
const OF_DATA_WORKERS: [Signal; 4] = [Signal::BUS, Signal::FPE, Signal::SEGV, Signal::TERM];
const OF_NO_DATA_WORKER: Signal = Signal::ABORT;
/// Go catches all but five or six of the 64 signals.
const CATCHES_ALL: u32 = 50;
/// A process with more open descriptors is not searched for a checkpoint.
const DESCRIPTORS_MAX: usize = 4096;

/// The processes that get a signal, each with its start time.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    pub asked: Vec<ProcessRef>,
    pub copies: Vec<ProcessRef>,
    pub shells: Vec<ProcessRef>,
    /// The programs of these shells: each is asked, or a launcher of one that is asked.
    pub programs: Vec<ProcessRef>,
}

/// Searches the tree below `holder`, or `main` and below if the holder has ended. `saves`: the
/// checkpoint folder and the progress file.
pub fn listeners(
    holder: ProcessRef,
    main: ProcessRef,
    signal: Signal,
    saves: &[PathBuf],
) -> Listeners {
    let mut tree = descendants(holder);
    if tree.is_empty() {
        tree = [main].into_iter().filter(|main| main.exists()).chain(descendants(main)).collect();
    }
    let mut found: Vec<TreeProcess> =
        tree.iter().filter_map(|process| read(process.pid, signal)).collect();
    // Open files matter only if the rule must choose between several processes.
    if found.iter().filter(|process| process.catches).count() > 1 {
        for process in found.iter_mut().filter(|process| process.catches) {
            process.writes = writes_below(process.pid, saves);
        }
    }
    let purpose = match signal {
        Signal::USR1 | Signal::USR2 => Purpose::Save,
        Signal::INT => Purpose::Interrupt,
        _ => Purpose::End,
    };
    let SignalTargets { asked, copies, shells } = whom(&found, purpose);
    let programs = below_shells(&found, &asked, &shells);
    let known = |pids: Vec<u32>| {
        tree.iter().filter(|process| pids.contains(&process.pid)).copied().collect()
    };
    Listeners {
        asked: known(asked),
        copies: known(copies),
        shells: known(shells),
        programs: known(programs),
    }
}

/// The children of the shells on the way to those that are asked.
fn below_shells(found: &[TreeProcess], asked: &[u32], shells: &[u32]) -> Vec<u32> {
    let parents: HashMap<u32, u32> =
        found.iter().map(|process| (process.pid, process.parent)).collect();
    let program = |pid: &u32| {
        std::iter::successors(Some(*pid), |pid| parents.get(pid).copied())
            // A listing made while processes came and went may have a circle.
            .take(found.len())
            .find(|pid| parents.get(pid).is_some_and(|parent| shells.contains(parent)))
    };
    asked.iter().filter_map(program).collect()
}

/// Sends a signal to each process, and returns those that received it. A process id may belong to
/// another process by then; its start time shows that.
pub fn send(processes: &[ProcessRef], signal: Signal) -> Vec<ProcessRef> {
    processes
        .iter()
        .copied()
        .filter(|process| process.signal(signal).is_ok_and(|sent| sent))
        .collect()
}

/// The forks that still have a handler: a process loses its parent's handlers when it executes a
/// program.
pub fn still_copies(processes: &[ProcessRef], signal: Signal) -> Vec<ProcessRef> {
    let is_copy = |process: &ProcessRef| {
        process.exists()
            && read(process.pid, signal).is_some_and(|now| now.catches && now.is_forked)
    };
    processes.iter().filter(|process| is_copy(process)).copied().collect()
}

/// Whether a process has a file below one of these paths open for writing.
pub fn writes_below(pid: u32, paths: &[PathBuf]) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .take(DESCRIPTORS_MAX);
    entries.into_iter().any(|entry| {
        let is_there = fs::read_link(entry.path())
            .is_ok_and(|file| paths.iter().any(|path| file.starts_with(path)));
        is_there && is_for_writing(pid, &entry.file_name().to_string_lossy())
    })
}

/// The last two bits of its octal flags are 1 or 2 for writing (proc(5)).
fn is_for_writing(pid: u32, descriptor: &str) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0b11 != 0)
}

fn read(pid: u32, signal: Signal) -> Option<TreeProcess> {
    let stat = stat(pid).filter(|stat| !matches!(stat.state, 'Z' | 'X'))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let caught = mask(&status, "SigCgt:");
    let has = |mask: u64, signal: Signal| mask & bit(signal) != 0;
    let name =
        status.lines().find_map(|line| line.strip_prefix("Name:")).unwrap_or_default().trim();
    let by_its_signals = OF_DATA_WORKERS.iter().all(|signal| has(caught, *signal))
        && !has(caught, OF_NO_DATA_WORKER);
    Some(TreeProcess {
        pid,
        parent: stat.parent,
        is_forked: stat.is_forked,
        catches: has(caught, signal),
        catches_all: caught.count_ones() >= CATCHES_ALL,
        is_data_worker: name == DATA_WORKER || by_its_signals && caught.count_ones() < CATCHES_ALL,
        exe: fs::read_link(format!("/proc/{pid}/exe")).map(|exe| shown(&exe)).unwrap_or_default(),
        argv: arguments(pid),
        writes: false,
    })
}

/// The path of a replaced program has a mark at its end.
fn shown(exe: &Path) -> String {
    let text = exe.to_string_lossy();
    text.strip_suffix(" (deleted)").unwrap_or(&text).to_owned()
}

fn arguments(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words =
        bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    words.filter(|word| !word.is_empty()).collect()
}

fn bit(signal: Signal) -> u64 {
    u32::try_from(signal.as_raw())
        .ok()
        .and_then(|number| 1_u64.checked_shl(number.checked_sub(1)?))
        .unwrap_or(0)
}

/// A hexadecimal mask with signal 1 in its lowest bit (proc(5)).
fn mask(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_is_read_as_the_kernel_writes_it() {
        let status = "Name:\tpython\nSigIgn:\t0000000001001000\nSigCgt:\t0000000000000202\n";
        let caught = mask(status, "SigCgt:");
        assert!(caught & bit(Signal::INT) != 0 && caught & bit(Signal::USR1) != 0);
        assert!(caught & bit(Signal::HUP) == 0 && caught & bit(Signal::USR2) == 0);
        assert_eq!(mask("Name:\tx\n", "SigCgt:"), 0);
    }
}
