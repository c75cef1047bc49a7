//! Spot, on-demand or wait, now? For a job with work left and a deadline.
//!
//! ```text
//!   looks ──> capacity_periods (learned) ──> remaining_cost (cost of each answer) ─┐
//!   time, work, start-up still to pay ──> answers that still meet the deadline ────┴─> cheapest
//! ```
//!
//! **Safety** is exact and independent of the model. An answer is safe if on-demand can still be
//! started at the next tick and finish in time, whatever happens to spot. With slack = time left -
//! work left:
//!
//! | Answer | Safe when |
//! |---|---|
//! | wait | slack - tick >= start-up |
//! | spot | it is there, and slack - start-up paid now - unsaved work >= start-up; or it ends now |
//! | on-demand | always: the last resort |
//!
//! A job without saves begins anew on each machine. Its spot machine is safe if all of its work
//! could be lost at the end and done again on demand. Such a job never leaves a running machine.
//!
//! A deadline that can be met at the beginning is therefore met for any course of capacity, if
//! ticks come in time. Rules that round to whole ticks (the nets of Uniform Progress) give away up
//! to two ticks of slack.
//!
//! A model of the zone chooses the cheapest answer, so a wrong model costs money but never the
//! deadline. `docs/policies.md` compares it with published rules (Uniform Progress, Wu et al.,
//! "Can't Be Late", NSDI 2024).
//!
//! `placement` chooses among zones.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capacity_periods::{ZoneSpells, rates};
use super::remaining_cost::{Ahead, CostTerms, FRESH_HOURS, Horizon, Moment, Runs};
use crate::market::UsdPerHour;

/// Waiting must save this share of the remaining cost. If spot is no cheaper, short-lived or risky,
/// rounding in the table could decide, and slack would be wasted. On recorded capacity this share
/// is 0.05 % cheaper than none (docs/policies.md).
const WORTH_WAITING: f64 = 1e-4;

/// While spot is available, waiting must save this share of the remaining cost: a user does not
/// wait twenty hours to save three cents of $1.40. On recorded capacity the mean is unchanged
/// (docs/policies.md).
const WORTH_PASSING: f64 = 0.05;

/// Waiting must also save this many dollars: without it, one plan waited a day for nine cents, a
/// tenth of the rest. With more, a small job never waits for half the price. On recorded capacity
/// the mean is unchanged (docs/policies.md).
const WORTH_PASSING_USD: f64 = 0.25;

/// Times are compared to the millisecond.
const TIME_TIE_HOURS: f64 = 1e-3 / 3600.0;

fn hours(duration: Duration) -> f64 {
    duration.as_secs_f64() / 3600.0
}

