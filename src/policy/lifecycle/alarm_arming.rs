//! Whether the alarm of a machine is to be armed now, or taken off.
//!
//! ```text
//!   an alarm is asked for, the machine runs ──> arm it, once
//!   its agent beats, and says that its measurements arrive nowhere ──> take it off: it would take their silence for the machine's
//! ```
//! An alarm knows no cause. Where metrics alone are lost, whoever drives the job knows better, and the machine has its lease
//! meanwhile. What must never live here: the rule that an alarm goes by (`job::AlarmRule`), or a call.

use std::time::Duration;

use super::reconcile::{Act, AttemptFacts, GuardLeft};
use crate::instance::{InstanceState, InstanceView};
use crate::job::AlarmRule;

/// Of a heartbeat that is older nobody knows whether the machine still hangs at its metrics alone. Four may be lost; longer, and the
/// last word of a machine that hangs takes its alarm off.
const OF_NOW: Duration = Duration::from_secs(90);

/// What is to be done of it now. An attempt that has ended needs none.
pub(crate) fn guard(attempt: &AttemptFacts, view: &InstanceView) -> Option<Act> {
    let rule = attempt.plan.launch.as_ref()?.alarm?;
    let watched = &attempt.watched;
    if view.state != InstanceState::Running || attempt.outcome.is_some() || watched.guard_waits {
        return None;
    }
    let unseen = matches!(rule, AlarmRule::Heartbeat { .. }) && attempt.status.as_ref().is_some_and(|status| status.unmeasured);
    let armed = match unseen {
        false => (watched.guard != GuardLeft::Armed).then_some(true),
        true => (watched.guard != GuardLeft::Off && watched.beats_on && watched.silent_for <= OF_NOW).then_some(false),
    }?;
    Some(Act::Guard { attempt: attempt.plan.attempt, machine: view.machine(), armed })
}
