//! The limits of the attempt, and what users and the controller ask for: time, budget, an end, a
//! move.

use std::time::Duration;

use jiff::Timestamp;

use super::agent::Agent;
use crate::agent::report::attention::Topic;
use crate::job::EndedBecause;
use crate::market::Span;
use crate::policy::{
    EndWish, Extension, LimitFacts, LimitLevel, MoveWish, Reached, judge_limits, limit_level,
};

/// For logs, outputs and power-off: they usually take a few seconds.
pub(crate) const UPLOAD_ALLOWANCE: Duration = Duration::from_secs(15);

impl Agent {
    /// The wishes of users: requests in the job directory, and Ctrl-C in a stand-alone run.
    pub(crate) fn wish(&self) -> Option<EndWish> {
        let pressed = *self.events.signals.borrow();
        let by_signal = (pressed > 0).then(|| EndWish {
            cancel: pressed > 1,
            by: "a signal".into(),
            at: self.out.clock.now(),
        });
        by_signal.or_else(|| self.requests.wishes.borrow().end.clone())
    }

    /// The controller's request that this attempt moves to another machine.
    pub(crate) fn moves(&self) -> Option<MoveWish> {
        self.requests
            .wishes
            .borrow()
            .moves
            .clone()
            .filter(|wish| wish.attempt == self.attempt.no && !self.alone())
    }

    /// The time and budget granted so far. They only grow, so the last values hold while the store
    /// is silent.
    pub(crate) fn granted(&self) -> Extension {
        let (wishes, kept) = (self.requests.wishes.borrow(), self.state.granted);
        Extension {
            time: wishes.more_time.max(kept.time),
            budget: wishes.more_budget.max(kept.budget),
        }
    }

    pub(crate) fn account(&self) -> LimitFacts {
        LimitFacts {
            began: self.attempt.launched,
            price: self.attempt.price,
            spent_before: self.attempt.spent_before,
            limits: self.attempt.resolved.spec.limits.clone(),
            extended: self.granted(),
            kill_at: self.kill_at(),
            drain: self.drain_allowance(),
        }
    }

    /// The time that the end needs before a limit: the measured save (else the grace), the
    /// workload's end, and some seconds to upload and power off. At most a tenth of the run time
    /// limit, for short jobs.
    fn drain_allowance(&self) -> Span {
        let spec = &self.attempt.resolved.spec;
        let save = match (&self.checkpoints, &spec.checkpoint) {
            (Some(checkpoints), Some(checkpoint)) => {
                checkpoints.secs_p95().map_or(checkpoint.grace.duration(), Duration::from_secs_f64)
            }
            _ => Duration::ZERO,
        };
        let whole = save + spec.watch.term_grace.duration() + UPLOAD_ALLOWANCE;
        let tenth = spec.limits.max_runtime.map_or(Duration::MAX, |most| most.duration() / 10);
        Span::from_duration(whole.min(tenth))
    }

    /// The first limit that is reached. Earlier warning levels are told once.
    pub(crate) fn limit(&mut self, now: Timestamp) -> Option<Reached> {
        let account = self.account();
        // Usually the level is unchanged, and the text can be skipped.
        let level = limit_level(&account, now)?;
        if level <= self.limit_level && level != LimitLevel::Reached {
            self.limit_level = level;
            return None;
        }
        let verdict = judge_limits(&account, now);
        let (next, reason) = verdict.next.zip(verdict.reason)?;
        if verdict.level == LimitLevel::Reached {
            // Requests may have raised the limits at the launch (seed 18000253 of 24 h): wait until
            // they are read. Only the hard cap already includes every grant. A wrong clock at boot
            // may also make limits seem over.
            let mono = self.out.clock.mono();
            let may_judge = self.requests.are_known(mono)
                && (self.reporter.heartbeat.is_dated() || self.requests.were_waited_for(mono));
            if next.kind.ended_because() != EndedBecause::HardEnd && !may_judge {
                return None;
            }
            return Some(Reached { because: next.kind.ended_because(), reason, by: next.at });
        }
        if verdict.level > self.limit_level {
            let share = if verdict.level == LimitLevel::Warn95 { 95 } else { 80 };
            let text = format!("{share} % of the way to a limit: {}", reason.text);
            self.reporter.attention.take_back(&Topic::NearLimit);
            self.reporter.attention.attend(Topic::NearLimit, text);
        }
        self.limit_level = verdict.level;
        None
    }
}
