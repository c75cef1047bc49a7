//! What wakes the loop. An event only wakes it early; what is decided is read from facts.

use std::time::Duration;

use tokio::sync::watch;

use super::notices::NoticeFacts;
use super::requests::Requests;
use crate::ports::{Clock, Ended, Workload};

/// How long until the steady clock reaches the next whole multiple of `every`. Whatever looks at something again and again
/// waits for these moments, so that one wake of the processor serves all of them.
pub(super) fn to_next(now: Duration, every: Duration) -> Duration {
    let past = now.as_nanos() % every.as_nanos().max(1);
    every.saturating_sub(Duration::from_nanos(u64::try_from(past).unwrap_or(0)))
}

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
