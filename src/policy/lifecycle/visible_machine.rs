//! The cloud shows the machine of the open attempt: the actions for each of its states.
//!
//! ```text
//!   terminated ───────────────> settle
//!   stopped ──────────────────> settle, with its disk; or terminate it
//!   stopping, shutting down ──> wait; force it after ten minutes
//!   running ──────────────────> end it, by the first rule that holds; else a request; else wait
//! ```
//! `continuation` decides first about a kept machine that was not started yet.

use std::time::Duration;

use super::act::{Act, wait};
use super::attempt_view::AttemptView;
use super::continuation::is_unheard_and_can_stand;
use super::forgotten_disk::{is_all_its_job_has, is_saved_elsewhere, is_to_be_kept, keeps_disk};
use super::missing_machine::{CANCEL_TO_POWER_OFF, OUTCOME_TO_POWER_OFF};
use super::observations::GuardLeft;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{AlarmRule, AttemptPhase, EndedBecause, Request, Wish};
use crate::market::{CloudKind, Market, Span};
use crate::policy::billing::end_evidence::{idled_by_alarm, is_by_hand};
use crate::policy::billing::settlement::settle;

/// A booting machine has nothing to save, but its agent may be about to take the lease and end it
/// properly. It gets this long (row 16 of docs/promises.md: one minute in all, with a tick and the
/// call). A cancel on EC2 does not wait, because an agent there needs minutes to boot.
const WISH_TO_AGENT: Duration = Duration::from_secs(30);

/// Time with a known stop and steady heartbeats. A store that loses half the requests delays an
/// agent by minutes. With less, a last save may be cut off. With more, a stopped job bills on.
const HEEDED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// With an older heartbeat, the machine may have hung since. Four heartbeats may be lost. With a
/// longer time, the last heartbeat of a hung machine would remove its alarm.
const OF_NOW: Duration = Duration::from_secs(90);

/// A machine that shuts down for longer hangs. The cloud is asked again and then forces the end.
/// The machine is not billed but uses its quota. With less, a slow but healthy end is cut off.
const STUCK: Duration = Duration::from_secs(10 * 60);

/// Uses this controller's own observation. A workstation's clock a day ahead would cut off each
/// stop in its first second.
fn is_stuck(attempt: &AttemptView<'_>) -> bool {
    attempt.watched.dark_for.is_some_and(|dark| dark > STUCK)
}

pub(crate) fn visible(attempt: &AttemptView<'_>, view: &InstanceView) -> Vec<Act> {
    match view.state {
        InstanceState::Terminated => vec![Act::Settle(Box::new(settle(attempt)))],
        InstanceState::Stopped => stopped(attempt, view),
        InstanceState::Pending | InstanceState::Running => running(attempt, view),
        InstanceState::ShuttingDown if is_stuck(attempt) => {
            let why =
                format!("it has been shutting down for more than {} min", STUCK.as_secs() / 60);
            vec![Act::Terminate { machine: view.machine(), ends: None, why }]
        }
        InstanceState::Stopping if is_stuck(attempt) => vec![stuck_stopping(attempt, view)],
        InstanceState::Stopping | InstanceState::ShuttingDown => {
            wait(format!("{} is {}", view.id, view.state))
        }
    }
}

