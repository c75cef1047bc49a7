//! How a file, a set of them or the whole folder changed: when last, since when, and whether it rests.
//!
//! What must never live here: what a rest says (that is [`super::checkpoint_watch`]).

use std::time::Duration;

/// How long the folder must be unchanged. Writers that pause longer between two files of one checkpoint should mark it;
/// shorter would cut those in half that flush slowly, longer eats the time of an interruption notice.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// How something changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Motion {
    /// The last change, and the first since it rested.
    pub changed: Duration,
    pub begun: Duration,
    /// Until when it was last at rest.
    rested: Duration,
    /// The step at the last change.
    pub step: Option<f64>,
    /// Whether it ever changed.
    ever: bool,
}

impl Motion {
    pub(super) fn new(now: Duration) -> Self {
        Motion { changed: now, begun: now, rested: now, step: None, ever: true }
    }

    /// `looked`: the look before this one, up to which a rest is known. `not_before`: when what moves now can have begun at
    /// the earliest, where something beside a rest tells it.
    pub(super) fn moved(&mut self, now: Duration, looked: Duration, step: Option<f64>, not_before: Option<Duration>) {
        if self.rests(looked) {
            (self.begun, self.rested) = (now, now);
        }
        self.begun = self.begun.max(not_before.unwrap_or_default());
        (self.changed, self.step, self.ever) = (now, step, true);
    }

    pub(super) fn rests(&self, at: Duration) -> bool {
        self.rests_for(at, QUIET)
    }

    pub(super) fn rests_for(&self, at: Duration, time: Duration) -> bool {
        !self.ever || at.saturating_sub(self.changed) >= time
    }

    pub(super) fn restless(&self, at: Duration, time: Duration) -> bool {
        !self.rests(at) && at.saturating_sub(self.rested) >= time
    }
}
