//! One frame: a line with the place, the lines of its screen, a line with the keys, and a box.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::attempt_sheet::attempt_sheet;
use super::gpu_sheet::{gpu_sheet, process_sheet};
use super::job_sheet::job_sheet;
use super::model::{Dialog, TopModel, TopScreen, fault_lines};
use super::overview_sheet::overview_sheet;
use super::safe_text::safe;
use super::sheet::{Sheet, fitted, part, width_of, wrap};
use crate::app::job_act::JobAct;
use crate::app::overview::job_filter::EXAMPLE;
use crate::app::text::counted;
use crate::market::{Span as Time, elapsed};

/// Keeps a scroll within the lines, so that the next key acts at once.
pub fn draw(frame: &mut Frame<'_>, model: &mut TopModel) {
    let area = frame.area();
    let width = usize::from(area.width);
    let (top, foot) = (line_at(area, 0), line_at(area, area.height.saturating_sub(1)));
    let body = Rect { y: 1, height: area.height.saturating_sub(2), ..area };
    let sheet = sheet(model, width);
    let height = usize::from(body.height);
    let from = first_line(model, &sheet, height);
    let lines: Vec<Line<'_>> = sheet.lines.into_iter().skip(from).take(height).collect();
    frame.render_widget(bar_line(model, &title(model), width), top);
    frame.render_widget(Paragraph::new(Text::from(lines)), body);
    frame.render_widget(bar_line(model, &keys(model), width), foot);
    boxed(frame, model, body);
}

fn line_at(area: Rect, y: u16) -> Rect {
    Rect { y, height: area.height.min(1), ..area }
}

fn bar_line(model: &TopModel, text: &str, width: usize) -> Paragraph<'static> {
    Paragraph::new(Line::from(part(&fitted(text, width), model.palette.bar())))
}

fn sheet(model: &TopModel, width: usize) -> Sheet {
    match model.place {
        TopScreen::Overview => overview_sheet(model, width, false),
        _ => of_open_job(model, width),
    }
}

fn of_open_job(model: &TopModel, width: usize) -> Sheet {
    let mut faults = Sheet::default();
    for line in model.look_fault.iter().flat_map(fault_lines) {
        faults.wrapped(&line, model.palette.bad(), 0, width);
    }
    let Some(look) = model.open_look() else {
        if model.look_fault.is_none() {
            faults.text("Reading the records of the job ...", Style::new());
        }
        return faults;
    };
    if model.look_fault.is_some() {
        let age = Time::from_secs(elapsed(look.at, model.now).as_secs());
        faults.wrapped(&format!("What follows is {age} old."), model.palette.warn(), 0, width);
    }
    let mut sheet = match model.place {
        TopScreen::Attempt => attempt_sheet(model, look, width),
        TopScreen::Gpus => gpu_sheet(model, look, width),
        TopScreen::Processes => process_sheet(model, look, width),
        _ => job_sheet(model, look, width),
    };
    faults.lines.append(&mut sheet.lines);
    Sheet { lines: faults.lines, ..sheet }
}

fn first_line(model: &mut TopModel, sheet: &Sheet, height: usize) -> usize {
    let last = sheet.lines.len().saturating_sub(height);
    match sheet.focus {
        // As few lines move as needed.
        Some((from, to)) => {
            let at_least = to.saturating_sub(height);
            model.scroll = model.scroll.clamp(at_least, from.max(at_least)).min(last);
            model.scroll
        }
        None => {
            model.scroll = model.scroll.min(last);
            if sheet.is_from_end { last - model.scroll } else { model.scroll }
        }
    }
}

fn title(model: &TopModel) -> String {
    let place = match (model.place, model.opened.as_deref()) {
        (TopScreen::Job, Some(job)) => format!("{job}  [{}]", model.preset.word()),
        (TopScreen::Attempt, Some(job)) => format!("{job}  attempt"),
        (TopScreen::Gpus, Some(job)) => format!("{job}  GPUs"),
        (TopScreen::Processes, Some(job)) => format!("{job}  processes"),
        _ => {
            let jobs = model.rows().len() as u64;
            let filter = Some(&model.filter).filter(|filter| !filter.trim().is_empty());
            let filter = filter.map(|filter| {
                let is_kept = model.kept_filters.iter().any(|kept| kept == filter.trim());
                format!("  {} {filter}", if is_kept { "kept filter" } else { "filter" })
            });
            let filter = filter.unwrap_or_default();
            format!("{}  by {}{filter}", counted(jobs, "job"), model.order.word())
        }
    };
    let read = match model.place {
        TopScreen::Overview => model.overview.as_ref().map(|overview| overview.at),
        _ => model.open_look().map(|look| look.at),
    };
    let age = read.map(|at| format!("  read {} ago", age(elapsed(at, model.now).as_secs())));
    let paused = if model.is_paused { "  PAUSED" } else { "" };
    // The frame cuts the end of a long line, so the job root comes last.
    let (age, root) = (age.unwrap_or_default(), safe(&model.job_root));
    format!("lamp top  {place}{paused}{age}  {root}")
}

