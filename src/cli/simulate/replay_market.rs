//! `lamp replay market --stdio`: another program asks the market rule tick by tick, one JSON object
//! a line.
//!
//! ```text
//!   {"tick":0,"elapsed":0,"tick_seconds":600,"has_spot":true,"remaining":172800,"deadline":187200,
//!    "overhead":720,"overhead_left":0,"current":"none","price_spot":0.97,"price_on_demand":3.06}
//!       ->  spot | on_demand | none
//! ```
//!
//! Seconds and dollars per hour; other fields are ignored. Tick 0 begins a run and forgets the run
//! before, which may be from another zone. `has_spot: null` means unknown. With `-o jsonl` the
//! answer is the verdict with its reason and numbers. Not here: a rule.

use std::io::BufRead;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::Deserialize;

use crate::cli::{Context, ExitCode, Fault, Format};
use crate::market::{Usd, UsdPerHour};
use crate::policy::market::deadline_choice::{
    Capacity, MarketFacts, MarketStep, MarketVerdict, MarketWatch, Running,
};

/// Spot, on-demand or wait, under a deadline: a question a line, an answer a line
///
/// A question is one JSON object: seconds, and dollars per hour.
///
/// {"tick": 0, "elapsed": 0, "tick_seconds": 600, "has_spot": true, "remaining": 172800,
/// "deadline": 187200, "overhead": 720, "overhead_left": 0, "current": "none", "price_spot": 0.97,
/// "price_on_demand": 3.06}
///
/// `tick` 0 begins a run; `elapsed` is since it began, as `deadline` is; `tick_seconds` to the next
/// question, more than 0; `has_spot` true, false, or null when unknown; `remaining` the
/// work that is left; `overhead` what a start takes, and `overhead_left` (default 0) what is left
/// of one under way; `current`, what runs: none, spot or on_demand; `unsaved` (default 0) the work
/// that is lost when spot goes, and `begins_anew` (default false) whether that is all of its work,
/// because nothing is saved. Other fields are ignored. The answer is a word: spot, on_demand or
/// none; with -o jsonl it is the verdict with its reason and numbers.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Read questions from stdin and answer each on stdout
    #[arg(long, required = true)]
    pub stdio: bool,
}

/// A question. Times in seconds, prices in dollars per hour.
#[derive(Clone, Debug, Deserialize)]
struct Question {
    tick: u64,
    elapsed: f64,
    tick_seconds: f64,
    has_spot: Option<bool>,
    remaining: f64,
    deadline: f64,
    overhead: f64,
    #[serde(default)]
    overhead_left: f64,
    current: Current,
    price_spot: f64,
    price_on_demand: f64,
    /// Work that an interruption loses.
    #[serde(default)]
    unsaved: f64,
    /// Nothing is saved, and `unsaved` is all of the job's work.
    #[serde(default)]
    begins_anew: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Current {
    None,
    Spot,
    OnDemand,
}

/// # Errors
/// Fails on a line that is not a question; the lines before it are answered.
pub fn run(_: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let (mut watch, mut last_elapsed) = (MarketWatch::default(), 0.0);
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let broken = |error: &(dyn std::error::Error + 'static)| {
            Fault::new(ExitCode::FINDINGS, format!("line {} is not a question", number + 1))
                .because(error)
                .hint("`lamp replay market --help` says what is asked; docs/cli-json.md has an example")
        };
        let line = line.map_err(|error| broken(&error))?;
        if line.trim().is_empty() {
            continue;
        }
        let question: Question = serde_json::from_str(&line).map_err(|error| broken(&error))?;
        if question.tick == 0 {
            (watch, last_elapsed) = (MarketWatch::default(), question.elapsed);
        }
        let facts = question.facts(last_elapsed).map_err(|error| broken(&*error))?;
        last_elapsed = question.elapsed;
        let verdict = watch.step(&facts);
        match context.printer.format() {
            Format::Text => context.printer.line(word(&verdict)),
            Format::Json | Format::Jsonl => context.printer.json(&verdict),
        }
        if context.printer.reader_is_gone() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn word(verdict: &MarketVerdict) -> &'static str {
    match verdict.step {
        MarketStep::Spot => "spot",
        MarketStep::OnDemand => "on_demand",
        MarketStep::Wait => "none",
    }
}

impl Question {
    /// Refuses numbers that are not a valid time or price.
    fn facts(&self, last_elapsed: f64) -> Result<MarketFacts, Box<dyn std::error::Error>> {
        let span = |secs: f64| Duration::try_from_secs_f64(secs);
        let price = |name: &str, dollars: f64| {
            if dollars < 0.0 {
                return Err(format!("`{name}` is {dollars}: a price is 0 or more").into());
            }
            Usd::from_dollars(dollars)
                .map(UsdPerHour::new)
                .map_err(Box::<dyn std::error::Error>::from)
        };
        if span(self.tick_seconds)?.is_zero() {
            return Err("`tick_seconds` is 0: it is the time to the next question".into());
        }
        let startup_left = span(self.overhead_left)?;
        Ok(MarketFacts {
            time_left: span((self.deadline - self.elapsed).max(0.0))?,
            work_left: span(self.remaining)?,
            tick: span(self.tick_seconds)?,
            since_look: span((self.elapsed - last_elapsed).max(0.0))?,
            spot: match self.has_spot {
                Some(true) => Capacity::There,
                Some(false) => Capacity::Gone,
                None => Capacity::Unknown,
            },
            running: match self.current {
                Current::None => Running::Nothing,
                Current::Spot => Running::Spot { startup_left },
                Current::OnDemand => Running::OnDemand { startup_left },
            },
            startup: span(self.overhead)?,
            unsaved: span(self.unsaved)?,
            begins_anew: self.begins_anew,
            spot_price: price("price_spot", self.price_spot)?,
            on_demand_price: price("price_on_demand", self.price_on_demand)?,
        })
    }
}
