//! The expected cost and end of a job with `market = "auto"`. The shipped rule plays it many times
//! against courses of capacity, drawn from what is known about its pool.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::local_time;
use crate::controller::{Outlook, Planned};
use crate::job::Spec;
use crate::market::{Market, Span};
use crate::policy::market::capacity_periods::ZoneSpells;
use crate::policy::market::pool_history::Pool;
use crate::policy::market::replay::{
    Drawn, Goes, Play, PlayLimits, Ran, Spread, Unfinished, planned, run,
};

/// Enough for a 95th percentile: one in twenty is ten courses.
pub const RUNS: u32 = 200;

/// For a long job; one in twenty is then one course.
const RUNS_MIN: u32 = 20;

/// Hours of work that are played in total, which takes seconds. The courses of a longer job differ
/// less.
const HOURS_PLAYED: f64 = 100_000.0;

pub fn courses(work: Duration) -> u32 {
    let hours = work.as_secs_f64() / 3600.0;
    ((HOURS_PLAYED / hours) as u32).clamp(RUNS_MIN, RUNS)
}

/// Whether it takes seconds, so that the user is told first.
pub fn is_long(work: Duration) -> bool {
    courses(work) < RUNS
}

/// Between two looks at the market, as in the controller.
pub const TICK: Duration = Duration::from_secs(5 * 60);

/// The result in `lamp plan`; the field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Forecast {
    /// The decision now, and its reason.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub decided: &'static str,
    pub because: String,
    pub work_hours: f64,
    pub start_seconds: f64,
    /// Over the courses that finished; `null` when there are none.
    pub usd: Option<Spread>,
    pub finish: Option<Timestamp>,
    pub finish_p95: Option<Timestamp>,
    pub on_demand_share: f64,
    /// The cost without the deadline, and the cost of the deadline. `null` without a deadline, or
    /// when one of the two does not always finish.
    pub usd_without_deadline: Option<f64>,
    pub deadline_usd: Option<f64>,
    pub late_share: f64,
    /// The shares of courses that the longest run time and the budget ended.
    pub over_run_time_share: f64,
    pub over_budget_share: f64,
    /// The share of courses that did not finish for any reason, and their mean cost.
    pub unfinished_share: f64,
    pub usd_unfinished: Option<f64>,
    pub courses: u32,
    pub zone: String,
    pub instance_type: String,
    /// The other spot pools on offer: the decision counts on them, the courses do not.
    pub other_pools: usize,
    #[serde(skip)]
    given_up_after: Span,
}

/// Plays the job against courses drawn from a pool; the same courses at each call.
pub fn drawn(play: &Play, goes: Goes, spells: &ZoneSpells, courses: u32) -> Vec<Ran> {
    let watch = planned(play, spells);
    let course = |seed: u32| {
        let mut course = Drawn::new(seed.into(), spells, play.tick);
        run(play, goes, &watch, || course.step())
    };
    (1..=courses).map(course).collect()
}

impl Forecast {
    /// `None`: the job does not say how much work it has.
    pub fn of(planned: &Planned, spec: &Spec, now: Timestamp) -> Option<Forecast> {
        let outlook = planned.outlook.as_ref()?;
        let (standing, pool) = (&outlook.standing, &outlook.pool);
        let play = play(outlook, spec)?;
        let courses = courses(play.work);
        let ran = drawn(&play, Goes::Auto, &pool.spells, courses);
        let finished = || ran.iter().filter(|ran| ran.unfinished.is_none());
        let usd = Spread::of(finished(), |ran| ran.usd);
        let usd_unfinished =
            Spread::of(ran.iter().filter(|ran| ran.unfinished.is_some()), |ran| ran.usd)
                .map(|usd| usd.mean);
        // Both times the shipped rule: only the deadline differs.
        let free = play
            .deadline
            .map(|_| drawn(&Play { deadline: None, ..play }, Goes::Auto, &pool.spells, courses));
        let free = free.filter(|free| {
            usd_unfinished.is_none() && free.iter().all(|ran| ran.unfinished.is_none())
        });
        let free = free.and_then(|free| Spread::of(&free, |ran| ran.usd)).map(|usd| usd.mean);
        let share = |is: fn(&Ran) -> bool| {
            ran.iter().filter(|ran| is(ran)).count() as f64 / f64::from(courses)
        };
        let at = |hours: f64| now.saturating_add(time(hours)).unwrap_or(Timestamp::MAX);
        let finish = Spread::of(finished(), |ran| ran.finish_hours);
        Some(Forecast {
            decided: outlook.verdict.step.word(),
            because: outlook.verdict.reason.text.clone(),
            work_hours: standing.work_left?,
            start_seconds: standing.start * 3600.0,
            usd,
            finish: finish.map(|finish| at(finish.p50)),
            finish_p95: finish.map(|finish| at(finish.p95)),
            on_demand_share: share(|ran| ran.on_demand_hours > 0.0),
            usd_without_deadline: free,
            // Both are means over the same courses; a negative difference is noise.
            deadline_usd: free.zip(usd).map(|(free, usd)| (usd.mean - free).max(0.0)),
            late_share: share(|ran| ran.unfinished == Some(Unfinished::Deadline)),
            over_run_time_share: share(|ran| ran.unfinished == Some(Unfinished::RunTime)),
            over_budget_share: share(|ran| ran.unfinished == Some(Unfinished::Budget)),
            unfinished_share: share(|ran| ran.unfinished.is_some()),
            usd_unfinished,
            courses,
            zone: pool.zone.clone(),
            instance_type: pool.instance_type.clone(),
            other_pools: other_pools(planned, pool),
            given_up_after: Span::from_secs(play.given_up_after().as_secs()),
        })
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .cost_and_end()
            .into_iter()
            .chain(self.unfinished())
            .chain(self.deadline())
            .collect();
        let start = Span::from_secs(self.start_seconds.round() as u64);
        let beside = match self.other_pools {
            0 => "",
            1 => "; the reason below also counts on the other spot pool on offer, and so on less",
            _ => "; the reason below also counts on the other spot pools on offer, and so on less",
        };
        lines.push(format!(
            "that is {} courses of capacity drawn from what is known of {} in {} alone, {:.1} h of work, and {start} for each start{beside}",
            self.courses, self.instance_type, self.zone, self.work_hours
        ));
        lines
    }

