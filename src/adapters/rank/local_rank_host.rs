//! A rank on the local cloud: all ranks are on this workstation, so they talk by loopback.
//!
//! Not here: when a rank starts or ends (`agent::gang`).

use std::io;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

use async_trait::async_trait;
use tokio::process::Command;
use tokio::sync::watch;

use super::rank_process::EngineProcess;
use crate::ports::{RankAddress, RankHost, RankLaunch, RankProcess};

/// The loopback interface of Linux.
const LOOPBACK: &str = "lo";

pub struct LocalRankHost {
    /// How often this process was told to end.
    told: watch::Receiver<u32>,
    /// The variable whose value marks the processes of an epoch.
    mark: &'static str,
}

impl LocalRankHost {
    pub fn new(told: watch::Receiver<u32>, mark: &'static str) -> Self {
        LocalRankHost { told, mark }
    }
}

#[async_trait]
impl RankHost for LocalRankHost {
    fn address(&self) -> io::Result<RankAddress> {
        let host = Ipv4Addr::LOCALHOST;
        let port = TcpListener::bind((host, 0))?.local_addr()?.port();
        Ok(RankAddress { host: host.to_string(), interface: Some(LOOPBACK.into()), port })
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
