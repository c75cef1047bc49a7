//! A controller's memory of the spot pools, and the market of the next machine with `market =
//! "auto"`.
//!
//! ```text
//!   supply, pools ──> policy::market::auto_market ──> take spot | take on-demand | wait a minute
//! ```
//! `market_watch` looks at a running machine.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use tracing::debug;

use crate::controller::clocks::Clocks;
use crate::job::{
    AttemptRecord, MarketChoice, MarketLog, RECORD_FORMAT, Reason, ResolvedSpec, Spec,
};
use crate::jobdir::{self, JobDir, JobDirError, layout};
use crate::market::{CloudKind, Market, Offer, Span, Supply, UsdPerHour};
use crate::policy::market::auto_market::{self, AutoFacts, AutoStep, AutoVerdict, SpotPool};
use crate::policy::market::deadline_choice::{MarketWatch, Others};
use crate::policy::market::pool_history::Pool;
use crate::policy::market::remaining_work;
use crate::policy::market::zones::{self, Zone};
use crate::policy::purchase::fallback_limit::Bound;
use crate::policy::purchase::placement::{self, Ask, Overheads};
use crate::policy::purchase::refusal_backoff;
use crate::ports::{Clock, Store, StoreError, chain};

/// Pools that are read in parallel.
const READS_IN_FLIGHT: usize = 16;

/// How long the records of the pools are used. They change when jobs end.
const POOLS_FRESH: Duration = Duration::from_secs(10 * 60);

/// The changes of the decision in the log: enough for weeks of a job.
const DECISIONS_KEPT: usize = 100;

/// One controller's memory for the market of a job.
#[derive(Clone, Debug, Default)]
pub struct MarketMemory {
    watch: MarketWatch,
    /// The pool that the watch has planned for.
    watched: Option<(String, String)>,
    pools: BTreeMap<(String, String), Pool>,
    /// The value of the other pools at the last look. While a spot machine runs, their prices are
    /// not asked for.
    pub(super) others: Others,
    read: Option<Duration>,
    /// The next look at a running machine, on the steady clock.
    pub(super) next: Duration,
    log: Option<MarketLog>,
}

/// The view of the markets for one job, for `lamp plan`.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    pub verdict: AutoVerdict,
    pub standing: auto_market::WorkState,
    pub pool: Pool,
    /// The price of an hour at this speed: both prices are converted to the slower machine.
    pub spot: UsdPerHour,
    pub on_demand: UsdPerHour,
    /// The part of the spot price for disk and address.
    pub extras: UsdPerHour,
    /// The highest price of a spot hour, at its bid.
    pub spot_most: UsdPerHour,
    pub speed: f64,
}

/// The facts for the choice of the market.
pub(crate) struct Choosing<'a> {
    pub spec: &'a ResolvedSpec,
    pub ask: Ask<'a>,
    pub history: &'a [AttemptRecord],
}

fn key(offer: &Offer) -> (String, String) {
    (offer.zone.to_string(), offer.instance_type.clone())
}

pub(crate) fn of_market(supply: &Supply, market: Market, history: &[AttemptRecord]) -> Supply {
    let mut only = supply.clone();
    only.offers
        .retain(|offer| offer.market == market && !refusal_backoff::lacks_its_role(history, offer));
    only
}

impl MarketMemory {
    pub(super) fn pool(&self, offer: &Offer) -> Pool {
        self.pools
            .get(&key(offer))
            .cloned()
            .unwrap_or_else(|| Pool::new(offer.zone.as_str(), &offer.instance_type))
    }

    /// The cost of starts as a share of an hour of work, in each known pool.
    pub(super) fn overheads(&self, facts: &AutoFacts<'_>) -> Overheads {
        let standing = auto_market::standing(facts);
        let of = |pool: &Pool| standing.start / zones::life_hours(&pool.spells, standing.work_left);
        self.pools.iter().map(|(key, pool)| (key.clone(), of(pool))).collect()
    }

