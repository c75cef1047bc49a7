//! How long to wait after a failure before the next try.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tracing::debug;

/// The longest wait. A cloud that recovers is asked within a minute; less prolongs the throttling.
const MAX: Duration = Duration::from_secs(60);

/// The acts of one kind that were throttled in a row. Each kind has its own delay, so a delayed
/// launch does not delay the end of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    pub kind: &'static str,
    failures: u32,
    /// On the steady clock.
    until: Duration,
}

impl Throttle {
    /// After one more throttled act of this kind; `before`: the same kind's.
    pub fn after(kind: &'static str, before: Option<Throttle>, who: &str, now: Duration) -> Self {
        let failures = before.map_or(0, |before| before.failures);
        let pause = backoff(who, failures);
        debug!(who, kind, "throttled; again in {pause:?}");
        Throttle { kind, failures: failures.saturating_add(1), until: now + pause }
    }

    pub fn delays(self, now: Duration) -> bool {
        now < self.until
    }
}

/// Backoff from one second to a minute, doubling. A hash of `who` spreads it over the upper half of
/// each step: a thousand controllers must not return in one second, and tests stay repeatable.
pub(crate) fn backoff(who: &str, failures: u32) -> Duration {
    let step = Duration::from_secs(2 << failures.min(6)).min(MAX);
    let digest = Sha256::digest(format!("{who}\n{failures}"));
    step / 2
        + step.mul_f64(
            f64::from(u16::from_be_bytes([digest[0], digest[1]])) / f64::from(u16::MAX) / 2.0,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_a_minute_and_is_spread() {
        for failures in 0..40 {
            let waits: Vec<Duration> =
                (0..100).map(|who| backoff(&format!("job-{who}"), failures)).collect();
            let step = [2, 4, 8, 16, 32].get(failures as usize).copied().unwrap_or(60);
            let range = Duration::from_millis(step * 500)..=Duration::from_secs(step);
            assert!(waits.iter().all(|wait| range.contains(wait)), "{failures}: {waits:?}");
            let (soonest, latest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            assert!(
                *latest - *soonest > Duration::from_millis(step * 400),
                "{failures}: from {soonest:?} to {latest:?}"
            );
        }
        assert_eq!(backoff("a", 3), backoff("a", 3));
        assert_ne!(backoff("a", 7), backoff("a", 8), "the next time it is elsewhere");
    }
}
