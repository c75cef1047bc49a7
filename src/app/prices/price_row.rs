//! The prices of each machine type in each zone, with the bid of a rule and how it would have held.
//!
//! Not here: asking EC2 (`wire`), tables and plots (the faces).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::market::{Market, Offer, PriceHistory, PriceRule, Region, Supply, UsdPerHour, Zone};
use crate::policy::purchase::bid::{self, NoBid};
use crate::policy::purchase::bid_backtest::{Backtest, backtest};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PriceRow {
    pub instance_type: String,
    pub region: Region,
    pub zone: Zone,
    pub gpus: u32,
    pub gpu_model: Option<String>,
    pub gpu_memory_mib: Option<u64>,
    pub vcpus: u32,
    pub on_demand: Option<UsdPerHour>,
    pub spot: Option<UsdPerHour>,
    pub ratio: Option<f64>,
    pub bid: Option<UsdPerHour>,
    pub no_bid: Option<&'static str>,
    pub share_above: Option<f64>,
    pub crossings: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backtest: Option<Backtest>,
}

impl PriceRow {
    pub fn is_of(&self, history: &PriceHistory) -> bool {
        self.zone == history.zone && self.instance_type == history.instance_type
    }

    pub fn gpu_text(&self) -> String {
        match &self.gpu_model {
            None => "none".into(),
            Some(model) if self.gpus == 0 => format!("part of a {model}"),
            Some(model) => format!("{} x {model}", self.gpus),
        }
    }
}

/// Cheapest spot first; rows without a spot price follow, cheapest on demand first.
pub fn rows(
    supply: &Supply,
    rule: PriceRule,
    from: Timestamp,
    now: Timestamp,
    with_backtest: bool,
) -> Vec<PriceRow> {
    let mut pools: BTreeMap<(&str, &Zone), Vec<&Offer>> = BTreeMap::new();
    for offer in &supply.offers {
        pools.entry((&offer.instance_type, &offer.zone)).or_default().push(offer);
    }
    let mut rows: Vec<PriceRow> = pools
        .into_values()
        .map(|offers| row(supply, &offers, rule, from, now, with_backtest))
        .collect();
    rows.sort_by_key(|row| (row.spot.is_none(), row.spot, row.on_demand.is_none(), row.on_demand));
    rows
}

fn row(
    supply: &Supply,
    offers: &[&Offer],
    rule: PriceRule,
    from: Timestamp,
    now: Timestamp,
    with_backtest: bool,
) -> PriceRow {
    let of = |market: Market| offers.iter().find(|offer| offer.market == market).copied();
    let (first, spot) = (offers[0], of(Market::Spot));
    let on_demand = of(Market::OnDemand).map(|offer| offer.price).or(first.on_demand);
    let history = spot.and_then(|spot| supply.history(spot));
    let bid = spot.map(|spot| bid::bid(rule, spot, history, now));
    let price = bid.as_ref().and_then(|bid| bid.as_ref().ok()).map(|bid| bid.price);
    let in_window = price.zip(history);
    let ratio = spot
        .zip(on_demand)
        .map(|(spot, full)| spot.price.per_hour().dollars() / full.per_hour().dollars());
    PriceRow {
        instance_type: first.instance_type.clone(),
        region: first.region.clone(),
        zone: first.zone.clone(),
        gpus: first.gpus,
        gpu_model: first.gpu_model.clone(),
        gpu_memory_mib: first.gpu_memory_mib,
        vcpus: first.vcpus,
        on_demand,
        spot: spot.map(|spot| spot.price),
        ratio,
        bid: price,
        no_bid: bid.and_then(Result::err).map(|no| why(&no)),
        share_above: in_window.and_then(|(bid, history)| history.share_above(bid, from, now)),
        crossings: in_window.map(|(bid, history)| history.crossings(bid, from, now)),
        backtest: spot
            .zip(history)
            .filter(|_| with_backtest)
            .and_then(|(spot, history)| backtest(rule, spot, history, from, now)),
    }
}

/// The reason, to follow a machine's name; here the rule is a flag.
fn why(no: &NoBid) -> &'static str {
    match no {
        NoBid::OnDemandUnknown => {
            "has no known on-demand price, which the bid would be reckoned from; `--bid 0.65` names one in dollars"
        }
        NoBid::NoHistory => "has no known price history, and the bid is a quantile of it",
    }
}
