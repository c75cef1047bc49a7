//! What a spot machine was billed by: the prices of its time, asked for once, as it is settled.
//!
//! ```text
//!   Act::Settle ──> policy::billing::billed_cost: does its price move? ──> Cloud::spot_prices ──> policy::billing::billed_cost ──> settled.json
//! ```
//! A settled record is written once, and the next attempt and the receipt wait for it: who gets no
//! answer does not ask again, and the record says the most that it can have cost, as an estimate.
//! Not here: arithmetic.

use std::time::Duration;

use tracing::warn;

use crate::controller::drive::Controller;
use crate::controller::observe::Observed;
use crate::job::{Plan, Settled};
use crate::market::PriceHistory;
use crate::policy::billing::billed_cost;

/// One page of rows comes within a second; the AWS calls repeat what is lost by themselves, and
/// this leaves them room for it. The next machine waits meanwhile.
pub(crate) const PRICES_WITHIN: Duration = Duration::from_secs(30);

impl Controller {
    /// A settled attempt as it was billed.
    pub(crate) async fn by_prices(&self, observed: &Observed, settled: &Settled) -> Settled {
        let Some(facts) =
            observed.attempts.iter().find(|facts| facts.plan.attempt == settled.attempt)
        else {
            return settled.clone();
        };
        let prices = self.prices(&facts.plan, settled).await;
        billed_cost::by_prices(&facts.plan, settled, prices.as_ref())
    }

    async fn prices(&self, plan: &Plan, settled: &Settled) -> Option<PriceHistory> {
        let from = billed_cost::moves_since(plan, settled)?;
        let asked = async { self.cloud(plan.offer.cloud)?.spot_prices(&plan.offer, from).await };
        match self.within(PRICES_WITHIN, asked).await {
            Ok(prices) => Some(prices),
            Err(error) => {
                let attempt = plan.attempt.number();
                warn!(job = %plan.job, attempt, "what the spot machine cost is not known, and is reckoned with its bid: {error}");
                None
            }
        }
    }
}
