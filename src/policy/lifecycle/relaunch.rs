//! After an attempt: is there another one, and when; or how did the job end?
//!
//! ```text
//!   wish to end ───────────> end
//!   moved, never launched ─> next attempt, at once; after many unlaunched plans, later
//!   interrupted or lost ───> next attempt, unless a limit forbids it; after too many, later
//!   no capacity ───────────> next attempt elsewhere, at once; after many refusals in a row, later
//!   otherwise ─────────────> end, with the attempt's own reason
//! ```

use std::time::Duration;

use jiff::Timestamp;

use super::requests::{EndWish, Wishes};
use crate::job::{AttemptNo, AttemptRecord, EndedBecause, LimitsSpec, Reason, Settled, Spec};
use crate::market::{CloudKind, Offer, Span, Usd, elapsed};
use crate::policy::billing::end_codes::cloud_text;
use crate::policy::purchase::hard_end::HardEndTerms;
use crate::policy::purchase::refusal_backoff;

#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt, with its earliest time.
    Attempt {
        number: AttemptNo,
        not_before: Timestamp,
        /// Too many machines ended or were bought lately, so the attempt waits.
        hold: Option<RelaunchHold>,
        reason: Reason,
    },
    End {
        because: EndedBecause,
        reason: Reason,
    },
}

/// The event that happened too often within an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelaunchHold {
    /// So many machines ended before they had done any work.
    YoungDeaths(usize),
    /// So many machines were bought.
    Machines(usize),
}

/// An attempt with less useful time and no checkpoint ended early. A minute is longer than any
/// framework import, and shorter than most first steps.
const YOUNG_USEFUL: Duration = Duration::from_secs(60);

/// This many early ends within [`YOUNG_WITHIN`] open the circuit breaker. Two are bad luck; three
/// show a problem.
const YOUNG_MAX: usize = 3;
const YOUNG_WITHIN: Duration = Duration::from_secs(3600);

/// How long the breaker stays open. A host or zone can recover meanwhile, and waiting is free.
const HOLD: Duration = Duration::from_secs(10 * 60);

/// Early ends in a row after which the job fails: three, and two waits that did not help.
const YOUNG_GIVE_UP: usize = 5;

/// Machines a job may have within [`MACHINES_WITHIN`]; the next waits until one of them is an hour
/// old. If the market interrupts a machine every six minutes, it has no stable capacity. With
/// fewer, a job waits although the next machine might stay. With more, an hour's cost is almost
/// unbounded. Without work done, the limit is lower ([`YOUNG_MAX`]).
const MACHINES_MAX: usize = 10;
const MACHINES_WITHIN: Duration = Duration::from_secs(3600);
/// Key of this number in a reason.
const MACHINES_AN_HOUR: &str = "machines_an_hour";

/// Pause between two tries, after many pools in a row had no capacity.
const CAPACITY_PAUSE: Duration = Duration::from_secs(60);

/// How many pools are tried without a pause; the placement skips recently refused ones. Twelve
/// covers two types in every zone of the largest region. With fewer, a job waits although the next
/// zone has capacity.
const PLACES_AT_ONCE: usize = 12;

/// This many unlaunched plans in a row: the next would probably not be launched either. Two or
/// three come from a sleeping laptop. Without a limit, plans would be made forever and silently.
const LYING_MAX: usize = 5;

/// Pause between such plans. Each costs only records. With more, a job waits on after the problem
/// is fixed.
const LYING_PAUSE: Duration = Duration::from_secs(30 * 60);

/// The next step after `history`; with an empty history, the first attempt.
pub fn next(spec: &Spec, history: &[AttemptRecord], wishes: &Wishes, now: Timestamp) -> Next {
    let Some(last) = history.last() else { return first(spec, wishes, now) };
    let because = last.settled.because;
    let text = own_words(last);
    if !because.goes_on() && !found_no_machine(&last.settled) {
        return end(now, because, text);
    }
    if let Some(wish) = &wishes.end {
        return end(now, wish.because(), asked(wish));
    }
    if let Some(stop) = over_a_limit(spec, history, wishes, now) {
        return stop;
    }
    let number = last.plan.attempt.next();
    if let Some(text) = left_lying(history) {
        let not_before = held(last, LYING_PAUSE, now);
        return Next::Attempt {
            number,
            not_before,
            hold: None,
            reason: Reason::new(now, "relaunch", "hold", text),
        };
    }
    if because == EndedBecause::Moved || had_no_machine(&last.settled) {
        return Next::Attempt {
            number,
            not_before: now,
            hold: None,
            reason: Reason::new(now, "relaunch", "launch", text),
        };
    }
    if found_no_machine(&last.settled) {
        let reason = Reason::new(
            now,
            "relaunch",
            "wait",
            format!("attempt {} found no machine: {text}", last.plan.attempt.number()),
        );
        let in_a_row =
            history.iter().rev().take_while(|record| found_no_machine(&record.settled)).count();
        // A workstation is the only place of its cloud.
        let has_others = last.plan.offer.cloud != CloudKind::Local;
        let pause =
            if has_others && in_a_row < PLACES_AT_ONCE { Duration::ZERO } else { CAPACITY_PAUSE };
        return Next::Attempt { number, not_before: held(last, pause, now), hold: None, reason };
    }
    again(spec, history, number, &text, now)
}

