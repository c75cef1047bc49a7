//! The machine of one rank: its address, and the processes of its engine.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use async_trait::async_trait;

use crate::job::ExitStatus;

/// Where the other ranks reach this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankAddress {
    /// An IP address, never a name.
    pub host: String,
    /// The network interface of this address; `None`: unknown.
    pub interface: Option<String>,
    /// Was free a moment ago: a program bound it and let it go.
    pub port: u16,
}

/// How to start the engine of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLaunch {
    pub argv: Vec<String>,
    /// Added to the environment of this process.
    pub env: BTreeMap<String, String>,
}

#[async_trait]
pub trait RankHost: Send + Sync {
    /// The address, with a port that is free now.
    fn address(&self) -> io::Result<RankAddress>;

    /// Whether a port is free still. An engine that cannot listen ends its epoch.
    fn is_free(&self, _port: u16) -> bool {
        true
    }

    fn start(&self, launch: &RankLaunch) -> io::Result<Box<dyn RankProcess>>;

    /// Resolves when this process is told to end, and at once after that. Cancel-safe.
    async fn told_to_end(&self);

    /// A line in the log of the job.
    fn say(&self, text: &str);
}

/// The engine of a rank, and the processes that it started.
#[async_trait]
pub trait RankProcess: Send {
    /// Resolves when the engine has ended. Cancel-safe.
    async fn ended(&mut self) -> ExitStatus;

    /// Passes SIGTERM on. The agent tells this program in place of an engine that it starts.
    fn pass_on_term(&self);

    /// SIGTERM, and after `grace` SIGKILL, to the engine and all its processes.
    async fn end(&mut self, grace: Duration) -> ExitStatus;
}
