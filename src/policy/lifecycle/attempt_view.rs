//! One attempt as the deciders see it: all that follows from its records, the cloud's answer and
//! the time, computed once.
//!
//! ```text
//!   JobFacts, AttemptFacts ──> AttemptView ──> reconcile, missing_machine, visible_machine,
//!                                              continuation, billing::settlement
//! ```
//! Not here: a decision.

use std::time::Duration;

use jiff::Timestamp;

use super::attempt_facts::{AttemptFacts, CloudAnswer, JobFacts, history, is_host_dead, patience};
use super::forgotten_disk::can_stand;
use super::machine_owner::{belongs_elsewhere, is_of};
use super::observations::{CheckpointSummaries, Watched};
use super::relaunch;
use super::requests::Wishes;
use crate::instance::{InstanceState, InstanceView, Status};
use crate::job::{AttemptPhase, Ending, Lease, Outcome, Plan, Refusal};
use crate::market::elapsed;
use crate::policy::purchase::hard_end::HardEndTerms;

pub(crate) struct AttemptView<'a> {
    pub facts: &'a JobFacts<'a>,
    pub plan: &'a Plan,
    pub lease: Option<&'a Lease>,
    pub status: Option<&'a Status>,
    pub outcome: Option<&'a Outcome>,
    pub journal: &'a CheckpointSummaries,
    pub watched: &'a Watched,
    /// Its machine as the cloud shows it; `None`: it is not shown, or the cloud does not answer.
    pub machine: Option<&'a InstanceView>,
    /// The time by the store's clock, if the cloud does not show the machine or the date of its
    /// end. The workstation's clock may be a day ahead.
    pub now: Timestamp,
    pub wishes: Wishes,
    /// Whether its agent ever left a record.
    pub heard: bool,
    /// Time of the last heartbeat, by the store's clock if known, because the cloud dates the end
    /// of billing.
    pub last_heard: Option<Timestamp>,
    /// How long its machine may be silent.
    pub patience: Duration,
    /// Whether its agent has spoken, and the cloud says for long that its host fails.
    pub is_host_dead: bool,
    /// Whether its agent holds the ended attempt's machine for the user.
    pub held: bool,
    /// Why only another controller can see, launch and end its machine; `None`: this one can.
    pub elsewhere: Option<String>,
    /// The hard cap of the plan, with the users' extensions.
    pub kill_at: Option<Timestamp>,
    /// How long the plan has been too old to launch: no controller with a right clock launches it.
    pub lain_for: Option<Duration>,
    /// The record of a controller or sweep that it ended this machine.
    pub our_ending: Option<&'a Ending>,
    /// Whether the cloud says that the plan's machine existed and ended, although we never saw it.
    /// The answer to its launch was lost, and the cloud stopped showing it before our next look.
    pub is_spent: bool,
    /// Whether it did not get its kept machine: the machine is gone or was refused.
    pub never_started: bool,
    /// Whether its kept machine was started and we stopped it again without any heartbeat. A first
    /// heartbeat during the stop changes nothing.
    pub never_came_up: bool,
    /// How long the plan has been too old to start its kept machine; `None`: it may be started, is
    /// not wanted, or the cloud has answered a start.
    pub left_lying: Option<Duration>,
}

