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

use std::time::Duration;

use jiff::Timestamp;

use super::continuation;
use super::hard_end::Terms;
use super::relaunch::{self, Next};
use super::settlement::settle;
use super::stopped::stopped;
pub use super::watched::{AlarmSeen, Damaged, Ended, Journal, Unshown, Watched};
use super::wishes::Wishes;
use crate::instance::{InstanceState, InstanceView, MachineRef, OWNER_TAG, Status};
use crate::job::{
    AttemptNo, AttemptPhase, AttemptRecord, CheckpointNo, JobState, Lease, Outcome, Plan, Receipt, Request, ResolvedSpec, Settled, Wish,
};
use crate::market::{Cloud, Span, elapsed};

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
    pub plan: Plan,
    pub lease: Option<Lease>,
    pub status: Option<Status>,
    pub outcome: Option<Outcome>,
    pub settled: Option<Settled>,
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
        ends: AttemptNo,
        why: String,
    },
    /// Arm what watches the machine from outside.
    Guard {
        attempt: AttemptNo,
        machine: MachineRef,
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
/// long (FAULTS §6, 16: a minute in all, with the tick before and the call after). A cancel saves nothing: on EC2, where an
/// agent takes minutes to come up, nothing is gained by waiting for it.
const WISH_TO_AGENT: Duration = Duration::from_secs(30);

/// What a cancelled workload gets to end by itself before its machine is ended: SIGTERM's grace and the ladder.
const CANCEL_TO_DARK: Duration = Duration::from_secs(3 * 60);

/// EC2 keeps a client token for at least a day after the machine's end (FAULTS §3). A plan that was never launched for
/// almost as long is not launched any more: the same token might then buy a second machine.
const TOKEN_LIVES: Duration = Duration::from_secs(20 * 3600);

/// A machine that shuts down for longer hangs in it: the cloud is asked again, which then forces it. It does not bill, but
/// it holds its quota. Sooner, and a slow end of a healthy machine is cut.
const STUCK: Duration = Duration::from_secs(10 * 60);

fn is_stuck(facts: &Facts<'_>, view: &InstanceView) -> bool {
    view.ended.is_some_and(|ended| elapsed(ended, facts.now) > STUCK)
}

/// How long a machine may be invisible after its launch, and how long it must then be missing to be gone.
fn visibility(cloud: Cloud) -> (Duration, Duration) {
    match cloud {
        // A folder is there or not. The moment is for another controller between its plan and its launch.
        Cloud::Local => (Duration::from_secs(10), Duration::ZERO),
        Cloud::Aws => (Duration::from_secs(5 * 60), Duration::from_secs(60)),
    }
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
        (Some(settled), ..) if settled.because.goes_on() => JobState::Interrupted,
        // No machine was to be had, and the next place is asked, or waited for.
        (Some(settled), ..) if relaunch::found_no_machine(settled) => JobState::Provisioning,
        (Some(_), ..) => JobState::Terminating,
        (None, _, Some(status)) if status.phase == AttemptPhase::Held => JobState::Held,
        (None, Some(_), _) => JobState::Terminating,
        (None, None, Some(status)) => status.phase.into(),
        (None, None, None) => JobState::Provisioning,
    }
}

/// Settled attempts as the receipt and `relaunch` want them.
pub fn history(attempts: &[AttemptFacts]) -> Vec<AttemptRecord> {
    let settled = |attempt: &AttemptFacts| attempt.settled.clone().map(|settled| AttemptRecord { plan: attempt.plan.clone(), settled });
    attempts.iter().filter_map(settled).collect()
}

/// Machines of attempts that are over: a launch that came through after all.
fn orphans(facts: &Facts<'_>) -> Vec<Act> {
    let CloudAnswer::Known(views) = facts.cloud else { return Vec::new() };
    let over = |view: &&InstanceView| facts.attempts.iter().any(|attempt| attempt.plan.attempt == view.tags.attempt && attempt.settled.is_some());
    let ours = views.iter().filter(|view| is_ours(facts, view) && view.state.bills());
    let why = |view: &InstanceView| format!("attempt {} is settled, and its machine runs", view.tags.attempt.number());
    ours.filter(over).map(|view| Act::Terminate { machine: view.machine(), ends: None, why: why(view) }).collect()
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

/// No machine is under way.
fn between(facts: &Facts<'_>) -> Vec<Act> {
    let history = history(facts.attempts);
    let elsewhere = facts.attempts.last().and_then(|last| belongs_elsewhere(&last.plan, facts.owner, facts.here));
    match (relaunch::next(&facts.spec.spec, &history, &Wishes::of(facts.requests), facts.now), elsewhere) {
        // Another workstation may lack what the job needs, so it goes on where it was; its end anybody may write.
        (Next::Attempt { .. }, Some(elsewhere)) => wait(elsewhere),
        (Next::Attempt { not_before, reason, .. }, None) if not_before > facts.now => vec![Act::Wait { until: Some(not_before), why: reason.text }],
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
            InstanceState::ShuttingDown if is_stuck(facts, view) => {
                let why = format!("it has been shutting down for more than {} min", STUCK.as_secs() / 60);
                vec![Act::Terminate { machine: view.machine(), ends: None, why }]
            }
            InstanceState::Stopping | InstanceState::ShuttingDown => wait(format!("{} is {}", view.id, view.state)),
        }),
    }
}

