//! Why an offer was taken and the others were not, in words for people.

use std::cmp::Ordering;

use super::ask::Ask;
use super::candidate::Candidate;
use super::fallback_limit::TooDear;
use super::ranking::{RankingInputs, figure};
use crate::job::MarketChoice;
use crate::market::{CloudKind, Market, Offer, Usd};

const REASONS_MAX: usize = 4;

pub(crate) fn shortened(because: &[String]) -> String {
    let more = because.len().saturating_sub(REASONS_MAX);
    let some =
        because.iter().take(REASONS_MAX).map(String::as_str).collect::<Vec<&str>>().join("; ");
    if more > 0 { format!("{some}; and {more} more") } else { some }
}

/// The offer that is too expensive to buy without asking, to follow the others' reasons.
pub(crate) fn and_dearer(because: &[String], too_dear: Option<&TooDear>) -> String {
    let after = if because.is_empty() { "" } else { "; " };
    too_dear.map(|dear| format!("{after}{}", dear.sentence())).unwrap_or_default()
}

/// One sentence for each type and reason, with its zones; the cheapest first. Other verdicts than a
/// rejection are left out.
pub(crate) fn grouped(candidates: &[&Candidate<'_>]) -> Vec<String> {
    let mut groups: Vec<(&Offer, &str, Vec<&str>)> = Vec::new();
    let mut sorted: Vec<(&Offer, &str)> = candidates
        .iter()
        .filter_map(|candidate| Some((candidate.offer, candidate.rejection()?)))
        .collect();
    sorted.sort_by_key(|(offer, _)| offer.hourly());
    for (no, because) in sorted {
        let same = groups
            .iter_mut()
            .find(|(offer, known, _)| offer.instance_type == no.instance_type && *known == because);
        match same {
            Some((_, _, zones)) if zones.contains(&no.zone.as_str()) => {}
            Some((_, _, zones)) => zones.push(no.zone.as_str()),
            None => groups.push((no, because, vec![no.zone.as_str()])),
        }
    }
    groups
        .into_iter()
        .map(|(offer, because, zones)| {
            format!("{} in {} {because}", offer.instance_type, zones.join(", "))
        })
        .collect()
}

pub(crate) fn dearer(other: &Offer, best: &Offer, rates: &RankingInputs<'_>) -> String {
    let speed = rates.speed(other) / rates.speed(best);
    if speed != 1.0 && other.market == best.market {
        let start =
            if rates.is_outweighed(other, best) { ", which its start outweighs" } else { "" };
        return format!(
            "costs {}, and the work is {} times as fast there as on {}{start}",
            other.price,
            figure(speed),
            best.instance_type
        );
    }
    match other.hourly().cmp(&best.hourly()) {
        Ordering::Equal => format!("costs {} too", other.price),
        Ordering::Greater => format!("costs {}, more than {}", other.price, best.price),
        Ordering::Less if other.market != best.market => {
            format!("costs {}, and the job is better on {} now", other.price, best.market)
        }
        Ordering::Less => format!(
            "costs {}, and its machines have lived too short for that to be less",
            other.price
        ),
    }
}

/// Why the best offer is the best, and remarks about it.
pub(crate) fn reasons(
    ask: &Ask<'_>,
    rates: &RankingInputs<'_>,
    best: &Candidate<'_>,
    others: &[&Candidate<'_>],
) -> Vec<String> {
    let (spec, bid, best) = (ask.spec, best.bid.as_ref(), best.offer);
    let with = if best.extras.per_hour() > Usd::ZERO {
        format!(", {} with its disk and address", best.hourly())
    } else {
        String::new()
    };
    let wanted = &spec.machine.gpus;
    // For a workstation nothing is promised: its driver is asked when the job starts.
    let shows_too_few = best.cloud == CloudKind::Local && best.gpus < wanted.count;
    let peers = others.iter().filter(|other| other.offer.market == best.market).count();
    let is_cheapest = others.iter().all(|other| other.offer.hourly() >= best.hourly());
    let mut reasons = vec![match others.len() {
        0 if shows_too_few => format!("the one machine that there is, at {}{with}", best.price),
        0 => format!("the one offer that fits, at {}{with}", best.price),
        _ if !is_cheapest && ask.prefers == Some(best.market) => {
            format!("the best of {} that fit, {}, at {}{with}", peers + 1, best.market, best.price)
        }
        others if !is_cheapest && rates.by_the_rest() => {
            format!(
                "the one that is expected to finish for the least of {} that fit, at {}{with}",
                others + 1,
                best.price
            )
        }
        others if !is_cheapest => format!(
            "the one with the cheapest hour of work of {} that fit, at {}{with}",
            others + 1,
            best.price
        ),
        others => format!("the cheapest of {} that fit, at {}{with}", others + 1, best.price),
    }];
    if best.cloud == CloudKind::Local && spec.machine.market != MarketChoice::OnDemand {
        let market = if best.market == Market::Spot {
            "it can be interrupted like a spot machine"
        } else {
            "it is as good as on-demand"
        };
        reasons.push(format!("this workstation has one price; {market}"));
    }
    if let Some(bid) = bid {
        reasons.push(format!("the bid is {}, {}", bid.price, bid.because));
        reasons.extend(bid.beside(best));
    }
    if shows_too_few {
        let shows = match best.gpus {
            0 => "no GPU".to_owned(),
            gpus => format!("{gpus} GPUs"),
        };
        reasons
            .push(format!("this workstation shows {shows}, and the job needs {wanted}: where the driver says so too, the job ends when it starts; `--cloud aws` buys such a machine"));
    } else if best.cloud == CloudKind::Local && wanted.count > 0 {
        reasons.push(format!("this workstation shows {} GPUs; whether they are the job's {wanted} is seen when it starts", best.gpus));
    }
    reasons
}
