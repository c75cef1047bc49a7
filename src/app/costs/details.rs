//! Reads the idle money, lost money and on-demand price of an attempt from its records.
//!
//! ```text
//! cost rows ─> plan and settlement of each attempt (read once) ─> rows with their shares
//! ```
//!
//! Not here: the rows and their sums (`app::view::costs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, StreamExt as _};

use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::overview::overview::Overview;
use crate::app::view::costs::CostRow;
use crate::instance::OWNER_TAG;
use crate::job::{AttemptNo, JobId, Plan, Settled};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Market, UsdPerHour, elapsed};
use crate::wire::StoreHandle;

/// The known facts of one attempt.
#[derive(Clone, Debug, Default, PartialEq)]
struct AttemptCosts {
    region: Option<String>,
    owner: Option<String>,
    tags: BTreeMap<String, String>,
    /// With disk and address. `None`: the plan has no price on demand.
    on_demand: Option<UsdPerHour>,
    /// The idle share of the billed time, 0 to 1.
    idle: Option<f64>,
    /// The share of the billed time with work that an interruption lost.
    lost: Option<f64>,
    is_settled: bool,
}

type AttemptKey = (String, u32);

/// Fills the shares of cost rows. The records of a settled attempt never change, so each is read
/// once.
#[derive(Default)]
pub struct CostReader {
    known: Mutex<BTreeMap<AttemptKey, Arc<AttemptCosts>>>,
}

impl CostReader {
    /// The rows of an overview with their shares.
    pub async fn rows(&self, store: &StoreHandle, overview: &Overview) -> Vec<CostRow> {
        let mut rows = overview.costs.clone();
        self.fill(store, &mut rows).await;
        rows
    }

    /// An unreadable record leaves its rows without shares.
    async fn fill(&self, store: &StoreHandle, rows: &mut [CostRow]) {
        let wanted: BTreeSet<AttemptKey> = rows.iter().map(key).collect();
        let missing: Vec<AttemptKey> =
            wanted.into_iter().filter(|key| !self.known().contains_key(key)).collect();
        let read: Vec<(AttemptKey, AttemptCosts)> = stream::iter(missing)
            .map(|key| async move { read(store, &key).await.map(|costs| (key, costs)) })
            .buffer_unordered(READS_IN_FLIGHT)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let mut new = BTreeMap::new();
        for (key, costs) in read {
            let costs = Arc::new(costs);
            if costs.is_settled {
                self.known().insert(key.clone(), Arc::clone(&costs));
            }
            new.insert(key, costs);
        }
        for row in rows {
            let key = key(row);
            let found = new.get(&key).cloned().or_else(|| self.known().get(&key).cloned());
            if let Some(costs) = found {
                fill_row(row, &costs);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, Arc<AttemptCosts>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(row: &CostRow) -> AttemptKey {
    (row.job.clone(), row.attempt)
}

async fn read(store: &StoreHandle, key: &AttemptKey) -> Option<AttemptCosts> {
    let job: JobId = key.0.parse().ok()?;
    let dir = JobDir::new(Arc::clone(store), job);
    let attempt = AttemptNo::new(key.1);
    let both: Result<_, JobDirError> = tokio::try_join!(dir.plan(attempt), dir.settled(attempt));
    let (plan, settled) = both.ok()?;
    Some(attempt_costs(plan.as_ref(), settled.as_ref()))
}

fn attempt_costs(plan: Option<&Plan>, settled: Option<&Settled>) -> AttemptCosts {
    AttemptCosts {
        region: plan.map(|plan| plan.offer.region.to_string()),
        owner: plan.and_then(|plan| plan.tags.get(OWNER_TAG).cloned()),
        tags: plan.map(Plan::user_tags).unwrap_or_default(),
        on_demand: plan.and_then(on_demand),
        idle: settled.and_then(Settled::idle_share),
        lost: settled.and_then(Settled::lost_share),
        is_settled: settled.is_some(),
    }
}

/// An hour of the same machine on demand.
fn on_demand(plan: &Plan) -> Option<UsdPerHour> {
    let offer = &plan.offer;
    let price = match offer.market {
        Market::OnDemand => Some(offer.price),
        Market::Spot => offer.on_demand,
    };
    price.map(|price| offer.hourly_at(price))
}

fn fill_row(row: &mut CostRow, costs: &AttemptCosts) {
    if !row.is_under_way {
        row.idle_usd = costs.idle.map(|share| row.usd.part(share));
        row.lost_usd = costs.lost.map(|share| row.usd.part(share));
    }
    row.region = row.region.take().or_else(|| costs.region.clone());
    row.owner = row.owner.take().or_else(|| costs.owner.clone());
    row.tags.clone_from(&costs.tags);
    // A row of an unfinished job holds all its attempts, and the time between them.
    let is_one_attempt = !row.is_under_way || row.attempt == 1;
    row.on_demand_usd =
        costs.on_demand.filter(|_| is_one_attempt).map(|hour| match row.market.as_str() {
            "on-demand" => row.usd,
            _ => hour.cost_of(elapsed(row.from, row.to)),
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(because: &str, useful: u64, saved: u64, idle: u64) -> Settled {
        let text = include_str!("../../../tests/data/v1/settled.json");
        let mut value: serde_json::Value = serde_json::from_str(text).expect("a settlement");
        value["because"] = because.into();
        value["billed"] = "1000s".into();
        let outcome = &mut value["outcome"];
        assert!(outcome.is_object(), "the record has an outcome");
        outcome["useful"] = format!("{useful}s").into();
        outcome["saved"] = format!("{saved}s").into();
        outcome["idle"] = format!("{idle}s").into();
        serde_json::from_value(value).expect("a settlement")
    }

    #[test]
    fn interruption_loses_the_work_that_no_checkpoint_holds() {
        let costs = attempt_costs(None, Some(&settled("interrupted", 800, 500, 100)));
        assert_eq!((costs.lost, costs.idle), (Some(0.3), Some(0.1)));
        let stopped = attempt_costs(None, Some(&settled("user_stopped", 800, 500, 100)));
        assert_eq!(stopped.lost, Some(0.0), "no interruption took it");
        let mut silent = settled("lost", 800, 500, 100);
        silent.outcome = None;
        let silent = attempt_costs(None, Some(&silent));
        assert_eq!((silent.lost, silent.idle), (None, None), "unknown, and not zero");
    }
}
