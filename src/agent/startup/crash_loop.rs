//! An agent that dies again and again must not look like one that lives.
//!
//! ```text
//!   each life: counted on the disk ──> ten minutes old: the count begins anew
//!   ten short lives in a row ──> no heartbeat, no metric and no new deadline until a life is a minute old
//!   twenty                   ──> until it is ten minutes old
//! ```
//! A life that is too short for a verdict stops nothing, however idle or hung the work is; with a beat in each of them neither the lease
//! nor the alarm nor the dead-man's switch would ever stand in for it, and a machine would bill to its hard cap, weeks perhaps (seed 911134).
//! So who dies young is silent: the lease lapses, and whoever sweeps ends the machine; the job goes on from its newest checkpoint
//! elsewhere. What must never live here: the lives of an end that was begun (`startup::last_starts`).

use std::time::Duration;

use crate::agent::run_loop::Agent;

/// A life of so long is none of a row: a verdict of idleness or of a hang takes longer, and their clocks have begun to count.
const GROWN: Duration = Duration::from_secs(10 * 60);

/// A crash, a reboot and a full disk together make a few. Fewer, and they would silence a machine that is well; more, and one that dies
/// at once is heard for longer (two seconds lie between two lives).
const SEVERAL: u32 = 10;

/// By then it has had a bad agent for a quarter of an hour at the least, if its lives were long enough to be heard. More, and work that
/// idles bills for that much longer: up to ten minutes a life.
const MANY: u32 = 20;

/// How old a life must be before it says anything, after so many short ones in a row.
pub(crate) fn quiet_for(lives: u32) -> Duration {
    match lives {
        0..SEVERAL => Duration::ZERO,
        SEVERAL..MANY => Duration::from_secs(60),
        _ => GROWN,
    }
}

impl Agent {
    /// Kept before anything is done: whatever this life dies of counts.
    pub(crate) fn count_short_life(&mut self) {
        let lives = self.memory.short_lives;
        if lives >= SEVERAL {
            let seconds = quiet_for(lives).as_secs();
            tracing::error!("{lives} agents in a row died young: this one says nothing for {seconds} s, so that others may end the machine");
        }
        self.memory.short_lives = lives.saturating_add(1);
        self.keep();
    }

    /// This life is no short one any more.
    pub(crate) fn look_at_age(&mut self) {
        if self.memory.short_lives > 0 && self.out.clock.mono().saturating_sub(self.began) >= GROWN {
            self.memory.short_lives = 0;
            self.keep();
        }
    }

    /// Whether nobody may take this agent for one that lives: it is too young after too many that died young.
    pub(crate) fn is_quiet(&self) -> bool {
        self.out.clock.mono().saturating_sub(self.began) < self.quiet_for
    }

    /// The heartbeat says what is true now.
    pub(crate) fn beat(&self) {
        if !self.is_quiet() {
            self.heartbeat.update(self.status());
        }
    }

    /// The last word before the power switch, also of a quiet agent: without it nobody knows that a power-off was begun anew, and until
    /// when it billed (seed 65021981 of 24 h: a reboot in the power-off, after ten short lives). As few as go the whole way (`startup::last_starts`):
    /// who dies at the switch again and again is silent all the same.
    pub(crate) fn last_beat(&self) {
        if !self.is_quiet() || self.is_last_way().is_none() {
            self.heartbeat.update(self.status());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_dies_young_more_often_is_silent_for_longer() {
        let secs = Duration::from_secs;
        for (lives, quiet) in [(0, 0), (9, 0), (10, 60), (19, 60), (20, 600), (u32::MAX, 600)] {
            assert_eq!(quiet_for(lives), secs(quiet), "{lives}");
        }
    }
}