/// After failed launches: what the job waits for, following "waits for", and the time of the next
/// try. It uses only records, so every controller can tell.
pub fn scarcity(
    spec: &Spec,
    history: &[AttemptRecord],
    now: Timestamp,
) -> Option<(String, Timestamp)> {
    let (found, places) = (found_none(history)?, refused_places(history));
    let Next::Attempt { not_before, .. } = next(spec, history, &Wishes::default(), now) else {
        return None;
    };
    let forgotten = places
        .iter()
        .filter_map(|offer| refusal_backoff::asked_again_at(history, offer, now))
        .min();
    let again = forgotten.map_or(not_before, |at| at.max(not_before));
    let when = match elapsed(now, again).as_secs() {
        0 => "tried again now".to_owned(),
        secs => format!("tried again in {}", Span::from_secs(secs)),
    };
    Some((format!("a machine: {found}; {when}"), again))
}

/// After too many early ends or interruptions: why the next attempt waits, following "waits for",
/// and its time. `None`: it does not wait for that.
pub fn hold(
    spec: &Spec,
    history: &[AttemptRecord],
    wishes: &Wishes,
    now: Timestamp,
) -> Option<(String, Timestamp)> {
    let Next::Attempt { not_before, hold: Some(hold), .. } = next(spec, history, wishes, now)
    else {
        return None;
    };
    if not_before <= now {
        return None;
    }
    let rest = Span::from_secs(elapsed(now, not_before).as_secs());
    let why = match hold {
        RelaunchHold::Machines(many) => format!(
            "{many} machines were bought within an hour, and the market took them; the next is tried in {rest}"
        ),
        RelaunchHold::YoungDeaths(young) => format!(
            "{young} machines ended young within an hour; the next is tried in {rest}; after {YOUNG_GIVE_UP} in a row it has failed"
        ),
    };
    Some((format!("a better moment: {why}"), not_before))
}

/// The latest refusals in a row, newest first.
fn refused_in_a_row(history: &[AttemptRecord]) -> impl Iterator<Item = &AttemptRecord> {
    history.iter().rev().take_while(|record| found_no_machine(&record.settled))
}

/// Their pools, without duplicates.
fn refused_places(history: &[AttemptRecord]) -> Vec<&Offer> {
    let mut places: Vec<&Offer> = Vec::new();
    for offer in refused_in_a_row(history).map(|record| &record.plan.offer) {
        if !places.iter().any(|place| place.is_same_pool(offer)) {
            places.push(offer);
        }
    }
    places
}

/// Where the last launches failed: `no capacity in 3 places, the last g5.xlarge in us-east-1c,
/// spot`.
pub fn found_none(history: &[AttemptRecord]) -> Option<String> {
    let last = refused_in_a_row(history).next()?;
    let (refusal, places) = (last.settled.refusal?, refused_places(history).len());
    let many = refused_in_a_row(history).all(|record| record.settled.refusal == Some(refusal))
        && places > 1;
    let at = last.plan.offer.describe();
    Some(if many {
        format!("{refusal} in {places} places, the last {at}")
    } else {
        format!("{refusal}, {at}")
    })
}

/// How many machines were interrupted or lost.
pub fn interruptions(history: &[AttemptRecord]) -> u32 {
    let taken = history.iter().filter(|record| {
        record.settled.because.is_interruption() && !had_no_machine(&record.settled)
    });
    u32::try_from(taken.count()).unwrap_or(u32::MAX)
}

