//! What wakes the loop. An event only wakes it early; what is decided is read from facts.

use std::time::Duration;

use tokio::sync::watch;

use super::report::notice_watch::NoticeFacts;
use super::report::request_watch::Requests;
use super::run_loop::Agent;
use crate::job::AttemptPhase;
use crate::policy::{LimitLevel, Stage};
use crate::ports::{Clock, Ended, Workload};

/// Between two samples. NVML keeps some seconds of utilisation samples, so nothing is lost in between; faster costs the
/// agent's share of a core, slower delays every verdict.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// The same beside a workload that has long been busy, of which nothing is near: no verdict, no limit, no notice, no end. Such
/// hours are nearly all that a machine lives, and each look costs the same. NVML's buffers still hold every moment in between,
/// news and the end of the workload wake the loop at once, and a window of minutes is no less sharp. Rarer, and what a person
/// sees of the progress is stale, and a line of output is older than the five seconds that `lamp logs -f` promises: the log is
/// looked at with it.
const TICK_STEADY: Duration = Duration::from_secs(3);

/// So long a workload was watched closely first: somebody who tries things out has ended them by then.
const STEADY_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long until the steady clock reaches the next whole multiple of `every`. Whatever looks at something again and again
/// waits for these moments, so that one wake of the processor serves all of them.
pub(super) fn to_next(now: Duration, every: Duration) -> Duration {
    let past = now.as_nanos() % every.as_nanos().max(1);
    every.saturating_sub(Duration::from_nanos(u64::try_from(past).unwrap_or(0)))
}

/// Why the loop woke.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wake {
    /// Time for a sample.
    Tick,
    /// The workload's main process has ended.
    Ended(Ended),
    /// A notice, a request or a signal arrived.
    News,
}

impl Agent {
    /// How long until the next look, if nothing wakes the loop sooner.
    pub(super) fn tick(&self) -> Duration {
        let busy = self.watching.busy_since.is_some_and(|since| self.out.clock.mono().saturating_sub(since) >= STEADY_AFTER);
        let far = self.limit_level == LimitLevel::Far && self.warned.notice.is_none() && self.wish().is_none() && self.moves().is_none();
        let runs = self.phase == AttemptPhase::Running && self.memory.stage == Stage::Main && self.ended.is_none();
        if busy && far && runs && self.board.done().is_none() { TICK_STEADY } else { TICK }
    }
}

/// The channels that bring news.
pub(crate) struct News {
    pub notices: Option<watch::Receiver<NoticeFacts>>,
    pub requests: watch::Receiver<Requests>,
    /// How often somebody pressed Ctrl-C or sent SIGTERM (stand-alone runs only).
    pub signals: watch::Receiver<u32>,
}

impl News {
    /// Waits for the first of all. A channel whose sender is gone is never ready: it has no more news.
    pub(super) async fn wait(&mut self, clock: &dyn Clock, every: Duration, workload: Option<&dyn Workload>) -> Wake {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_recurs_meets_at_whole_moments() {
        let millis = Duration::from_millis;
        let second = millis(1000);
        assert_eq!(to_next(millis(5_000), second), second, "the moment itself is over");
        assert_eq!(to_next(millis(5_001), second), millis(999));
        assert_eq!(to_next(millis(5_999), second), millis(1));
        assert_eq!(to_next(millis(5_001), millis(2_000)), millis(999), "at 6, with the others");
    }
}
