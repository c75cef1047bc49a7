//! For how long the host of a silent machine fails the cloud's checks, as far as one controller has
//! asked. `policy::lifecycle::reconcile` decides how long is too long.

use std::time::Duration;

/// Between two questions; the cloud itself checks once a minute.
const EACH: Duration = Duration::from_secs(60);

/// The answers since the machine's last heartbeat.
#[derive(Clone, Debug, Default)]
pub struct HostSeen {
    asked: Option<Duration>,
    /// The first and the last of successive answers by which it fails.
    failing: Option<(Duration, Duration)>,
}

impl HostSeen {
    pub fn is_due(&self, now: Duration) -> bool {
        self.asked.is_none_or(|asked| now >= asked + EACH)
    }

    /// Notes an answer; `None`: the cloud gave none.
    pub fn note(&mut self, fails: Option<bool>, now: Duration) {
        self.asked = Some(now);
        self.failing = match fails {
            Some(true) => Some((self.failing.map_or(now, |(first, _)| first), now)),
            Some(false) => None,
            None => self.failing,
        };
    }

    pub fn fails_for(&self) -> Duration {
        self.failing.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_fails_until_an_answer_says_otherwise() {
        let (mut host, secs) = (HostSeen::default(), Duration::from_secs);
        for (now, fails, for_secs) in [
            (100, Some(true), 0),
            (160, None, 0),
            (220, Some(true), 120),
            (8000, None, 120),
            (8060, Some(false), 0),
        ] {
            assert!(host.is_due(secs(now)), "{now}");
            host.note(fails, secs(now));
            assert!(!host.is_due(secs(now + 59)));
            assert_eq!(host.fails_for(), secs(for_secs), "{now}");
        }
        host.note(Some(true), secs(9000));
        assert_eq!(host.fails_for(), Duration::ZERO, "it begins anew");
    }
}
