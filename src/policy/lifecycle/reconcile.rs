//! The controller's one decision: from the records of a job and the cloud's answer to what is to be done now.
//!
//! ```text
//!   no attempt, or the last is settled ── relaunch::next ──> create the plan of the next, or write the receipt
//!   plan, no machine ────────────────────────────────────> launch (again), or settle what never was
//!   machine runs ────────────────────────────────────────> wait; end it when it may not run any longer
//!   machine is gone ─────────────────────────────────────> settle
//! ```
//! Level-triggered: the same facts give the same acts, so a controller may die after any of them and another goes on.
//! An unknown cloud leads to nothing but waiting. What must never live here: a clock, a call.

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
    AttemptNo, AttemptPhase, AttemptRecord, CheckpointNo, EndedBecause, JobState, Lease, Outcome, Plan, Receipt, Request, ResolvedSpec, Settled, Wish,
};
use crate::market::{Cloud, Market, Span, elapsed};
use crate::policy::billing::settlement::settle;
use crate::policy::purchase::hard_end::Terms;

/// All that is known of a job at one moment.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub spec: &'a ResolvedSpec,
    /// In order of their numbers.
    pub attempts: &'a [AttemptFacts],
    pub requests: &'a [Request],
    pub cloud: &'a CloudAnswer,
    pub newest_checkpoint: Option<CheckpointNo>,
    /// Ourselves: what carries another owner's tag is never touched.
    pub owner: &'a str,
    /// This workstation as a zone of the local cloud: another one's machines cannot be seen from here.
    pub here: &'a str,
    pub now: Timestamp,
}

/// What the cloud says of all our machines.
#[derive(Clone, Debug, PartialEq)]
pub enum CloudAnswer {
    Known(Vec<InstanceView>),
    /// Nobody knows; never the same as "there is none".
    Unknown(String),
}

/// The records of one attempt, and what this controller has watched of it.
#[derive(Clone, Debug)]
pub struct AttemptFacts {
    pub plan: Arc<Plan>,
    pub lease: Option<Lease>,
    pub status: Option<Status>,
    pub outcome: Option<Outcome>,
    pub settled: Option<Arc<Settled>>,
    /// What its journal says, read only when the agent left no outcome.
    pub journal: Journal,
    pub watched: Watched,
}

/// What is to be done.
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
    /// The user has asked for more time.
    RaiseKillAt {
        machine: MachineRef,
        kill_at: Timestamp,
    },
    Terminate {
        machine: MachineRef,
        /// Whose end this is, which is recorded before it; `None`: the attempt is over already, or its machine ends as it is.
        ends: Option<AttemptNo>,
        why: String,
    },
    /// The same for a machine whose disk is all that its job has: it stands still, and keeps it.
    Stop {
        machine: MachineRef,
        /// As above.
        ends: Option<AttemptNo>,
        why: String,
    },
    /// Arm what watches the machine from outside, or take it off while that cannot see it.
    Guard {
        attempt: AttemptNo,
        machine: MachineRef,
        armed: bool,
    },
    /// A rehearsal was asked for.
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

/// An agent that has written its outcome powers off within two minutes (the ladder of `Power`). A third for clocks and
/// listings; longer only bills.
const OUTCOME_TO_DARK: Duration = Duration::from_secs(3 * 60);

/// A machine that boots has nothing to save. Its agent may be about to take the lease and end it in order: it gets this
/// long (row 16 of docs/promises.md: a minute in all, with the tick before and the call after). A cancel saves nothing: on EC2, where an
/// agent takes minutes to come up, nothing is gained by waiting for it.
const WISH_TO_AGENT: Duration = Duration::from_secs(30);

/// What a cancelled workload gets to end by itself before its machine is ended: SIGTERM's grace and the ladder.
const CANCEL_TO_DARK: Duration = Duration::from_secs(3 * 60);

/// A machine that shuts down for longer hangs in it: the cloud is asked again, which then forces it. It does not bill, but
/// it holds its quota. Sooner, and a slow end of a healthy machine is cut.
const STUCK: Duration = Duration::from_secs(10 * 60);

/// By what this controller has seen: a workstation whose clock is a day ahead would cut each stop in its first second (seed 21006770
/// of 24 h).
fn is_stuck(attempt: &AttemptFacts) -> bool {
    attempt.watched.dark_for.is_some_and(|dark| dark > STUCK)
}

