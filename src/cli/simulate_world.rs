//! `lamp simulate` in the false world: the shipped controller and agent live the job through, many times.
//!
//! ```text
//!   --trace, or courses drawn from the law of the pool ──┐
//!   --prices, or the price of now ───────────────────────┼──> one world a run and market (wire::worlds) ──> Ran
//! ```
//! What must never live here: the playing of the choice alone (`policy::market_run`), or how either is shown (`simulate_text`).

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::table::counted;
use super::{Context, Printer};
use crate::job::{MarketChoice, ResolvedSpec};
use crate::market::UsdPerHour;
use crate::policy::market_run::{Drawn, Goes, Play, Ran, Unfinished};
use crate::policy::pool::Pool;
use crate::wire::worlds::{Course, Lived, OwnJob, PriceRound, live_all};
use crate::wire::{CapacityTrace, Clock};

/// Hours of work that are lived through in one market where nobody says how often: about half a minute of two processors for all
/// three, of which the waiting for capacity is the most. Fewer runs show no spread, and more are waited for; `--runs` says otherwise.
const HOURS_LIVED: f64 = 200.0;
const RUNS: (u32, u32) = (10, 40);

/// Longer work is minutes of playing, whatever the number of runs.
const LONG: Duration = Duration::from_secs(3 * 24 * 3600);

/// How many worlds of a job are worth their time.
pub fn courses(play: &Play) -> u32 {
    let hours = (play.work + play.start).as_secs_f64() / 3600.0;
    ((HOURS_LIVED / hours) as u32).clamp(RUNS.0, RUNS.1)
}

/// What the worlds are made of.
pub struct Worlds<'a> {
    pub spec: &'a ResolvedSpec,
    pub play: &'a Play,
    pub pool: &'a Pool,
    /// What of its prices stands beside the machine; `None`: nobody knows.
    pub extras: Option<UsdPerHour>,
    pub traces: &'a [CapacityTrace],
    pub prices: Option<&'a Arc<PriceRound>>,
    pub times: u32,
    pub now: Timestamp,
}

/// All runs of some markets, in their order.
pub fn runs(worlds: &Worlds<'_>, markets: &[(MarketChoice, Goes)], context: &Context) -> (u32, Vec<Vec<Ran>>) {
    let courses = worlds.courses();
    let Worlds { spec, play, now, .. } = *worlds;
    let extras = worlds.extras.unwrap_or(UsdPerHour::ZERO);
    let of = |goes: Goes| (1..).zip(courses.clone()).map(move |(seed, course)| OwnJob { spec, play, goes, extras, course, seed, now });
    let jobs: Vec<OwnJob<'_>> = markets.iter().flat_map(|(_, goes)| of(*goes)).collect();
    if play.work > LONG {
        context.printer.note("a world of a day takes a second or two: this may take minutes; --quick plays the choice of the market alone, at once");
    }
    let shown = Shown::new(context, jobs.len());
    let lived = live_all(&jobs, |done| shown.done(done));
    shown.clear();
    tell(context, markets, &courses, &lived);
    let ran = lived.chunks(courses.len()).map(|lived| lived.iter().map(|one| one.ran).collect()).collect();
    // Of several recordings each is played as often.
    (u32::try_from(courses.len()).unwrap_or(u32::MAX), ran)
}

impl Worlds<'_> {
    /// The same ones for every market.
    fn courses(&self) -> Vec<Course> {
        let times = self.times as usize;
        let share = |run: usize, of: usize| run as f64 / of as f64;
        if self.traces.is_empty() {
            let looks = (self.play.given_up_after().as_secs_f64() / self.play.tick.as_secs_f64()).ceil() as usize;
            let drawn = |run: usize| {
                // Those of the choice alone have the same seeds.
                let mut course = Drawn::new(run as u64 + 1, &self.pool.spells, self.play.tick);
                let there = (0..looks).map(|_| course.step()).collect();
                Course { tick: self.play.tick, there, first: 0, prices: self.prices.cloned(), begins: self.begins(share(run, times), None) }
            };
            return (0..times).map(drawn).collect();
        }
        let each = times.div_ceil(self.traces.len());
        let begun = |trace: &CapacityTrace, there: Arc<[bool]>, run: usize| {
            let first = run * trace.there.len() / each;
            let after = trace.tick.saturating_mul(u32::try_from(first).unwrap_or(u32::MAX));
            Course { tick: trace.tick, there, first, prices: self.prices.cloned(), begins: self.begins(share(run, each), Some(after)) }
        };
        let shared = self.traces.iter().map(|trace| (trace, Arc::<[bool]>::from(trace.there.as_slice())));
        shared.flat_map(|(trace, there)| (0..each).map(move |run| begun(trace, Arc::clone(&there), run))).collect()
    }

    /// With which moment of the recorded prices a world begins: at some share of them, or so long after the first.
    fn begins(&self, share: f64, after: Option<Duration>) -> Duration {
        self.prices.map_or(Duration::ZERO, |prices| after.unwrap_or_else(|| prices.length().mul_f64(share)))
    }
}

/// What the table does not say: another end than those of the limits, and what no world should ever show.
fn tell(context: &Context, markets: &[(MarketChoice, Goes)], courses: &[Course], lived: &[Lived]) {
    for ((market, _), lived) in markets.iter().zip(lived.chunks(courses.len())) {
        let otherwise = lived.iter().filter(|one| one.ran.unfinished == Some(Unfinished::Otherwise));
        if let Some(receipt) = otherwise.filter_map(|one| one.receipt.as_ref()).next() {
            context.printer.note(format!("{}: one that ended otherwise, in the words of its receipt: {}", word(*market), receipt.reason));
        }
    }
    let broken: Vec<&Lived> = lived.iter().filter(|one| !one.violations.is_empty()).collect();
    if let Some(violation) = broken.iter().find_map(|one| one.violations.first()) {
        context.printer.warn(format!(
            "in {} of {} worlds lamp broke a law of its own, which is a mistake of lamp and not of this job; please report it with this command (law {}, after {} s: {})",
            broken.len(),
            lived.len(),
            violation.law,
            violation.at_secs,
            violation.what
        ));
    }
}

pub fn word(market: MarketChoice) -> &'static str {
    match market {
        MarketChoice::Auto => "auto",
        MarketChoice::Spot => "spot",
        MarketChoice::OnDemand => "on-demand",
    }
}

/// How far it is, for whoever waits longer than a second.
struct Shown<'a> {
    printer: &'a Printer,
    of: usize,
    began: Duration,
    clock: &'a Clock,
    terminal: bool,
}

/// Whoever waits longer than this wants to see something.
const PATIENCE: Duration = Duration::from_secs(1);

impl<'a> Shown<'a> {
    fn new(context: &'a Context, of: usize) -> Self {
        let terminal = std::io::stderr().is_terminal() && !context.is_machine_output() && !context.printer.is_quiet();
        if !terminal {
            context.printer.note(format!("living through {} ...", counted(of as u64, "world")));
        }
        Shown { printer: &context.printer, of, began: context.clock.mono(), clock: &context.clock, terminal }
    }

    fn done(&self, done: usize) {
        let took = self.clock.mono().saturating_sub(self.began);
        if self.terminal && took > PATIENCE {
            let left = took.mul_f64((self.of - done) as f64 / done.max(1) as f64).as_secs();
            self.printer.raw_err(&format!("\r\u{1b}[2Kliving through worlds: {done} of {}, {left} s left", self.of));
        }
    }

    fn clear(&self) {
        if self.terminal {
            self.printer.raw_err("\r\u{1b}[2K");
        }
    }
}
