//! Asking a workload for something by signal, without ending what does not know the signal.
//!
//! SIGUSR1 ends a process that has no handler for it: the shell around the script, the `tee` behind it, a script that is
//! still importing. So only processes that catch the signal get it, and of each branch of the tree only the topmost: the
//! trainer, not the data loaders that inherited its handler. What must never live here: SIGTERM and SIGKILL, which are meant
//! to end things.

#![expect(clippy::disallowed_methods, reason = "this is the adapter that reads /proc/PID/status")]

use std::collections::HashMap;
use std::fs;

use rustix::process::Signal;

use super::proc_tree::{ProcessRef, stat, tree};

/// Sends the signal to the topmost processes below `root`, itself included, that have a handler for it. Gives their number.
pub fn ask(root: u32, signal: Signal) -> u32 {
    let mut asked = 0;
    // Parents come before children: whoever stands below somebody who was asked is left alone.
    let mut covered: HashMap<u32, bool> = HashMap::new();
    for pid in tree(root) {
        let Some((process, parent)) = ProcessRef::of(pid).zip(stat(pid).map(|stat| stat.parent)) else { continue };
        let below = covered.get(&parent).copied().unwrap_or(false);
        let catches = !below && status_of(pid).is_some_and(|status| catches(&status, signal.as_raw()));
        // Between the look and the signal the process may have ended; the start time tells.
        let sent = catches && process.signal(signal).is_ok_and(|sent| sent);
        asked += u32::from(sent);
        covered.insert(pid, below || sent);
    }
    asked
}

fn status_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// Whether `SigCgt`, a hexadecimal mask with signal 1 in its lowest bit, holds the signal (proc(5)).
fn catches(status: &str, number: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| number > 0 && number <= 64 && mask & (1 << (number - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_read_as_the_kernel_writes_it() {
        let status = "Name:\tpython\nSigIgn:\t0000000001001000\nSigCgt:\t0000000000000202\n";
        assert!(catches(status, 2) && catches(status, 10));
        assert!(!catches(status, 1) && !catches(status, 12) && !catches(status, 0));
        assert!(!catches("Name:\tx\n", 10));
    }
}
