//! What is remembered of the alarm that watches a machine from outside: how often arming it, or
//! taking it off, failed, and when it is tried again.
//!
//! Not here: whether a machine is to be watched (`policy::lifecycle::reconcile`), and the call that
//! arms it (`act`).

use std::time::Duration;

use crate::policy::lifecycle::reconcile::{GuardLeft, Watched};

/// Between two tries; each failure adds one, up to a quarter of an hour. The first look is often
/// just before the first heartbeat, and that needs up to two minutes to be seen: it is looked for
/// after 10, 30, 60, 100 s.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Debug, Default)]
pub struct Guarding {
    /// Why the alarm may not be armed.
    pub denied: Option<String>,
    tries: u32,
    again: Duration,
}

/// Whoever has not looked for so long does not know what others did to a machine's alarm. A tick
/// that hangs at a store is over sooner.
const SLEPT: Duration = Duration::from_secs(5 * 60);

/// Takes note of a look so long after the one before: whoever slept may find the alarm armed or
/// taken off by another, and a beat that is new to it may be of long ago. To arm one twice does no
/// harm.
pub fn looked(watched: &mut Watched, after: Option<Duration>) {
    if after.is_some_and(|after| after > SLEPT) {
        (watched.guard, watched.beats_on) = (GuardLeft::Unknown, false);
    }
}

impl Guarding {
    /// Takes note of a failure, and gives how many there were.
    pub fn failed(&mut self, now: Duration) -> u32 {
        self.tries += 1;
        self.again = now + PAUSE.saturating_mul(self.tries).min(PAUSE_MAX);
        self.tries
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.again
    }
}
