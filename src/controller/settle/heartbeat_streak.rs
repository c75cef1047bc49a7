//! How long the heartbeats have come without a pause, as far as one controller has listened.
//! `policy::lifecycle::visible_machine` uses it; `attempt_memory` measures silence.

use std::time::Duration;

/// A heartbeat is due every 15 s, and a few may be lost. With more, an agent that was offline would
/// count as one that received every request.
const PAUSE_MAX: Duration = Duration::from_secs(90);

/// By the steady clock of this controller.
#[derive(Clone, Debug, Default)]
pub struct Beats {
    since: Option<Duration>,
    /// The last new heartbeat, and the last look.
    beat: Option<Duration>,
    looked: Option<Duration>,
}

impl Beats {
    /// Notes a look, and whether it found a new heartbeat. Gives the length of the streak.
    pub fn heard(&mut self, is_new: bool, now: Duration) -> Duration {
        // After a pause between two looks, a heartbeat may have been missed.
        let pause = |before: Option<Duration>| {
            before.is_some_and(|before| now.saturating_sub(before) > PAUSE_MAX)
        };
        if pause(self.looked) || pause(self.beat) {
            self.since = None;
        }
        self.looked = Some(now);
        if is_new {
            self.beat = Some(now);
            self.since.get_or_insert(now);
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_resets_the_streak() {
        let secs = Duration::from_secs;
        let mut beats = Beats::default();
        let mut last = Duration::ZERO;
        for now in (0..600).step_by(15) {
            last = beats.heard(now % 30 == 0, secs(now));
        }
        assert_eq!(last, secs(585));
        // It is offline for two minutes, and comes back.
        for now in (600..720).step_by(15) {
            last = beats.heard(false, secs(now));
        }
        assert_eq!(last, Duration::ZERO);
        assert_eq!(beats.heard(true, secs(720)), Duration::ZERO);
        assert_eq!(beats.heard(true, secs(735)), secs(15));
        // The workstation sleeps for an hour, and finds a new one.
        assert_eq!(beats.heard(true, secs(4335)), Duration::ZERO);
    }
}
