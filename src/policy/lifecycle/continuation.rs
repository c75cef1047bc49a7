//! Starts a kept machine again: which attempt does so, and what happens until it is shown as
//! started.
//!
//! ```text
//!   planned, and it is stopped as it was kept ──> start it (again), unless it is no longer wanted
//!   the same, and the plan is too old ──────────> settled, and planned anew: a hard end counts
//!                                                 from the plan
//!   started ────────────────────────────────────> like any other machine
//!   heartbeats arrive, but it is shown stopped ─> an old answer of the cloud: wait
//!   refused, or gone before its start ──────────> settled: it never ran for this attempt and is
//!                                                 free; the next waits a minute
//!   started, but no heartbeat ever came ────────> stopped again if its disk is all that the job
//!                                                 has, and the job ends
//! ```
//! The plan records the intent, and its start may be repeated: a running machine is not started
//! twice. This module makes no calls.

use std::time::Duration;

use super::act::Act;
use super::attempt_facts::{CloudAnswer, JobFacts};
use super::attempt_view::{AttemptView, stands_as_kept};
use super::forgotten_disk::can_stand;
use super::missing_machine::has_lain_for_sure;
use super::relaunch::had_no_machine as was_never_launched;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{AttemptRecord, Continues, KeptMachine};
use crate::market::{CloudKind, Market, elapsed};
use crate::policy::billing::settlement::settle;

/// The kept machine that the next attempt starts; `None`: launch a new one.
///
/// With a checkpoint, or as another trial of a tuning, the job can run anywhere, so one real try is
/// enough; a plan left unused is no try. Otherwise, all its data is on this disk, and the start is
/// retried until there is capacity.
pub fn machine_to_start<'a>(
    continues: Option<&'a Continues>,
    history: &[AttemptRecord],
) -> Option<&'a KeptMachine> {
    let continues = continues?;
    let kept = continues.machine.as_ref()?;
    let never_ran = history
        .iter()
        .all(|record| record.plan.starts.is_some() && record.settled.instance.is_none());
    let may_go_elsewhere = continues.may_go_elsewhere();
    let never_tried = history.iter().all(|record| was_never_launched(&record.settled));
    (never_ran && (never_tried || !may_go_elsewhere)).then_some(kept)
}

/// Whether it is shown as before its start although its agent was heard since. The job's name is
/// set before the start, so a view without it is old. A view with an older launch time is old too.
/// Some emulators do not count starts. There it has stopped again if it stopped after the last
/// heartbeat. The same holds if it stays stopped for longer than a start takes.
fn is_shown_as_before(attempt: &AttemptView<'_>, view: &InstanceView, overdue: bool) -> bool {
    let heard = attempt.watched.heard_at.or(attempt.status.map(|status| status.at));
    // The cloud rounds to whole seconds.
    let stopped_since = view
        .ended
        .zip(heard)
        .is_some_and(|(ended, heard)| elapsed(ended, heard) < Duration::from_secs(1));
    let same_start =
        attempt.plan.starts.as_ref().is_some_and(|starts| starts.launched == view.launched);
    view.tags.job != attempt.plan.job || (same_start && !overdue && !stopped_since)
}

