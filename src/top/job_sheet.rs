//! The lines of a job's screen: its sentence, money, machine, samples, attempts, log and timeline.

use jiff::Timestamp;
use ratatui::style::Style;

use super::model::{Preset, TopModel};
use super::open_job::OpenJob;
use super::sheet::{Sheet, fitted, part};
use super::spark::plot;
use crate::app::analysis::job_outlook::JobOutlook;
use crate::app::gang::gang_report::EpochReport;
use crate::app::log_tail::is_error;
use crate::app::overview::eta::Eta;
use crate::app::overview::gang_view::{HEAT_STEPS, HeatRow};
use crate::app::overview::job_sentence::job_sentence;
use crate::app::text::{countdown, local_time};
use crate::app::view::job_summary::Summary;
use crate::app::view::plot_data::Series;
use crate::app::view::summary_text::{money_text, progress_text, usage_text};
use crate::app::view::timeline::{self, ExplainedAttempt};
use crate::market::Span as Time;

/// Lines of the log beside the rest.
const LOG_BESIDE: usize = 8;

/// Plots beside the rest. The preset of plots has all of them.
const BESIDE: [&str; 4] = ["gpu_percent", "gpu_power_watts", "gpu_memory_used_mib", "cpu_percent"];

/// Lines of a plot in the preset of plots.
const PLOT_LINES: usize = 3;

/// The widest name of a series and its figures stand beside a plot.
const PLOT_NAME: usize = 14;
const PLOT_FIGURES: usize = 26;

/// `rank 12` and a space.
const RANK_NAME: usize = 8;

const HEAT_LETTERS: [char; HEAT_STEPS] = ['_', '░', '▒', '▓', '█'];

pub fn job_sheet(model: &TopModel, look: &OpenJob, width: usize) -> Sheet {
    let mut sheet = Sheet::default();
    if model.preset != Preset::Log {
        head(model, look, &mut sheet, width);
    }
    match model.preset {
        Preset::All => {
            gang(model, look, &mut sheet, width);
            plots(model, look, 1, &mut sheet, width);
            attempts(model, look, &mut sheet);
            log(model, look, LOG_BESIDE, &mut sheet);
            commands(model, look, &mut sheet);
        }
        Preset::Plots => plots(model, look, PLOT_LINES, &mut sheet, width),
        Preset::Log => {
            log(model, look, usize::MAX, &mut sheet);
            sheet.is_from_end = true;
        }
        Preset::Timeline => story(model, look, &mut sheet, width),
    }
    sheet
}

fn head(model: &TopModel, look: &OpenJob, sheet: &mut Sheet, width: usize) {
    let Some(summary) = look.summary.as_ref() else {
        sheet.text("Nothing is recorded of it yet.", Style::new());
        return;
    };
    sheet.wrapped(&job_sentence(summary), model.palette.bold(), 0, width);
    for (name, text) in facts(summary, look, model.now) {
        sheet.fact(name, &text, model.palette.quiet(), width);
    }
    if summary.driven_here == Some(false) {
        sheet.text("No process on this workstation drives it:", model.palette.warn());
        let command = format!("  lamp daemon --job {} --until-done", summary.job);
        sheet.text(&command, model.palette.command());
    }
    for attention in &summary.attention {
        sheet.wrapped(attention, model.palette.warn(), 0, width);
    }
    if let Some(text) = look.load().and_then(|load| load.disagreement(look.gpus())) {
        sheet.wrapped(&text, model.palette.warn(), 0, width);
    }
}

