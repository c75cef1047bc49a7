//! The controller's one decision: from a job's records and the cloud's answer to the next actions.
//!
//! ```text
//!   no attempt, or the last is settled ──> relaunch::next: plan the next, or write the receipt
//!   plan, no machine ────────────────────> launch (again), or settle what never existed
//!   machine runs ────────────────────────> wait; end it when its time is over
//!   machine is gone ─────────────────────> settle
//! ```
//! Level-triggered: equal facts give equal actions, so another controller can continue after any of
//! them. If the cloud does not answer, the decision is to wait. This module has no clock.

use std::time::Duration;

pub use super::act::Act;
use super::act::wait;
use super::alarm_arming::guard;
pub use super::attempt_facts::{AttemptFacts, CloudAnswer, Facts, history, patience};
use super::attempt_view::AttemptView;
use super::continuation;
use super::forgotten_disk::{is_all_its_job_has, is_saved_elsewhere, is_to_be_kept, was_kept};
use super::ignored_stop::unheeded;
use super::machine_owner::is_ours;
pub use super::machine_owner::{belongs_elsewhere, is_elsewhere, is_of_another, may_be_of};
use super::missing_machine::{CANCEL_TO_POWER_OFF, OUTCOME_TO_POWER_OFF, missing};
pub use super::observations::{AlarmSeen, Damaged, Ended, GuardLeft, Journal, Unshown, Watched};
use super::relaunch::{self, Next};
use super::requests::Wishes;
use super::stopped_machine::stopped;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{AttemptPhase, EndedBecause, JobState, Receipt, Request, Settled, Wish};
use crate::market::{Cloud, Market, Span};
use crate::policy::billing::settlement::settle;

/// A booting machine has nothing to save, but its agent may be about to take the lease and end it
/// properly. It gets this long (row 16 of docs/promises.md: one minute in all, with a tick and the
/// call). A cancel on EC2 does not wait, because an agent there needs minutes to boot.
const WISH_TO_AGENT: Duration = Duration::from_secs(30);

/// A machine that shuts down for longer hangs. The cloud is asked again and then forces the end.
/// The machine is not billed but uses its quota. With less, a slow but healthy end is cut off.
const STUCK: Duration = Duration::from_secs(10 * 60);

/// Uses this controller's own observation. A workstation's clock a day ahead would cut off each
/// stop in its first second.
fn is_stuck(attempt: &AttemptView<'_>) -> bool {
    attempt.watched.dark_for.is_some_and(|dark| dark > STUCK)
}

pub fn reconcile(facts: &Facts<'_>) -> Vec<Act> {
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
fn orphans(facts: &Facts<'_>) -> Vec<Act> {
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
fn between(facts: &Facts<'_>) -> Vec<Act> {
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
            continuation::before_its_start(attempt, view).unwrap_or_else(|| match view.state {
                InstanceState::Terminated => {
                    vec![Act::Settle(Box::new(settle(attempt)))]
                }
                InstanceState::Stopped => stopped(attempt, view),
                InstanceState::Pending | InstanceState::Running => alive(attempt, view),
                InstanceState::ShuttingDown if is_stuck(attempt) => {
                    let why = format!(
                        "it has been shutting down for more than {} min",
                        STUCK.as_secs() / 60
                    );
                    vec![Act::Terminate { machine: view.machine(), ends: None, why }]
                }
                InstanceState::Stopping if is_stuck(attempt) => vec![stuck_stopping(attempt, view)],
                InstanceState::Stopping | InstanceState::ShuttingDown => {
                    wait(format!("{} is {}", view.id, view.state))
                }
            })
        }
    }
}

/// A forced stop; the disk is judged once the machine is stopped. A cancelled job does not need its
/// disk.
fn stuck_stopping(attempt: &AttemptView<'_>, view: &InstanceView) -> Act {
    let (machine, why) = (
        view.machine(),
        format!("it has been stopping for more than {} min", STUCK.as_secs() / 60),
    );
    let unwanted = attempt.wishes.end.as_ref().is_some_and(|wish| wish.cancel)
        || view.market != Market::OnDemand;
    if unwanted {
        Act::Terminate { machine, ends: None, why }
    } else {
        Act::Stop { machine, ends: None, why }
    }
}

