//! Finds a limit that no machine can keep with all work done, before anything is bought: by how
//! much, and what would be enough.
//!
//! It assumes a machine that starts now and is never interrupted. Not here: the market rule, which
//! then takes the fastest way to the end (`policy::market::deadline_choice`).

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::controller::Planned;
use crate::job::{Finding, ResolvedSpec, Spec};
use crate::market::{CloudKind, Offer, Span, Usd, UsdPerHour, elapsed};
use crate::policy::market::auto_market::{self, AutoFacts, WorkState};
use crate::policy::purchase::hard_end::STOP_GRACE;

/// How far a limit is from the end of the work; the field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct OutOfReach {
    /// The limit that ends the job first.
    pub limit: Limit,
    /// 0: the job gives no work, and the start alone takes longer.
    pub work_hours: f64,
    pub start_hours: f64,
    pub short_hours: f64,
    /// The work that a machine can do until then.
    pub done_hours: f64,
    /// A time limit that would be enough, from now.
    pub enough_hours: f64,
    /// A budget that would be enough, with the bid, disk and address. `null` for a time limit.
    pub enough_usd: Option<Usd>,
    /// The most that the planned machine costs until then.
    pub most_usd: Option<Usd>,
    /// The flags that would raise every limit that is too tight.
    #[serde(skip)]
    flags: Vec<String>,
    #[serde(skip)]
    on_demand: bool,
    #[serde(skip)]
    bids: bool,
    #[serde(skip)]
    is_taken: bool,
    #[serde(skip)]
    saves: bool,
    /// A deadline is too tight, and the job says how much work it has.
    #[serde(skip)]
    misses_deadline: bool,
}

/// The limit that ends a job before its work is done; the names are an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Deadline,
    MaxRuntime,
    Budget,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Limit::Deadline => "deadline",
            Limit::MaxRuntime => "max_runtime",
            Limit::Budget => "budget",
        }
    }
}

/// The planned machine: the price of an hour, its speed, and its highest cost.
struct MachineCost {
    hour: UsdPerHour,
    speed: f64,
    most_usd: Option<Usd>,
    bids: bool,
    /// It can be interrupted, which costs a start and the unsaved work.
    is_taken: bool,
}

impl OutOfReach {
    /// `None`: all limits are enough, as far as the job gives its work.
    pub fn of(planned: &Planned, spec: &ResolvedSpec, now: Timestamp) -> Option<OutOfReach> {
        let spec = &spec.spec;
        let offer: &Offer = &planned.plan.offer;
        let speed = spec.machine.speed.of(offer);
        let standing = planned
            .outlook
            .as_ref()
            .map_or_else(|| standing_alone(spec, speed, now), |outlook| outlook.standing);
        let machine = MachineCost {
            hour: offer.hourly_at_most(planned.plan.bid),
            speed,
            most_usd: planned.plan.most_usd,
            bids: planned.plan.bid.is_some(),
            is_taken: planned.plan.bid.is_some(),
        };
        OutOfReach::judge(spec, &standing, &machine, now)
    }

    /// The same for any machine of this speed, between these hourly prices.
    pub fn by_the_hour(
        spec: &Spec,
        standing: &WorkState,
        hours: ([UsdPerHour; 2], bool),
        speed: f64,
        now: Timestamp,
    ) -> Option<OutOfReach> {
        let ([hour, dearest], is_taken) = hours;
        let limits = &spec.limits;
        let times = [
            limits.deadline.map(|deadline| elapsed(now, deadline)),
            limits.max_runtime.map(Span::duration),
        ];
        let of_time =
            times.into_iter().flatten().min().map(|time| dearest.cost_of(time + STOP_GRACE));
        let most_usd = of_time.into_iter().chain(limits.budget).min();
        OutOfReach::judge(
            spec,
            standing,
            &MachineCost { hour, speed, most_usd, bids: false, is_taken },
            now,
        )
    }

