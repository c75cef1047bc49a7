//! An agent that crashes again and again must not look healthy.
//!
//! ```text
//!   each run: counted on the disk ──> ten minutes old: the count starts again
//!   ten short runs in a row ──> silent (heartbeat, metrics, deadline) until a minute old
//!   twenty                  ──> silent until ten minutes old
//! ```
//! A run that is too short for a verdict ends nothing, however idle or hung the work is. With a
//! heartbeat in each, the lease, the alarm and the dead-man's switch would never fire. The machine
//! would bill to its hard cap, perhaps for weeks. So such an agent is silent: the lease lapses, the
//! sweeper ends the machine, and the job continues elsewhere from its newest checkpoint. Not here:
//! the runs during an end (`startup::last_starts`).

use std::time::Duration;

use super::attempt::AgentState;

/// A run of this length is not short: a verdict of idle or stalled takes longer, but its clock
/// counts.
const GROWN: Duration = Duration::from_secs(10 * 60);

/// A crash, a reboot and a full disk together make a few. Fewer would silence a healthy machine.
/// More leaves an agent that crashes at once in the heartbeats for longer (two seconds lie between
/// two runs).
const SEVERAL: u32 = 10;

/// The machine has then had a bad agent for at least a quarter of an hour, if its runs were long
/// enough for heartbeats. More lets idle work bill longer: up to ten minutes a run.
const MANY: u32 = 20;

/// How old a run must be before it reports, after this many short runs in a row.
fn quiet_for(lives: u32) -> Duration {
    match lives {
        0..SEVERAL => Duration::ZERO,
        SEVERAL..MANY => Duration::from_secs(60),
        _ => GROWN,
    }
}

/// How long this run stays silent, after short runs before it.
pub(crate) struct CrashLoop {
    /// When this agent started, by the monotonic clock.
    began: Duration,
    quiet_for: Duration,
}

impl CrashLoop {
    /// `short_lives`: how many agents in a row had a short run before this one.
    pub(crate) fn new(began: Duration, short_lives: u32) -> Self {
        CrashLoop { began, quiet_for: quiet_for(short_lives) }
    }

    pub(crate) fn is_quiet(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) < self.quiet_for
    }

    /// Whether this run is no longer short.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= GROWN
    }
}

impl AgentState {
    /// Counts this run. To be kept before anything else, so that every kind of crash counts.
    pub(crate) fn count_run(&mut self) {
        let lives = self.short_lives;
        if lives >= SEVERAL {
            let seconds = quiet_for(lives).as_secs();
            tracing::error!(
                "the last {lives} agents crashed within minutes: this one stays silent for {seconds} s, so that the sweeper may end the machine"
            );
        }
        self.short_lives = lives.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_short_runs_mean_longer_silence() {
        let secs = Duration::from_secs;
        for (lives, quiet) in [(0, 0), (9, 0), (10, 60), (19, 60), (20, 600), (u32::MAX, 600)] {
            assert_eq!(quiet_for(lives), secs(quiet), "{lives}");
        }
    }
}
