//! The cloud shows no machine of a plan: was there one, is it gone, or is it launched now?
//!
//! ```text
//!   it was heard of, or is unwanted ── for long enough not shown ──> settled
//!   it was left lying, and a plan of now would give it more time ──> unwanted: planned anew
//!   refused ─┬─ nobody can have launched it ───────────────────────> settled
//!            └─ somebody may have ── long enough not shown ────────> asked once more; refused again: settled
//!   none of these ────────────────────────────────────────────────> launched, with the token of the plan
//! ```
//! A machine that may have been launched is shown late, and by its token a second launch is the first one. What must never live
//! here: what is done with a machine that the cloud does show (`reconcile`).

use std::time::Duration;

use jiff::Timestamp;

use super::reconcile::{Act, AttemptFacts, Facts, belongs_elsewhere, heard, is_over, wait, would_gain};
use super::requests::Wishes;
use crate::job::Plan;
use crate::market::{Cloud, elapsed};
use crate::policy::billing::settlement::{is_spent, settle};

/// EC2 keeps a client token for at least a day after the machine's end. A plan that was never launched for
/// almost as long is not launched any more: the same token might then buy a second machine.
const TOKEN_LIVES: Duration = Duration::from_secs(20 * 3600);

/// A plan that nobody has launched for so long that a plan of now would end its machine by this much later is not launched any more:
/// a hard end takes from the work what the plan lay for. A throttled cloud and a lost reply are over sooner, and who drops the
/// plan waits minutes for certainty; longer, and a short job loses more than that.
const LAIN_MAX: Duration = Duration::from_secs(15 * 60);

/// From the answer that refused a launch to the decision that rests on it: the look at the cloud and at the records between them.
/// Longer, and another controller was perhaps given meanwhile what was refused; shorter, and a slow cloud is asked over and over.
const REFUSED_JUST_NOW: Duration = Duration::from_secs(10);

/// So often it is refused in a row, and then that stands: where a look takes longer than the moment above, every refusal is old.
const REFUSALS_MAX: u32 = 4;

/// Two clocks that are kept in time are not as far apart.
pub(crate) const CLOCKS_DIFFER: Duration = Duration::from_secs(5 * 60);

/// What a job waits for whose machine may have been launched, though nobody has seen it; as it follows on "waits for".
const CERTAINTY: &str = "certainty that no machine was launched";

/// How long a machine may be invisible after its launch, and how long it must then be missing to be gone.
fn visibility(cloud: Cloud) -> (Duration, Duration) {
    match cloud {
        // A folder is there or not. The moment is for another controller between its plan and its launch.
        Cloud::Local => (Duration::from_secs(10), Duration::ZERO),
        Cloud::Aws => (Duration::from_secs(5 * 60), Duration::from_secs(60)),
    }
}

