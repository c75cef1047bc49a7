//! How long a refused launch counts against its pool, and its meaning for the job.
//!
//! It uses only a job's attempts, so every reader of the records knows when a pool is asked again.
//! `placement` chooses the offer.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{AttemptRecord, MarketChoice, Refusal};
use crate::market::{CloudKind, Market, Offer, elapsed, share_a_quota};

/// How long a refusal counts. Capacity and addresses return in minutes; a price moves within hours.
/// Quotas, disk limits and roles wait for a person or for another machine's end. A region is
/// verified within minutes to hours. A zone that does not sell a type now will be the same
/// tomorrow.
fn memory_of(refusal: Refusal) -> Duration {
    Duration::from_secs(match refusal {
        Refusal::Capacity | Refusal::Addresses => 3 * 60,
        Refusal::Price => 10 * 60,
        Refusal::Quota | Refusal::Disks | Refusal::Verification | Refusal::SpotRole => 10 * 60,
        Refusal::NotSold => 24 * 3600,
        // It shows nothing about the pool.
        Refusal::Spent | Refusal::Subnet => 0,
    })
}

/// The most doublings after refusals in a row. Pool capacity changes within the hour, so an empty
/// pool is asked every 12 minutes, not every 3 or 48. With 48, a job of twenty hours in an often
/// empty pool ended at hour 55 instead of 46. A price above the bid is asked every forty minutes.
/// Waits for a person can be longer.
fn doublings_max(refusal: Refusal) -> u32 {
    match refusal {
        Refusal::Capacity | Refusal::Addresses | Refusal::Price => 2,
        Refusal::Quota | Refusal::Disks | Refusal::Verification | Refusal::SpotRole => 4,
        Refusal::NotSold | Refusal::Spent | Refusal::Subnet => 0,
    }
}

/// A record dated further ahead comes from a wrong clock, so its age is unknown. Otherwise a job
/// would wait for a day after its workstation's clock was a day ahead for seconds.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// The age of a time; `None`: unknown.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> Option<Duration> {
    (elapsed(now, at) <= AHEAD_MAX).then(|| elapsed(at, now))
}

/// The newest refusal that still counts for this offer, and its age.
pub(crate) fn refused_lately(
    history: &[AttemptRecord],
    offer: &Offer,
    now: Timestamp,
) -> Option<(Refusal, Duration)> {
    let (refusal, at, remembered) = last_refusal(history, offer)?;
    let ago = ago(at, now)?;
    (ago < remembered).then_some((refusal, ago))
}

/// When the newest refusal of this offer stops counting; `None`: there was none.
pub(crate) fn asked_again_at(
    history: &[AttemptRecord],
    offer: &Offer,
    now: Timestamp,
) -> Option<Timestamp> {
    let (_, at, remembered) = last_refusal(history, offer)?;
    ago(at, now)?;
    at.saturating_add(remembered).ok()
}

/// The newest refusal of this offer, its time, and how long it counts.
fn last_refusal(
    history: &[AttemptRecord],
    offer: &Offer,
) -> Option<(Refusal, Timestamp, Duration)> {
    // A successful launch ends the refusals before it.
    let refusals = history.iter().rev().take_while(|record| {
        !record.settled.had_machine() || !record.plan.offer.is_same_pool(offer)
    });
    let speaking = refusals.filter_map(|record| {
        let refusal = record.settled.refusal?;
        let theirs = &record.plan.offer;
        let speaks = match refusal {
            // A smaller machine may still fit.
            Refusal::Quota => share_a_quota(theirs, offer) && offer.vcpus >= theirs.vcpus,
            Refusal::Disks | Refusal::Verification => theirs.region == offer.region,
            // Every machine in the zone needs an address, whatever its type and market.
            Refusal::Addresses => theirs.cloud == offer.cloud && theirs.zone == offer.zone,
            Refusal::SpotRole => is_spot_of(theirs.cloud, offer),
            Refusal::Capacity
            | Refusal::Price
            | Refusal::NotSold
            | Refusal::Subnet
            | Refusal::Spent => false,
        };
        (theirs.is_same_pool(offer) || speaks).then_some((refusal, record.plan.created))
    });
    // A short refusal by the zone must not hide a longer one by a pool in it.
    let (zones, pools): (Vec<_>, Vec<_>) =
        speaking.partition(|(refusal, _)| *refusal == Refusal::Addresses);
    let until = |last: &(Refusal, Timestamp, Duration)| {
        last.1.saturating_add(last.2).unwrap_or(Timestamp::MAX)
    };
    [zones, pools].iter().filter_map(|speaking| newest(speaking)).max_by_key(until)
}

/// The newest of these, and how long it counts after this many.
fn newest(speaking: &[(Refusal, Timestamp)]) -> Option<(Refusal, Timestamp, Duration)> {
    let (refusal, at) = *speaking.first()?;
    let doublings =
        u32::try_from(speaking.len() - 1).unwrap_or(u32::MAX).min(doublings_max(refusal));
    Some((refusal, at, memory_of(refusal) * 2_u32.pow(doublings)))
}

/// The meaning of a refusal for a job with this market. `None`: another pool or time would not
/// help, because the job may buy only this.
pub fn of_job(refusal: Refusal, market: MarketChoice) -> Option<Refusal> {
    (refusal != Refusal::SpotRole || market == MarketChoice::Auto).then_some(refusal)
}

/// Whether the cloud's last answer to this job's spot requests was that the account lacks the spot
/// role. Then the job neither waits for spot nor leaves an on-demand machine for it; a person must
/// create the role. Spot is tried again if on-demand is unavailable, after ten minutes at the
/// earliest, and by the next job.
pub fn lacks_its_role(history: &[AttemptRecord], offer: &Offer) -> bool {
    let asked = history.iter().rev().filter(|record| is_spot_of(offer.cloud, &record.plan.offer));
    let mut answers = asked
        .map(|record| &record.settled)
        .filter(|settled| settled.had_machine() || settled.refusal.is_some());
    offer.market == Market::Spot
        && answers.next().is_some_and(|last| last.refusal == Some(Refusal::SpotRole))
}

fn is_spot_of(cloud: CloudKind, offer: &Offer) -> bool {
    offer.cloud == cloud && offer.market == Market::Spot
}
