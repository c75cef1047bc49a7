//! The bill of the simulated EC2 for a machine. Receipts are compared with it.
//!
//! Not here: how the product computes it (`policy::billing::billed_cost`).

use std::time::Duration;

use super::machines::SimMachine;
use super::world::Which;
use crate::market::{Market, Usd, UsdPerHour, elapsed};
use crate::sim::kernel::virtual_time::at;

/// How long a machine ran for one attempt, and its cost.
pub struct Bill {
    pub attempt: Which,
    pub usd: Usd,
    pub ran: Duration,
    pub ended: Duration,
}

impl SimMachine {
    /// The bill for one attempt on it, and when that ended. A kept machine has several attempts.
    pub fn bill(&self, attempt: Which, now: Duration) -> Option<(Usd, Option<Duration>)> {
        if self.attempt() == Some(attempt) {
            return Some((self.cost_of_this(now), self.ended));
        }
        self.before
            .iter()
            .find(|bill| bill.attempt == attempt)
            .map(|bill| (bill.usd, Some(bill.ended)))
    }

    /// The bill for all its attempts.
    pub fn cost(&self, now: Duration) -> Usd {
        self.cost_of_this(now) + self.before.iter().map(|bill| bill.usd).sum::<Usd>()
    }

    /// The bill since its launch or last start, by EC2's own rules.
    pub(crate) fn cost_of_this(&self, now: Duration) -> Usd {
        let ran = self.ended.unwrap_or(now).saturating_sub(self.launched);
        // In whole milliseconds, as in the records of both sides.
        let ran = elapsed(at(self.launched), at(self.launched + ran)).max(Duration::from_secs(60));
        let free =
            self.taken && self.offer.market == Market::Spot && ran < Duration::from_secs(3600);
        if free { self.offer.extras.cost_of(ran) } else { self.hours_cost(ran) }
    }

    /// By the prices of that time, none above its bid: EC2 takes the machine then, and does not
    /// bill it.
    fn hours_cost(&self, ran: Duration) -> Usd {
        let host = self.host.as_ref();
        let moving = host
            .and_then(|host| host.world.sold.moving_prices(&self.offer, host.world.timeline.now()));
        let Some(steps) = moving.and_then(|prices| prices.steps(at(self.launched), ran)) else {
            return self.offer.hourly().cost_of(ran);
        };
        let bid = host.and_then(|host| host.plan.bid).or(self.offer.on_demand);
        let paid =
            |price: UsdPerHour| self.offer.hourly_at(bid.map_or(price, |bid| price.min(bid)));
        UsdPerHour::cost_of_steps(steps.into_iter().map(|(price, held)| (paid(price), held)))
    }

    /// How long it has been billed.
    pub fn ran(&self, now: Duration) -> Duration {
        let before: Duration = self.before.iter().map(|bill| bill.ran).sum();
        before + self.ended.unwrap_or(now).saturating_sub(self.launched)
    }

    /// The cloud itself ended it.
    pub fn was_taken(&self) -> bool {
        self.taken
    }
}
