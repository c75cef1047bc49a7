//! Starts a holder: prepares the state folder, and waits for the holder's first record.
//!
//! `prepare` writes `launch.json` and opens the reading end of `running`. The caller runs the
//! holder. `await_first_word` then waits for `started.json` or `exit.json`.

#![expect(clippy::disallowed_methods, reason = "waits, within bounds, for a process that starts")]

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use super::records;
use super::records::{Exit, WorkloadEnd, refused};
use crate::adapters::host::process_tree::{ProcessRef, with_environment};
use crate::adapters::host::watched_fd::watch;
use crate::adapters::workload::held_workload::HeldWorkload;
use crate::adapters::workstation::private_files;
use crate::ports::{Launch, Workload, WorkloadError};

/// A holder writes its first record within milliseconds. A machine that has just booted and loads a
/// driver may take seconds. If this is longer, a failed start is reported late.
const FIRST_WORD_WAIT: Duration = Duration::from_secs(30);
/// If an agent was killed after it asked for a holder, that holder has this long to write its first
/// record. After that, the next agent prevents its start. If this is shorter, a slow holder is
/// given up. If it is longer, the second start is late.
const UNHEARD_WAIT: Duration = Duration::from_secs(2);
/// The time between two looks at the state folder in that case.
const UNHEARD_LOOK: Duration = Duration::from_millis(50);

/// How to run this program as a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderProgram {
    pub exe: PathBuf,
    /// The words before `holder`: `agent` for the program `lamp`.
    pub leading: Vec<OsString>,
    /// The process that represents a local machine: the workload ends with it.
    pub machine_pid: Option<u32>,
    /// The file with the command's environment (`workload::saved_environment`); `None`: the agent's
    /// environment.
    pub environment: Option<PathBuf>,
}

impl HolderProgram {
    /// The arguments for one start.
    pub fn arguments(&self, dir: &Path) -> Vec<OsString> {
        let mut arguments = self.leading.clone();
        arguments.extend(["holder".into(), dir.into()]);
        if let Some(pid) = self.machine_pid {
            arguments.extend(["--machine-pid".into(), pid.to_string().into()]);
        }
        if let Some(file) = &self.environment {
            arguments.extend(["--environment".into(), file.into()]);
        }
        arguments
    }
}

/// The launch with an absolute state folder, for a process in another directory.
pub(crate) fn absolute(launch: &Launch) -> Result<Launch, WorkloadError> {
    let dir = std::path::absolute(&launch.dir)
        .map_err(|cause| WorkloadError::Failed { act: "find the state folder of", cause })?;
    Ok(Launch { dir, ..launch.clone() })
}

/// Makes the state folder of a start, and returns the reading end of its pipe.
pub fn prepare(launch: &Launch) -> Result<AsyncFd<OwnedFd>, WorkloadError> {
    let make = || {
        private_files::folder(&launch.dir.join(records::LOG))?;
        // The launch holds the workload's environment, and with it the user's secrets.
        fs::set_permissions(&launch.dir, fs::Permissions::from_mode(0o700))?;
        if fs::exists(launch.dir.join(records::STARTED))? {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this state folder had its start",
            ));
        }
        private_files::write(&launch.dir.join(records::BOOT), records::boot())?;
        records::write(&launch.dir, records::LAUNCH, launch)?;
        records::make_running(&launch.dir)?;
        watch(records::open_running_as_agent(&launch.dir)?)
    };
    make().map_err(|cause| WorkloadError::Failed { act: "prepare the state folder of", cause })
}

/// Waits until the holder has started the workload or has failed. `gone` resolves with the holder's
/// message if it is known to have ended early.
pub async fn await_first_word(
    launch: &Launch,
    running: AsyncFd<OwnedFd>,
    gone: impl Future<Output = String>,
) -> Result<Box<dyn Workload>, WorkloadError> {
    let what = tokio::select! {
        biased;
        _ = running.readable() => "the holder ended without a word".to_owned(),
        what = gone => what,
        () = sleep(FIRST_WORD_WAIT) => format!("no word from the holder within {} s", FIRST_WORD_WAIT.as_secs()),
    };
    if let Some(workload) = HeldWorkload::open(&launch.dir)? {
        return Ok(Box::new(workload));
    }
    Err(refused(&launch.dir)
        .unwrap_or_else(|| WorkloadError::Failed { act: "start", cause: io::Error::other(what) }))
}

