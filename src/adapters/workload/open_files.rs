//! The files that a workload has open for writing, read from `/proc/PID/fd` and `/proc/PID/fdinfo`.
//!
//! Not here: the meaning of an open file for a checkpoint.

#![expect(clippy::disallowed_methods, reason = "reads /proc, which is what this adapter is for")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::containers;
use crate::adapters::host::process_tree::{self, ProcessRef};

/// The lowest two bits of the flags: the access mode (`open(2)`).
const ACCESS: u32 = 0o3;

/// The limit of descriptors in one call. A tree of data loaders has thousands of sockets; more than
/// this takes too long.
const FILES_MAX: usize = 100_000;

/// The files below `folder` that the descendants of `holder` have open, relative to it. `None`:
/// they cannot be read, there are too many, or a container may write there. The processes of a
/// container are not descendants, or see the folder under another path.
pub(crate) fn below(holder: ProcessRef, folder: &Path) -> Option<BTreeSet<String>> {
    let folder = fs::canonicalize(folder).ok()?;
    let (mut open, mut seen) = (BTreeSet::new(), 0);
    let mounts = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let own = mounts(holder.pid);
    for process in process_tree::descendants(holder) {
        let is_elsewhere =
            mounts(process.pid) != own || !containers::clients([process.pid]).is_empty();
        if is_elsewhere && process.alive() {
            return None;
        }
        let found = open_of(process.pid, &folder, &mut open, &mut seen);
        // A process that has ended meanwhile has no open files.
        if found.is_none() && process.alive() {
            return None;
        }
    }
    Some(open)
}

fn open_of(pid: u32, folder: &Path, open: &mut BTreeSet<String>, seen: &mut usize) -> Option<()> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let Ok(entry) = entry else { continue };
        *seen += 1;
        if *seen > FILES_MAX {
            return None;
        }
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Ok(below) = target.strip_prefix(folder) else { continue };
        let Some(path) = below.to_str().filter(|path| !path.is_empty()) else { continue };
        let info = fs::read_to_string(format!(
            "/proc/{pid}/fdinfo/{}",
            entry.file_name().to_string_lossy()
        ))
        .unwrap_or_default();
        if is_writable(&info) {
            open.insert(path.to_owned());
        }
    }
    Some(())
}

/// The line `flags:` is octal.
fn is_writable(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags
        .and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok())
        .is_some_and(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_whether_file_may_be_written() {
        for (info, writable) in [
            ("pos:\t0\nflags:\t0100001\n", true),
            ("flags:\t02100002\n", true),
            ("flags:\t0100000\n", false),
            ("", false),
        ] {
            assert_eq!(is_writable(info), writable, "{info:?}");
        }
    }

    #[test]
    fn own_open_file_is_found_and_closed_one_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("step-1")).expect("a folder");
        let path = folder.path().join("step-1/model.pt");
        let held = |program: &str| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", program])
                .current_dir(folder.path())
                .spawn()
                .expect("a shell");
            let holder = ProcessRef::of(std::process::id()).expect("this process");
            let found = |child: &mut std::process::Child| {
                (0..200).find_map(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    let open = below(holder, folder.path());
                    let is_over = child.try_wait().is_ok_and(|ended| ended.is_some());
                    open.filter(|open| !open.is_empty() || is_over)
                })
            };
            let open = found(&mut child);
            let _ = child.kill();
            let _ = child.wait();
            open
        };
        let open = held("exec 3>step-1/model.pt; sleep 30").expect("it is seen");
        assert_eq!(open.into_iter().collect::<Vec<_>>(), ["step-1/model.pt"]);
        assert!(path.exists());
        assert_eq!(held("exec 3<step-1/model.pt; sleep 0.3"), Some(BTreeSet::new()));
    }

    /// podman and apptainer show a folder under another path, which hides what is open.
    #[test]
    fn process_with_mounts_of_its_own_makes_it_unknown() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let holder = ProcessRef::of(std::process::id()).expect("this process");
        let script =
            "mkdir there && mount --bind . there 2>/dev/null && touch ready && exec sleep 30";
        let unshare = std::process::Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .current_dir(folder.path())
            .spawn();
        let mut child = unshare.expect("unshare is part of every system");
        let is_ready = || folder.path().join("ready").exists();
        while !is_ready() && child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let open = below(holder, folder.path());
        let _ = child.kill();
        let _ = child.wait();
        // Only root can make mounts of its own.
        assert!(!is_ready() || open.is_none(), "{open:?}");
    }
}
