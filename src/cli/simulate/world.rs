//! `lamp simulate` in a simulated world: the shipped controller and agent run the job many times.
//!
//! ```text
//!   --trace, or courses drawn for the pool ──┐
//!   --prices, or the current price ──────────┼──> one world for each run and market ──> Ran
//! ```
//!
//! Not here: the market choice alone (`policy::market::replay`), or how either is shown
//! (`simulate::text`).

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

use crate::app::text::counted;
use crate::cli::output::printer::CLEAR;
use crate::cli::output::wrap::cut;
use crate::cli::shell::ctrl_c;
use crate::cli::{Context, Printer, Stream};
use crate::job::{MarketChoice, ResolvedSpec};
use crate::market::UsdPerHour;
use crate::policy::market::pool_history::Pool;
use crate::policy::market::replay::{Drawn, Goes, Play, Ran, Unfinished};
use crate::wire::simulator::{Course, Lived, OwnJob, PriceRound, live_all};
use crate::wire::{CapacityTrace, ClockHandle};

/// All three markets take about half a minute of two processors, mostly waiting for capacity. Fewer
/// runs show no spread; more take too long.
const HOURS_LIVED: f64 = 200.0;
const RUNS: (u32, u32) = (10, 40);

/// Longer work takes minutes, whatever the number of runs.
const LONG: Duration = Duration::from_secs(3 * 24 * 3600);

pub fn courses(play: &Play) -> u32 {
    let hours = (play.work + play.start).as_secs_f64() / 3600.0;
    ((HOURS_LIVED / hours) as u32).clamp(RUNS.0, RUNS.1)
}

pub struct Worlds<'a> {
    pub spec: &'a ResolvedSpec,
    pub play: &'a Play,
    pub pool: &'a Pool,
    /// The part of its prices besides the machine; `None`: unknown.
    pub extras: Option<UsdPerHour>,
    pub traces: &'a [CapacityTrace],
    pub prices: Option<&'a Arc<PriceRound>>,
    pub times: u32,
    pub now: Timestamp,
}

pub struct Played {
    /// By market, in their order, each on the same courses.
    pub ran: Vec<Vec<Ran>>,
    /// Courses completed in every market, and courses planned. All recordings are played equally
    /// often.
    pub courses: (u32, u32),
    /// The user left before the last one.
    pub is_cut: bool,
    pub lived: usize,
    /// The first law that `lamp` broke in each world: bugs of `lamp`.
    pub broken: Vec<String>,
}

/// All runs of some markets. If the user leaves, only courses that are complete in every market
/// count.
pub fn runs(worlds: &Worlds<'_>, markets: &[(MarketChoice, Goes)], context: &Context) -> Played {
    let courses = spread(worlds.courses());
    let Worlds { spec, play, now, .. } = *worlds;
    let extras = worlds.extras.unwrap_or(UsdPerHour::ZERO);
    let on = |(seed, course): (u64, Course)| {
        markets.iter().map(move |(_, goes)| OwnJob {
            spec,
            play,
            goes: *goes,
            extras,
            course: course.clone(),
            seed,
            now,
        })
    };
    let jobs: Vec<OwnJob<'_>> = courses.iter().cloned().flat_map(on).collect();
    if play.work > LONG {
        context.printer.note("a world of a day takes a second or two: this may take minutes; --quick plays the choice of the market alone, at once");
    }
    let has_left = ctrl_c::raised_when_left();
    let shown = ProgressNote::new(context, jobs.len());
    let lived = live_all(&jobs, |done| {
        shown.tell(done);
        !has_left.load(Ordering::Relaxed)
    });
    shown.clear();
    let alone = lived.iter().flatten().count();
    let whole: Vec<Vec<Lived>> = whole(lived, markets.len());
    let broken: Vec<String> = whole.iter().flatten().filter_map(broken).collect();
    tell(context, markets, &whole, &broken);
    let ran = (0..markets.len())
        .map(|market| whole.iter().map(|lived| lived[market].ran).collect())
        .collect();
    let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    Played {
        ran,
        courses: (number(whole.len()), number(courses.len())),
        is_cut: whole.len() < courses.len(),
        lived: alone,
        broken,
    }
}

