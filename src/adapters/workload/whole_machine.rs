//! A whole machine as a workload, for a machine that a user started by hand: the agent only watches
//! it.

use async_trait::async_trait;
use tokio::sync::watch;

use crate::job::ExitStatus;
use crate::ports::{Ended, Launch, Scope, Signal, Workload, WorkloadError, Workloads};

/// For `lamp-agent watch`.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeMachine;

struct Everything {
    ended: watch::Sender<bool>,
}

#[async_trait]
impl Workloads for WholeMachine {
    async fn start(&self, _launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        Ok(Box::new(Everything { ended: watch::Sender::new(false) }))
    }

    async fn attach(
        &self,
        _dir: &std::path::Path,
    ) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        Ok(None)
    }
}

#[async_trait]
impl Workload for Everything {
    fn scope(&self) -> Scope {
        Scope { whole_machine: true, ..Scope::default() }
    }

    async fn ended(&self) -> Ended {
        let mut ended = self.ended.subscribe();
        // The sender is `self`, so it exists while this waits.
        let _closed = ended.wait_for(|ended| *ended).await;
        Ended { exit: ExitStatus::default(), orphans: 0, ..Default::default() }
    }

    /// The processes belong to other users, so no signal is sent; only the watching ends.
    fn signal(&self, _signal: Signal) -> Result<(), WorkloadError> {
        self.ended.send_replace(true);
        Ok(())
    }

    fn ask(&self, _signal: Signal) -> Result<u32, WorkloadError> {
        Ok(0)
    }

    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        self.ended.send_replace(true);
        Ok(())
    }

    fn printed(&self) -> (u64, u64) {
        (0, 0)
    }
}
