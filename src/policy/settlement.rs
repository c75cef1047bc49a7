//! What an attempt was and cost, once its machine is gone.
//!
//! The agent's outcome has the last word on why. When it left none, or one that cannot be read, the cloud's reason, the users' wishes and the last
//! heartbeat say what can be said. What must never live here: a guess that reads like a fact.

use std::time::Duration;

use jiff::Timestamp;

use super::billing;
use super::reconcile::{AttemptFacts, Facts};
use super::wishes::Wishes;
use crate::instance::{InstanceView, NoticeKind, Status};
use crate::job::{AttemptPhase, EndedBecause, Outcome, RECORD_FORMAT, Reason, Settled};
use crate::market::{Span, Usd, elapsed};

/// The settled record of an attempt whose machine is gone (`view`), or never was or is not shown any more (`None`).
pub(super) fn settle(facts: &Facts<'_>, attempt: &AttemptFacts, view: Option<&InstanceView>) -> Settled {
    let last_seen = attempt.status.as_ref().map(|status| status.at);
    let known = attempt.lease.as_ref().map(|lease| lease.instance.clone()).or_else(|| attempt.watched.launched.clone());
    let known = known.or_else(|| attempt.status.as_ref().map(|status| status.instance.clone()));
    let instance = view.map(|view| view.id.clone()).or(known);
    // Of a machine that the cloud no longer shows, only its own records tell from when to when.
    let from = view.map(|view| view.launched).or_else(|| instance.is_some().then_some(attempt.plan.created));
    let to = view.and_then(|view| view.ended).or(last_seen).or_else(|| view.map(|_| facts.now)).or(from);
    let billed = match (from, to) {
        (Some(from), Some(to)) => billing::billed(attempt.plan.offer.cloud, elapsed(from, to)),
        _ => Duration::ZERO,
    };
    // Whole milliseconds, as records keep them; the price is for exactly what the record says.
    let billed = Span::from_duration(Duration::from_millis(u64::try_from(billed.as_millis()).unwrap_or(u64::MAX)));
    let because = because(facts, attempt, view, instance.is_some());
    let refused = attempt.watched.refused.as_ref();
    let cloud_reason = refused.map(|(_, text)| text.clone()).or_else(|| view.and_then(|view| view.state_reason.clone()));
    let cloud_reason = cloud_reason.or_else(|| view.is_none().then(|| "the cloud knows no machine of this plan".to_owned()));
    let outcome = attempt.outcome.clone().or_else(|| last_words(facts, attempt, because, instance.clone()?, to?, cloud_reason.as_deref()));
    Settled {
        format: RECORD_FORMAT,
        attempt: attempt.plan.attempt,
        instance: instance.clone(),
        because,
        billed_from: from,
        billed_to: to,
        billed,
        usd: if instance.is_some() { billing::cost(&attempt.plan.offer, billed.duration(), taken_by_cloud(view)) } else { Usd::ZERO },
        refusal: refused.and_then(|(refusal, _)| *refusal),
        cloud_reason,
        outcome,
    }
}

/// Whether the cloud itself took a spot machine back; a notice alone does not say so.
fn taken_by_cloud(view: Option<&InstanceView>) -> bool {
    view.and_then(|view| view.state_reason.as_deref()).is_some_and(|reason| reason.starts_with("Server.Spot"))
}

fn because(facts: &Facts<'_>, attempt: &AttemptFacts, view: Option<&InstanceView>, existed: bool) -> EndedBecause {
    if let Some(outcome) = &attempt.outcome {
        return outcome.because;
    }
    if attempt.watched.refused.is_some() {
        return EndedBecause::LaunchFailed;
    }
    if let Some((because, _)) = told_at_the_end(attempt) {
        return because;
    }
    let reason = view.and_then(|view| view.state_reason.as_deref()).unwrap_or_default();
    let ended = view.and_then(|view| view.ended);
    let taken = attempt
        .status
        .as_ref()
        .and_then(|status| status.notice.as_ref())
        .is_some_and(|notice| notice.kind == NoticeKind::Interruption && ended.is_none_or(|ended| ended >= notice.at));
    if reason.starts_with("Server.Spot") || (taken && !reason.starts_with("Client.")) {
        return EndedBecause::Interrupted;
    }
    if let Some(wish) = Wishes::of(facts.requests).end
        && (!existed || view.is_some())
    {
        return wish.because();
    }
    let kill_at = view.and_then(|view| view.tags.kill_at);
    if ended.is_some() && kill_at.is_some_and(|kill_at| ended >= Some(kill_at)) {
        return EndedBecause::HardEnd;
    }
    if reason.starts_with("Client.InternalError") || reason.starts_with("Client.VolumeLimitExceeded") {
        return EndedBecause::LaunchFailed;
    }
    if reason.starts_with("Client.UserInitiatedShutdown") && !was_silent(attempt, view) {
        return EndedBecause::UserStopped;
    }
    EndedBecause::Lost
}

