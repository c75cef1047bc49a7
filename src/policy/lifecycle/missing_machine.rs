//! The cloud shows no machine for a plan: did one exist, is it gone, or is it launched now?
//!
//! ```text
//!   it was heard, or is unwanted ── long enough not shown ─> settled
//!   the plan is too old, a new one would give more time ───> unwanted: planned anew
//!   refused ─┬─ no controller can have launched it ────────> settled
//!            └─ one may have ── long enough not shown ─────> asked once more; refused again:
//!                                                            settled
//!   otherwise ─────────────────────────────────────────────> launched, with the token of the plan
//! ```
//! A launched machine may be shown late. With the plan's token, a second launch returns the first
//! machine. `reconcile` handles machines that the cloud shows.

use std::time::Duration;

use jiff::Timestamp;

use super::act::{Act, wait};
use super::attempt_view::AttemptView;
use super::requests::CLOCKS_DIFFER;
use crate::market::{CloudKind, elapsed};
use crate::policy::billing::settlement::settle;

/// After its outcome an agent powers off within two minutes (the steps of `Power`). The third
/// minute is for clocks and listings. With more, the machine bills for nothing.
pub(crate) const OUTCOME_TO_POWER_OFF: Duration = Duration::from_secs(3 * 60);

/// Time for a cancelled workload to end by itself before its machine is ended: SIGTERM's grace and
/// the power-off steps.
pub(crate) const CANCEL_TO_POWER_OFF: Duration = Duration::from_secs(3 * 60);

/// EC2 keeps a client token for at least a day after the machine's end. An older plan is not
/// launched: its token might buy a second machine.
const TOKEN_LIVES: Duration = Duration::from_secs(20 * 3600);

/// Maximum age of a refusal for a decision: one look at the cloud and the records. With more,
/// another controller may have got capacity meanwhile. With less, a slow cloud is asked repeatedly.
const REFUSED_JUST_NOW: Duration = Duration::from_secs(10);

/// After this many refusals in a row the refusal stands. If each look takes longer than the limit
/// above, every refusal is too old.
const REFUSALS_MAX: u32 = 4;

/// The wait of a job whose machine may have been launched unseen; follows "waits for".
const CERTAINTY: &str = "certainty that no machine was launched";

/// How long a new machine may be invisible, and how long it must then be missing to be gone.
fn visibility(cloud: CloudKind) -> (Duration, Duration) {
    match cloud {
        // A folder exists or not. The ten seconds are for another controller between its plan and
        // its launch.
        CloudKind::Local => (Duration::from_secs(10), Duration::ZERO),
        CloudKind::Aws => (Duration::from_secs(5 * 60), Duration::from_secs(60)),
    }
}

/// Whether the records of an unseen machine show that it is over, as `reconcile` judges a visible
/// one. Its own controller acts first, if one is active. If the machine still runs, it ends as an
/// orphan.
fn is_over(attempt: &AttemptView<'_>) -> bool {
    let (now, watched) = (attempt.facts.now, attempt.watched);
    let long_ago = |at: Timestamp, time: Duration| elapsed(at, now) > time;
    let ended = attempt.outcome.is_some_and(|outcome| {
        watched.outcome_for > OUTCOME_TO_POWER_OFF || long_ago(outcome.ended, OUTCOME_TO_POWER_OFF)
    });
    // An agent that saves or obeys sends heartbeats meanwhile.
    let unwanted =
        attempt.wishes.end.as_ref().is_some_and(|wish| wish.is_older(now, CANCEL_TO_POWER_OFF));
    let patience = if unwanted { CANCEL_TO_POWER_OFF } else { attempt.plan.lease.duration() };
    (ended && !attempt.held) || watched.silent_for > patience
}

