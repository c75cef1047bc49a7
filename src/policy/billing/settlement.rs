//! The result and cost of an attempt whose machine is gone.
//!
//! The agent's outcome decides why it ended. Without a readable outcome, the cloud's reason, the
//! users' wishes and the last heartbeat decide. If the cloud names a user, our record and the alarm
//! show whether that was us. A guess must be marked as one.
//!
//! Not here: the sum of all attempts (`job::record::receipt`).

use std::time::Duration;

use jiff::Timestamp;

use super::billed_cost;
use super::billed_until::{SHOWN_AFTER_END, billing_ended, unseen_until};
use super::end_codes::{cloud_text, cloud_words};
use super::end_evidence::{
    idled_by_alarm, is_by_hand, taken_by_cloud, told_at_the_end, was_withdrawn,
};
use crate::instance::{InstanceState, InstanceView, NoticeKind};
use crate::job::{EndedBecause, Outcome, RECORD_FORMAT, Reason, Refusal, Settled};
use crate::market::{CloudKind, Market, Span, Usd, elapsed};
use crate::policy::lifecycle::attempt_view::AttemptView;
use crate::policy::lifecycle::observations::AlarmSeen;
use crate::policy::lifecycle::stopped_time::{ended, may_have_stood_unseen, plan_stops, stood};

/// The earliest possible launch of a machine that is no longer shown. The workstation's clock dated
/// the plan and may be a day off.
fn launched_by_the_records(attempt: &AttemptView<'_>) -> Timestamp {
    let planned = attempt.watched.unshown.and_then(|unshown| unshown.planned);
    attempt.watched.launched_at.or(planned).unwrap_or(attempt.plan.created)
}

/// Longer than any launch after its plan, and than a likely clock error before the first NTP sync.
/// With ten minutes, a machine with a clock an hour behind was billed for the age of its plan.
const STARTED_AGAIN_AFTER: Duration = Duration::from_secs(2 * 3600);

