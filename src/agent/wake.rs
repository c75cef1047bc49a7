//! Wakes the loop. An event only wakes it early; decisions read facts.

use std::time::Duration;

use tokio::sync::watch;

use super::report::notice_watch::NoticeFacts;
use super::report::request_watch::Requests;
use super::run_loop::Agent;
use super::timers::to_next;
use crate::job::AttemptPhase;
use crate::policy::{LimitLevel, Stage};
use crate::ports::{Clock, Ended, Workload};

/// The time between two samples. NVML buffers some seconds. Faster costs more; slower delays every
/// verdict.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// The same for a workload that has long been busy, with no verdict, limit, notice or end near.
/// Nearly all hours are so, and each tick costs the same. NVML's buffers cover the gap, and events
/// still wake the loop. Slower would break the five seconds of `lamp logs -f`, since the log is
/// read at the tick.
const TICK_STEADY: Duration = Duration::from_secs(3);

/// A workload is watched closely for this long first: short experiments have ended by then.
const STEADY_AFTER: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wake {
    Tick,
    Ended(Ended),
    /// A notice, a request or a signal arrived.
    News,
}

impl Agent {
    /// How long until the next tick, if nothing wakes the loop sooner.
    pub(super) fn tick(&self) -> Duration {
        let busy = self
            .watching
            .busy_since
            .is_some_and(|since| self.out.clock.mono().saturating_sub(since) >= STEADY_AFTER);
        let far = self.limit_level == LimitLevel::Far
            && self.warned.notice.is_none()
            && self.wish().is_none()
            && self.moves().is_none();
        let runs = self.phase == AttemptPhase::Running
            && self.memory.stage == Stage::Main
            && self.ended.is_none();
        if busy && far && runs && self.board.done().is_none() { TICK_STEADY } else { TICK }
    }
}

pub(crate) struct News {
    pub notices: Option<watch::Receiver<NoticeFacts>>,
    pub requests: watch::Receiver<Requests>,
    /// How many Ctrl-C or SIGTERM this process received (stand-alone runs only).
    pub signals: watch::Receiver<u32>,
}

impl News {
    /// Waits for the first event. A channel whose sender is gone is never ready.
    pub(super) async fn wait(
        &mut self,
        clock: &dyn Clock,
        every: Duration,
        workload: Option<&dyn Workload>,
    ) -> Wake {
        tokio::select! {
            biased;
            ended = ended(workload) => Wake::Ended(ended),
            () = changed(self.notices.as_mut()) => Wake::News,
            () = changed(Some(&mut self.requests)) => Wake::News,
            () = changed(Some(&mut self.signals)) => Wake::News,
            () = clock.sleep(to_next(clock.mono(), every)) => Wake::Tick,
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