    /// The decision for the best place on the spot market.
    pub(crate) fn choose(&mut self, choosing: &Choosing<'_>) -> (AutoVerdict, Option<Outlook>) {
        let Choosing { spec, ask, history } = choosing;
        let (spots, fulls) = (
            of_market(ask.supply, Market::Spot, history),
            of_market(ask.supply, Market::OnDemand, history),
        );
        let (placed, above_bid) = match placement::place(&Ask { supply: &spots, ..*ask }) {
            Ok(placed) => (Some((placed.offer, placed.bid)), None),
            Err(none) => (None, none.above_bid),
        };
        let speeds = remaining_work::speeds(&spec.spec, history);
        let cheapest_later = |supply: &Supply| {
            let ask = Ask { supply, ..*ask };
            let bound = Bound::of(&ask);
            let later = supply.offers.iter().filter(|offer| ask.fits_later(&bound, offer));
            later.min_by_key(|offer| offer.hourly().times(1.0 / speeds.of(offer))).cloned()
        };
        let there = placed.is_some();
        let (spot, bid) = placed
            .map_or_else(|| (cheapest_later(&spots), None), |(offer, bid)| (Some(offer), bid));
        let spot_most = spot.as_ref().map(|offer| offer.hourly_at_most(bid));
        let on_demand =
            placement::place(&Ask { supply: &fulls, ..*ask }).ok().map(|placed| placed.offer);
        // If on-demand was just refused, its price is still known.
        let on_demand = on_demand.or_else(|| cheapest_later(&fulls));
        // The slower machine counts: the deadline must hold on both.
        let speed = spot
            .iter()
            .chain(&on_demand)
            .map(|offer| speeds.of(offer))
            .reduce(f64::min)
            .unwrap_or(1.0);
        let on_demand = on_demand.map(|offer| offer.hourly().times(speed / speeds.of(&offer)));
        let spot_most =
            spot_most.zip(spot.as_ref()).map(|(most, offer)| most.times(speed / speeds.of(offer)));
        let extras = spot
            .as_ref()
            .map_or(UsdPerHour::ZERO, |offer| offer.extras.times(speed / speeds.of(offer)));
        let facts = AutoFacts {
            spec: &spec.spec,
            history,
            running: None,
            more_time: ask.more_time,
            spot: None,
            on_demand,
            speed,
            now: ask.now,
        };
        let pool = spot.as_ref().map(|offer| self.pool(offer));
        let seen = spot.as_ref().zip(pool.as_ref()).map(|(offer, pool)| {
            self.beside(&Ask { supply: &spots, ..*ask }, &facts, offer, pool, there)
        });
        let facts = AutoFacts { spot: seen, ..facts };
        let mut verdict = self.judge(&facts);
        if let (AutoStep::Wait, Some(offer)) = (verdict.step, above_bid) {
            verdict.reason.text.push_str(&format!(
                "; {} costs {} now, more than its bid",
                offer.describe(),
                offer.price
            ));
        }
        let standing = auto_market::standing(&facts);
        let outlook =
            seen.zip(on_demand).zip(spot_most).map(|((seen, on_demand), spot_most)| Outlook {
                verdict: verdict.clone(),
                standing,
                pool: seen.pool.clone(),
                spot: seen.hourly,
                on_demand,
                extras,
                spot_most,
                speed,
            });
        (verdict, outlook)
    }

    /// A pool, with the value of the other offered pools beside it.
    pub(super) fn beside<'a>(
        &mut self,
        ask: &Ask<'_>,
        facts: &AutoFacts<'_>,
        chosen: &Offer,
        pool: &'a Pool,
        there: bool,
    ) -> SpotPool<'a> {
        let speeds = remaining_work::speeds(facts.spec, facts.history);
        let hourly = |offer: &Offer| offer.hourly().times(facts.speed / speeds.of(offer));
        let cheaper = |offer: &&Offer| facts.on_demand.is_none_or(|full| hourly(offer) < full);
        let bound = Bound::of(ask);
        let offers = ask
            .supply
            .offers
            .iter()
            .filter(|offer| !offer.is_same_pool(chosen) && ask.fits_later(&bound, offer))
            .filter(cheaper);
        let pools: Vec<(Pool, UsdPerHour)> =
            offers.map(|offer| (self.pool(offer), hourly(offer))).collect();
        let rest = pools.iter().map(|(pool, hourly)| {
            let there = pool.spells.seen().unwrap_or_default();
            Zone {
                spells: &pool.spells,
                hourly: *hourly,
                there,
                hours_since_look: pool.hours_since_look(ask.now),
            }
        });
        let work_left = auto_market::standing(facts).work_left;
        self.others = zones::others(&pool.spells, rest.clone(), work_left);
        SpotPool {
            pool,
            hourly: hourly(chosen),
            there,
            others: self.others,
            elsewhere: zones::chance_there(rest, 0.0),
        }
    }

    pub(super) fn judge(&mut self, facts: &AutoFacts<'_>) -> AutoVerdict {
        let pool = facts.spot.map(|spot| (spot.pool.zone.clone(), spot.pool.instance_type.clone()));
        if self.watched != pool {
            (self.watch, self.watched) = (MarketWatch::default(), pool);
        }
        auto_market::judge(&mut self.watch, facts)
    }
}

