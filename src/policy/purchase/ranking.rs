//! What an offer comes to for one job: what an hour of its work costs there, and the rest of it.
//!
//! ```text
//!   hourly x (1 + starts) / speed ──> an hour of work ── x work left ──> what it takes to finish
//! ```
//! The order of offers goes by the second where the job says how much work it is, since a start costs more on a fast machine than
//! on a slow one; else by the first, which is always known. What must never live here: a refusal (`placement`), the market
//! (`market::deadline_choice`).

use std::collections::BTreeSet;

use serde::Serialize;

use super::placement::Ask;
use crate::market::{Cloud, Market, Offer, Span, Speeds, Usd};
use crate::policy::market::auto_market::reckoned_start_hours;
use crate::policy::market::pool_history::start_of;
use crate::policy::market::remaining_work;

/// One offer that fits, in its place; the field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    pub instance_type: String,
    pub zone: String,
    pub market: Market,
    pub speed: f64,
    /// Somebody has said so, or an attempt has measured it.
    pub speed_known: bool,
    pub usd_per_hour_of_work: f64,
    /// `null`: nobody has said how much work it is.
    pub usd_to_finish: Option<Usd>,
}

/// By what offers are ranked.
pub(crate) struct Rates<'a> {
    ask: &'a Ask<'a>,
    speeds: Speeds,
    /// On a machine of speed 1.
    hours_left: Option<f64>,
    /// Of the longest start that was seen of this job.
    start_hours: f64,
}

/// So many kinds of GPUs are named in a sentence.
const KINDS_MAX: usize = 5;

impl<'a> Rates<'a> {
    pub(crate) fn of(ask: &'a Ask<'a>) -> Self {
        let speeds = remaining_work::speeds(ask.spec, ask.history);
        let left = remaining_work::left(ask.spec, &speeds, ask.history, None);
        let start = ask.history.iter().filter_map(start_of).max();
        Rates { ask, speeds, hours_left: left.map(|left| left.as_secs_f64() / 3600.0), start_hours: reckoned_start_hours(start) }
    }

    pub(crate) fn speed(&self, offer: &Offer) -> f64 {
        self.speeds.of(offer)
    }

    /// What starts add to an hour on such a machine.
    fn overhead(&self, offer: &Offer) -> f64 {
        let key = (offer.zone.to_string(), offer.instance_type.clone());
        if offer.market == Market::Spot { self.ask.overheads.get(&key).copied().unwrap_or(0.0) } else { 0.0 }
    }

    /// What an hour of work costs without what starts add.
    pub(crate) fn plain(&self, offer: &Offer) -> f64 {
        offer.hourly().per_hour().dollars() / self.speed(offer)
    }

    /// What an hour of work costs: its part of the machine's hour, and of the starts.
    pub(crate) fn usd_per_work(&self, offer: &Offer) -> f64 {
        self.plain(offer) * (1.0 + self.overhead(offer))
    }

    /// What the rest of the job is expected to cost there in dollars, from the next start on.
    fn rest(&self, offer: &Offer) -> Option<f64> {
        let work = self.hours_left? / self.speed(offer);
        let start = if offer.cloud == Cloud::Local { 0.0 } else { self.start_hours };
        let hours = work + (work * self.overhead(offer)).max(start);
        Some(offer.hourly().per_hour().dollars() * hours)
    }

    fn to_finish(&self, offer: &Offer) -> Option<Usd> {
        Usd::from_dollars(self.rest(offer)?).ok()
    }

    /// Whether the rest of the job is what offers are ranked by. Where nobody has said how much work it is, and all kinds are alike, a
    /// start is the same on each of them, and changes nothing. Of a job that works longer than it said, nobody knows for how long still.
    pub(crate) fn by_the_rest(&self) -> bool {
        self.hours_left.is_some_and(|left| left > 0.0) && (self.ask.spec.limits.work.is_some() || !self.speeds.is_empty())
    }

