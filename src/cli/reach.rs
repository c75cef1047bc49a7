//! A deadline that no machine can meet: said before anything is bought, by how much, and what it means.
//!
//! Reckoned without the market: a machine that starts now and is never taken away. What must never live here: the market rule,
//! which goes the fastest way to the end then (`policy::market_choice`).

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::Context;
use crate::controller::Planned;
use crate::job::{ResolvedSpec, Spec};
use crate::market::{Cloud, Span, Usd, elapsed};
use crate::policy::auto::{self, AutoFacts, Standing};

/// How far a deadline is out of reach; the field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutOfReach {
    pub work_hours: f64,
    pub start_hours: f64,
    /// How much later the work would be done.
    pub short_hours: f64,
    /// The work that a machine can do until then.
    pub done_hours: f64,
    /// A deadline this far from now could be met.
    pub enough_hours: f64,
    /// The most that the machine of the plan costs until the deadline.
    pub most_usd: Option<Usd>,
    #[serde(skip)]
    on_demand: bool,
    #[serde(skip)]
    saves: bool,
}

impl OutOfReach {
    /// `None`: it is in reach, or nobody says how much work it is.
    pub fn of(planned: &Planned, spec: &ResolvedSpec, now: Timestamp) -> Option<OutOfReach> {
        let spec = &spec.spec;
        let speed = spec.machine.speed.of(&planned.plan.offer);
        let facts = AutoFacts { spec, history: &[], running: None, more_time: Span::ZERO, spot: None, on_demand: None, speed, now };
        let standing = planned.outlook.as_ref().map_or_else(|| auto::standing(&facts), |outlook| outlook.standing);
        OutOfReach::judge(spec, &standing, speed, planned.plan.most_usd, now)
    }

    fn judge(spec: &Spec, standing: &Standing, speed: f64, most_usd: Option<Usd>, now: Timestamp) -> Option<OutOfReach> {
        let (work, time_left) = (spec.limits.work?.secs_f64() / 3600.0 / speed, standing.time_left?);
        let is_local = spec.machine.cloud == Cloud::Local;
        let start = if is_local { 0.0 } else { standing.start };
        let short = work + start - time_left;
        let until = elapsed(now, spec.limits.deadline?).as_secs_f64() / 3600.0;
        (short > 0.0).then(|| OutOfReach {
            work_hours: work,
            start_hours: start,
            short_hours: short,
            done_hours: (time_left - start).max(0.0),
            enough_hours: (until + short).ceil(),
            most_usd,
            on_demand: !is_local,
            saves: spec.checkpoint.is_some(),
        })
    }

    fn what(&self) -> String {
        let even = if self.on_demand { ", even on demand" } else { "" };
        let start = if self.start_hours > 0.0 { format!(" and a start of {}", span(self.start_hours)) } else { String::new() };
        format!("the deadline cannot be met{even}: {} of work{start} take {} longer", span(self.work_hours), span(self.short_hours))
    }

    fn means(&self) -> String {
        let kept = if self.saves { "" } else { ", and nothing of it is saved, without `[checkpoint]`" };
        let most = match self.most_usd {
            Some(most) if most == Usd::ZERO => String::new(),
            Some(most) => format!("; until then this machine costs at most {most}"),
            None => "; what that costs, nothing bounds".to_owned(),
        };
        format!("it ends the job unfinished, with about {} of {} done{kept}{most}", span(self.done_hours), span(self.work_hours))
    }

    fn cure(&self) -> String {
        let enough = self.enough_hours;
        format!("`--deadline {enough:.0}h` is enough from now on; so would be a faster machine, or less work, with its own `--work`")
    }

    /// As a warning: what, what it means, what to type.
    pub fn warn(&self, context: &Context) {
        context.printer.warn(format!("{}; {}", self.what(), self.means()));
        context.printer.hint(self.cure());
    }
}

/// In whole minutes: it rests on a start that nobody knows better.
fn span(hours: f64) -> Span {
    Span::from_duration(Duration::from_secs((hours * 60.0).round().max(0.0) as u64 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(work: &str, deadline_hours: i64, cloud: Cloud) -> Option<OutOfReach> {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let deadline = now + jiff::SignedDuration::from_hours(deadline_hours);
        let mut spec: Spec = serde_json::from_str(r#"{"name": "x", "command": {"args": ["true"]}}"#).unwrap();
        (spec.limits.work, spec.limits.deadline) = (Some(work.parse().unwrap()), Some(deadline));
        spec.machine.cloud = cloud;
        let facts = AutoFacts { spec: &spec, history: &[], running: None, more_time: Span::ZERO, spot: None, on_demand: None, speed: 1.0, now };
        OutOfReach::judge(&spec, &auto::standing(&facts), 1.0, Some("9.84".parse().unwrap()), now)
    }

    #[test]
    fn a_deadline_out_of_reach_says_by_how_much_and_what_is_enough() {
        let found = judged("20h", 4, Cloud::Aws).unwrap();
        assert!(found.what().starts_with("the deadline cannot be met, even on demand: 20h of work and a start of 12m take 16h "), "{}", found.what());
        assert!(found.means().starts_with("it ends the job unfinished, with about 3h "), "{}", found.means());
        assert!(found.means().ends_with("; until then this machine costs at most $9.84"), "{}", found.means());
        let enough = found.enough_hours as i64;
        assert_eq!(judged("20h", enough, Cloud::Aws), None, "what it says is enough is enough");
        assert!(judged("20h", enough - 1, Cloud::Aws).is_some(), "and not much more than that");
    }

    #[test]
    fn a_deadline_in_reach_is_no_finding_and_a_workstation_starts_at_once() {
        assert_eq!(judged("3h", 4, Cloud::Aws), None);
        let here = judged("4h", 4, Cloud::Local).unwrap();
        assert!(!here.what().contains("on demand") && !here.what().contains("start"), "{}", here.what());
    }
}
