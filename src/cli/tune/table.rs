//! A tuning as text: a table with the best trial first, and bars.
//!
//! Not here: its plots (`plots`).

use serde_json::Value;

use crate::app::text::{counted, local_time};
use crate::app::tune::step::in_words;
use crate::app::tune::view::{TrialRow, TuneView};
use crate::cli::{Context, Give, Stream, render_table_within};
use crate::market::Span;

/// A narrow terminal cuts the values.
pub const GIVE: Give<'static> = Give { cut: &[3], go: &[] };

/// Rows shown. More than a screen hides the best ones.
const ROWS_MAX: usize = 40;

pub fn print(context: &Context, view: &TuneView) {
    headline(view).into_iter().for_each(|line| context.printer.note(line));
    if view.is_undriven() {
        context.printer.warn("no process drives it: no further trial starts or is judged");
        context.printer.hint(format!("`lamp tune drive {}` goes on with it", view.tuning));
    }
    if !view.trials.is_empty() {
        let columns = context.printer.columns(Stream::Out);
        context.printer.line(table(view, columns));
    }
    if view.trials.len() > ROWS_MAX {
        let more = view.trials.len() - ROWS_MAX;
        context.printer.note(format!("and {} more", counted(more as u64, "trial")));
        context.printer.hint(format!("`lamp tune status {} -o json` has all", view.tuning));
    }
    for trial in view.trials.iter().filter(|trial| trial.state == "failed").take(3) {
        context.printer.warn(format!("trial {} failed: {}", trial.number, trial.reason));
        context.printer.hint(format!("`lamp logs {}` shows what it printed", trial.job));
    }
    if let Some(best) = &view.best {
        context.printer.note(format!(
            "best is trial {} with {} {}; its command line:",
            best.number, view.metric, best.value
        ));
        context.printer.line(&best.command);
    }
}

fn headline(view: &TuneView) -> Vec<String> {
    let counts = &view.counts;
    let states = [
        (counts.complete, "complete"),
        (counts.running, "running"),
        (counts.paused, "paused"),
        (counts.pruned, "pruned"),
        (counts.failed, "failed"),
        (counts.interrupted, "interrupted"),
        (counts.stopped, "stopped"),
    ];
    let states: Vec<String> = states
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let mut lines = vec![format!(
        "{}: {} `{}` by {}, {} of {}",
        view.tuning,
        view.goal.word(),
        view.metric,
        view.algorithm,
        if states.is_empty() { "no trial yet".to_owned() } else { states.join(", ") },
        counted(u64::from(view.wanted), "trial")
    )];
    let most = view.most_usd.map_or("no limit".to_owned(), |usd| format!("{usd} at most"));
    let budget = view.budget.map_or(String::new(), |usd| format!(", of a budget of {usd}"));
    lines.push(match &view.ended {
        Some(end) if counts.running == 0 => format!("ended: {}; cost {}", end.reason, view.usd),
        Some(end) => format!("no more trials: {}; cost {} so far", end.reason, view.usd),
        None => format!("cost {} so far, {most} with those that run{budget}", view.usd),
    });
    if let (Some(usd), Some(end)) = (view.expected_usd, view.expected_end) {
        lines.push(format!("expected: {usd} in all, until about {}", local_time(end)));
    }
    lines
}

/// The machines of a trial are a column if one has several.
fn table(view: &TuneView, columns: Option<usize>) -> String {
    let mut rows: Vec<Vec<String>> = view.trials.iter().take(ROWS_MAX).map(row).collect();
    let mut head = vec!["trial", "state", view.metric.as_str(), "values", "cost", "time"];
    let mut numbers = vec![0, 2, 4, 5];
    if view.trials.iter().any(|trial| trial.machines > 1) {
        for (row, trial) in rows.iter_mut().zip(&view.trials) {
            row.push(trial.machines.to_string());
        }
        head.push("machines");
        numbers.push(6);
    }
    render_table_within(columns, &head, &rows, &numbers, GIVE)
}

fn row(trial: &TrialRow) -> Vec<String> {
    vec![
        trial.number.to_string(),
        trial.state.to_owned(),
        trial.value.map_or("-".to_owned(), short),
        in_words(&trial.params),
        trial.usd.to_string(),
        Span::from_secs(trial.seconds.round() as u64).to_string(),
    ]
}

/// Six digits: enough to tell trials apart, and no column of noise.
pub fn short(value: f64) -> String {
    let plain = (1e-4..1e6).contains(&value.abs()) || value == 0.0;
    if !plain {
        return format!("{value:.4e}");
    }
    let digits = if value.abs() >= 100.0 { 2 } else { 5 };
    format!("{value:.digits$}")
}

pub fn summary_row(view: &TuneView) -> Vec<String> {
    let state = if view.is_over() {
        "ended"
    } else if view.is_undriven() {
        "not driven"
    } else if view.ended.is_some() {
        "ends"
    } else {
        "running"
    };
    let ended = view.counts.ended();
    let best = view.best.as_ref().map_or("-".to_owned(), |best| {
        format!("{} {} ({})", view.metric, short(best.value), in_words(&best.params))
    });
    vec![
        view.tuning.clone(),
        state.to_owned(),
        format!("{ended} of {}", view.wanted),
        best,
        view.usd.to_string(),
    ]
}

/// A bar for each parameter, the most important first.
pub fn importance(answer: &Value) -> String {
    let mut all: Vec<(String, f64)> = answer
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
        .collect();
    if all.is_empty() {
        return "importance: not known before several trials are complete".to_owned();
    }
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    let width = all.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let bar = |part: f64| "█".repeat((part * 40.0).round() as usize);
    let lines = all
        .iter()
        .map(|(name, part)| format!("{name:width$} {:>4.0}% {}", part * 100.0, bar(*part)));
    format!("importance\n{}", lines.collect::<Vec<_>>().join("\n"))
}
