//! When billing ended, if the cloud does not report it. The estimate is an upper bound, unless an
//! unobserved power-off hung.
//!
//! ```text
//!   never heard ──────────────────────> time for the first heartbeat, the lease, or our last look
//!                                       at it; plus a sweep
//!   shown, its end without a date ────> first look without billing, or its outcome plus a
//!                                       power-off: EC2 dates only ends requested from outside
//!   no longer shown ─┬─ had ended ────> its outcome plus a power-off
//!                    │                  or, if later, our record of ending it, plus a sweep
//!                    └─ agent failed ─> an hour before it was missed, at most its hard cap plus
//!                                       the bound on every failure
//! ```
//! `settlement` finds why it ended, `billed_cost` its cost.

use std::time::Duration;

use jiff::Timestamp;

use super::end_evidence::taken_by_cloud;
use crate::instance::{InstanceView, NoticeKind, Status};
use crate::job::AttemptPhase;
use crate::market::{CloudKind, elapsed};
use crate::policy::lifecycle::attempt_view::AttemptView;
use crate::policy::purchase::hard_end::STOP_GRACE;

/// Time after the first-heartbeat deadline until a silent machine is ended. Its deadline unit acts
/// at once; a sweeper needs five minutes until its visit, and two for the call.
const SWEPT_WITHIN: Duration = Duration::from_secs(7 * 60);

/// EC2 shows a machine for about an hour after its end. If the plan is younger, the machine would
/// be shown.
pub(crate) const SHOWN_AFTER_END: Duration = Duration::from_secs(50 * 60);

/// The latest possible end of a machine without any look or heartbeat: the switches that need no
/// agent have ended it.
pub(crate) fn unseen_until(attempt: &AttemptView<'_>) -> Timestamp {
    let (plan, watched) = (attempt.plan, attempt.watched);
    let now = attempt.now;
    // Counted from the launch's answer, if there was one: a throttled cloud may answer long after
    // the plan.
    let asked = watched.asked_for.filter(|_| watched.launched.is_some());
    let asked = asked
        .and_then(|ago| attempt.facts.now.saturating_sub(ago).ok())
        .map_or(plan.created, |asked| asked.max(plan.created));
    // The cloud's launch date, if shown: another controller may have launched it long after the
    // plan.
    let launched = watched.launched_at.unwrap_or(asked);
    let (from, patience) =
        attempt.lease.map_or((launched, plan.boot), |lease| (lease.taken, plan.lease));
    let due = from.saturating_add(patience.duration()).unwrap_or(attempt.facts.now);
    // A controller that records an ending has just seen the machine run, as has one that saw it
    // billing. Until then no switch had ended it: its kernel may never have booted, while the
    // sweeper was throttled.
    let lit = watched.lit_for.and_then(|ago| now.saturating_sub(ago).ok());
    let seen = watched.unshown.and_then(|unshown| unshown.ending).into_iter().chain(lit);
    let swept =
        seen.fold(due, Timestamp::max).saturating_add(SWEPT_WITHIN).unwrap_or(attempt.facts.now);
    if plan.created > attempt.facts.now { swept } else { swept.min(attempt.facts.now) }
}

/// When billing ended if the cloud does not report it, and whether that is an estimate. The last
/// heartbeat and the looks after it are certain. They are dated by the store's clock, because the
/// clocks of this workstation and of the machine may be wrong.
pub(crate) fn billing_ended(
    attempt: &AttemptView<'_>,
    view: Option<&InstanceView>,
) -> Option<(Timestamp, bool)> {
    let watched = attempt.watched;
    let now = attempt.now;
    let seen_dark = now.saturating_sub(watched.dark_for.unwrap_or_default()).unwrap_or(now);
    let Some(status) = attempt.status else {
        return view.map(|view| (unheard_until(attempt, view, seen_dark), true));
    };
    let notice = status
        .notice
        .as_ref()
        .filter(|notice| notice.kind == NoticeKind::Interruption && taken_by_cloud(view))
        .map(|notice| notice.at);
    let certain = later(watched.heard_at.unwrap_or(status.at), watched.billed_after_beat);
    let certain = notice.filter(|at| *at <= seen_dark).map_or(certain, |at| at.max(certain));
    if view.is_none() {
        let to = unshown_until(attempt, status, certain).min(if watched.dark_for.is_some() {
            seen_dark.max(certain)
        } else {
            Timestamp::MAX
        });
        return Some((to, to > certain));
    }
    let latest = dark_by(attempt, status, notice.map(|_| certain), certain, now);
    // Our clock is behind, so the machine seemed to stop before its last heartbeat.
    let to = if seen_dark < certain {
        latest.min(later(certain, STOP_GRACE))
    } else {
        seen_dark.min(latest)
    };
    Some((to, to > certain))
}

