//! Starting a kept machine again: which attempt does, and what is done until the cloud shows it started.
//!
//! ```text
//!   planned, and it stands as it was kept ──> start it (again), unless nobody wants it any more
//!   the same, and the plan has lain ───────> settled, and planned anew: a hard end is counted from the plan
//!   started ───────────────────────────────> like any other machine
//!   its agent speaks, and it still stands ──> an old answer of the cloud: wait
//!   refused, or gone before its start ─────> settled: it never ran for this attempt, and cost nothing; the next waits a minute
//!   started, and its agent is never heard ─> stopped again where the job has nothing else, and the job ends
//! ```
//! The plan is the intent, and its start may be repeated: a machine that runs is not started twice. What must never live
//! here: a call.

use std::time::Duration;

use super::forgotten_disk::can_stand;
use super::missing_machine::{has_lain_for_sure, lain_too_long};
use super::reconcile::{Act, AttemptFacts, CloudAnswer, Facts, heard};
use super::relaunch::had_no_machine as was_never_launched;
use super::requests::Wishes;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{AttemptRecord, Continues, KeptMachine, Plan};
use crate::market::{Cloud, Market, elapsed};
use crate::policy::billing::settlement::{our_ending, settle};

/// The kept machine that the next attempt starts; `None`: a new one is launched.
///
/// With a checkpoint the job goes on anywhere, so one try is enough; a plan that was left lying was none. Without one all that it
/// has is on this disk, and it is tried until there is room for it.
pub fn machine_to_start<'a>(continues: Option<&'a Continues>, history: &[AttemptRecord]) -> Option<&'a KeptMachine> {
    let continues = continues?;
    let kept = continues.machine.as_ref()?;
    let never_ran = history.iter().all(|record| record.plan.starts.is_some() && record.settled.instance.is_none());
    let may_go_elsewhere = continues.checkpoint.is_some();
    let never_tried = history.iter().all(|record| was_never_launched(&record.settled));
    (never_ran && (never_tried || !may_go_elsewhere)).then_some(kept)
}

/// Whether a machine is the one that this plan starts, whatever job it carries the name of.
pub fn is_kept_for(plan: &Plan, view: &InstanceView) -> bool {
    plan.starts.as_ref().is_some_and(|starts| starts.instance == view.id)
}

/// Whether a machine of ours is this job's: a kept one carries the name of the job before until it is started.
pub(crate) fn is_of(facts: &Facts<'_>, plan: &Plan, view: &InstanceView) -> bool {
    view.tags.owner == facts.owner && (view.tags.job == plan.job || is_kept_for(plan, view))
}

/// Whether a machine is shown as it stood before the start that this plan asks for. The start gives it the job's name first:
/// without it, whatever it did was for somebody else.
fn stands_as_kept(plan: &Plan, view: &InstanceView) -> bool {
    plan.starts.as_ref().is_some_and(|starts| starts.launched == view.launched || view.tags.job != plan.job)
}

/// Whether it is shown as it stood before its start, although its agent has spoken since. It was given this job's name before it
/// was started: who shows it without, shows how it stood then. So does who shows its last start; but not every emulator counts
/// starts, and there it has stopped again if that was after its agent's last word, or if it stands for longer than a start takes.
fn is_shown_as_before(attempt: &AttemptFacts, view: &InstanceView, overdue: bool) -> bool {
    let heard = attempt.watched.heard_at.or(attempt.status.as_ref().map(|status| status.at));
    // The cloud says it in whole seconds.
    let stopped_since = view.ended.zip(heard).is_some_and(|(ended, heard)| elapsed(ended, heard) < Duration::from_secs(1));
    let same_start = attempt.plan.starts.as_ref().is_some_and(|starts| starts.launched == view.launched);
    view.tags.job != attempt.plan.job || (same_start && !overdue && !stopped_since)
}

/// What is to be done about a kept machine that has not come up yet, or is not shown so; `None`: it is like any other.
pub(crate) fn before_its_start(facts: &Facts<'_>, attempt: &AttemptFacts, view: &InstanceView) -> Option<Vec<Act>> {
    let plan = &attempt.plan;
    plan.starts.as_ref()?;
    let overdue = elapsed(plan.created, facts.now) > plan.boot.duration();
    if heard(attempt) {
        let old = view.state == InstanceState::Stopped && is_shown_as_before(attempt, view, overdue);
        let why = format!("{} is shown as it stood before its start, and its agent has spoken since", view.id);
        return old.then(|| vec![Act::Wait { until: None, why }]);
    }
    let done = || vec![Act::Settle(Box::new(settle(facts, attempt, Some(view))))];
    let wait = || vec![Act::Wait { until: None, why: format!("{} runs, and carries the name of another job", view.id) }];
    let unwanted = Wishes::of(facts.requests).end.is_some();
    // A cloud without room for it says so; this is for one that takes the start and shows nothing of it. One that does not answer has
    // taken nothing, and nor has a laptop that slept: the start is asked for again, for as long as the machine could still work.
    let shows_nothing = attempt.watched.starts_for.is_some_and(|starts| starts > plan.boot.duration());
    let too_late = plan.kill_at.is_some_and(|kill_at| kill_at <= facts.now);
    match view.state {
        // Shown as it stood before a start of just now: it runs, and whoever wants it out must see it first.
        InstanceState::Stopped if stands_as_kept(plan, view) && is_started_just_now(attempt, view) => {
            Some(vec![Act::Wait { until: None, why: format!("{} was started a moment ago, and is not shown so yet", view.id) }])
        }
        // It was started, and we have stopped it again.
        InstanceState::Stopped if never_came_up(attempt, view) => Some(done()),
        InstanceState::Stopped if let Some(lain_for) = left_lying(facts, attempt, view) => {
            let is_answered = attempt.watched.asked_for.is_none_or(|asked| asked >= ANSWER_MAY_BE_LATE);
            let unsure =
                || vec![Act::Wait { until: None, why: format!("certainty that nobody has started {}: its plan has lain too long", view.id) }];
            Some(if has_lain_for_sure(lain_for) && is_answered { done() } else { unsure() })
        }
        // Its disk stays as it is: nobody has asked to lose it.
        InstanceState::Stopped if attempt.watched.refused.is_some() || unwanted || shows_nothing || too_late => Some(done()),
        // Another controller has started it, and it stands again: that one writes down what became of it, and starts it again if that is to
        // be. Who has not asked gives it a minute (seed 94021250 of 24 h: for a second the job had two machines).
        InstanceState::Stopped if is_of_anothers_start(attempt, view) && attempt.watched.dark_for.unwrap_or_default() < START_SHOWN_WITHIN => {
            Some(vec![Act::Wait { until: None, why: format!("whoever has started {}, which stands again", view.id) }])
        }
        InstanceState::Stopped => Some(vec![Act::Launch { attempt: plan.attempt }]),
        // Somebody has started it by hand; its agent finds that its job has ended, and puts it out again.
        InstanceState::Pending | InstanceState::Running if view.tags.job != plan.job => Some(if overdue { done() } else { wait() }),
        _ => None,
    }
}

