//! After an attempt has ended: is there another one, and when; or how has the job ended.
//!
//! ```text
//!   wish to end ─────────────> end
//!   moved, never launched ───> next attempt, at once; after many plans that nobody launched, later
//!   interrupted or lost ─────> next attempt, unless a limit says no, or it dies too young too often; after ten in an hour, later
//!   no capacity ─────────────> next attempt elsewhere, at once; after many refusals in a row, later
//!   anything else ───────────> end, with the attempt's own word
//! ```

use std::time::Duration;

use jiff::Timestamp;

use super::requests::{EndWish, Wishes};
use crate::job::{AttemptNo, AttemptRecord, EndedBecause, LimitsSpec, Reason, Settled, Spec};
use crate::market::{Cloud, Offer, Span, Usd, elapsed};
use crate::policy::billing::end_codes::cloud_text;
use crate::policy::purchase::hard_end::Terms;
use crate::policy::purchase::refusal_backoff;

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt, not before a moment.
    Attempt {
        number: AttemptNo,
        not_before: Timestamp,
        reason: Reason,
    },
    End {
        because: EndedBecause,
        reason: Reason,
    },
}

/// An attempt that brought less than this, and no checkpoint, died young. A minute is longer than any import of a
/// framework and shorter than the first step of most trainings.
const YOUNG_USEFUL: Duration = Duration::from_secs(60);

/// So many young deaths within [`YOUNG_WITHIN`] open the breaker. Two happen on a bad day; at three something is wrong.
const YOUNG_MAX: usize = 3;
const YOUNG_WITHIN: Duration = Duration::from_secs(3600);

/// How long the breaker holds. Long enough for a host or a zone to recover; each hold costs nothing but time.
const HOLD: Duration = Duration::from_secs(10 * 60);

/// Young deaths in a row after which the job has failed: three, and two holds that did not help.
const YOUNG_GIVE_UP: usize = 5;

/// So many machines a job may have within [`MACHINES_WITHIN`]; the next waits until one of them is an hour old. A market that takes a
/// machine every six minutes has nothing to sell: each boots, loads its data and saves at most once. Fewer, and a job that loses
/// several in a bad hour waits although the next would stay; more, and what a job buys in an hour has no bound that anybody would
/// expect. Of those that did no work fewer are enough ([`YOUNG_MAX`]).
const MACHINES_MAX: usize = 10;
const MACHINES_WITHIN: Duration = Duration::from_secs(3600);
/// The number by which a reason says so.
const MACHINES_AN_HOUR: &str = "machines_an_hour";

/// Between two looks for capacity, when many places in a row had none.
const CAPACITY_PAUSE: Duration = Duration::from_secs(60);

/// So many places in a row are asked one after the other: the placement asks none of them twice within minutes. More are
/// two types in every zone of the largest region; fewer, and a job waits a minute although the next zone has what it needs.
const PLACES_AT_ONCE: usize = 12;

/// So many plans in a row that were left lying, and nobody knows of a machine: whatever keeps them from their launch, the next
/// would lie too. Two or three are a laptop that sleeps; more, and plans are made for ever without a word.
const LYING_MAX: usize = 5;

/// Between two of them then, from plan to plan. Each costs nothing but records; longer, and a job waits on after somebody has
/// mended it.
const LYING_PAUSE: Duration = Duration::from_secs(30 * 60);

/// What follows the last of the `history`; with an empty history the first attempt is asked for.
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
        return Next::Attempt { number, not_before, reason: Reason::new(now, "relaunch", "hold", text) };
    }
    if because == EndedBecause::Moved || had_no_machine(&last.settled) {
        return Next::Attempt { number, not_before: now, reason: Reason::new(now, "relaunch", "launch", text) };
    }
    if found_no_machine(&last.settled) {
        let reason = Reason::new(now, "relaunch", "wait", format!("attempt {} found no machine: {text}", last.plan.attempt.number()));
        let in_a_row = history.iter().rev().take_while(|record| found_no_machine(&record.settled)).count();
        // A workstation is the only place of its cloud.
        let has_others = last.plan.offer.cloud != Cloud::Local;
        let pause = if has_others && in_a_row < PLACES_AT_ONCE { Duration::ZERO } else { CAPACITY_PAUSE };
        return Next::Attempt { number, not_before: held(last, pause, now), reason };
    }
    again(spec, history, number, &text, now)
}

