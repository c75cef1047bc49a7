//! Simulates one job against one course of spot capacity: its cost, end and interruptions.
//!
//! ```text
//!   capacity, tick by tick (recorded, or drawn from a zone's law) ─┐
//!   job, prices ───────────────────────────────────────────────────┼─> a market's run ─> Ran
//! ```
//! It uses the real rule with the initial knowledge of the zone. The rule learns nothing meanwhile,
//! so that one table serves all runs of a job. A deadline, a machine's run time and a budget end a
//! job as in reality: unfinished, at its cost so far. Randomness comes only from the given seed.

use std::time::Duration;

use super::auto_market;
use super::capacity_periods::{ZoneSpells, age_class};
use super::deadline_choice::{Capacity, MarketFacts, MarketStep, MarketWatch, Running};
use super::remaining_cost::Runs;
use super::zones::usd_per_hour_of_work;
use crate::job::Spec;
use crate::market::{Usd, UsdPerHour};
use crate::policy::purchase::hard_end::{LIFE_MIN, STOP_GRACE};
use crate::policy::split_mix::SplitMix;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Play {
    pub work: Duration,
    /// `None`: no deadline.
    pub deadline: Option<Duration>,
    /// Time from the launch call to work.
    pub start: Duration,
    /// Work that an interruption may lose: the time since the last checkpoint.
    pub saves_every: Duration,
    /// It saves nothing, and `saves_every` is all of its work.
    pub begins_anew: bool,
    pub tick: Duration,
    pub spot: UsdPerHour,
    pub on_demand: UsdPerHour,
    pub limits: PlayLimits,
}

/// The limits of a job beside its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayLimits {
    /// Longest work time of one machine.
    pub max_runtime: Option<Duration>,
    /// For all machines together.
    pub budget: Option<Usd>,
    /// Time that a machine needs, within its budget, to save and end after its last work.
    pub way_out: Duration,
    /// Hourly spot price for dividing the budget: the bid. `None`: its price.
    pub spot_most: Option<UsdPerHour>,
}

impl PlayLimits {
    pub fn of(spec: &Spec) -> PlayLimits {
        let (limits, way_out) = (&spec.limits, auto_market::way_out(spec));
        let max_runtime = limits.max_runtime.map(|time| time.duration().saturating_sub(way_out));
        PlayLimits { max_runtime, budget: limits.budget, way_out, spot_most: None }
    }
}

impl Play {
    /// A deadline beyond the simulated time is lowered to it.
    #[must_use]
    pub fn bounded(self) -> Play {
        let most = self.given_up_after();
        Play { deadline: self.deadline.map(|deadline| deadline.min(most)), ..self }
    }

    /// When a job without deadline and without capacity is given up.
    pub fn given_up_after(&self) -> Duration {
        time(PLAYED_MAX * hours(self.work) + PLAYED_MORE_HOURS)
    }

    /// How long a machine started now may run, in hours, and by which limit. An error if the budget
    /// is too small for a start.
    fn life(&self, on: Runs, spent: f64) -> Result<(f64, Unfinished), Unfinished> {
        let run_time = (self.limits.max_runtime.map_or(f64::INFINITY, hours), Unfinished::RunTime);
        let Some(budget) = self.limits.budget else { return Ok(run_time) };
        let price = if on == Runs::Spot {
            self.limits.spot_most.unwrap_or(self.spot).max(self.spot)
        } else {
            self.on_demand
        };
        let buys = (budget.dollars() - spent) / price.per_hour().dollars()
            - hours(STOP_GRACE + self.limits.way_out);
        if buys < hours(LIFE_MIN) {
            return Err(Unfinished::Budget);
        }
        Ok(if buys < run_time.0 { (buys, Unfinished::Budget) } else { run_time })
    }

