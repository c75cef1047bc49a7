//! The failed tries to arm or remove the alarm of a machine, and the time of the next try.
//! `policy::lifecycle::reconcile` decides whether a machine has an alarm.

use std::time::Duration;

use crate::policy::lifecycle::reconcile::{GuardLeft, Watched};

/// Between two tries; each failure adds one such pause, up to a quarter of an hour. The first look
/// often comes just before the first heartbeat, which takes up to two minutes to be seen. So the
/// tries come after 10, 30, 60 and 100 s.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Debug, Default)]
pub struct Guarding {
    /// Why AWS denies the alarm.
    pub denied: Option<String>,
    tries: u32,
    again: Duration,
}

/// After a longer pause between two looks, the state of the alarm is unknown: another controller
/// may have changed it. A tick that waits for a store is shorter.
const SLEPT: Duration = Duration::from_secs(5 * 60);

/// Notes a look, so long after the last one. After a sleep another controller may have armed or
/// removed the alarm, and a new heartbeat may be old. Arming it twice does no harm.
pub fn looked(watched: &mut Watched, after: Option<Duration>) {
    if after.is_some_and(|after| after > SLEPT) {
        (watched.guard, watched.beats_on) = (GuardLeft::Unknown, false);
    }
}

impl Guarding {
    /// Notes a failure, and gives their number.
    pub fn failed(&mut self, now: Duration) -> u32 {
        self.tries += 1;
        self.again = now + PAUSE.saturating_mul(self.tries).min(PAUSE_MAX);
        self.tries
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.again
    }
}