/// Of a job whose last launches found no machine: what it waits for, as it follows on "waits for", and when a launch is tried
/// again. From its records alone, so that anybody can say it.
pub fn scarcity(spec: &Spec, history: &[AttemptRecord], now: Timestamp) -> Option<(String, Timestamp)> {
    let (found, places) = (found_none(history)?, refused_places(history));
    let Next::Attempt { not_before, .. } = next(spec, history, &Wishes::default(), now) else { return None };
    let forgotten = places.iter().filter_map(|offer| refusal_backoff::asked_again_at(history, offer, now)).min();
    let again = forgotten.map_or(not_before, |at| at.max(not_before));
    let when = match elapsed(now, again).as_secs() {
        0 => "tried again now".to_owned(),
        secs => format!("tried again in {}", Span::from_secs(secs)),
    };
    Some((format!("a machine: {found}; {when}"), again))
}

/// Of a job whose machines died young, or were taken, too often: why the next waits, as it follows on "waits for", and when it is
/// tried. `None`: it does not wait for that.
pub fn hold(spec: &Spec, history: &[AttemptRecord], wishes: &Wishes, now: Timestamp) -> Option<(String, Timestamp)> {
    let Next::Attempt { not_before, reason, .. } = next(spec, history, wishes, now) else { return None };
    let young = reason.numbers.get("young_deaths").filter(|_| reason.verdict == "hold" && not_before > now)?;
    let rest = Span::from_secs(elapsed(now, not_before).as_secs());
    let why = match reason.numbers.get(MACHINES_AN_HOUR) {
        Some(many) => format!("{many} machines were bought within an hour, and the market took them; the next is tried in {rest}"),
        None => format!("{young} machines ended young within an hour; the next is tried in {rest}; after {YOUNG_GIVE_UP} in a row it has failed"),
    };
    Some((format!("a better moment: {why}"), not_before))
}

/// The last refusals in a row, the newest first.
fn refused_in_a_row(history: &[AttemptRecord]) -> impl Iterator<Item = &AttemptRecord> {
    history.iter().rev().take_while(|record| found_no_machine(&record.settled))
}

/// The places that they speak of.
fn refused_places(history: &[AttemptRecord]) -> Vec<&Offer> {
    let mut places: Vec<&Offer> = Vec::new();
    for offer in refused_in_a_row(history).map(|record| &record.plan.offer) {
        if !places.iter().any(|place| place.is_same_pool(offer)) {
            places.push(offer);
        }
    }
    places
}

/// Where the last launches found no machine: `no capacity in 3 places, the last g5.xlarge in us-east-1c, spot`.
pub fn found_none(history: &[AttemptRecord]) -> Option<String> {
    let last = refused_in_a_row(history).next()?;
    let (refusal, places) = (last.settled.refusal?, refused_places(history).len());
    let many = refused_in_a_row(history).all(|record| record.settled.refusal == Some(refusal)) && places > 1;
    let at = last.plan.offer.describe();
    Some(if many { format!("{refusal} in {places} places, the last {at}") } else { format!("{refusal}, {at}") })
}

/// How many machines were taken away or lost.
pub fn interruptions(history: &[AttemptRecord]) -> u32 {
    let taken = history.iter().filter(|record| record.settled.because.is_interruption() && !had_no_machine(&record.settled));
    u32::try_from(taken.count()).unwrap_or(u32::MAX)
}

/// What a plan of one more attempt may still spend; `None`: no budget was set.
pub fn budget_left(spec: &Spec, history: &[AttemptRecord], wishes: &Wishes) -> Option<Usd> {
    let spent: Usd = history.iter().map(|record| record.settled.usd).sum();
    spec.limits.budget.map(|budget| budget + wishes.more_budget - spent)
}