/// The action for a kept machine before it is shown as started; `None`: treat it like any other.
pub(crate) fn before_its_start(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Vec<Act>> {
    let plan = attempt.plan;
    plan.starts.as_ref()?;
    let overdue = elapsed(plan.created, attempt.facts.now) > plan.boot.duration();
    if attempt.heard {
        let old =
            view.state == InstanceState::Stopped && is_shown_as_before(attempt, view, overdue);
        let why = format!(
            "{} is shown as it stood before its start, and its agent has spoken since",
            view.id
        );
        return old.then(|| vec![Act::Wait { until: None, why }]);
    }
    let done = || vec![Act::Settle(Box::new(settle(attempt)))];
    let wait = || {
        vec![Act::Wait {
            until: None,
            why: format!("{} runs, and carries the name of another job", view.id),
        }]
    };
    let unwanted = attempt.wishes.end.is_some();
    // A cloud without capacity refuses the start. This handles one that accepts it and shows no
    // effect. If the cloud did not answer or the laptop slept, the start is repeated as long as the
    // machine could still work.
    let shows_nothing =
        attempt.watched.starts_for.is_some_and(|starts| starts > plan.boot.duration());
    let too_late = plan.kill_at.is_some_and(|kill_at| kill_at <= attempt.facts.now);
    match view.state {
        // Shown as before a start of a moment ago: it runs, and must be shown so before it can be
        // ended.
        InstanceState::Stopped
            if stands_as_kept(plan, view) && is_started_just_now(attempt, view) =>
        {
            Some(vec![Act::Wait {
                until: None,
                why: format!("{} was started a moment ago, and is not shown so yet", view.id),
            }])
        }
        // It was started, and we stopped it again.
        InstanceState::Stopped if attempt.never_came_up => Some(done()),
        InstanceState::Stopped if let Some(lain_for) = attempt.left_lying => {
            let is_answered =
                attempt.watched.asked_for.is_none_or(|asked| asked >= ANSWER_MAY_BE_LATE);
            let unsure = || {
                vec![Act::Wait {
                    until: None,
                    why: format!(
                        "certainty that nobody has started {}: its plan has lain too long",
                        view.id
                    ),
                }]
            };
            Some(if has_lain_for_sure(lain_for) && is_answered { done() } else { unsure() })
        }
        // Its disk stays: the user has not asked to delete it.
        InstanceState::Stopped
            if attempt.watched.refused.is_some() || unwanted || shows_nothing || too_late =>
        {
            Some(done())
        }
        // Another controller started it, and it is stopped again. That controller records the
        // result and may start it again. We wait a minute, or the job could have two machines for a
        // moment.
        InstanceState::Stopped
            if is_of_anothers_start(attempt, view)
                && attempt.watched.dark_for.unwrap_or_default() < START_SHOWN_WITHIN =>
        {
            Some(vec![Act::Wait {
                until: None,
                why: format!("whoever has started {}, which stands again", view.id),
            }])
        }
        InstanceState::Stopped => Some(vec![Act::Launch { attempt: plan.attempt }]),
        // A user started it by hand. Its agent finds that its job has ended, and stops it again.
        InstanceState::Pending | InstanceState::Running if view.tags.job != plan.job => {
            Some(if overdue { done() } else { wait() })
        }
        _ => None,
    }
}

/// By then a start with a lost reply shows whether it was accepted.
const ANSWER_MAY_BE_LATE: Duration = Duration::from_secs(5 * 60);

/// How long EC2 may show a machine as before an accepted start. Its stale answers are seconds old.
const START_SHOWN_WITHIN: Duration = Duration::from_secs(60);

fn is_started_just_now(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    let watched = attempt.watched;
    let taken = watched.launched.is_some() && watched.refused.is_none();
    view.cloud == CloudKind::Aws
        && taken
        && watched.asked_for.is_some_and(|asked| asked < START_SHOWN_WITHIN)
}

/// Whether another controller started it for this attempt.
fn is_of_anothers_start(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    !stands_as_kept(attempt.plan, view) && attempt.watched.asked_for.is_none()
}

/// The wait of an attempt that continues elsewhere, after one settled without its kept machine.
/// Another controller may have requested its start in that moment, and EC2 shows it late. Without
/// the wait, the job could have two machines.
pub(crate) fn may_still_start(facts: &JobFacts<'_>) -> Option<String> {
    let last = facts.attempts.last()?;
    let (starts, settled) = (last.plan.starts.as_ref()?, last.settled.as_ref()?);
    // Without a checkpoint the next attempt starts the same machine.
    let goes_elsewhere = facts.spec.continues.as_ref().is_some_and(Continues::may_go_elsewhere);
    if settled.instance.is_some() || !goes_elsewhere || last.plan.offer.cloud != CloudKind::Aws {
        return None;
    }
    let CloudAnswer::Known(views) = facts.cloud else { return None };
    match views
        .iter()
        .find(|view| view.id == starts.instance)
        .map(|view| (view.state, view.tags.job == last.plan.job))
    {
        Some((state, true)) if state.bills() => {
            Some(format!("the end of {}, which another controller has started", starts.instance))
        }
        Some((InstanceState::Terminated, _)) => None,
        // Also for a region without an answer: by then the other controller has its reply.
        _ if last.watched.settled_for < START_SHOWN_WITHIN => {
            Some(format!("certainty that nobody has started {} meanwhile", starts.instance))
        }
        _ => None,
    }
}

/// Whether a started kept machine can be stopped again: its agent was never heard, so the disk is
/// unchanged. A spot machine can only be terminated, and the local cloud stops no folder.
pub(crate) fn is_unheard_and_can_stand(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    attempt.plan.starts.is_some() && !attempt.heard && can_stand(view)
}

/// Whether the user can start a stopped machine again.
pub fn can_start(view: &InstanceView) -> bool {
    view.state == InstanceState::Stopped
        && (view.cloud == CloudKind::Local || view.market == Market::OnDemand)
}