    /// The same for a job file alone: without prices, so without the budget, on the fastest named
    /// machine.
    pub fn of_its_words(spec: &Spec, now: Timestamp) -> Option<OutOfReach> {
        let speed =
            spec.machine.speed.iter().map(|(_, speed)| speed).reduce(f64::max).unwrap_or(1.0);
        OutOfReach::by_the_hour(
            spec,
            &standing_alone(spec, speed, now),
            ([UsdPerHour::ZERO; 2], false),
            speed,
            now,
        )
    }

    fn judge(
        spec: &Spec,
        standing: &WorkState,
        machine: &MachineCost,
        now: Timestamp,
    ) -> Option<OutOfReach> {
        let limits = &spec.limits;
        let work = limits.work.map_or(0.0, |work| work.secs_f64() / 3600.0 / machine.speed);
        let is_local = spec.machine.cloud == CloudKind::Local;
        let start = if is_local { 0.0 } else { standing.start };
        let way_out = auto_market::way_out(spec).as_secs_f64() / 3600.0;
        let until = limits.deadline.map(|deadline| elapsed(now, deadline).as_secs_f64() / 3600.0);
        // Each limit, the time that the machine may work, and the rest of the limit.
        let of_time = |limit: Limit, hours: f64| (limit, hours - way_out, way_out);
        // The time left until a deadline is never negative, but the message says by how much it is
        // short.
        let deadline = match standing.time_left.zip(until) {
            Some((left, until)) if left > 0.0 || limits.work.is_some() || !is_local => {
                Some((Limit::Deadline, left, until - left))
            }
            _ => until.map(|until| of_time(Limit::Deadline, until)),
        };
        let run_time =
            limits.max_runtime.map(|time| of_time(Limit::MaxRuntime, time.secs_f64() / 3600.0));
        let grace = if is_local { Duration::ZERO } else { STOP_GRACE };
        let paid = limits.budget.and_then(|budget| machine.hour.time_for(budget));
        let budget = paid
            .map(|paid| of_time(Limit::Budget, paid.saturating_sub(grace).as_secs_f64() / 3600.0));
        let short = |(_, left, _): &(Limit, f64, f64)| work + start - left;
        // A local job starts at once, and may end well before its run time. But a deadline or
        // budget that the end uses up leaves no time to work.
        let is_told = |(limit, ..): &(Limit, f64, f64)| {
            limits.work.is_some() || !is_local || *limit != Limit::MaxRuntime
        };
        let mut all: Vec<_> = [deadline, run_time, budget]
            .into_iter()
            .flatten()
            .filter(|limit| is_told(limit) && short(limit) > 0.0)
            .collect();
        all.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
        let first = all.first()?;
        let needed = Duration::from_secs_f64((work + start + way_out).clamp(0.0, 1e7) * 3600.0);
        let enough_usd = machine.hour.cost_of(needed + grace).in_cents();
        let enough_hours = |(_, _, beside): &(Limit, f64, f64)| (work + start + beside).ceil();
        let flag = |one: &(Limit, f64, f64)| match one.0 {
            Limit::Deadline => format!("--deadline {:.0}h", enough_hours(one)),
            Limit::MaxRuntime => format!("--max-runtime {:.0}h", enough_hours(one)),
            Limit::Budget => format!("--budget {:.2}", enough_usd.dollars()),
        };
        Some(OutOfReach {
            limit: first.0,
            work_hours: work,
            start_hours: start,
            short_hours: short(first),
            done_hours: (first.1 - start).max(0.0),
            enough_hours: enough_hours(first),
            enough_usd: (first.0 == Limit::Budget).then_some(enough_usd),
            most_usd: machine.most_usd,
            flags: all.iter().map(flag).collect(),
            on_demand: !is_local,
            bids: machine.bids && all.iter().any(|(limit, ..)| *limit == Limit::Budget),
            is_taken: machine.is_taken && all.iter().any(|(limit, ..)| *limit == Limit::Budget),
            saves: spec.checkpoint.is_some(),
            misses_deadline: work > 0.0 && all.iter().any(|(limit, ..)| *limit == Limit::Deadline),
        })
    }

    /// Whether a deadline is too tight, even if another limit ends the job first.
    pub fn is_late(&self) -> bool {
        self.misses_deadline
    }