/// Whether the workload ended because its machine shut down or lost power. A successful end before
/// that counts as an end. A failure does not, because a shutdown looks the same.
fn ended_with_the_machine(dir: &Path) -> bool {
    let another_boot =
        fs::read_to_string(dir.join(records::BOOT)).is_ok_and(|boot| boot != records::boot());
    let by_itself = match records::read::<Exit>(dir, records::EXIT) {
        Ok(Some(Exit { end: WorkloadEnd::Ended(ended), told, .. })) => {
            ended.exit.success() && !told
        }
        Ok(Some(_)) => true,
        Ok(None) | Err(_) => false,
    };
    another_boot && !by_itself
}

/// The workload of a state folder, or the reason why it never started, which a restarted agent
/// finds again. `None`: nothing was started, or it ended with an earlier boot of the machine.
pub async fn attach(dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
    let asked = fs::exists(dir.join(records::LAUNCH))
        .map_err(|cause| WorkloadError::Failed { act: "find", cause })?;
    if !asked || ended_with_the_machine(dir) {
        return Ok(None);
    }
    let end = Instant::now() + UNHEARD_WAIT;
    loop {
        if let Some(workload) = HeldWorkload::open(dir)? {
            return Ok(Some(Box::new(workload)));
        }
        if Instant::now() >= end {
            return give_up(dir);
        }
        sleep(UNHEARD_LOOK).await;
    }
}

/// Prevents a start that was never confirmed: a holder runs under the lock of its folder, and
/// without a `launch.json` it starts nothing.
fn give_up(dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
    let failed = |cause| WorkloadError::Failed { act: "find", cause };
    let lock = private_files::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(records::LOCK))
        .map_err(failed)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(failed(io::Error::other(
                "its holder runs, and has not recorded a start yet",
            )));
        }
        Err(errno) => return Err(failed(errno.into())),
    }
    // It may have started between the last look and the lock.
    if let Some(workload) = HeldWorkload::open(dir)? {
        return Ok(Some(Box::new(workload)));
    }
    // A holder was killed before it recorded its process, so this process has no parent that
    // watches it.
    let (name, value) = records::mark(dir);
    let strays: Vec<ProcessRef> =
        with_environment(name, &value).into_iter().filter(|process| process.alive()).collect();
    for process in &strays {
        process.signal(rustix::process::Signal::KILL).map_err(failed)?;
    }
    if !strays.is_empty() {
        return Err(failed(io::Error::other(format!(
            "{} processes without a holder are being killed",
            strays.len()
        ))));
    }
    fs::remove_file(dir.join(records::LAUNCH)).map_err(failed)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ExitStatus;
    use crate::ports::Ended;

    #[test]
    fn after_a_reboot_only_a_success_of_its_own_is_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        let exit = |code, told| {
            let ended = Ended {
                exit: ExitStatus { code: Some(code), ..Default::default() },
                orphans: 0,
                ..Default::default()
            };
            records::write(
                dir,
                records::EXIT,
                &Exit { format: records::FORMAT, end: WorkloadEnd::Ended(ended), told },
            )
            .expect("written");
        };
        fs::write(dir.join(records::BOOT), records::boot()).expect("written");
        assert!(!ended_with_the_machine(dir), "this boot");
        fs::write(dir.join(records::BOOT), "another").expect("written");
        assert!(ended_with_the_machine(dir), "the power was cut");
        for (code, told, with_the_machine) in
            [(0, false, false), (0, true, true), (143, true, true), (1, false, true)]
        {
            exit(code, told);
            assert_eq!(ended_with_the_machine(dir), with_the_machine, "{code} {told}");
        }
    }
}
