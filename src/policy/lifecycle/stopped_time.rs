//! A machine that was stopped before its end: since when, and whether a stop may have gone
//! unobserved.
//!
//! ```text
//!   runs ─stopped─> no longer bills ──terminated──> EC2 shows only the second date
//!                     └ a controller that saw it keeps the first; otherwise the bill until the
//!                       second is an estimate
//! ```
//! [`crate::policy::billing::settlement`] finds why it ended, and its cost.

use std::time::Duration;

use jiff::Timestamp;

use super::attempt_facts::LAST_BEATS;
use super::attempt_view::AttemptView;
use crate::instance::{InstanceState, InstanceView};
use crate::job::Shutdown;
use crate::market::{Market, elapsed};
use crate::policy::billing::end_evidence::is_by_a_user;

/// When a machine stopped billing: the earlier of the cloud's date now and its date during the
/// stop.
pub(crate) fn ended(attempt: &AttemptView<'_>, view: &InstanceView) -> Option<Timestamp> {
    view.ended.into_iter().chain(stood(attempt, view.launched)).min()
}

/// Since when this launch's machine was stopped, if a controller saw that; its end has another
/// date. If it was heard much later, it was started again by a cloud that does not report starts.
pub(crate) fn stood(attempt: &AttemptView<'_>, launched: Timestamp) -> Option<Timestamp> {
    let recorded = attempt.watched.ended.ending.as_ref().and_then(|ending| ending.stood);
    let heard_later =
        |at: Timestamp| attempt.last_heard.is_some_and(|heard| elapsed(at, heard) > LAST_BEATS);
    recorded
        .into_iter()
        .chain(attempt.watched.stood)
        .filter(|at| *at >= launched && !heard_later(*at))
        .min()
}

/// Whether its power-off stops the machine instead of terminating it.
pub(crate) fn plan_stops(attempt: &AttemptView<'_>) -> bool {
    attempt.plan.launch.as_ref().is_some_and(|launch| launch.shutdown == Shutdown::Stop)
}

/// A power-off takes two minutes, and EC2 shows it a few minutes later. A longer time between the
/// last sign and the end means that the machine was stopped, or was left running.
const OUT_AFTER_LAST_SIGN: Duration = Duration::from_secs(5 * 60);

/// Whether a machine may have been stopped unobserved before a user terminated it. Its own
/// power-off may have stopped it, or else a person or an alarm. The cloud shows only the second
/// date but billed until the first. A spot machine is never stopped and kept. `view` has the
/// cloud's current date.
pub(crate) fn may_have_stood_unseen(attempt: &AttemptView<'_>, view: &InstanceView) -> bool {
    let by_somebody = view.state == InstanceState::Terminated && is_by_a_user(view);
    let Some(ended) =
        view.ended.filter(|_| by_somebody && attempt.plan.offer.market == Market::OnDemand)
    else {
        return false;
    };
    // Its agent or its deadline unit may have stopped it seconds before. If the stop was observed,
    // its date differs from the end's.
    if plan_stops(attempt) {
        return stood(attempt, view.launched).is_none_or(|stood| stood >= ended);
    }
    // Otherwise the machine stopped within these minutes, so the error is small.
    if stood(attempt, view.launched)
        .is_some_and(|stood| elapsed(stood, ended) > OUT_AFTER_LAST_SIGN)
    {
        return false;
    }
    let lately = |at: Timestamp| at <= ended && elapsed(at, ended) <= OUT_AFTER_LAST_SIGN;
    if attempt.outcome.is_some() {
        return false;
    }
    // A controller records an ending just after it saw the machine run. A clock that is ahead is
    // ignored.
    let heard = attempt.watched.heard_at.or(attempt.status.map(|status| status.at));
    let ending = attempt.our_ending.map(|ending| ending.at);
    let seen = heard.into_iter().chain(ending).chain([view.launched]).any(lately);
    !seen && attempt.watched.unlooked.is_none_or(|unlooked| unlooked > OUT_AFTER_LAST_SIGN)
}
