//! `lamp explain`: the verdicts on a job, their times and numbers, and why it ended.

use crate::app::find_job;
use crate::app::record_errors;
use crate::app::view::job_summary::Summary;
use clap::Args as ClapArgs;
use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::{local_time, waits_text};
use crate::app::view::discarded::DiscardedShown;
use crate::app::view::idle_cost;
use crate::app::view::next_end::Held;
use crate::app::view::reason_text::{asker, market_text, reason_text};
use crate::app::view::receipt_text::resumed_text;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Stream, Style};
use crate::job::{AttemptNo, JobState, Plan, Reason, Request, Settled, is_absence};
use crate::jobdir::{Event, JobDir, JobDirError, What, unless_damaged};
use crate::market::{Cloud, Span};
use crate::policy::cloud_text;
use crate::policy::watch::idle_cost::IdleCost;

/// Show every verdict on a job with the numbers behind it, and why it ended
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Every event, not only verdicts and turning points
    #[arg(short, long)]
    pub all: bool,
}

#[derive(Serialize)]
struct Explained {
    job: String,
    state: JobState,
    reason: Option<String>,
    /// Why nothing is launched for it now, and until when at the latest.
    waiting: Option<String>,
    waiting_until: Option<Timestamp>,
    /// Its machine is kept after its end.
    held: Option<Held>,
    /// Stored data that was deleted.
    discarded: Option<DiscardedShown>,
    requests: Vec<Request>,
    /// With `market = "auto"`: each change of market, oldest first.
    market: Vec<Reason>,
    attempts: Vec<ExplainedAttempt>,
    #[serde(skip)]
    setup: Option<String>,
    /// When the machine of a current attempt ends at the latest, with all extensions.
    #[serde(skip)]
    hard_end: Option<Timestamp>,
    /// A standalone run of the agent.
    #[serde(skip)]
    alone: bool,
    #[serde(skip)]
    created: Option<Timestamp>,
}

#[derive(Serialize)]
struct ExplainedAttempt {
    attempt: AttemptNo,
    /// Absent for a standalone run.
    plan: Option<Plan>,
    settled: Option<Settled>,
    /// The machine, once its agent has the lease or the attempt is settled.
    instance: Option<String>,
    /// The reasons of the end, oldest first.
    reasons: Vec<Reason>,
    /// The cost of the wait for the last idle verdict, and of a stop by mistake.
    idle_cost: Option<IdleCost>,
    /// The time of that verdict.
    #[serde(skip)]
    idle_at: Option<Timestamp>,
    events: Vec<Event>,
}

impl ExplainedAttempt {
    fn began(&self) -> Option<Timestamp> {
        self.plan
            .as_ref()
            .map(|plan| plan.created)
            .or_else(|| self.events.first().map(|event| event.at))
    }
}