/// The first launch of a machine that a user stopped and started again in the console. EC2 reports
/// only its last start, and the time between is counted too. `None`: it was launched once. Uses the
/// clocks of the machine and of the planner; one of them may be wrong.
fn launched_before(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Timestamp> {
    let (lease, plan) = (attempt.lease?, attempt.plan);
    let first = lease.taken.max(plan.created);
    (plan.starts.is_none() && elapsed(first, view.launched) > STARTED_AGAIN_AFTER).then_some(first)
}

/// The settled record of an attempt whose machine has ended, was never there, or is hidden by the
/// cloud.
pub(crate) fn settle(attempt: &AttemptView<'_>) -> Settled {
    // A kept machine's earlier time belongs to the attempt that kept it.
    let never_started = attempt.never_started;
    let shown = attempt.machine;
    let dated = shown
        .filter(|_| !never_started)
        .map(|view| InstanceView { ended: ended(attempt, view), ..view.clone() });
    let view = dated.as_ref();
    let known = attempt
        .lease
        .map(|lease| lease.instance.clone())
        .or_else(|| attempt.watched.launched.clone().or_else(|| attempt.watched.shown.clone()));
    let known = known.or_else(|| attempt.status.map(|status| status.instance.clone()));
    let instance = view.map(|view| view.id.clone()).or(known).filter(|_| !never_started);
    let was_there = instance.is_some() || attempt.is_spent;
    let unsure = !was_there && !never_started && may_have_run(attempt);
    let existed = was_there || unsure;
    let unseen = existed && view.is_none() && attempt.status.is_none();
    // If the cloud no longer shows the machine, only its own records date its time.
    let before = view.and_then(|view| launched_before(attempt, view));
    let from = before
        .or(view.map(|view| view.launched))
        .or_else(|| existed.then(|| launched_by_the_records(attempt)));
    // A spot machine is never stopped and kept. The cloud no longer reports who ended it, which
    // decides whether it is free.
    let may_have_stood = existed && view.is_none() && attempt.plan.offer.market == Market::OnDemand;
    let unshown = || {
        attempt
            .watched
            .launched_at
            .filter(|_| may_have_stood)
            .and_then(|launched| stood(attempt, launched))
    };
    // A machine that powers itself off to `Stopped` has no date, while a later termination has one.
    // For a machine no longer shown, it is unknown which of the two was seen.
    let may_stand_undated =
        view.is_none() && (plan_stops(attempt) || attempt.plan.starts.is_some());
    let (to, billed_estimated) = match view.and_then(|view| view.ended).or_else(unshown) {
        Some(ended) => (Some(ended), may_stand_undated),
        None if unseen => (Some(unseen_until(attempt)), true),
        None => billing_ended(attempt, view)
            .map_or((from, false), |(to, estimated)| (Some(to), estimated)),
    };
    let withdrawn = view.is_some_and(|view| was_withdrawn(attempt, view));
    let unseen_stand = view.and(shown).is_some_and(|view| may_have_stood_unseen(attempt, view));
    // EC2 bills the whole first minute, whenever the run ended in it. A pending machine is free.
    let least = view.is_some()
        && attempt.heard
        && from.zip(to).is_some_and(|(from, to)| {
            billed_cost::is_the_least(&attempt.plan.offer, elapsed(from, to))
        });
    let billed_estimated =
        ((billed_estimated && !least) || before.is_some() || unseen_stand) && !withdrawn;
    let billed = match (from, to) {
        (Some(from), Some(to)) if !withdrawn => {
            billed_cost::billed(attempt.plan.offer.cloud, elapsed(from, to))
        }
        _ => Duration::ZERO,
    };
    // Whole milliseconds, as in records; the cost must match the recorded time exactly.
    let billed = Span::from_duration(Duration::from_millis(
        u64::try_from(billed.as_millis()).unwrap_or(u64::MAX),
    ));
    let lain = attempt.left_lying.is_some();
    let because = if lain { EndedBecause::Lost } else { because(attempt, (view, to), was_there) };
    let refused = attempt.watched.refused.as_ref().filter(|_| instance.is_none() && !unsure);
    let not_had = || match lain {
        true => LAIN.to_owned(),
        false => format!(
            "the kept machine {}",
            shown.map_or("is not shown any more".to_owned(), |view| format!("is {}", view.state))
        ),
    };
    let cloud_reason = refused
        .map(|(_, text)| text.clone())
        .or_else(|| never_started.then(not_had))
        .or_else(|| view.and_then(|view| view.state_reason.clone()));
    let unwished = attempt.wishes.end.is_none();
    let (not_known, lay_too_long) =
        if !existed && unwished && attempt.came_too_late(attempt.facts.now) {
            (SIGNED_FOR_LESS, false)
        } else if !was_there && unwished && attempt.lain_for.is_some() {
            (LAIN, true)
        } else if unsure {
            (UNSURE, false)
        } else {
            ("the cloud knows no machine of this plan", false)
        };
    let plan_too_old = lain || (lay_too_long && view.is_none() && cloud_reason.is_none());
    let cloud_reason = cloud_reason.or_else(|| view.is_none().then(|| not_known.to_owned()));
    let outcome = attempt
        .outcome
        .cloned()
        .or_else(|| last_words(attempt, because, instance.clone()?, to?, cloud_reason.as_deref()));
    Settled {
        format: RECORD_FORMAT,
        attempt: attempt.plan.attempt,
        instance: instance.clone(),
        because,
        billed_from: from,
        billed_to: to,
        billed,
        billed_estimated,
        usd: if existed {
            billed_cost::cost(&attempt.plan.offer, billed.duration(), taken_by_cloud(view))
        } else {
            Usd::ZERO
        },
        refusal: refused
            .and_then(|(refusal, _)| *refusal)
            .or((withdrawn && because == EndedBecause::LaunchFailed).then_some(Refusal::Capacity)),
        cloud_reason,
        outcome,
        kept: shown.is_some_and(|view| view.state == InstanceState::Stopped),
        plan_too_old,
    }
}

/// Why an unlaunched plan is over.
const LAIN: &str =
    "its plan lay too long before a launch, and a new one gives the work its whole time";
const SIGNED_FOR_LESS: &str = "it was not launched in time: what its machine would have fetched was signed for a shorter time";
const UNSURE: &str = "whether its machine was ever launched is not known, and the cloud shows none";

/// Whether an attempt was settled because its plan was too old, by the settling controller's clock.
/// A record from before the field has only the sentence.
pub fn has_lain(settled: &Settled) -> bool {
    settled.plan_too_old || settled.cloud_reason.as_deref() == Some(LAIN)
}

/// Whether a machine may have run that was never seen, so that its id is unknown. It is unwanted or
/// its token is too old, and asking for it would buy it. A plan dated in the future only shows a
/// wrong clock.
fn may_have_run(attempt: &AttemptView<'_>) -> bool {
    let (plan, watched, now) = (attempt.plan, attempt.watched, attempt.facts.now);
    let would_be_shown = plan.offer.cloud == CloudKind::Local
        || (plan.created <= now && elapsed(plan.created, now) < SHOWN_AFTER_END);
    // A capacity error proves that EC2 checked the token first; a missing permission does not. If
    // another controller launched the machine since, and it ended, EC2 still shows it for that
    // long.
    let was_not_there_lately = matches!(watched.refused, Some((Some(refusal), _)) if refusal != Refusal::SpotRole)
        && watched.refused_for < SHOWN_AFTER_END;
    watched.unclear && !was_not_there_lately && !would_be_shown
}

/// `to`: the end of billing, as far as known.
fn because(
    attempt: &AttemptView<'_>,
    (view, to): (Option<&InstanceView>, Option<Timestamp>),
    was_there: bool,
) -> EndedBecause {
    if let Some(outcome) = attempt.outcome {
        return outcome.because;
    }
    // If a machine existed, or may have, its launch was not refused.
    if attempt.watched.refused.is_some() && !was_there && !may_have_run(attempt) {
        return EndedBecause::LaunchFailed;
    }
    if let Some((because, _)) = told_at_the_end(attempt) {
        return because;
    }
    let reason = view.and_then(|view| view.state_reason.as_deref()).unwrap_or_default();
    let ended = view.and_then(|view| view.ended);
    let taken = attempt.status.and_then(|status| status.notice.as_ref()).is_some_and(|notice| {
        notice.kind == NoticeKind::Interruption && ended.is_none_or(|ended| ended >= notice.at)
    });
    if reason.starts_with("Server.Spot") || (taken && !reason.starts_with("Client.")) {
        return EndedBecause::Interrupted;
    }
    if let Some(wish) = &attempt.wishes.end
        && (!was_there || view.is_some())
    {
        return wish.because();
    }
    if view.is_some_and(|view| was_withdrawn(attempt, view)) {
        return EndedBecause::LaunchFailed;
    }
    // The machine's tag may lack an extension: no controller raised it yet, or its tags are gone.
    let kill_at = view
        .and_then(|view| view.tags.kill_at)
        .map(|kill_at| attempt.kill_at.map_or(kill_at, |to| to.max(kill_at)));
    // EC2 dates only ends that were requested from outside. Otherwise, a machine that was heard
    // within a lease of its cap reached the cap.
    let heard_close = |kill_at| {
        attempt
            .last_heard
            .is_some_and(|heard| elapsed(heard, kill_at) <= attempt.plan.lease.duration())
    };
    let lived_to = |kill_at| {
        ended.map_or_else(
            || view.is_some() && to >= Some(kill_at) && heard_close(kill_at),
            |ended| ended >= kill_at,
        )
    };
    if kill_at.is_some_and(lived_to) {
        return EndedBecause::HardEnd;
    }
    if attempt.never_started
        || reason.starts_with("Client.InternalError")
        || reason.starts_with("Client.VolumeLimitExceeded")
    {
        return EndedBecause::LaunchFailed;
    }
    if attempt.never_came_up {
        return EndedBecause::LaunchFailed;
    }
    if view.is_some_and(|view| is_by_hand(attempt, view)) {
        return EndedBecause::UserStopped;
    }
    if view.is_some_and(|view| idled_by_alarm(attempt, view)) {
        return EndedBecause::Idle;
    }
    EndedBecause::Lost
}

/// The outcome from the last heartbeat, if the agent left none that can be read.
fn last_words(
    attempt: &AttemptView<'_>,
    because: EndedBecause,
    instance: String,
    ended: Timestamp,
    cloud_reason: Option<&str>,
) -> Option<Outcome> {
    let (status, damaged) = (attempt.status, attempt.watched.damaged.outcome);
    // An end by us has a reason, even without any heartbeat.
    let ended_by_us = matches!(because, EndedBecause::Lost | EndedBecause::LaunchFailed)
        && attempt.our_ending.is_some();
    // If the cloud says that a user ended it, our records tell which one.
    let by_somebody = matches!(because, EndedBecause::UserStopped | EndedBecause::UserCancelled);
    if status.is_none() && !damaged && !ended_by_us && !by_somebody {
        return None;
    }
    let mut reasons: Vec<Reason> =
        status.and_then(|status| status.reason.clone()).into_iter().collect();
    reasons.push(Reason::new(
        attempt.facts.now,
        "settle",
        because.word(),
        why(attempt, because, cloud_reason),
    ));
    let number = attempt.plan.attempt.number();
    let loss = format!(
        "the outcome of attempt {number} could not be read: what is said of its end comes from its last heartbeat"
    );
    let taken = attempt.lease.map(|lease| lease.taken);
    Some(Outcome {
        format: RECORD_FORMAT,
        job: attempt.facts.spec.job.clone(),
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
        last_checkpoint: attempt
            .journal
            .last_checkpoint
            .clone()
            .or_else(|| status?.last_checkpoint.clone()),
        checkpoints: attempt.journal.checkpoints.max(status.map_or(0, |status| status.checkpoints)),
        resumed_from: attempt.journal.resumed_from.clone(),
        went_back: attempt.journal.went_back.clone(),
        progress: status.and_then(|status| status.progress.clone()),
        metric: status.and_then(|status| status.metric.clone()),
        working_since: status.and_then(|status| status.working_since),
        saved: status.map_or(Span::ZERO, |status| status.saved),
        losses: damaged.then_some(loss).into_iter().collect(),
    })
}

/// Names the user or program that asked for the end: the cloud uses one code for us, for a wish,
/// and for a person in the console.
fn by_somebody(attempt: &AttemptView<'_>, cloud: &str) -> String {
    match (attempt.our_ending, &attempt.wishes.end) {
        (Some(ending), _) => format!("{} ended the machine: {}", ending.by, ending.why),
        (None, Some(wish)) => {
            let verb = if wish.cancel { "cancel" } else { "stop" };
            format!(
                "asked to {verb} by {}; the machine ended before its agent could say more ({cloud})",
                wish.by
            )
        }
        (None, None) => format!(
            "somebody stopped or ended the machine at the cloud itself, or with the `lamp` of another job root ({cloud})"
        ),
    }
}

fn why(attempt: &AttemptView<'_>, because: EndedBecause, cloud_reason: Option<&str>) -> String {
    let cloud = |otherwise| {
        cloud_reason.map_or(otherwise, |reason| cloud_words(attempt.plan.offer.cloud, reason))
    };
    match because {
        _ if attempt.watched.damaged.outcome => match told_at_the_end(attempt) {
            Some((_, text)) => {
                format!("{text} (by the last heartbeat: the outcome could not be read)")
            }
            None => format!(
                "the machine is gone, and the outcome that its agent left could not be read ({})",
                cloud("no reason given")
            ),
        },
        EndedBecause::Interrupted => {
            format!("the cloud took the machine away ({})", cloud("its notice said so"))
        }
        EndedBecause::Lost => match (attempt.our_ending, attempt.watched.ended.alarm) {
            (Some(ending), _) => format!("{} ended the machine: {}", ending.by, ending.why),
            (None, AlarmSeen::RangAt(rang)) => {
                format!("its alarm rang at {rang}, and the cloud ended the machine")
            }
            (None, _) => format!(
                "the machine is gone and its agent left no outcome ({})",
                cloud("no reason given")
            ),
        },
        EndedBecause::LaunchFailed if let Some(ending) = attempt.our_ending => {
            format!("{} stopped the machine: {}", ending.by, ending.why)
        }
        EndedBecause::UserStopped | EndedBecause::UserCancelled => {
            by_somebody(attempt, cloud("no reason given"))
        }
        EndedBecause::Idle => match attempt.watched.ended.alarm {
            AlarmSeen::RangAt(rang) => {
                format!(
                    "its CPU alarm rang at {rang}: by that rule of the job file the machine was idle, and the cloud ended it"
                )
            }
            _ => format!("the machine was idle ({})", cloud("no reason given")),
        },
        _ => {
            let said = cloud_reason.map_or("no reason given".into(), |reason| {
                cloud_text(attempt.plan.offer.cloud, reason)
            });
            format!("the machine ended before its agent could say why: {said}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plan_too_old_is_read_from_old_and_new_records() {
        let record = |also: serde_json::Value| {
            let mut record = json!({
                "format": 1, "attempt": 1, "instance": null, "because": "lost",
                "billed_from": null, "billed_to": null, "billed": "0s", "usd": 0.0,
            });
            let (record_map, also) = (record.as_object_mut(), also.as_object().cloned());
            record_map.expect("an object").extend(also.expect("an object"));
            serde_json::from_value::<Settled>(record).expect("a record")
        };
        assert!(has_lain(&record(json!({ "cloud_reason": LAIN }))), "an old record");
        assert!(has_lain(&record(json!({ "plan_too_old": true, "cloud_reason": "other words" }))));
        assert!(!has_lain(&record(json!({ "cloud_reason": UNSURE }))));
        let written = serde_json::to_value(record(json!({}))).expect("it serialises");
        assert!(written.get("plan_too_old").is_none(), "it is written only where it is true");
    }
}
