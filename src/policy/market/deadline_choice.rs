//! Which market now: spot, on-demand, or wait? For a job with work left and a deadline.
//!
//! ```text
//!   looks ──> spell (how long capacity stays, learned) ──> horizon (what each answer leads to) ─┐
//!   time, work, start-up still to pay ──> safe (which answers can still meet the deadline) ─────┴─> the cheapest safe one
//! ```
//!
//! **Safety** is exact and knows nothing of the model: an answer is safe when, whatever happens to spot by the next tick,
//! on-demand can then be started and finish in time. With slack = time left - work left:
//!
//! | Answer | Safe when |
//! |---|---|
//! | wait | slack - tick >= start-up |
//! | spot | it is there, and slack - (start-up paid in this tick) - (work not saved) >= start-up; or it finishes within the tick |
//! | on-demand | always: where nothing else is safe, it is what is left |
//!
//! A job that saves nothing begins anew with each machine. Its spot machine is safe where, all of its work done on it and lost at
//! the end, all of it can be done once more on demand; and no machine of it that runs is left.
//!
//! So a deadline that can be met when the job begins is met for any sequence of availability, if ticks come no later than
//! they said. Rules that round to whole ticks (the nets of Uniform Progress) give up to two ticks of slack away.
//!
//! The cheapest answer comes from a model of the zone, so a wrong model costs money and never the deadline. Beside the
//! published rules (Uniform Progress, Wu et al., "Can't Be Late", NSDI 2024): figures in `docs/policies.md`.
//!
//! What must never live here: how long spot stays (`spell`), the prices of zones that were not chosen (`placement`).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capacity_periods::{ZoneSpells, rates};
use super::remaining_cost::{Ahead, FRESH_HOURS, Horizon, Moment, Runs, Terms};
use crate::market::UsdPerHour;

/// Waiting must save this share of what the rest costs. Where it saves nothing, because spot is no cheaper, too short-lived or
/// too risky, the table's single precision would say to wait or not by its seventh digit, and the slack would be gone for
/// nothing. On recorded capacity this share is 0.05 % cheaper than none (docs/policies.md).
const WORTH_WAITING: f64 = 1e-4;

/// Where a spot machine is to be had, to wait for a better moment must save this share of what the rest costs: nobody waits
/// twenty hours to save three cents of $1.40. On recorded capacity the mean is the same with it and without (docs/policies.md).
const WORTH_PASSING: f64 = 0.05;

/// And so many dollars: a plan was seen to wait a day for nine cents, which were a tenth of what the rest cost. More, and a small job
/// never waits for what is half as dear; less, and people wait for what they would not stoop for. The recorded runs are the same
/// with it and without (docs/policies.md).
const WORTH_PASSING_USD: f64 = 0.25;

/// Times are compared to the millisecond; durations come in whole ones.
const TIME_TIE_HOURS: f64 = 1e-3 / 3600.0;

fn hours(duration: Duration) -> f64 {
    duration.as_secs_f64() / 3600.0
}

/// What is known about spot capacity now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capacity {
    There,
    Gone,
    /// Nobody could tell. Never taken as there.
    Unknown,
}

/// What runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Running {
    Nothing,
    /// `startup_left`: until it works.
    Spot {
        startup_left: Duration,
    },
    OnDemand {
        startup_left: Duration,
    },
}

/// What a decision goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MarketFacts {
    /// To the deadline; zero once it has passed.
    pub time_left: Duration,
    pub work_left: Duration,
    /// Until the next decision, at the latest.
    pub tick: Duration,
    /// Since the last look at the zone, whoever looked. Ignored on the first.
    pub since_look: Duration,
    pub spot: Capacity,
    pub running: Running,
    /// From the launch call to useful work: boot, image, setup, checkpoint reload. At most, for the deadline rests on it.
    pub startup: Duration,
    /// Work that is lost when spot goes: since the last checkpoint, less what the notice saves.
    pub unsaved: Duration,
    /// Nothing is saved, and `unsaved` is all of the job's work.
    pub begins_anew: bool,
    pub spot_price: UsdPerHour,
    pub on_demand_price: UsdPerHour,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarketStep {
    Spot,
    OnDemand,
    Wait,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The cheapest of the safe answers.
    Cheapest,
    /// The only answer with which the deadline is safe.
    OnlySafe,
    /// The deadline cannot be promised any more: the fastest way to the end.
    Late,
    /// No work is left.
    Done,
    /// Nothing is saved: to leave the machine that runs would lose all that it has done.
    Unsaved,
}

/// The answer with its reason and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarketVerdict {
    pub step: MarketStep,
    pub because: Because,
    /// Time left less work left, hours; what is above one start-up can be waited.
    pub slack_hours: f64,
    /// Age of the spell of capacity, there or gone, hours.
    pub spell_hours: f64,
    /// What the job will still cost, dollars expected by the model, with each answer that is safe.
    pub wait_usd: Option<f64>,
    pub spot_usd: Option<f64>,
    pub on_demand_usd: Option<f64>,
}

