//! `market = "auto"`: spot, on-demand or wait, now, for a controller's job.
//!
//! ```text
//!   spec, attempts, heartbeat ─> work left, start time, work at risk ─┐
//!   pool, prices ──────────────> chance of spot capacity ─────────────┼─> deadline_choice
//!   deadline ──────────────────> time left, less the job's end ───────┘
//! ```
//! Only a launch shows whether spot capacity exists. It counts as there until a launch is refused,
//! and as gone while that refusal is recent ([`placement`](crate::policy::purchase::placement)).
//! Before a job leaves an on-demand machine for spot, the chance is weighed. Without a deadline the
//! job uses spot, unless interruptions are so frequent that the starts make spot more expensive.
//!
//! `deadline_choice` knows which answers are safe, `placement` the zone. This module makes no
//! calls.

use std::time::Duration;

use jiff::Timestamp;

use super::capacity_periods::{GAP_HOURS_MAX, ZoneSpells};
use super::deadline_choice::{
    Because, Capacity, MarketFacts, MarketStep, MarketVerdict, MarketWatch, Others, Running,
};
use super::pool_history::{Pool, start_of};
use super::remaining_work;
use super::zones::{LIFE_HOURS_MAX, life_hours, usd_per_hour_of_work};
use crate::instance::Status;
use crate::job::{AttemptRecord, Plan, Reason, Spec};
use crate::market::{Market, Span, UsdPerHour, elapsed};

/// An unmeasured start: boot, image and drivers take three to five minutes on EC2. An environment
/// of some GB and a checkpoint take as long again.
pub const UNMEASURED_START: Duration = Duration::from_secs(10 * 60);

/// From the last useful second on one machine to the next launch call: last save, power-off, and a
/// listing that shows it.
const HANDOVER: Duration = Duration::from_secs(2 * 60);

/// The next start may take longer than any before, and the deadline depends on it.
const START_MARGIN: f64 = 1.25;

/// A job that still runs has work left, whatever the estimate says.
const WORK_LEFT_MIN: Duration = Duration::from_secs(15 * 60);

/// Time for logs and outputs at the end of a job, beside its last save.
const END_ALLOWANCE: Duration = Duration::from_secs(60);

/// Time between two decisions on a running machine. The rule gives up this much slack, and every
/// look reads a job.
pub const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);

/// The latest that a decision may come: the rule is safe for looks this far apart.
const TICK: Duration = Duration::from_secs(6 * 60);

const UNSAVED: &str = "nothing is saved, and to leave it would lose all that it has done";

#[derive(Clone, Copy, Debug)]
pub struct AutoFacts<'a> {
    pub spec: &'a Spec,
    pub history: &'a [AttemptRecord],
    /// The current attempt, and its newest heartbeat.
    pub running: Option<(&'a Plan, Option<&'a Status>)>,
    /// The users' extensions of the deadline.
    pub more_time: Span,
    /// The best spot pool; `None`: none fits.
    pub spot: Option<SpotPool<'a>>,
    /// Total cost of an on-demand hour; `None`: none can be bought.
    pub on_demand: Option<UsdPerHour>,
    /// Speed of the machines of both prices, and of the running one. Work is counted in hours of
    /// such machines.
    pub speed: f64,
    pub now: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub struct SpotPool<'a> {
    pub pool: &'a Pool,
    pub hourly: UsdPerHour,
    /// No recent refusal.
    pub there: bool,
    /// The value of other pools, and the chance that one of them has capacity now.
    pub others: Others,
    pub elsewhere: f64,
}