    /// Whether an hour of work costs more on spot than on demand, by the rule for jobs without
    /// deadline.
    fn is_scarce(&self, spells: &ZoneSpells, work_left: f64) -> bool {
        let on_spot = usd_per_hour_of_work(
            spells,
            self.spot,
            hours(self.start),
            hours(self.saves_every),
            work_left,
        );
        on_spot > self.on_demand.per_hour().dollars()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    Spot,
    OnDemand,
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfinished {
    Deadline,
    RunTime,
    Budget,
    /// It would run forever: it has no limit.
    GivenUp,
    /// Another end, as in the full simulation only: too many interruptions, or a machine on which
    /// it hung.
    Otherwise,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ran {
    pub usd: f64,
    /// When it finished or ended.
    pub finish_hours: f64,
    /// Why it ended unfinished; `None`: it finished.
    pub unfinished: Option<Unfinished>,
    pub interruptions: u32,
    /// Unsaved work at the interruptions, repeated or not.
    pub lost_hours: f64,
    /// Hours with a paid machine.
    pub machine_hours: f64,
    /// Hours paid on demand.
    pub on_demand_hours: f64,
    pub starts: u32,
}

/// A job without capacity is given up after this many times its work, and two days.
const PLAYED_MAX: f64 = 10.0;
const PLAYED_MORE_HOURS: f64 = 48.0;

/// Sums of ticks meet a deadline to the millisecond; with less, rounding would make a job late.
const TIE_HOURS: f64 = 1e-3 / 3600.0;

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

fn time(hours: f64) -> Duration {
    Duration::from_secs_f64(hours.max(0.0) * 3600.0)
}

/// The rule, planned for a job that begins now.
pub fn planned(play: &Play, spells: &ZoneSpells) -> MarketWatch {
    let Some(deadline) = play.deadline else { return MarketWatch::with_spells(*spells) };
    MarketWatch::planned(
        *spells,
        &MarketFacts {
            time_left: deadline,
            work_left: play.work,
            tick: play.tick,
            since_look: Duration::ZERO,
            spot: Capacity::Unknown,
            running: Running::Nothing,
            startup: play.start,
            unsaved: play.saves_every,
            begins_anew: play.begins_anew,
            spot_price: play.spot,
            on_demand_price: play.on_demand,
        },
    )
}

/// Runs the simulation. `watch`: planned once for this job ([`planned`]), for [`Goes::Auto`].
pub fn run(play: &Play, goes: Goes, watch: &MarketWatch, mut there: impl FnMut() -> bool) -> Ran {
    let mut watch = watch.clone();
    let (tick, work, start) = (hours(play.tick), hours(play.work), hours(play.start));
    let (spot_usd, full_usd) =
        (play.spot.per_hour().dollars(), play.on_demand.per_hour().dollars());
    let last = hours(play.deadline.unwrap_or_else(|| play.given_up_after()));
    // Computed again when the remaining work has changed.
    let mut scarce = None;
    let mut life = (f64::INFINITY, Unfinished::GivenUp);
    let (mut ran, mut on, mut owed, mut done, mut at_risk, mut now) =
        (Ran::default(), Runs::Nothing, 0.0, 0.0, 0.0, 0.0);
    while now < last {
        let there = there();
        if on == Runs::Spot && !there {
            ran.interruptions += 1;
            ran.lost_hours += at_risk;
            done -= at_risk;
            (on, scarce) = (Runs::Nothing, None);
        }
        let to = match (goes, play.deadline) {
            (Goes::OnDemand, _) => Runs::OnDemand,
            (Goes::Auto, None) if on != Runs::Nothing => on,
            (Goes::Auto, None)
                if *scarce.get_or_insert_with(|| play.is_scarce(watch.spells(), work - done)) =>
            {
                Runs::OnDemand
            }
            (Goes::Spot, _) | (Goes::Auto, None) => {
                if there {
                    Runs::Spot
                } else {
                    Runs::Nothing
                }
            }
            (Goes::Auto, Some(deadline)) => {
                let running = match on {
                    Runs::Nothing => Running::Nothing,
                    Runs::Spot => Running::Spot { startup_left: time(owed) },
                    Runs::OnDemand => Running::OnDemand { startup_left: time(owed) },
                };
                let verdict = watch.step(&MarketFacts {
                    time_left: time(hours(deadline) - now),
                    work_left: time(work - done),
                    tick: play.tick,
                    since_look: play.tick,
                    spot: if there { Capacity::There } else { Capacity::Gone },
                    running,
                    startup: play.start,
                    unsaved: play.saves_every,
                    begins_anew: play.begins_anew,
                    spot_price: play.spot,
                    on_demand_price: play.on_demand,
                });
                match verdict.step {
                    MarketStep::Spot => Runs::Spot,
                    MarketStep::OnDemand => Runs::OnDemand,
                    MarketStep::Wait => Runs::Nothing,
                }
            }
        };
        if to != on && to != Runs::Nothing {
            match play.life(to, ran.usd) {
                Ok(lives) => life = lives,
                Err(by) => return Ran { finish_hours: now, unfinished: Some(by), ..ran },
            }
            (owed, at_risk) = (start, 0.0);
            ran.starts += 1;
        }
        on = to;
        if on != Runs::Nothing {
            let slot = tick.min(last - now).min(life.0);
            let starting = owed.min(slot);
            let worked = (slot - starting).min(work - done);
            owed -= starting;
            done += worked;
            // Saved work is safe; the last checkpoint is somewhere in its interval.
            at_risk = if at_risk + worked > hours(play.saves_every) {
                (at_risk + worked) % hours(play.saves_every).max(1e-9)
            } else {
                at_risk + worked
            };
            let paid = starting + worked;
            ran.usd += paid * if on == Runs::Spot { spot_usd } else { full_usd };
            ran.machine_hours += paid;
            ran.on_demand_hours += if on == Runs::OnDemand { paid } else { 0.0 };
            if work - done <= TIE_HOURS {
                return Ran { finish_hours: now + paid, ..ran };
            }
            life.0 -= slot;
            if life.0 <= TIE_HOURS {
                return Ran { finish_hours: now + slot, unfinished: Some(life.1), ..ran };
            }
        }
        now += tick;
    }
    let by = if play.deadline.is_some() { Unfinished::Deadline } else { Unfinished::GivenUp };
    Ran { finish_hours: last, unfinished: Some(by), ..ran }
}

/// Capacity drawn from a zone's law: the same seed gives the same course.
#[derive(Clone, Debug)]
pub struct Drawn {
    numbers: SplitMix,
    spells: ZoneSpells,
    there: bool,
    age_hours: f64,
    tick_hours: f64,
}

/// Warm-up time, so that the course begins at a random moment of a spell.
const BEFORE_HOURS: f64 = 48.0;

impl Drawn {
    pub fn new(seed: u64, spells: &ZoneSpells, tick: Duration) -> Drawn {
        let mut drawn = Drawn {
            numbers: SplitMix(seed),
            spells: *spells,
            there: seed.is_multiple_of(2),
            age_hours: 0.0,
            tick_hours: hours(tick),
        };
        for _ in 0..(BEFORE_HOURS / drawn.tick_hours.max(1e-3)) as usize {
            drawn.step();
        }
        drawn
    }

    /// Whether capacity is there in the next tick.
    pub fn step(&mut self) -> bool {
        let seen = if self.there { self.spells.there } else { self.spells.gone };
        let rate = seen.rates()[age_class(self.age_hours)];
        if self.numbers.unit() < 1.0 - (-rate * self.tick_hours).exp() {
            (self.there, self.age_hours) = (!self.there, 0.0);
        } else {
            self.age_hours += self.tick_hours;
        }
        self.there
    }
}

/// Mean and quantiles of one number over many runs.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Spread {
    pub mean: f64,
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
}

impl Spread {
    /// `None`: there are no runs.
    pub fn of<'a>(
        ran: impl IntoIterator<Item = &'a Ran>,
        number: impl Fn(&Ran) -> f64,
    ) -> Option<Spread> {
        let mut all: Vec<f64> = ran.into_iter().map(number).collect();
        all.sort_by(f64::total_cmp);
        // Nearest rank: the smallest observed value that this share of the runs do not exceed.
        let at = |share: f64| {
            all.get(((all.len() as f64 * share - 1e-9).ceil() as usize).saturating_sub(1)).copied()
        };
        Some(Spread {
            mean: all.iter().sum::<f64>() / all.len() as f64,
            p5: at(0.05)?,
            p50: at(0.5)?,
            p95: at(0.95)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_least_run_cost_that_covers_its_share() {
        for many in 1..=100_u32 {
            let ran: Vec<Ran> =
                (1..=many).rev().map(|usd| Ran { usd: f64::from(usd), ..Ran::default() }).collect();
            let spread = Spread::of(&ran, |ran| ran.usd).unwrap();
            for (share, at) in [(5, spread.p5), (50, spread.p50), (95, spread.p95)] {
                // The cheapest that at least this share of all do not exceed.
                let least = (1..=many).find(|within| within * 100 >= many * share).unwrap();
                assert_eq!(at, f64::from(least), "{share} % of {many}");
            }
        }
    }
}
