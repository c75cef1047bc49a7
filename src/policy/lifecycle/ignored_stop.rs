//! A stop that an agent does not heed, though it lives.
//!
//! ```text
//!   asked to stop ── known here, and beats without a pause, for a quarter of an hour ── still at its work ──> its machine is ended
//! ```
//! An agent reads what is asked of it every few seconds, whatever it is at, and from then on its phase says that it ends. One that beats on
//! and stays at its work cannot read it (a role that may write heartbeats and list no requests), or is broken; and whoever typed `lamp stop`
//! pays for its machine. What must never live here: a machine that says nothing, or a cancel (`reconcile`).

use std::time::Duration;

use super::reconcile::{AttemptFacts, Facts};
use super::requests::Wishes;
use crate::job::AttemptPhase;

/// From a wish that is known, and a heartbeat that comes, to its end. A store that loses half of what it is asked delays an agent by
/// minutes. Sooner, and a last save may be cut off that was about to begin; later, and a machine bills that somebody has stopped.
const HEEDED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Why its machine is ended.
pub(crate) fn unheeded(facts: &Facts<'_>, attempt: &AttemptFacts) -> Option<String> {
    let wish = Wishes::of(facts.requests).end.filter(|wish| !wish.cancel)?;
    let watched = &attempt.watched;
    let is_over = attempt.outcome.is_some() || watched.damaged.outcome;
    let phase = attempt.status.as_ref()?.phase;
    let at_work = !is_over && matches!(phase, AttemptPhase::Preparing | AttemptPhase::Setup | AttemptPhase::Running);
    // Who was offline, or was not listened to, has had no time to hear of it.
    let had = watched.wished_for.min(watched.beats_for);
    let minutes = had.as_secs() / 60;
    (at_work && had >= HEEDED_WITHIN)
        .then(|| format!("asked to stop by {} {minutes} min ago, and its agent, which lives, has not begun to end its work", wish.by))
}