/// Of an outcome that cannot be read, what the heartbeat that followed it says: why, and in which words. Only one that came
/// after it is the agent's last word.
fn told_at_the_end(attempt: &AttemptFacts) -> Option<(EndedBecause, &str)> {
    let after = |status: &&Status| matches!(status.phase, AttemptPhase::Held | AttemptPhase::Ended);
    let status = attempt.status.as_ref().filter(|_| attempt.watched.damaged.outcome).filter(after)?;
    let reason = status.reason.as_ref()?;
    Some((EndedBecause::from_word(&reason.verdict)?, &reason.text))
}

/// Whether the machine had lost its lease when it ended: then it was ended by us (or could have been), not by hand.
fn was_silent(attempt: &AttemptFacts, view: Option<&InstanceView>) -> bool {
    let heard = attempt.status.as_ref().map(|status| status.at).or_else(|| view.map(|view| view.launched));
    let (Some(heard), Some(ended)) = (heard, view.and_then(|view| view.ended)) else { return false };
    elapsed(heard, ended) >= attempt.plan.lease.duration()
}

/// What the last heartbeat says of an attempt whose agent left no outcome, or one that cannot be read.
fn last_words(
    facts: &Facts<'_>,
    attempt: &AttemptFacts,
    because: EndedBecause,
    instance: String,
    ended: Timestamp,
    cloud_reason: Option<&str>,
) -> Option<Outcome> {
    let (status, damaged) = (attempt.status.as_ref(), attempt.watched.damaged.outcome);
    if status.is_none() && !damaged {
        return None;
    }
    let mut reasons: Vec<Reason> = status.and_then(|status| status.reason.clone()).into_iter().collect();
    reasons.push(Reason::new(facts.now, "settle", because.word(), why(attempt, because, cloud_reason)));
    let number = attempt.plan.attempt.number();
    let loss = format!("the outcome of attempt {number} could not be read: what is said of its end comes from its last heartbeat");
    let taken = attempt.lease.as_ref().map(|lease| lease.taken);
    Some(Outcome {
        format: RECORD_FORMAT,
        job: facts.spec.job.clone(),
        attempt: attempt.plan.attempt,
        instance,
        started: status.map(|status| status.started).or(taken).unwrap_or(attempt.plan.created),
        ended,
        because,
        exit: status.and_then(|status| status.exit),
        reasons,
        useful: status.map_or(Span::ZERO, |status| status.useful),
        idle: status.map_or(Span::ZERO, |status| status.idle),
        unknown: Span::ZERO,
        last_checkpoint: attempt.journal.last_checkpoint.clone().or_else(|| status?.last_checkpoint.clone()),
        checkpoints: attempt.journal.checkpoints.max(status.map_or(0, |status| status.checkpoints)),
        resumed_from: attempt.journal.resumed_from.clone(),
        progress: status.and_then(|status| status.progress.clone()),
        losses: damaged.then_some(loss).into_iter().collect(),
    })
}

fn why(attempt: &AttemptFacts, because: EndedBecause, cloud_reason: Option<&str>) -> String {
    let cloud = |otherwise| cloud_reason.unwrap_or(otherwise);
    match because {
        _ if attempt.watched.damaged.outcome => match told_at_the_end(attempt) {
            Some((_, text)) => format!("{text} (by the last heartbeat: the outcome could not be read)"),
            None => format!("the machine is gone, and the outcome that its agent left could not be read ({})", cloud("no reason given")),
        },
        EndedBecause::Interrupted => format!("the cloud took the machine away ({})", cloud("its notice said so")),
        EndedBecause::Lost => format!("the machine is gone and its agent left no outcome ({})", cloud("no reason given")),
        _ => format!("the machine ended before its agent could say why ({})", cloud("no reason given")),
    }
}
