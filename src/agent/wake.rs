//! What wakes the loop. An event only wakes it early; what is decided is read from facts.

use std::time::Duration;

use tokio::sync::watch;

use super::notices::NoticeFacts;
use super::requests::Requests;
use crate::ports::{Clock, Ended, Workload};

/// Why the loop woke.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wake {
    /// A second has passed: time for a sample.
    Tick,
    /// The workload's main process has ended.
    Ended(Ended),
    /// A notice, a request or a signal arrived.
    News,
}

/// The channels that bring news.
pub(super) struct News {
    pub notices: Option<watch::Receiver<NoticeFacts>>,
    pub requests: watch::Receiver<Requests>,
    /// How often somebody pressed Ctrl-C or sent SIGTERM (stand-alone runs only).
    pub signals: watch::Receiver<u32>,
}

impl News {
    /// Waits for the first of all. A channel whose sender is gone is never ready: it has no more news.
    pub(super) async fn wait(&mut self, clock: &dyn Clock, tick: Duration, workload: Option<&dyn Workload>) -> Wake {
        tokio::select! {
            biased;
            ended = ended(workload) => Wake::Ended(ended),
            () = changed(self.notices.as_mut()) => Wake::News,
            () = changed(Some(&mut self.requests)) => Wake::News,
            () = changed(Some(&mut self.signals)) => Wake::News,
            () = clock.sleep(tick) => Wake::Tick,
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