/// The cloud knows no machine of this plan.
fn missing(facts: &Facts<'_>, attempt: &AttemptFacts) -> Vec<Act> {
    let nothing = || vec![Act::Settle(Box::new(settle(facts, attempt, None)))];
    if let Some(elsewhere) = belongs_elsewhere(&attempt.plan, facts.owner, facts.here) {
        return if is_over(facts, attempt) { nothing() } else { wait(elsewhere) };
    }
    let (visible_within, missing_at_least) = visibility(attempt.plan.offer.cloud);
    // Whoever launched it had a clock that was right; this workstation's own may be a day ahead.
    let now = attempt.watched.unshown.map_or(facts.now, |unshown| unshown.now);
    let age = elapsed(attempt.plan.created, now);
    // By the steady clock where it was we who asked: the launch may have come long after the plan, and a wall clock may be set.
    let shown_within = attempt.watched.asked_for.unwrap_or(age);
    // A kept machine is there or gone: a launch would not bring it back.
    let existed = heard(attempt) || attempt.watched.launched.is_some() || attempt.plan.starts.is_some();
    let wish = Wishes::of(facts.requests).end;
    // Whoever slept over a launch buys no machine that is to be out already.
    let is_over = attempt.plan.kill_at.is_some_and(|kill_at| kill_at <= now);
    // The plan is the record, and is never signed anew: what its machine would fetch may be out of reach by now.
    let unwanted = wish.is_some() || age > TOKEN_LIVES || is_over || came_too_late(&attempt.plan, now);
    // Any other controller on this job root may have launched the same plan, by a look of just before the wish: however our own
    // launches were answered, whatever the plan's age, and by whichever clock the wish is dated. Its look may be two minutes old.
    let theirs_within = if unwanted && !existed { visible_within + 2 * missing_at_least } else { Duration::ZERO };
    let missing_for = attempt.watched.missing_for;
    let unwanted_for = if wish.is_some() { attempt.watched.wished_for } else { missing_for };
    let left = [(visible_within, shown_within), (missing_at_least, missing_for), (theirs_within, unwanted_for)];
    let gone = shown_within > visible_within && left.iter().all(|(whole, gone_by)| gone_by >= whole);
    let left = left.into_iter().map(|(whole, gone_by)| whole.saturating_sub(gone_by)).max().unwrap_or_default();
    let sure_at = facts.now.saturating_add(left);
    let making_sure = |why: String| vec![Act::Wait { until: sure_at.ok(), why: format!("{CERTAINTY}: {why}") }];
    if let Some((_, refusal)) = &attempt.watched.refused {
        let may_run = attempt.watched.unclear && !gone;
        return if may_run { making_sure(format!("a launch was refused ({refusal}), after one that may have come through")) } else { nothing() };
    }
    // Whoever made the plan launches it, or writes down why not: both at once would leave a machine that no record knows. By a
    // wall clock that is hours ahead it is no fresh plan, so what was seen counts.
    let theirs = attempt.watched.unclear && attempt.watched.asked_for.is_none() && missing_for < missing_at_least;
    match (existed || unwanted, gone) {
        (true, true) => nothing(),
        (true, false) if !existed => making_sure("the cloud shows none, and one that was asked for would be shown by then".into()),
        (true, false) => wait("the cloud does not show the machine; it may have been launched all the same".into()),
        (false, _) if theirs => wait("another controller made the plan, and may be about to launch it".into()),
        (false, _) => vec![Act::Launch { attempt: attempt.plan.attempt }],
    }
}

/// Whether the machine of a plan, launched now, might have nothing to fetch any more when it has booted.
pub(super) fn came_too_late(plan: &Plan, now: Timestamp) -> bool {
    plan.launch_by.is_some_and(|by| by <= now)
}

/// Whether the agent of an attempt has ever left a record.
pub(super) fn heard(attempt: &AttemptFacts) -> bool {
    let Damaged { lease, outcome } = attempt.watched.damaged;
    attempt.lease.is_some() || attempt.status.is_some() || attempt.outcome.is_some() || lease || outcome
}