    /// What offers are ranked by, the least first: what it takes to finish, and then an hour of work.
    pub(crate) fn rank(&self, offer: &Offer) -> (f64, f64) {
        let an_hour = self.usd_per_work(offer);
        (self.rest(offer).filter(|_| self.by_the_rest()).unwrap_or(an_hour), an_hour)
    }

    /// Whether an hour of work is cheaper there than on the best, and what a start costs there is more than that saves.
    pub(crate) fn is_outweighed(&self, other: &Offer, best: &Offer) -> bool {
        self.by_the_rest() && self.usd_per_work(other) < self.usd_per_work(best)
    }

    /// Whether the rest of the job costs no more on one of two offers, as far as that is known.
    pub(crate) fn finishes_for_no_more(&self, offer: &Offer, than: &Offer) -> bool {
        self.by_the_rest() && self.rest(offer).zip(self.rest(than)).is_some_and(|(here, there)| here <= there)
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

    /// What the rest costs on the best; of a job whose market is chosen by itself a forecast says more.
    pub(crate) fn expectation(&self, best: &Offer) -> Option<String> {
        let (usd, hours) = (self.to_finish(best)?, self.hours_left?);
        let hours = Span::from_secs((hours / self.speed(best) * 60.0).round() as u64 * 60);
        let start = match (best.cloud, best.market) {
            (Cloud::Local, _) => "",
            (_, Market::OnDemand) => ", a start included",
            (_, Market::Spot) => ", a start included; each interruption adds one, and what was not saved (`lamp simulate` plays them)",
        };
        (usd > Usd::ZERO).then(|| format!("expected to cost {usd} to finish: {hours} of work there{start}"))
    }

    /// How fast the kinds of GPUs that compete are taken to be, where there are several.
    pub(crate) fn about_speeds(&self, fitting: &[&Offer]) -> Option<String> {
        let bought = || fitting.iter().filter(|offer| offer.cloud != Cloud::Local);
        if !self.speeds.is_empty() && bought().next().is_some() && bought().all(|offer| self.speeds.said(offer).is_none()) {
            let named: Vec<&str> = self.speeds.iter().map(|(name, _)| name).take(KINDS_MAX).collect();
            return Some(format!("`machine.speed` names {}, and nothing that fits is of these", named.join(", ")));
        }
        let models: BTreeSet<&str> = bought().filter_map(|offer| offer.gpu_model.as_deref()).collect();
        if self.speeds.is_empty() {
            // Of one model with more GPUs than the job asks for, nobody expects more.
            let says = "are taken to be equally fast for this work; `[machine.speed]` in the job file would say otherwise";
            return (models.len() > 1).then(|| format!("{} {says}", listed(models.into_iter())));
        }
        let kinds: BTreeSet<(bool, u32, String)> =
            bought().filter_map(|offer| Some((self.speeds.said(offer).is_some(), offer.gpus, self.kind(offer)?))).collect();
        if kinds.len() < 2 {
            return None;
        }
        let of = |known: bool| listed(kinds.iter().filter(|(said, ..)| *said == known).map(|(.., kind)| kind.as_str()));
        let unknown = kinds.iter().any(|(said, ..)| !said);
        let at_1 = if unknown { format!(", and 1 on {}, which `[machine.speed]` does not name", of(false)) } else { String::new() };
        Some(format!("the speed of this work is taken to be {}{at_1}", of(true)))
    }

    /// `2 x L4`; with its speed, where that is known. `None`: no GPU.
    fn kind(&self, offer: &Offer) -> Option<String> {
        let model = offer.gpu_model.as_deref()?;
        let kind = if offer.gpus > 1 { format!("{} x {model}", offer.gpus) } else { model.to_owned() };
        Some(self.speeds.said(offer).map_or(kind.clone(), |speed| format!("{} on {kind}", figure(speed))))
    }
}

/// The first of them, and how many there are beside.
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
