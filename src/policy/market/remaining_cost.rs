//! The remaining cost of a job for each answer: backward induction from the deadline to now.
//!
//! A state is (time left, slack, running machine, capacity there or gone, and since when). *Slack*
//! is the time left, less the work left, less the start-up still to pay. It never grows: waiting
//! uses it, each start uses one start-up, running uses none. So only slack up to the current one
//! matters, and the table is small:
//!
//! ```text
//!   wait            slack - step               free
//!   continue        slack                      costs the step at the market's price
//!   start           slack - startup            costs the step too
//!   spot is gone    slack - unsaved work       and no machine runs; another zone may have capacity
//! ```
//!
//! A job without saves begins anew when spot is gone. Its slack is then the time left less all of
//! its work. Leaving its machine would lose the same, so it never does.
//!
//! The deadline is a hard limit. Without a machine, slack below one start-up is excluded. With less
//! slack than that, an on-demand machine runs to the end. Costs are in hours of on-demand. See
//! Puterman, "Markov Decision Processes" (1994), chapter 4; the chain is that in
//! `capacity_periods`. The table's steps are coarse, but a decision looks one *tick* ahead exactly
//! (`ahead`).
//!
//! `deadline_choice` knows which answers are safe. This module has no clock.

use super::capacity_periods::{AGES, CLASSES, EndRates, age_class};

/// Approximate time step of the table in hours: a whole number of ticks. Longer steps miss short
/// spells, shorter ones take more CPU time.
const STEP_HOURS: f64 = 1.0 / 6.0;

/// Most time steps. Beyond 100 hours the step grows, so that a question takes milliseconds.
const STEPS_MAX: f64 = 600.0;

/// Most slack cells, for the same reason.
const CELLS_MAX: f64 = 400.0;

/// Slack cells per time step: half a step is finer than the start-ups it measures.
const CELLS_PER_STEP: f64 = 2.0;

/// How long a solved table is used, in hours; it keeps the values for that long. Little is learned
/// in two hours: solving four times as often is 0.05 % cheaper.
pub const FRESH_HOURS: f64 = 2.0;

/// More than any job costs, in hours of on-demand; marks forbidden states.
const NEVER: f32 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    Nothing,
    Spot,
    OnDemand,
}

/// The terms of a job that stay the same at every tick. Times in hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostTerms {
    pub startup: f64,
    /// Work lost in an interruption.
    pub unsaved: f64,
    /// Nothing is saved, and `unsaved` is all of its work.
    pub begins_anew: bool,
    pub tick: f64,
    /// Spot price divided by on-demand price.
    pub spot_share: f64,
    /// The chance that another zone has capacity when this one's ends; 0 with a single zone.
    pub elsewhere: f64,
}

/// One moment of a job. Times in hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    pub time_left: f64,
    pub work_left: f64,
    pub on: Runs,
    /// Start-up left on the running machine.
    pub startup_left: f64,
    pub there: bool,
    pub age: f64,
}

/// Cost of each answer to the end of the job, in hours of on-demand; infinite if unavailable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    pub wait: f64,
    pub spot: f64,
    pub on_demand: f64,
}

#[derive(Clone, Debug)]
pub struct Horizon {
    terms: CostTerms,
    there: EndRates,
    gone: EndRates,
    step: f64,
    cell: f64,
    cells: usize,
    /// Number of steps from the first stage to the deadline.
    top: usize,
    /// The kept stages, earliest first.
    stages: Vec<StageCosts>,
}

/// Values at one time: a row of slack cells for each (there or gone) x (running machine) x (age).
type StageCosts = Vec<f32>;

const ROWS: usize = 5 * CLASSES;

fn row(there: bool, on: Runs, class: usize) -> usize {
    let block = match (there, on) {
        (true, Runs::Nothing) => 0,
        (true, Runs::Spot) => 1,
        (true, Runs::OnDemand) => 2,
        (false, Runs::Nothing | Runs::Spot) => 3,
        (false, Runs::OnDemand) => 4,
    };
    block * CLASSES + class
}

fn ends_within(rate: f64, hours: f64) -> f64 {
    1.0 - (-rate * hours).exp()
}

impl Horizon {
    /// `slack`: the largest slack that will be asked. `kept_hours`: how long the table will be
    /// used.
    pub fn solve(
        terms: CostTerms,
        (there, gone): (EndRates, EndRates),
        time_left: f64,
        slack: f64,
        kept_hours: f64,
    ) -> Horizon {
        let wanted = STEP_HOURS.max(time_left / STEPS_MAX);
        let tick = terms.tick.max(1e-3);
        let step = tick * (wanted / tick).round().max(1.0);
        let spare = (slack - terms.startup).max(0.0);
        let cell = (step / CELLS_PER_STEP).max(spare / CELLS_MAX);
        let cells = (spare / cell).ceil() as usize + 2;
        let top = (time_left.max(0.0) / step).ceil() as usize;
        let mut horizon =
            Horizon { terms, there, gone, step, cell, cells, top, stages: Vec::new() };
        let kept = (kept_hours / step).ceil() as usize + 2;
        let (mut later, mut now) = (vec![0.0; ROWS * cells], vec![0.0; ROWS * cells]);
        let mut scratch = Scratch::new(cells);
        for stage in 1..=top {
            horizon.induce(stage, &later, &mut now, &mut scratch);
            std::mem::swap(&mut later, &mut now);
            if top - stage < kept {
                horizon.stages.push(later.clone());
            }
        }
        if horizon.stages.is_empty() {
            horizon.stages.push(later);
        }
        horizon.stages.reverse();
        horizon
    }

