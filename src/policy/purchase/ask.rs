//! The facts of a purchase: the job, the offers of the clouds, and the money left.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::bid::Bid;
use super::hard_end::HardEndTerms;
use crate::job::{AttemptRecord, Spec};
use crate::market::{FallbackCost, Market, Offer, Span, Supply, Usd};
use crate::policy::gang::rank_launch::machines_of_launch;

#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub spec: &'a Spec,
    pub supply: &'a Supply,
    /// Earlier attempts: recently refused pools are skipped.
    pub history: &'a [AttemptRecord],
    pub budget_left: Option<Usd>,
    /// The users' extensions so far.
    pub more_time: Span,
    /// The cost of starts as a share of an hour's price, if known, by zone and type.
    pub overheads: &'a Overheads,
    /// The preferred market at any cost; the other is the fallback.
    pub prefers: Option<Market>,
    /// The users' later permission, beside `fallback_cost`.
    pub widened: Option<FallbackCost>,
    pub now: Timestamp,
}

/// For spot pools, by zone and type.
pub type Overheads = BTreeMap<(String, String), f64>;

impl<'a> Ask<'a> {
    pub(crate) fn has_quota(&self, offer: &Offer) -> bool {
        self.supply.quota(offer).is_none_or(|quota| quota.vcpus_left() >= self.vcpus(offer))
    }

    /// The vCPUs of all machines that the launch buys.
    pub(crate) fn vcpus(&self, offer: &Offer) -> u32 {
        offer.vcpus.saturating_mul(machines_of_launch(self.spec, self.history))
    }

    pub(crate) fn terms(&self, offer: &'a Offer, bid: Option<&Bid>) -> HardEndTerms<'a> {
        let (bid, budget_left, more_time) =
            (bid.map(|bid| bid.price), self.budget_left, self.more_time);
        HardEndTerms { spec: self.spec, offer, bid, budget_left, more_time, now: self.now }
    }
}
