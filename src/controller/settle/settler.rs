//! Settles attempts and writes receipts.
//!
//! ```text
//!   Act::Settle ──> Cloud::spot_prices, if they move ──> policy::billing ──> settled.json
//!   Act::WriteReceipt ──> the leftovers in the cloud ──> receipt.json
//! ```
//! A settled record is written once, and the next attempt and the receipt wait for it. So the
//! prices are asked for once. Without an answer the record has the highest possible cost, as an
//! estimate.

use std::sync::Arc;

use tracing::{debug, info, warn};

use crate::controller::act_result::{ActEffect, ActError};
use crate::controller::clocks::Clocks;
use crate::controller::clouds::Clouds;
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::{Observed, is_still_there};
use crate::instance::MachineRef;
use crate::job::{AttemptNo, Plan, Receipt, Settled};
use crate::jobdir::JobDir;
use crate::market::{self, PriceHistory};
use crate::policy::billing::billed_cost;
use crate::policy::billing::settlement::has_lain;
use crate::policy::lifecycle::reconcile::history;
use crate::ports::{Clock, Created, Store, chain};

/// Ends machines, settles their attempts, and looks at what ended jobs keep.
pub struct Settler {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: Clouds,
    pub(super) clock: Clocks,
    /// For people: the author of a record.
    pub(super) name: String,
}

impl Settler {
    pub fn new(store: &Arc<dyn Store>, clouds: &Clouds, clock: &Clocks, name: &str) -> Self {
        let (store, clouds, clock, name) =
            (Arc::clone(store), clouds.clone(), clock.clone(), name.to_owned());
        Settler { store, clouds, clock, name }
    }

    /// Writes the end of an attempt and its cost.
    pub(crate) async fn settle(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        observed: &Observed,
        settled: &Settled,
    ) -> Result<ActEffect, ActError> {
        // With a clock that is a day ahead, a new plan looks too old, while another controller
        // starts its machine.
        if has_lain(settled) {
            self.clock.must_be_right().await?;
        }
        let settled = self.by_prices(observed, settled).await;
        let created = dir.create_settled(&settled).await?;
        info!(job = %dir.job(), attempt = settled.attempt.number(), because = %settled.because, usd = %settled.usd, ?created, "settled");
        if created == Created::New {
            let attempt = memory.attempts.entry(settled.attempt).or_default();
            (attempt.settled, attempt.settled_since) =
                (Some(settled.clone().into()), Some(self.clock.mono()));
        }
        self.release(memory, &settled).await;
        Ok(ActEffect::Recorded)
    }

    /// A settled attempt with the cost at the real prices.
    async fn by_prices(&self, observed: &Observed, settled: &Settled) -> Settled {
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
        match self.clouds.spot_prices(&plan.offer, from, &self.clock).await {
            Ok(prices) => Some(prices),
            Err(error) => {
                let attempt = plan.attempt.number();
                warn!(job = %plan.job, attempt, "the cost of the spot machine is not known, so its bid counts: {error}");
                None
            }
        }
    }

    /// Deletes what was kept of a machine only to settle it. A failure does no harm.
    async fn release(&self, memory: &JobMemory, settled: &Settled) {
        let plan = memory.attempts.get(&settled.attempt).and_then(|attempt| attempt.plan.as_ref());
        let (Some(plan), Some(id)) = (plan, &settled.instance) else { return };
        let machine = MachineRef {
            cloud: plan.offer.cloud,
            region: plan.offer.region.clone(),
            id: id.clone(),
        };
        let released = match self.clouds.get(machine.cloud) {
            Ok(cloud) => cloud.release(&machine).await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            warn!(%machine, "cannot clear what is left of the machine: {error}");
        }
    }

    /// Writes the receipt, with the job's leftovers.
    pub(crate) async fn write_receipt(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        observed: &Observed,
        receipt: &Receipt,
    ) -> Result<ActEffect, ActError> {
        if !is_still_there(dir, memory).await? {
            return Ok(ActEffect::Waiting);
        }
        // The list of attempts may be late: another controller may have planned one more.
        let next =
            observed.attempts.last().map_or(AttemptNo::FIRST, |last| last.plan.attempt.next());
        if dir.plan(next).await?.is_some() {
            return Ok(ActEffect::Waiting);
        }
        // Asked once: during an outage of the store it must not be asked at every tick.
        let leavings = match memory.leavings.take() {
            Some(known) => known,
            None => {
                let leavings = self.leave_nothing(dir.job(), observed).await;
                self.learn_from_end(memory, observed).await;
                leavings
            }
        };
        let receipt = leavings.on(receipt);
        memory.leavings = Some(leavings);
        if dir.plan(next).await?.is_some() {
            return Ok(ActEffect::Waiting);
        }
        let created = dir.create_receipt(&receipt).await?;
        info!(job = %dir.job(), outcome = %receipt.outcome, total = %receipt.total_usd, ?created, "{}", receipt.reason);
        self.clouds.all().for_each(|(_, cloud)| cloud.settled(dir.job()));
        Ok(ActEffect::Final)
    }

    /// Learns about the pools from the last attempt. No decision depends on it.
    async fn learn_from_end(&self, memory: &mut JobMemory, observed: &Observed) {
        let history = history(&observed.attempts);
        if history.iter().all(|record| record.plan.offer.cloud == market::CloudKind::Local) {
            return;
        }
        let learned = memory.market().learn_pools(&*self.store, self.clock.mono(), &history).await;
        if let Err(error) = learned {
            debug!("what the job taught of its pools is not kept: {}", chain(&error));
        }
    }
}
