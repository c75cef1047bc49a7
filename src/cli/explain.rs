//! `lamp explain`: what was judged, when, by which numbers, and why it ended.

use clap::Args as ClapArgs;
use jiff::Timestamp;
use serde::Serialize;

use super::status::local_time;
use super::{Context, ExitCode, Fault, Stream, Style, job_root};
use crate::job::{AttemptNo, JobState, Plan, Reason, Request, Settled};
use crate::jobdir::{Event, JobDir, JobDirError, What, unless_damaged};
use crate::market::Span;

/// Show every verdict on a job with the numbers behind it, and why it ended
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Every event, not only verdicts and turning points
    #[arg(short, long)]
    pub all: bool,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Explained {
    job: String,
    state: JobState,
    reason: Option<String>,
    requests: Vec<Request>,
    attempts: Vec<ExplainedAttempt>,
}

#[derive(Serialize)]
struct ExplainedAttempt {
    attempt: AttemptNo,
    /// Absent for a run of the agent alone.
    plan: Option<Plan>,
    settled: Option<Settled>,
    /// The reason chain of the end, oldest first.
    reasons: Vec<Reason>,
    events: Vec<Event>,
}

/// # Errors
/// There is no such job, or the job root does not answer.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context)?;
    let dir = job_root::find(&store, args.job.as_deref()).await?;
    let explained = read(&dir, context.clock.now()).await.map_err(|error| job_root::record_fault(&error))?;
    if context.is_machine_output() {
        context.printer.json(&explained);
        return Ok(ExitCode::SUCCESS);
    }
    let printer = &context.printer;
    printer.line(format!("{}: {}", explained.job, explained.state));
    for attempt in &explained.attempts {
        show_attempt(context, attempt, args.all);
    }
    for request in &explained.requests {
        printer.line(format!("request {} by {} at {}: {}", request.number, request.by, local_time(request.at), request.wish));
    }
    if let Some(reason) = &explained.reason {
        printer.line(printer.paint(Stream::Out, Style::Bold, &format!("{}: {reason}", explained.state)));
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(dir: &JobDir, now: Timestamp) -> Result<Explained, JobDirError> {
    let summary = super::summary::Summary::read(dir, now).await?;
    let mut attempts = Vec::new();
    // A run of the agent alone has no controller to settle it: its outcome is its end.
    let mut alone = None;
    for number in dir.attempts().await? {
        let plan = dir.plan(number).await?;
        let settled = dir.settled(number).await?;
        let outcome = match settled.as_ref().and_then(|settled| settled.outcome.clone()) {
            Some(outcome) => Some(outcome),
            None => unless_damaged(dir.outcome(number).await)?,
        };
        if plan.is_none() {
            alone = outcome
                .as_ref()
                .map(|outcome| (JobState::from(outcome.because.job_outcome()), outcome.reasons.last().map(|reason| reason.text.clone())));
        }
        let reasons = outcome.map(|outcome| outcome.reasons).unwrap_or_default();
        attempts.push(ExplainedAttempt { attempt: number, plan, settled, reasons, events: dir.events(number).await? });
    }
    Ok(Explained {
        job: dir.job().to_string(),
        state: alone.as_ref().map(|(state, _)| *state).or(summary.as_ref().map(|summary| summary.state)).unwrap_or(JobState::Submitted),
        reason: alone.and_then(|(_, reason)| reason).or(summary.and_then(|summary| summary.reason)),
        requests: dir.requests().await?,
        attempts,
    })
}

fn show_attempt(context: &Context, attempt: &ExplainedAttempt, all: bool) {
    let printer = &context.printer;
    let began =
        attempt.plan.as_ref().map(|plan| plan.created).or_else(|| attempt.events.first().map(|event| event.at)).unwrap_or(Timestamp::UNIX_EPOCH);
    let number = attempt.attempt.number();
    let title = match &attempt.plan {
        Some(plan) => format!("attempt {number} on {} ({}, {})", plan.offer.instance_type, plan.offer.market, plan.offer.price),
        None => "a run of the agent alone".to_owned(),
    };
    printer.line(printer.paint(Stream::Out, Style::Bold, &title));
    if let Some(plan) = &attempt.plan {
        printer.line(line(began, plan.created, "plan", &plan.reasons.join("; ")));
    }
    for event in &attempt.events {
        if let Some((word, text)) = event_text(&event.what, all) {
            printer.line(line(began, event.at, word, &text));
        }
    }
    let Some(settled) = &attempt.settled else { return };
    for reason in &attempt.reasons {
        printer.line(line(began, reason.at, "because", &reason_text(reason)));
    }
    let cloud = settled.cloud_reason.as_ref().map(|reason| format!("; the cloud says: {reason}")).unwrap_or_default();
    let text = format!("{}, billed {}, {}{cloud}", settled.because.word().replace('_', " "), settled.billed, settled.usd);
    printer.line(line(began, settled.billed_to.unwrap_or(began), "settled", &text));
}

fn line(from: Timestamp, at: Timestamp, word: &str, text: &str) -> String {
    format!("  {:>9}  {word:<10} {text}", since(from, at))
}

/// A moment after another, as people read it.
fn since(from: Timestamp, at: Timestamp) -> String {
    let time = at.duration_since(from);
    format!("{}{}", if time.is_negative() { "-" } else { "+" }, Span::from_secs(time.unsigned_abs().as_secs()))
}

/// The word and the sentence of an event; `None`: shown only with --all, or never.
fn event_text(what: &What, all: bool) -> Option<(&'static str, String)> {
    Some(match what {
        What::Verdict { reason } => ("verdict", reason_text(reason)),
        What::Notice { notice } => ("notice", format!("{} at {}", notice.detail, local_time(notice.at))),
        What::Resumed { checkpoint } => ("resumed", format!("from checkpoint {}{}", checkpoint.number.number(), step_text(checkpoint.step))),
        What::WorkloadStarted { start, command, .. } => ("started", format!("start {start}: {command}")),
        What::WorkloadEnded { exit, orphans: 0, .. } => ("ended", exit.to_string()),
        What::WorkloadEnded { exit, orphans, .. } => ("ended", format!("{exit}; {orphans} processes were left behind")),
        What::Wish { number, by, text } => ("request", format!("{number} by {by}: {text}")),
        What::Attention { text } => ("attention", text.clone()),
        What::Loss { text } => ("lost", text.clone()),
        What::Asked { by, signal, processes: 0 } => ("asked", format!("to save ({by}): nobody has a handler for {signal}, so it was not sent")),
        What::Asked { by, signal, .. } => ("asked", format!("to save ({by}), with {signal}")),
        What::Checkpoint { checkpoint, save_secs, upload_secs, asked_by } => {
            let asked = asked_by.as_ref().map(|by| format!(", asked for by {by}")).unwrap_or_default();
            let took = format!("saved in {save_secs:.1} s, uploaded in {upload_secs:.1} s");
            ("checkpoint", format!("{}{}: {took}{asked}", checkpoint.number.number(), step_text(checkpoint.step)))
        }
        What::Stacks { key } => ("stacks", key.clone()),
        What::Phase { phase } if all => ("phase", format!("{phase:?}").to_lowercase()),
        What::Agent { version, instance, reattached } if all => {
            ("agent", format!("{version} on {instance}{}", if *reattached { ", found its workload running" } else { "" }))
        }
        What::Phase { .. } | What::Agent { .. } | What::Unknown => return None,
    })
}

fn step_text(step: Option<f64>) -> String {
    step.map(|step| format!(" (step {step})")).unwrap_or_default()
}

/// `idle/busy: the GPU works (gpu_percent 93, quiet_secs 0)`
fn reason_text(reason: &Reason) -> String {
    let numbers: Vec<String> = reason.numbers.iter().map(|(name, number)| format!("{name} {}", round(*number))).collect();
    let numbers = if numbers.is_empty() { String::new() } else { format!(" ({})", numbers.join(", ")) };
    format!("{}/{}: {}{numbers}", reason.policy, reason.verdict, reason.text)
}

fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
