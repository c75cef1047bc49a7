//! The lines of the overview: the money, what needs a person, and each job.

use ratatui::style::Style;
use ratatui::text::Span;

use super::model::{TopModel, fault_lines};
use super::sheet::{Sheet, fitted, fitted_right, part, width_of};
use super::spark::plot;
use crate::app::overview::job_filter::{EXAMPLE, JobFilter};
use crate::app::overview::overview::{JobRow, Money, Overview};
use crate::app::overview::usage_trend::UsageTrend;
use crate::app::view::job_summary::Summary;
use crate::app::view::summary_text::{progress_text, spent_text};
use crate::market::{Span as Time, Usd, elapsed};

/// Needs on a small screen. The rest is counted, so that the jobs stay in view.
const NEEDS_SHOWN: usize = 3;

/// Lines of a need on a screen. Its state, its reason and its end mostly fit.
const NEED_LINES: usize = 2;

/// Lines of a sentence of an unselected job. Its reason and its end mostly fit.
const SENTENCE_LINES: usize = 2;

/// From this width on there is more room for names and for the last hour.
const WIDE: usize = 110;

pub fn overview_sheet(model: &TopModel, width: usize, is_once: bool) -> Sheet {
    let mut sheet = Sheet::default();
    faults(model, &mut sheet, width);
    let Some(overview) = model.overview.as_deref() else {
        let text = match model.fault {
            None => "Reading the records ...",
            Some(_) => "The records could not be read yet. Whether jobs run is not known.",
        };
        sheet.text(text, Style::new());
        return sheet;
    };
    money(model, &overview.money, &mut sheet, width);
    let shown = if is_once { usize::MAX } else { NEEDS_SHOWN };
    needs(model, overview, shown, &mut sheet, width);
    sheet.text("", Style::new());
    let rows = model.rows();
    headings(model, &mut sheet, width);
    for word in &JobFilter::parse(&model.filter).unknown {
        let text = format!("The filter does not know {word}. Known: {EXAMPLE}");
        sheet.wrapped(&text, model.palette.warn(), 0, width);
    }
    if rows.is_empty() {
        let none = if overview.jobs.is_empty() {
            "There are no jobs yet. `lamp init` writes a job file, `lamp run` runs it."
        } else {
            "No job fits the filter."
        };
        sheet.wrapped(none, Style::new(), 2, width);
    }
    let selected = model.selected_at();
    for (at, row) in rows.iter().enumerate() {
        let is_selected = at == selected && !is_once;
        let from = sheet.lines.len();
        job(model, row, is_selected, &mut sheet, width);
        sentence(model, row, is_selected || is_once, &mut sheet, width);
        if is_selected || is_once {
            for rank in row.summary.gang.iter().flat_map(|gang| &gang.ranks) {
                sheet.wrapped(&rank.line(), model.palette.quiet(), 6, width);
            }
        }
        if is_selected {
            sheet.focus = Some((if at == 0 { 0 } else { from }, sheet.lines.len()));
        }
    }
    let hidden = overview.jobs.len() - rows.len();
    if hidden > 0 {
        let text = format!("  {hidden} more not shown; `/` filters, like state:ended");
        sheet.text(&text, model.palette.quiet());
    }
    sheet
}

/// The fault of the last read, and the age of the values below.
fn faults(model: &TopModel, sheet: &mut Sheet, width: usize) {
    let Some(fault) = &model.fault else { return };
    for line in fault_lines(fault) {
        sheet.wrapped(&line, model.palette.bad(), 0, width);
    }
    if let Some(overview) = model.overview.as_deref() {
        let age = Time::from_secs(elapsed(overview.at, model.now).as_secs());
        let text = format!("What follows is {age} old.");
        sheet.wrapped(&text, model.palette.warn(), 0, width);
    }
}

