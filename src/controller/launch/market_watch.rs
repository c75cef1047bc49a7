//! The market of a running machine, with `market = "auto"`: is it still the right one?
//!
//! ```text
//!   heartbeat, pools ──> policy::market::auto_market ──> stay | a request to move, for its agent
//! ```
//! The move is recorded before it is done: the request stands in the job directory, the agent saves
//! and ends, the attempt is settled, and the next attempt is planned like any other.

use tracing::{debug, info};

use super::launchable::{Search, launchable};
use super::launcher::JobLauncher;
use super::market_memory::{MarketMemory, asks, of_market};
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::instance::InstanceState;
use crate::job::{Plan, Reason, ResolvedSpec, Wish};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Market, Supply};
use crate::policy::Wishes;
use crate::policy::lifecycle::reconcile::{AttemptFacts, CloudAnswer, history};
use crate::policy::lifecycle::relaunch;
use crate::policy::market::auto_market::{AutoFacts, AutoStep, AutoVerdict, SpotPool};
use crate::policy::market::remaining_work;
use crate::policy::purchase::placement::Ask;
use crate::ports::{Clock, chain};

impl JobLauncher {
    /// Whether a look is due at the market of a job that rests.
    pub(crate) fn market_is_due(&self, memory: &JobMemory) -> bool {
        let asks = memory.spec.as_deref().is_some_and(asks);
        asks && memory.market.as_ref().is_none_or(|market| self.clock.mono() >= market.next)
    }

    /// Records a decision that says something new. No later decision depends on it.
    pub(crate) async fn log_market(
        &self,
        dir: &JobDir,
        memory: &mut MarketMemory,
        reason: &Reason,
    ) {
        let log = memory.log(dir, reason, &self.name).await;
        if let Err(error) = dir.put_market(log).await {
            debug!(job = %dir.job(), "the decision is not kept: {}", chain(&error));
        }
    }

    /// Looks whether a running machine is still the right one, if a look is due.
    pub(crate) async fn look_at_market(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        answer: &CloudAnswer,
    ) -> Result<(), JobDirError> {
        let Some(open) = movable(spec, observed, answer) else { return Ok(()) };
        if !memory.market().takes_its_look(self.clock.mono()) {
            return Ok(());
        }
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

    /// A running spot machine proves that there is capacity, and its plan has both prices.
    async fn look_from_spot(
        &self,
        spec: &ResolvedSpec,
        memory: &mut MarketMemory,
        observed: &Observed,
        open: &AttemptFacts,
    ) -> Result<AutoVerdict, JobDirError> {
        let (offer, history, now) =
            (&open.plan.offer, history(&observed.attempts), self.clock.now());
        memory.learn_pools(&*self.store, self.clock.mono(), &history).await?;
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

    /// While an on-demand machine runs, the spot market is asked for its prices. A cloud that does
    /// not answer is asked again later.
    async fn look_from_on_demand(
        &self,
        spec: &ResolvedSpec,
        memory: &mut MarketMemory,
        observed: &Observed,
        open: &AttemptFacts,
    ) -> Result<Option<AutoVerdict>, JobDirError> {
        let (history, wishes) = (history(&observed.attempts), Wishes::of(&observed.requests));
        let Ok(cloud) = self.clouds.get(spec.spec.machine.cloud) else { return Ok(None) };
        let mut supply = match cloud.supply(&spec.spec.machine).await {
            Ok(supply) => of_market(&supply, Market::Spot, &history),
            Err(error) => {
                debug!(job = %spec.job, "the spot market is not known: {}", chain(&error));
                return Ok(None);
            }
        };
        let now = self.clock.now();
        memory.learn_pools(&*self.store, self.clock.mono(), &history).await?;
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
        // The same choice as at a launch. If no launch were possible there, the job would come back
        // and move again.
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
}

/// The attempt that may be asked to move: it runs, its agent was heard, and no user has made
/// another request.
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
