//! The clock of this machine.

#![expect(clippy::disallowed_methods, reason = "this is where the time comes from")]

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::ports::Clock;

/// The longest sleep on the runtime's timers, which stop during suspend. Longer notices a passed
/// deadline later after a wake-up; shorter wakes the processor more often.
const SLICE: Duration = Duration::from_secs(30);

/// `CLOCK_BOOTTIME`: never steps, and counts suspend.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Wall time, and `CLOCK_BOOTTIME` as the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn mono(&self) -> Duration {
        since_boot()
    }

    fn boot(&self) -> String {
        crate::adapters::workload::holder::records::boot_id()
    }

    async fn sleep(&self, time: Duration) {
        let end = self.mono().saturating_add(time);
        loop {
            let left = end.saturating_sub(self.mono());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(SLICE)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleep_lasts_at_least_as_long_as_asked() {
        let clock = SystemClock;
        let before = clock.mono();
        clock.sleep(Duration::from_millis(20)).await;
        assert!(clock.mono() - before >= Duration::from_millis(20));
        clock.sleep(Duration::ZERO).await;
    }

    #[test]
    fn time_goes_on() {
        let clock = SystemClock;
        let (wall, mono) = (clock.now(), clock.mono());
        assert!(mono > Duration::ZERO && clock.mono() >= mono);
        assert!(wall > Timestamp::from_second(1_700_000_000).expect("in range"));
    }
}