impl<'a> AttemptView<'a> {
    pub fn new(facts: &'a JobFacts<'a>, attempt: &'a AttemptFacts) -> Self {
        let (plan, watched) = (&*attempt.plan, &attempt.watched);
        let machine = machine_of(facts, plan);
        let now = watched.unshown.map_or(facts.now, |unshown| unshown.now);
        let wishes = Wishes::of(facts.requests);
        let (heard, our_ending) = (attempt.heard(), attempt.our_ending());
        let lain_for = lain_too_long(facts, plan, &wishes, now);
        let never_started = plan.starts.is_some()
            && !heard
            && machine.is_none_or(|machine| stands_as_kept(plan, machine));
        let may_start = machine.is_some_and(|machine| machine.state == InstanceState::Stopped)
            && never_started
            && wishes.end.is_none()
            && watched.launched.is_none()
            && watched.refused.is_none();
        let unheard = our_ending.is_some_and(|ending| ending.heard.is_none());
        let never_came_up = unheard
            && attempt.outcome.is_none()
            && machine.is_some_and(|machine| stands_again(plan, machine));
        AttemptView {
            facts,
            plan,
            lease: attempt.lease.as_ref(),
            status: attempt.status.as_ref(),
            outcome: attempt.outcome.as_ref(),
            journal: &attempt.journal,
            watched,
            machine,
            now,
            heard,
            last_heard: attempt.last_heard(),
            patience: patience(attempt),
            is_host_dead: is_host_dead(attempt),
            held: attempt.status.as_ref().is_some_and(|status| status.phase == AttemptPhase::Held),
            elsewhere: belongs_elsewhere(plan, facts.owner, facts.here),
            kill_at: extended_kill_at(facts, plan, &wishes),
            lain_for,
            our_ending,
            is_spent: matches!(watched.refused, Some((Some(Refusal::Spent), _))),
            never_started,
            never_came_up,
            left_lying: lain_for.filter(|_| may_start),
            wishes,
        }
    }

    /// Whether the plan's signed downloads may have expired by the time a new machine has booted.
    pub fn came_too_late(&self, now: Timestamp) -> bool {
        self.plan.launch_by.is_some_and(|by| by <= now)
    }
}

fn machine_of<'a>(facts: &JobFacts<'a>, plan: &Plan) -> Option<&'a InstanceView> {
    let CloudAnswer::Known(machines) = facts.cloud else { return None };
    let token = Some(plan.client_token.as_str());
    machines
        .iter()
        .find(|machine| is_of(facts, plan, machine) && machine.client_token.as_deref() == token)
}

/// Whether a machine is shown as before the start in this plan. The start sets the job's name
/// first. Without that name, it ran for another job.
pub(crate) fn stands_as_kept(plan: &Plan, machine: &InstanceView) -> bool {
    plan.starts
        .as_ref()
        .is_some_and(|starts| starts.launched == machine.launched || machine.tags.job != plan.job)
}

/// Whether a kept machine is stopped again after its start in this plan.
fn stands_again(plan: &Plan, machine: &InstanceView) -> bool {
    machine.state == InstanceState::Stopped
        && can_stand(machine)
        && plan.starts.is_some()
        && !stands_as_kept(plan, machine)
}

/// Maximum age of an unlaunched plan, measured by the time a new plan would add before the hard
/// end. A short throttling or a lost reply is over sooner, and a new plan waits minutes for
/// certainty. With more, a short job loses more time than that.
const LAIN_MAX: Duration = Duration::from_secs(15 * 60);

/// Uses the plan's own date, from which the hard end counts; a controller may have slept while it
/// wrote the plan.
fn lain_too_long(
    facts: &JobFacts<'_>,
    plan: &Plan,
    wishes: &Wishes,
    now: Timestamp,
) -> Option<Duration> {
    let end = extended_kill_at(facts, plan, wishes)?;
    // The hard end if it counted from now.
    let of_now = hard_end(facts, plan, wishes, elapsed(plan.created, now))?;
    let lain_for = elapsed(end, of_now).checked_sub(LAIN_MAX)?;
    (lain_for > Duration::ZERO).then_some(lain_for)
}

/// Each limit grows by its own extension, and the earliest still counts. More money adds no time if
/// the money was enough.
fn extended_kill_at(facts: &JobFacts<'_>, plan: &Plan, wishes: &Wishes) -> Option<Timestamp> {
    plan.kill_at?;
    hard_end(facts, plan, wishes, Duration::ZERO)
}

fn hard_end(
    facts: &JobFacts<'_>,
    plan: &Plan,
    wishes: &Wishes,
    age: Duration,
) -> Option<Timestamp> {
    let spec = &facts.spec.spec;
    let budget_left = spec
        .limits
        .budget
        .and_then(|_| relaunch::budget_left(spec, &history(facts.attempts), wishes));
    let terms = HardEndTerms::of_plan(spec, plan, budget_left, wishes.more_time);
    HardEndTerms { now: plan.created.saturating_add(age).unwrap_or(plan.created), ..terms }
        .hard_end()
}
