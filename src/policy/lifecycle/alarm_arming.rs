//! Whether to arm a machine's alarm now, or to remove it.
//!
//! ```text
//!   the plan has an alarm, the machine runs ──> arm it, once
//!   heartbeats arrive, but its metrics do not ──> remove it: it would mistake missing metrics for
//!                                                 a dead machine
//! ```
//! An alarm cannot tell causes apart. If only metrics are lost, the controller knows better, and
//! the lease still protects the machine. `job::AlarmRule` has the alarm's rule. This module makes
//! no calls.

use std::time::Duration;

use super::act::Act;
use super::attempt_view::AttemptView;
use super::observations::GuardLeft;
use crate::instance::{InstanceState, InstanceView};
use crate::job::AlarmRule;

/// With an older heartbeat, the machine may have hung since. Four heartbeats may be lost. With a
/// longer time, the last heartbeat of a hung machine would remove its alarm.
const OF_NOW: Duration = Duration::from_secs(90);

/// The change to the alarm, if any. An ended attempt needs none.
pub(crate) fn guard(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Act> {
    let rule = attempt.plan.launch.as_ref()?.alarm?;
    let watched = attempt.watched;
    if view.state != InstanceState::Running || attempt.outcome.is_some() || watched.guard_waits {
        return None;
    }
    let unseen = matches!(rule, AlarmRule::Heartbeat { .. })
        && attempt.status.is_some_and(|status| status.unmeasured);
    let armed = match unseen {
        false => (watched.guard != GuardLeft::Armed).then_some(true),
        true => {
            (watched.guard != GuardLeft::Off && watched.beats_on && watched.silent_for <= OF_NOW)
                .then_some(false)
        }
    }?;
    Some(Act::Guard { attempt: attempt.plan.attempt, machine: view.machine(), armed })
}
