//! Finds who or what ended a machine, by the cloud's reason, our own records and the alarm.

use std::time::Duration;

use super::billed_cost;
use crate::instance::{InstanceView, Status};
use crate::job::{AlarmRule, AttemptPhase, EndedBecause};
use crate::market::elapsed;
use crate::policy::lifecycle::attempt_facts::LAST_BEATS;
use crate::policy::lifecycle::attempt_view::AttemptView;
use crate::policy::lifecycle::observations::AlarmSeen;

/// Whether the cloud interrupted a spot machine; a notice alone does not prove it.
pub(crate) fn taken_by_cloud(view: Option<&InstanceView>) -> bool {
    view.and_then(|view| view.state_reason.as_deref()).is_some_and(billed_cost::is_taken)
}

/// EC2's reason for a machine that it listed and then had no capacity for.
const NO_ROOM: &str = "Server.InsufficientInstanceCapacity";

/// Whether the cloud accepted a launch and withdrew the machine before it ran, which equals a
/// refusal. A fault of one host (`Server.InternalError`) says nothing about the pool. A spot
/// interruption stays one.
pub(crate) fn was_withdrawn(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    view.state.is_terminated()
        && !attempt.heard
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
pub(crate) fn is_by_hand(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    is_by_a_user(view)
        && attempt.our_ending.is_none()
        && !has_rung(attempt, view)
        && !was_silent(attempt, view)
}

/// The alarm acts within seconds, and the cloud dates the end to the second. After another end, an
/// alarm on silence rings too, but at least five minutes later. If an alarm's action failed, it
/// stays on until a person ends the machine.
const ALARM_TO_END: Duration = Duration::from_secs(2 * 60);

/// Whether the cloud's alarm ended it. Without a date of the end, the alarm must be on, with no
/// heartbeat since.
fn has_rung(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    match (attempt.watched.ended.alarm, view.ended) {
        (AlarmSeen::RangAt(rang), Some(ended)) => {
            elapsed(ended, rang).max(elapsed(rang, ended)) <= ALARM_TO_END
        }
        (AlarmSeen::RangAt(rang), None) => {
            attempt.last_heard.is_none_or(|heard| elapsed(rang, heard) <= LAST_BEATS)
        }
        _ => false,
    }
}

/// Whether the job file's own idle alarm (`cpu<=0.3 for 5m`) ended it, while its agent was still
/// heard. Then nothing is lost, and another machine would idle too. If the machine had gone silent,
/// the alarm rang because of the silence, and the job continues on another one.
pub(crate) fn idled_by_alarm(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    let rule = attempt.plan.launch.as_ref().and_then(|launch| launch.alarm);
    let ended = view.ended.or(match attempt.watched.ended.alarm {
        AlarmSeen::RangAt(rang) => Some(rang),
        _ => None,
    });
    let heard = attempt
        .last_heard
        .zip(ended)
        .is_some_and(|(heard, ended)| elapsed(heard, ended) <= LAST_BEATS);
    let rang = may_be_by_an_alarm(view) && attempt.our_ending.is_none() && has_rung(attempt, view);
    matches!(rule, Some(AlarmRule::Cpu { .. })) && heard && rang
}

/// The reason in the last heartbeat, if the outcome cannot be read. Only a heartbeat after the
/// outcome counts.
pub(crate) fn told_at_the_end<'a>(attempt: &AttemptView<'a>) -> Option<(EndedBecause, &'a str)> {
    let after = |status: &&Status| matches!(status.phase, AttemptPhase::Held | AttemptPhase::Ended);
    let status = attempt.status.filter(|_| attempt.watched.damaged.outcome).filter(after)?;
    let reason = status.reason.as_ref()?;
    Some((EndedBecause::from_word(&reason.verdict)?, &reason.text))
}

/// Whether the machine was silent for so long that we or an alarm ended it, although no record says
/// so.
fn was_silent(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    let Some(ended) = view.ended else { return false };
    let heard = attempt.last_heard.or_else(|| attempt.lease.map(|lease| lease.taken));
    match heard {
        Some(heard) => elapsed(heard, ended) >= silence_allowed(attempt),
        None => elapsed(view.launched, ended) >= attempt.plan.boot.duration(),
    }
}

/// The agent publishes a metric once a minute, so the alarm may have started counting a minute
/// before the newest heartbeat.
const PUBLISHED_EACH: Duration = Duration::from_secs(60);

/// The smaller of lease and alarm, unless the alarm is known to have stayed quiet.
fn silence_allowed(attempt: &AttemptView<'_>) -> Duration {
    let lease = attempt.plan.lease.duration();
    match attempt.plan.launch.as_ref().and_then(|launch| launch.alarm?.silence(attempt.plan.lease))
    {
        Some(minutes) if attempt.watched.ended.alarm == AlarmSeen::Unknown => {
            lease.min(Duration::from_secs(u64::from(minutes) * 60).saturating_sub(PUBLISHED_EACH))
        }
        _ => lease,
    }
}