    /// The job gives no work, and the length of a start is mostly a guess.
    fn is_start_alone(&self) -> bool {
        self.work_hours == 0.0
    }

    fn what(&self) -> String {
        let start = if self.start_hours > 0.0 {
            format!(" and a start of {}", span(self.start_hours))
        } else {
            String::new()
        };
        let work = format!("{} of work{start} take", span(self.work_hours));
        let longer = at_least(self.short_hours);
        if self.is_start_alone() {
            let limit = self.limit.name();
            if self.start_hours == 0.0 {
                return format!(
                    "`limits.{limit}` may be too short: the way out, with the last save and the outputs, takes {longer} longer"
                );
            }
            return format!(
                "`limits.{limit}` may be too short: a start, reckoned at {}, and the way out take {longer} longer",
                span(self.start_hours)
            );
        }
        match self.limit {
            Limit::Deadline => {
                let even = if self.on_demand { ", even on demand" } else { "" };
                format!("the deadline cannot be met{even}: {work} {longer} longer")
            }
            Limit::MaxRuntime => {
                format!("`limits.max_runtime` is too short: {work} {longer} longer")
            }
            Limit::Budget => format!(
                "`limits.budget` is too small: {work} {longer} longer than it is sure to buy of this machine"
            ),
        }
    }

    fn means(&self) -> String {
        let kept = if self.saves { "" } else { ", and without `[checkpoint]` it saves nothing" };
        let most = match self.most_usd {
            Some(most) if most == Usd::ZERO => String::new(),
            Some(most) => format!("; until then this machine costs at most {most}"),
            None => "; what that costs, nothing bounds".to_owned(),
        };
        let but = if self.limit == Limit::MaxRuntime && self.on_demand {
            " (unless it is interrupted, and begins its run time anew)"
        } else {
            ""
        };
        if self.is_start_alone() {
            return format!("it may end the job before its work has begun{but}{most}");
        }
        format!(
            "it ends the job unfinished{but}, with about {} of {} done{kept}{most}",
            span(self.done_hours),
            span(self.work_hours)
        )
    }

    /// The words to type for a limit that is enough.
    pub fn cure(&self) -> String {
        let from_now = if self.limit == Limit::Deadline { " from now on" } else { "" };
        let lower = if self.bids {
            ", or a lower `--max-price`: a budget is divided by the bid"
        } else {
            ""
        };
        let unless = if self.is_taken { " without interruptions" } else { "" };
        if self.is_start_alone() {
            return format!(
                "`{}` leaves it time for some work; say how much there is with `--work`",
                self.flags.join(" ")
            );
        }
        let machine =
            if self.limit == Limit::Budget { "a cheaper machine" } else { "a faster machine" };
        format!(
            "`{}` is enough{from_now}{unless}; so would be {machine}, or less work, with its own `--work`{lower}",
            self.flags.join(" ")
        )
    }

    pub fn finding(&self) -> Finding {
        Finding::warning("limits.work", self.sentence()).hint(self.cure())
    }

    /// The limit that is short, and what that means for the job.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.what(), self.means())
    }
}

/// In whole minutes, because it rests on an estimated start.
fn span(hours: f64) -> Span {
    Span::from_duration(Duration::from_secs((hours * 60.0).round().max(0.0) as u64 * 60))
}

/// Rounded up, so that it is never too little or zero.
fn at_least(hours: f64) -> Span {
    let secs = (hours * 3600.0).ceil().max(1.0);
    Span::from_secs(if secs < 60.0 { secs } else { (secs / 60.0).ceil() * 60.0 } as u64)
}

