//! The processes that drive jobs: at most one daemon a job root, and drivers of one job that outlive the terminal.

#![expect(clippy::disallowed_methods, reason = "starts processes and keeps lock files")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::detach::detach;

/// Held by the daemon of a job root while it lives.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

/// Becomes the daemon of a job root; `None`: there is one.
///
/// # Errors
/// When the state folder cannot be written.
pub fn lock_daemon(state: &Path, job_root: &str) -> io::Result<Option<DaemonLock>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock_path(state, job_root))?;
    Ok(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(DaemonLock { _file: file }))
}

/// Whether a daemon drives this job root on this workstation.
pub fn daemon_runs(state: &Path, job_root: &str) -> bool {
    // A shared lock is refused only while the daemon holds its own; it is given back when the file closes.
    File::open(lock_path(state, job_root)).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

fn lock_path(state: &Path, job_root: &str) -> PathBuf {
    state.join(format!("daemon-{}.lock", &hex::encode(Sha256::digest(job_root.as_bytes()))[..12]))
}

/// Starts this program again in a session of its own, so that it outlives us and our terminal; its words go to a log.
///
/// # Errors
/// When the process cannot be started.
pub fn start_detached(words: &[String], log: &Path) -> io::Result<u32> {
    if let Some(folder) = log.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        forget_old(folder);
    }
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    detach(&mut command);
    Ok(command.spawn()?.id())
}

/// A file for a short while, in a folder of such files.
///
/// # Errors
/// When the folder cannot be created.
pub fn scratch_file(folder: &Path, name: &str) -> io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    forget_old(folder);
    Ok(folder.join(name))
}

/// How long the words of a driver, or a scratch file that a killed process left, are kept.
const KEEP: Duration = Duration::from_secs(7 * 86_400);

/// Old files go, so that the state folder stays small. What cannot be removed is tried again the next time.
fn forget_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > KEEP) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_a_job_root() {
        let state = tempfile::tempdir().unwrap();
        assert!(!daemon_runs(state.path(), "file:///a"));
        let lock = lock_daemon(state.path(), "file:///a").unwrap();
        assert!(lock.is_some() && daemon_runs(state.path(), "file:///a"));
        assert!(lock_daemon(state.path(), "file:///a").unwrap().is_none());
        assert!(!daemon_runs(state.path(), "file:///b"));
        drop(lock);
        assert!(!daemon_runs(state.path(), "file:///a"));
    }
}
