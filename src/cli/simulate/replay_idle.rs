//! `lamp replay idle FILE`: the idle and stall rules on a recorded series, each change of verdict
//! with its numbers. `lamp replay market` is in `replay_market`.
//!
//! Not here: the replay (`app::analysis::idle_replay`), or a rule.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::replay_market;
use crate::app::analysis::idle_replay::{Replayed, ReplayedVerdict, replay_idle};
use crate::cli::{Context, ExitCode, Fault, Format};
use crate::job::{IdleSpec, RECORD_FORMAT, StallSpec};
use crate::market::Span;
use crate::policy::{WatchAction, WatchVerdict};
use crate::wire::{SeriesError, read_series};

/// Run a rule over a recording
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    pub rule: Rule,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Rule {
    Idle(IdleArgs),
    Market(replay_market::Args),
}

/// The idle and stall rules over recorded samples: each change of verdict with its numbers
#[derive(Clone, Debug, ClapArgs)]
pub struct IdleArgs {
    /// A CSV with the columns `t_seconds` and `gpu_util_pct` (also gpu_index, gpu_mem_used_mib,
    /// cpu_util_pct), or recorded samples as JSON lines, also `.zst`; several are read one after
    /// the other
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A second CSV for the same time: proc_cpu_pct, disk_*_mb_cum, net_*_mb_cum, gpu_power_w_total
    #[arg(long, value_name = "CSV")]
    pub host: Option<PathBuf>,
    /// The GPUs that count [default: all]
    #[arg(long, value_delimiter = ',', value_name = "INDICES")]
    pub gpus: Vec<u32>,
    /// The least quiet time that counts as idle [default: 5m]
    #[arg(long, value_name = "SPAN")]
    pub window: Option<Span>,
    /// Wait this long for a verdict unless the work was seen to begin [default: 15m]
    #[arg(long, value_name = "SPAN")]
    pub grace: Option<Span>,
    /// GPU utilisation up to this is quiet, percent [default: 1]
    #[arg(long, value_name = "PERCENT")]
    pub gpu_percent: Option<f64>,
    /// CPU of the workload up to this is quiet, percent of one core [default: 5]
    #[arg(long, value_name = "PERCENT")]
    pub cpu_percent: Option<f64>,
    /// The least time without progress that counts as stalled [default: 20m]
    #[arg(long, value_name = "SPAN")]
    pub stall_window: Option<Span>,
}

/// # Errors
/// Fails when a recording cannot be read, or has a broken line.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    match &args.rule {
        Rule::Idle(args) => run_idle(args, context),
        Rule::Market(args) => replay_market::run(args, context),
    }
}