/// The budget left for one more attempt; `None`: there is no budget.
pub fn budget_left(spec: &Spec, history: &[AttemptRecord], wishes: &Wishes) -> Option<Usd> {
    let spent: Usd = history.iter().map(|record| record.settled.usd).sum();
    spec.limits.budget.map(|budget| budget + wishes.more_budget - spent)
}

fn first(spec: &Spec, wishes: &Wishes, now: Timestamp) -> Next {
    if let Some(wish) = &wishes.end {
        return end(
            now,
            wish.because(),
            format!("{} before any machine was launched", asked(wish)),
        );
    }
    over_a_limit(spec, &[], wishes, now).unwrap_or_else(|| Next::Attempt {
        number: AttemptNo::FIRST,
        not_before: now,
        hold: None,
        reason: Reason::new(now, "relaunch", "launch", "the job was submitted"),
    })
}

/// A job or schedule from before limits were required (docs/decisions.md, 24). Its machine cannot
/// be bought, so it ends instead of waiting.
fn unlimited() -> String {
    format!(
        "it {}, and no machine is bought without one: run it again with one of them, or, where its machine or a checkpoint is kept, \
         `lamp start` it with `--max-runtime` or `--budget`",
        LimitsSpec::UNBOUND
    )
}

fn over_a_limit(
    spec: &Spec,
    history: &[AttemptRecord],
    wishes: &Wishes,
    now: Timestamp,
) -> Option<Next> {
    if spec.machine.cloud != CloudKind::Local && !spec.limits.bound_a_machine() {
        return Some(end(now, EndedBecause::LaunchFailed, unlimited()));
    }
    if let Some(deadline) = spec.limits.deadline
        && deadline.saturating_add(wishes.more_time.duration()).unwrap_or(Timestamp::MAX) <= now
    {
        return Some(end(
            now,
            EndedBecause::Deadline,
            format!("the deadline {deadline:.0} has passed"),
        ));
    }
    let left = budget_left(spec, history, wishes)?;
    let worth_a_start = history.iter().map(|record| {
        let (offer, bid) = (&record.plan.offer, record.plan.bid);
        HardEndTerms { spec, offer, bid, budget_left: Some(left), more_time: wishes.more_time, now }
            .least()
    });
    if let Some(least) = worth_a_start.min().filter(|least| left < *least && left > Usd::ZERO) {
        return Some(end(
            now,
            EndedBecause::Budget,
            format!(
                "{left} of the budget are left, and less than {least} is not worth another machine"
            ),
        ));
    }
    let priced = history.iter().any(|record| record.plan.offer.hourly().per_hour() > Usd::ZERO);
    (left <= Usd::ZERO && (priced || history.is_empty()))
        .then(|| end(now, EndedBecause::Budget, "the budget is spent".into()))
}

/// Another attempt after an interruption or a loss, if limits permit.
fn again(
    spec: &Spec,
    history: &[AttemptRecord],
    number: AttemptNo,
    text: &str,
    now: Timestamp,
) -> Next {
    let (taken, max) = (interruptions(history), spec.interruptions.max);
    if taken > max {
        let because = history.last().map_or(EndedBecause::Lost, |last| last.settled.because);
        return end(
            now,
            because,
            format!("{text}; interrupted {taken} times, and `interruptions.max` is {max}"),
        );
    }
    let young_in_a_row = history.iter().rev().take_while(|record| died_young(record)).count();
    if young_in_a_row >= YOUNG_GIVE_UP {
        return end(
            now,
            EndedBecause::Lost,
            format!(
                "{young_in_a_row} machines in a row ended before any work was done; the last: {text}"
            ),
        );
    }
    let last_end = history.last().map_or(now, |last| ended_at(last, now));
    let within = last_end.saturating_sub(YOUNG_WITHIN).unwrap_or(Timestamp::MIN);
    let young = history
        .iter()
        .filter(|record| died_young(record) && ended_at(record, now) > within)
        .count();
    let too_many_young = young >= YOUNG_MAX && young_in_a_row > 0;
    let after_young = history.last().filter(|_| too_many_young).map(|last| held(last, HOLD, now));
    let crowded = crowded_until(history, now);
    let (hold, verdict, also) = match (crowded, after_young) {
        (Some(_), _) => (
            Some(RelaunchHold::Machines(MACHINES_MAX)),
            "hold",
            format!("; {MACHINES_MAX} machines were bought within an hour, so the next waits"),
        ),
        (None, Some(_)) => (
            Some(RelaunchHold::YoungDeaths(young)),
            "hold",
            format!("; {young} machines ended young within an hour, so the next waits"),
        ),
        (None, None) => (None, "launch", String::new()),
    };
    let reason = Reason::new(now, "relaunch", verdict, format!("{text}{also}"))
        .with("interruptions", f64::from(taken))
        .with("interruptions_max", f64::from(max))
        .with("young_deaths", young as f64);
    let reason =
        if crowded.is_some() { reason.with(MACHINES_AN_HOUR, MACHINES_MAX as f64) } else { reason };
    Next::Attempt { number, not_before: crowded.max(after_young).unwrap_or(now), hold, reason }
}

