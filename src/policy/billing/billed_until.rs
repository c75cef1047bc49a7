//! Until when a machine has billed, where the cloud does not say it: an estimate that is not below what can be true, unless a
//! power-off that nobody saw has hung.
//!
//! ```text
//!   never heard of ────────────────> the first word's time, the lease, or the last that one of ours saw of it; and a sweep
//!   shown, its end without a date ─> the first dark look, or its outcome and a power-off: EC2 dates no end that came from within
//!   shown no more ─┬─ had ended ───> its outcome, and a power-off
//!                  │                 or, if that was later, the record of one of ours that it ends it, and a sweep
//!                  └─ died ────────> an hour before it was missed; its hard cap and the bound on every death
//! ```
//! What must never live here: why it ended (`settlement`), or what its time costs (`billing`).

use std::time::Duration;

use jiff::Timestamp;

use super::settlement::taken_by_cloud;
use crate::instance::{InstanceView, NoticeKind, Status};
use crate::job::AttemptPhase;
use crate::market::{Cloud, elapsed};
use crate::policy::lifecycle::reconcile::{AttemptFacts, Facts, belongs_elsewhere, extended_kill_at};
use crate::policy::purchase::hard_end::STOP_GRACE;

/// After the time that its agent had for its first word, a machine of which nothing was ever heard is ended by its deadline
/// unit at once, or by the next visit of a sweeper: its five minutes, and two for the call.
const SWEPT_WITHIN: Duration = Duration::from_secs(7 * 60);

/// The cloud shows a machine for about an hour after its end. By a plan that is younger it would still be shown.
pub(crate) const SHOWN_AFTER_END: Duration = Duration::from_secs(50 * 60);

/// The latest that a machine can have run to of which no look of the cloud and no heartbeat tells: the switches that need no
/// agent have ended it.
pub(crate) fn unseen_until(facts: &Facts<'_>, attempt: &AttemptFacts) -> Timestamp {
    let (plan, watched) = (&attempt.plan, &attempt.watched);
    let now = watched.unshown.map_or(facts.now, |unshown| unshown.now);
    // Where its launch was answered, from that: a cloud that was throttled may have answered long after the plan (seed 32009370 of 24 h).
    let asked = watched.asked_for.filter(|_| watched.launched.is_some());
    let asked = asked.and_then(|ago| facts.now.saturating_sub(ago).ok()).map_or(plan.created, |asked| asked.max(plan.created));
    // The cloud's own word, where it was shown: another may have launched it long after the plan (seed 37025714 of 24 h).
    let launched = watched.launched_at.unwrap_or(asked);
    let (from, patience) = attempt.lease.as_ref().map_or((launched, plan.boot), |lease| (lease.taken, plan.lease));
    let due = from.saturating_add(patience.duration()).unwrap_or(facts.now);
    // Whoever records that it ends it has just seen it run, and so has whoever was shown it lit: until then no switch had ended it (seeds
    // 37002198, 37014793 and 37029911 of 24 h: a kernel that never came up, and a sweeper that was throttled).
    let lit = watched.lit_for.and_then(|ago| now.saturating_sub(ago).ok());
    let seen = watched.unshown.and_then(|unshown| unshown.ending).into_iter().chain(lit);
    let swept = seen.fold(due, Timestamp::max).saturating_add(SWEPT_WITHIN).unwrap_or(facts.now);
    if plan.created > facts.now { swept } else { swept.min(facts.now) }
}

/// When billing ended, where the cloud does not say so; and whether that may be too late. Certain is the last heartbeat, and
/// what was seen of the machine after it, measured from the heartbeat as the store dates it, so that neither the clock of this
/// workstation nor the machine's own can be wrong by more than that.
pub(crate) fn billing_ended(facts: &Facts<'_>, attempt: &AttemptFacts, view: Option<&InstanceView>) -> Option<(Timestamp, bool)> {
    let watched = &attempt.watched;
    let now = watched.unshown.map_or(facts.now, |unshown| unshown.now);
    let seen_dark = now.saturating_sub(watched.dark_for.unwrap_or_default()).unwrap_or(now);
    let Some(status) = &attempt.status else { return view.map(|view| (unheard_until(attempt, view, seen_dark), true)) };
    let notice = status.notice.as_ref().filter(|notice| notice.kind == NoticeKind::Interruption && taken_by_cloud(view)).map(|notice| notice.at);
    let certain = later(watched.heard_at.unwrap_or(status.at), watched.billed_after_beat);
    let certain = notice.filter(|at| *at <= seen_dark).map_or(certain, |at| at.max(certain));
    if view.is_none() {
        let to = unshown_until(facts, attempt, status, certain).min(if watched.dark_for.is_some() { seen_dark.max(certain) } else { Timestamp::MAX });
        return Some((to, to > certain));
    }
    let latest = dark_by(facts, attempt, status, notice.map(|_| certain), certain, now);
    // By a clock here that is behind it was dark before its last sign (seeds 79 and 148 of six hours).
    let to = if seen_dark < certain { latest.min(later(certain, STOP_GRACE)) } else { seen_dark.min(latest) };
    Some((to, to > certain))
}

