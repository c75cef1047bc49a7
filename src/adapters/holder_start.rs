//! Starting a holder, whoever runs it: the state folder before, and the wait for its first word after.
//!
//! ```text
//!   prepare: launch.json, running (reading end open) ── run the holder ── await_first_word: started.json or exit.json
//! ```

#![expect(clippy::disallowed_methods, reason = "waits, within bounds, for a process that starts")]

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use super::held_workload::{HeldWorkload, refused, watch};
use super::holder_records as records;
use crate::ports::{Launch, Workload, WorkloadError};

/// A holder says its first word a few milliseconds after it was asked for; a machine that has just booted and is loading
/// a driver may take seconds. Longer delays the report of a start that went wrong, which is rare.
const FIRST_WORD_WAIT: Duration = Duration::from_secs(30);
/// An agent that was killed between asking for a holder and hearing of it waits this long before it believes that there
/// is none. Too short, and two workloads run; longer delays a second start after a very unlucky first.
const UNHEARD_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at the state folder, in that rare case.
const UNHEARD_LOOK: Duration = Duration::from_millis(50);

/// How to run this program as a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderProgram {
    pub exe: PathBuf,
    /// Before the word `holder`: `agent` for the program `lamp`.
    pub leading: Vec<OsString>,
    /// The process that stands for the machine, on the local cloud: the workload dies with it.
    pub machine_pid: Option<u32>,
}

impl HolderProgram {
    /// The arguments for one start.
    pub fn arguments(&self, dir: &Path) -> Vec<OsString> {
        let mut arguments = self.leading.clone();
        arguments.extend(["holder".into(), dir.into()]);
        if let Some(pid) = self.machine_pid {
            arguments.extend(["--machine-pid".into(), pid.to_string().into()]);
        }
        arguments
    }
}

/// Makes the state folder of a start, and gives the reading end of its pipe.
pub fn prepare(launch: &Launch) -> Result<AsyncFd<OwnedFd>, WorkloadError> {
    let make = || {
        fs::create_dir_all(launch.dir.join(records::LOG))?;
        // The launch holds the workload's environment, and with it the user's secrets.
        fs::set_permissions(&launch.dir, fs::Permissions::from_mode(0o700))?;
        if fs::exists(launch.dir.join(records::STARTED))? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "this state folder had its start"));
        }
        records::write(&launch.dir, records::LAUNCH, launch)?;
        records::make_running(&launch.dir)?;
        watch(records::open_running_as_agent(&launch.dir)?)
    };
    make().map_err(|cause| WorkloadError::Failed { act: "prepare the state folder of", cause })
}

/// Waits until the holder says that it started the workload, or ends without. `gone` resolves when the holder is known to
/// have ended early, with what it said.
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
    Err(refused(&launch.dir).unwrap_or_else(|| WorkloadError::Failed { act: "start", cause: io::Error::other(what) }))
}

/// The workload of a state folder, or the reason why it never started, which is the same after a restart of the agent.
pub async fn attach(dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
    if !fs::exists(dir.join(records::LAUNCH)).unwrap_or(false) {
        return Ok(None);
    }
    let end = Instant::now() + UNHEARD_WAIT;
    loop {
        if let Some(workload) = HeldWorkload::open(dir)? {
            return Ok(Some(Box::new(workload)));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        sleep(UNHEARD_LOOK).await;
    }
}
