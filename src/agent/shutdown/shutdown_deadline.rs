//! The deadline of an end, computed again at each step.
//!
//! A notice may come during the uploads or be cancelled; a hard end may be near or be raised. An
//! agent that notices too late writes no outcome, and the work is repeated. Not here: what is saved
//! or sent.

use std::time::Duration;

use jiff::Timestamp;

use super::drain::FLUSH_MIN;
use crate::agent::run_loop::Agent;
use crate::instance::Notice;
use crate::job::EndedBecause;
use crate::market::elapsed;
use crate::policy::{Afterwards, End, over_by};

pub(crate) struct Ahead {
    end: End,
    began: Timestamp,
    /// The time that later steps need before the hard end.
    reserve: Duration,
}

impl Ahead {
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
}

impl Agent {
    pub(crate) fn ahead(&self, end: &End, reserve: Duration) -> Ahead {
        Ahead { end: *end, began: self.steady_now(), reserve }
    }

    /// The deadline from the cloud's notice, as it is now.
    pub(crate) fn taken_by(&self, now: Timestamp) -> Option<Timestamp> {
        let notice = self.warned.notice.as_ref()?;
        let notice = Notice { at: self.warned.at.unwrap_or(notice.at), ..notice.clone() };
        over_by(&notice, self.warned.first_seen.unwrap_or(now), now)
    }

    /// The deadline for all saves and uploads of an end, as known now.
    fn over_by(&mut self, ahead: &Ahead) -> Option<Timestamp> {
        if ahead.is_left_to_cloud() {
            return ahead.fixed();
        }
        let now = self.steady_now();
        self.look_for_notice(now);
        let is_heard =
            self.news.notices.as_ref().is_some_and(|channel| channel.borrow().answered.is_some());
        // An agent that restarted in this end may not have read the notice yet.
        let taken = if is_heard { self.taken_by(now) } else { ahead.end.by };
        let hard = self.kill_at().map(|at| {
            let reserve = ahead.reserve.min(elapsed(ahead.began, at) / 2);
            at.saturating_sub(reserve).unwrap_or(at)
        });
        [ahead.fixed(), taken, hard].into_iter().flatten().min()
    }

    /// The time left, at most until `until` on the monotonic clock.
    pub(crate) fn left(&mut self, ahead: &Ahead, until: Duration) -> Duration {
        let by = self.over_by(ahead);
        self.within(by, until.saturating_sub(self.out.clock.mono()))
    }

    /// Whether the time is up. A step with its own deadline gets a little more, to answer with the
    /// reason.
    pub(crate) fn is_over(&mut self, ahead: &Ahead, began: Duration, until: Duration) -> bool {
        let now = self.steady_now();
        let by = self.over_by(ahead).is_some_and(|by| elapsed(by, now) >= FLUSH_MIN);
        let mono = self.out.clock.mono();
        (by || mono.saturating_sub(until) >= FLUSH_MIN) && mono.saturating_sub(began) >= FLUSH_MIN
    }

    /// Awaits a slow step and keeps the watchdog fed. `None`: time is up.
    pub(crate) async fn in_time<T>(
        &mut self,
        ahead: &Ahead,
        until: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let began = self.out.clock.mono();
        let mut work = Box::pin(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = self.out.clock.sleep(Duration::from_secs(1)) => {}
            }
            self.world.service.alive();
            self.report();
            if self.is_over(ahead, began, until) {
                return None;
            }
        }
    }
}