impl MarketVerdict {
    /// Why waiting was not taken where it is cheaper, as it follows on the costs; nothing where it is not.
    pub(crate) fn passes_over(&self) -> String {
        let at_once = self.spot_usd.into_iter().chain(self.on_demand_usd).fold(f64::INFINITY, f64::min);
        match self.wait_usd {
            Some(wait) if self.step != MarketStep::Wait && wait < at_once - 0.005 => {
                let share = 100.0 * WORTH_PASSING;
                format!("; to wait must save ${WORTH_PASSING_USD:.2} and {share:.0} % at least, so none is waited for")
            }
            _ => String::new(),
        }
    }
}

/// What other zones are worth to a job beside the one that was chosen (`zones`). None: as if there were one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// The chance that another has capacity when this one's goes.
    pub there: f64,
    /// How much faster capacity comes back where all of them are looked at: added to this zone's own factor.
    pub comes_back: f64,
}

/// The rule over time: what it learned of a zone, and its plan for the rest of the job.
#[derive(Clone, Debug, Default)]
pub struct MarketWatch {
    spells: ZoneSpells,
    others: Others,
    solved: Option<Solved>,
    /// The plan is kept to the end, whatever is learned.
    planned: bool,
}

#[derive(Clone, Debug)]
struct Solved {
    horizon: Arc<Horizon>,
    terms: Terms,
    time_left: f64,
    slack: f64,
}

impl MarketWatch {
    /// Goes on with what earlier jobs, probes and interruption notices taught about the zone.
    pub fn with_spells(spells: ZoneSpells) -> Self {
        MarketWatch { spells, ..MarketWatch::default() }
    }

    /// Plans a whole job once, to play it many times: nothing is learned meanwhile, and a copy costs nothing.
    pub fn planned(spells: ZoneSpells, facts: &MarketFacts) -> Self {
        let (terms, _) = terms(facts, &Others::default());
        let (time_left, slack) = (hours(facts.time_left), hours(facts.time_left) - hours(facts.work_left));
        let horizon = Horizon::solve(terms, (spells.there.rates(), spells.gone.rates()), time_left, slack, time_left);
        let solved = Some(Solved { horizon: Arc::new(horizon), terms, time_left, slack });
        MarketWatch { spells, others: Others::default(), solved, planned: true }
    }

    /// What is known of the zone now, for the next job.
    pub fn spells(&self) -> &ZoneSpells {
        &self.spells
    }

    /// One decision. Looks at the zone are taken from the facts, so each moment is told once.
    pub fn step(&mut self, facts: &MarketFacts) -> MarketVerdict {
        let there = match (facts.spot, facts.running) {
            (Capacity::There, _) => Some(true),
            (Capacity::Gone, _) => Some(false),
            // A spot machine that runs is the proof.
            (Capacity::Unknown, Running::Spot { .. }) => Some(true),
            (Capacity::Unknown, _) => None,
        };
        self.spells.look(hours(facts.since_look), there);
        self.weigh(facts, there, self.spells.age_hours())
    }

    /// One decision with what somebody else knows of the zone, and of others: nothing is taken from the facts.
    pub fn decide(&mut self, spells: &ZoneSpells, others: Others, facts: &MarketFacts) -> MarketVerdict {
        self.decide_at(spells, others, spells.age_hours(), facts)
    }

    /// The same where the spell is of that age: of all zones together, it is none's own.
    pub fn decide_at(&mut self, spells: &ZoneSpells, others: Others, age_hours: f64, facts: &MarketFacts) -> MarketVerdict {
        (self.spells, self.others) = (*spells, others);
        let there = matches!(facts.spot, Capacity::There);
        self.weigh(facts, Some(there), age_hours)
    }

    fn weigh(&mut self, facts: &MarketFacts, there: Option<bool>, age: f64) -> MarketVerdict {
        let (on, startup_left) = match facts.running {
            Running::Nothing => (Runs::Nothing, 0.0),
            // Taken back since the last tick, whatever the facts call it.
            Running::Spot { .. } if there == Some(false) => (Runs::Nothing, 0.0),
            Running::Spot { startup_left } => (Runs::Spot, hours(startup_left)),
            Running::OnDemand { startup_left } => (Runs::OnDemand, hours(startup_left)),
        };
        let now = Moment { time_left: hours(facts.time_left), work_left: hours(facts.work_left), on, startup_left, there: there == Some(true), age };
        let (terms, on_demand) = terms(facts, &self.others);
        self.choose(&terms, &now, on_demand)
    }