/// Learns about the spot pools. The job root keeps it, for jobs of every kind.
impl MarketMemory {
    /// The cost of starts as a share of an hour of work, in each offered pool.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn learned_overheads(
        &mut self,
        store: &dyn Store,
        clock: &Clocks,
        spec: &Spec,
        supply: &Supply,
        history: &[AttemptRecord],
        more_time: Span,
    ) -> Result<Overheads, JobDirError> {
        if !supply
            .offers
            .iter()
            .any(|offer| offer.market == Market::Spot && offer.cloud != CloudKind::Local)
        {
            return Ok(Overheads::new());
        }
        self.learn_pools(store, clock.mono(), history).await?;
        let now = clock.now();
        Ok(self.overheads(&AutoFacts {
            spec,
            history,
            running: None,
            more_time,
            spot: None,
            on_demand: None,
            speed: 1.0,
            now,
        }))
    }

    /// Reads the records of the pools, unless that was a moment ago. A launch asks the cloud at the
    /// same time.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn read_pools(
        &mut self,
        store: &dyn Store,
        now: Duration,
    ) -> Result<(), JobDirError> {
        if self.read.is_some_and(|read| now < read + POOLS_FRESH) {
            return Ok(());
        }
        let found = store.list(layout::POOLS).await?;
        let keys =
            found.into_iter().map(|meta| meta.key).filter(|key| layout::pool_of(key).is_some());
        let mut read = stream::iter(keys)
            .map(|key| async move { (store.get(&key).await, key) })
            .buffered(READS_IN_FLIGHT);
        while let Some((bytes, key)) = read.next().await {
            // Unreadable statistics count as none.
            let bytes = match bytes {
                Err(StoreError::Unfit { .. }) => None,
                bytes => bytes?,
            };
            if let Some(pool) = bytes.and_then(|bytes| jobdir::decode::<Pool>(&key, &bytes).ok()) {
                self.pools.insert((pool.zone.clone(), pool.instance_type.clone()), pool);
            }
        }
        self.read = Some(now);
        Ok(())
    }

    /// Reads the records of the pools, and learns from the attempts of the job.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn learn_pools(
        &mut self,
        store: &dyn Store,
        now: Duration,
        history: &[AttemptRecord],
    ) -> Result<(), JobDirError> {
        self.read_pools(store, now).await?;
        let tried = history
            .iter()
            .map(|record| &record.plan.offer)
            .filter(|offer| offer.cloud != CloudKind::Local);
        for offer in
            tried.map(|offer| (key(offer), offer)).collect::<BTreeMap<_, _>>().into_values()
        {
            let mut pool = self.pool(offer);
            if pool.learn(history) {
                let stored = store
                    .put(
                        &layout::pool(&pool.zone, &pool.instance_type),
                        Bytes::from(jobdir::encode(&pool)),
                    )
                    .await;
                if let Err(error) = stored {
                    debug!(
                        "what was learned of {} is not kept: {}",
                        offer.describe(),
                        chain(&error)
                    );
                }
                self.pools.insert(key(offer), pool);
            }
        }
        Ok(())
    }

    /// Whether a look at a running machine is due; then notes when the next one is.
    pub(crate) fn takes_its_look(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + auto_market::LOOK_EVERY;
        }
        is_due
    }

    /// Adds a decision to the log that says something new; gives the log.
    pub(crate) async fn log(&mut self, dir: &JobDir, reason: &Reason, by: &str) -> &MarketLog {
        if self.log.is_none() {
            self.log = dir.market().await.ok().flatten();
        }
        let log = self.log.get_or_insert_with(|| MarketLog {
            format: RECORD_FORMAT,
            at: reason.at,
            by: by.to_owned(),
            decisions: Vec::new(),
        });
        (log.at, log.by) = (reason.at, by.to_owned());
        match log.decisions.last_mut() {
            // The same decision again, with new numbers.
            Some(last) if last.verdict == reason.verdict => *last = reason.clone(),
            _ => log.decisions.push(reason.clone()),
        }
        let old = log.decisions.len().saturating_sub(DECISIONS_KEPT);
        log.decisions.drain(..old);
        log
    }
}

/// Whether the controller chooses the market of a job. A workstation has only one.
pub(crate) fn asks(spec: &ResolvedSpec) -> bool {
    spec.spec.machine.market == MarketChoice::Auto && spec.spec.machine.cloud != CloudKind::Local
}