fn money(model: &TopModel, money: &Money, sheet: &mut Sheet, width: usize) {
    let about = if money.estimated { "about " } else { "" };
    let most = money.more_at_most.map(|more| (money.spent + more).rounded_up().to_string());
    let figures = [
        ("Now", money.per_hour_now.to_string()),
        ("Useful", money.useful_per_hour.to_string()),
        ("Spent", format!("{about}{}", money.spent)),
        ("At most", most.unwrap_or_else(|| "no limit".to_owned())),
        ("Today", format!("{about}{}", money.today)),
        ("Month", format!("{about}{}", money.month)),
    ];
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (name, figure) in &figures {
        let so_far: usize = spans.iter().map(Span::width).sum();
        if so_far + name.len() + figure.len() + 3 > width && !spans.is_empty() {
            sheet.push(std::mem::take(&mut spans));
        }
        spans.push(part(&format!("{name} "), model.palette.quiet()));
        spans.push(part(&format!("{figure}  "), model.palette.bold()));
    }
    sheet.push(spans);
    if let Some(by) = money.most_by.as_ref().filter(|by| by.usd.is_none() || by.each_machine) {
        sheet.wrapped(&format!("{}.", by.sentence()), model.palette.quiet(), 0, width);
    }
    let Some(counted) = &money.counted else { return };
    let hour = money
        .caps
        .usd_per_hour
        .map(|cap| ("Cap per hour", counted.usd_per_hour.per_hour(), cap.per_hour()));
    let day = money.caps.usd_per_day.map(|cap| ("Cap in 24 hours", counted.usd_last_day, cap));
    for (name, used, cap) in [hour, day].into_iter().flatten() {
        let share = share_of(used, cap);
        let style = if share > 0.8 { model.palette.warn() } else { model.palette.good() };
        sheet.push(vec![
            part(&format!("{name:<16}"), model.palette.quiet()),
            part(&bar(share, 20), style),
            part(&format!(" {used} of {cap}"), Style::new()),
        ]);
    }
}

fn share_of(used: Usd, cap: Usd) -> f64 {
    used.dollars() / cap.dollars().max(1e-6)
}

/// `[#####-----]`
pub fn bar(share: f64, cells: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * cells as f64).floor() as usize).min(cells);
    format!("[{}{}]", "#".repeat(full), "-".repeat(cells - full))
}

fn needs(model: &TopModel, overview: &Overview, shown: usize, sheet: &mut Sheet, width: usize) {
    let needs = &overview.needs;
    if needs.is_empty() {
        sheet.wrapped(overview.calm_text(), model.palette.good(), 0, width);
        return;
    }
    sheet.text(&format!("Needs a person ({})", needs.len()), model.palette.warn());
    for need in needs.iter().take(shown) {
        let job = need.job.as_ref().map(|job| format!("{job}: ")).unwrap_or_default();
        let text = format!("{job}{}", need.text);
        // On a screen, the jobs must stay in view.
        let lines = if shown == usize::MAX { usize::MAX } else { NEED_LINES };
        let from = sheet.lines.len();
        sheet.wrapped(&text, Style::new(), 2, width);
        sheet.lines.truncate(from.saturating_add(lines));
        sheet.text(&format!("    {}", need.command), model.palette.command());
    }
    if needs.len() > shown {
        let more = needs.len() - shown;
        let text = format!("  {more} more: `lamp top --once` shows all");
        sheet.text(&text, model.palette.quiet());
    }
}

/// The columns after the name, for this width.
struct Columns {
    name: usize,
    trace: usize,
}

const STATE: usize = 12;
const USAGE: usize = 9;
const PROGRESS: usize = 5;
/// `about $0.4212`
const COST: usize = 14;
const END: usize = 12;

impl Columns {
    fn of(width: usize) -> Columns {
        let trace = if width >= WIDE { 24 } else { 12 };
        let fixed = 2 + STATE + trace + USAGE + PROGRESS + COST + END;
        Columns { name: width.saturating_sub(fixed).clamp(8, 48), trace }
    }
}