/// The same for a machine without any heartbeat. If our clock is behind, it seems to stop before
/// its launch; then it gets its whole boot time.
fn unheard_until(
    attempt: &AttemptView<'_>,
    view: &InstanceView,
    seen_dark: Timestamp,
) -> Timestamp {
    let boot = later(view.launched, attempt.plan.boot.duration() + SWEPT_WITHIN);
    if seen_dark < view.launched { boot } else { seen_dark }
}

/// The latest end of a machine that the cloud shows as stopped, without a date. With an outcome, or
/// after an interruption with a notice (`taken`), it had two minutes from its last sign. Without
/// either it may have lost only its connection, and can have run to its hard cap.
fn dark_by(
    attempt: &AttemptView<'_>,
    status: &Status,
    taken: Option<Timestamp>,
    certain: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let (plan, watched) = (attempt.plan, attempt.watched);
    let lit = watched.lit_for.and_then(|ago| now.saturating_sub(ago).ok());
    // By the store's date; otherwise by the machine's own clock, counted from its last heartbeat.
    // An agent that restarts repeatedly may send nothing for minutes.
    let by_its_clock =
        |ended| later(watched.heard_at.unwrap_or(status.at), elapsed(status.at, ended));
    let told = watched
        .unshown
        .and_then(|unshown| unshown.outcome)
        .or_else(|| Some(by_its_clock(attempt.outcome?.ended)));
    let told = told.filter(|_| status.phase != AttemptPhase::Held).or(taken);
    let cap = plan.kill_at.max(attempt.kill_at);
    match (told, cap) {
        (Some(told), _) => later(told.max(certain).max(lit.unwrap_or(told)), STOP_GRACE),
        (None, Some(cap)) => later(cap.max(certain), CAP_HELD_WITHIN),
        (None, None) => Timestamp::MAX,
    }
}

fn later(at: Timestamp, time: Duration) -> Timestamp {
    at.saturating_add(time).unwrap_or(at)
}

/// Added to the hard cap. Lease, sweep and two minutes are the longest that a failure of laptop,
/// agent and kernel together lets a machine run (docs/promises.md). Less is too early if a sweeper
/// was throttled. Without this limit, a laptop closed for a week would report a week.
const CAP_HELD_WITHIN: Duration = Duration::from_secs(37 * 60);

/// The latest end of a machine that was heard and is no longer shown. After its outcome it powered
/// itself off, unless a controller saw it later and was about to end it. A machine whose agent
/// failed, or that was held, may have run longer. It must have ended long enough before the first
/// look without it that the cloud no longer showed its end.
fn unshown_until(attempt: &AttemptView<'_>, status: &Status, certain: Timestamp) -> Timestamp {
    let (plan, watched) = (attempt.plan, attempt.watched);
    let earlier = |at: Timestamp, time: Duration| at.saturating_sub(time).unwrap_or(at);
    let now = attempt.now;
    // If it was never seen, the first looks may have come before the cloud showed it.
    let missed_for =
        if watched.launched_at.is_some() { watched.missing_for } else { Duration::ZERO };
    let elsewhere = attempt.elsewhere.is_some();
    let gone = match plan.offer.cloud {
        // This controller cannot see its machine.
        _ if elsewhere => now,
        CloudKind::Local => earlier(now, missed_for),
        CloudKind::Aws => earlier(now, missed_for + SHOWN_AFTER_END),
    };
    // An extension changes only the machine's tag; the plan keeps its first cap.
    let cap = plan.kill_at.max(attempt.kill_at);
    // A machine that was heard after its cap did not obey it until then.
    let capped = cap.map_or(gone, |kill_at| gone.min(later(kill_at.max(certain), CAP_HELD_WITHIN)));
    let is_ended = (attempt.outcome.is_some() || watched.damaged.outcome)
        && status.phase != AttemptPhase::Held;
    let powered_off = (is_ended || plan.offer.cloud == CloudKind::Local).then(|| {
        let outcome = watched.unshown.and_then(|unshown| unshown.outcome);
        // A kernel that hangs in its power-off is swept after its lease. Counting that would add
        // half an hour to every job that ends while its laptop is closed, for a very rare case.
        later(outcome.map_or(certain, |outcome| outcome.max(certain)), STOP_GRACE)
    });
    // A controller that ends a machine has just seen it run. The record comes before the call, so
    // it does not prove that the cloud obeyed. Without an outcome it is ignored.
    let asked =
        watched.unshown.and_then(|unshown| unshown.ending).filter(|asked| *asked >= certain);
    let to = powered_off.map(|off| asked.map_or(off, |asked| off.max(later(asked, SWEPT_WITHIN))));
    to.map_or(capped, |to| to.min(capped)).max(certain)
}