/// `idle in 3m, if it stays quiet`
fn ends_text(summary: &Summary, now: Timestamp) -> Option<String> {
    let told = summary.ends.iter().map(|end| {
        let left = countdown(end.at, now);
        let condition = end.condition.map(|text| format!(", {text}")).unwrap_or_default();
        format!("{} {left}{condition}", end.what)
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn facts(summary: &Summary, look: &OpenJob, now: Timestamp) -> Vec<(&'static str, String)> {
    let is_open = !summary.state.is_final();
    let outlook = match is_open {
        true => JobOutlook::of(summary, look.status.as_ref(), &look.plot.data),
        false => JobOutlook::default(),
    };
    let heard = summary.heartbeat_seconds.filter(|_| is_open);
    let progress = summary.progress.as_ref().and_then(progress_text);
    let progress = progress.map(|text| match Eta::of(summary, now) {
        Some(eta) => format!("{text}; {}", eta.text()),
        None => text,
    });
    let rate = summary.usd_per_hour.map(|rate| format!(", {rate}")).filter(|_| is_open);
    let all = [
        ("Cost", Some(money_text(summary) + &rate.unwrap_or_default())),
        ("Machine", summary.machine.as_ref().map(|machine| machine.line())),
        ("Usage", usage_text(summary).filter(|_| summary.silence.is_none())),
        ("Progress", progress),
        ("To the end", outlook.to_end_text()),
        ("At risk", outlook.at_risk_text()),
        ("Memory", outlook.memory_text()),
        ("Disk", outlook.disk_text()),
        ("Checkpoints", Some(summary.checkpoints.to_string())),
        ("Ends", ends_text(summary, now)),
        ("Ends alone", look.proof.clone().filter(|_| is_open)),
        ("Kept until", summary.kept_until.map(local_time)),
        ("Last heard", heard.map(|secs| format!("{} ago", Time::from_secs(secs as u64)))),
        ("Started", Some(local_time(summary.started))),
        ("Ended", summary.ended.map(local_time)),
    ];
    all.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

fn title(name: &str) -> &'static str {
    match name {
        "gpu_percent" => "GPU",
        "gpu_memory_percent" => "GPU mem busy",
        "gpu_memory_used_mib" => "GPU memory",
        "gpu_power_watts" => "GPU power",
        "gpu_power_percent" => "Power, share",
        "gpu_clock_mhz" => "GPU clock",
        "gpu_temperature_celsius" => "GPU heat",
        "memory_bytes" => "Memory, job",
        "machine_memory_percent" => "Memory, all",
        "disk_free_bytes" => "Disk, free",
        "cpu_percent" => "CPU, job",
        "machine_cpu_percent" => "CPU, machine",
        "disk_bytes_per_sec" => "Disk",
        "net_bytes_per_sec" => "Network",
        "net_received_bytes_per_sec" => "Network, in",
        "net_sent_bytes_per_sec" => "Network, out",
        _ => "Other",
    }
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "B/s" if value >= 1e6 => format!("{:.1} MB/s", value / 1e6),
        "B/s" => format!("{:.0} kB/s", value / 1e3),
        "B" => format!("{:.1} GB", value / 1e9),
        "MiB" => format!("{:.1} GiB", value / 1024.0),
        unit if unit.starts_with('%') => format!("{value:.0}%"),
        unit => format!("{value:.0} {unit}"),
    }
}

fn plots(model: &TopModel, look: &OpenJob, lines: usize, sheet: &mut Sheet, width: usize) {
    let attempt = look.attempt.number();
    let end = look.plot.data.series.iter().filter_map(|series| series.t_secs.last()).copied();
    let end = end.fold(0.0, f64::max);
    let title = format!("Samples of attempt {attempt}, {} in all", Time::from_secs(end as u64));
    sheet.heading(&title, model.palette.quiet());
    if look.plot.data.series.is_empty() {
        sheet.text("There are no samples of this attempt yet.", Style::new());
    }
    let is_shown = |series: &&Series| lines > 1 || BESIDE.contains(&series.name);
    for series in look.plot.data.series.iter().filter(is_shown) {
        series_lines(model, series, lines, sheet, width);
    }
}

fn series_lines(model: &TopModel, series: &Series, lines: usize, sheet: &mut Sheet, width: usize) {
    let known = || series.values.iter().flatten().copied();
    let most = known().fold(0.0_f64, f64::max);
    // A share of a GPU or of a machine has a fixed scale.
    let is_share = ["%", "% of all cores", "% of the limit"].contains(&series.unit);
    let top = if is_share { 100.0 } else { most };
    let last = known().next_back().unwrap_or_default();
    let figures = [
        format!(" {}", figure(last, series.unit)),
        format!(" at most {}", figure(most, series.unit)),
    ];
    let columns = width.saturating_sub(PLOT_NAME + PLOT_FIGURES).max(10);
    for (at, drawn) in plot(&series.values, top, columns, lines).into_iter().enumerate() {
        let name = if at == 0 { title(series.name) } else { "" };
        let beside = if lines == 1 {
            figures.concat()
        } else {
            figures.get(at).cloned().unwrap_or_default()
        };
        sheet.push(vec![
            part(&fitted(name, PLOT_NAME), model.palette.quiet()),
            part(&drawn, model.palette.good()),
            part(fitted(&beside, PLOT_FIGURES).trim_end(), Style::new()),
        ]);
    }
    if lines > 1 {
        sheet.text("", Style::new());
    }
}

/// A line for each rank: how busy it was by time, its state and its cost. Then the epochs.
fn gang(model: &TopModel, look: &OpenJob, sheet: &mut Sheet, width: usize) {
    let Some(gang) = &look.gang else { return };
    let title = format!("Ranks, {} machines", gang.report.ranks.len());
    sheet.heading(&title, model.palette.quiet());
    let columns = (width / 2).max(10);
    for rank in &gang.report.ranks {
        let heat = gang.heat.iter().find(|row| row.rank == rank.rank);
        let drawn = heat.map(|row| heat_text(row, columns)).unwrap_or_default();
        let name = format!("rank {}", rank.rank);
        sheet.push(vec![
            part(&fitted(&name, RANK_NAME), model.palette.quiet()),
            part(&fitted(&drawn, columns), model.palette.good()),
            part(&format!(" {}, {}", rank.state, rank.usd), Style::new()),
        ]);
    }
    for line in gang.report.epochs.iter().map(EpochReport::line) {
        sheet.wrapped(line.trim_start(), Style::new(), 2, width);
    }
}

/// One letter for each moment, the newest at the right.
fn heat_text(row: &HeatRow, columns: usize) -> String {
    let steps = row.steps();
    let from = steps.len().saturating_sub(columns);
    steps[from..].iter().map(|step| step.map_or('·', |step| HEAT_LETTERS[step])).collect()
}

fn attempts(model: &TopModel, look: &OpenJob, sheet: &mut Sheet) {
    sheet.heading("Attempts  ([ and ] choose one)", model.palette.quiet());
    for attempt in &look.explained.attempts {
        let is_shown = attempt.attempt == look.attempt;
        let style = if is_shown { model.palette.bold() } else { Style::new() };
        let mark = if is_shown { "* " } else { "  " };
        sheet.text(&format!("{mark}{}", attempt_line(attempt)), style);
    }
}

fn attempt_line(attempt: &ExplainedAttempt) -> String {
    let offer = attempt.plan.as_ref().map(|plan| &plan.offer);
    let machine = offer.map(|offer| {
        format!("{} {} {} {}", offer.instance_type, offer.zone, offer.market, offer.hourly())
    });
    let settled = attempt.settled.as_ref();
    let end = settled.map_or_else(
        || "under way".to_owned(),
        |settled| format!("{}, {}", settled.because.word().replace('_', " "), settled.usd),
    );
    format!("{}  {}  {end}", attempt.attempt.number(), machine.unwrap_or_default())
}

fn log(model: &TopModel, look: &OpenJob, lines: usize, sheet: &mut Sheet) {
    let attempt = look.attempt.number();
    let wanted = model.find.to_lowercase();
    let is_found = |line: &&String| match model.finds_errors {
        true => is_error(line),
        false => line.to_lowercase().contains(&wanted),
    };
    let found: Vec<&String> = look.log.iter().filter(is_found).collect();
    let heading = if model.finds_errors {
        let (some, all) = (found.len(), look.log.len());
        format!("Log of attempt {attempt}: {some} of its last {all} lines look like errors")
    } else if wanted.is_empty() {
        format!("Log of attempt {attempt}, its end")
    } else {
        let (some, all) = (found.len(), look.log.len());
        format!("Log of attempt {attempt}: {some} of its last {all} lines have `{}`", model.find)
    };
    sheet.heading(&heading, model.palette.quiet());
    if look.log.is_empty() {
        sheet.text("The log is empty.", Style::new());
    }
    let from = found.len().saturating_sub(lines);
    for line in &found[from..] {
        sheet.text(line, Style::new());
    }
}

/// The view as commands.
fn commands(model: &TopModel, look: &OpenJob, sheet: &mut Sheet) {
    let job = &look.job;
    sheet.heading("The same:", model.palette.quiet());
    for command in ["lamp status", "lamp logs -f", "lamp explain"] {
        sheet.text(&format!("  {command} {job}"), model.palette.command());
    }
}

fn story(model: &TopModel, look: &OpenJob, sheet: &mut Sheet, width: usize) {
    for (attempt, entries) in timeline::story(&look.explained, false) {
        sheet.heading(&format!("Attempt {}", attempt.number()), model.palette.quiet());
        for entry in &entries {
            let text = format!("{}  {}", local_time(entry.at), entry.word);
            sheet.text(&text, model.palette.bold());
            sheet.wrapped(&entry.text, Style::new(), 4, width);
        }
    }
}