/// Until when the job must wait because it had [`MACHINES_MAX`] machines within the last hour;
/// `None`: no wait.
fn crowded_until(history: &[AttemptRecord], now: Timestamp) -> Option<Timestamp> {
    let bought = history
        .iter()
        .rev()
        .filter(|record| record.settled.instance.is_some() || record.settled.billed_from.is_some());
    // A plan dated in the future comes from a wrong clock and must not delay the next.
    let tenth = bought
        .map(|record| record.plan.created)
        .filter(|created| *created <= now)
        .nth(MACHINES_MAX - 1)?;
    let until = tenth.saturating_add(MACHINES_WITHIN).unwrap_or(now);
    (until > now).then_some(until)
}

/// Why the next attempt waits after many unlaunched plans without a known reason; the user must be
/// told.
pub fn left_lying(history: &[AttemptRecord]) -> Option<String> {
    let last = history.last()?;
    let lying = history.iter().rev().take_while(|record| had_no_machine(&record.settled)).count();
    (lying >= LYING_MAX).then(|| {
        let pause = Span::from_secs(LYING_PAUSE.as_secs());
        format!("{lying} attempts in a row never had a machine, and the next waits: one is planned every {pause}; the last: {}", own_words(last))
    })
}

fn died_young(record: &AttemptRecord) -> bool {
    let worked = record.settled.outcome.as_ref().is_some_and(|outcome| {
        outcome.useful.duration() >= YOUNG_USEFUL || outcome.checkpoints > 0
    });
    record.settled.because.is_interruption() && !worked && !had_no_machine(&record.settled)
}

/// Whether the plan was certainly left unlaunched, without a refusal. It is neither a loss nor a
/// capacity error.
pub(crate) fn had_no_machine(settled: &Settled) -> bool {
    settled.because == EndedBecause::Lost
        && settled.instance.is_none()
        && settled.billed_from.is_none()
}

/// Whether a launch was refused there, and may be tried elsewhere or later.
pub(crate) fn found_no_machine(settled: &Settled) -> bool {
    settled.because == EndedBecause::LaunchFailed && settled.refusal.is_some()
}

fn ended_at(record: &AttemptRecord, now: Timestamp) -> Timestamp {
    told_end(record).min(now)
}

/// By the clock of the controller that recorded it.
fn told_end(record: &AttemptRecord) -> Timestamp {
    record.settled.billed_to.unwrap_or(record.plan.created)
}

/// The earliest time of the next attempt after a pause. An end dated in the future does not delay
/// it.
fn held(record: &AttemptRecord, pause: Duration, now: Timestamp) -> Timestamp {
    refusal_backoff::ago(told_end(record), now)
        .map_or(now, |_| ended_at(record, now).saturating_add(pause).unwrap_or(now))
}

fn end(now: Timestamp, because: EndedBecause, text: String) -> Next {
    Next::End { because, reason: Reason::new(now, "relaunch", because.word(), text) }
}

fn asked(wish: &EndWish) -> String {
    format!("{} by {}", if wish.cancel { "cancelled" } else { "stopped" }, wish.by)
}

/// Why the attempt ended, from the best source.
fn own_words(record: &AttemptRecord) -> String {
    why_ended(record).unwrap_or_else(|| record.settled.because.word().replace('_', " "))
}

/// Why an attempt ended, if its agent, its workload or the cloud reported more than the end's word.
pub fn why_ended(record: &AttemptRecord) -> Option<String> {
    let settled = &record.settled;
    let said = settled
        .outcome
        .as_ref()
        .and_then(|outcome| outcome.reasons.last())
        .map(|reason| reason.text.clone());
    let exit = settled
        .outcome
        .as_ref()
        .and_then(|outcome| outcome.exit)
        .map(|exit| format!("the workload ended: {exit}"));
    said.or(exit)
        .or_else(|| Some(cloud_text(record.plan.offer.cloud, settled.cloud_reason.as_ref()?)))
}
