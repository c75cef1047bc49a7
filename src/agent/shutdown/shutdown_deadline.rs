//! The deadline of an end, computed again at each step.
//!
//! A notice may come during the uploads or be cancelled; a hard end may be near or be raised. An
//! agent that notices too late writes no outcome, and the work is repeated. Not here: what is saved
//! or sent.

use std::time::Duration;

use jiff::Timestamp;

use crate::agent::agent::Agent;
use crate::job::EndedBecause;
use crate::market::elapsed;
use crate::policy::{Afterwards, End};

/// The least time for each sender at the end of a notice, even if saving used all of it.
pub(crate) const FLUSH_MIN: Duration = Duration::from_secs(2);

/// The reason for a loss when time ran out.
pub(crate) const TIME_WAS_UP: &str = "the time of the machine was up";

pub(crate) struct ShutdownDeadline {
    end: End,
    began: Timestamp,
    /// The time that later steps need before the hard end.
    reserve: Duration,
}

impl ShutdownDeadline {
    pub(crate) fn new(agent: &Agent, end: &End, reserve: Duration) -> Self {
        ShutdownDeadline { end: *end, began: agent.steady_now(), reserve }
    }

    /// The deadline that later news cannot move: from a limit, or from the interruption itself.
    pub(crate) fn fixed(&self) -> Option<Timestamp> {
        let is_limit = matches!(
            self.end.because,
            EndedBecause::MaxRuntime
                | EndedBecause::Budget
                | EndedBecause::Deadline
                | EndedBecause::HardEnd
        );
        self.end.by.filter(|_| is_limit || self.is_left_to_cloud())
    }

    pub(crate) fn is_left_to_cloud(&self) -> bool {
        matches!(self.end.then, Afterwards::LeaveToCloud { .. })
    }

    /// The deadline for all saves and uploads of an end, as known now.
    fn over_by(&self, agent: &mut Agent) -> Option<Timestamp> {
        if self.is_left_to_cloud() {
            return self.fixed();
        }
        let now = agent.steady_now();
        agent.look_for_notice(now);
        // An agent that restarted in this end may not have read the notice yet.
        let taken =
            if agent.notices.is_heard() { agent.notices.deadline(now) } else { self.end.by };
        let hard = agent.kill_at().map(|at| {
            let reserve = self.reserve.min(elapsed(self.began, at) / 2);
            at.saturating_sub(reserve).unwrap_or(at)
        });
        [self.fixed(), taken, hard].into_iter().flatten().min()
    }

    /// The time left, at most until `until` on the monotonic clock.
    pub(crate) fn left(&self, agent: &mut Agent, until: Duration) -> Duration {
        let by = self.over_by(agent);
        agent.time_until(by, until.saturating_sub(agent.out.clock.mono()))
    }

    /// Whether the time is up. A step with its own deadline gets a little more, to answer with the
    /// reason.
    pub(crate) fn is_over(&self, agent: &mut Agent, began: Duration, until: Duration) -> bool {
        let now = agent.steady_now();
        let by = self.over_by(agent).is_some_and(|by| elapsed(by, now) >= FLUSH_MIN);
        let mono = agent.out.clock.mono();
        (by || mono.saturating_sub(until) >= FLUSH_MIN) && mono.saturating_sub(began) >= FLUSH_MIN
    }

    /// Awaits a slow step and keeps the watchdog fed. `None`: time is up.
    pub(crate) async fn in_time<T>(
        &self,
        agent: &mut Agent,
        until: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let began = agent.out.clock.mono();
        let mut work = Box::pin(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = agent.out.clock.sleep(Duration::from_secs(1)) => {}
            }
            agent.ports.service.alive();
            agent.report();
            if self.is_over(agent, began, until) {
                return None;
            }
        }
    }
}