/// The same of a machine of which nothing was ever heard. By a clock here that is behind it was dark before its launch (seed 60000335 of
/// 24 h): then its first boot has had all of its time.
fn unheard_until(attempt: &AttemptFacts, view: &InstanceView, seen_dark: Timestamp) -> Timestamp {
    let boot = later(view.launched, attempt.plan.boot.duration() + SWEPT_WITHIN);
    if seen_dark < view.launched { boot } else { seen_dark }
}

/// When a machine that the cloud shows dark, and does not say since when, was dark at the latest, whoever looked. One that has told its
/// outcome, or that the cloud took with a notice (`taken`), has two minutes from its last sign; one that has told nothing may have been cut off
/// from the store alone, and runs to its cap (seed 60000378 of 24 h: offline for half an hour, it ended its work and powered off).
fn dark_by(facts: &Facts<'_>, attempt: &AttemptFacts, status: &Status, taken: Option<Timestamp>, certain: Timestamp, now: Timestamp) -> Timestamp {
    let (plan, watched) = (&attempt.plan, &attempt.watched);
    let lit = watched.lit_for.and_then(|ago| now.saturating_sub(ago).ok());
    // By the store's date; else as long after its last word as by the machine's own clock (seed 15 of six hours: an agent that died again
    // and again said nothing for minutes).
    let by_its_clock = |ended| later(watched.heard_at.unwrap_or(status.at), elapsed(status.at, ended));
    let told = watched.unshown.and_then(|unshown| unshown.outcome).or_else(|| Some(by_its_clock(attempt.outcome.as_ref()?.ended)));
    let told = told.filter(|_| status.phase != AttemptPhase::Held).or(taken);
    let cap = plan.kill_at.max(extended_kill_at(facts, plan));
    match (told, cap) {
        (Some(told), _) => later(told.max(certain).max(lit.unwrap_or(told)), STOP_GRACE),
        (None, Some(cap)) => later(cap.max(certain), CAP_HELD_WITHIN),
        (None, None) => Timestamp::MAX,
    }
}

fn later(at: Timestamp, time: Duration) -> Timestamp {
    at.saturating_add(time).unwrap_or(at)
}

/// The hard cap and this: lease, sweep and two minutes are the longest that any death of laptop, agent and kernel together lets
/// a machine run on (docs/promises.md). Less is too early where a sweeper was throttled; without it a laptop that was closed for
/// a week would say a week.
const CAP_HELD_WITHIN: Duration = Duration::from_secs(37 * 60);

/// The latest that a machine can have run to which was heard of, and which the cloud does not show any more. After its outcome
/// it has powered itself off, as far as anybody can say, unless one of ours saw it later and was about to end it. One whose agent
/// died, or that was kept for a look, may have lived until so long before the first look without it that the cloud would still
/// have shown its end.
fn unshown_until(facts: &Facts<'_>, attempt: &AttemptFacts, status: &Status, certain: Timestamp) -> Timestamp {
    let (plan, watched) = (&attempt.plan, &attempt.watched);
    let earlier = |at: Timestamp, time: Duration| at.saturating_sub(time).unwrap_or(at);
    let now = watched.unshown.map_or(facts.now, |unshown| unshown.now);
    // Who never saw it may have missed it before the cloud showed it.
    let missed_for = if watched.launched_at.is_some() { watched.missing_for } else { Duration::ZERO };
    let elsewhere = belongs_elsewhere(plan, facts.owner, facts.here).is_some();
    let gone = match plan.offer.cloud {
        // Nobody here has looked for it.
        _ if elsewhere => now,
        Cloud::Local => earlier(now, missed_for),
        Cloud::Aws => earlier(now, missed_for + SHOWN_AFTER_END),
    };
    // What was added to a limit is on the machine's tag alone; its plan stays as it was written.
    let cap = plan.kill_at.max(extended_kill_at(facts, plan));
    // Who was heard beyond its cap was not held by it until then (seed 32028469 of 24 h).
    let capped = cap.map_or(gone, |kill_at| gone.min(later(kill_at.max(certain), CAP_HELD_WITHIN)));
    let is_ended = (attempt.outcome.is_some() || watched.damaged.outcome) && status.phase != AttemptPhase::Held;
    let powered_off = (is_ended || plan.offer.cloud == Cloud::Local).then(|| {
        let outcome = watched.unshown.and_then(|unshown| unshown.outcome);
        // A kernel that hangs in its power-off is swept once its lease has lapsed. To reckon with that would add half an hour to
        // every job that ends while its laptop is closed, for what hardly ever happens.
        later(outcome.map_or(certain, |outcome| outcome.max(certain)), STOP_GRACE)
    });
    // Who ends a machine has just seen it run. What is recorded before the cloud is asked does not say that it was, nor that it
    // obeyed, so of one that left no word it says nothing.
    let asked = watched.unshown.and_then(|unshown| unshown.ending).filter(|asked| *asked >= certain);
    let to = powered_off.map(|off| asked.map_or(off, |asked| off.max(later(asked, SWEPT_WITHIN))));
    to.map_or(capped, |to| to.min(capped)).max(certain)
}
