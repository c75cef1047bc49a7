//! Ends a machine whose agent ignores a stop although it sends heartbeats.
//!
//! ```text
//!   stop known here and steady heartbeats for 15 minutes ─ still working ─> its machine is ended
//! ```
//! An agent reads requests every few seconds, and its phase then shows the end. If it keeps
//! working, it cannot read them (its role may write heartbeats but not list requests) or has
//! failed. The user who typed `lamp stop` pays meanwhile. `reconcile` handles silent machines and
//! cancels.

use std::time::Duration;

use super::attempt_view::AttemptView;
use crate::job::AttemptPhase;

/// Time with a known stop and steady heartbeats. A store that loses half the requests delays an
/// agent by minutes. With less, a last save may be cut off. With more, a stopped job bills on.
const HEEDED_WITHIN: Duration = Duration::from_secs(15 * 60);

pub(crate) fn unheeded(attempt: &AttemptView<'_>) -> Option<String> {
    let wish = attempt.wishes.end.as_ref().filter(|wish| !wish.cancel)?;
    let watched = attempt.watched;
    let is_over = attempt.outcome.is_some() || watched.damaged.outcome;
    let phase = attempt.status?.phase;
    let at_work = !is_over
        && matches!(phase, AttemptPhase::Preparing | AttemptPhase::Setup | AttemptPhase::Running);
    // An agent that was offline had no time to read the request.
    let had = watched.wished_for.min(watched.beats_for);
    let minutes = had.as_secs() / 60;
    (at_work && had >= HEEDED_WITHIN)
        .then(|| format!("asked to stop by {} {minutes} min ago, and its agent, which lives, has not begun to end its work", wish.by))
}