fn age(secs: u64) -> String {
    Time::from_secs(secs).to_string()
}

fn keys(model: &TopModel) -> String {
    if let Some(Dialog::Filter { .. }) = model.dialog {
        return format!("/{}_   Enter keeps  Esc restores  like {EXAMPLE}", model.filter);
    }
    if let Some(Dialog::Find { .. }) = model.dialog {
        return format!("/{}_   lines of the log with it   Enter keeps  Esc restores", model.find);
    }
    let keys = match model.place {
        TopScreen::Overview => {
            "? help  Enter open  / filter  s sort  p pause  S E W C acts  q quit"
        }
        TopScreen::Job if model.is_of_one_job => {
            "? help  1-4 views  / log  [ ] Enter attempt  S E W C acts  q to the log"
        }
        TopScreen::Job => "? help  1-4 views  / log  [ ] Enter attempt  S E W C acts  q back",
        TopScreen::Attempt => "? help  [ ] attempt  Enter GPUs  S E W C acts  p pause  q back",
        TopScreen::Gpus => "? help  j k GPU  Enter processes  S E W C acts  p pause  q back",
        TopScreen::Processes => "? help  S stop  E extend  W save  C cancel  p pause  q back",
    };
    keys.to_owned()
}

fn boxed(frame: &mut Frame<'_>, model: &TopModel, body: Rect) {
    let Some(dialog) = &model.dialog else { return };
    let (title, text) = match dialog {
        Dialog::Filter { .. } | Dialog::Find { .. } => return,
        Dialog::Help => ("Keys", HELP.iter().map(|line| (*line).to_owned()).collect()),
        Dialog::Wait { text } => ("A moment", vec![text.clone(), "Esc: back".to_owned()]),
        Dialog::Told { title, text } => (*title, with(text.clone(), &["", "Any key goes back."])),
        Dialog::Amount { job, typed, wrong } => {
            let ask = format!("How much more may {job} have? Time like 2h, or dollars like $5.");
            let typed = format!("> {typed}_");
            let all = [Some(ask), Some(String::new()), Some(typed), wrong.clone()];
            ("Extend", all.into_iter().flatten().collect())
        }
        Dialog::Question { order, sentence, typed } => {
            let mut text = vec![capital(sentence) + ".", String::new()];
            if order.act == JobAct::Cancel {
                text.push("Type cancel and press Enter to do it; Esc: back.".to_owned());
                text.push(format!("> {typed}_"));
            } else {
                text.push(format!("y: {} it    n: back", order.act.verb()));
            }
            let same = order.command().map(|command| format!("The same: {command}"));
            text.extend(same.into_iter().flat_map(|same| [String::new(), same]));
            ("Before it is done", text)
        }
    };
    box_over(frame, model, body, title, &text);
}

fn with(mut text: Vec<String>, more: &[&str]) -> Vec<String> {
    text.extend(more.iter().map(|line| (*line).to_owned()));
    text
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn box_over(frame: &mut Frame<'_>, model: &TopModel, body: Rect, title: &str, text: &[String]) {
    let inner = usize::from(body.width.saturating_sub(8)).clamp(10, 76);
    // A line of keys keeps its columns.
    let fold = |line: &String| {
        if width_of(line) <= inner { vec![line.clone()] } else { wrap(line, inner) }
    };
    let lines: Vec<String> = text.iter().flat_map(fold).collect();
    let width = u16::try_from(inner + 4).unwrap_or(u16::MAX).min(body.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(body.height);
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> =
        lines.iter().map(|line| Line::from(part(&format!(" {line}"), Style::new()))).collect();
    let block = Block::bordered().title(part(&format!(" {title} "), model.palette.bold()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(Text::from(lines)).block(block), area);
}

const HELP: [&str; 19] = [
    "Enter, Right     open: job, attempt, GPUs, processes",
    "q, Esc, Left     back; q on the overview ends lamp top",
    "Up, Down, j, k   move; PageUp, PageDown, Home, End too",
    "/                filter, like state:running cost>5 name",
    "f, F             next kept filter; keep or forget the shown one",
    "s                sort: newest, cost, rate, next end, name",
    "p                pause: the view stays as it is",
    "Tab, 1 2 3 4     views of a job: all, plots, log, timeline",
    "[ ]              another attempt of a job",
    "/, e             lines of its log with a text; with an error",
    "S                stop: save a checkpoint, then end",
    "E                extend: more time or money",
    "W                save a checkpoint now, and go on",
    "K                keep: not ended as idle or stalled for an hour",
    "C                cancel: end at once",
    "Ctrl-C           end lamp top; the jobs go on",
    "",
    "Each act first says what it does to the job and its bill.",
    "A dot in a plot is an unknown value. Any key goes back.",
];