    /// One step back in time: the cheapest answer in every state `stage` steps before the deadline.
    fn induce(&self, stage: usize, later: &[f32], now: &mut [f32], scratch: &mut Scratch) {
        let n = self.cells;
        let (startup, time_left) = (self.terms.startup, stage as f64 * self.step);
        let share = self.terms.spot_share as f32;
        let values = |there: bool, on: Runs, class: usize| &later[row(there, on, class) * n..][..n];
        let (of_wait, of_start) = (self.step / self.cell, startup / self.cell);
        // An on-demand machine started with too little slack to leave it runs to the end.
        let to_the_end =
            |at: f64| (time_left - self.step - startup - at * self.cell).max(0.0) as f32;
        // If capacity ends here, another zone may have it.
        let elsewhere = self.terms.elsewhere as f32;
        for (on, out) in [
            (Runs::Nothing, &mut scratch.ended_nothing),
            (Runs::OnDemand, &mut scratch.ended_on_demand),
        ] {
            blend(elsewhere, values(true, on, 0), values(false, on, 0), out);
        }
        if self.terms.begins_anew {
            let anew = (time_left - self.step - startup - self.terms.unsaved) / self.cell;
            scratch.lost.fill(at_cell(&scratch.ended_nothing, anew));
        } else {
            shift(
                &scratch.ended_nothing,
                self.terms.unsaved / self.cell,
                &mut scratch.lost,
                |_| NEVER,
            );
        }
        for there in [true, false] {
            for class in 0..CLASSES {
                let older = (class + 1).min(CLASSES - 1);
                let grows = if class == older {
                    0.0
                } else {
                    (self.step / (AGES[older] - AGES[class])).min(1.0)
                };
                let ends = ends_within(
                    if there { self.there[class] } else { self.gone[class] },
                    self.step,
                );
                let weights = [ends, (1.0 - ends) * (1.0 - grows), (1.0 - ends) * grows]
                    .map(|weight| weight as f32);
                let next = |on: Runs, out: &mut [f32], turned: &[f32]| {
                    mix(weights, turned, values(there, on, class), values(there, on, older), out)
                };
                let (nothing, on_demand) = if there {
                    (&scratch.ended_nothing[..], &scratch.ended_on_demand[..])
                } else {
                    (values(true, Runs::Nothing, 0), values(true, Runs::OnDemand, 0))
                };
                next(Runs::Nothing, &mut scratch.nothing, nothing);
                next(Runs::OnDemand, &mut scratch.on_demand, on_demand);
                shift(&scratch.nothing, of_wait, &mut scratch.wait, |_| NEVER);
                shift(&scratch.on_demand, of_start, &mut scratch.start_on_demand, to_the_end);
                if there {
                    next(Runs::Spot, &mut scratch.spot, &scratch.lost);
                    shift(&scratch.spot, of_start, &mut scratch.start_spot, |_| NEVER);
                }
                for i in 0..n {
                    let work = time_left - startup - i as f64 * self.cell;
                    let (mut nothing, mut spot, mut on_demand) = (0.0, 0.0, 0.0);
                    if work > 1e-9 {
                        let (pay, pay_start) =
                            (work.min(self.step) as f32, (work + startup).min(self.step) as f32);
                        nothing = scratch.wait[i].min(pay_start + scratch.start_on_demand[i]);
                        if there {
                            nothing = nothing.min(share * pay_start + scratch.start_spot[i]);
                            spot = share * pay + scratch.spot[i];
                        }
                        on_demand = pay + scratch.on_demand[i];
                        if !self.terms.begins_anew {
                            (spot, on_demand) = (nothing.min(spot), nothing.min(on_demand));
                        }
                    }
                    now[row(there, Runs::Nothing, class) * n + i] = nothing;
                    now[row(there, Runs::OnDemand, class) * n + i] = on_demand;
                    if there {
                        now[row(there, Runs::Spot, class) * n + i] = spot;
                    }
                }
            }
        }
    }

