//! The events of one job that are worth a message, from what a tick has observed. Pure.
//!
//! Each event has a topic, and a topic is told once. Not here: the sending (`notifier`).

use std::time::Duration;

use jiff::Timestamp;

use crate::controller::observe::Observed;
use crate::instance::{AttentionKind, Status};
use crate::job::{
    AttemptPhase, EndedBecause, EventKind, JobId, Reaction, Receipt, ResolvedSpec, Wish,
};
use crate::market::{Span, Usd, elapsed};
use crate::policy::Wishes;
use crate::policy::lifecycle::reconcile::AttemptFacts;

/// The longest time before the end of an idle machine at which it is told. Longer would tell of
/// pauses that end by themselves.
const IDLE_AHEAD_SECS_MAX: f64 = 300.0;

/// The same as a share of the idle window.
const IDLE_AHEAD_SHARE: f64 = 1.0 / 3.0;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobEvent {
    pub kind: EventKind,
    /// The subject. The controller tells each subject once.
    pub topic: String,
    pub text: String,
    /// The command that the user types next.
    pub command: Option<String>,
    /// A sentence of the agent, also told as `attention`.
    pub otherwise_attention: bool,
    pub receipt: Option<Box<Receipt>>,
}

impl JobEvent {
    /// Its text is its topic.
    pub(crate) fn new(kind: EventKind, text: impl Into<String>) -> Self {
        let text = text.into();
        let topic = text.clone();
        let (command, receipt) = (None, None);
        JobEvent { kind, topic, text, command, otherwise_attention: false, receipt }
    }

    pub(crate) fn attention(text: impl Into<String>) -> Self {
        JobEvent::new(EventKind::Attention, text)
    }
}

/// The part of a job that a tick sees.
pub(super) struct SeenJob<'a> {
    pub job: &'a JobId,
    pub spec: &'a ResolvedSpec,
    pub observed: &'a Observed,
    pub now: Timestamp,
}