fn headings(model: &TopModel, sheet: &mut Sheet, width: usize) {
    let columns = Columns::of(width);
    let text = [
        "  ".to_owned(),
        fitted("STATE", STATE),
        fitted("JOB", columns.name),
        fitted("LAST HOUR", columns.trace + USAGE),
        fitted_right("DONE", PROGRESS),
        fitted_right("COST", COST),
        fitted_right("ENDS", END),
    ];
    sheet.text(&fitted(&text.concat(), width), model.palette.quiet());
}

fn job(model: &TopModel, row: &JobRow, is_selected: bool, sheet: &mut Sheet, width: usize) {
    let (columns, summary) = (Columns::of(width), &row.summary);
    let fraction = summary.progress.as_ref().and_then(|progress| progress.fraction());
    let done = fraction.map(|share| format!("{:.0}%", (share * 100.0).floor()));
    let end = row.next_end.as_ref().map(|end| end.countdown(model.now)).unwrap_or_default();
    let mark = if is_selected { "> " } else { "  " };
    let (drawn, usage) = match model.traces.get(&summary.job) {
        Some(trace) => traced(trace, columns.trace),
        None => (String::new(), usage_now(summary).unwrap_or_default()),
    };
    let strong = if is_selected { model.palette.bar() } else { model.palette.bold() };
    sheet.push(vec![
        part(mark, Style::new()),
        part(&fitted(&summary.state_told(), STATE), model.palette.state(row)),
        part(&fitted(&summary.name, columns.name - 1), strong),
        part(" ", Style::new()),
        part(&fitted(&drawn, columns.trace), model.palette.good()),
        part(&fitted(&usage, USAGE), Style::new()),
        part(&fitted_right(&done.unwrap_or_default(), PROGRESS), Style::new()),
        part(&fitted_right(&spent_text(summary), COST), Style::new()),
        part(&fitted_right(&end, END), Style::new()),
    ]);
}

/// On a screen, only the selected job has its whole sentence.
fn sentence(model: &TopModel, row: &JobRow, is_whole: bool, sheet: &mut Sheet, width: usize) {
    if is_whole {
        // A command takes the whole name or the id.
        let is_cut = width_of(&row.summary.name) >= Columns::of(width).name;
        let job = if is_cut { format!("{}: ", row.summary.job) } else { String::new() };
        sheet.wrapped(&format!("{job}{}", row.sentence), Style::new(), 4, width);
        if let Some(text) = progress_ahead(row) {
            sheet.wrapped(&text, model.palette.quiet(), 4, width);
        }
    } else {
        // The end of a sentence says when its machine ends.
        let lines = if row.summary.state.is_final() { 1 } else { SENTENCE_LINES };
        let from = sheet.lines.len();
        sheet.wrapped(&row.sentence, model.palette.quiet(), 4, width);
        sheet.lines.truncate(from + lines);
    }
}

/// `step 25 of 100, 25%, 2m to 5m left; done 2026-01-02 14:10 to 2026-01-02 14:13`
fn progress_ahead(row: &JobRow) -> Option<String> {
    let (eta, progress) = (row.eta_text()?, row.summary.progress.as_ref()?);
    Some(progress_text(progress).map_or(eta.clone(), |text| format!("{text}; {eta}")))
}

/// Before the first samples: the newest GPU or processor of the heartbeat.
fn usage_now(summary: &Summary) -> Option<String> {
    if summary.state.is_final() || summary.silence.is_some() {
        return None;
    }
    let gpus: Vec<f64> = summary.gpus.iter().filter_map(|gpu| gpu.util_percent).collect();
    let mean = gpus.iter().sum::<f64>() / gpus.len() as f64;
    let gpu = (!gpus.is_empty()).then(|| format!(" GPU {mean:.0}%"));
    gpu.or_else(|| summary.cpu_percent.map(|cpu| format!(" CPU {cpu:.0}%")))
}

fn traced(trace: &UsageTrend, width: usize) -> (String, String) {
    let drawn = plot(&trace.values, trace.top, width, 1).concat();
    let last = trace.last().map(|last| format!(" {} {last:.0}%", trace.label));
    (drawn, last.unwrap_or_default())
}
