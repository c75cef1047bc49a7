//! `lamp explain`: the verdicts on a job, their times and numbers, and why it ended.

use clap::Args as ClapArgs;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;

use super::samples::{self, SamplesAsked};
use crate::app::gang::gang_report::GangReport;
use crate::app::gang::gang_rows::with_ranks;
use crate::app::text::{local_time, waits_text};
use crate::app::view::job_summary::Summary;
use crate::app::view::reason_text::market_text;
use crate::app::view::timeline::{
    Explained, ExplainedAttempt, TimelineEntry, read, story, unheard_text,
};
use crate::app::{find_job, record_errors};
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Stream, Style};
use crate::market::Span;

/// Show every verdict on a job with the numbers behind it, and why it ended
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Every event, not only verdicts and turning points
    #[arg(short, long)]
    pub all: bool,

    /// A measured series instead: few rows, with the extremes
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(samples::names()))]
    pub samples: Option<String>,

    /// The series of this attempt only [default: all, on one time axis]
    #[arg(long, value_name = "N", requires = "samples")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,

    /// Every sample as comma-separated values, like `-o csv`
    #[arg(long, requires = "samples")]
    pub csv: bool,
}

/// # Errors
/// Fails when the job is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = find_job::find_to_watch(&store, args.job.as_deref()).await?;
    let mut explained = read(&dir, context.clock.now())
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
    if let Some(name) = &args.samples {
        let asked = SamplesAsked { name, attempt: args.attempt, csv: args.csv };
        return samples::show(&asked, &dir, &explained, context).await;
    }
    if let (Some(held), Ok(workstation)) = (&mut explained.held, job_root::workstation(context)) {
        held.folder = explained
            .attempts
            .last()
            .and_then(|last| workstation.work_folder(last.instance.as_ref()?));
    }
    if context.is_machine_output() {
        context.printer.json(&explained);
        return Ok(ExitCode::SUCCESS);
    }
    let printer = &context.printer;
    printer.line(format!("{}: {}", explained.job, explained.state));
    for (attempt, (_, entries)) in explained.attempts.iter().zip(story(&explained, args.all)) {
        show_attempt(context, attempt, &entries, &explained);
    }
    if explained.attempts.is_empty() {
        for reason in &explained.market {
            let at = local_time(reason.at);
            printer.prose(2, format!("market at {at}: {}", market_text(reason)));
        }
        for request in &explained.requests {
            let at = local_time(request.at);
            let (number, by) = (request.number, &request.by);
            printer.line(format!("request {number} by {by} at {at}: {}", request.wish));
        }
    }
    if let Some(waiting) = &explained.waiting {
        printer.prose(2, format!("waits for {}", waits_text(waiting, explained.waiting_until)));
    }
    if let Some(held) = &explained.held {
        printer.prose(
            2,
            format!(
                "its machine is held {}; `lamp stop {}` ends it, `lamp extend` adds time",
                held.text(),
                explained.job
            ),
        );
    }
    if let Some(reason) = &explained.reason {
        printer.prose(
            2,
            printer.paint(Stream::Out, Style::Bold, &format!("{}: {reason}", explained.state)),
        );
    }
    let now = context.clock.now();
    if let Ok(Some(report)) = GangReport::with_output(&dir, now).await {
        if let Ok(Some(summary)) = Summary::read(&dir, now).await
            && let Ok(row) = with_ranks(summary, &dir, now).await
            && let Some(reason) = row.gang.and_then(|gang| gang.reason)
        {
            printer.prose(2, printer.paint(Stream::Out, Style::Bold, &reason));
        }
        report.lines().into_iter().for_each(|line| printer.prose(2, line));
    }
    if let Some(gone) = &explained.discarded {
        printer.prose(2, format!("discarded {}", gone.text()));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_attempt(
    context: &Context,
    attempt: &ExplainedAttempt,
    entries: &[TimelineEntry],
    explained: &Explained,
) {
    let printer = &context.printer;
    let began = attempt.began().or(explained.created).unwrap_or_else(|| context.clock.now());
    let number = attempt.attempt.number();
    let title = match &attempt.plan {
        Some(plan) => {
            let instance =
                attempt.instance.as_ref().map(|id| format!(", {id}")).unwrap_or_default();
            let offer = &plan.offer;
            format!(
                "attempt {number} on {} in {} ({}, {}{instance})",
                offer.instance_type, offer.zone, offer.market, offer.price
            )
        }
        None if explained.alone => "a run of the agent alone".to_owned(),
        None => format!("attempt {number}: nothing was launched yet"),
    };
    printer.prose(2, printer.paint(Stream::Out, Style::Bold, &title));
    for entry in entries {
        printer.prose(TEXT_AT, line(began, entry.at, entry.word, &entry.text));
    }
    if let (Some(plan), None, true) = (&attempt.plan, &attempt.settled, attempt.events.is_empty()) {
        let now = context.clock.now();
        printer.prose(
            TEXT_AT,
            line(
                began,
                now,
                "now",
                &unheard_text(plan, explained.hard_end, attempt.instance.is_some()),
            ),
        );
    }
}

const TEXT_AT: usize = 24;

fn line(from: Timestamp, at: Timestamp, word: &str, text: &str) -> String {
    format!("  {:>9}  {word:<10} {text}", since(from, at))
}

fn since(from: Timestamp, at: Timestamp) -> String {
    let time = at.duration_since(from);
    format!(
        "{}{}",
        if time.is_negative() { "-" } else { "+" },
        Span::from_secs(time.unsigned_abs().as_secs())
    )
}