    fn cost_and_end(&self) -> Option<String> {
        let (usd, finish, finish_p95) = (self.usd?, self.finish?, self.finish_p95?);
        let finished = (f64::from(self.courses) * (1.0 - self.unfinished_share)).round();
        let whole = if self.usd_unfinished.is_none() {
            "the whole job, all its machines together, is".to_owned()
        } else {
            format!(
                "in the {finished} of {} courses that finish it, the whole job, all its machines together, is",
                self.courses
            )
        };
        Some(format!(
            "{whole} expected to cost ${:.2} (19 of 20 times at most ${:.2}) and to end at {} (19 of 20 times by {})",
            usd.mean,
            usd.p95,
            local_time(finish),
            local_time(finish_p95)
        ))
    }

    fn unfinished(&self) -> Option<String> {
        let usd = self.usd_unfinished?;
        let (unfinished, of) =
            ((self.unfinished_share * f64::from(self.courses)).round(), self.courses);
        let times = if self.usd.is_some() {
            format!("in {unfinished} of {of} courses")
        } else {
            "in all courses".to_owned()
        };
        let limits = [
            (self.late_share, "the deadline"),
            (self.over_run_time_share, "`limits.max_runtime`"),
            (self.over_budget_share, "`limits.budget`"),
        ];
        let ended: Vec<(f64, &str)> =
            limits.into_iter().filter(|(share, _)| *share > 0.0).collect();
        let becomes = match ended.as_slice() {
            [] => format!(
                "it is not finished after {}, and is counted as given up",
                self.given_up_after
            ),
            [(_, limit)] => format!("{limit} ends it unfinished"),
            several => {
                let each: Vec<String> = several
                    .iter()
                    .map(|(share, limit)| {
                        format!("{limit} in {:.0}", share * f64::from(self.courses))
                    })
                    .collect();
                format!("it ends unfinished ({})", each.join(", "))
            }
        };
        Some(format!("{times} {becomes}, after ${usd:.2} on the mean"))
    }

    fn deadline(&self) -> Option<String> {
        let on_demand = format!(
            "in {:.0} of 100 cases it needs a machine on demand",
            100.0 * self.on_demand_share
        );
        match self.usd_without_deadline.zip(self.deadline_usd) {
            Some((free, costs)) if costs >= LEAST_USD => Some(format!(
                "{on_demand}; the deadline costs ${costs:.2}: without it ${free:.2} would be expected"
            )),
            Some(_) => Some(format!("{on_demand}; the deadline costs nothing")),
            None => (self.on_demand_share > 0.0).then_some(on_demand),
        }
    }
}

/// Smaller amounts are shown as nothing.
const LEAST_USD: f64 = 0.005;

fn time(hours: f64) -> Duration {
    Duration::from_secs((hours * 3600.0).round() as u64)
}

/// `None`: the job does not say how much work it has.
fn play(outlook: &Outlook, spec: &Spec) -> Option<Play> {
    let standing = &outlook.standing;
    let play = Play {
        work: time(standing.work_left?),
        deadline: standing.time_left.map(time),
        start: time(standing.start),
        saves_every: time(standing.unsaved),
        begins_anew: standing.begins_anew,
        tick: TICK,
        spot: outlook.spot,
        on_demand: outlook.on_demand,
        limits: PlayLimits { spot_most: Some(outlook.spot_most), ..PlayLimits::of(spec) },
    };
    Some(play.bounded())
}

fn other_pools(planned: &Planned, pool: &Pool) -> usize {
    let offers = std::iter::once(&planned.plan.offer)
        .chain(&planned.fallbacks)
        .filter(|offer| offer.market == Market::Spot);
    let pools: BTreeSet<(&str, &str)> =
        offers.map(|offer| (offer.zone.as_str(), offer.instance_type.as_str())).collect();
    pools
        .into_iter()
        .filter(|other| *other != (pool.zone.as_str(), pool.instance_type.as_str()))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_a_job_the_fewer_of_its_courses_are_played() {
        let of = |days: u64| courses(Duration::from_secs(days * 86_400));
        assert_eq!([of(1), of(20), of(42), of(365)], [RUNS, RUNS, 99, RUNS_MIN]);
        assert!(
            !is_long(Duration::from_secs(7 * 86_400)) && is_long(Duration::from_secs(60 * 86_400))
        );
    }
}
