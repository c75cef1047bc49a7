//! The cost of a job on an offer: per hour of work, and for the rest.
//!
//! ```text
//!   hourly x (1 + starts) / speed ──> an hour of work ── x work left ──> cost to finish
//! ```
//! If the job states its work, offers are ranked by the cost to finish: a start costs more on a
//! fast machine. Otherwise by the hour of work, which is always known. `placement` handles
//! refusals, `market::deadline_choice` the market.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ask::Ask;
use crate::market::{CloudKind, Market, Offer, Span, Speeds, Usd};
use crate::policy::market::auto_market::reckoned_start_hours;
use crate::policy::market::pool_history::start_of;
use crate::policy::market::remaining_work;

/// One fitting offer in its rank; the field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Ranked {
    pub instance_type: String,
    pub zone: String,
    pub market: Market,
    pub speed: f64,
    /// The user gave the speed, or an attempt measured it.
    pub speed_known: bool,
    pub usd_per_hour_of_work: f64,
    /// `null`: the amount of work is unknown.
    pub usd_to_finish: Option<Usd>,
}

pub(crate) struct RankingInputs<'a> {
    ask: &'a Ask<'a>,
    speeds: Speeds,
    /// On a machine of speed 1.
    hours_left: Option<f64>,
    /// The job's longest start so far.
    start_hours: f64,
}

/// The most GPU kinds in a sentence.
const KINDS_MAX: usize = 5;

impl<'a> RankingInputs<'a> {
    pub(crate) fn of(ask: &'a Ask<'a>) -> Self {
        let speeds = remaining_work::speeds(ask.spec, ask.history);
        let left = remaining_work::left(ask.spec, &speeds, ask.history, None);
        let start = ask.history.iter().filter_map(start_of).max();
        RankingInputs {
            ask,
            speeds,
            hours_left: left.map(|left| left.as_secs_f64() / 3600.0),
            start_hours: reckoned_start_hours(start),
        }
    }

    pub(crate) fn speed(&self, offer: &Offer) -> f64 {
        self.speeds.of(offer)
    }

    /// The share of starts in an hour on such a machine.
    fn overhead(&self, offer: &Offer) -> f64 {
        let key = (offer.zone.to_string(), offer.instance_type.clone());
        if offer.market == Market::Spot {
            self.ask.overheads.get(&key).copied().unwrap_or(0.0)
        } else {
            0.0
        }
    }

    /// Cost of an hour of work, without starts.
    pub(crate) fn plain(&self, offer: &Offer) -> f64 {
        offer.hourly().per_hour().dollars() / self.speed(offer)
    }

    /// Cost of an hour of work, with its share of the starts.
    pub(crate) fn usd_per_work(&self, offer: &Offer) -> f64 {
        self.plain(offer) * (1.0 + self.overhead(offer))
    }

    /// Expected cost of the rest of the job there in dollars, from the next start on.
    fn rest(&self, offer: &Offer) -> Option<f64> {
        let work = self.hours_left? / self.speed(offer);
        let start = if offer.cloud == CloudKind::Local { 0.0 } else { self.start_hours };
        let hours = work + (work * self.overhead(offer)).max(start);
        Some(offer.hourly().per_hour().dollars() * hours)
    }

    fn to_finish(&self, offer: &Offer) -> Option<Usd> {
        Usd::from_dollars(self.rest(offer)?).ok()
    }

    /// Whether offers are ranked by the cost to finish. Without stated work, and with equal speeds,
    /// a start costs the same everywhere. A job past its stated work has an unknown rest.
    pub(crate) fn by_the_rest(&self) -> bool {
        self.hours_left.is_some_and(|left| left > 0.0)
            && (self.ask.spec.limits.work.is_some() || !self.speeds.is_empty())
    }

    /// The sort key, lowest first: the cost to finish, then an hour of work.
    pub(crate) fn rank(&self, offer: &Offer) -> (f64, f64) {
        let an_hour = self.usd_per_work(offer);
        (self.rest(offer).filter(|_| self.by_the_rest()).unwrap_or(an_hour), an_hour)
    }

    /// Whether an hour of work is cheaper there than on the best, but a start outweighs that.
    pub(crate) fn is_outweighed(&self, other: &Offer, best: &Offer) -> bool {
        self.by_the_rest() && self.usd_per_work(other) < self.usd_per_work(best)
    }

