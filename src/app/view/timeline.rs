//! What happened to a job, attempt by attempt, in order of time: verdicts, checkpoints, notices,
//! requests and ends.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::Serialize;

use super::discarded::DiscardedShown;
use super::idle_cost;
use super::job_summary::Summary;
use super::next_end::Held;
use super::plot_data::READS_IN_FLIGHT;
use super::reason_text::{asker, market_text, reason_text};
use super::summary_text::resumed_text;
use crate::app::text::local_time;
use crate::job::{
    AttemptNo, CheckpointSummary, JobState, Plan, Reason, Request, Settled, is_absence,
};
use crate::jobdir::{Event, EventDetail, JobDir, JobDirError, unless_damaged};
use crate::market::CloudKind;
use crate::policy::cloud_text;
use crate::policy::watch::idle_cost::IdleCost;

/// A job as `lamp explain` and the page of a job tell it. The field names are an interface.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Explained {
    pub job: String,
    pub state: JobState,
    pub reason: Option<String>,
    /// Why nothing is launched for it now, and until when at the latest.
    pub waiting: Option<String>,
    pub waiting_until: Option<Timestamp>,
    /// Its machine is kept after its end.
    pub held: Option<Held>,
    /// Stored data that was deleted.
    pub discarded: Option<DiscardedShown>,
    pub requests: Vec<Request>,
    /// With `market = "auto"`: each change of market, oldest first.
    pub market: Vec<Reason>,
    pub attempts: Vec<ExplainedAttempt>,
    #[serde(skip)]
    pub setup: Option<String>,
    /// When the machine of a current attempt ends at the latest, with all extensions.
    #[serde(skip)]
    pub hard_end: Option<Timestamp>,
    /// A standalone run of the agent.
    #[serde(skip)]
    pub alone: bool,
    #[serde(skip)]
    pub created: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct ExplainedAttempt {
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    /// Absent for a standalone run.
    pub plan: Option<Plan>,
    pub settled: Option<Settled>,
    /// The machine, once its agent has the lease or the attempt is settled.
    pub instance: Option<String>,
    /// The reasons of the end, oldest first.
    pub reasons: Vec<Reason>,
    /// The cost of the wait for the last idle verdict, and of a stop by mistake.
    pub idle_cost: Option<IdleCost>,
    /// The time of that verdict.
    #[serde(skip)]
    pub idle_at: Option<Timestamp>,
    pub events: Vec<Event>,
}

impl ExplainedAttempt {
    pub fn began(&self) -> Option<Timestamp> {
        self.plan
            .as_ref()
            .map(|plan| plan.created)
            .or_else(|| self.events.first().map(|event| event.at))
    }

    /// The checkpoint that it began from. An attempt that is under way, or was lost, has it in its
    /// events only.
    pub fn resumed_from(&self) -> Option<&CheckpointSummary> {
        let outcome = self.settled.as_ref().and_then(|settled| settled.outcome.as_ref());
        let ended = outcome.and_then(|outcome| outcome.resumed_from.as_ref());
        ended.or_else(|| {
            self.events.iter().find_map(|event| match &event.what {
                EventDetail::Resumed { checkpoint, .. } => Some(checkpoint),
                _ => None,
            })
        })
    }
}

/// # Errors
/// Fails when the store is unreachable, or a record is not understood.
pub async fn read(dir: &JobDir, now: Timestamp) -> Result<Explained, JobDirError> {
    let summary = Summary::read(dir, now).await?;
    of(dir, summary.as_ref()).await
}

/// The same with a summary that the caller has read.
///
/// # Errors
/// As [`read`].
pub async fn of(dir: &JobDir, summary: Option<&Summary>) -> Result<Explained, JobDirError> {
    let numbers = stream::iter(dir.attempts().await?);
    let read = numbers.map(|number| attempt_of(dir, number)).buffered(READS_IN_FLIGHT);
    let attempts = read.try_collect().await?;
    let spec = dir.spec().await?;
    Ok(Explained {
        job: dir.job().to_string(),
        alone: summary.is_some_and(|summary| summary.alone),
        created: spec.as_ref().map(|spec| spec.created),
        state: summary.map_or(JobState::Submitted, |summary| summary.state),
        waiting: summary.and_then(|summary| summary.waiting.clone()),
        waiting_until: summary.and_then(|summary| summary.waiting_until),
        held: summary.and_then(|summary| summary.held.clone()),
        hard_end: summary.and_then(|summary| summary.plan.as_ref()?.kill_at),
        reason: summary.and_then(|summary| summary.reason.clone()),
        discarded: DiscardedShown::read(dir).await,
        requests: dir.requests().await?,
        market: unless_damaged(dir.market().await)?.map(|log| log.decisions).unwrap_or_default(),
        attempts,
        setup: spec.and_then(|spec| spec.spec.setup),
    })
}