/// # Errors
/// Fails when the job is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = find_job::find_to_watch(&store, args.job.as_deref()).await?;
    let mut explained = read(&dir, context.clock.now())
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
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
    let (mut untold, mut decisions): (Vec<&Request>, Vec<&Reason>) =
        (explained.requests.iter().collect(), explained.market.iter().collect());
    for (index, attempt) in explained.attempts.iter().enumerate() {
        let next = explained.attempts.get(index + 1).and_then(ExplainedAttempt::began);
        let (now, later) = untold
            .into_iter()
            .partition::<Vec<_>, _>(|request| next.is_none_or(|next| request.at < next));
        let (decided, to_come) = decisions
            .into_iter()
            .partition::<Vec<_>, _>(|reason| next.is_none_or(|next| reason.at < next));
        (untold, decisions) = (later, to_come);
        show_attempt(context, attempt, (&now, &decided), &explained, args.all);
    }
    for reason in decisions {
        printer.prose(2, format!("market at {}: {}", local_time(reason.at), market_text(reason)));
    }
    for request in untold {
        printer.line(format!(
            "request {} by {} at {}: {}",
            request.number,
            request.by,
            local_time(request.at),
            request.wish
        ));
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
    if let Some(gone) = &explained.discarded {
        printer.prose(2, format!("discarded {}", gone.text()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(dir: &JobDir, now: Timestamp) -> Result<Explained, JobDirError> {
    let summary = Summary::read(dir, now).await?;
    let mut attempts = Vec::new();
    for number in dir.attempts().await? {
        let plan = dir.plan(number).await?;
        let settled = dir.settled(number).await?;
        let outcome = match settled.as_ref().and_then(|settled| settled.outcome.clone()) {
            Some(outcome) => Some(outcome),
            None => unless_damaged(dir.outcome(number).await)?,
        };
        let reasons = outcome.map(|outcome| outcome.reasons).unwrap_or_default();
        let events = dir.events(number).await?;
        let instance = match settled.as_ref().and_then(|settled| settled.instance.clone()) {
            Some(instance) => Some(instance),
            None => unless_damaged(dir.lease(number).await)?.map(|lease| lease.instance),
        };
        let (idle_at, idle_cost) = idle_cost::of(plan.as_ref(), &reasons, &events).unzip();
        attempts.push(ExplainedAttempt {
            attempt: number,
            plan,
            settled,
            instance,
            reasons,
            idle_cost,
            idle_at,
            events,
        });
    }
    let spec = dir.spec().await?;
    Ok(Explained {
        job: dir.job().to_string(),
        alone: summary.as_ref().is_some_and(|summary| summary.alone),
        created: spec.as_ref().map(|spec| spec.created),
        state: summary.as_ref().map_or(JobState::Submitted, |summary| summary.state),
        waiting: summary.as_ref().and_then(|summary| summary.waiting.clone()),
        waiting_until: summary.as_ref().and_then(|summary| summary.waiting_until),
        held: summary.as_ref().and_then(|summary| summary.held.clone()),
        hard_end: summary.as_ref().and_then(|summary| summary.plan.as_ref()?.kill_at),
        reason: summary.and_then(|summary| summary.reason),
        discarded: DiscardedShown::read(dir).await,
        requests: dir.requests().await?,
        market: unless_damaged(dir.market().await)?.map(|log| log.decisions).unwrap_or_default(),
        attempts,
        setup: spec.and_then(|spec| spec.spec.setup),
    })
}

type Beside<'a> = (&'a [&'a Request], &'a [&'a Reason]);

fn show_attempt(
    context: &Context,
    attempt: &ExplainedAttempt,
    beside: Beside<'_>,
    explained: &Explained,
    all: bool,
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
    for told in told(attempt, beside, explained.setup.as_deref(), all) {
        printer.prose(TEXT_AT, line(began, told.at, told.word, &told.text));
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

struct Told {
    at: Timestamp,
    word: &'static str,
    text: String,
}

/// The story of an attempt in order of time, each thing once.
fn told(
    attempt: &ExplainedAttempt,
    (requests, decisions): Beside<'_>,
    setup: Option<&str>,
    all: bool,
) -> Vec<Told> {
    let mut lines = Vec::new();
    // The plan has these reasons already.
    let planned = |reason: &Reason| {
        attempt.plan.as_ref().is_some_and(|plan| plan.reasons.contains(&reason.text))
    };
    lines.extend(decisions.iter().filter(|reason| !planned(reason)).map(|reason| Told {
        at: reason.at,
        word: "market",
        text: market_text(reason),
    }));
    if let Some(plan) = &attempt.plan {
        lines.push(Told { at: plan.created, word: "plan", text: plan.reasons.join("; ") });
    }
    let mut starts =
        Starts { setup: setup.map(|script| format!("-ec {script}")), setups: 0, last_setup: None };
    for event in &attempt.events {
        if let Some((word, text)) = event_text(&event.what, &mut starts, all) {
            let ended_it = matches!(&event.what, What::Verdict { reason } if attempt.settled.is_some() && attempt.reasons.contains(reason));
            lines.push(Told { at: event.at, word: if ended_it { "because" } else { word }, text });
        }
    }
    if let Some((at, cost)) = attempt.idle_at.zip(attempt.idle_cost.as_ref()) {
        lines.push(Told { at, word: "cost", text: idle_cost::text(cost) });
    }
    for request in requests {
        let seen = attempt.events.iter().any(
            |event| matches!(event.what, What::Wish { number, .. } if number == request.number),
        );
        if !seen {
            lines.push(Told {
                at: request.at,
                word: "request",
                text: format!("{} by {}: {}", request.number, request.by, request.wish),
            });
        }
    }
    if let Some(settled) = &attempt.settled {
        let verdicts: Vec<&Reason> = attempt
            .events
            .iter()
            .filter_map(|event| {
                if let What::Verdict { reason } = &event.what { Some(reason) } else { None }
            })
            .collect();
        let unsaid = attempt.reasons.iter().filter(|reason| !verdicts.contains(reason));
        lines.extend(unsaid.map(|reason| Told {
            at: reason.at,
            word: "because",
            text: reason_text(reason),
        }));
        let cloud = settled
            .cloud_reason
            .as_ref()
            .map(|reason| said_of_the_end(attempt.plan.as_ref(), reason))
            .unwrap_or_default();
        let text = format!(
            "{}, billed {}, {}{cloud}",
            settled.because.word().replace('_', " "),
            settled.billed,
            settled.usd
        );
        let last = lines.iter().map(|line| line.at).max();
        lines.extend(settled.billed_to.or(last).map(|at| Told { at, word: "settled", text }));
    }
    // A stable sort: entries of one time keep their order.
    lines.sort_by_key(|line| line.at);
    lines
}

/// For a machine whose agent has not reported yet.
fn unheard_text(plan: &Plan, hard_end: Option<Timestamp>, has_lease: bool) -> String {
    let said = match has_lease {
        true => "its agent has begun, and prepares",
        false => "its machine is asked for or boots, and its agent has not said a word yet",
    };
    let ends = hard_end
        .map(|at| format!(", and whatever happens at {}", local_time(at)))
        .unwrap_or_default();
    format!("{said}; without one it is ended {} after the launch (`limits.boot`){ends}", plan.boot)
}

fn said_of_the_end(plan: Option<&Plan>, reason: &str) -> String {
    let cloud = plan.map_or(Cloud::Local, |plan| plan.offer.cloud);
    let who = if cloud == Cloud::Local { "the machine" } else { "the cloud" };
    format!("; {who} says: {}", cloud_text(cloud, reason))
}

/// Tells `setup` from the starts of the command.
struct Starts {
    setup: Option<String>,
    setups: u32,
    /// The number of the last start, if it was a setup.
    last_setup: Option<u32>,
}

impl Starts {
    fn end(&self, start: u32, exit: &str, orphans: u32) -> String {
        let setup = if self.last_setup == Some(start) { "setup ended: " } else { "" };
        let orphans = if orphans == 0 {
            String::new()
        } else {
            format!("; {} left behind", processes(orphans))
        };
        format!("{setup}{exit}{orphans}")
    }

    fn text(&mut self, start: u32, command: &str) -> String {
        let setup = ["/bin/sh ", "/bin/bash "].iter().find_map(|shell| command.strip_prefix(shell));
        if setup.is_some() && self.setup.as_deref() == setup {
            self.setups += 1;
            self.last_setup = Some(start);
            let script = setup
                .unwrap_or_default()
                .trim_start_matches("-ec ")
                .trim_start_matches("set -e\n")
                .lines()
                .collect::<Vec<_>>()
                .join("; ");
            return format!("setup: {script}");
        }
        format!("start {}: {command}", start.saturating_sub(self.setups))
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

/// The word and the sentence of an event; `None`: shown only with --all, or never.
fn event_text(what: &What, starts: &mut Starts, all: bool) -> Option<(&'static str, String)> {
    Some(match what {
        What::Verdict { reason } => ("verdict", reason_text(reason)),
        What::Notice { notice } => {
            ("notice", format!("{} at {}", notice.detail, local_time(notice.at)))
        }
        What::Resumed { checkpoint, went_back } => {
            ("resumed", resumed_text(checkpoint, went_back.as_deref()))
        }
        What::WorkloadStarted { start, command, .. } => ("started", starts.text(*start, command)),
        What::WorkloadEnded { start, exit, orphans } => {
            ("ended", starts.end(*start, &exit.to_string(), *orphans))
        }
        What::Wish { number, by, text } => ("request", format!("{number} by {by}: {text}")),
        What::Attention { text } => ("attention", text.clone()),
        What::Loss { text } if is_absence(text) => ("outputs", text.clone()),
        What::Loss { text } => ("lost", text.clone()),
        What::Asked { by, signal, processes: 0 } => (
            "asked",
            format!(
                "to save, {}: nobody has a handler for {signal}, so it was not sent",
                asker(by)
            ),
        ),
        What::Asked { by, signal, .. } => {
            ("asked", format!("to save, {}, with {signal}", asker(by)))
        }
        What::Checkpoint { checkpoint, save_secs, upload_secs, asked_by } => {
            let asked = asked_by.as_ref().map(|by| format!(", {}", asker(by))).unwrap_or_default();
            let took = format!("saved in {save_secs:.1} s, uploaded in {upload_secs:.1} s");
            ("checkpoint", format!("{}: {took}{asked}", checkpoint.told()))
        }
        What::Stacks { key } => ("stacks", key.clone()),
        What::Phase { phase } if all => ("phase", format!("{phase:?}").to_lowercase()),
        What::Agent { version, instance, reattached } if all => (
            "agent",
            format!(
                "{version} on {instance}{}",
                if *reattached { ", found its workload running" } else { "" }
            ),
        ),
        What::Phase { .. } | What::Agent { .. } | What::Unknown => return None,
    })
}

fn processes(number: u32) -> String {
    if number == 1 { "1 process was".into() } else { format!("{number} processes were") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a moment of this century")
    }

    fn event(seq: u64, second: i64, what: What) -> Event {
        Event { seq, at: at(second), what }
    }

    fn went_well() -> crate::job::ExitStatus {
        crate::job::ExitStatus { code: Some(0), signal: None, oom: false }
    }

    fn started(start: u32, command: &str) -> What {
        What::WorkloadStarted { start, pid: 1, command: command.into() }
    }

    #[test]
    fn the_story_is_in_the_order_of_time_and_setup_is_no_start() {
        let (idle, ended) = (
            Reason::new(at(9), "idle", "busy", "it works"),
            Reason::new(at(30), "workload", "failed", "it failed"),
        );
        let events = vec![
            event(1, 1, started(1, "/bin/sh -ec set -e\necho one\necho two")),
            event(2, 2, What::WorkloadEnded { start: 1, exit: went_well(), orphans: 0 }),
            event(2, 3, started(2, "python train.py")),
            // Recorded later than it was judged.
            event(3, 12, What::Asked { by: "you".into(), signal: "SIGUSR1".into(), processes: 1 }),
            event(4, 9, What::Verdict { reason: idle }),
            event(5, 20, started(3, "python train.py")),
            event(6, 30, What::Verdict { reason: ended.clone() }),
        ];
        let settled = json!({ "format": 1, "attempt": 1, "instance": "i", "because": "failed", "billed_from": at(0), "billed_to": at(31),
            "billed": "31s", "usd": 0.0 });
        let attempt = ExplainedAttempt {
            attempt: AttemptNo::FIRST,
            plan: None,
            settled: Some(serde_json::from_value(settled).expect("a record")),
            instance: None,
            reasons: vec![Reason::new(at(28), "stall", "stalled", "no step"), ended],
            idle_cost: None,
            idle_at: None,
            events,
        };
        let request = Request {
            format: 1,
            number: 1,
            at: at(10),
            by: "alice".into(),
            wish: crate::job::Wish::Stop,
        };
        let stays = Reason::new(
            at(25),
            "market",
            "stay",
            "this machine: 2.0 h of work and 5.0 h to spare; anything else could miss the deadline",
        );
        let story =
            told(&attempt, (&[&request], &[&stays]), Some("set -e\necho one\necho two"), false);
        let words: Vec<(i64, &str)> =
            story.iter().map(|line| (line.at.as_second() - at(0).as_second(), line.word)).collect();
        let expected = [
            (1, "started"),
            (2, "ended"),
            (3, "started"),
            (9, "verdict"),
            (10, "request"),
            (12, "asked"),
            (20, "started"),
            (25, "market"),
            (28, "because"),
            (30, "because"),
            (31, "settled"),
        ];
        assert_eq!(words, expected);
        let starts: Vec<&str> = story
            .iter()
            .filter(|line| line.word == "started")
            .map(|line| line.text.as_str())
            .collect();
        assert_eq!(story[1].text, "setup ended: exit code 0");
        assert_eq!(
            starts,
            ["setup: echo one; echo two", "start 1: python train.py", "start 2: python train.py"]
        );
    }
}
