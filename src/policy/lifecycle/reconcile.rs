//! The controller's one decision: from a job's records and the cloud's answer to the next actions.
//!
//! ```text
//!   no attempt, or the last is settled ── relaunch::next ──> create the plan of the next, or write the receipt
//!   plan, no machine ────────────────────────────────────> launch (again), or settle what never existed
//!   machine runs ────────────────────────────────────────> wait; end it when it may not run any longer
//!   machine is gone ─────────────────────────────────────> settle
//! ```
//! Level-triggered: equal facts give equal actions, so another controller can continue after any of
//! them. If the cloud does not answer, the decision is to wait. This module has no clock.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::alarm_arming::guard;
use super::continuation;
use super::forgotten_disk::{is_all_its_job_has, is_saved_elsewhere, is_to_be_kept, was_kept};
use super::ignored_stop::unheeded;
use super::missing_machine::missing;
pub use super::observations::{AlarmSeen, Damaged, Ended, GuardLeft, Journal, Unshown, Watched};
use super::relaunch::{self, Next};
use super::requests::Wishes;
use super::stopped_machine::stopped;
use crate::instance::{InstanceState, InstanceView, MachineRef, OWNER_TAG, Status};
use crate::job::{
    AttemptNo, AttemptPhase, AttemptRecord, CheckpointNo, EndedBecause, JobState, Lease, Outcome,
    Plan, Receipt, Request, ResolvedSpec, Settled, Wish,
};
use crate::market::{Cloud, Market, Span, elapsed};
use crate::policy::billing::settlement::settle;
use crate::policy::purchase::hard_end::Terms;

#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub spec: &'a ResolvedSpec,
    /// In order of their numbers.
    pub attempts: &'a [AttemptFacts],
    pub requests: &'a [Request],
    pub cloud: &'a CloudAnswer,
    pub newest_checkpoint: Option<CheckpointNo>,
    /// Our owner: machines with another owner's tag are never touched.
    pub owner: &'a str,
    /// This workstation as a zone of the local cloud. It cannot see the machines of other
    /// workstations.
    pub here: &'a str,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CloudAnswer {
    Known(Vec<InstanceView>),
    /// No answer; different from an empty list.
    Unknown(String),
}

/// The records of one attempt, and this controller's observations.
#[derive(Clone, Debug)]
pub struct AttemptFacts {
    pub plan: Arc<Plan>,
    pub lease: Option<Lease>,
    pub status: Option<Status>,
    pub outcome: Option<Outcome>,
    pub settled: Option<Arc<Settled>>,
    /// Its journal, read only if the agent left no outcome.
    pub journal: Journal,
    pub watched: Watched,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    CreatePlan {
        attempt: AttemptNo,
        resume_from: Option<CheckpointNo>,
        reason: String,
    },
    Launch {
        attempt: AttemptNo,
    },
    /// The user asked for more time.
    RaiseKillAt {
        machine: MachineRef,
        kill_at: Timestamp,
    },
    Terminate {
        machine: MachineRef,
        /// The attempt that this ends, recorded first; `None`: the attempt is over, or its machine
        /// is ending.
        ends: Option<AttemptNo>,
        why: String,
    },
    /// The same for a machine whose disk must stay: it is stopped.
    Stop {
        machine: MachineRef,
        /// As in `Terminate`.
        ends: Option<AttemptNo>,
        why: String,
    },
    /// Arm the machine's alarm, or remove it while it cannot see the metrics.
    Guard {
        attempt: AttemptNo,
        machine: MachineRef,
        armed: bool,
    },
    /// The user asked for a rehearsal.
    Interrupt {
        attempt: AttemptNo,
        machine: MachineRef,
        notice: Span,
        request: u32,
    },
    Settle(Box<Settled>),
    WriteReceipt(Box<Receipt>),
    Wait {
        until: Option<Timestamp>,
        why: String,
    },
}

/// After its outcome an agent powers off within two minutes (the steps of `Power`). The third
/// minute is for clocks and listings. With more, the machine bills for nothing.
const OUTCOME_TO_DARK: Duration = Duration::from_secs(3 * 60);

/// A booting machine has nothing to save, but its agent may be about to take the lease and end it
/// properly. It gets this long (row 16 of docs/promises.md: one minute in all, with a tick and the
/// call). A cancel on EC2 does not wait, because an agent there needs minutes to boot.
const WISH_TO_AGENT: Duration = Duration::from_secs(30);

