//! `market = "auto"` in the controller: which market the next machine is of, and when one is left
//! for another.
//!
//! ```text
//!   between attempts: supply, pools ──> policy::market::auto_market ──> take spot | take on-demand | wait (the next look is in a minute)
//!   during one:       heartbeat, pools ──> policy::market::auto_market ──> stay | a request to move, which its agent obeys
//! ```
//! Moving is an intent before an act: the request stands in the job directory, the agent saves and
//! ends, the attempt is settled, and the next one is planned as any other. What was learned of the
//! pools is kept in the job root, and serves jobs of every kind on the spot market. Not here: the
//! rule (`policy::market::auto_market`).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use tracing::{debug, info};

use super::launchable::{Search, launchable};
use crate::controller::drive::Controller;
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::instance::InstanceState;
use crate::job::{
    AttemptRecord, MarketChoice, MarketLog, Plan, RECORD_FORMAT, Reason, ResolvedSpec, Spec, Wish,
};
use crate::jobdir::{self, JobDir, JobDirError, layout};
use crate::market::{Cloud, Market, Offer, Span, Supply, UsdPerHour};
use crate::policy::Wishes;
use crate::policy::lifecycle::reconcile::{AttemptFacts, CloudAnswer, history};
use crate::policy::lifecycle::relaunch;
use crate::policy::market::auto_market::{self, AutoFacts, AutoStep, AutoVerdict, SpotPool};
use crate::policy::market::deadline_choice::{MarketWatch, Others};
use crate::policy::market::pool_history::Pool;
use crate::policy::market::remaining_work;
use crate::policy::market::zones::{self, Zone};
use crate::policy::purchase::fallback_limit::Bound;
use crate::policy::purchase::placement::{self, Ask, Overheads};
use crate::policy::purchase::refusal_backoff;
use crate::ports::{StoreError, chain};

/// Between two looks while no machine runs for want of a cheap one: a refusal is forgotten after
/// three minutes.
pub const WAIT_LOOK: Duration = Duration::from_secs(60);

/// Pools that are read at once.
const READS_IN_FLIGHT: usize = 16;

/// How long what was read of the pools is used. They change when jobs end.
const POOLS_FRESH: Duration = Duration::from_secs(10 * 60);

/// So many changes of the decision are kept: weeks of a job.
const DECISIONS_KEPT: usize = 100;

/// What one controller remembers for the market of a job.
#[derive(Clone, Debug, Default)]
pub struct MarketMemory {
    watch: MarketWatch,
    /// The pool that the watch has planned for.
    watched: Option<(String, String)>,
    pools: BTreeMap<(String, String), Pool>,
    /// What the others were worth at the last look at all of them: while a spot machine runs,
    /// nobody asks what they cost.
    others: Others,
    read: Option<Duration>,
    /// The next look at a machine that runs, on the steady clock.
    next: Duration,
    log: Option<MarketLog>,
}

/// How a job looks at the markets, for people who plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    pub verdict: AutoVerdict,
    pub standing: auto_market::Standing,
    pub pool: Pool,
    /// What an hour costs on machines of this speed: both prices are brought to the slower one's.
    pub spot: UsdPerHour,
    pub on_demand: UsdPerHour,
    /// What of the spot machine's hour stands beside it: its disk and its address.
    pub extras: UsdPerHour,
    /// What an hour of the spot machine may come to: with its bid.
    pub spot_most: UsdPerHour,
    pub speed: f64,
}

/// No machine is asked for now.
#[derive(Clone, Debug, PartialEq)]
pub struct NotNow {
    /// What is waited for, as it follows on "waits for".
    pub reason: Reason,
    /// By when one on demand is taken; `None`: nothing presses.
    pub until: Option<Timestamp>,
}

