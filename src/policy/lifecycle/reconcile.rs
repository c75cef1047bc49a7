//! The controller's one decision: from a job's records and the cloud's answer to the next actions.
//!
//! ```text
//!   no attempt, or the last is settled ─> relaunch::next: plan the next, or write the receipt
//!   an open attempt, no machine shown ──> missing_machine: launch (again), or settle
//!   an open attempt, its machine shown ─> visible_machine: wait, end it, or settle
//! ```
//! Level-triggered: equal facts give equal actions, so another controller can continue after any of
//! them. If the cloud does not answer, the decision is to wait. This module has no clock.

pub use super::act::Act;
use super::act::wait;
pub use super::attempt_facts::{AttemptFacts, CloudAnswer, JobFacts, history, patience};
use super::attempt_view::AttemptView;
use super::continuation;
use super::forgotten_disk::was_kept;
use super::machine_owner::is_ours;
pub use super::machine_owner::{belongs_elsewhere, is_elsewhere, is_of_another, may_be_of};
use super::missing_machine::missing;
pub use super::observations::{
    AlarmSeen, CheckpointSummaries, Damaged, EndEvidence, GuardLeft, Unshown, Watched,
};
use super::relaunch::{self, Next};
use super::requests::Wishes;
use super::visible_machine::visible;
use crate::instance::InstanceView;
use crate::job::{AttemptPhase, EndedBecause, JobState, Receipt, Settled};

pub fn reconcile(facts: &JobFacts<'_>) -> Vec<Act> {
    let mut acts = orphans(facts);
    acts.extend(match facts.attempts.iter().find(|attempt| attempt.settled.is_none()) {
        None => between(facts),
        Some(attempt) => during(&AttemptView::new(facts, attempt)),
    });
    acts
}

/// The state of a job in one word, from its records alone.
pub fn job_state(receipt: Option<&Receipt>, last: Option<&AttemptFacts>) -> JobState {
    if let Some(receipt) = receipt {
        return receipt.outcome.into();
    }
    let Some(last) = last else { return JobState::Submitted };
    match (&last.settled, &last.outcome, &last.status) {
        // There was no capacity; the next pool is tried, or waited for.
        (Some(settled), ..)
            if relaunch::found_no_machine(settled) || relaunch::had_no_machine(settled) =>
        {
            JobState::Provisioning
        }
        (Some(settled), ..) if settled.because.is_interruption() => JobState::Interrupted,
        // The controller ended that machine, or never launched it, to make room for the next.
        (Some(settled), ..) if settled.because == EndedBecause::Moved => JobState::Provisioning,
        (Some(_), ..) => JobState::Terminating,
        (None, _, Some(status)) if status.phase == AttemptPhase::Held => JobState::Held,
        (None, Some(_), _) => JobState::Terminating,
        (None, None, Some(status)) => status.phase.into(),
        (None, None, None) => JobState::Provisioning,
    }
}

/// Machines of settled attempts: a launch that succeeded after all.
fn orphans(facts: &JobFacts<'_>) -> Vec<Act> {
    let CloudAnswer::Known(views) = facts.cloud else { return Vec::new() };
    let ours = views.iter().filter(|view| is_ours(facts, view) && view.state.bills());
    let settled = |view: &InstanceView| {
        let its = |attempt: &&AttemptFacts| {
            attempt.plan.attempt == view.tags.attempt && may_be_of(&attempt.plan, view)
        };
        facts.attempts.iter().filter(its).find_map(|attempt| attempt.settled.as_deref())
    };
    let end = |(view, settled): (&InstanceView, &Settled)| {
        let (machine, why) = (
            view.machine(),
            format!("attempt {} is settled, and its machine runs", view.tags.attempt.number()),
        );
        // A user started it in the console.
        if was_kept(settled, view) {
            Act::Stop { machine, ends: None, why }
        } else {
            Act::Terminate { machine, ends: None, why }
        }
    };
    ours.filter_map(|view| Some((view, settled(view)?))).map(end).collect()
}

/// All attempts are settled.
fn between(facts: &JobFacts<'_>) -> Vec<Act> {
    let history = history(facts.attempts);
    let elsewhere = is_elsewhere(facts.spec, facts.attempts, facts.owner, facts.here);
    match (
        relaunch::next(&facts.spec.spec, &history, &Wishes::of(facts.requests), facts.now),
        elsewhere,
    ) {
        // Another workstation may lack the job's files, so the job continues where it was. Any
        // controller may write its receipt.
        (Next::Attempt { .. }, Some(elsewhere)) => wait(elsewhere),
        (Next::Attempt { not_before, reason, .. }, None) if not_before > facts.now => {
            vec![Act::Wait { until: Some(not_before), why: reason.text }]
        }
        (Next::Attempt { .. }, None) if let Some(why) = continuation::may_still_start(facts) => {
            wait(why)
        }
        (Next::Attempt { number, reason, .. }, None) => {
            vec![Act::CreatePlan {
                attempt: number,
                resume_from: facts.newest_checkpoint,
                reason: reason.text,
            }]
        }
        (Next::End { because, reason }, _) => {
            let ended = history
                .iter()
                .filter_map(|record| record.settled.billed_to)
                .max()
                .unwrap_or(facts.now);
            let spec = facts.spec;
            let end = (because, reason.text);
            vec![Act::WriteReceipt(Box::new(Receipt::build(
                spec.job.clone(),
                spec.spec.name.clone(),
                spec.created,
                ended,
                end,
                &history,
            )))]
        }
    }
}

/// An attempt is planned and not settled.
fn during(attempt: &AttemptView<'_>) -> Vec<Act> {
    if let CloudAnswer::Unknown(why) = attempt.facts.cloud {
        return wait(format!("the cloud does not say how it is: {why}"));
    }
    match attempt.machine {
        None => missing(attempt),
        Some(view) => {
            continuation::before_its_start(attempt, view).unwrap_or_else(|| visible(attempt, view))
        }
    }
}