    /// Whether the rest of the job costs at most as much as on the other offer, as far as known.
    pub(crate) fn finishes_for_no_more(&self, offer: &Offer, than: &Offer) -> bool {
        self.by_the_rest()
            && self.rest(offer).zip(self.rest(than)).is_some_and(|(here, there)| here <= there)
    }

    pub(crate) fn ranked(&self, offer: &Offer) -> Ranked {
        Ranked {
            instance_type: offer.instance_type.clone(),
            zone: offer.zone.to_string(),
            market: offer.market,
            speed: self.speed(offer),
            speed_known: self.speeds.said(offer).is_some(),
            usd_per_hour_of_work: self.usd_per_work(offer),
            usd_to_finish: self.to_finish(offer),
        }
    }

    /// The cost of the rest on the best offer. For an `auto` job the forecast tells more.
    pub(crate) fn expectation(&self, best: &Offer) -> Option<String> {
        let (usd, hours) = (self.to_finish(best)?, self.hours_left?);
        let hours = Span::from_secs((hours / self.speed(best) * 60.0).round() as u64 * 60);
        let start = match (best.cloud, best.market) {
            (CloudKind::Local, _) => "",
            (_, Market::OnDemand) => ", a start included",
            (_, Market::Spot) => {
                ", a start included; each interruption adds one, and what was not saved (`lamp simulate` plays them)"
            }
        };
        (usd > Usd::ZERO)
            .then(|| format!("expected to cost {usd} to finish: {hours} of work there{start}"))
    }

    /// The assumed speeds of the competing GPU kinds, if there are several.
    pub(crate) fn about_speeds(&self, fitting: &[&Offer]) -> Option<String> {
        let bought = || fitting.iter().filter(|offer| offer.cloud != CloudKind::Local);
        if !self.speeds.is_empty()
            && bought().next().is_some()
            && bought().all(|offer| self.speeds.said(offer).is_none())
        {
            let named: Vec<&str> =
                self.speeds.iter().map(|(name, _)| name).take(KINDS_MAX).collect();
            return Some(format!(
                "`machine.speed` names {}, and nothing that fits is of these",
                named.join(", ")
            ));
        }
        let models: BTreeSet<&str> =
            bought().filter_map(|offer| offer.gpu_model.as_deref()).collect();
        if self.speeds.is_empty() {
            // A model with more GPUs than the job needs is not expected to be faster.
            let says = "are taken to be equally fast for this work; `[machine.speed]` in the job file would say otherwise";
            return (models.len() > 1).then(|| format!("{} {says}", listed(models.into_iter())));
        }
        let kinds: BTreeSet<(bool, u32, String)> = bought()
            .filter_map(|offer| {
                Some((self.speeds.said(offer).is_some(), offer.gpus, self.kind(offer)?))
            })
            .collect();
        if kinds.len() < 2 {
            return None;
        }
        let of = |known: bool| {
            listed(kinds.iter().filter(|(said, ..)| *said == known).map(|(.., kind)| kind.as_str()))
        };
        let unknown = kinds.iter().any(|(said, ..)| !said);
        let at_1 = if unknown {
            format!(", and 1 on {}, which `[machine.speed]` does not name", of(false))
        } else {
            String::new()
        };
        Some(format!("the speed of this work is taken to be {}{at_1}", of(true)))
    }

    /// `2 x L4`, with its speed if known. `None`: no GPU.
    fn kind(&self, offer: &Offer) -> Option<String> {
        let model = offer.gpu_model.as_deref()?;
        let kind =
            if offer.gpus > 1 { format!("{} x {model}", offer.gpus) } else { model.to_owned() };
        Some(
            self.speeds
                .said(offer)
                .map_or(kind.clone(), |speed| format!("{} on {kind}", figure(speed))),
        )
    }
}

/// The first few, and the number of the others.
fn listed<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    match all.len().saturating_sub(KINDS_MAX) {
        0 => all.join(", "),
        more => format!("{} and {more} more", all[..KINDS_MAX].join(", ")),
    }
}

/// A speed for people, in three digits.
pub(crate) fn figure(speed: f64) -> String {
    let rounded = (speed * 100.0).round() / 100.0;
    if rounded >= 0.1 { rounded.to_string() } else { format!("{speed:.4}") }
}
