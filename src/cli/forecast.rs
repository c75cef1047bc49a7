//! What a job with `market = "auto"` is expected to cost and when to end: played many times by the shipped rule, against courses
//! of capacity drawn from what is known of its pool.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::status::local_time;
use crate::controller::Outlook;
use crate::market::Span;
use crate::policy::market_run::{Drawn, Goes, Play, Ran, Spread, planned, run};
use crate::policy::spell::ZoneSpells;

/// Enough for one in twenty to be ten; more changes the mean by less than a price does in an hour.
pub const RUNS: u32 = 200;

/// Between two looks at the market, as in the controller.
pub const TICK: Duration = Duration::from_secs(5 * 60);

/// What `lamp plan` says of it; the field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// What was decided now, and why.
    pub decided: &'static str,
    pub because: String,
    pub work_hours: f64,
    pub start_seconds: f64,
    pub usd: Spread,
    pub finish: Timestamp,
    pub finish_p95: Timestamp,
    /// In how many of the courses a machine on demand was needed.
    pub on_demand_share: f64,
    /// What the same job would cost without its deadline, and what the deadline costs; `null` where there is none.
    pub usd_without_deadline: Option<f64>,
    pub deadline_usd: Option<f64>,
    /// In how many of the courses the deadline was missed.
    pub late_share: f64,
    pub courses: u32,
    /// The pool whose law they were drawn from.
    pub zone: String,
    pub instance_type: String,
}

/// Plays it against as many courses, drawn from the law of a pool; the same ones at each call.
pub fn drawn(play: &Play, goes: Goes, spells: &ZoneSpells, courses: u32) -> Vec<Ran> {
    let watch = planned(play, spells);
    let course = |seed: u32| {
        let mut course = Drawn::new(seed.into(), spells, play.tick);
        run(play, goes, &watch, || course.step())
    };
    (1..=courses).map(course).collect()
}

impl Forecast {
    /// `None`: the job does not say how much work it is.
    pub fn of(outlook: &Outlook, now: Timestamp) -> Option<Forecast> {
        let (standing, pool) = (&outlook.standing, &outlook.pool);
        let time = |hours: f64| Duration::from_secs((hours * 3600.0).round() as u64);
        let play = Play {
            work: time(standing.work_left?),
            deadline: standing.time_left.map(time),
            start: time(standing.start),
            saves_every: time(standing.unsaved),
            tick: TICK,
            spot: outlook.spot,
            on_demand: outlook.on_demand,
        }
        .bounded();
        let ran = drawn(&play, Goes::Auto, &pool.spells, RUNS);
        let free = play.deadline.map(|_| drawn(&Play { deadline: None, ..play }, Goes::Spot, &pool.spells, RUNS));
        let free = free.and_then(|free| Spread::of(&free, |ran| ran.usd)).map(|usd| usd.mean);
        let (usd, finish) = (Spread::of(&ran, |ran| ran.usd)?, Spread::of(&ran, |ran| ran.finish_hours)?);
        let share = |is: fn(&Ran) -> bool| ran.iter().filter(|ran| is(ran)).count() as f64 / f64::from(RUNS);
        let at = |hours: f64| now.saturating_add(time(hours)).unwrap_or(Timestamp::MAX);
        Some(Forecast {
            decided: outlook.verdict.step.word(),
            because: outlook.verdict.reason.text.clone(),
            work_hours: standing.work_left?,
            start_seconds: standing.start * 3600.0,
            usd,
            finish: at(finish.p50),
            finish_p95: at(finish.p95),
            on_demand_share: share(|ran| ran.on_demand_hours > 0.0),
            usd_without_deadline: free,
            // Both are means over the same courses; a rule that is the cheaper under a deadline is noise.
            deadline_usd: free.map(|free| (usd.mean - free).max(0.0)),
            late_share: share(|ran| ran.late),
            courses: RUNS,
            zone: pool.zone.clone(),
            instance_type: pool.instance_type.clone(),
        })
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let Forecast { usd, .. } = self;
        let mut lines = vec![format!(
            "expected to cost ${:.2} (19 of 20 times at most ${:.2}) and to end at {} (19 of 20 times by {})",
            usd.mean,
            usd.p95,
            local_time(self.finish),
            local_time(self.finish_p95)
        )];
        if let Some((free, costs)) = self.usd_without_deadline.zip(self.deadline_usd) {
            lines.push(format!(
                "in {:.0} of 100 cases it needs a machine on demand; the deadline costs ${costs:.2}: without it ${free:.2} would be expected",
                100.0 * self.on_demand_share
            ));
        }
        let start = Span::from_secs(self.start_seconds.round() as u64);
        lines.push(format!(
            "that is {} courses of capacity drawn from what is known of {} in {}, {:.1} h of work, and {start} for each start",
            self.courses, self.instance_type, self.zone, self.work_hours
        ));
        lines
    }
}