/// What is to be done now, in this order.
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
        // No machine was to be had, and the next place is asked, or waited for.
        (Some(settled), ..) if relaunch::found_no_machine(settled) || relaunch::had_no_machine(settled) => JobState::Provisioning,
        (Some(settled), ..) if settled.because.is_interruption() => JobState::Interrupted,
        // The controller itself ended that machine, or never launched it, for the sake of the next.
        (Some(settled), ..) if settled.because == EndedBecause::Moved => JobState::Provisioning,
        (Some(_), ..) => JobState::Terminating,
        (None, _, Some(status)) if status.phase == AttemptPhase::Held => JobState::Held,
        (None, Some(_), _) => JobState::Terminating,
        (None, None, Some(status)) => status.phase.into(),
        (None, None, None) => JobState::Provisioning,
    }
}

/// Settled attempts as the receipt and `relaunch` want them.
pub fn history(attempts: &[AttemptFacts]) -> Vec<AttemptRecord> {
    let settled = |attempt: &AttemptFacts| attempt.settled.clone().map(|settled| AttemptRecord { plan: Arc::clone(&attempt.plan), settled });
    attempts.iter().filter_map(settled).collect()
}

/// Machines of attempts that are over: a launch that came through after all.
fn orphans(facts: &Facts<'_>) -> Vec<Act> {
    let CloudAnswer::Known(views) = facts.cloud else { return Vec::new() };
    let ours = views.iter().filter(|view| is_ours(facts, view) && view.state.bills());
    let settled = |view: &InstanceView| {
        let its = |attempt: &&AttemptFacts| attempt.plan.attempt == view.tags.attempt && may_be_of(&attempt.plan, view);
        facts.attempts.iter().filter(its).find_map(|attempt| attempt.settled.as_deref())
    };
    let end = |(view, settled): (&InstanceView, &Settled)| {
        let (machine, why) = (view.machine(), format!("attempt {} is settled, and its machine runs", view.tags.attempt.number()));
        // Somebody has started it in the console.
        if was_kept(settled, view) { Act::Stop { machine, ends: None, why } } else { Act::Terminate { machine, ends: None, why } }
    };
    ours.filter_map(|view| Some((view, settled(view)?))).map(end).collect()
}

/// Whether a machine with the name of a plan's job may be the plan's. Jobs of two job roots may have one id: their launches have
/// not, where the cloud says by which it came.
pub fn may_be_of(plan: &Plan, view: &InstanceView) -> bool {
    view.client_token.as_ref().is_none_or(|token| *token == plan.client_token)
}

fn is_ours(facts: &Facts<'_>, view: &InstanceView) -> bool {
    view.tags.owner == facts.owner && view.tags.job == facts.spec.job
}

/// Why only another controller can see, launch and end the machine of a plan; `None`: this one can.
///
/// A machine of the local cloud belongs to its workstation, and a machine to its owner: what this one does not see of them
/// is unknown, and never gone.
pub fn belongs_elsewhere(plan: &Plan, owner: &str, here: &str) -> Option<String> {
    let theirs = plan.tags.get(OWNER_TAG).filter(|tag| *tag != owner);
    if let Some(theirs) = theirs {
        return Some(format!("its machine is of the owner `{theirs}`, and this is `{owner}`"));
    }
    let away = plan.offer.cloud == Cloud::Local && plan.offer.zone.as_str() != here;
    away.then(|| format!("its machine is on the workstation {}, and this is {here}", plan.offer.zone))
}

/// The same of a job that may have no plan yet: then its spec says whose it is.
pub fn is_elsewhere(spec: &ResolvedSpec, attempts: &[AttemptFacts], owner: &str, here: &str) -> Option<String> {
    attempts.last().map_or_else(|| is_of_another(spec.owner(), owner), |last| belongs_elsewhere(&last.plan, owner, here))
}

/// Why a job without a plan is left to its owner: a machine for it would be bought with another's money.
pub fn is_of_another(theirs: Option<&str>, owner: &str) -> Option<String> {
    theirs.filter(|theirs| *theirs != owner).map(|theirs| format!("it is a job of the owner `{theirs}`, and this is `{owner}`"))
}

/// No machine is under way.
fn between(facts: &Facts<'_>) -> Vec<Act> {
    let history = history(facts.attempts);
    let elsewhere = is_elsewhere(facts.spec, facts.attempts, facts.owner, facts.here);
    match (relaunch::next(&facts.spec.spec, &history, &Wishes::of(facts.requests), facts.now), elsewhere) {
        // Another workstation may lack what the job needs, so it goes on where it was; its end anybody may write.
        (Next::Attempt { .. }, Some(elsewhere)) => wait(elsewhere),
        (Next::Attempt { not_before, reason, .. }, None) if not_before > facts.now => vec![Act::Wait { until: Some(not_before), why: reason.text }],
        (Next::Attempt { .. }, None) if let Some(why) = continuation::may_still_start(facts) => wait(why),
        (Next::Attempt { number, reason, .. }, None) => {
            vec![Act::CreatePlan { attempt: number, resume_from: facts.newest_checkpoint, reason: reason.text }]
        }
        (Next::End { because, reason }, _) => {
            let ended = history.iter().filter_map(|record| record.settled.billed_to).max().unwrap_or(facts.now);
            let spec = facts.spec;
            let end = (because, reason.text);
            vec![Act::WriteReceipt(Box::new(Receipt::build(spec.job.clone(), spec.spec.name.clone(), spec.created, ended, end, &history)))]
        }
    }
}