fn first(spec: &Spec, wishes: &Wishes, now: Timestamp) -> Next {
    if let Some(wish) = &wishes.end {
        return end(now, wish.because(), format!("{} before any machine was launched", asked(wish)));
    }
    over_a_limit(spec, &[], wishes, now).unwrap_or_else(|| Next::Attempt {
        number: AttemptNo::FIRST,
        not_before: now,
        reason: Reason::new(now, "relaunch", "launch", "the job was submitted"),
    })
}

/// Of a job from before limits were asked for (docs/decisions/0024), or of a schedule from then: nothing is bought for it, and to wait
/// would be to wait for ever.
fn unlimited() -> String {
    format!(
        "it {}, and no machine is bought without one: run it again with one of them, or, where its machine or a checkpoint is kept, \
         `lamp start` it with `--max-runtime` or `--budget`",
        LimitsSpec::UNBOUND
    )
}

fn over_a_limit(spec: &Spec, history: &[AttemptRecord], wishes: &Wishes, now: Timestamp) -> Option<Next> {
    if spec.machine.cloud != Cloud::Local && !spec.limits.bound_a_machine() {
        return Some(end(now, EndedBecause::LaunchFailed, unlimited()));
    }
    if let Some(deadline) = spec.limits.deadline
        && deadline.saturating_add(wishes.more_time.duration()).unwrap_or(Timestamp::MAX) <= now
    {
        return Some(end(now, EndedBecause::Deadline, format!("the deadline {deadline:.0} has passed")));
    }
    let left = budget_left(spec, history, wishes)?;
    let worth_a_start = history.iter().map(|record| {
        let (offer, bid) = (&record.plan.offer, record.plan.bid);
        Terms { spec, offer, bid, budget_left: Some(left), more_time: wishes.more_time, now }.least()
    });
    if let Some(least) = worth_a_start.min().filter(|least| left < *least && left > Usd::ZERO) {
        return Some(end(now, EndedBecause::Budget, format!("{left} of the budget are left, and less than {least} is not worth another machine")));
    }
    let priced = history.iter().any(|record| record.plan.offer.hourly().per_hour() > Usd::ZERO);
    (left <= Usd::ZERO && (priced || history.is_empty())).then(|| end(now, EndedBecause::Budget, "the budget is spent".into()))
}

/// Another attempt after an interruption or a loss, if it is worth it.
fn again(spec: &Spec, history: &[AttemptRecord], number: AttemptNo, text: &str, now: Timestamp) -> Next {
    let (taken, max) = (interruptions(history), spec.interruptions.max);
    if taken > max {
        let because = history.last().map_or(EndedBecause::Lost, |last| last.settled.because);
        return end(now, because, format!("{text}; interrupted {taken} times, and `interruptions.max` is {max}"));
    }
    let young_in_a_row = history.iter().rev().take_while(|record| died_young(record)).count();
    if young_in_a_row >= YOUNG_GIVE_UP {
        return end(now, EndedBecause::Lost, format!("{young_in_a_row} machines in a row ended before any work was done; the last: {text}"));
    }
    let last_end = history.last().map_or(now, |last| ended_at(last, now));
    let within = last_end.saturating_sub(YOUNG_WITHIN).unwrap_or(Timestamp::MIN);
    let young = history.iter().filter(|record| died_young(record) && ended_at(record, now) > within).count();
    let hold = young >= YOUNG_MAX && young_in_a_row > 0;
    let after_young = history.last().filter(|_| hold).map(|last| held(last, HOLD, now));
    let crowded = crowded_until(history, now);
    let (verdict, also) = match (crowded, after_young) {
        (Some(_), _) => ("hold", format!("; {MACHINES_MAX} machines were bought within an hour, so the next waits")),
        (None, Some(_)) => ("hold", format!("; {young} machines ended young within an hour, so the next waits")),
        (None, None) => ("launch", String::new()),
    };
    let reason = Reason::new(now, "relaunch", verdict, format!("{text}{also}"))
        .with("interruptions", f64::from(taken))
        .with("interruptions_max", f64::from(max))
        .with("young_deaths", young as f64);
    let reason = if crowded.is_some() { reason.with(MACHINES_AN_HOUR, MACHINES_MAX as f64) } else { reason };
    Next::Attempt { number, not_before: crowded.max(after_young).unwrap_or(now), reason }
}