/// The courses that are complete in every market.
fn whole(lived: Vec<Option<Lived>>, markets: usize) -> Vec<Vec<Lived>> {
    let mut lived = lived.into_iter();
    std::iter::from_fn(|| {
        Some(lived.by_ref().take(markets).collect::<Vec<_>>()).filter(|course| !course.is_empty())
    })
    .filter_map(|course| course.into_iter().collect())
    .collect()
}

/// Ordered so that the first few are far apart: the user may leave before the rest.
fn spread<T: Clone>(courses: Vec<T>) -> Vec<(u64, T)> {
    let many = courses.len();
    // Any stride without a common divisor works; the golden ratio keeps all gaps short.
    let shares =
        |stride: usize| (2..=stride).any(|by| stride.is_multiple_of(by) && many.is_multiple_of(by));
    let stride =
        ((many as f64 * 0.618).round() as usize..).find(|stride| !shares(*stride)).unwrap_or(1);
    (0..many).map(|at| at * stride % many).map(|at| (at as u64 + 1, courses[at].clone())).collect()
}

impl Worlds<'_> {
    /// The same ones for every market.
    fn courses(&self) -> Vec<Course> {
        let times = self.times as usize;
        let share = |run: usize, of: usize| run as f64 / of as f64;
        if self.traces.is_empty() {
            let looks = (self.play.given_up_after().as_secs_f64() / self.play.tick.as_secs_f64())
                .ceil() as usize;
            let drawn = |run: usize| {
                // The same seeds as for the market choice alone.
                let mut course = Drawn::new(run as u64 + 1, &self.pool.spells, self.play.tick);
                let there = (0..looks).map(|_| course.step()).collect();
                Course {
                    tick: self.play.tick,
                    there,
                    first: 0,
                    prices: self.prices.cloned(),
                    begins: self.begins(share(run, times), None),
                }
            };
            return (0..times).map(drawn).collect();
        }
        let each = times.div_ceil(self.traces.len());
        let begun = |trace: &CapacityTrace, there: Arc<[bool]>, run: usize| {
            let first = run * trace.there.len() / each;
            let after = trace.tick.saturating_mul(u32::try_from(first).unwrap_or(u32::MAX));
            Course {
                tick: trace.tick,
                there,
                first,
                prices: self.prices.cloned(),
                begins: self.begins(share(run, each), Some(after)),
            }
        };
        let shared =
            self.traces.iter().map(|trace| (trace, Arc::<[bool]>::from(trace.there.as_slice())));
        shared
            .flat_map(|(trace, there)| {
                (0..each).map(move |run| begun(trace, Arc::clone(&there), run))
            })
            .collect()
    }

    /// Where in the recorded prices a world begins: at a share of them, or `after` the first one.
    fn begins(&self, share: f64, after: Option<Duration>) -> Duration {
        self.prices.map_or(Duration::ZERO, |prices| {
            after.unwrap_or_else(|| prices.length().mul_f64(share))
        })
    }
}

/// Prints what the table leaves out: ends by other causes, and broken laws.
fn tell(
    context: &Context,
    markets: &[(MarketChoice, Goes)],
    courses: &[Vec<Lived>],
    broken: &[String],
) {
    for (at, (market, _)) in markets.iter().enumerate() {
        let otherwise = courses
            .iter()
            .map(|lived| &lived[at])
            .filter(|one| one.ran.unfinished == Some(Unfinished::Otherwise));
        if let Some(receipt) = otherwise.filter_map(|one| one.receipt.as_ref()).next() {
            context.printer.note(format!(
                "{}: one that ended otherwise, in the words of its receipt: {}",
                word(*market),
                receipt.reason
            ));
        }
    }
    if let Some(first) = broken.first() {
        context.printer.warn(format!(
            "in {} of {} worlds lamp broke a law of its own, which is a mistake of lamp and not of this job; please report it with this command and its job file ({first})",
            broken.len(),
            courses.iter().flatten().count(),
        ));
    }
}

/// The first law that was broken in a world; `None`: all held.
fn broken(lived: &Lived) -> Option<String> {
    lived.violations.first().map(|violation| {
        format!("law {}, after {} s: {}", violation.law, violation.at_secs, violation.what)
    })
}