fn run_idle(args: &IdleArgs, context: &Context) -> Result<ExitCode, Fault> {
    let gpus = (!args.gpus.is_empty()).then_some(args.gpus.as_slice());
    let series = read_series(&args.files, args.host.as_deref(), gpus)?;
    let replayed = replay_idle(&series, &args.idle_spec(), &args.stall_spec());
    match context.printer.format() {
        Format::Text => replayed.lines().iter().for_each(|line| context.printer.line(line)),
        Format::Json => context.printer.json(&replayed.to_json()),
        Format::Jsonl => {
            replayed.changes.iter().for_each(|change| context.printer.json(&change.to_json()))
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl From<SeriesError> for Fault {
    fn from(error: SeriesError) -> Self {
        match &error {
            SeriesError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Fault::from_error(ExitCode::NOT_FOUND, &error)
            }
            SeriesError::File { .. } => Fault::from_error(ExitCode::UNREACHABLE, &error),
            SeriesError::Line { .. } | SeriesError::Empty { .. } => {
                Fault::from_error(ExitCode::FINDINGS, &error)
                    .hint("`lamp replay idle --help` says what a recording looks like")
            }
        }
    }
}

impl IdleArgs {
    fn idle_spec(&self) -> IdleSpec {
        let default = IdleSpec::default();
        IdleSpec {
            window: self.window.or(default.window),
            gpu_percent: self.gpu_percent.unwrap_or(default.gpu_percent),
            cpu_percent: self.cpu_percent.unwrap_or(default.cpu_percent),
            io_bytes_per_sec: default.io_bytes_per_sec,
            grace: self.grace.unwrap_or(default.grace),
        }
    }

    fn stall_spec(&self) -> StallSpec {
        let default = StallSpec::default();
        StallSpec { window: self.stall_window.or(default.window), ..default }
    }
}

impl ReplayedVerdict {
    /// The stable form: one flat object with words and numbers.
    pub fn to_json(&self) -> Value {
        let mut object = Map::from_iter([
            ("t_seconds".to_owned(), json!(self.t_secs)),
            ("verdict".to_owned(), word(self.verdict.standing)),
            ("action".to_owned(), json!(action_word(self.verdict.action))),
            ("rule".to_owned(), json!(self.rule)),
            ("reason".to_owned(), json!(self.verdict.text)),
        ]);
        object.extend(
            self.verdict.numbers.iter().map(|(name, number)| ((*name).to_owned(), json!(number))),
        );
        Value::Object(object)
    }

    fn line(&self) -> String {
        let WatchVerdict { standing, action, text, .. } = &self.verdict;
        let action = if *action == WatchAction::None {
            String::new()
        } else {
            word(action).as_str().unwrap_or_default().to_owned()
        };
        format!("{:>9}  {:<9} {action:<8} {text}", clock(self.t_secs), standing.word())
    }
}

impl Replayed {
    fn to_json(&self) -> Value {
        json!({
            "format": RECORD_FORMAT,
            "samples": self.samples,
            "seconds": self.secs,
            "stall_judged": self.stall_judged,
            "first_stop": self.first_stop().map(ReplayedVerdict::to_json),
            "changes": self.changes.iter().map(ReplayedVerdict::to_json).collect::<Vec<_>>(),
            "last": { "verdict": word(self.last.standing), "action": action_word(self.last.action), "reason": self.last.text },
        })
    }

    /// For people: a line for each change, then a summary.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.changes.iter().map(ReplayedVerdict::line).collect();
        let stop = match self.first_stop() {
            Some(change) => {
                format!("the {} rule would have ended it at {}", change.rule, clock(change.t_secs))
            }
            None => "no rule would have ended it".to_owned(),
        };
        let stall = if self.stall_judged {
            ""
        } else {
            " (no marks of progress recorded: stalls were not judged)"
        };
        lines.push(format!("{} samples over {}: {stop}{stall}", self.samples, clock(self.secs)));
        lines.push(format!("at the end {}: {}", self.last.standing, self.last.text));
        lines
    }
}

/// The four words that other programs know. Recording the stacks counts as `notify`.
fn action_word(action: WatchAction) -> &'static str {
    match action {
        WatchAction::None => "none",
        WatchAction::Notify | WatchAction::Stacks => "notify",
        WatchAction::Restart => "restart",
        WatchAction::Stop => "stop",
    }
}

fn word(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("a plain enum has a word")
}

fn clock(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    format!("{}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{Rates, Reading};

    #[test]
    fn hung_job_is_told_in_the_four_action_words_of_the_format() {
        let hung = |minute: i32| Rates {
            t_secs: f64::from(minute * 60),
            interval_secs: 60.0,
            gpu_percent: Reading::Known(100.0),
            progress_marks: Reading::Known(f64::from(u8::from(minute < 60))),
            ..Rates::default()
        };
        let series: Vec<Rates> = (0..120).map(hung).collect();
        let replayed = replay_idle(&series, &IdleSpec::default(), &StallSpec::default());
        assert!(
            replayed.stall_judged
                && replayed
                    .changes
                    .iter()
                    .any(|change| change.verdict.action == WatchAction::Stacks),
            "{replayed:?}"
        );
        let told: Vec<Value> = replayed
            .changes
            .iter()
            .map(ReplayedVerdict::to_json)
            .filter(|change| change["verdict"] == "stalled")
            .collect();
        let actions: Vec<&str> =
            told.iter().filter_map(|change| change["action"].as_str()).collect();
        assert_eq!(actions, ["notify", "notify", "restart"], "{told:?}");
    }
}
