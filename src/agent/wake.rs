//! Wakes the loop. An event only wakes it early; decisions read facts.

use std::time::Duration;

use tokio::sync::watch;

use super::report::notice_watch::NoticeAnswers;
use super::report::request_watch::Requests;
use super::timers::to_next;
use crate::ports::{Clock, Ended, Workload};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WakeReason {
    Tick,
    Ended(Ended),
    /// A notice, a request or a signal arrived.
    News,
}

/// Requests and signals, which wake the loop.
pub(crate) struct AgentEvents {
    pub requests: watch::Receiver<Requests>,
    /// How many Ctrl-C or SIGTERM this process received (stand-alone runs only).
    pub signals: watch::Receiver<u32>,
}

impl AgentEvents {
    /// Waits for the first event. A channel whose sender is gone is never ready.
    pub(super) async fn wait(
        &mut self,
        notices: Option<&mut watch::Receiver<NoticeAnswers>>,
        clock: &dyn Clock,
        every: Duration,
        workload: Option<&dyn Workload>,
    ) -> WakeReason {
        tokio::select! {
            biased;
            ended = ended(workload) => WakeReason::Ended(ended),
            () = changed(notices) => WakeReason::News,
            () = changed(Some(&mut self.requests)) => WakeReason::News,
            () = changed(Some(&mut self.signals)) => WakeReason::News,
            () = clock.sleep(to_next(clock.mono(), every)) => WakeReason::Tick,
        }
    }
}

async fn ended(workload: Option<&dyn Workload>) -> Ended {
    match workload {
        Some(workload) => workload.ended().await,
        None => std::future::pending().await,
    }
}

async fn changed<T>(channel: Option<&mut watch::Receiver<T>>) {
    if let Some(channel) = channel
        && channel.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