/// The machine exists and bills.
fn alive(attempt: &AttemptView<'_>, view: &InstanceView) -> Vec<Act> {
    let wishes = &attempt.wishes;
    let watched = attempt.watched;
    let terminate = |why: String| {
        vec![Act::Terminate { machine: view.machine(), ends: Some(attempt.plan.attempt), why }]
    };
    let stop = |why: String| {
        vec![Act::Stop {
            machine: view.machine(),
            ends: Some(attempt.plan.attempt),
            why: format!("{why}; its disk is to stay"),
        }]
    };
    if let Some(outcome) =
        attempt.outcome.filter(|_| !attempt.held && watched.outcome_for > OUTCOME_TO_POWER_OFF)
    {
        let why = format!(
            "its attempt has ended, and it still runs after {} s",
            watched.outcome_for.as_secs()
        );
        let unwanted = wishes.end.as_ref().is_some_and(|wish| wish.cancel);
        let is_kept = is_to_be_kept(&attempt.facts.spec.spec.on, outcome, view) && !unwanted;
        let is_spare = watched.unstoppable
            && is_saved_elsewhere(
                &attempt.facts.spec.spec,
                outcome,
                attempt.facts.newest_checkpoint,
            );
        return match (is_kept, is_spare) {
            (true, false) => stop(why),
            (true, true) => terminate(format!(
                "{why}; the cloud never stops it, what its disk holds is in the job root, and the disk goes"
            )),
            (false, _) => terminate(why),
        };
    }
    let heard = attempt.heard;
    let patience = attempt.patience;
    if watched.silent_for > patience {
        let words = if heard { "no heartbeat" } else { "no word of its agent" };
        let dead =
            if attempt.is_host_dead { " where the cloud says that its host fails" } else { "" };
        let why = format!(
            "{words} for {} s, and {} s is the most{dead}",
            watched.silent_for.as_secs(),
            patience.as_secs()
        );
        // With a checkpoint the job continues elsewhere. Without one, all its data is on this disk.
        let unwanted = wishes.end.as_ref().is_some_and(|wish| wish.cancel);
        return if !heard && !unwanted && is_all_its_job_has(attempt.plan, view) {
            stop(why)
        } else {
            terminate(why)
        };
    }
    if let Some(wish) = wishes.end.as_ref().filter(|_| !heard)
        && (wish.cancel && attempt.plan.offer.cloud == Cloud::Aws
            || wish.is_older(attempt.facts.now, WISH_TO_AGENT))
    {
        let why = format!("asked to end by {} before its agent said a word", wish.by);
        return if continuation::is_unheard_and_can_stand(attempt, view) && !wish.cancel {
            stop(why)
        } else {
            terminate(why)
        };
    }
    if let Some(wish) = wishes
        .end
        .as_ref()
        .filter(|wish| wish.cancel && wish.is_older(attempt.facts.now, CANCEL_TO_POWER_OFF))
    {
        return terminate(format!("cancelled by {}, and it still runs", wish.by));
    }
    if let Some(why) = unheeded(attempt) {
        return terminate(why);
    }
    if let (Some(kill_at), Some(set)) = (attempt.kill_at, view.tags.kill_at)
        && kill_at > set
    {
        return vec![Act::RaiseKillAt { machine: view.machine(), kill_at }];
    }
    if let Some((request, notice)) = rehearsal(attempt) {
        return vec![Act::Interrupt {
            attempt: attempt.plan.attempt,
            machine: view.machine(),
            notice,
            request,
        }];
    }
    guard(attempt, view).into_iter().chain(wait(format!("{} is {}", view.id, view.state))).collect()
}

/// The newest interruption that was requested for this attempt and is not done.
fn rehearsal(attempt: &AttemptView<'_>) -> Option<(u32, Span)> {
    let newer = |request: &&Request| {
        request.at > attempt.plan.created && request.number > attempt.watched.interrupt_served
    };
    let wished =
        attempt.facts.requests.iter().rev().filter(newer).find_map(|request| {
            match request.wish {
                Wish::Interrupt { notice } => Some((request.number, notice)),
                _ => None,
            }
        })?;
    // An earlier controller has already posted the current notice. A request without notice time
    // cuts the power at any phase.
    let now = wished.1 == Span::ZERO;
    let status = attempt.status?;
    (now || (status.phase == AttemptPhase::Running && status.notice.is_none())).then_some(wished)
}