/// An attempt is planned and not settled.
fn during(facts: &Facts<'_>, attempt: &AttemptFacts) -> Vec<Act> {
    let views = match facts.cloud {
        CloudAnswer::Known(views) => views,
        CloudAnswer::Unknown(why) => return wait(format!("the cloud does not say how it is: {why}")),
    };
    let token = Some(attempt.plan.client_token.as_str());
    let view = views.iter().find(|view| continuation::is_of(facts, &attempt.plan, view) && view.client_token.as_deref() == token);
    match view {
        None => missing(facts, attempt),
        Some(view) => continuation::before_its_start(facts, attempt, view).unwrap_or_else(|| match view.state {
            InstanceState::Terminated => vec![Act::Settle(Box::new(settle(facts, attempt, Some(view))))],
            InstanceState::Stopped => stopped(facts, attempt, view),
            InstanceState::Pending | InstanceState::Running => alive(facts, attempt, view),
            InstanceState::ShuttingDown if is_stuck(attempt) => {
                let why = format!("it has been shutting down for more than {} min", STUCK.as_secs() / 60);
                vec![Act::Terminate { machine: view.machine(), ends: None, why }]
            }
            InstanceState::Stopping if is_stuck(attempt) => vec![stuck_stopping(facts, view)],
            InstanceState::Stopping | InstanceState::ShuttingDown => wait(format!("{} is {}", view.id, view.state)),
        }),
    }
}

/// It is stopped by force, and what becomes of its disk is found once it stands; nobody who cancels it wants the disk.
fn stuck_stopping(facts: &Facts<'_>, view: &InstanceView) -> Act {
    let (machine, why) = (view.machine(), format!("it has been stopping for more than {} min", STUCK.as_secs() / 60));
    let unwanted = Wishes::of(facts.requests).end.is_some_and(|wish| wish.cancel) || view.market != Market::OnDemand;
    if unwanted { Act::Terminate { machine, ends: None, why } } else { Act::Stop { machine, ends: None, why } }
}

/// Whether the agent of an attempt has ever left a record.
pub(crate) fn heard(attempt: &AttemptFacts) -> bool {
    let Damaged { lease, outcome } = attempt.watched.damaged;
    attempt.lease.is_some() || attempt.status.is_some() || attempt.outcome.is_some() || lease || outcome
}

/// Whether a machine that cannot be seen from here is over by its own records: as [`alive`] ends one that can be seen. Its
/// own controller is nearer and goes first, if there still is one; a machine that lives all the same ends as an orphan.
pub(crate) fn is_over(facts: &Facts<'_>, attempt: &AttemptFacts) -> bool {
    let watched = &attempt.watched;
    let held = attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held);
    let long_ago = |at: Timestamp, time: Duration| elapsed(at, facts.now) > time;
    let ended = attempt.outcome.as_ref().is_some_and(|outcome| watched.outcome_for > OUTCOME_TO_DARK || long_ago(outcome.ended, OUTCOME_TO_DARK));
    // Whoever saves or obeys is heard meanwhile.
    let unwanted = Wishes::of(facts.requests).end.is_some_and(|wish| wish.is_older(facts.now, CANCEL_TO_DARK));
    let patience = if unwanted { CANCEL_TO_DARK } else { attempt.plan.lease.duration() };
    (ended && !held) || watched.silent_for > patience
}

/// A host that fails the cloud's checks for so long, under a machine that says nothing for as long, is dead. Sooner, and one that is a few
/// minutes without a network is given up with its work; later, and it bills for nothing.
const HOST_DEAD: Duration = Duration::from_secs(10 * 60);

fn is_host_dead(attempt: &AttemptFacts) -> bool {
    heard(attempt) && attempt.watched.host_fails_for >= HOST_DEAD
}

/// For how long the machine of an attempt may say nothing.
pub fn patience(attempt: &AttemptFacts) -> Duration {
    let most = if heard(attempt) { attempt.plan.lease } else { attempt.plan.boot }.duration();
    if is_host_dead(attempt) { most.min(HOST_DEAD) } else { most }
}