/// Current spot capacity, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capacity {
    There,
    Gone,
    /// Not known; treated as gone, unless a spot machine runs.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Running {
    Nothing,
    /// `startup_left`: time until it works.
    Spot {
        startup_left: Duration,
    },
    OnDemand {
        startup_left: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MarketFacts {
    /// Time to the deadline; zero after it.
    pub time_left: Duration,
    pub work_left: Duration,
    /// Longest time until the next decision.
    pub tick: Duration,
    /// Time since the last look at the zone, by any observer. Ignored at the first look.
    pub since_look: Duration,
    pub spot: Capacity,
    pub running: Running,
    /// Longest time from the launch call to useful work: boot, image, setup, checkpoint reload. The
    /// deadline depends on it.
    pub startup: Duration,
    /// Work lost in an interruption: since the last checkpoint, less the work saved after the
    /// notice.
    pub unsaved: Duration,
    /// Nothing is saved, and `unsaved` is all of the job's work.
    pub begins_anew: bool,
    pub spot_price: UsdPerHour,
    pub on_demand_price: UsdPerHour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarketStep {
    Spot,
    OnDemand,
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    Cheapest,
    /// The only answer with which the deadline is safe.
    OnlySafe,
    /// The deadline can no longer be guaranteed: the fastest way to the end.
    Late,
    Done,
    /// Nothing is saved: leaving the running machine would lose all its work.
    Unsaved,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarketVerdict {
    pub step: MarketStep,
    pub because: Because,
    /// Time left less work left, in hours; the part above one start-up can be waited.
    pub slack_hours: f64,
    /// Age of the current spell, in hours.
    pub spell_hours: f64,
    /// Expected remaining cost in dollars for each safe answer.
    pub wait_usd: Option<f64>,
    pub spot_usd: Option<f64>,
    pub on_demand_usd: Option<f64>,
}

impl MarketVerdict {
    /// Why a cheaper wait was not chosen, to follow the costs; empty if waiting is not cheaper.
    pub(crate) fn passes_over(&self) -> String {
        let at_once =
            self.spot_usd.into_iter().chain(self.on_demand_usd).fold(f64::INFINITY, f64::min);
        match self.wait_usd {
            Some(wait) if self.step != MarketStep::Wait && wait < at_once - 0.005 => {
                let share = 100.0 * WORTH_PASSING;
                format!(
                    "; to wait must save ${WORTH_PASSING_USD:.2} and {share:.0} % at least, so none is waited for"
                )
            }
            _ => String::new(),
        }
    }
}

/// The value of other zones beside the chosen one (`zones`). The default means a single zone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// The chance that another zone has capacity when this one's ends.
    pub there: f64,
    /// How much faster capacity returns if all zones are watched; added to this zone's factor.
    pub comes_back: f64,
}

/// The rule over time: its knowledge of a zone, and its plan for the rest of the job.
#[derive(Clone, Debug, Default)]
pub struct MarketWatch {
    spells: ZoneSpells,
    others: Others,
    solved: Option<Solved>,
    /// The plan stays fixed to the end, whatever is learned.
    planned: bool,
}

#[derive(Clone, Debug)]
struct Solved {
    horizon: Arc<Horizon>,
    terms: CostTerms,
    time_left: f64,
    slack: f64,
}

impl MarketWatch {
    /// Continues with what earlier jobs, probes and interruption notices showed about the zone.
    pub fn with_spells(spells: ZoneSpells) -> Self {
        MarketWatch { spells, ..MarketWatch::default() }
    }

    /// Plans a whole job once, to simulate it many times. It learns nothing meanwhile, and copies
    /// are cheap.
    pub fn planned(spells: ZoneSpells, facts: &MarketFacts) -> Self {
        let (terms, _) = terms(facts, &Others::default());
        let (time_left, slack) =
            (hours(facts.time_left), hours(facts.time_left) - hours(facts.work_left));
        let horizon = Horizon::solve(
            terms,
            (spells.there.rates(), spells.gone.rates()),
            time_left,
            slack,
            time_left,
        );
        let solved = Some(Solved { horizon: Arc::new(horizon), terms, time_left, slack });
        MarketWatch { spells, others: Others::default(), solved, planned: true }
    }

    pub fn spells(&self) -> &ZoneSpells {
        &self.spells
    }

    /// One decision. It learns from the facts, so pass each moment only once.
    pub fn step(&mut self, facts: &MarketFacts) -> MarketVerdict {
        let there = match (facts.spot, facts.running) {
            (Capacity::There, _) => Some(true),
            (Capacity::Gone, _) => Some(false),
            // A running spot machine proves capacity.
            (Capacity::Unknown, Running::Spot { .. }) => Some(true),
            (Capacity::Unknown, _) => None,
        };
        self.spells.look(hours(facts.since_look), there);
        self.weigh(facts, there, self.spells.age_hours())
    }

    /// One decision with given knowledge of the zone and of others; it learns nothing from the
    /// facts.
    pub fn decide(
        &mut self,
        spells: &ZoneSpells,
        others: Others,
        facts: &MarketFacts,
    ) -> MarketVerdict {
        self.decide_at(spells, others, spells.age_hours(), facts)
    }

    /// The same with a given spell age, which for several zones together is no single zone's.
    pub fn decide_at(
        &mut self,
        spells: &ZoneSpells,
        others: Others,
        age_hours: f64,
        facts: &MarketFacts,
    ) -> MarketVerdict {
        (self.spells, self.others) = (*spells, others);
        let there = matches!(facts.spot, Capacity::There);
        self.weigh(facts, Some(there), age_hours)
    }

    fn weigh(&mut self, facts: &MarketFacts, there: Option<bool>, age: f64) -> MarketVerdict {
        let (on, startup_left) = match facts.running {
            Running::Nothing => (Runs::Nothing, 0.0),
            // Interrupted since the last tick, whatever the facts say.
            Running::Spot { .. } if there == Some(false) => (Runs::Nothing, 0.0),
            Running::Spot { startup_left } => (Runs::Spot, hours(startup_left)),
            Running::OnDemand { startup_left } => (Runs::OnDemand, hours(startup_left)),
        };
        let now = Moment {
            time_left: hours(facts.time_left),
            work_left: hours(facts.work_left),
            on,
            startup_left,
            there: there == Some(true),
            age,
        };
        let (terms, on_demand) = terms(facts, &self.others);
        self.choose(&terms, &now, on_demand)
    }

    fn choose(&mut self, terms: &CostTerms, now: &Moment, on_demand_usd: f64) -> MarketVerdict {
        let slack = now.time_left - now.work_left;
        let verdict = |step, because, ahead: Option<Ahead>| {
            let usd = |hours: f64| {
                (hours < f64::from(f32::MAX) && hours.is_finite()).then_some(hours * on_demand_usd)
            };
            MarketVerdict {
                step,
                because,
                slack_hours: slack,
                spell_hours: now.age,
                wait_usd: ahead.and_then(|ahead| usd(ahead.wait)),
                spot_usd: ahead.and_then(|ahead| usd(ahead.spot)),
                on_demand_usd: ahead.and_then(|ahead| usd(ahead.on_demand)),
            }
        };
        if now.work_left <= 0.0 {
            return verdict(MarketStep::Wait, Because::Done, None);
        }
        match now.on {
            Runs::Spot if terms.begins_anew => {
                return verdict(MarketStep::Spot, Because::Unsaved, None);
            }
            Runs::OnDemand if terms.begins_anew => {
                return verdict(MarketStep::OnDemand, Because::Unsaved, None);
            }
            _ => {}
        }
        let safe = Safe::of(terms, now);
        if !safe.wait && !safe.spot {
            let late = slack < terms.startup - TIME_TIE_HOURS;
            let owed = if now.on == Runs::OnDemand { now.startup_left } else { terms.startup };
            let ahead =
                Ahead { wait: f64::INFINITY, spot: f64::INFINITY, on_demand: now.work_left + owed };
            return match now.on {
                // A working spot machine is the fastest way if another start would be too late.
                Runs::Spot if late && now.startup_left <= 0.0 => {
                    verdict(MarketStep::Spot, Because::Late, None)
                }
                _ if slack < owed - TIME_TIE_HOURS => {
                    verdict(MarketStep::OnDemand, Because::Late, Some(ahead))
                }
                _ => verdict(MarketStep::OnDemand, Because::OnlySafe, Some(ahead)),
            };
        }
        let mut ahead = self.horizon(terms, now.time_left, slack).ahead(now);
        if !safe.wait {
            ahead.wait = f64::INFINITY;
        }
        if !safe.spot {
            ahead.spot = f64::INFINITY;
        }
        let at_once = ahead.spot.min(ahead.on_demand);
        // In on-demand hours, like all costs in `ahead`.
        let (worth, least) = if now.there {
            (WORTH_PASSING, WORTH_PASSING_USD / on_demand_usd)
        } else {
            (WORTH_WAITING, 0.0)
        };
        let step = if ahead.wait < at_once * (1.0 - worth) && ahead.wait < at_once - least {
            MarketStep::Wait
        } else if ahead.spot <= ahead.on_demand {
            MarketStep::Spot
        } else {
            MarketStep::OnDemand
        };
        verdict(step, Because::Cheapest, Some(ahead))
    }

    /// The plan for the rest. It is solved again if it is old, or was made for other terms or less
    /// slack.
    fn horizon(&mut self, terms: &CostTerms, time_left: f64, slack: f64) -> &Horizon {
        let fits = |solved: &Solved| {
            let passed = solved.time_left - time_left;
            let fresh = self.planned || (0.0..FRESH_HOURS - TIME_TIE_HOURS).contains(&passed);
            solved.terms == *terms && fresh && slack <= solved.slack + TIME_TIE_HOURS
        };
        if !self.solved.as_ref().is_some_and(fits) {
            let gone = rates(self.spells.gone.factor() + self.others.comes_back);
            let horizon = Horizon::solve(
                *terms,
                (self.spells.there.rates(), gone),
                time_left,
                slack,
                FRESH_HOURS,
            );
            self.solved =
                Some(Solved { horizon: Arc::new(horizon), terms: *terms, time_left, slack });
        }
        &self.solved.as_ref().expect("it was solved above where it was missing").horizon
    }
}

/// The terms of a job, and the on-demand price per hour in dollars.
fn terms(facts: &MarketFacts, others: &Others) -> (CostTerms, f64) {
    let (spot, on_demand) =
        (facts.spot_price.per_hour().dollars(), facts.on_demand_price.per_hour().dollars());
    // Without prices (a workstation), no market is cheaper.
    let spot_share = if on_demand > 0.0 { spot / on_demand } else { 1.0 };
    let (startup, unsaved, tick) = (hours(facts.startup), hours(facts.unsaved), hours(facts.tick));
    (
        CostTerms {
            startup,
            unsaved,
            begins_anew: facts.begins_anew,
            tick,
            spot_share,
            elsewhere: others.there,
        },
        on_demand,
    )
}

/// Which answers keep the deadline reachable whatever spot does; on-demand always does its best.
struct Safe {
    wait: bool,
    spot: bool,
}

impl Safe {
    fn of(terms: &CostTerms, now: &Moment) -> Safe {
        let spare = now.time_left - now.work_left - terms.startup + TIME_TIE_HOURS;
        let owed = if now.on == Runs::Spot { now.startup_left } else { terms.startup };
        let finishes = now.work_left + owed <= terms.tick.min(now.time_left) + TIME_TIE_HOURS;
        // A job that cannot leave a machine has started by the time it is lost, and sees that a
        // tick later.
        let starts = if terms.begins_anew { owed + terms.tick } else { owed.min(terms.tick) };
        Safe {
            wait: spare >= terms.tick,
            spot: now.there && (finishes || spare >= starts + terms.unsaved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `$3.45 with spot now, $3.56 on demand now, $3.42 waiting now`, and spot was taken.
    #[test]
    fn small_gain_that_is_not_waited_for_is_said_to_be_one() {
        let of = |step, wait_usd| MarketVerdict {
            step,
            because: Because::Cheapest,
            slack_hours: 5.0,
            spell_hours: 0.0,
            wait_usd,
            spot_usd: Some(3.45),
            on_demand_usd: Some(3.56),
        };
        assert!(
            of(MarketStep::Spot, Some(3.42))
                .passes_over()
                .contains("must save $0.25 and 5 % at least")
        );
        assert_eq!(
            [
                of(MarketStep::Spot, Some(3.46)),
                of(MarketStep::Spot, None),
                of(MarketStep::Wait, Some(1.0))
            ]
            .map(|of| of.passes_over()),
            [""; 3]
        );
    }
}
