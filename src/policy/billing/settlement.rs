//! The result and cost of an attempt whose machine is gone.
//!
//! The agent's outcome decides why it ended. Without a readable outcome, the cloud's reason, the
//! users' wishes and the last heartbeat decide. If the cloud names a user, our record and the alarm
//! show whether that was us. A guess must be marked as one.

use std::time::Duration;

use jiff::Timestamp;

use super::billed_cost;
use super::billed_until::{SHOWN_AFTER_END, billing_ended, unseen_until};
use super::end_codes::{cloud_text, cloud_words};
use crate::instance::{InstanceState, InstanceView, NoticeKind, Status};
use crate::job::{
    AlarmRule, AttemptPhase, EndedBecause, Ending, Outcome, RECORD_FORMAT, Reason, Refusal, Settled,
};
use crate::market::{Cloud, Market, Span, Usd, elapsed};
use crate::policy::lifecycle::continuation;
use crate::policy::lifecycle::missing_machine::{came_too_late, lain_too_long};
use crate::policy::lifecycle::reconcile::{
    AlarmSeen, AttemptFacts, Facts, extended_kill_at, heard,
};
use crate::policy::lifecycle::requests::Wishes;
use crate::policy::lifecycle::stopped_time::{ended, may_have_stood_unseen, plan_stops, stood};

/// The earliest possible launch of a machine that is no longer shown. The workstation's clock dated
/// the plan and may be a day off.
fn launched_by_the_records(attempt: &AttemptFacts) -> Timestamp {
    let planned = attempt.watched.unshown.and_then(|unshown| unshown.planned);
    attempt.watched.launched_at.or(planned).unwrap_or(attempt.plan.created)
}

/// Longer than any launch after its plan, and than a likely clock error before the first NTP sync.
/// With ten minutes, a machine with a clock an hour behind was billed for the age of its plan.
const STARTED_AGAIN_AFTER: Duration = Duration::from_secs(2 * 3600);

/// The first launch of a machine that a user stopped and started again in the console. EC2 reports
/// only its last start, and the time between is counted too. `None`: it was launched once. Uses the
/// clocks of the machine and of the planner; one of them may be wrong.
fn launched_before(attempt: &AttemptFacts, view: &InstanceView) -> Option<Timestamp> {
    let (lease, plan) = (attempt.lease.as_ref()?, &attempt.plan);
    let first = lease.taken.max(plan.created);
    (plan.starts.is_none() && elapsed(first, view.launched) > STARTED_AGAIN_AFTER).then_some(first)
}

/// The settled record of an attempt. `view`: its ended machine; `None`: there was none, or the
/// cloud hides it.
pub(crate) fn settle(
    facts: &Facts<'_>,
    attempt: &AttemptFacts,
    view: Option<&InstanceView>,
) -> Settled {
    // A kept machine's earlier time belongs to the attempt that kept it.
    let never_started = continuation::had_no_machine(attempt, view);
    let shown = view;
    let dated = view
        .filter(|_| !never_started)
        .map(|view| InstanceView { ended: ended(attempt, view), ..view.clone() });
    let view = dated.as_ref();
    let known = attempt
        .lease
        .as_ref()
        .map(|lease| lease.instance.clone())
        .or_else(|| attempt.watched.launched.clone().or_else(|| attempt.watched.shown.clone()));
    let known = known.or_else(|| attempt.status.as_ref().map(|status| status.instance.clone()));
    let instance = view.map(|view| view.id.clone()).or(known).filter(|_| !never_started);
    let was_there = instance.is_some() || is_spent(attempt);
    let unsure = !was_there && !never_started && may_have_run(facts, attempt);
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
        None if unseen => (Some(unseen_until(facts, attempt)), true),
        None => billing_ended(facts, attempt, view)
            .map_or((from, false), |(to, estimated)| (Some(to), estimated)),
    };
    let withdrawn = view.is_some_and(|view| was_withdrawn(attempt, view));
    let unseen_stand = view.and(shown).is_some_and(|view| may_have_stood_unseen(attempt, view));
    // EC2 bills the whole first minute, whenever the run ended in it. A pending machine is free.
    let least = view.is_some()
        && heard(attempt)
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
    let lain = shown.is_some_and(|view| continuation::left_lying(facts, attempt, view).is_some());
    let because =
        if lain { EndedBecause::Lost } else { because(facts, attempt, (view, to), was_there) };
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
    let not_known = if !was_there
        && Wishes::of(facts.requests).end.is_none()
        && lain_too_long(facts, attempt).is_some()
    {
        LAIN
    } else if unsure {
        "whether its machine was ever launched is not known, and the cloud shows none"
    } else {
        "the cloud knows no machine of this plan"
    };
    let not_known = if !existed
        && came_too_late(&attempt.plan, facts.now)
        && Wishes::of(facts.requests).end.is_none()
    {
        "it was not launched in time: what its machine would have fetched was signed for a shorter time"
    } else {
        not_known
    };
    let cloud_reason = cloud_reason.or_else(|| view.is_none().then(|| not_known.to_owned()));
    let outcome = attempt.outcome.clone().or_else(|| {
        last_words(facts, attempt, because, instance.clone()?, to?, cloud_reason.as_deref())
    });
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
    }
}

