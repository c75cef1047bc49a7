//! The user's command and its children, in their own process group, which outlives the agent.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Scope;
use crate::job::ExitStatus;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Unique on this machine and valid as a unit name: `digits-222222-0001-1`.
    pub name: String,
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// Added to the environment of the agent, or of systemd. The user's own environment is in no
    /// record.
    pub env: BTreeMap<String, String>,
    /// The state of this start: its records and its log, in numbered segments `log/00000001.log`,
    /// ... Created if absent.
    pub dir: PathBuf,
    /// Disk space for log segments that are not yet shipped. Beyond it, output is counted and
    /// dropped.
    pub log_bytes_max: u64,
    /// Also copy the output to the agent's standard output (stand-alone runs in the foreground).
    pub echo: bool,
    /// Print to a pseudo-terminal and thin out lines that are redrawn. Otherwise print to a pipe
    /// and keep all bytes.
    #[serde(default)]
    pub terminal: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub exit: ExitStatus,
    /// Processes of the tree that were still alive when the main process ended.
    pub orphans: u32,
    /// The orphans in the command's own session: background work. The others left it, as daemons
    /// do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind: u32,
    /// Its service manager stopped it in this boot, so its exit status was not its own choice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Term,
    Kill,
    Usr1,
    Usr2,
    Int,
    Hup,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The command does not exist or cannot be executed. A retry fails again.
    #[error("cannot execute `{program}`")]
    CannotExecute {
        program: String,
        #[source]
        cause: std::io::Error,
    },
    /// It has never run, and this start is final. The start's records have the reason.
    #[error("cannot start the workload")]
    NotStarted {
        #[source]
        cause: std::io::Error,
    },
    /// Anything else. After a failed start or attach, the workload may be running.
    #[error("cannot {act} the workload")]
    Failed {
        act: &'static str,
        #[source]
        cause: std::io::Error,
    },
}

/// Starts workloads, and finds one again after a restart of the agent.
#[async_trait]
pub trait Workloads: Send + Sync {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError>;

    /// The workload that was started with this state folder, running or ended. `None`: none
    /// exists, and this is final. An error that is not
    /// [`WorkloadError::is_final`] means *unknown*: a new start may then be a second one.
    async fn attach(
        &self,
        dir: &std::path::Path,
    ) -> Result<Option<Box<dyn Workload>>, WorkloadError>;
}

/// One started workload. Dropping it leaves the workload running.
#[async_trait]
pub trait Workload: Send + Sync {
    fn scope(&self) -> Scope;

    /// Resolves when the main process has ended, or at once if it already has. Cancel-safe.
    async fn ended(&self) -> Ended;

    /// Signals the main process's group. Success if the workload is gone.
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError>;

    /// Asks the processes of the tree that have a handler for this signal. A process without a
    /// handler is not signalled, since the signal would end it. Returns how many were asked.
    fn ask(&self, signal: Signal) -> Result<u32, WorkloadError>;

    /// Sends a signal that ends, first to the processes that have a handler for it. Returns how
    /// many those were. 0: none has a handler, and the whole group got the signal.
    fn tell(&self, signal: Signal) -> Result<u32, WorkloadError> {
        self.signal(signal).map(|()| 1)
    }

    /// SIGTERM to the rest of the tree, when the time of the told processes is nearly over.
    fn tell_rest(&self) {}

    /// SIGKILL to everything in the tree, also forked processes, until none is left.
    async fn kill_tree(&self) -> Result<(), WorkloadError>;

    /// Bytes that the workload has printed, and how many of them were dropped.
    fn printed(&self) -> (u64, u64);

    /// The files below a folder that the tree has open for writing, relative with `/` between the
    /// parts. `None`: unknown.
    async fn open_for_writing(&self, _folder: &std::path::Path) -> Option<BTreeSet<String>> {
        None
    }
}

impl WorkloadError {
    /// Whether it is certain that nothing runs.
    pub fn is_final(&self) -> bool {
        matches!(self, WorkloadError::CannotExecute { .. } | WorkloadError::NotStarted { .. })
    }
}

impl Signal {
    /// Whether programs may define its meaning, so that a workload can answer it and continue.
    pub fn asks(self) -> bool {
        matches!(self, Signal::Usr1 | Signal::Usr2)
    }

    /// By its usual name, `SIGUSR1`.
    pub fn from_name(name: &str) -> Option<Signal> {
        Some(match name {
            "SIGTERM" => Signal::Term,
            "SIGKILL" => Signal::Kill,
            "SIGUSR1" => Signal::Usr1,
            "SIGUSR2" => Signal::Usr2,
            "SIGINT" => Signal::Int,
            "SIGHUP" => Signal::Hup,
            _ => return None,
        })
    }
}
