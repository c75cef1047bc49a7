//! Successive halving that pauses: which trial goes on past a rung, and which waits there.
//!
//! ```text
//!   a trial reaches a rung ── among the best quarter there? ─┬─ yes ── goes on to the next rung
//!                                                            └─ no ─── paused; goes on when it is
//! ```
//! Rungs are steps of the program, each 4 times the one before. Every trial that has reached a
//! rung counts there, with its first value from that step on.

use crate::job::{MetricPoint, TuneGoal};

/// As ASHA of Optuna: of 4 trials at a rung, 1 goes on. A smaller factor pauses fewer trials, and a
/// larger one trusts early values more.
const FACTOR: usize = 4;

/// The first rung, as a part of the longest trial. Optuna has the same.
const FIRST_RUNG_PART: f64 = 100.0;

/// The reports of one trial.
#[derive(Clone, Copy, Debug)]
pub struct RungTrial<'a> {
    pub number: u32,
    /// In the order of their steps.
    pub points: &'a [MetricPoint],
    pub is_complete: bool,
}

/// How a trial stands at the highest rung that it has reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RungStanding {
    /// The step of the rung.
    pub rung: f64,
    /// From 1, the best first.
    pub place: usize,
    /// How many have reached it.
    pub of: usize,
}

impl RungStanding {
    /// Whether it is among the best quarter. The best one always is.
    pub fn goes_on(&self) -> bool {
        self.place <= (self.of / FACTOR).max(1)
    }
}

/// The standing of a trial among all of them; `None`: it has reached no rung.
pub fn standing(goal: TuneGoal, number: u32, trials: &[RungTrial<'_>]) -> Option<RungStanding> {
    let own = trials.iter().find(|trial| trial.number == number)?;
    let rung = highest_rung(own.points, first_rung(trials))?;
    let value = value_at(own.points, rung)?;
    let others = trials.iter().filter(|trial| trial.number != number);
    let others: Vec<(f64, u32)> =
        others.filter_map(|trial| Some((value_at(trial.points, rung)?, trial.number))).collect();
    // With equal values, the earlier trial is better.
    let is_better = |other: &&(f64, u32)| {
        goal.prefers(other.0, value)
            || (!goal.prefers(value, other.0) && !other.0.is_nan() && other.1 < number)
            || (value.is_nan() && !other.0.is_nan())
    };
    let place = 1 + others.iter().filter(is_better).count();
    Some(RungStanding { rung, place, of: others.len() + 1 })
}

fn first_rung(trials: &[RungTrial<'_>]) -> f64 {
    let last = |trial: &RungTrial<'_>| trial.points.last().map_or(0.0, |point| point.step);
    let has_complete = trials.iter().any(|trial| trial.is_complete);
    let counted = trials.iter().filter(|trial| trial.is_complete || !has_complete);
    let longest = counted.map(last).fold(0.0, f64::max);
    (longest / FIRST_RUNG_PART).floor().max(1.0)
}

fn highest_rung(points: &[MetricPoint], first: f64) -> Option<f64> {
    let last = points.last().map(|point| point.step).filter(|step| *step >= first)?;
    let mut rung = first;
    while rung * FACTOR as f64 <= last {
        rung *= FACTOR as f64;
    }
    Some(rung)
}

/// NaN: the report was no number.
fn value_at(points: &[MetricPoint], rung: f64) -> Option<f64> {
    let point = points.iter().find(|point| point.step >= rung)?;
    Some(point.value.unwrap_or(f64::NAN))
}