/// Why an unlaunched plan is over.
const LAIN: &str =
    "its plan lay too long before a launch, and a new one gives the work its whole time";

/// Whether an attempt was settled because its plan was too old, by the settling controller's clock.
pub fn has_lain(settled: &Settled) -> bool {
    settled.cloud_reason.as_deref() == Some(LAIN)
}

/// Whether the cloud says that the plan's machine existed and ended, although we never saw it. The
/// answer to its launch was lost, and the cloud stopped showing it before our next look.
pub(crate) fn is_spent(attempt: &AttemptFacts) -> bool {
    matches!(attempt.watched.refused, Some((Some(Refusal::Spent), _)))
}

/// The same for a machine that is unwanted or whose token is too old: asking for it would buy it. A
/// plan dated in the future only shows a wrong clock.
fn may_have_run(facts: &Facts<'_>, attempt: &AttemptFacts) -> bool {
    let AttemptFacts { plan, watched, .. } = attempt;
    let would_be_shown = plan.offer.cloud == Cloud::Local
        || (plan.created <= facts.now && elapsed(plan.created, facts.now) < SHOWN_AFTER_END);
    // A capacity error proves that EC2 checked the token first; a missing permission does not. If
    // another controller launched the machine since, and it ended, EC2 still shows it for that
    // long.
    let was_not_there_lately = matches!(watched.refused, Some((Some(refusal), _)) if refusal != Refusal::SpotRole)
        && watched.refused_for < SHOWN_AFTER_END;
    watched.unclear && !was_not_there_lately && !would_be_shown
}

/// Whether the cloud interrupted a spot machine; a notice alone does not prove it.
pub(crate) fn taken_by_cloud(view: Option<&InstanceView>) -> bool {
    view.and_then(|view| view.state_reason.as_deref()).is_some_and(billed_cost::is_taken)
}