/// Until when as many machines as a job may have in an hour were bought within the last one; `None`: they were not.
fn crowded_until(history: &[AttemptRecord], now: Timestamp) -> Option<Timestamp> {
    let bought = history.iter().rev().filter(|record| record.settled.instance.is_some() || record.settled.billed_from.is_some());
    // A plan of a clock that was ahead says nothing of now, and must not hold the next until then.
    let tenth = bought.map(|record| record.plan.created).filter(|created| *created <= now).nth(MACHINES_MAX - 1)?;
    let until = tenth.saturating_add(MACHINES_WITHIN).unwrap_or(now);
    (until > now).then_some(until)
}

/// Why the next attempt waits, where many plans in a row were never launched and nobody knows why: somebody has to hear of it.
pub fn left_lying(history: &[AttemptRecord]) -> Option<String> {
    let last = history.last()?;
    let lying = history.iter().rev().take_while(|record| had_no_machine(&record.settled)).count();
    (lying >= LYING_MAX).then(|| {
        let pause = Span::from_secs(LYING_PAUSE.as_secs());
        format!("{lying} attempts in a row never had a machine, and the next waits: one is planned every {pause}; the last: {}", own_words(last))
    })
}

fn died_young(record: &AttemptRecord) -> bool {
    let worked = record.settled.outcome.as_ref().is_some_and(|outcome| outcome.useful.duration() >= YOUNG_USEFUL || outcome.checkpoints > 0);
    record.settled.because.is_interruption() && !worked && !had_no_machine(&record.settled)
}

/// Whether it is certain that nothing was ever launched, though nobody refused it: a plan that was left lying. No machine was
/// lost, and no place has shown that it has none.
pub(crate) fn had_no_machine(settled: &Settled) -> bool {
    settled.because == EndedBecause::Lost && settled.instance.is_none() && settled.billed_from.is_none()
}

/// Whether a launch was refused there, and may be tried elsewhere or later.
pub(crate) fn found_no_machine(settled: &Settled) -> bool {
    settled.because == EndedBecause::LaunchFailed && settled.refusal.is_some()
}

fn ended_at(record: &AttemptRecord, now: Timestamp) -> Timestamp {
    told_end(record).min(now)
}

/// By whoever wrote it down.
fn told_end(record: &AttemptRecord) -> Timestamp {
    record.settled.billed_to.unwrap_or(record.plan.created)
}

/// So long after its end the next may begin. One that ended in the future would hold the next until then.
fn held(record: &AttemptRecord, pause: Duration, now: Timestamp) -> Timestamp {
    refusal_backoff::ago(told_end(record), now).map_or(now, |_| ended_at(record, now).saturating_add(pause).unwrap_or(now))
}

fn end(now: Timestamp, because: EndedBecause, text: String) -> Next {
    Next::End { because, reason: Reason::new(now, "relaunch", because.word(), text) }
}

fn asked(wish: &EndWish) -> String {
    format!("{} by {}", if wish.cancel { "cancelled" } else { "stopped" }, wish.by)
}

/// Why the attempt ended, in the words of whoever knows best.
fn own_words(record: &AttemptRecord) -> String {
    why_ended(record).unwrap_or_else(|| record.settled.because.word().replace('_', " "))
}

/// Why an attempt ended, where its agent, its workload or the cloud has said more than the word of its end.
pub fn why_ended(record: &AttemptRecord) -> Option<String> {
    let settled = &record.settled;
    let said = settled.outcome.as_ref().and_then(|outcome| outcome.reasons.last()).map(|reason| reason.text.clone());
    let exit = settled.outcome.as_ref().and_then(|outcome| outcome.exit).map(|exit| format!("the workload ended: {exit}"));
    said.or(exit).or_else(|| Some(cloud_text(record.plan.offer.cloud, settled.cloud_reason.as_ref()?)))
}