/// The standing of a new job whose market is unknown.
fn standing_alone(spec: &Spec, speed: f64, now: Timestamp) -> WorkState {
    auto_market::standing(&AutoFacts {
        spec,
        history: &[],
        running: None,
        more_time: Span::ZERO,
        spot: None,
        on_demand: None,
        speed,
        now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(work: &str, deadline_hours: i64, cloud: CloudKind) -> Option<OutOfReach> {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let deadline = now + jiff::SignedDuration::from_hours(deadline_hours);
        let mut spec = Spec::bare();
        (spec.limits.work, spec.limits.deadline) = (Some(work.parse().unwrap()), Some(deadline));
        spec.machine.cloud = cloud;
        let facts = AutoFacts {
            spec: &spec,
            history: &[],
            running: None,
            more_time: Span::ZERO,
            spot: None,
            on_demand: None,
            speed: 1.0,
            now,
        };
        OutOfReach::judge(&spec, &auto_market::standing(&facts), &machine("1"), now)
    }

    fn machine(dollars: &str) -> MachineCost {
        MachineCost {
            hour: UsdPerHour::new(dollars.parse().unwrap()),
            speed: 1.0,
            most_usd: Some("9.84".parse().unwrap()),
            bids: false,
            is_taken: false,
        }
    }

    /// 20 h of work with a limit of time and money.
    fn limited(
        max_runtime: Option<&str>,
        budget: Option<&str>,
        hour: &str,
        cloud: CloudKind,
    ) -> Option<OutOfReach> {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut spec = Spec::bare();
        spec.limits.work = Some("20h".parse().unwrap());
        spec.limits.max_runtime = max_runtime.map(|time| time.parse().unwrap());
        spec.limits.budget = budget.map(|usd| usd.parse().unwrap());
        spec.machine.cloud = cloud;
        let facts = AutoFacts {
            spec: &spec,
            history: &[],
            running: None,
            more_time: Span::ZERO,
            spot: None,
            on_demand: None,
            speed: 1.0,
            now,
        };
        OutOfReach::judge(&spec, &auto_market::standing(&facts), &machine(hour), now)
    }

    #[test]
    fn too_short_run_time_and_too_small_budget_say_what_is_enough() {
        let found = limited(Some("4h"), None, "1", CloudKind::Aws).unwrap();
        assert!(
            found.what().starts_with(
                "`limits.max_runtime` is too short: 20h of work and a start of 12m take 16h 1"
            ),
            "{}",
            found.what()
        );
        assert!(
            found.cure().starts_with("`--max-runtime 21h` is enough; so would be a faster machine"),
            "{}",
            found.cure()
        );
        assert_eq!(limited(Some("21h"), None, "1", CloudKind::Aws), None);
        let found = limited(None, Some("5"), "1", CloudKind::Aws).unwrap();
        assert!(
            found.what().starts_with(
                "`limits.budget` is too small: 20h of work and a start of 12m take 15h "
            ),
            "{}",
            found.what()
        );
        let enough = found.enough_usd.unwrap();
        assert_eq!(
            limited(None, Some(&enough.dollars().to_string()), "1", CloudKind::Aws),
            None,
            "what it says is enough is enough"
        );
        assert!(
            limited(None, Some(&(enough.dollars() - 0.1).to_string()), "1", CloudKind::Aws)
                .is_some(),
            "and not much more than that"
        );
        // The limit that ends it first is named. A free machine is never stopped by a budget.
        assert_eq!(
            limited(Some("4h"), Some("2"), "1", CloudKind::Aws).unwrap().limit,
            Limit::Budget
        );
        let both = limited(Some("4h"), Some("9"), "1", CloudKind::Aws).unwrap();
        assert_eq!((both.limit, both.is_late()), (Limit::MaxRuntime, false));
        assert!(
            both.cure().starts_with("`--max-runtime 21h --budget 20."),
            "with the first alone the second would end it: {}",
            both.cure()
        );
        assert_eq!(limited(None, Some("1"), "0", CloudKind::Local), None);
        assert_eq!(limited(None, None, "1", CloudKind::Aws), None);
    }

    #[test]
    fn limit_below_the_start_time_is_reported_without_known_work() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut spec = Spec::bare();
        let judge = |spec: &Spec| {
            let facts = AutoFacts {
                spec,
                history: &[],
                running: None,
                more_time: Span::ZERO,
                spot: None,
                on_demand: None,
                speed: 1.0,
                now,
            };
            OutOfReach::judge(spec, &auto_market::standing(&facts), &machine("1"), now)
        };
        spec.machine.cloud = CloudKind::Aws;
        (spec.limits.work, spec.limits.max_runtime) = (None, Some("2m".parse().unwrap()));
        let found = judge(&spec).unwrap();
        assert!(
            found.what().starts_with("`limits.max_runtime` may be too short: a start, reckoned at 12m, and the way out take 1"),
            "{}",
            found.what()
        );
        assert!(
            found.means().starts_with("it may end the job before its work has begun (unless"),
            "{}",
            found.means()
        );
        assert!(
            found.cure().starts_with("`--max-runtime 1h` leaves it time for some work"),
            "{}",
            found.cure()
        );
        spec.limits.max_runtime = Some("1h".parse().unwrap());
        assert_eq!(judge(&spec), None);
        spec.machine.cloud = CloudKind::Local;
        spec.limits.max_runtime = Some("10s".parse().unwrap());
        assert_eq!(judge(&spec), None, "here it starts at once, and the work may be short");
        (spec.limits.max_runtime, spec.limits.deadline) =
            (None, Some(now + jiff::SignedDuration::from_secs(20)));
        let found = judge(&spec).unwrap();
        assert!(
            found
                .what()
                .starts_with("`limits.deadline` may be too short: the way out, with the last save"),
            "{}",
            found.what()
        );
        assert!(!found.is_late(), "it is told, and not refused");
        spec.limits.deadline = Some(now + jiff::SignedDuration::from_hours(1));
        assert_eq!(judge(&spec), None);
    }

    #[test]
    fn deadline_out_of_reach_is_refused_even_behind_another_limit() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut spec = Spec::bare();
        spec.machine.cloud = CloudKind::Aws;
        (spec.limits.work, spec.limits.deadline) =
            (Some("10h".parse().unwrap()), Some(now + jiff::SignedDuration::from_hours(8)));
        for (max_runtime, limit) in
            [(None, Limit::Deadline), (Some("1h".parse().unwrap()), Limit::MaxRuntime)]
        {
            spec.limits.max_runtime = max_runtime;
            let facts = AutoFacts {
                spec: &spec,
                history: &[],
                running: None,
                more_time: Span::ZERO,
                spot: None,
                on_demand: None,
                speed: 1.0,
                now,
            };
            let found =
                OutOfReach::judge(&spec, &auto_market::standing(&facts), &machine("1"), now)
                    .unwrap();
            assert_eq!((found.limit, found.is_late()), (limit, true));
        }
    }

    #[test]
    fn what_is_missing_by_seconds_is_told_in_seconds_and_rounded_up() {
        let said = |secs: f64| at_least(secs / 3600.0).to_string();
        assert_eq!(
            [said(0.2), said(40.1), said(61.0), said(3600.0 * 16.0)],
            ["1s", "41s", "2m", "16h"]
        );
    }

    #[test]
    fn deadline_out_of_reach_says_by_how_much_and_what_is_enough() {
        let found = judged("20h", 4, CloudKind::Aws).unwrap();
        assert!(found.what().starts_with("the deadline cannot be met, even on demand: 20h of work and a start of 12m take 16h "), "{}", found.what());
        assert!(
            found.means().starts_with("it ends the job unfinished, with about 3h "),
            "{}",
            found.means()
        );
        assert!(
            found.means().ends_with("; until then this machine costs at most $9.84"),
            "{}",
            found.means()
        );
        let enough = found.enough_hours as i64;
        assert_eq!(judged("20h", enough, CloudKind::Aws), None, "what it says is enough is enough");
        assert!(judged("20h", enough - 1, CloudKind::Aws).is_some(), "and not much more than that");
    }

    #[test]
    fn reachable_deadline_is_no_finding_and_local_start_is_instant() {
        assert_eq!(judged("3h", 4, CloudKind::Aws), None);
        let here = judged("4h", 4, CloudKind::Local).unwrap();
        assert!(
            !here.what().contains("on demand") && !here.what().contains("start"),
            "{}",
            here.what()
        );
    }
}