    /// The cost from a state to the end, interpolated between the table's points.
    fn value(&self, there: bool, on: Runs, class: usize, time_left: f64, slack: f64) -> f64 {
        let work = time_left - slack;
        if work <= 1e-9 {
            return 0.0;
        }
        let spare = slack - self.terms.startup;
        if spare < -1e-9 {
            return if on == Runs::OnDemand { work } else { f64::INFINITY };
        }
        let x = (spare / self.cell).clamp(0.0, (self.cells - 1) as f64);
        let i = (x as usize).min(self.cells - 2);
        let at = |stage: &StageCosts| {
            let values = &stage[row(there, on, class) * self.cells..][..self.cells];
            lerp(f64::from(values[i]), f64::from(values[i + 1]), x - i as f64)
        };
        let last = self.stages.len() - 1;
        let y = (self.top as f64 - time_left / self.step).clamp(0.0, last as f64);
        let k = y as usize;
        lerp(at(&self.stages[k]), at(&self.stages[(k + 1).min(last)]), y - k as f64)
    }

    /// The cost of each answer at this tick.
    pub fn ahead(&self, now: &Moment) -> Ahead {
        let CostTerms { startup, unsaved, begins_anew, tick, spot_share, elsewhere } = self.terms;
        let (class, slack, later) =
            (age_class(now.age), now.time_left - now.work_left, now.time_left - tick);
        let ends = ends_within(if now.there { self.there[class] } else { self.gone[class] }, tick);
        let class = age_class(now.age + tick);
        let next = |on: Runs, turned: f64, stays: f64| {
            let turned_on = if on == Runs::Spot { Runs::Nothing } else { on };
            let ended = |there: bool| self.value(there, turned_on, 0, later, turned);
            let ended = match now.there {
                false => ended(true),
                true if elsewhere > 0.0 => {
                    elsewhere * ended(true) + (1.0 - elsewhere) * ended(false)
                }
                true => ended(false),
            };
            ends * ended + (1.0 - ends) * self.value(now.there, on, class, later, stays)
        };
        let owed = |on: Runs| if now.on == on { now.startup_left } else { startup };
        let paid = |on: Runs| (now.work_left + owed(on)).min(tick);
        let (wait, bought) = (slack - tick, slack - owed(Runs::OnDemand));
        let spot = || {
            let owed = owed(Runs::Spot);
            let turned =
                if begins_anew { later - unsaved } else { slack - owed.min(tick) - unsaved };
            spot_share * paid(Runs::Spot) + next(Runs::Spot, turned, slack - owed)
        };
        Ahead {
            wait: next(Runs::Nothing, wait, wait),
            spot: if now.there { spot() } else { f64::INFINITY },
            on_demand: paid(Runs::OnDemand) + next(Runs::OnDemand, bought, bought),
        }
    }
}

fn lerp(from: f64, to: f64, part: f64) -> f64 {
    if part == 0.0 { from } else { from + (to - from) * part }
}

struct Scratch {
    ended_nothing: Vec<f32>,
    ended_on_demand: Vec<f32>,
    lost: Vec<f32>,
    nothing: Vec<f32>,
    spot: Vec<f32>,
    on_demand: Vec<f32>,
    wait: Vec<f32>,
    start_spot: Vec<f32>,
    start_on_demand: Vec<f32>,
}

impl Scratch {
    fn new(cells: usize) -> Self {
        let row = || vec![0.0; cells];
        Scratch {
            ended_nothing: row(),
            ended_on_demand: row(),
            lost: row(),
            nothing: row(),
            spot: row(),
            on_demand: row(),
            wait: row(),
            start_spot: row(),
            start_on_demand: row(),
        }
    }
}

/// `part` of `x`, the rest of `y`.
fn blend(part: f32, x: &[f32], y: &[f32], out: &mut [f32]) {
    for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
        *out = part * x + (1.0 - part) * y;
    }
}

fn mix([a, b, c]: [f32; 3], x: &[f32], y: &[f32], z: &[f32], out: &mut [f32]) {
    for (out, ((x, y), z)) in out.iter_mut().zip(x.iter().zip(y).zip(z)) {
        *out = a * x + b * y + c * z;
    }
}

/// The value at a cell, interpolated; below the first cell nothing is safe.
fn at_cell(values: &[f32], at: f64) -> f32 {
    if at < -1e-9 {
        return NEVER;
    }
    let x = at.clamp(0.0, (values.len() - 1) as f64);
    let i = (x as usize).min(values.len() - 2);
    values[i] + (values[i + 1] - values[i]) * (x - i as f64) as f32
}

/// `out[i] = values[i - by]`, interpolated; below the first cell `under` gives the value.
fn shift(values: &[f32], by: f64, out: &mut [f32], under: impl Fn(f64) -> f32) {
    let whole = (by - 1e-9).ceil().max(0.0) as usize;
    let part = (whole as f64 - by).max(0.0) as f32;
    for (i, out) in out.iter_mut().enumerate() {
        *out = match i.checked_sub(whole) {
            None => under(i as f64 - by),
            Some(from) if part == 0.0 => values[from],
            Some(from) => {
                values[from] + (values[(from + 1).min(values.len() - 1)] - values[from]) * part
            }
        };
    }
}