/// A stopped machine computes nothing, and its disk bills: settle the attempt with its disk, or
/// delete it. It stays after a stop by hand, and after a stop before the first heartbeat.
/// Otherwise the job file decides.
fn stopped(attempt: &AttemptView<'_>, view: &InstanceView) -> Vec<Act> {
    let done = || vec![Act::Settle(Box::new(settle(attempt)))];
    match attempt.outcome {
        Some(outcome) if keeps_disk(&attempt.facts.spec.spec.on, outcome.because) => done(),
        Some(_) => {
            vec![terminate(
                attempt,
                view,
                "its attempt has ended, and its disk is not to be kept".into(),
            )]
        }
        None if attempt.watched.damaged.outcome || is_by_hand(attempt, view) => done(),
        None if idled_by_alarm(attempt, view)
            && keeps_disk(&attempt.facts.spec.spec.on, EndedBecause::Idle) =>
        {
            done()
        }
        None if attempt.never_came_up => done(),
        None => {
            vec![terminate(attempt, view, "it is stopped, and its agent left no outcome".into())]
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
    let unwanted = is_cancelled(attempt) || view.market != Market::OnDemand;
    if unwanted {
        Act::Terminate { machine, ends: None, why }
    } else {
        Act::Stop { machine, ends: None, why }
    }
}

/// The machine exists and bills. The first rule that holds ends it.
fn running(attempt: &AttemptView<'_>, view: &InstanceView) -> Vec<Act> {
    let act = outlived_outcome(attempt, view)
        .or_else(|| silent(attempt, view))
        .or_else(|| unheard_and_unwanted(attempt, view))
        .or_else(|| overdue_cancel(attempt, view))
        .or_else(|| ignored_stop(attempt, view))
        .or_else(|| raised_cap(attempt, view))
        .or_else(|| rehearsal(attempt, view));
    act.map_or_else(
        || {
            let waits = wait(format!("{} is {}", view.id, view.state));
            guard(attempt, view).into_iter().chain(waits).collect()
        },
        |act| vec![act],
    )
}

fn terminate(attempt: &AttemptView<'_>, view: &InstanceView, why: String) -> Act {
    Act::Terminate { machine: view.machine(), ends: Some(attempt.plan.attempt), why }
}

fn stop(attempt: &AttemptView<'_>, view: &InstanceView, why: &str) -> Act {
    let why = format!("{why}; its disk is to stay");
    Act::Stop { machine: view.machine(), ends: Some(attempt.plan.attempt), why }
}

fn is_cancelled(attempt: &AttemptView<'_>) -> bool {
    attempt.wishes.end.as_ref().is_some_and(|wish| wish.cancel)
}

/// It still runs after its outcome.
fn outlived_outcome(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let (spec, outcome_for) = (&attempt.facts.spec.spec, attempt.watched.outcome_for);
    let is_late = !attempt.held && outcome_for > OUTCOME_TO_POWER_OFF;
    let outcome = attempt.outcome.filter(|_| is_late)?;
    let why = format!("its attempt has ended, and it still runs after {} s", outcome_for.as_secs());
    let is_kept = is_to_be_kept(&spec.on, outcome, view) && !is_cancelled(attempt);
    let is_spare = attempt.watched.unstoppable
        && is_saved_elsewhere(spec, outcome, attempt.facts.newest_checkpoint);
    Some(match (is_kept, is_spare) {
        (true, false) => stop(attempt, view, &why),
        (true, true) => terminate(
            attempt,
            view,
            format!(
                "{why}; the cloud never stops it, what its disk holds is in the job root, and the disk goes"
            ),
        ),
        (false, _) => terminate(attempt, view, why),
    })
}

/// It is silent for too long. With a checkpoint the job continues elsewhere. Without one, all its
/// data is on this disk.
fn silent(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let (silent_for, patience) = (attempt.watched.silent_for, attempt.patience);
    (silent_for > patience).then(|| {
        let words = if attempt.heard { "no heartbeat" } else { "no word of its agent" };
        let dead =
            if attempt.is_host_dead { " where the cloud says that its host fails" } else { "" };
        let why = format!(
            "{words} for {} s, and {} s is the most{dead}",
            silent_for.as_secs(),
            patience.as_secs()
        );
        let is_needed =
            !attempt.heard && !is_cancelled(attempt) && is_all_its_job_has(attempt.plan, view);
        if is_needed { stop(attempt, view, &why) } else { terminate(attempt, view, why) }
    })
}

/// The user asked for its end before its agent was heard.
fn unheard_and_unwanted(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let wish = attempt.wishes.end.as_ref().filter(|_| !attempt.heard)?;
    let is_due = (wish.cancel && attempt.plan.offer.cloud == CloudKind::Aws)
        || wish.is_older(attempt.facts.now, WISH_TO_AGENT);
    is_due.then(|| {
        let why = format!("asked to end by {} before its agent said a word", wish.by);
        if is_unheard_and_can_stand(attempt, view) && !wish.cancel {
            stop(attempt, view, &why)
        } else {
            terminate(attempt, view, why)
        }
    })
}

/// It still runs long after a cancel.
fn overdue_cancel(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let wish = attempt.wishes.end.as_ref()?;
    let is_overdue = wish.cancel && wish.is_older(attempt.facts.now, CANCEL_TO_POWER_OFF);
    is_overdue
        .then(|| terminate(attempt, view, format!("cancelled by {}, and it still runs", wish.by)))
}

/// Ends a machine whose agent ignores a stop although it sends heartbeats. An agent reads requests
/// every few seconds, and its phase then shows the end. This one cannot read them, because its role
/// may lack the permission to list them, or it has failed.
fn ignored_stop(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let wish = attempt.wishes.end.as_ref().filter(|wish| !wish.cancel)?;
    let watched = attempt.watched;
    let is_over = attempt.outcome.is_some() || watched.damaged.outcome;
    let phase = attempt.status?.phase;
    let at_work = !is_over
        && matches!(phase, AttemptPhase::Preparing | AttemptPhase::Setup | AttemptPhase::Running);
    // An agent that was offline had no time to read the request.
    let had = watched.wished_for.min(watched.beats_for);
    let minutes = had.as_secs() / 60;
    (at_work && had >= HEEDED_WITHIN)
        .then(|| terminate(attempt, view, format!("asked to stop by {} {minutes} min ago, and its agent, which lives, has not begun to end its work", wish.by)))
}

/// The user asked for more time.
fn raised_cap(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let (kill_at, set) = attempt.kill_at.zip(view.tags.kill_at)?;
    (kill_at > set).then(|| Act::RaiseKillAt { machine: view.machine(), kill_at })
}

/// The newest interruption that was requested for this attempt and is not done.
fn rehearsal(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let newer = |request: &&Request| {
        request.at > attempt.plan.created && request.number > attempt.watched.interrupt_served
    };
    let (request, notice) =
        attempt.facts.requests.iter().rev().filter(newer).find_map(|request| {
            match request.wish {
                Wish::Interrupt { notice } => Some((request.number, notice)),
                _ => None,
            }
        })?;
    // An earlier controller has already posted the current notice. A request without notice time
    // cuts the power at any phase.
    let now = notice == Span::ZERO;
    let status = attempt.status?;
    (now || (status.phase == AttemptPhase::Running && status.notice.is_none())).then(|| {
        Act::Interrupt { attempt: attempt.plan.attempt, machine: view.machine(), notice, request }
    })
}

/// The change to the alarm, if any. An ended attempt needs none. If heartbeats arrive without
/// metrics, the alarm is removed: it would take missing metrics for a dead machine. The lease still
/// protects the machine.
fn guard(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let rule = attempt.plan.launch.as_ref()?.alarm?;
    let watched = attempt.watched;
    if view.state != InstanceState::Running || attempt.outcome.is_some() || watched.guard_waits {
        return None;
    }
    let unseen = matches!(rule, AlarmRule::Heartbeat { .. })
        && attempt.status.is_some_and(|status| status.unmeasured);
    let armed = match unseen {
        false => (watched.guard != GuardLeft::Armed).then_some(true),
        true => {
            (watched.guard != GuardLeft::Off && watched.beats_on && watched.silent_for <= OF_NOW)
                .then_some(false)
        }
    }?;
    Some(Act::Guard { attempt: attempt.plan.attempt, machine: view.machine(), armed })
}