pub fn word(market: MarketChoice) -> &'static str {
    match market {
        MarketChoice::Auto => "auto",
        MarketChoice::Spot => "spot",
        MarketChoice::OnDemand => "on-demand",
    }
}

struct ProgressNote<'a> {
    printer: &'a Printer,
    of: usize,
    began: Duration,
    clock: &'a ClockHandle,
    /// The width of the terminal; `None`: there is none.
    width: Option<usize>,
    far: Mutex<Reckoned>,
}

#[derive(Default)]
struct Reckoned {
    /// The tenth of a second when it was last shown.
    tenth: u128,
    done: usize,
    at: Duration,
    line: Duration,
}

impl Reckoned {
    fn text(&self, took: Duration, of: usize) -> String {
        // At the speed so far; the length of an unfinished world is unknown.
        let whole = self.at.mul_f64(of as f64 / self.done.max(1) as f64);
        let left = match whole.saturating_sub(took).as_secs() {
            _ if self.done == 0 => String::new(),
            left => format!(", about {left} s left"),
        };
        format!("world {} of {of}{left}", (self.done + 1).min(of))
    }
}

/// Progress is shown after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Milliseconds between two updates.
const TENTH: u128 = 100;

/// Between two lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

impl<'a> ProgressNote<'a> {
    fn new(context: &'a Context, of: usize) -> Self {
        let terminal = std::io::stderr().is_terminal()
            && !context.is_machine_output()
            && !context.printer.is_quiet();
        if !terminal {
            context.printer.note(format!("living through {} ...", counted(of as u64, "world")));
        }
        let width = terminal.then(|| context.printer.columns(Stream::Err).unwrap_or(NARROW));
        ProgressNote {
            printer: &context.printer,
            of,
            began: context.clock.mono(),
            clock: &context.clock,
            width,
            far: Mutex::default(),
        }
    }

    /// Shows it, on a terminal at most ten times a second.
    fn tell(&self, done: usize) {
        let took = self.clock.mono().saturating_sub(self.began);
        let mut far = self
            .far
            .lock()
            .expect("it is only counted, so no thread panics while it holds the lock");
        if far.done != done {
            (far.done, far.at) = (done, took);
        }
        let Some(width) = self.width else {
            if took.saturating_sub(far.line) >= LINE_EVERY {
                far.line = took;
                self.printer.note(far.text(took, self.of));
            }
            return;
        };
        let tenth = took.as_millis() / TENTH;
        if took <= PATIENCE || far.tenth == tenth {
            return;
        }
        far.tenth = tenth;
        let line = format!("{}; Ctrl-C shows what there is", far.text(took, self.of));
        self.printer.raw_err(&format!("{CLEAR}{}", cut(&line, width.saturating_sub(1))));
    }

    fn clear(&self) {
        if self.width.is_some() {
            self.printer.raw_err(CLEAR);
        }
    }
}

const NARROW: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is_is_told_by_the_worlds_that_are_over() {
        let secs = Duration::from_secs;
        let far = |done, at| Reckoned { done, at: secs(at), ..Reckoned::default() };
        assert_eq!(far(0, 0).text(secs(15), 72), "world 1 of 72");
        assert_eq!(far(12, 30).text(secs(30), 72), "world 13 of 72, about 150 s left");
        assert_eq!(
            far(12, 30).text(secs(45), 72),
            "world 13 of 72, about 135 s left",
            "the one that is under way counts down"
        );
        assert_eq!(far(72, 180).text(secs(180), 72), "world 72 of 72, about 0 s left");
    }

    #[test]
    fn first_few_courses_lie_as_far_from_one_another_as_all_do() {
        for many in 1..200_usize {
            let mut order: Vec<u64> = spread((1..=many as u64).collect::<Vec<_>>())
                .into_iter()
                .map(|(number, course)| number * u64::from(number == course))
                .collect();
            let half = &order[..many.div_ceil(2)];
            let above = half.iter().filter(|number| **number > many as u64 / 2).count();
            assert!(
                many < 8 || (half.len() / 3..=half.len() * 2 / 3).contains(&above),
                "{many}: {half:?}"
            );
            order.sort_unstable();
            assert_eq!(
                order,
                (1..=many as u64).collect::<Vec<_>>(),
                "each once, with its own number"
            );
        }
    }
}
