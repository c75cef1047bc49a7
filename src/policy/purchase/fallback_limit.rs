//! Which fallback machines may be bought without asking, and which are too expensive.
//!
//! ```text
//!   all suitable offers, now or later ──> on each market, the cheapest hour of work ─┐
//!   an offer ──> its hour of work, as a factor of that ─────────────────────────────┴─> allowed?
//! ```
//! The cheapest counts even without capacity, above its quota or above its bid, so that scarcity
//! does not raise the limit. If a type is no longer offered, earlier plans for it count at their
//! old prices. Each market has its own cheapest offer, because the job file allows both markets; so
//! has each named type. A spot price in dollars replaces this limit.
//!
//! The cost of starts is left out: it grows while a pool is empty, and would make expensive
//! machines look cheap.
//!
//! `placement` has the other conditions, `ranking` the price of an hour of work.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::Ask;
use super::bid;
use super::hard_end::HardEndTerms;
use super::ranking::{RankingInputs, figure};
use crate::market::{CloudKind, FallbackCost, Market, Offer, PriceRule};

pub struct Bound<'a> {
    ask: &'a Ask<'a>,
    pub(crate) rates: RankingInputs<'a>,
    cost: FallbackCost,
    /// By market; separately for each type that the job file names.
    cheapest: BTreeMap<(Market, Option<&'a str>), (f64, &'a Offer)>,
}

/// A suitable offer that is too expensive to buy without asking.
#[derive(Clone, Debug, PartialEq)]
pub struct TooDear {
    pub offer: Offer,
    pub times: f64,
    /// The offer that costs `times` less.
    pub than: Offer,
    /// The limit that it exceeds.
    pub bound: FallbackCost,
}

impl<'a> Bound<'a> {
    pub fn of(ask: &'a Ask<'a>) -> Self {
        let rates = RankingInputs::of(ask);
        let would_do = |offer: &&Offer| {
            offer.cloud != CloudKind::Local && offer.gpus >= ask.spec.machine.gpus.count
        };
        let kind = |offer: &'a Offer| (offer.instance_type.as_str(), offer.market);
        let today = || ask.supply.offers.iter().filter(would_do);
        let sold: BTreeSet<(&str, Market)> = today().map(kind).collect();
        let before = ask
            .history
            .iter()
            .map(|record| &record.plan.offer)
            .filter(would_do)
            .filter(|offer| !sold.contains(&kind(offer)));
        let mut cheapest: BTreeMap<(Market, Option<&str>), (f64, &Offer)> = BTreeMap::new();
        for offer in today().chain(before) {
            let usd = rates.plain(offer);
            let known = cheapest.entry((offer.market, named(ask, offer))).or_insert((usd, offer));
            if usd < known.0 {
                *known = (usd, offer);
            }
        }
        let cost = ask.spec.machine.fallback_cost.widened(ask.widened);
        Bound { ask, rates, cost, cheapest }
    }

    /// `None`: it may be bought.
    pub fn too_dear(&self, offer: &Offer) -> Option<TooDear> {
        let is_priced = offer.market == Market::Spot
            && matches!(self.ask.spec.machine.max_price, PriceRule::Fixed(_));
        if offer.cloud == CloudKind::Local || is_priced {
            return None;
        }
        let (usd, than) = self
            .cheapest
            .get(&(offer.market, named(self.ask, offer)))
            .filter(|(usd, _)| *usd > 0.0)?;
        // One start on the fast machine may cost more than all the work on the slow one.
        if self.rates.finishes_for_no_more(offer, than) {
            return None;
        }
        let times = self.rates.plain(offer) / usd;
        (!self.cost.allows(times)).then(|| TooDear {
            offer: offer.clone(),
            times,
            than: (*than).clone(),
            bound: self.cost,
        })
    }
}

/// The type of an offer, if the job file names it.
fn named<'b>(ask: &Ask<'_>, offer: &'b Offer) -> Option<&'b str> {
    let names = &ask.spec.machine.instance_types;
    names.contains(&offer.instance_type).then_some(offer.instance_type.as_str())
}

impl TooDear {
    /// The limit that would allow it.
    pub fn enough(&self) -> FallbackCost {
        FallbackCost::enough_for(self.times)
    }

    /// Why it is not taken, to follow its name.
    pub(crate) fn because(&self) -> String {
        format!(
            "costs {}; `fallback_cost = {}` would allow it",
            self.times_as_much(),
            self.enough()
        )
    }

    fn times_as_much(&self) -> String {
        let Offer { instance_type, zone, .. } = &self.than;
        let than = if *instance_type == self.offer.instance_type {
            format!("in {zone}")
        } else {
            format!("{instance_type} in {zone}")
        };
        format!("{} times as much as {than} for an hour of work", figure(self.times))
    }

    /// Why the cheapest such machine was not bought, for a user who may accept it.
    pub fn sentence(&self) -> String {
        let (name, price) = (self.offer.describe(), self.offer.price);
        format!(
            "{name}, at {price}, costs {}, and at most {} times is bought without a word",
            self.times_as_much(),
            self.bound
        )
    }
}

impl<'a> Ask<'a> {
    /// Whether the offer may be bought later: its quota, its price and the job's limits allow it.
    pub fn fits_later(&self, bound: &Bound<'_>, offer: &Offer) -> bool {
        offer.gpus >= self.spec.machine.gpus.count
            && (offer.cloud == CloudKind::Local || self.terms(offer, None).hard_end().is_some())
            && self.has_quota(offer)
            && self.terms_later(offer).check().is_ok()
            && self.bid_reaches(offer)
            && bound.too_dear(offer).is_none()
    }

    /// At the lowest price then: at most the highest bid.
    fn terms_later(&self, offer: &'a Offer) -> HardEndTerms<'a> {
        let most = bid::most_ever(self.spec.machine.max_price, offer)
            .filter(|_| offer.market == Market::Spot && offer.cloud != CloudKind::Local);
        HardEndTerms { bid: most.map(|most| most.min(offer.price)), ..self.terms(offer, None) }
    }

    /// Whether the price may fall to the bid: it is there now, was in the window, or is unknown.
    fn bid_reaches(&self, offer: &Offer) -> bool {
        if offer.market == Market::OnDemand || offer.cloud == CloudKind::Local {
            return true;
        }
        let bid =
            bid::bid(self.spec.machine.max_price, offer, self.supply.history(offer), self.now);
        bid.is_ok_and(|bid| {
            bid.price >= offer.price || bid.share_above.is_none_or(|above| above < 1.0)
        })
    }
}