/// The machine is there and bills.
fn alive(facts: &Facts<'_>, attempt: &AttemptFacts, view: &InstanceView) -> Vec<Act> {
    let wishes = Wishes::of(facts.requests);
    let watched = &attempt.watched;
    let terminate = |why: String| vec![Act::Terminate { machine: view.machine(), ends: Some(attempt.plan.attempt), why }];
    let held = attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held);
    let stop =
        |why: String| vec![Act::Stop { machine: view.machine(), ends: Some(attempt.plan.attempt), why: format!("{why}; its disk is to stay") }];
    if let Some(outcome) = attempt.outcome.as_ref().filter(|_| !held && watched.outcome_for > OUTCOME_TO_DARK) {
        let why = format!("its attempt has ended, and it still runs after {} s", watched.outcome_for.as_secs());
        let unwanted = wishes.end.as_ref().is_some_and(|wish| wish.cancel);
        let is_kept = is_to_be_kept(&facts.spec.spec.on, outcome, view) && !unwanted;
        let is_spare = watched.unstoppable && is_saved_elsewhere(&facts.spec.spec, outcome, facts.newest_checkpoint);
        return match (is_kept, is_spare) {
            (true, false) => stop(why),
            (true, true) => terminate(format!("{why}; the cloud never stops it, what its disk holds is in the job root, and the disk goes")),
            (false, _) => terminate(why),
        };
    }
    let heard = heard(attempt);
    let patience = patience(attempt);
    if watched.silent_for > patience {
        let words = if heard { "no heartbeat" } else { "no word of its agent" };
        let dead = if is_host_dead(attempt) { " where the cloud says that its host fails" } else { "" };
        let why = format!("{words} for {} s, and {} s is the most{dead}", watched.silent_for.as_secs(), patience.as_secs());
        // With a checkpoint the job goes on elsewhere; without one, all that it has is on this disk.
        let unwanted = wishes.end.as_ref().is_some_and(|wish| wish.cancel);
        return if !heard && !unwanted && is_all_its_job_has(&attempt.plan, view) { stop(why) } else { terminate(why) };
    }
    if let Some(wish) = wishes.end.as_ref().filter(|_| !heard)
        && (wish.cancel && attempt.plan.offer.cloud == Cloud::Aws || wish.is_older(facts.now, WISH_TO_AGENT))
    {
        let why = format!("asked to end by {} before its agent said a word", wish.by);
        return if continuation::is_unheard_and_can_stand(attempt, view) && !wish.cancel { stop(why) } else { terminate(why) };
    }
    if let Some(wish) = wishes.end.as_ref().filter(|wish| wish.cancel && wish.is_older(facts.now, CANCEL_TO_DARK)) {
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
        return vec![Act::Interrupt { attempt: attempt.plan.attempt, machine: view.machine(), notice, request }];
    }
    guard(attempt, view).into_iter().chain(wait(format!("{} is {}", view.id, view.state))).collect()
}

/// The last interruption that was wished of this attempt and not served yet.
fn rehearsal(facts: &Facts<'_>, attempt: &AttemptFacts) -> Option<(u32, Span)> {
    let newer = |request: &&Request| request.at > attempt.plan.created && request.number > attempt.watched.interrupt_served;
    let wished = facts.requests.iter().rev().filter(newer).find_map(|request| match request.wish {
        Wish::Interrupt { notice } => Some((request.number, notice)),
        _ => None,
    })?;
    // A notice that stands already was served by a controller before us; one without any time cuts the power, at any time.
    let now = wished.1 == Span::ZERO;
    let status = attempt.status.as_ref()?;
    (now || (status.phase == AttemptPhase::Running && status.notice.is_none())).then_some(wished)
}

/// The hard cap of a plan as it would be made now, with what the users have added since. Each limit grows by what was added
/// to it, and the first still counts: more money is no more time where money was not what ran out.
pub(crate) fn extended_kill_at(facts: &Facts<'_>, plan: &Plan) -> Option<Timestamp> {
    plan.kill_at?;
    hard_end(facts, plan, Duration::ZERO)
}

/// How much later a hard end would be that is counted from so long after the plan.
pub(crate) fn would_gain(facts: &Facts<'_>, plan: &Plan, age: Duration) -> Duration {
    let ends = extended_kill_at(facts, plan).zip(hard_end(facts, plan, age));
    ends.map_or(Duration::ZERO, |(end, of_now)| elapsed(end, of_now))
}

fn hard_end(facts: &Facts<'_>, plan: &Plan, age: Duration) -> Option<Timestamp> {
    let (spec, wishes) = (&facts.spec.spec, Wishes::of(facts.requests));
    let budget_left = spec.limits.budget.and_then(|_| relaunch::budget_left(spec, &history(facts.attempts), &wishes));
    let terms = Terms::of_plan(spec, plan, budget_left, wishes.more_time);
    Terms { now: plan.created.saturating_add(age).unwrap_or(plan.created), ..terms }.hard_end()
}

pub(crate) fn wait(why: String) -> Vec<Act> {
    vec![Act::Wait { until: None, why }]
}
