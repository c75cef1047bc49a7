//! The machine of a rank: its address, and the start of its engine.
//!
//! Not here: when a rank starts or ends (`agent::gang`).

use std::io;
use std::io::Write as _;
use std::process::Stdio;

use async_trait::async_trait;
use tokio::process::Command;
use tokio::sync::watch;

use super::rank_network::{self, RankNetwork};
use super::rank_process::EngineProcess;
use crate::ports::{RankAddress, RankHost, RankLaunch, RankProcess};

pub struct RankMachine {
    network: RankNetwork,
    rank: u32,
    /// How often this process was told to end.
    told: watch::Receiver<u32>,
    /// The variable whose value marks the processes of an epoch.
    mark: &'static str,
}

impl RankMachine {
    pub fn new(
        network: RankNetwork,
        rank: u32,
        told: watch::Receiver<u32>,
        mark: &'static str,
    ) -> Self {
        RankMachine { network, rank, told, mark }
    }
}

#[async_trait]
impl RankHost for RankMachine {
    fn address(&self) -> io::Result<RankAddress> {
        self.network.address(self.rank)
    }

    fn is_free(&self, port: u16) -> bool {
        rank_network::is_free(port)
    }

    fn start(&self, launch: &RankLaunch) -> io::Result<Box<dyn RankProcess>> {
        let (program, arguments) = launch
            .argv
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let child = Command::new(program)
            .args(arguments)
            .envs(&launch.env)
            .stdin(Stdio::inherit())
            .spawn()?;
        let mark = launch.env.get(self.mark).map(|value| (self.mark, value.clone()));
        Ok(Box::new(EngineProcess::new(child, mark)))
    }

    async fn told_to_end(&self) {
        let mut told = self.told.clone();
        if told.wait_for(|times| *times > 0).await.is_err() {
            // No signal can come any more.
            std::future::pending::<()>().await;
        }
    }

    fn say(&self, text: &str) {
        let _closed = writeln!(io::stdout(), "{text}");
    }
}