/// The cloud knows no machine of this plan.
pub(crate) fn missing(facts: &Facts<'_>, attempt: &AttemptFacts) -> Vec<Act> {
    let nothing = || vec![Act::Settle(Box::new(settle(facts, attempt, None)))];
    if let Some(elsewhere) = belongs_elsewhere(&attempt.plan, facts.owner, facts.here) {
        return if is_over(facts, attempt) { nothing() } else { wait(elsewhere) };
    }
    let (visible_within, missing_at_least) = visibility(attempt.plan.offer.cloud);
    // Whoever launched it had a clock that was right; this workstation's own may be a day ahead.
    let now = present(facts, attempt);
    // A plan that a clock a day ahead has dated is as old as the store says, and as old as it was watched at the least (seed 23000075
    // of 24 h).
    let created = attempt.watched.unshown.and_then(|unshown| unshown.planned).unwrap_or(attempt.plan.created);
    let age = elapsed(created, now).max(attempt.watched.missing_for);
    // By the steady clock where it was we who asked: the launch may have come long after the plan, and a wall clock may be set.
    let shown_within = attempt.watched.asked_for.unwrap_or(age).min(since_first_word(attempt, now)).min(since_shown_launch(attempt, now));
    // A kept machine is there or gone: a launch would not bring it back.
    let existed = heard(attempt) || attempt.watched.launched.is_some() || attempt.watched.shown.is_some() || attempt.plan.starts.is_some();
    let wish = Wishes::of(facts.requests).end;
    // Whoever slept over a launch buys no machine that is to be out already.
    let is_over = attempt.plan.kill_at.is_some_and(|kill_at| kill_at <= now);
    // The plan is the record, and is never signed anew: what its machine would fetch may be out of reach by now.
    let is_late = age > TOKEN_LIVES || is_over || came_too_late(&attempt.plan, now);
    let lain_for = lain_too_long(facts, attempt);
    let unwanted = wish.is_some() || is_late || lain_for.is_some();
    // Any other controller on this job root may have launched the same plan, by a look of just before the wish: however our own
    // launches were answered, whatever the plan's age, and by whichever clock the wish is dated. Its look may be two minutes old.
    let theirs_within = if unwanted && !existed { visible_within + 2 * missing_at_least } else { Duration::ZERO };
    let missing_for = attempt.watched.missing_for;
    let unwanted_for = match lain_for {
        _ if wish.is_some() => attempt.watched.wished_for,
        // Until then another may have launched it, and was right to.
        Some(lain_for) if !is_late => missing_for.min(lain_for.saturating_sub(CLOCKS_DIFFER)),
        _ => missing_for,
    };
    let left = [(visible_within, shown_within), (missing_at_least, missing_for), (theirs_within, unwanted_for)];
    let gone = shown_within > visible_within && left.iter().all(|(whole, gone_by)| gone_by >= whole);
    let left = left.into_iter().map(|(whole, gone_by)| whole.saturating_sub(gone_by)).max().unwrap_or_default();
    let sure_at = facts.now.saturating_add(left);
    let making_sure = |why: String| vec![Act::Wait { until: sure_at.ok(), why: format!("{CERTAINTY}: {why}") }];
    if let Some((_, refusal)) = &attempt.watched.refused {
        let unclear = attempt.watched.unclear;
        // Another controller may ask too, and be given what was refused here. Who asks with the plan's token then is answered with
        // that machine; so only a refusal of just now says that nobody has launched it (seeds 6007594 and 7010096 of 24 h).
        let is_old =
            attempt.watched.refused_for > REFUSED_JUST_NOW && attempt.watched.refusals < REFUSALS_MAX && !existed && !unwanted && !is_spent(attempt);
        return match gone {
            false if unclear => making_sure(format!("a launch was refused ({refusal}), after one that may have come through")),
            true if unclear && is_old => vec![Act::Launch { attempt: attempt.plan.attempt }],
            _ => nothing(),
        };
    }
    // Whoever made the plan launches it, or writes down why not: both at once would leave a machine that no record knows. By a
    // wall clock that is hours ahead it is no fresh plan, so what was seen counts.
    let theirs = attempt.watched.unclear && attempt.watched.asked_for.is_none() && missing_for < missing_at_least;
    match (existed || unwanted, gone) {
        (true, true) => nothing(),
        (true, false) if !existed => making_sure("the cloud shows none, and one that was asked for would be shown by then".into()),
        (true, false) => wait("the cloud does not show the machine; it may have been launched all the same".into()),
        (false, _) if theirs => wait("another controller made the plan, and may be about to launch it".into()),
        (false, _) => vec![Act::Launch { attempt: attempt.plan.attempt }],
    }
}

/// How long ago the agent of a machine that the cloud has never shown here took its lease: not long before that it was launched,
/// whenever it was planned (seed 13000375 of 24 h: a cloud that was throttled for forty minutes, a machine launched by another, and
/// shown late, whose kernel hung in its first minute). By the machine's own clock, so one that lies ahead of ours says nothing.
fn since_first_word(attempt: &AttemptFacts, now: Timestamp) -> Duration {
    let unseen = attempt.watched.launched_at.is_none();
    let taken = attempt.lease.as_ref().map(|lease| lease.taken).filter(|taken| unseen && elapsed(now, *taken) < CLOCKS_DIFFER);
    taken.map_or(Duration::MAX, |taken| elapsed(taken, now))
}

/// How long ago a machine was launched that the cloud has shown here, that another launched, and of which nothing was heard: a plan may be
/// much older, and a stale answer hides what a newer one has shown. What was heard, and what we launched, counts as before.
fn since_shown_launch(attempt: &AttemptFacts, now: Timestamp) -> Duration {
    let ours = attempt.watched.asked_for.is_some() || heard(attempt);
    attempt.watched.launched_at.filter(|_| !ours).map_or(Duration::MAX, |launched| elapsed(launched, now))
}

/// For how long nobody should launch this plan any more, because it has lain too long: nobody with a clock that is kept in time does.
/// By its own date, which its hard end is counted from: whoever slept while it was written has told the store of it much later.
pub(crate) fn lain_too_long(facts: &Facts<'_>, attempt: &AttemptFacts) -> Option<Duration> {
    let gained = would_gain(facts, &attempt.plan, elapsed(attempt.plan.created, present(facts, attempt)));
    gained.checked_sub(LAIN_MAX).filter(|lain_for| *lain_for > Duration::ZERO)
}

fn present(facts: &Facts<'_>, attempt: &AttemptFacts) -> Timestamp {
    attempt.watched.unshown.map_or(facts.now, |unshown| unshown.now)
}

/// Whether it is certain by now that nobody launches it any more, nor has launched what is not shown yet.
pub(crate) fn has_lain_for_sure(lain_for: Duration) -> bool {
    let (visible_within, missing_at_least) = visibility(Cloud::Aws);
    lain_for >= CLOCKS_DIFFER + visible_within + 2 * missing_at_least
}

/// Whether the machine of a plan, launched now, might have nothing to fetch any more when it has booted.
pub(crate) fn came_too_late(plan: &Plan, now: Timestamp) -> bool {
    plan.launch_by.is_some_and(|by| by <= now)
}