/// Time for a cancelled workload to end by itself before its machine is ended: SIGTERM's grace and
/// the power-off steps.
const CANCEL_TO_DARK: Duration = Duration::from_secs(3 * 60);

/// A machine that shuts down for longer hangs. The cloud is asked again and then forces the end.
/// The machine is not billed but uses its quota. With less, a slow but healthy end is cut off.
const STUCK: Duration = Duration::from_secs(10 * 60);

/// Uses this controller's own observation. A workstation's clock a day ahead would cut off each
/// stop in its first second.
fn is_stuck(attempt: &AttemptFacts) -> bool {
    attempt.watched.dark_for.is_some_and(|dark| dark > STUCK)
}

pub fn reconcile(facts: &Facts<'_>) -> Vec<Act> {
    let mut acts = orphans(facts);
    acts.extend(match facts.attempts.iter().find(|attempt| attempt.settled.is_none()) {
        None => between(facts),
        Some(attempt) => during(facts, attempt),
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

/// The settled attempts, for the receipt and `relaunch`.
pub fn history(attempts: &[AttemptFacts]) -> Vec<AttemptRecord> {
    let settled = |attempt: &AttemptFacts| {
        attempt
            .settled
            .clone()
            .map(|settled| AttemptRecord { plan: Arc::clone(&attempt.plan), settled })
    };
    attempts.iter().filter_map(settled).collect()
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

/// Whether a machine with the plan's job name can be the plan's. Two job roots may use one job id,
/// but their client tokens differ.
pub fn may_be_of(plan: &Plan, view: &InstanceView) -> bool {
    view.client_token.as_ref().is_none_or(|token| *token == plan.client_token)
}

fn is_ours(facts: &Facts<'_>, view: &InstanceView) -> bool {
    view.tags.owner == facts.owner && view.tags.job == facts.spec.job
}

/// Why only another controller can see, launch and end a plan's machine; `None`: this one can.
///
/// A local machine belongs to its workstation, and every machine to its owner. If this controller
/// cannot see them, they are unknown, not gone.
pub fn belongs_elsewhere(plan: &Plan, owner: &str, here: &str) -> Option<String> {
    let theirs = plan.tags.get(OWNER_TAG).filter(|tag| *tag != owner);
    if let Some(theirs) = theirs {
        return Some(format!("its machine is of the owner `{theirs}`, and this is `{owner}`"));
    }
    let away = plan.offer.cloud == Cloud::Local && plan.offer.zone.as_str() != here;
    away.then(|| {
        format!("its machine is on the workstation {}, and this is {here}", plan.offer.zone)
    })
}

/// The same for a job that may have no plan yet: then its spec names the owner.
pub fn is_elsewhere(
    spec: &ResolvedSpec,
    attempts: &[AttemptFacts],
    owner: &str,
    here: &str,
) -> Option<String> {
    attempts.last().map_or_else(
        || is_of_another(spec.owner(), owner),
        |last| belongs_elsewhere(&last.plan, owner, here),
    )
}

/// Why a job without a plan is left to its owner: a launch would spend another owner's money.
pub fn is_of_another(theirs: Option<&str>, owner: &str) -> Option<String> {
    theirs
        .filter(|theirs| *theirs != owner)
        .map(|theirs| format!("it is a job of the owner `{theirs}`, and this is `{owner}`"))
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
fn during(facts: &Facts<'_>, attempt: &AttemptFacts) -> Vec<Act> {
    let views = match facts.cloud {
        CloudAnswer::Known(views) => views,
        CloudAnswer::Unknown(why) => {
            return wait(format!("the cloud does not say how it is: {why}"));
        }
    };
    let token = Some(attempt.plan.client_token.as_str());
    let view = views.iter().find(|view| {
        continuation::is_of(facts, &attempt.plan, view) && view.client_token.as_deref() == token
    });
    match view {
        None => missing(facts, attempt),
        Some(view) => continuation::before_its_start(facts, attempt, view).unwrap_or_else(|| {
            match view.state {
                InstanceState::Terminated => {
                    vec![Act::Settle(Box::new(settle(facts, attempt, Some(view))))]
                }
                InstanceState::Stopped => stopped(facts, attempt, view),
                InstanceState::Pending | InstanceState::Running => alive(facts, attempt, view),
                InstanceState::ShuttingDown if is_stuck(attempt) => {
                    let why = format!(
                        "it has been shutting down for more than {} min",
                        STUCK.as_secs() / 60
                    );
                    vec![Act::Terminate { machine: view.machine(), ends: None, why }]
                }
                InstanceState::Stopping if is_stuck(attempt) => vec![stuck_stopping(facts, view)],
                InstanceState::Stopping | InstanceState::ShuttingDown => {
                    wait(format!("{} is {}", view.id, view.state))
                }
            }
        }),
    }
}

/// A forced stop; the disk is judged once the machine is stopped. A cancelled job does not need its
/// disk.
fn stuck_stopping(facts: &Facts<'_>, view: &InstanceView) -> Act {
    let (machine, why) = (
        view.machine(),
        format!("it has been stopping for more than {} min", STUCK.as_secs() / 60),
    );
    let unwanted = Wishes::of(facts.requests).end.is_some_and(|wish| wish.cancel)
        || view.market != Market::OnDemand;
    if unwanted {
        Act::Terminate { machine, ends: None, why }
    } else {
        Act::Stop { machine, ends: None, why }
    }
}

/// Whether the agent of an attempt ever left a record.
pub(crate) fn heard(attempt: &AttemptFacts) -> bool {
    let Damaged { lease, outcome } = attempt.watched.damaged;
    attempt.lease.is_some()
        || attempt.status.is_some()
        || attempt.outcome.is_some()
        || lease
        || outcome
}

/// Whether the records of an unseen machine show that it is over, as [`alive`] judges a visible
/// one. Its own controller acts first, if one is active. If the machine still runs, it ends as an
/// orphan.
pub(crate) fn is_over(facts: &Facts<'_>, attempt: &AttemptFacts) -> bool {
    let watched = &attempt.watched;
    let held = attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held);
    let long_ago = |at: Timestamp, time: Duration| elapsed(at, facts.now) > time;
    let ended = attempt.outcome.as_ref().is_some_and(|outcome| {
        watched.outcome_for > OUTCOME_TO_DARK || long_ago(outcome.ended, OUTCOME_TO_DARK)
    });
    // An agent that saves or obeys sends heartbeats meanwhile.
    let unwanted =
        Wishes::of(facts.requests).end.is_some_and(|wish| wish.is_older(facts.now, CANCEL_TO_DARK));
    let patience = if unwanted { CANCEL_TO_DARK } else { attempt.plan.lease.duration() };
    (ended && !held) || watched.silent_for > patience
}

/// Time with failing host checks and without heartbeats until the host counts as dead. With less, a
/// few minutes without network lose the work. With more, it bills for nothing.
const HOST_DEAD: Duration = Duration::from_secs(10 * 60);

fn is_host_dead(attempt: &AttemptFacts) -> bool {
    heard(attempt) && attempt.watched.host_fails_for >= HOST_DEAD
}

/// How long an attempt's machine may be silent.
pub fn patience(attempt: &AttemptFacts) -> Duration {
    let most = if heard(attempt) { attempt.plan.lease } else { attempt.plan.boot }.duration();
    if is_host_dead(attempt) { most.min(HOST_DEAD) } else { most }
}

/// The machine exists and bills.
fn alive(facts: &Facts<'_>, attempt: &AttemptFacts, view: &InstanceView) -> Vec<Act> {
    let wishes = Wishes::of(facts.requests);
    let watched = &attempt.watched;
    let terminate = |why: String| {
        vec![Act::Terminate { machine: view.machine(), ends: Some(attempt.plan.attempt), why }]
    };
    let held = attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held);
    let stop = |why: String| {
        vec![Act::Stop {
            machine: view.machine(),
            ends: Some(attempt.plan.attempt),
            why: format!("{why}; its disk is to stay"),
        }]
    };
    if let Some(outcome) =
        attempt.outcome.as_ref().filter(|_| !held && watched.outcome_for > OUTCOME_TO_DARK)
    {
        let why = format!(
            "its attempt has ended, and it still runs after {} s",
            watched.outcome_for.as_secs()
        );
        let unwanted = wishes.end.as_ref().is_some_and(|wish| wish.cancel);
        let is_kept = is_to_be_kept(&facts.spec.spec.on, outcome, view) && !unwanted;
        let is_spare = watched.unstoppable
            && is_saved_elsewhere(&facts.spec.spec, outcome, facts.newest_checkpoint);
        return match (is_kept, is_spare) {
            (true, false) => stop(why),
            (true, true) => terminate(format!(
                "{why}; the cloud never stops it, what its disk holds is in the job root, and the disk goes"
            )),
            (false, _) => terminate(why),
        };
    }
    let heard = heard(attempt);
    let patience = patience(attempt);
    if watched.silent_for > patience {
        let words = if heard { "no heartbeat" } else { "no word of its agent" };
        let dead =
            if is_host_dead(attempt) { " where the cloud says that its host fails" } else { "" };
        let why = format!(
            "{words} for {} s, and {} s is the most{dead}",
            watched.silent_for.as_secs(),
            patience.as_secs()
        );
        // With a checkpoint the job continues elsewhere. Without one, all its data is on this disk.
        let unwanted = wishes.end.as_ref().is_some_and(|wish| wish.cancel);
        return if !heard && !unwanted && is_all_its_job_has(&attempt.plan, view) {
            stop(why)
        } else {
            terminate(why)
        };
    }
    if let Some(wish) = wishes.end.as_ref().filter(|_| !heard)
        && (wish.cancel && attempt.plan.offer.cloud == Cloud::Aws
            || wish.is_older(facts.now, WISH_TO_AGENT))
    {
        let why = format!("asked to end by {} before its agent said a word", wish.by);
        return if continuation::is_unheard_and_can_stand(attempt, view) && !wish.cancel {
            stop(why)
        } else {
            terminate(why)
        };
    }
    if let Some(wish) =
        wishes.end.as_ref().filter(|wish| wish.cancel && wish.is_older(facts.now, CANCEL_TO_DARK))
    {
        return terminate(format!("cancelled by {}, and it still runs", wish.by));
    }
    if let Some(why) = unheeded(facts, attempt) {
        return terminate(why);
    }
    if let (Some(kill_at), Some(set)) = (extended_kill_at(facts, &attempt.plan), view.tags.kill_at)
        && kill_at > set
    {
        return vec![Act::RaiseKillAt { machine: view.machine(), kill_at }];
    }
    if let Some((request, notice)) = rehearsal(facts, attempt) {
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
fn rehearsal(facts: &Facts<'_>, attempt: &AttemptFacts) -> Option<(u32, Span)> {
    let newer = |request: &&Request| {
        request.at > attempt.plan.created && request.number > attempt.watched.interrupt_served
    };
    let wished =
        facts.requests.iter().rev().filter(newer).find_map(|request| match request.wish {
            Wish::Interrupt { notice } => Some((request.number, notice)),
            _ => None,
        })?;
    // An earlier controller has already posted the current notice. A request without notice time
    // cuts the power at any phase.
    let now = wished.1 == Span::ZERO;
    let status = attempt.status.as_ref()?;
    (now || (status.phase == AttemptPhase::Running && status.notice.is_none())).then_some(wished)
}

/// The hard cap of a plan, with the users' extensions. Each limit grows by its own extension, and
/// the earliest still counts. More money adds no time if the money was enough.
pub(crate) fn extended_kill_at(facts: &Facts<'_>, plan: &Plan) -> Option<Timestamp> {
    plan.kill_at?;
    hard_end(facts, plan, Duration::ZERO)
}

/// How much later the hard end would be if it counted from `age` after the plan.
pub(crate) fn would_gain(facts: &Facts<'_>, plan: &Plan, age: Duration) -> Duration {
    let ends = extended_kill_at(facts, plan).zip(hard_end(facts, plan, age));
    ends.map_or(Duration::ZERO, |(end, of_now)| elapsed(end, of_now))
}

fn hard_end(facts: &Facts<'_>, plan: &Plan, age: Duration) -> Option<Timestamp> {
    let (spec, wishes) = (&facts.spec.spec, Wishes::of(facts.requests));
    let budget_left = spec
        .limits
        .budget
        .and_then(|_| relaunch::budget_left(spec, &history(facts.attempts), &wishes));
    let terms = Terms::of_plan(spec, plan, budget_left, wishes.more_time);
    Terms { now: plan.created.saturating_add(age).unwrap_or(plan.created), ..terms }.hard_end()
}

pub(crate) fn wait(why: String) -> Vec<Act> {
    vec![Act::Wait { until: None, why }]
}
