//! The user's command and its children, in a group of their own that outlives the agent.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Scope;
use crate::job::ExitStatus;

/// What to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Unique on this machine, safe as a unit name: `digits-222222-0001-1`.
    pub name: String,
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// Set on top of the environment that the agent itself has (for a unit of its own: that systemd gives). What the user's
    /// own environment holds is thus in no record.
    pub env: BTreeMap<String, String>,
    /// State of this start: its records and its log, as numbered segments `log/00000001.log`, ... Created if absent.
    pub dir: PathBuf,
    /// The log may use this much disk before it waits to be shipped; beyond it output is counted and dropped.
    pub log_bytes_max: u64,
    /// Also copy the output to the agent's own standard output (stand-alone runs in the foreground).
    pub echo: bool,
    /// It prints to a pseudo-terminal, and lines that are drawn anew are thinned; else to a pipe, and all bytes are kept.
    #[serde(default)]
    pub terminal: bool,
}

/// How a start of the workload ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub exit: ExitStatus,
    /// Processes of the tree that were still alive when the main process ended.
    pub orphans: u32,
    /// Those of them in the command's own session: work in the background. The others have left it, as daemons do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind: u32,
    /// Its service manager had told it to end, in this boot: `systemctl stop` or `restart`. How it ended is not its own doing.
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
    /// The command does not exist or cannot be executed: no retry will help.
    #[error("cannot execute `{program}`")]
    CannotExecute {
        program: String,
        #[source]
        cause: std::io::Error,
    },
    /// It never ran, and never will: whoever was to start it has written down why.
    #[error("cannot start the workload")]
    NotStarted {
        #[source]
        cause: std::io::Error,
    },
    /// Anything else. After an attempt to start or to find a workload nobody knows whether it runs.
    #[error("cannot {act} the workload")]
    Failed {
        act: &'static str,
        #[source]
        cause: std::io::Error,
    },
}

/// Starts workloads, and finds one again after the agent itself was restarted.
#[async_trait]
pub trait Workloads: Send + Sync {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError>;

    /// The workload that was started with this state folder, running or already ended. `None`: there is none, and after
    /// this answer there never will be one of this folder. An error that is not [`WorkloadError::is_final`] means *unknown*,
    /// which is never "none": whoever starts another one then may have two.
    async fn attach(&self, dir: &std::path::Path) -> Result<Option<Box<dyn Workload>>, WorkloadError>;
}

/// One started workload. Dropping it leaves the workload alone.
#[async_trait]
pub trait Workload: Send + Sync {
    fn scope(&self) -> Scope;

    /// Resolves when the main process has ended, at once when it already has. Cancel-safe.
    async fn ended(&self) -> Ended;

    /// To the main process's group. A workload that is gone is success.
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError>;

    /// To those processes of the tree that save, as far as their handlers tell: a request, which ends no process that does not know the
    /// signal. Gives how many were asked; 0: no process would understand.
    fn ask(&self, signal: Signal) -> Result<u32, WorkloadError>;

    /// A signal that ends, first to those processes that have a handler for it; the others stay until these are gone. Gives how many
    /// these were; 0: none has a handler, and the whole group got the signal.
    fn tell(&self, signal: Signal) -> Result<u32, WorkloadError> {
        self.signal(signal).map(|()| 1)
    }

    /// SIGTERM to all the others of the tree: the time of those that were told is nearly over.
    fn tell_rest(&self) {}

    /// SIGKILL to everything in the tree, also what forked away, until nothing is left.
    async fn kill_tree(&self) -> Result<(), WorkloadError>;

    /// Bytes that the workload has printed, and those of them that were dropped.
    fn printed(&self) -> (u64, u64);

    /// The files below a folder that its tree holds open for writing, relative to the folder with `/` between the parts. `None`: nobody
    /// can tell.
    async fn open_for_writing(&self, _folder: &std::path::Path) -> Option<BTreeSet<String>> {
        None
    }
}

impl WorkloadError {
    /// Whether it says for sure that nothing runs.
    pub fn is_final(&self) -> bool {
        matches!(self, WorkloadError::CannotExecute { .. } | WorkloadError::NotStarted { .. })
    }
}

impl Signal {
    /// Whether it is free for programs to give it a meaning, so that a workload can answer it and go on.
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
