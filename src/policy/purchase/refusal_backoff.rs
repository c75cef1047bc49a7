//! For how long a refused launch speaks of the place that refused it, and what it says of the job.
//!
//! From the attempts of a job alone, so that whoever reads its records knows when a place is asked again. What must never live
//! here: which offer is taken (`placement`).

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{AttemptRecord, MarketChoice, Refusal};
use crate::market::{Cloud, Market, Offer, elapsed, share_a_quota};

/// How long a refusal speaks of a place. Capacity and addresses come back in minutes, a price moves within hours, a quota, a limit of
/// disks and a role wait for a person or for a machine to end, a region is verified within minutes to hours, and what is not sold in a
/// zone is not sold there tomorrow either.
fn memory_of(refusal: Refusal) -> Duration {
    Duration::from_secs(match refusal {
        Refusal::Capacity | Refusal::Addresses => 3 * 60,
        Refusal::Price => 10 * 60,
        Refusal::Quota | Refusal::Disks | Refusal::Verification | Refusal::SpotRole => 10 * 60,
        Refusal::NotSold => 24 * 3600,
        // It says nothing of the place.
        Refusal::Spent | Refusal::Subnet => 0,
    })
}

/// The memory doubles with each refusal in a row, up to so many times. Room in a pool comes and goes within the hour, so that a zone
/// which was empty all day is asked every twelve minutes, not every three and not every 48 (a job of twenty hours in a pool that is
/// often empty ended at the 55th hour so, where it could at the 46th), and a price above the bid every forty; what waits for a person
/// can wait longer.
fn doublings_max(refusal: Refusal) -> u32 {
    match refusal {
        Refusal::Capacity | Refusal::Addresses | Refusal::Price => 2,
        Refusal::Quota | Refusal::Disks | Refusal::Verification | Refusal::SpotRole => 4,
        Refusal::NotSold | Refusal::Spent | Refusal::Subnet => 0,
    }
}

/// A record that lies further ahead was written by a clock that was wrong then: how long ago it was, nobody can say (seed 21001732
/// of 24 h: a job waited for a day, since its workstation's clock had been a day ahead for six seconds).
const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// How long ago that was; `None`: nobody can say.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> Option<Duration> {
    (elapsed(now, at) <= AHEAD_MAX).then(|| elapsed(at, now))
}

/// The last refusal that still speaks of this offer, and how long ago it was.
pub(crate) fn refused_lately(history: &[AttemptRecord], offer: &Offer, now: Timestamp) -> Option<(Refusal, Duration)> {
    let (refusal, at, remembered) = last_refusal(history, offer)?;
    let ago = ago(at, now)?;
    (ago < remembered).then_some((refusal, ago))
}

/// When the last refusal of this offer no longer speaks of it; `None`: there was none.
pub(crate) fn asked_again_at(history: &[AttemptRecord], offer: &Offer, now: Timestamp) -> Option<Timestamp> {
    let (_, at, remembered) = last_refusal(history, offer)?;
    ago(at, now)?;
    at.saturating_add(remembered).ok()
}

/// The last refusal of this offer, when it was, and for how long it speaks.
fn last_refusal(history: &[AttemptRecord], offer: &Offer) -> Option<(Refusal, Timestamp, Duration)> {
    // A machine that was had says that the refusals before it are over.
    let refusals = history.iter().rev().take_while(|record| !record.settled.had_machine() || !record.plan.offer.is_same_pool(offer));
    let speaking = refusals.filter_map(|record| {
        let refusal = record.settled.refusal?;
        let theirs = &record.plan.offer;
        let speaks = match refusal {
            // What is smaller may have room where this had none.
            Refusal::Quota => share_a_quota(theirs, offer) && offer.vcpus >= theirs.vcpus,
            Refusal::Disks | Refusal::Verification => theirs.region == offer.region,
            // Whatever its type and its market, a machine of the zone needs an address.
            Refusal::Addresses => theirs.cloud == offer.cloud && theirs.zone == offer.zone,
            Refusal::SpotRole => is_spot_of(theirs.cloud, offer),
            Refusal::Capacity | Refusal::Price | Refusal::NotSold | Refusal::Subnet | Refusal::Spent => false,
        };
        (theirs.is_same_pool(offer) || speaks).then_some((refusal, record.plan.created))
    });
    // What a whole zone lacks for minutes makes nobody forget what a pool in it has refused for longer.
    let (zones, pools): (Vec<_>, Vec<_>) = speaking.partition(|(refusal, _)| *refusal == Refusal::Addresses);
    let until = |last: &(Refusal, Timestamp, Duration)| last.1.saturating_add(last.2).unwrap_or(Timestamp::MAX);
    [zones, pools].iter().filter_map(|speaking| newest(speaking)).max_by_key(until)
}

/// The first of these, the newest, and for how long it speaks after so many.
fn newest(speaking: &[(Refusal, Timestamp)]) -> Option<(Refusal, Timestamp, Duration)> {
    let (refusal, at) = *speaking.first()?;
    let doublings = u32::try_from(speaking.len() - 1).unwrap_or(u32::MAX).min(doublings_max(refusal));
    Some((refusal, at, memory_of(refusal) * 2_u32.pow(doublings)))
}

/// What a refusal says of a job that chose its market so. `None`: no other place and no other moment mends it, because what was refused
/// is all that the job may be bought.
pub fn of_job(refusal: Refusal, market: MarketChoice) -> Option<Refusal> {
    (refusal != Refusal::SpotRole || market == MarketChoice::Auto).then_some(refusal)
}

/// Whether this is a spot machine of a cloud that said last, of all the spot machines that this job has asked it for, that the account
/// has no role for them. None is waited for then, and no machine on demand is left for one: a person makes the role, or nobody does. It
/// is asked for again where nothing on demand is to be had, ten minutes later at the earliest, and by the next job.
pub fn lacks_its_role(history: &[AttemptRecord], offer: &Offer) -> bool {
    let asked = history.iter().rev().filter(|record| is_spot_of(offer.cloud, &record.plan.offer));
    let mut answers = asked.map(|record| &record.settled).filter(|settled| settled.had_machine() || settled.refusal.is_some());
    offer.market == Market::Spot && answers.next().is_some_and(|last| last.refusal == Some(Refusal::SpotRole))
}

fn is_spot_of(cloud: Cloud, offer: &Offer) -> bool {
    offer.cloud == cloud && offer.market == Market::Spot
}