    fn choose(&mut self, terms: &Terms, now: &Moment, on_demand_usd: f64) -> MarketVerdict {
        let slack = now.time_left - now.work_left;
        let verdict = |step, because, ahead: Option<Ahead>| {
            let usd = |hours: f64| (hours < f64::from(f32::MAX) && hours.is_finite()).then_some(hours * on_demand_usd);
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
            Runs::Spot if terms.begins_anew => return verdict(MarketStep::Spot, Because::Unsaved, None),
            Runs::OnDemand if terms.begins_anew => return verdict(MarketStep::OnDemand, Because::Unsaved, None),
            _ => {}
        }
        let safe = Safe::of(terms, now);
        if !safe.wait && !safe.spot {
            let late = slack < terms.startup - TIME_TIE_HOURS;
            let owed = if now.on == Runs::OnDemand { now.startup_left } else { terms.startup };
            let ahead = Ahead { wait: f64::INFINITY, spot: f64::INFINITY, on_demand: now.work_left + owed };
            return match now.on {
                // A spot machine that works is the fastest way where another start would be too late.
                Runs::Spot if late && now.startup_left <= 0.0 => verdict(MarketStep::Spot, Because::Late, None),
                _ if slack < owed - TIME_TIE_HOURS => verdict(MarketStep::OnDemand, Because::Late, Some(ahead)),
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
        // In hours on demand, as all that is ahead.
        let (worth, least) = if now.there { (WORTH_PASSING, WORTH_PASSING_USD / on_demand_usd) } else { (WORTH_WAITING, 0.0) };
        let step = if ahead.wait < at_once * (1.0 - worth) && ahead.wait < at_once - least {
            MarketStep::Wait
        } else if ahead.spot <= ahead.on_demand {
            MarketStep::Spot
        } else {
            MarketStep::OnDemand
        };
        verdict(step, Because::Cheapest, Some(ahead))
    }

    /// The plan for the rest, solved anew when it is old, or when it was made for other terms, or for less slack.
    fn horizon(&mut self, terms: &Terms, time_left: f64, slack: f64) -> &Horizon {
        let fits = |solved: &Solved| {
            let passed = solved.time_left - time_left;
            let fresh = self.planned || (0.0..FRESH_HOURS - TIME_TIE_HOURS).contains(&passed);
            solved.terms == *terms && fresh && slack <= solved.slack + TIME_TIE_HOURS
        };
        if !self.solved.as_ref().is_some_and(fits) {
            let gone = rates(self.spells.gone.factor() + self.others.comes_back);
            let horizon = Horizon::solve(*terms, (self.spells.there.rates(), gone), time_left, slack, FRESH_HOURS);
            self.solved = Some(Solved { horizon: Arc::new(horizon), terms: *terms, time_left, slack });
        }
        &self.solved.as_ref().expect("it was solved above where it was missing").horizon
    }
}

/// The terms of a job, and what an hour on demand costs, dollars.
fn terms(facts: &MarketFacts, others: &Others) -> (Terms, f64) {
    let (spot, on_demand) = (facts.spot_price.per_hour().dollars(), facts.on_demand_price.per_hour().dollars());
    // Where nothing has a price (a machine of one's own), no market is cheaper.
    let spot_share = if on_demand > 0.0 { spot / on_demand } else { 1.0 };
    let (startup, unsaved, tick) = (hours(facts.startup), hours(facts.unsaved), hours(facts.tick));
    (Terms { startup, unsaved, begins_anew: facts.begins_anew, tick, spot_share, elsewhere: others.there }, on_demand)
}

/// Which answers leave the deadline in reach whatever spot does; on-demand always does what can be done.
struct Safe {
    wait: bool,
    spot: bool,
}

impl Safe {
    fn of(terms: &Terms, now: &Moment) -> Safe {
        let spare = now.time_left - now.work_left - terms.startup + TIME_TIE_HOURS;
        let owed = if now.on == Runs::Spot { now.startup_left } else { terms.startup };
        let finishes = now.work_left + owed <= terms.tick.min(now.time_left) + TIME_TIE_HOURS;
        // Who cannot leave it has started by the time that it is gone, and sees that a tick later.
        let starts = if terms.begins_anew { owed + terms.tick } else { owed.min(terms.tick) };
        Safe { wait: spare >= terms.tick, spot: now.there && (finishes || spare >= starts + terms.unsaved) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `$3.45 with spot now, $3.56 on demand now, $3.42 waiting now`, and spot was taken.
    #[test]
    fn a_small_gain_that_is_not_waited_for_is_said_to_be_one() {
        let of = |step, wait_usd| MarketVerdict {
            step,
            because: Because::Cheapest,
            slack_hours: 5.0,
            spell_hours: 0.0,
            wait_usd,
            spot_usd: Some(3.45),
            on_demand_usd: Some(3.56),
        };
        assert!(of(MarketStep::Spot, Some(3.42)).passes_over().contains("must save $0.25 and 5 % at least"));
        assert_eq!(
            [of(MarketStep::Spot, Some(3.46)), of(MarketStep::Spot, None), of(MarketStep::Wait, Some(1.0))].map(|of| of.passes_over()),
            [""; 3]
        );
    }
}