impl SpotPool<'_> {
    /// The chance of spot capacity, here or elsewhere, this many hours from now.
    fn chance(&self, now: Timestamp, in_hours: f64) -> f64 {
        let here = self.pool.spells.chance_there(self.pool.hours_since_look(now) + in_hours);
        1.0 - (1.0 - here) * (1.0 - self.elsewhere)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoStep {
    /// Buy the next machine on this market.
    Take(Market),
    /// No machine now; look again soon.
    Wait,
    /// Keep the running machine.
    Stay,
    /// Save and end, then continue on this market.
    Move(Market),
}

#[derive(Clone, Debug, PartialEq)]
pub struct AutoVerdict {
    pub step: AutoStep,
    pub reason: Reason,
    /// For [`AutoStep::Wait`]: the latest time to take an on-demand machine. `None`: no deadline.
    pub until: Option<Timestamp>,
}

/// The state of the job, in hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkState {
    /// `None`: neither the spec nor the progress gives it.
    pub work_left: Option<f64>,
    /// The same, or the longest run time; without either, the maximum life of a machine.
    pub work_most: f64,
    /// Longest time from the launch call to work.
    pub start: f64,
    /// Work that an interruption may lose.
    pub unsaved: f64,
    /// Nothing is saved, and `unsaved` is all of its work. Leaving a machine loses it too.
    pub begins_anew: bool,
    /// Time until the work must be done; `None`: no deadline.
    pub time_left: Option<f64>,
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

fn time(hours: f64) -> Duration {
    Duration::from_secs_f64((hours * 3600.0).clamp(0.0, 1e9))
}

/// Time from a machine's last useful second to a limit that ends it: the last save, the workload's
/// end, its outputs.
pub fn way_out(spec: &Spec) -> Duration {
    let grace =
        spec.checkpoint.as_ref().map_or(Duration::ZERO, |checkpoint| checkpoint.grace.duration());
    grace + spec.watch.term_grace.duration() + END_ALLOWANCE
}

pub fn standing(facts: &AutoFacts<'_>) -> WorkState {
    let speeds = remaining_work::speeds(facts.spec, facts.history);
    let here = |at_1: Duration| remaining_work::times(at_1, 1.0 / facts.speed);
    let work_left =
        remaining_work::left(facts.spec, &speeds, facts.history, facts.running).map(here);
    let work_left = work_left.map(|left| hours(left.max(WORK_LEFT_MIN)));
    let limits = &facts.spec.limits;
    let run_time = limits.max_runtime.map_or(LIFE_HOURS_MAX, |most| hours(most.duration()));
    let work_most = work_left.unwrap_or(run_time.min(LIFE_HOURS_MAX));
    let unsaved = match &facts.spec.checkpoint {
        Some(checkpoint) => hours(checkpoint.interval.duration() + checkpoint.grace.duration()),
        // All of it, including the work to come.
        None => limits
            .work
            .map_or(run_time, |work| hours(here(work.duration())))
            .max(work_left.unwrap_or(0.0)),
    };
    let time_left = limits.deadline.map(|deadline| {
        let end = way_out(facts.spec);
        let by = deadline.saturating_add(facts.more_time.duration()).unwrap_or(Timestamp::MAX);
        hours(elapsed(facts.now, by).saturating_sub(end))
    });
    WorkState {
        work_left,
        work_most,
        start: start_hours(facts),
        unsaved,
        begins_anew: facts.spec.checkpoint.is_none(),
        time_left,
    }
}

fn start_hours(facts: &AutoFacts<'_>) -> f64 {
    let here = facts.history.iter().filter_map(start_of);
    let earlier = facts.spot.iter().flat_map(|spot| spot.pool.starts.iter().copied());
    reckoned_start_hours(here.chain(earlier).max())
}

/// Estimated start time: the longest measured one of this and earlier jobs with a margin, plus the
/// handover. Whole minutes, so that a plan stays valid.
pub fn reckoned_start_hours(longest: Option<Span>) -> f64 {
    let secs =
        longest.map_or(UNMEASURED_START.as_secs_f64(), |start| start.secs_f64() * START_MARGIN);
    ((secs + HANDOVER.as_secs_f64()) / 60.0).ceil() / 60.0
}

/// The decision. `watch` keeps its plan for the rest of the job.
pub fn judge(watch: &mut MarketWatch, facts: &AutoFacts<'_>) -> AutoVerdict {
    let standing = standing(facts);
    if facts.running.is_some() && standing.begins_anew {
        let text = format!("{}: {UNSAVED}", AutoStep::Stay.words());
        return AutoVerdict {
            step: AutoStep::Stay,
            reason: Reason::new(facts.now, "market", AutoStep::Stay.word(), text),
            until: None,
        };
    }
    match (facts.spot, facts.on_demand, standing.time_left) {
        (None, ..) => only(facts, Market::OnDemand, "no spot machine fits"),
        (Some(_), None, _) => only(facts, Market::Spot, "no machine on demand fits"),
        (Some(spot), Some(on_demand), None) => without_deadline(facts, &standing, &spot, on_demand),
        (Some(spot), Some(on_demand), Some(time_left)) => {
            under_deadline(watch, facts, &standing, &spot, on_demand, time_left)
        }
    }
}

fn only(facts: &AutoFacts<'_>, market: Market, why: &str) -> AutoVerdict {
    let step = if facts.running.is_some() { AutoStep::Stay } else { AutoStep::Take(market) };
    AutoVerdict {
        step,
        reason: Reason::new(facts.now, "market", step.word(), format!("{}: {why}", step.words())),
        until: None,
    }
}

fn without_deadline(
    facts: &AutoFacts<'_>,
    standing: &WorkState,
    spot: &SpotPool<'_>,
    on_demand: UsdPerHour,
) -> AutoVerdict {
    let life = life_hours(&spot.pool.spells, Some(standing.work_most));
    let on_spot = usd_per_hour_of_work(
        &spot.pool.spells,
        spot.hourly,
        standing.start,
        standing.unsaved,
        standing.work_most,
    );
    let full = on_demand.per_hour().dollars();
    let scarce = on_spot > full;
    let here = facts.running.map(|(plan, _)| plan.offer.market);
    let from = where_from(&spot.pool.spells, standing.work_most);
    let prices = format!(
        "an hour of work costs ${on_spot:.3} on spot machines that live {life:.1} h ({from}), and ${full:.3} on demand"
    );
    let (step, text) = match here {
        Some(Market::Spot) => (AutoStep::Stay, "the spot machine runs".to_owned()),
        Some(Market::OnDemand) => {
            // Two starts are paid: the one back, and the one after a refusal or an interruption.
            let gain = standing.work_left.unwrap_or(0.0).min(life)
                * (full - spot.hourly.per_hour().dollars());
            let chance = spot.chance(facts.now, 0.0);
            let worth = spot.there && !scarce && chance * gain > 2.0 * standing.start * full;
            (if worth { AutoStep::Move(Market::Spot) } else { AutoStep::Stay }, prices)
        }
        None if scarce && standing.unsaved >= standing.work_most => (
            AutoStep::Take(Market::OnDemand),
            format!("nothing is saved, so that each spot machine would begin anew: {prices}"),
        ),
        None if scarce => {
            (AutoStep::Take(Market::OnDemand), format!("the zone is scarce: {prices}"))
        }
        None if spot.there => (AutoStep::Take(Market::Spot), prices),
        None => {
            (AutoStep::Wait, "no spot machine is to be had now, and no deadline presses".to_owned())
        }
    };
    AutoVerdict {
        step,
        reason: Reason::new(facts.now, "market", step.word(), format!("{}: {text}", step.words()))
            .with("life_hours", life)
            .with("spot_usd_per_useful_hour", on_spot),
        until: None,
    }
}

/// Where the estimated life of a spot machine comes from, so that users can trust it.
fn where_from(spells: &ZoneSpells, work_most: f64) -> String {
    let from = match spells.there == ZoneSpells::default().there {
        true => "reckoned from recorded spot capacity: of this pool nothing was seen yet",
        false => "reckoned from what was seen of this pool",
    };
    let needed = if work_most < LIFE_HOURS_MAX {
        format!("; it is needed for {work_most:.1} h at most")
    } else {
        String::new()
    };
    format!("{from}{needed}")
}

fn under_deadline(
    watch: &mut MarketWatch,
    facts: &AutoFacts<'_>,
    standing: &WorkState,
    spot: &SpotPool<'_>,
    on_demand: UsdPerHour,
    time_left: f64,
) -> AutoVerdict {
    // Without an estimate of the work, all of the time is needed.
    let work_left = standing.work_left.unwrap_or((time_left - standing.start).max(0.1));
    let here = facts.running.map(|(plan, _)| plan.offer.market);
    let there = here == Some(Market::Spot) || spot.there;
    let since_look = spot.pool.hours_since_look(facts.now);
    let spells = match spot.pool.spells.seen() {
        _ if here == Some(Market::Spot) || !there => spot.pool.spells,
        Some(seen) if since_look <= GAP_HOURS_MAX => {
            if seen {
                spot.pool.spells
            } else {
                spot.pool.spells.begun()
            }
        }
        _ => spot.pool.spells.met(),
    };
    let asked = MarketFacts {
        time_left: time(time_left),
        work_left: time(work_left),
        tick: TICK,
        since_look: Duration::ZERO,
        spot: if there { Capacity::There } else { Capacity::Gone },
        running: running(facts, standing.start),
        startup: time(standing.start),
        unsaved: time(standing.unsaved),
        begins_anew: standing.begins_anew,
        spot_price: spot.hourly,
        on_demand_price: on_demand,
    };
    let verdict = watch.decide(&spells, spot.others, &asked);
    let chance = spot.chance(facts.now, 0.0);
    let step = match (here, verdict.step) {
        (None, MarketStep::Spot) => AutoStep::Take(Market::Spot),
        (None, MarketStep::OnDemand) => AutoStep::Take(Market::OnDemand),
        (None, MarketStep::Wait) => AutoStep::Wait,
        (Some(Market::Spot), MarketStep::OnDemand) => AutoStep::Move(Market::OnDemand),
        (Some(Market::OnDemand), _) => {
            // A refusal costs an on-demand start and its time.
            let late =
                MarketFacts { time_left: asked.time_left.saturating_sub(asked.startup), ..asked };
            let refused = watch.decide(&spells, spot.others, &late).on_demand_usd;
            let full = on_demand.per_hour().dollars();
            let loss = refused
                .zip(verdict.on_demand_usd)
                .map(|(refused, stay)| (refused - stay).max(0.0) + standing.start * full);
            let soon = spot.chance(facts.now, hours(LOOK_EVERY));
            let attempt = Try {
                spot: verdict.spot_usd,
                loss,
                waited: since_look,
                work: work_left,
                full,
                chance,
                soon,
            };
            if attempt.is_worth_it() { AutoStep::Move(Market::Spot) } else { AutoStep::Stay }
        }
        (Some(Market::Spot), _) => AutoStep::Stay,
    };
    let mut reason =
        Reason::new(facts.now, "market", step.word(), text(&verdict, step, standing.work_left))
            .with("slack_hours", verdict.slack_hours)
            .with("work_left_hours", work_left)
            .with("start_secs", standing.start * 3600.0)
            .with("spell_hours", verdict.spell_hours)
            .with("chance_there", chance);
    for (name, usd) in [
        ("wait_usd", verdict.wait_usd),
        ("spot_usd", verdict.spot_usd),
        ("on_demand_usd", verdict.on_demand_usd),
    ] {
        reason = reason.with(name, usd.unwrap_or(f64::NAN));
    }
    let spare = time(verdict.slack_hours - standing.start);
    let until =
        (step == AutoStep::Wait).then(|| facts.now.saturating_add(spare).unwrap_or(Timestamp::MAX));
    AutoVerdict { step, reason, until }
}

/// Leaving an on-demand machine for uncertain spot capacity. Without capacity, a start and its time
/// are wasted.
struct Try {
    /// Cost of the rest with spot, and cost of a refusal, in dollars.
    spot: Option<f64>,
    loss: Option<f64>,
    /// Hours since the last look at the pool.
    waited: f64,
    work: f64,
    full: f64,
    /// The chance of spot now, and at the next look.
    chance: f64,
    soon: f64,
}

impl Try {
    /// Whether it is cheaper than staying to the end, and no better at the next look. The chance
    /// grows with the time since a refusal, while the full price is paid. A refusal starts this
    /// over.
    fn is_worth_it(&self) -> bool {
        let (Some(spot), Some(loss)) = (self.spot, self.loss) else { return false };
        let gain = self.chance * (self.work * self.full - spot);
        let fails = (1.0 - self.chance) * loss;
        let pays_hourly = self.full - spot / self.work;
        if gain <= fails || pays_hourly <= 0.0 {
            return false;
        }
        let grows = self.soon - self.chance;
        // Long after the last look, waiting gains nothing.
        let round =
            if grows > 1e-9 { (pays_hourly * self.waited + fails) / self.chance } else { 0.0 };
        grows * (loss + round) <= pays_hourly * hours(LOOK_EVERY)
    }
}

/// The running machine, and its remaining start time.
fn running(facts: &AutoFacts<'_>, start_hours: f64) -> Running {
    let Some((plan, status)) = facts.running else { return Running::Nothing };
    let works = status.is_some_and(|status| status.working_since.is_some());
    let startup_left = if works {
        Duration::ZERO
    } else {
        time(start_hours).saturating_sub(elapsed(plan.created, facts.now))
    };
    match plan.offer.market {
        Market::Spot => Running::Spot { startup_left },
        Market::OnDemand => Running::OnDemand { startup_left },
    }
}

fn text(verdict: &MarketVerdict, step: AutoStep, work_left: Option<f64>) -> String {
    let usd = |what: &str, usd: Option<f64>| usd.map(|usd| format!("${usd:.2} {what}"));
    let costs = [
        usd("with spot now", verdict.spot_usd),
        usd("on demand now", verdict.on_demand_usd),
        usd("waiting now", verdict.wait_usd),
    ];
    let costs: Vec<String> = costs.into_iter().flatten().collect();
    let why = match verdict.because {
        Because::Cheapest => {
            format!("the rest is expected to cost {}{}", costs.join(", "), verdict.passes_over())
        }
        Because::OnlySafe => "anything else could miss the deadline".to_owned(),
        Because::Late => {
            "the deadline can no longer be promised: the fastest way to the end".to_owned()
        }
        Because::Done => "no work is left".to_owned(),
        Because::Unsaved => UNSAVED.to_owned(),
    };
    let known = match work_left {
        Some(left) => format!("{left:.1} h of work and {:.1} h to spare", verdict.slack_hours),
        None => "how much work is left nobody has said yet (`limits.work`, or `step` and `total` as progress)".to_owned(),
    };
    format!("{}: {known}; {why}", step.words())
}

impl AutoStep {
    /// The stable word, for records.
    pub fn word(self) -> &'static str {
        match self {
            AutoStep::Take(Market::Spot) => "spot",
            AutoStep::Take(Market::OnDemand) => "on_demand",
            AutoStep::Wait => "wait",
            AutoStep::Stay => "stay",
            AutoStep::Move(Market::Spot) => "move_to_spot",
            AutoStep::Move(Market::OnDemand) => "move_to_on_demand",
        }
    }

    fn words(self) -> &'static str {
        match self {
            AutoStep::Take(Market::Spot) => "a spot machine",
            AutoStep::Take(Market::OnDemand) => "a machine on demand",
            AutoStep::Wait => "a cheaper machine than one on demand",
            AutoStep::Stay => "this machine",
            AutoStep::Move(Market::Spot) => "back to spot",
            AutoStep::Move(Market::OnDemand) => "on to a machine on demand",
        }
    }
}