async fn attempt_of(dir: &JobDir, number: AttemptNo) -> Result<ExplainedAttempt, JobDirError> {
    let (plan, settled, events) =
        tokio::try_join!(dir.plan(number), dir.settled(number), dir.events(number))?;
    let outcome = match settled.as_ref().and_then(|settled| settled.outcome.clone()) {
        Some(outcome) => Some(outcome),
        None => unless_damaged(dir.outcome(number).await)?,
    };
    let reasons = outcome.map(|outcome| outcome.reasons).unwrap_or_default();
    let instance = match settled.as_ref().and_then(|settled| settled.instance.clone()) {
        Some(instance) => Some(instance),
        None => unless_damaged(dir.lease(number).await)?.map(|lease| lease.instance),
    };
    let (idle_at, idle_cost) = idle_cost::of(plan.as_ref(), &reasons, &events).unzip();
    Ok(ExplainedAttempt {
        attempt: number,
        plan,
        settled,
        instance,
        reasons,
        idle_cost,
        idle_at,
        events,
    })
}

/// Requests and market decisions of the time of an attempt.
type Beside<'a> = (&'a [&'a Request], &'a [&'a Reason]);

/// One entry of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineEntry {
    pub at: Timestamp,
    pub word: &'static str,
    pub text: String,
}

/// The entries of each attempt, with the requests and decisions of its time.
pub fn story(explained: &Explained, all: bool) -> Vec<(AttemptNo, Vec<TimelineEntry>)> {
    let attempts = &explained.attempts;
    let (mut requests, mut decisions): (Vec<&Request>, Vec<&Reason>) =
        (explained.requests.iter().collect(), explained.market.iter().collect());
    let mut story = Vec::with_capacity(attempts.len());
    for (index, attempt) in attempts.iter().enumerate() {
        let next = attempts.get(index + 1).and_then(ExplainedAttempt::began);
        let is_now = |at: Timestamp| next.is_none_or(|next| at < next);
        let (asked, asked_later) = requests.into_iter().partition(|request| is_now(request.at));
        let (decided, decided_later) = decisions.into_iter().partition(|it| is_now(it.at));
        (requests, decisions) = (asked_later, decided_later);
        let beside: (Vec<&Request>, Vec<&Reason>) = (asked, decided);
        let entries = entries(attempt, (&beside.0, &beside.1), explained.setup.as_deref(), all);
        story.push((attempt.attempt, entries));
    }
    story
}

/// The entries of an attempt in order of time, each once. `all`: also phases and agents.
fn entries(
    attempt: &ExplainedAttempt,
    (requests, decisions): Beside<'_>,
    setup: Option<&str>,
    all: bool,
) -> Vec<TimelineEntry> {
    let mut lines = Vec::new();
    // The plan has these reasons already.
    let planned = |reason: &Reason| {
        attempt.plan.as_ref().is_some_and(|plan| plan.reasons.contains(&reason.text))
    };
    lines.extend(decisions.iter().filter(|reason| !planned(reason)).map(|reason| TimelineEntry {
        at: reason.at,
        word: "market",
        text: market_text(reason),
    }));
    if let Some(plan) = &attempt.plan {
        lines.push(TimelineEntry { at: plan.created, word: "plan", text: plan.reasons.join("; ") });
    }
    let mut starts = StartCounter {
        setup: setup.map(|script| format!("-ec {script}")),
        setups: 0,
        last_setup: None,
    };
    for event in &attempt.events {
        if let Some((word, text)) = event_text(&event.what, &mut starts, all) {
            let ended_it = matches!(&event.what, EventDetail::Verdict { reason } if attempt.settled.is_some() && attempt.reasons.contains(reason));
            lines.push(TimelineEntry {
                at: event.at,
                word: if ended_it { "because" } else { word },
                text,
            });
        }
    }
    if let Some((at, cost)) = attempt.idle_at.zip(attempt.idle_cost.as_ref()) {
        lines.push(TimelineEntry { at, word: "cost", text: idle_cost::text(cost) });
    }
    for request in requests {
        let seen = attempt.events.iter().any(
            |event| matches!(event.what, EventDetail::Wish { number, .. } if number == request.number),
        );
        if !seen {
            lines.push(TimelineEntry {
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
                if let EventDetail::Verdict { reason } = &event.what { Some(reason) } else { None }
            })
            .collect();
        let unsaid = attempt.reasons.iter().filter(|reason| !verdicts.contains(reason));
        lines.extend(unsaid.map(|reason| TimelineEntry {
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
        lines.extend(settled.billed_to.or(last).map(|at| TimelineEntry {
            at,
            word: "settled",
            text,
        }));
    }
    // A stable sort: entries of one time keep their order.
    lines.sort_by_key(|line| line.at);
    lines
}

/// For a machine whose agent has not reported yet.
pub fn unheard_text(plan: &Plan, hard_end: Option<Timestamp>, has_lease: bool) -> String {
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
    let cloud = plan.map_or(CloudKind::Local, |plan| plan.offer.cloud);
    let who = if cloud == CloudKind::Local { "the machine" } else { "the cloud" };
    format!("; {who} says: {}", cloud_text(cloud, reason))
}

/// Tells `setup` from the starts of the command.
struct StartCounter {
    setup: Option<String>,
    setups: u32,
    /// The number of the last start, if it was a setup.
    last_setup: Option<u32>,
}

impl StartCounter {
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

/// The word and the sentence of an event; `None`: shown only with --all, or never.
fn event_text(
    what: &EventDetail,
    starts: &mut StartCounter,
    all: bool,
) -> Option<(&'static str, String)> {
    Some(match what {
        EventDetail::Verdict { reason } => ("verdict", reason_text(reason)),
        EventDetail::Notice { notice } => {
            ("notice", format!("{} at {}", notice.detail, local_time(notice.at)))
        }
        EventDetail::Resumed { checkpoint, went_back } => {
            ("resumed", resumed_text(checkpoint, went_back.as_deref()))
        }
        EventDetail::WorkloadStarted { start, command, .. } => {
            ("started", starts.text(*start, command))
        }
        EventDetail::WorkloadEnded { start, exit, orphans } => {
            ("ended", starts.end(*start, &exit.to_string(), *orphans))
        }
        EventDetail::Wish { number, by, text } => ("request", format!("{number} by {by}: {text}")),
        EventDetail::Attention { text } => ("attention", text.clone()),
        EventDetail::Loss { text } if is_absence(text) => ("outputs", text.clone()),
        EventDetail::Loss { text } => ("lost", text.clone()),
        EventDetail::Asked { by, signal, processes: 0 } => (
            "asked",
            format!(
                "to save, {}: nobody has a handler for {signal}, so it was not sent",
                asker(by)
            ),
        ),
        EventDetail::Asked { by, signal, .. } => {
            ("asked", format!("to save, {}, with {signal}", asker(by)))
        }
        EventDetail::Checkpoint { checkpoint, save_secs, upload_secs, asked_by } => {
            let asked = asked_by.as_ref().map(|by| format!(", {}", asker(by))).unwrap_or_default();
            let took = format!("saved in {save_secs:.1} s, uploaded in {upload_secs:.1} s");
            ("checkpoint", format!("{}: {took}{asked}", checkpoint.told()))
        }
        EventDetail::Stacks { key } => ("stacks", key.clone()),
        EventDetail::Phase { phase } if all => ("phase", format!("{phase:?}").to_lowercase()),
        EventDetail::Agent { version, instance, reattached } if all => (
            "agent",
            format!(
                "{version} on {instance}{}",
                if *reattached { ", found its workload running" } else { "" }
            ),
        ),
        EventDetail::Phase { .. } | EventDetail::Agent { .. } | EventDetail::Unknown => {
            return None;
        }
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

    fn event(seq: u64, second: i64, what: EventDetail) -> Event {
        Event { seq, at: at(second), what }
    }

    fn went_well() -> crate::job::ExitStatus {
        crate::job::ExitStatus { code: Some(0), signal: None, oom: false }
    }

    fn started(start: u32, command: &str) -> EventDetail {
        EventDetail::WorkloadStarted { start, pid: 1, command: command.into() }
    }

    #[test]
    fn story_is_in_the_order_of_time_and_setup_is_no_start() {
        let (idle, ended) = (
            Reason::new(at(9), "idle", "busy", "it works"),
            Reason::new(at(30), "workload", "failed", "it failed"),
        );
        let events = vec![
            event(1, 1, started(1, "/bin/sh -ec set -e\necho one\necho two")),
            event(2, 2, EventDetail::WorkloadEnded { start: 1, exit: went_well(), orphans: 0 }),
            event(2, 3, started(2, "python train.py")),
            // Recorded later than it was judged.
            event(
                3,
                12,
                EventDetail::Asked { by: "you".into(), signal: "SIGUSR1".into(), processes: 1 },
            ),
            event(4, 9, EventDetail::Verdict { reason: idle }),
            event(5, 20, started(3, "python train.py")),
            event(6, 30, EventDetail::Verdict { reason: ended.clone() }),
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
            entries(&attempt, (&[&request], &[&stays]), Some("set -e\necho one\necho two"), false);
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
