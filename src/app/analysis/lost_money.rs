//! Money for idle time, and money that interruptions cost: apart, since their cures differ.
//!
//! An interruption costs the work after the last save, and the start of the next machine.

use std::time::Duration;

use serde::Serialize;

use crate::app::view::timeline::ExplainedAttempt;
use crate::instance::Status;
use crate::job::{Outcome, Settled};
use crate::market::{Span, Usd, UsdPerHour, elapsed};

/// The field names are an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct LostMoney {
    /// By the agents' own count.
    pub idle: Span,
    pub idle_usd: Usd,
    /// Attempts that another one followed.
    pub interruptions: u32,
    /// Work that no checkpoint held.
    pub lost_work: Span,
    pub lost_work_usd: Usd,
    /// From the start of billing to the first work, of the attempts that followed.
    pub restarts: Span,
    pub restarts_usd: Usd,
}

/// `status`: the heartbeat of the newest attempt, while it runs. An attempt without an outcome
/// (a lost machine) counts as an interruption whose work is unknown.
pub fn lost_money(attempts: &[ExplainedAttempt], status: Option<&Status>) -> LostMoney {
    let mut lost = LostMoney::default();
    for (at, attempt) in attempts.iter().enumerate() {
        let hourly = attempt.plan.as_ref().map_or(UsdPerHour::ZERO, |plan| plan.offer.hourly());
        let is_last = at + 1 == attempts.len();
        let outcome = outcome_of(attempt);
        let idle = outcome.map(|outcome| outcome.idle);
        let idle = idle.or(status.filter(|_| is_last).map(|status| status.idle));
        let idle = idle.unwrap_or_default();
        // The costs of all jobs count the same part of the bill.
        let billed = attempt.settled.as_ref().and_then(Settled::idle_usd);
        lost.add_idle(idle, billed.unwrap_or_else(|| hourly.cost_of(idle.duration())));
        // A refused launch interrupted nothing.
        if !is_last && attempt.instance.is_some() {
            lost.interruptions += 1;
            let unsaved = outcome.map(Outcome::unsaved).unwrap_or_default();
            lost.add_work(unsaved, hourly);
        }
        if lost.interruptions > 0 && attempt.instance.is_some() {
            let started = outcome.and_then(|outcome| outcome.working_since);
            let working = started.or(status.filter(|_| is_last).and_then(|one| one.working_since));
            let billed = attempt.settled.as_ref().and_then(|settled| settled.billed_from);
            let from = billed.or(attempt.plan.as_ref().map(|plan| plan.created));
            let is_first = attempts[..at].iter().all(|earlier| earlier.instance.is_none());
            if let Some((from, working)) = from.zip(working).filter(|_| !is_first) {
                lost.add_restart(elapsed(from, working), hourly);
            }
        }
    }
    lost
}

fn outcome_of(attempt: &ExplainedAttempt) -> Option<&Outcome> {
    attempt.settled.as_ref().and_then(|settled| settled.outcome.as_ref())
}

impl LostMoney {
    fn add_idle(&mut self, idle: Span, usd: Usd) {
        self.idle = sum(self.idle, idle.duration());
        self.idle_usd += usd;
    }

    fn add_work(&mut self, work: Span, hourly: UsdPerHour) {
        self.lost_work = sum(self.lost_work, work.duration());
        self.lost_work_usd += hourly.cost_of(work.duration());
    }

    fn add_restart(&mut self, restart: Duration, hourly: UsdPerHour) {
        self.restarts = sum(self.restarts, restart);
        self.restarts_usd += hourly.cost_of(restart);
    }

    /// `12m idle, $0.40`; `None`: there was no idle time.
    pub fn idle_text(&self) -> Option<String> {
        (self.idle.duration().as_secs() > 0)
            .then(|| format!("{}{}", whole(self.idle), money(self.idle_usd)))
    }

    /// `None`: nothing was interrupted.
    pub fn interruptions_text(&self) -> Option<String> {
        (self.interruptions > 0).then(|| {
            let (work, restarts) = (whole(self.lost_work), whole(self.restarts));
            let usd = self.lost_work_usd + self.restarts_usd;
            format!(
                "{}: {work} of work was not saved, and {restarts} for new starts{}",
                crate::app::text::counted(self.interruptions.into(), "interruption"),
                money(usd)
            )
        })
    }
}

fn sum(one: Span, other: Duration) -> Span {
    Span::from_duration(one.duration() + other)
}

fn whole(span: Span) -> Span {
    Span::from_secs(span.duration().as_secs())
}

fn money(usd: Usd) -> String {
    if usd == Usd::ZERO { String::new() } else { format!(", {usd}") }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::job::AttemptNo;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a moment")
    }

    /// An hour costs $36, so that a second costs a cent.
    fn attempt(number: u32, useful: &str, saved: &str, idle: &str) -> ExplainedAttempt {
        let offer = json!({ "cloud": "aws", "region": "r", "zone": "r1a", "instance_type": "t", "gpus": 1,
            "gpu_model": "A10G", "market": "spot", "price": 36.0 });
        let plan = json!({ "format": 1, "job": "x-222222", "attempt": number, "created": at(0), "controller": "c",
            "offer": offer, "reasons": [], "most_usd": null, "client_token": "t", "lease": "30m", "tags": {} });
        let outcome = json!({ "format": 1, "job": "x-222222", "attempt": number, "instance": "i", "started": at(0),
            "ended": at(900), "because": "interrupted", "reasons": [], "useful": useful, "saved": saved, "idle": idle,
            "working_since": at(100) });
        let settled = json!({ "format": 1, "attempt": number, "instance": "i", "because": "interrupted",
            "billed_from": at(10), "billed_to": at(900), "billed": "15m", "usd": 9.0, "outcome": outcome });
        ExplainedAttempt {
            attempt: AttemptNo::new(number),
            plan: Some(serde_json::from_value(plan).expect("a plan")),
            settled: Some(serde_json::from_value(settled).expect("a record")),
            instance: Some("i".into()),
            reasons: Vec::new(),
            idle_cost: None,
            idle_at: None,
            events: Vec::new(),
        }
    }

    #[test]
    fn idle_time_and_interruptions_are_counted_apart() {
        let attempts = [attempt(1, "10m", "8m", "1m"), attempt(2, "10m", "0s", "30s")];
        let lost = lost_money(&attempts, None);
        assert_eq!(lost.idle_text().as_deref(), Some("1m 30s, $0.90"));
        // Two minutes of the first were not saved. The last one was not interrupted.
        assert_eq!(
            lost.interruptions_text().as_deref(),
            Some("1 interruption: 2m of work was not saved, and 1m 30s for new starts, $2.10")
        );
        let one = lost_money(&attempts[..1], None).idle_usd;
        assert_eq!(
            attempts[0].settled.as_ref().and_then(Settled::idle_usd),
            Some(one),
            "as in the costs"
        );
        let whole = lost_money(&attempts[..1], None);
        assert_eq!((whole.interruptions, whole.interruptions_text()), (0, None));
    }

    #[test]
    fn refused_launch_interrupts_nothing() {
        let mut refused = attempt(1, "0s", "0s", "0s");
        (refused.instance, refused.settled) = (None, None);
        let lost = lost_money(&[refused, attempt(2, "10m", "10m", "0s")], None);
        assert_eq!((lost.interruptions, lost.restarts, lost.idle_text()), (0, Span::ZERO, None));
    }
}