/// Whether a machine that cannot be seen from here is over by its own records: as [`alive`] ends one that can be seen. Its
/// own controller is nearer and goes first, if there still is one; a machine that lives all the same ends as an orphan.
fn is_over(facts: &Facts<'_>, attempt: &AttemptFacts) -> bool {
    let watched = &attempt.watched;
    let held = attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held);
    let long_ago = |at: Timestamp, time: Duration| elapsed(at, facts.now) > time;
    let ended = attempt.outcome.as_ref().is_some_and(|outcome| watched.outcome_for > OUTCOME_TO_DARK || long_ago(outcome.ended, OUTCOME_TO_DARK));
    // Whoever saves or obeys is heard meanwhile.
    let unwanted = Wishes::of(facts.requests).end.is_some_and(|wish| long_ago(wish.at, CANCEL_TO_DARK));
    let patience = if unwanted { CANCEL_TO_DARK } else { attempt.plan.lease.duration() };
    (ended && !held) || watched.silent_for > patience
}

/// The machine is there and bills.
fn alive(facts: &Facts<'_>, attempt: &AttemptFacts, view: &InstanceView) -> Vec<Act> {
    let wishes = Wishes::of(facts.requests);
    let watched = &attempt.watched;
    let terminate = |why: String| vec![Act::Terminate { machine: view.machine(), ends: Some(attempt.plan.attempt), why }];
    let held = attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held);
    if attempt.outcome.is_some() && !held && watched.outcome_for > OUTCOME_TO_DARK {
        return terminate(format!("its attempt has ended, and it still runs after {} s", watched.outcome_for.as_secs()));
    }
    let heard = heard(attempt);
    let patience = if heard { attempt.plan.lease } else { attempt.plan.boot }.duration();
    let stop = |why: String| vec![Act::Stop { machine: view.machine(), ends: attempt.plan.attempt, why: format!("{why}; its disk is kept") }];
    let may_stand = continuation::is_unheard_and_can_stand(attempt, view);
    if watched.silent_for > patience {
        let words = if heard { "no heartbeat" } else { "no word of its agent" };
        let why = format!("{words} for {} s, and {} s is the most", watched.silent_for.as_secs(), patience.as_secs());
        // With a checkpoint the job goes on elsewhere; without one, all that it has is on this disk.
        return if may_stand && attempt.plan.resume_from.is_none() { stop(why) } else { terminate(why) };
    }
    if let Some(wish) = wishes.end.as_ref().filter(|_| !heard)
        && (wish.cancel && attempt.plan.offer.cloud == Cloud::Aws
            || facts.now.duration_since(wish.at) > WISH_TO_AGENT.try_into().expect("half a minute fits"))
    {
        let why = format!("asked to end by {} before its agent said a word", wish.by);
        return if may_stand && !wish.cancel { stop(why) } else { terminate(why) };
    }
    if let Some(wish) = wishes.end.as_ref().filter(|wish| wish.cancel)
        && facts.now.duration_since(wish.at) > CANCEL_TO_DARK.try_into().expect("three minutes fit")
    {
        return terminate(format!("cancelled by {}, and it still runs", wish.by));
    }
    if let (Some(kill_at), Some(set)) = (extended_kill_at(facts, &attempt.plan), view.tags.kill_at)
        && kill_at > set
    {
        return vec![Act::RaiseKillAt { machine: view.machine(), kill_at }];
    }
    if let Some((request, notice)) = rehearsal(facts, attempt) {
        return vec![Act::Interrupt { attempt: attempt.plan.attempt, machine: view.machine(), notice, request }];
    }
    let waiting = wait(format!("{} is {}", view.id, view.state));
    if is_unguarded(attempt, view) {
        let guard = Act::Guard { attempt: attempt.plan.attempt, machine: view.machine() };
        return std::iter::once(guard).chain(waiting).collect();
    }
    waiting
}

/// Whether an alarm is asked for, and is not armed yet. An attempt that has ended needs none.
fn is_unguarded(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    let asked = attempt.plan.launch.as_ref().is_some_and(|launch| launch.alarm.is_some());
    let watched = &attempt.watched;
    asked && view.state == InstanceState::Running && attempt.outcome.is_none() && !watched.guarded && !watched.guard_waits
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
pub(super) fn extended_kill_at(facts: &Facts<'_>, plan: &Plan) -> Option<Timestamp> {
    plan.kill_at?;
    let (spec, wishes) = (&facts.spec.spec, Wishes::of(facts.requests));
    let budget_left = spec.limits.budget.and_then(|_| relaunch::budget_left(spec, &history(facts.attempts), &wishes));
    Terms { spec, offer: &plan.offer, bid: plan.bid, budget_left, more_time: wishes.more_time, now: plan.created }.hard_end()
}

/// What a job waits for whose machine may have been launched, though nobody has seen it; as it follows on "waits for".
const CERTAINTY: &str = "certainty that no machine was launched";

fn wait(why: String) -> Vec<Act> {
    vec![Act::Wait { until: None, why }]
}
