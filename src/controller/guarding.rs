//! What is remembered of the alarm that watches a machine from outside: how often arming it, or taking it off, failed, and when it is tried again.
//!
//! What must never live here: whether a machine is to be watched (`policy::reconcile`), and the call that arms it (`act`).

use std::time::Duration;

/// Between two tries; each failure adds one, up to a quarter of an hour. A first heartbeat needs a minute or two to be seen.
const PAUSE: Duration = Duration::from_secs(30);
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Debug, Default)]
pub struct Guarding {
    /// Why the alarm may not be armed.
    pub denied: Option<String>,
    tries: u32,
    again: Duration,
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
