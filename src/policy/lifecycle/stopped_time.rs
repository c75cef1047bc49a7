//! A machine that stood still before its end: since when, and whether it may have with nobody looking.
//!
//! ```text
//!   runs ──stopped──> stands, and bills no more ──terminated──> EC2 shows the second date alone
//!                       └ whoever saw it so keeps the first; else the bill until the second is an estimate
//! ```
//! What must never live here: why it ended, or what its time costs ([`crate::policy::billing::settlement`]).

use std::time::Duration;

use jiff::Timestamp;

use super::reconcile::AttemptFacts;
use crate::instance::{InstanceState, InstanceView};
use crate::job::Shutdown;
use crate::market::{Market, elapsed};
use crate::policy::billing::settlement::{LAST_BEATS, is_by_a_user, last_heard, our_ending};

/// When a machine billed no more: the earlier of what the cloud says now and of what it said while the machine stood still.
pub(crate) fn ended(attempt: &AttemptFacts, view: &InstanceView) -> Option<Timestamp> {
    view.ended.into_iter().chain(stood(attempt, view.launched)).min()
}

/// Since when the machine of this launch stood still, where somebody saw it so: its end has another date. One that was heard long
/// after was started again, by a cloud that does not say so.
pub(crate) fn stood(attempt: &AttemptFacts, launched: Timestamp) -> Option<Timestamp> {
    let recorded = attempt.watched.ended.ending.as_ref().and_then(|ending| ending.stood);
    let heard_later = |at: Timestamp| last_heard(attempt).is_some_and(|heard| elapsed(at, heard) > LAST_BEATS);
    recorded.into_iter().chain(attempt.watched.stood).filter(|at| *at >= launched && !heard_later(*at)).min()
}

/// Whether its machine is stopped by its own power-off, and not terminated.
pub(crate) fn plan_stops(attempt: &AttemptFacts) -> bool {
    attempt.plan.launch.as_ref().is_some_and(|launch| launch.shutdown == Shutdown::Stop)
}

/// A power-off takes two minutes, and EC2 shows it in a few more. A longer time between the last sign of a machine and its end is a
/// stand, or a machine that was left lit.
const OUT_AFTER_LAST_SIGN: Duration = Duration::from_secs(5 * 60);

/// Whether a machine may have stood with nobody looking until somebody terminated it: where its power-off stops it, by that;
/// else because a person or an alarm has stopped it (seed 34005916 of 24 h). Of such a one the cloud shows the second date alone, and has
/// billed until the first. A spot machine never stands. `view`: with the date that the cloud shows now.
pub(crate) fn may_have_stood_unseen(attempt: &AttemptFacts, view: &InstanceView) -> bool {
    let by_somebody = view.state == InstanceState::Terminated && is_by_a_user(view);
    let Some(ended) = view.ended.filter(|_| by_somebody && attempt.plan.offer.market == Market::OnDemand) else { return false };
    // Its agent or its deadline unit may have stopped it in the seconds before that (seeds 37032364 and 38005218 of 24 h). Whoever saw it
    // stand has another date than that of its end.
    if plan_stops(attempt) {
        return stood(attempt, view.launched).is_none_or(|stood| stood >= ended);
    }
    // What was seen to go out within these minutes did that, and stood before it or not.
    if stood(attempt, view.launched).is_some_and(|stood| elapsed(stood, ended) > OUT_AFTER_LAST_SIGN) {
        return false;
    }
    let lately = |at: Timestamp| at <= ended && elapsed(at, ended) <= OUT_AFTER_LAST_SIGN;
    if attempt.outcome.is_some() {
        return false;
    }
    // Who has just seen it run records that it ends it; a clock that is ahead says nothing.
    let heard = attempt.watched.heard_at.or(attempt.status.as_ref().map(|status| status.at));
    let ending = our_ending(attempt).map(|ending| ending.at);
    let seen = heard.into_iter().chain(ending).chain([view.launched]).any(lately);
    !seen && attempt.watched.unlooked.is_none_or(|unlooked| unlooked > OUT_AFTER_LAST_SIGN)
}
