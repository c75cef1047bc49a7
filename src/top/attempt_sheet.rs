//! One attempt of a job: its machine, how it began, why it ended, and what it cost.

use ratatui::style::Style;

use super::model::TopModel;
use super::open_job::OpenJob;
use super::sheet::{Sheet, fitted, part};
use crate::app::analysis::startup_timeline::StartupTimeline;
use crate::app::text::{in_local_time, local_time};
use crate::app::view::timeline::ExplainedAttempt;
use crate::job::Plan;
use crate::market::Span as Time;

/// Columns of the longest start.
const BAR: f64 = 30.0;

pub fn attempt_sheet(model: &TopModel, look: &OpenJob, width: usize) -> Sheet {
    let mut sheet = Sheet::default();
    let number = look.attempt;
    let Some(attempt) = look.explained.attempts.iter().find(|it| it.attempt == number) else {
        sheet.text("The job has no attempt yet: no machine was requested.", Style::new());
        return sheet;
    };
    let all = look.explained.attempts.len();
    sheet.text(&format!("Attempt {} of {all}", number.number()), model.palette.bold());
    for (name, text) in facts(attempt) {
        sheet.fact(name, &text, model.palette.quiet(), width);
    }
    startup(model, look, &mut sheet, width);
    if let Some(plan) = attempt.plan.as_ref().filter(|plan| !plan.reasons.is_empty()) {
        sheet.heading("Why this machine", model.palette.quiet());
        for reason in &plan.reasons {
            sheet.wrapped(reason, Style::new(), 2, width);
        }
    }
    if !attempt.reasons.is_empty() {
        sheet.heading("Why it ended", model.palette.quiet());
        for reason in &attempt.reasons {
            sheet.wrapped(&in_local_time(&reason.text), Style::new(), 2, width);
        }
    }
    sheet.heading("The same on the command line", model.palette.quiet());
    sheet.text(&format!("  lamp explain {}", look.job), model.palette.command());
    sheet
}

fn facts(attempt: &ExplainedAttempt) -> Vec<(&'static str, String)> {
    let plan = attempt.plan.as_ref();
    let settled = attempt.settled.as_ref();
    let outcome = settled.and_then(|settled| settled.outcome.as_ref());
    let from = attempt.resumed_from();
    let end = settled
        .map_or_else(|| "under way".to_owned(), |settled| settled.because.word().replace('_', " "));
    let all = [
        ("Machine", plan.map(machine)),
        ("Id", attempt.instance.clone()),
        ("Bid", plan.and_then(|plan| plan.bid).map(|bid| bid.to_string())),
        ("Planned", plan.map(|plan| local_time(plan.created))),
        ("Hard cap", plan.and_then(|plan| plan.kill_at).map(local_time)),
        ("Most", plan.and_then(|plan| plan.most_usd).map(|usd| usd.to_string())),
        ("Began from", from.map(|from| format!("checkpoint {}", from.told()))),
        ("End", Some(end)),
        ("Cost", settled.map(|settled| format!("{} for {}", settled.usd, settled.billed))),
        (
            "Time",
            outcome.map(|outcome| format!("useful {}, idle {}", outcome.useful, outcome.idle)),
        ),
    ];
    all.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

fn machine(plan: &Plan) -> String {
    let offer = &plan.offer;
    let gpus = offer.gpu_model.as_ref().map(|model| format!(", {} x {model}", offer.gpus));
    format!(
        "{} {} {} {}{}",
        offer.instance_type,
        offer.market,
        offer.zone,
        offer.hourly(),
        gpus.unwrap_or_default()
    )
}

fn startup(model: &TopModel, look: &OpenJob, sheet: &mut Sheet, width: usize) {
    let Some(startup) = look.startups.iter().find(|one| one.attempt == look.attempt) else {
        return;
    };
    let text = format!("Up to the first work: {}{}", span(startup.secs), startup.unfinished());
    sheet.heading(&text, model.palette.quiet());
    phases(model, startup, sheet, width);
}

fn phases(model: &TopModel, startup: &StartupTimeline, sheet: &mut Sheet, width: usize) {
    let longest = startup.phases.iter().map(|phase| phase.secs).fold(1.0, f64::max);
    for phase in &startup.phases {
        let cells = ((phase.secs / longest * BAR).round() as usize).max(1);
        let median = phase.median_secs.map(|secs| format!(", median before {}", span(secs)));
        let open = if phase.under_way { " so far" } else { "" };
        let text = format!(" {}{open}{}", span(phase.secs), median.unwrap_or_default());
        let room = width.saturating_sub(18 + BAR as usize);
        sheet.push(vec![
            part(&format!("  {:<16}", phase.name), model.palette.quiet()),
            part(&fitted(&"=".repeat(cells), BAR as usize), model.palette.good()),
            part(fitted(&text, room).trim_end(), Style::new()),
        ]);
    }
}

/// A start on this workstation takes less than a second.
fn span(secs: f64) -> String {
    if secs < 9.95 {
        format!("{secs:.1}s")
    } else {
        Time::from_secs(secs.round() as u64).to_string()
    }
}
