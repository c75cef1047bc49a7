//! Why offers were not taken, in words for people.

use std::cmp::Ordering;

use super::ranking::figure;
use crate::job::RejectedOffer;
use crate::market::Offer;

/// So many reasons fit in a sentence.
const REASONS_MAX: usize = 4;

pub(super) fn shortened(because: &[String]) -> String {
    let more = because.len().saturating_sub(REASONS_MAX);
    let some = because.iter().take(REASONS_MAX).map(String::as_str).collect::<Vec<&str>>().join("; ");
    if more > 0 { format!("{some}; and {more} more") } else { some }
}

/// One sentence for each type and reason, with all zones that it holds for; the cheapest first.
pub(super) fn grouped(rejected: &[RejectedOffer]) -> Vec<String> {
    let mut groups: Vec<(&Offer, &str, Vec<&str>)> = Vec::new();
    let mut sorted: Vec<&RejectedOffer> = rejected.iter().collect();
    sorted.sort_by_key(|no| no.offer.hourly());
    for no in sorted {
        let same = groups.iter_mut().find(|(offer, because, _)| offer.instance_type == no.offer.instance_type && *because == no.because);
        match same {
            Some((_, _, zones)) if zones.contains(&no.offer.zone.as_str()) => {}
            Some((_, _, zones)) => zones.push(no.offer.zone.as_str()),
            None => groups.push((&no.offer, &no.because, vec![no.offer.zone.as_str()])),
        }
    }
    groups.into_iter().map(|(offer, because, zones)| format!("{} in {} {because}", offer.instance_type, zones.join(", "))).collect()
}

/// Why another offer was not taken, on which the work is so many times as fast.
pub(super) fn dearer(other: &Offer, best: &Offer, speed: f64) -> String {
    if speed != 1.0 && other.market == best.market {
        return format!("costs {}, and the work is {} times as fast there as on {}", other.price, figure(speed), best.instance_type);
    }
    match other.hourly().cmp(&best.hourly()) {
        Ordering::Equal => format!("costs {} too", other.price),
        Ordering::Greater => format!("costs {}, more than {}", other.price, best.price),
        Ordering::Less if other.market != best.market => format!("costs {}, and the job is better on {} now", other.price, best.market),
        Ordering::Less => format!("costs {}, and its machines have lived too short for that to be less", other.price),
    }
}