/// `to`: the end of billing, as far as known.
fn because(
    facts: &Facts<'_>,
    attempt: &AttemptFacts,
    (view, to): (Option<&InstanceView>, Option<Timestamp>),
    was_there: bool,
) -> EndedBecause {
    if let Some(outcome) = &attempt.outcome {
        return outcome.because;
    }
    // If a machine existed, or may have, its launch was not refused.
    if attempt.watched.refused.is_some() && !was_there && !may_have_run(facts, attempt) {
        return EndedBecause::LaunchFailed;
    }
    if let Some((because, _)) = told_at_the_end(attempt) {
        return because;
    }
    let reason = view.and_then(|view| view.state_reason.as_deref()).unwrap_or_default();
    let ended = view.and_then(|view| view.ended);
    let taken =
        attempt.status.as_ref().and_then(|status| status.notice.as_ref()).is_some_and(|notice| {
            notice.kind == NoticeKind::Interruption && ended.is_none_or(|ended| ended >= notice.at)
        });
    if reason.starts_with("Server.Spot") || (taken && !reason.starts_with("Client.")) {
        return EndedBecause::Interrupted;
    }
    if let Some(wish) = Wishes::of(facts.requests).end
        && (!was_there || view.is_some())
    {
        return wish.because();
    }
    if view.is_some_and(|view| was_withdrawn(attempt, view)) {
        return EndedBecause::LaunchFailed;
    }
    // The machine's tag may lack an extension: no controller raised it yet, or its tags are gone.
    let kill_at = view.and_then(|view| view.tags.kill_at).map(|kill_at| {
        extended_kill_at(facts, &attempt.plan).map_or(kill_at, |to| to.max(kill_at))
    });
    // EC2 dates only ends that were requested from outside. Otherwise, a machine that was heard
    // within a lease of its cap reached the cap.
    let heard_close = |kill_at| {
        last_heard(attempt)
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
    if continuation::had_no_machine(attempt, view)
        || reason.starts_with("Client.InternalError")
        || reason.starts_with("Client.VolumeLimitExceeded")
    {
        return EndedBecause::LaunchFailed;
    }
    if view.is_some_and(|view| continuation::never_came_up(attempt, view)) {
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

/// EC2's reason for a machine that it listed and then had no capacity for.
const NO_ROOM: &str = "Server.InsufficientInstanceCapacity";

/// Whether the cloud accepted a launch and withdrew the machine before it ran, which equals a
/// refusal. A fault of one host (`Server.InternalError`) says nothing about the pool. A spot
/// interruption stays one.
fn was_withdrawn(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    view.state.is_terminated()
        && !heard(attempt)
        && view.state_reason.as_deref().is_some_and(|reason| reason.starts_with(NO_ROOM))
}

/// EC2's reason for an end by API call: a person in the console, a controller, a sweep or an alarm.
const BY_A_USER: &str = "Client.UserInitiatedShutdown";

/// Whether the cloud says that a user ended this machine, so that only our records can tell more.
pub fn is_by_a_user(view: &InstanceView) -> bool {
    view.state_reason.as_deref().is_some_and(|reason| reason.starts_with(BY_A_USER))
}

/// Whether an alarm may have ended it: the cloud says that a user did, or gives no reason.
pub fn may_be_by_an_alarm(view: &InstanceView) -> bool {
    view.state_reason.is_none() || is_by_a_user(view)
}

/// Whether a person ended or stopped it, and none of our programs.
pub(crate) fn is_by_hand(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    is_by_a_user(view)
        && our_ending(attempt).is_none()
        && !has_rung(attempt, view)
        && !was_silent(attempt, view)
}

/// If the agent is heard this long after the recorded ending, that ending did not end the machine.
/// The cloud refused it, or the record belongs to an earlier silence. Longer than the call and one
/// late heartbeat. Shorter than a person needs to read about the refusal and end the machine by
/// hand.
pub(crate) const LAST_BEATS: Duration = Duration::from_secs(2 * 60);

/// The record of a controller or sweep that it ended this machine.
pub(crate) fn our_ending(attempt: &AttemptFacts) -> Option<&Ending> {
    let ending = attempt.watched.ended.ending.as_ref()?;
    let status = attempt.status.as_ref();
    let heard_for = status.map_or(Duration::ZERO, |status| {
        elapsed(ending.heard.unwrap_or(status.started), status.at)
    });
    (heard_for <= LAST_BEATS).then_some(ending)
}

/// The alarm acts within seconds, and the cloud dates the end to the second. After another end, an
/// alarm on silence rings too, but at least five minutes later. If an alarm's action failed, it
/// stays on until a person ends the machine.
const ALARM_TO_END: Duration = Duration::from_secs(2 * 60);

/// Whether the cloud's alarm ended it. Without a date of the end, the alarm must be on, with no
/// heartbeat since.
fn has_rung(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    match (attempt.watched.ended.alarm, view.ended) {
        (AlarmSeen::RangAt(rang), Some(ended)) => {
            elapsed(ended, rang).max(elapsed(rang, ended)) <= ALARM_TO_END
        }
        (AlarmSeen::RangAt(rang), None) => {
            last_heard(attempt).is_none_or(|heard| elapsed(rang, heard) <= LAST_BEATS)
        }
        _ => false,
    }
}

/// Whether the job file's own idle alarm (`cpu<=0.3 for 5m`) ended it, while its agent was still
/// heard. Then nothing is lost, and another machine would idle too. If the machine had gone silent,
/// the alarm rang because of the silence, and the job continues on another one.
pub(crate) fn idled_by_alarm(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    let rule = attempt.plan.launch.as_ref().and_then(|launch| launch.alarm);
    let ended = view.ended.or(match attempt.watched.ended.alarm {
        AlarmSeen::RangAt(rang) => Some(rang),
        _ => None,
    });
    let heard = last_heard(attempt)
        .zip(ended)
        .is_some_and(|(heard, ended)| elapsed(heard, ended) <= LAST_BEATS);
    let rang = may_be_by_an_alarm(view) && our_ending(attempt).is_none() && has_rung(attempt, view);
    matches!(rule, Some(AlarmRule::Cpu { .. })) && heard && rang
}

/// The reason in the last heartbeat, if the outcome cannot be read. Only a heartbeat after the
/// outcome counts.
fn told_at_the_end(attempt: &AttemptFacts) -> Option<(EndedBecause, &str)> {
    let after = |status: &&Status| matches!(status.phase, AttemptPhase::Held | AttemptPhase::Ended);
    let status =
        attempt.status.as_ref().filter(|_| attempt.watched.damaged.outcome).filter(after)?;
    let reason = status.reason.as_ref()?;
    Some((EndedBecause::from_word(&reason.verdict)?, &reason.text))
}

/// Whether the machine was silent for so long that we or an alarm ended it, although no record says
/// so.
fn was_silent(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    let Some(ended) = view.ended else { return false };
    let heard = last_heard(attempt).or_else(|| attempt.lease.as_ref().map(|lease| lease.taken));
    match heard {
        Some(heard) => elapsed(heard, ended) >= silence_allowed(attempt),
        None => elapsed(view.launched, ended) >= attempt.plan.boot.duration(),
    }
}

/// Time of the last heartbeat, by the store's clock if known, because the cloud dates the end of
/// billing.
pub(crate) fn last_heard(attempt: &AttemptFacts) -> Option<Timestamp> {
    let status = attempt.status.as_ref()?;
    Some(attempt.watched.heard_at.unwrap_or(status.at))
}

/// The agent publishes a metric once a minute, so the alarm may have started counting a minute
/// before the newest heartbeat.
const PUBLISHED_EACH: Duration = Duration::from_secs(60);

/// The smaller of lease and alarm, unless the alarm is known to have stayed quiet.
fn silence_allowed(attempt: &AttemptFacts) -> Duration {
    let lease = attempt.plan.lease.duration();
    match attempt.plan.launch.as_ref().and_then(|launch| launch.alarm?.silence(attempt.plan.lease))
    {
        Some(minutes) if attempt.watched.ended.alarm == AlarmSeen::Unknown => {
            lease.min(Duration::from_secs(u64::from(minutes) * 60).saturating_sub(PUBLISHED_EACH))
        }
        _ => lease,
    }
}

/// The outcome from the last heartbeat, if the agent left none that can be read.
fn last_words(
    facts: &Facts<'_>,
    attempt: &AttemptFacts,
    because: EndedBecause,
    instance: String,
    ended: Timestamp,
    cloud_reason: Option<&str>,
) -> Option<Outcome> {
    let (status, damaged) = (attempt.status.as_ref(), attempt.watched.damaged.outcome);
    // An end by us has a reason, even without any heartbeat.
    let ended_by_us = matches!(because, EndedBecause::Lost | EndedBecause::LaunchFailed)
        && our_ending(attempt).is_some();
    // If the cloud says that a user ended it, our records tell which one.
    let by_somebody = matches!(because, EndedBecause::UserStopped | EndedBecause::UserCancelled);
    if status.is_none() && !damaged && !ended_by_us && !by_somebody {
        return None;
    }
    let mut reasons: Vec<Reason> =
        status.and_then(|status| status.reason.clone()).into_iter().collect();
    reasons.push(Reason::new(
        facts.now,
        "settle",
        because.word(),
        why(facts, attempt, because, cloud_reason),
    ));
    let number = attempt.plan.attempt.number();
    let loss = format!(
        "the outcome of attempt {number} could not be read: what is said of its end comes from its last heartbeat"
    );
    let taken = attempt.lease.as_ref().map(|lease| lease.taken);
    Some(Outcome {
        format: RECORD_FORMAT,
        job: facts.spec.job.clone(),
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
        working_since: status.and_then(|status| status.working_since),
        saved: status.map_or(Span::ZERO, |status| status.saved),
        losses: damaged.then_some(loss).into_iter().collect(),
    })
}

/// Names the user or program that asked for the end: the cloud uses one code for us, for a wish,
/// and for a person in the console.
fn by_somebody(facts: &Facts<'_>, attempt: &AttemptFacts, cloud: &str) -> String {
    match (our_ending(attempt), Wishes::of(facts.requests).end) {
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

fn why(
    facts: &Facts<'_>,
    attempt: &AttemptFacts,
    because: EndedBecause,
    cloud_reason: Option<&str>,
) -> String {
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
        EndedBecause::Lost => match (our_ending(attempt), attempt.watched.ended.alarm) {
            (Some(ending), _) => format!("{} ended the machine: {}", ending.by, ending.why),
            (None, AlarmSeen::RangAt(rang)) => {
                format!("its alarm rang at {rang}, and the cloud ended the machine")
            }
            (None, _) => format!(
                "the machine is gone and its agent left no outcome ({})",
                cloud("no reason given")
            ),
        },
        EndedBecause::LaunchFailed if let Some(ending) = our_ending(attempt) => {
            format!("{} stopped the machine: {}", ending.by, ending.why)
        }
        EndedBecause::UserStopped | EndedBecause::UserCancelled => {
            by_somebody(facts, attempt, cloud("no reason given"))
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