impl SeenJob<'_> {
    pub(super) fn events(&self) -> Vec<JobEvent> {
        let mut events = self.sentences();
        events.extend(self.interrupted());
        events.extend(self.running());
        events.extend(self.idle_soon());
        events
    }

    /// The bill of the settled attempts, plus an estimate for the open one.
    pub(super) fn usd(&self) -> Usd {
        let cost = |attempt: &AttemptFacts| match (&attempt.settled, attempt.watched.launched_at) {
            (Some(settled), _) => settled.usd,
            (None, Some(launched)) => {
                attempt.plan.offer.hourly().cost_of(elapsed(launched, self.now))
            }
            (None, None) => Usd::ZERO,
        };
        self.observed.attempts.iter().map(cost).fold(Usd::ZERO, |sum, usd| sum + usd)
    }

    fn last(&self) -> Option<(&AttemptFacts, &Status)> {
        let last = self.observed.attempts.last()?;
        Some((last, last.status.as_ref()?))
    }

    /// The sentences of the newest heartbeat.
    fn sentences(&self) -> Vec<JobEvent> {
        let Some((_, status)) = self.last() else { return Vec::new() };
        status.sentences().map(|(text, kind)| self.sentence(text, kind)).collect()
    }

    fn sentence(&self, text: &str, about: AttentionKind) -> JobEvent {
        let kind = match about {
            AttentionKind::Stalled => EventKind::Stalled,
            AttentionKind::Idle => EventKind::Idle,
            AttentionKind::Stacks | AttentionKind::Other => EventKind::Attention,
        };
        let command = match kind {
            EventKind::Stalled => Some(format!("lamp logs {}", self.job)),
            EventKind::Idle => Some(format!("lamp stop {}", self.job)),
            _ => None,
        };
        JobEvent { command, otherwise_attention: true, ..JobEvent::new(kind, text) }
    }

    /// The newest attempt that lost its machine. Earlier ones are no news.
    fn interrupted(&self) -> Option<JobEvent> {
        let because = |attempt: &AttemptFacts| {
            let settled = attempt.settled.as_ref().map(|settled| settled.because);
            settled.or(attempt.outcome.as_ref().map(|outcome| outcome.because))
        };
        let is_lost =
            |attempt: &&AttemptFacts| because(attempt).is_some_and(EndedBecause::is_interruption);
        let lost = self.observed.attempts.iter().rev().find(is_lost)?;
        let what = match because(lost) {
            Some(EndedBecause::Interrupted) => "the cloud took its machine",
            Some(EndedBecause::HardwareLost) => "its machine lost a GPU",
            _ => "its machine was lost",
        };
        let number = lost.plan.attempt.number();
        let saved = self.saved(lost);
        let text = format!(
            "attempt {number} ({}) was interrupted: {what}; {saved}. Another machine is bought within the limits of the job",
            place(lost)
        );
        Some(JobEvent {
            topic: format!("attempt {number} interrupted"),
            command: Some(format!("lamp status {}", self.job)),
            ..JobEvent::new(EventKind::Interrupted, text)
        })
    }

    fn saved(&self, lost: &AttemptFacts) -> String {
        let settled = lost.settled.as_ref().and_then(|settled| settled.outcome.as_ref());
        let outcome = lost.outcome.as_ref().or(settled);
        let status = lost.status.as_ref().and_then(|status| status.last_checkpoint.as_ref());
        match outcome.and_then(|outcome| outcome.last_checkpoint.as_ref()).or(status) {
            Some(saved) => format!("its newest checkpoint is {}", saved.number.number()),
            None => "it has saved no checkpoint".to_owned(),
        }
    }

    /// The first start of the command, or its start on another machine.
    fn running(&self) -> Option<JobEvent> {
        let (last, status) = self.last()?;
        if status.phase != AttemptPhase::Running {
            return None;
        }
        let number = last.plan.attempt.number();
        let earlier = self.observed.attempts.iter().rev().skip(1);
        let has_run = earlier
            .filter_map(|attempt| attempt.settled.as_ref())
            .any(|settled| settled.had_machine());
        let price = last.plan.offer.hourly();
        Some(if has_run {
            let from = last.plan.resume_from.map_or_else(
                || "from the beginning".to_owned(),
                |checkpoint| format!("from checkpoint {} or a newer one", checkpoint.number()),
            );
            let text = format!("runs again, {from}: attempt {number} on {}, {price}", place(last));
            let topic = format!("attempt {number} resumed");
            JobEvent { topic, ..JobEvent::new(EventKind::Resumed, text) }
        } else {
            let text = format!("runs on {}, {price}", place(last));
            JobEvent { topic: "started".into(), ..JobEvent::new(EventKind::Started, text) }
        })
    }

    /// The machine ends soon, because nothing uses it. Once for each pause in the work, and again
    /// after it was extended or kept.
    fn idle_soon(&self) -> Option<JobEvent> {
        let (last, status) = self.last()?;
        let reason = status.reason.as_ref().filter(|reason| reason.policy == "idle")?;
        let stops = self.spec.spec.on.idle != Reaction::Notify;
        if status.phase != AttemptPhase::Running || !stops {
            return None;
        }
        let (quiet, window) = reason.clock()?;
        let kept = Wishes::of(&self.observed.requests).kept_until;
        let rest = window - quiet;
        // A keep holds the end off, also after the verdict.
        let left = kept.map_or(rest, |kept| rest.max(kept.duration_since(status.at).as_secs_f64()));
        let ahead = IDLE_AHEAD_SECS_MAX.min(window * IDLE_AHEAD_SHARE);
        if left > ahead || left < 0.0 {
            return None;
        }
        let span = |secs: f64| Span::from_duration(Duration::from_secs(secs.round() as u64));
        let text = format!(
            "nothing used the machine for {}; it ends as idle in about {}",
            span(quiet),
            span(left)
        );
        let extended = self.observed.requests.iter();
        let extended = extended.filter(|one| matches!(one.wish, Wish::Extend { .. })).count();
        let worked = reason.numbers.get("worked_secs").copied().unwrap_or_default().round();
        let kept = kept.map(|kept| format!(" kept until {kept}")).unwrap_or_default();
        Some(JobEvent {
            topic: format!(
                "idle attempt {} start {} worked {worked} extended {extended}{kept}",
                last.plan.attempt.number(),
                status.starts
            ),
            command: Some(self.extend()),
            ..JobEvent::new(EventKind::Idle, text)
        })
    }

    /// The command that lets it run on: it also starts the idle clock again.
    fn extend(&self) -> String {
        let limits = &self.spec.spec.limits;
        match (limits.max_runtime.is_some() || limits.deadline.is_some(), limits.budget) {
            (true, _) => format!("lamp extend {} 1h", self.job),
            (false, Some(_)) => format!("lamp extend {} --budget 1", self.job),
            (false, None) => format!("lamp extend {} --keep 1h", self.job),
        }
    }
}

/// Where an attempt runs.
fn place(attempt: &AttemptFacts) -> String {
    let offer = &attempt.plan.offer;
    format!("{} in {}, {}", offer.instance_type, offer.zone, offer.market)
}