/// For how long nobody should start a kept machine by this plan any more; `None`: it may be started, or is not wanted any more, or
/// the cloud has answered to a start.
pub(crate) fn left_lying(facts: &Facts<'_>, attempt: &AttemptFacts, view: &InstanceView) -> Option<Duration> {
    let watched = &attempt.watched;
    let is_left = had_no_machine(attempt, Some(view)) && view.state == InstanceState::Stopped && Wishes::of(facts.requests).end.is_none();
    let is_answered = watched.launched.is_some() || watched.refused.is_some();
    (is_left && !is_answered).then(|| lain_too_long(facts, attempt))?
}

/// A start whose reply was lost shows by then whether it was taken.
const ANSWER_MAY_BE_LATE: Duration = Duration::from_secs(5 * 60);

/// So long EC2 may show how a machine stood before a start that it has taken. Its answers are seconds old, where they are old at all.
const START_SHOWN_WITHIN: Duration = Duration::from_secs(60);

fn is_started_just_now(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    let watched = &attempt.watched;
    let taken = watched.launched.is_some() && watched.refused.is_none();
    view.cloud == Cloud::Aws && taken && watched.asked_for.is_some_and(|asked| asked < START_SHOWN_WITHIN)
}

/// Whether it was started for this attempt, and not by this controller.
fn is_of_anothers_start(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    !stands_as_kept(&attempt.plan, view) && attempt.watched.asked_for.is_none()
}

/// What the next attempt waits for, where the last one was settled without its kept machine and goes on elsewhere: the start that
/// another controller asked for may have been under way as that was written down, and EC2 shows it late (seed 32013937: for half a minute
/// the job had two machines).
pub(crate) fn may_still_start(facts: &Facts<'_>) -> Option<String> {
    let last = facts.attempts.last()?;
    let (starts, settled) = (last.plan.starts.as_ref()?, last.settled.as_ref()?);
    // Without a checkpoint the next one starts the same machine.
    let goes_elsewhere = facts.spec.continues.as_ref().is_some_and(|continues| continues.checkpoint.is_some());
    if settled.instance.is_some() || !goes_elsewhere || last.plan.offer.cloud != Cloud::Aws {
        return None;
    }
    let CloudAnswer::Known(views) = facts.cloud else { return None };
    match views.iter().find(|view| view.id == starts.instance).map(|view| (view.state, view.tags.job == last.plan.job)) {
        Some((state, true)) if state.bills() => Some(format!("the end of {}, which another controller has started", starts.instance)),
        Some((InstanceState::Terminated, _)) => None,
        // Of a region that does not answer too: by then whoever asked has been answered.
        _ if last.watched.settled_for < START_SHOWN_WITHIN => Some(format!("certainty that nobody has started {} meanwhile", starts.instance)),
        _ => None,
    }
}

/// Whether a kept machine that was started can stand still again: nobody has heard its agent, which has changed nothing on its
/// disk. What is not bought on demand is only ever terminated, and this workstation stops no folder.
pub(crate) fn is_unheard_and_can_stand(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    attempt.plan.starts.is_some() && !heard(attempt) && can_stand(view)
}

/// Whether it was started for this attempt, and stands still again, by us, who had heard no word of it. A first word that came while it
/// was being stopped changes nothing.
pub(crate) fn never_came_up(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    let unheard = our_ending(attempt).is_some_and(|ending| ending.heard.is_none()) && attempt.outcome.is_none();
    unheard && view.state == InstanceState::Stopped && can_stand(view) && attempt.plan.starts.is_some() && !stands_as_kept(&attempt.plan, view)
}

/// Whether an attempt could not have its kept machine, which is gone or was not given.
pub(crate) fn had_no_machine(attempt: &AttemptFacts, view: Option<&InstanceView>) -> bool {
    attempt.plan.starts.is_some() && !heard(attempt) && view.is_none_or(|view| stands_as_kept(&attempt.plan, view))
}

/// Whether a stopped machine can be started again by who asks for it.
pub fn can_start(view: &InstanceView) -> bool {
    view.state == InstanceState::Stopped && (view.cloud == Cloud::Local || view.market == Market::OnDemand)
}
