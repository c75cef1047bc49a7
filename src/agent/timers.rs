//! Time by the monotonic clock: when a recurring task wakes next, and how long the command ran.

use std::time::Duration;

use crate::market::Span;

/// The time between two samples. NVML buffers some seconds. Faster costs more; slower delays every
/// verdict.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// The time until the monotonic clock reaches the next multiple of `every`: one wake-up serves all
/// tasks.
pub(crate) fn to_next(now: Duration, every: Duration) -> Duration {
    let past = now.as_nanos() % every.as_nanos().max(1);
    every.saturating_sub(Duration::from_nanos(u64::try_from(past).unwrap_or(0)))
}

/// How long the command ran, if this agent saw its start and its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunTime {
    /// By the monotonic clock. `None`: an earlier agent started it, or `setup` runs.
    began: Option<Duration>,
    lasted: Option<Duration>,
}

impl RunTime {
    pub(crate) fn from(began: Option<Duration>) -> Self {
        RunTime { began, lasted: None }
    }

    /// How long it lasted. `None` while it runs, or if its start was not seen.
    pub(crate) fn lasted(&mut self, has_ended: bool, now: Duration) -> Option<Span> {
        let ran = now.saturating_sub(self.began?);
        has_ended.then(|| Span::from_duration(*self.lasted.get_or_insert(ran)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurring_tasks_wake_at_same_multiples() {
        let millis = Duration::from_millis;
        let second = millis(1000);
        assert_eq!(to_next(millis(5_000), second), second, "the moment itself is over");
        assert_eq!(to_next(millis(5_001), second), millis(999));
        assert_eq!(to_next(millis(5_999), second), millis(1));
        assert_eq!(to_next(millis(5_001), millis(2_000)), millis(999), "at 6, with the others");
    }
}