/// What the market of the next machine is decided from.
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
    fn pool(&self, offer: &Offer) -> Pool {
        self.pools
            .get(&key(offer))
            .cloned()
            .unwrap_or_else(|| Pool::new(offer.zone.as_str(), &offer.instance_type))
    }

    /// What starts add to an hour of work in each pool that is known.
    pub(crate) fn overheads(&self, facts: &AutoFacts<'_>) -> Overheads {
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
        // What stays of on-demand that was refused a moment ago is its price.
        let on_demand = on_demand.or_else(|| cheapest_later(&fulls));
        // The slower of both: the deadline must hold on either.
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

    /// A pool, with what the other pools on offer are worth beside it.
    fn beside<'a>(
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

    fn judge(&mut self, facts: &AutoFacts<'_>) -> AutoVerdict {
        let pool = facts.spot.map(|spot| (spot.pool.zone.clone(), spot.pool.instance_type.clone()));
        if self.watched != pool {
            (self.watch, self.watched) = (MarketWatch::default(), pool);
        }
        auto_market::judge(&mut self.watch, facts)
    }
}

impl Controller {
    /// What starts add to an hour of work in each pool that is on offer.
    pub(crate) async fn overheads(
        &self,
        spec: &Spec,
        memory: &mut MarketMemory,
        supply: &Supply,
        history: &[AttemptRecord],
        more_time: Span,
    ) -> Result<Overheads, JobDirError> {
        if !supply
            .offers
            .iter()
            .any(|offer| offer.market == Market::Spot && offer.cloud != Cloud::Local)
        {
            return Ok(Overheads::new());
        }
        self.learn_pools(memory, history).await?;
        let now = self.clock.now();
        Ok(memory.overheads(&AutoFacts {
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

    /// Reads what is known of the pools, unless that was a moment ago. A launch asks the cloud
    /// meanwhile.
    pub(crate) async fn read_pools(&self, memory: &mut MarketMemory) -> Result<(), JobDirError> {
        let now = self.clock.mono();
        if memory.read.is_some_and(|read| now < read + POOLS_FRESH) {
            return Ok(());
        }
        let found = self.store.list(layout::POOLS).await?;
        let keys =
            found.into_iter().map(|meta| meta.key).filter(|key| layout::pool_of(key).is_some());
        let mut read = stream::iter(keys)
            .map(|key| async move { (self.store.get(&key).await, key) })
            .buffered(READS_IN_FLIGHT);
        while let Some((bytes, key)) = read.next().await {
            // Statistics that cannot be read are as good as none.
            let bytes = match bytes {
                Err(StoreError::Unfit { .. }) => None,
                bytes => bytes?,
            };
            if let Some(pool) = bytes.and_then(|bytes| jobdir::decode::<Pool>(&key, &bytes).ok()) {
                memory.pools.insert((pool.zone.clone(), pool.instance_type.clone()), pool);
            }
        }
        memory.read = Some(now);
        Ok(())
    }

    /// Reads what is known of the pools, and learns from the attempts of the job.
    pub(crate) async fn learn_pools(
        &self,
        memory: &mut MarketMemory,
        history: &[AttemptRecord],
    ) -> Result<(), JobDirError> {
        self.read_pools(memory).await?;
        let tried = history
            .iter()
            .map(|record| &record.plan.offer)
            .filter(|offer| offer.cloud != Cloud::Local);
        for offer in
            tried.map(|offer| (key(offer), offer)).collect::<BTreeMap<_, _>>().into_values()
        {
            let mut pool = memory.pool(offer);
            if pool.learn(history) {
                let stored = self
                    .store
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
                memory.pools.insert(key(offer), pool);
            }
        }
        Ok(())
    }

    /// What the last attempt taught. Nothing depends on it.
    pub(crate) async fn learn_from_end(&self, memory: &mut JobMemory, observed: &Observed) {
        let history = history(&observed.attempts);
        if history.iter().all(|record| record.plan.offer.cloud == Cloud::Local) {
            return;
        }
        if let Err(error) = self.learn_pools(memory.market(), &history).await {
            debug!("what the job taught of its pools is not kept: {}", chain(&error));
        }
    }

    /// Looks whether a machine that runs is still the right one, when it is time to.
    pub(crate) async fn look_at_market(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        answer: &CloudAnswer,
    ) -> Result<(), JobDirError> {
        let Some(open) = movable(spec, observed, answer) else { return Ok(()) };
        if self.clock.mono() < memory.market().next {
            return Ok(());
        }
        memory.market().next = self.clock.mono() + auto_market::LOOK_EVERY;
        let verdict = match open.plan.offer.market {
            Market::Spot => self.look_from_spot(spec, memory.market(), observed, open).await?,
            Market::OnDemand => {
                match self.look_from_on_demand(spec, memory.market(), observed, open).await? {
                    Some(verdict) => verdict,
                    None => return Ok(()),
                }
            }
        };
        self.log_market(dir, memory.market(), &verdict.reason).await;
        if let AutoStep::Move(to) = verdict.step {
            let attempt = open.plan.attempt;
            info!(job = %dir.job(), attempt = attempt.number(), "{}", verdict.reason.text);
            dir.add_request(Wish::Move { attempt, to }, &self.name, self.clock.now()).await?;
        }
        Ok(())
    }

    /// A spot machine that runs says itself that there is capacity, and its plan what both markets
    /// cost.
    async fn look_from_spot(
        &self,
        spec: &ResolvedSpec,
        memory: &mut MarketMemory,
        observed: &Observed,
        open: &AttemptFacts,
    ) -> Result<AutoVerdict, JobDirError> {
        let (offer, history, now) =
            (&open.plan.offer, history(&observed.attempts), self.clock.now());
        self.learn_pools(memory, &history).await?;
        let mut pool = memory.pool(offer);
        pool.ran(open.plan.created, now);
        let full = offer.on_demand.map(|full| offer.hourly_at(full));
        Ok(memory.judge(&AutoFacts {
            spec: &spec.spec,
            history: &history,
            running: Some((&open.plan, open.status.as_ref())),
            more_time: Wishes::of(&observed.requests).more_time,
            spot: Some(SpotPool {
                pool: &pool,
                hourly: offer.hourly(),
                there: true,
                others: memory.others,
                elsewhere: 0.0,
            }),
            on_demand: full,
            speed: remaining_work::speeds(&spec.spec, &history).of(offer),
            now,
        }))
    }

    /// Where on-demand runs, the spot market is asked for its prices; a cloud that does not answer
    /// is asked again later.
    async fn look_from_on_demand(
        &self,
        spec: &ResolvedSpec,
        memory: &mut MarketMemory,
        observed: &Observed,
        open: &AttemptFacts,
    ) -> Result<Option<AutoVerdict>, JobDirError> {
        let (history, wishes) = (history(&observed.attempts), Wishes::of(&observed.requests));
        let Ok(cloud) = self.cloud(spec.spec.machine.cloud) else { return Ok(None) };
        let mut supply = match cloud.supply(&spec.spec.machine).await {
            Ok(supply) => of_market(&supply, Market::Spot, &history),
            Err(error) => {
                debug!(job = %spec.job, "the spot market is not known: {}", chain(&error));
                return Ok(None);
            }
        };
        let now = self.clock.now();
        self.learn_pools(memory, &history).await?;
        let speeds = remaining_work::speeds(&spec.spec, &history);
        let mut facts = AutoFacts {
            spec: &spec.spec,
            history: &history,
            running: Some((&open.plan, open.status.as_ref())),
            more_time: wishes.more_time,
            spot: None,
            on_demand: Some(open.plan.offer.hourly()),
            speed: speeds.of(&open.plan.offer),
            now,
        };
        let (overheads, budget_left) =
            (memory.overheads(&facts), relaunch::budget_left(&spec.spec, &history, &wishes));
        let (more_time, overheads, widened) = (wishes.more_time, &overheads, wishes.fallback_cost);
        let (spec, history, prefers, nothing) = (&spec.spec, &history, None, &Supply::default());
        let ask = Ask {
            spec,
            supply: nothing,
            history,
            budget_left,
            more_time,
            overheads,
            prefers,
            widened,
            now,
        };
        // As a launch chooses: a job that is moved to a pool where nothing can be launched comes
        // back, and is moved again.
        let placed = launchable(&**cloud, &ask, &mut supply, &mut Search::default())
            .await
            .ok()
            .map(|found| found.placed);
        let ask = Ask { supply: &supply, ..ask };
        let pool = placed.as_ref().map(|placed| memory.pool(&placed.offer));
        let (here, there) =
            (facts.speed, placed.as_ref().map_or(facts.speed, |placed| speeds.of(&placed.offer)));
        facts.speed = here.min(there);
        facts.on_demand = Some(open.plan.offer.hourly().times(facts.speed / here));
        facts.spot = placed
            .as_ref()
            .zip(pool.as_ref())
            .map(|(placed, pool)| memory.beside(&ask, &facts, &placed.offer, pool, true));
        Ok(Some(memory.judge(&facts)))
    }

    /// Keeps a decision that says something new. Nothing depends on it.
    pub(crate) async fn log_market(
        &self,
        dir: &JobDir,
        memory: &mut MarketMemory,
        reason: &Reason,
    ) {
        if memory.log.is_none() {
            memory.log = dir.market().await.ok().flatten();
        }
        let none = || MarketLog {
            format: RECORD_FORMAT,
            at: reason.at,
            by: self.name.clone(),
            decisions: Vec::new(),
        };
        let log = memory.log.get_or_insert_with(none);
        (log.at, log.by) = (reason.at, self.name.clone());
        match log.decisions.last_mut() {
            // The same again, with the numbers of today.
            Some(last) if last.verdict == reason.verdict => *last = reason.clone(),
            _ => log.decisions.push(reason.clone()),
        }
        let old = log.decisions.len().saturating_sub(DECISIONS_KEPT);
        log.decisions.drain(..old);
        if let Err(error) = dir.put_market(log).await {
            debug!(job = %dir.job(), "the decision is not kept: {}", chain(&error));
        }
    }

    /// Whether a look is due at the market of a job that rests.
    pub(crate) fn market_is_due(&self, memory: &JobMemory) -> bool {
        let asks = memory.spec.as_deref().is_some_and(asks);
        asks && memory.market.as_ref().is_none_or(|market| self.clock.mono() >= market.next)
    }
}

/// Whether a job leaves its market to the controller. A workstation has one.
pub(crate) fn asks(spec: &ResolvedSpec) -> bool {
    spec.spec.machine.market == MarketChoice::Auto && spec.spec.machine.cloud != Cloud::Local
}

/// The attempt that may be asked to make room: it runs, its agent has spoken, and nobody has asked
/// for anything else.
fn movable<'a>(
    spec: &ResolvedSpec,
    observed: &'a Observed,
    answer: &CloudAnswer,
) -> Option<&'a AttemptFacts> {
    let CloudAnswer::Known(views) = answer else { return None };
    let open = observed.attempts.iter().find(|attempt| attempt.settled.is_none())?;
    let Plan { attempt, client_token, .. } = &*open.plan;
    let runs = views.iter().any(|view| {
        view.client_token.as_ref() == Some(client_token) && view.state == InstanceState::Running
    });
    let wishes = Wishes::of(&observed.requests);
    let asked = wishes.end.is_some() || wishes.moves.is_some_and(|wish| wish.attempt == *attempt);
    let speaks = open.status.is_some() && open.outcome.is_none();
    // A kept machine is one of its own.
    (asks(spec) && runs && speaks && !asked && open.plan.starts.is_none()).then_some(open)
}