/// The actions if the cloud shows no machine for this plan.
pub(crate) fn missing(attempt: &AttemptView<'_>) -> Vec<Act> {
    let nothing = || vec![Act::Settle(Box::new(settle(attempt)))];
    if let Some(elsewhere) = &attempt.elsewhere {
        return if is_over(attempt) { nothing() } else { wait(elsewhere.clone()) };
    }
    let (visible_within, missing_at_least) = visibility(attempt.plan.offer.cloud);
    // The launching controller's clock was right; this workstation's may be a day ahead.
    let now = attempt.now;
    // If a clock a day ahead dated the plan, the store's date counts, and at least the time it was
    // watched.
    let created =
        attempt.watched.unshown.and_then(|unshown| unshown.planned).unwrap_or(attempt.plan.created);
    let age = elapsed(created, now).max(attempt.watched.missing_for);
    // Uses the steady clock if we asked for it: the launch may be much later than the plan, and a
    // wall clock can jump.
    let shown_within = attempt
        .watched
        .asked_for
        .unwrap_or(age)
        .min(since_first_word(attempt, now))
        .min(since_shown_launch(attempt, now));
    // A kept machine exists or is gone: a launch would not bring it back.
    let existed = attempt.heard
        || attempt.watched.launched.is_some()
        || attempt.watched.shown.is_some()
        || attempt.plan.starts.is_some();
    let wish = &attempt.wishes.end;
    // After a long sleep, do not buy a machine whose hard end has passed.
    let is_over = attempt.plan.kill_at.is_some_and(|kill_at| kill_at <= now);
    // The plan is never signed again, so the downloads it signed may have expired.
    let is_late = age > TOKEN_LIVES || is_over || attempt.came_too_late(now);
    let lain_for = attempt.lain_for;
    let unwanted = wish.is_some() || is_late || lain_for.is_some();
    // Another controller on this job root may have launched the plan just before the wish. This
    // holds for every answer to our own launches, every age of the plan, and every clock. Its look
    // may be two minutes old.
    let theirs_within =
        if unwanted && !existed { visible_within + 2 * missing_at_least } else { Duration::ZERO };
    let missing_for = attempt.watched.missing_for;
    let unwanted_for = match lain_for {
        _ if wish.is_some() => attempt.watched.wished_for,
        // Until then another controller may have launched it correctly.
        Some(lain_for) if !is_late => missing_for.min(lain_for.saturating_sub(CLOCKS_DIFFER)),
        _ => missing_for,
    };
    let left = [
        (visible_within, shown_within),
        (missing_at_least, missing_for),
        (theirs_within, unwanted_for),
    ];
    let gone =
        shown_within > visible_within && left.iter().all(|(whole, gone_by)| gone_by >= whole);
    let left = left
        .into_iter()
        .map(|(whole, gone_by)| whole.saturating_sub(gone_by))
        .max()
        .unwrap_or_default();
    let sure_at = attempt.facts.now.saturating_add(left);
    let making_sure =
        |why: String| vec![Act::Wait { until: sure_at.ok(), why: format!("{CERTAINTY}: {why}") }];
    if let Some((_, refusal)) = &attempt.watched.refused {
        let unclear = attempt.watched.unclear;
        // Another controller may get what was refused here, and the plan's token then returns that
        // machine. So only a fresh refusal proves that there is none.
        let is_old = attempt.watched.refused_for > REFUSED_JUST_NOW
            && attempt.watched.refusals < REFUSALS_MAX
            && !existed
            && !unwanted
            && !attempt.is_spent;
        return match gone {
            false if unclear => making_sure(format!(
                "a launch was refused ({refusal}), after one that may have come through"
            )),
            true if unclear && is_old => vec![Act::Launch { attempt: attempt.plan.attempt }],
            _ => nothing(),
        };
    }
    // The controller that made the plan launches it, or records why not. If both acted, a machine
    // could have no record. A wall clock may be hours ahead, so the observed time counts.
    let theirs = attempt.watched.unclear
        && attempt.watched.asked_for.is_none()
        && missing_for < missing_at_least;
    match (existed || unwanted, gone) {
        (true, true) => nothing(),
        (true, false) if !existed => making_sure(
            "the cloud shows none, and one that was asked for would be shown by then".into(),
        ),
        (true, false) => wait(
            "the cloud does not show the machine; it may have been launched all the same".into(),
        ),
        (false, _) if theirs => {
            wait("another controller made the plan, and may be about to launch it".into())
        }
        (false, _) => vec![Act::Launch { attempt: attempt.plan.attempt }],
    }
}

/// Time since the agent took its lease, if the cloud never showed the machine here. It was launched
/// shortly before that, however old the plan is. Another controller may have launched it after a
/// long throttling, and it is shown late. This uses the machine's clock, so a time ahead of ours is
/// ignored.
fn since_first_word(attempt: &AttemptView<'_>, now: Timestamp) -> Duration {
    let unseen = attempt.watched.launched_at.is_none();
    let taken = attempt
        .lease
        .map(|lease| lease.taken)
        .filter(|taken| unseen && elapsed(now, *taken) < CLOCKS_DIFFER);
    taken.map_or(Duration::MAX, |taken| elapsed(taken, now))
}

/// Time since the shown launch of a machine that another controller launched and that was never
/// heard. The plan may be much older, and a stale answer can hide a newer one.
fn since_shown_launch(attempt: &AttemptView<'_>, now: Timestamp) -> Duration {
    let ours = attempt.watched.asked_for.is_some() || attempt.heard;
    attempt
        .watched
        .launched_at
        .filter(|_| !ours)
        .map_or(Duration::MAX, |launched| elapsed(launched, now))
}

/// Whether it is certain that no controller launches it any more, or has launched it unseen.
pub(crate) fn has_lain_for_sure(lain_for: Duration) -> bool {
    let (visible_within, missing_at_least) = visibility(CloudKind::Aws);
    lain_for >= CLOCKS_DIFFER + visible_within + 2 * missing_at_least
}
