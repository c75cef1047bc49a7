//! The plan of one attempt: the market, the offer, and all data of its launch call.
//!
//! ```text
//!   supply, pools ──> the market (market_memory) ──> the best ready offer (launchable) ──> Plan
//! ```
//! Making a plan neither writes nor buys. `lamp plan` shows the same plan that a launch uses.
//! `policy::purchase::placement` ranks the offers.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use tracing::warn;

use super::continue_job::goes_on_from;
use super::launchable::{Launchable, Search, launchable};
use super::launcher::JobLauncher;
use super::market_memory::{Choosing, MarketMemory, Outlook, asks};
use super::user_data;
use crate::controller::act_result::{ActError, NotNow, Unready};
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::instance::{RANKS_TAG, Tags};
use crate::job::{
    AttemptNo, CheckpointNo, GangLaunch, KeptMachine, MarketChoice, Plan, RECORD_FORMAT, Reason,
    ResolvedSpec,
};
use crate::jobdir::JobDir;
use crate::market::{CloudKind, Market, Offer, PriceHistory, Quota, Span, Supply, Zone, uncounted};
use crate::policy::Wishes;
use crate::policy::account::shutdown_proof;
use crate::policy::gang::rank_launch::{
    RankPurchase, followers, is_followed, rank_purchase, zone_of_rank,
};
use crate::policy::lifecycle::continuation::machine_to_start;
use crate::policy::lifecycle::reconcile::history;
use crate::policy::lifecycle::relaunch;
use crate::policy::market::auto_market::AutoStep;
use crate::policy::purchase::bid::back;
use crate::policy::purchase::job_cost_bound::JobMost;
use crate::policy::purchase::placement::{self, Ask};
use crate::policy::purchase::ranking::Ranked;
use crate::ports::{Clock, Cloud as CloudPort};

/// A plan, with the facts from its making.
#[derive(Clone, Debug)]
pub struct Planned {
    pub plan: Plan,
    /// The most that the whole job can cost from this attempt on, and why.
    pub most_job: JobMost,
    /// The next choices if there is no capacity, in order.
    pub fallbacks: Vec<Offer>,
    /// The figures of the planned machine and of the fallbacks, in the same order.
    pub ranking: Vec<Ranked>,
    pub quotas: Vec<Quota>,
    /// Offers that are impossible, each with the reason.
    pub refused: Vec<String>,
    /// Regions that are skipped until the user mends them.
    pub unready: Vec<Unready>,
    /// Why it has this market, with `market = "auto"`, and the view of both markets.
    pub decided: Option<Reason>,
    pub outlook: Option<Outlook>,
    /// The launch waits. The plan then shows the choice if waiting finds no cheaper machine in
    /// time.
    pub waits: Option<NotNow>,
}

/// The wanted plan.
struct Sought<'a> {
    attempt: AttemptNo,
    resume_from: Option<CheckpointNo>,
    reason: &'a str,
    /// For a user to see, even if the launch waits.
    shown: bool,
    /// The zone of rank 0, for the first machine of a rank that follows it.
    zone: Option<&'a Zone>,
}

impl JobLauncher {
    /// The plan of the first attempt of a job, for a user to see.
    ///
    /// When the cloud gives no answer, or every offer is rejected.
    pub async fn first_plan(&self, spec: &ResolvedSpec) -> Result<Planned, ActError> {
        let nothing =
            Observed { attempts: Vec::new(), requests: Vec::new(), newest_checkpoint: None };
        let resume_from = spec.inherited().map(|from| from.checkpoint.number);
        let sought = Sought {
            attempt: AttemptNo::FIRST,
            resume_from,
            reason: "the job was submitted",
            shown: true,
            zone: None,
        };
        self.planned(spec, &nothing, &mut MarketMemory::default(), sought).await
    }

    /// The past prices of a plan's pool, or why they are unknown. For a user to see: no launch
    /// waits for them.
    ///
    /// When the cloud gives no answer, or its prices are fixed.
    pub async fn past_prices(&self, plan: &Plan, time: Span) -> Result<PriceHistory, String> {
        let from = back(self.clock.now(), time);
        self.clouds.spot_prices(&plan.offer, from, &self.clock).await
    }

    pub(crate) async fn plan(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        spec: &ResolvedSpec,
        observed: &Observed,
        (attempt, resume_from, reason): (AttemptNo, Option<CheckpointNo>, &str),
        zone: Option<&Zone>,
    ) -> Result<Plan, ActError> {
        let planned = self
            .planned(
                spec,
                observed,
                memory.market(),
                Sought { attempt, resume_from, reason, shown: false, zone },
            )
            .await;
        let decided = match &planned {
            Ok(planned) => planned.decided.as_ref(),
            Err(ActError::NotNow(waits)) => Some(&waits.reason),
            Err(_) => None,
        };
        if let Some(reason) = decided {
            self.log_market(dir, memory.market(), reason).await;
        }
        let planned = planned?;
        for Unready { region, because } in &planned.unready {
            if memory.unready_told.insert(format!("{region} {because}")) {
                warn!(job = %dir.job(), "{region} is passed over until it is ready: {because}");
            }
        }
        Ok(planned.plan)
    }

    /// All data of the launch call, so that it can be repeated byte for byte.
    async fn planned(
        &self,
        spec: &ResolvedSpec,
        observed: &Observed,
        market: &mut MarketMemory,
        Sought { attempt, resume_from, reason, shown, zone }: Sought<'_>,
    ) -> Result<Planned, ActError> {
        let cloud = self.clouds.get(spec.spec.machine.cloud)?;
        let mut supply = if spec.spec.machine.cloud == CloudKind::Local
            || spec.spec.machine.market == MarketChoice::OnDemand
        {
            cloud.supply(&spec.spec.machine).await?
        } else {
            // In parallel this adds no time to a launch.
            let (supply, pools) = tokio::join!(
                cloud.supply(&spec.spec.machine),
                market.read_pools(&*self.store, self.clock.mono())
            );
            pools?;
            supply?
        };
        let (wishes, history) = (Wishes::of(&observed.requests), history(&observed.attempts));
        let kept = machine_to_start(spec.continues.as_ref(), &history);
        if let Some(kept) = kept {
            only(&mut supply, kept);
        }
        if let Some(zone) = zone.or_else(|| zone_of_rank(&spec.spec, &history)) {
            supply.offers.retain(|offer| offer.zone == *zone);
        }
        let is_followed = is_followed(&spec.spec, &history);
        if is_followed {
            self.keep_shared_zones(&spec.spec, &mut supply).await?;
        }
        let budget_left = relaunch::budget_left(&spec.spec, &history, &wishes);
        let now = self.clock.now();
        let overheads = market
            .learned_overheads(
                &*self.store,
                &self.clock,
                &spec.spec,
                &supply,
                &history,
                wishes.more_time,
            )
            .await?;
        let (more_time, widened, nothing) =
            (wishes.more_time, wishes.fallback_cost, Supply::default());
        let overheads = &overheads;
        let asked = Ask {
            spec: &spec.spec,
            supply: &nothing,
            history: &history,
            budget_left,
            more_time,
            overheads,
            prefers: None,
            widened,
            now,
        };
        let (choice, found) = match kept {
            Some(kept) => {
                let placed = placement::place(&Ask { supply: &supply, ..asked })?;
                let placed = placement::Placement {
                    most_job: placed.most_job.after_a_kept_machine(),
                    ..placed
                };
                (
                    Choice::default(),
                    Launchable { placed, launch: kept.launch.clone(), unready: Vec::new() },
                )
            }
            None => ready_and_chosen(&**cloud, spec, market, asked, &mut supply, shown).await?,
        };
        let Choice { decided, outlook, waits, .. } = choice;
        let Launchable { placed, launch, unready } = found;
        let limits = &spec.spec.limits;
        let limit = limits.boot_of(&placed.offer.instance_type);
        let boot = spec.trial.map_or(limit, |trial| shutdown_proof::boot_tag(&trial, limit));
        let tags = Tags {
            owner: self.clouds.owner.to_string(),
            job: spec.job.clone(),
            attempt,
            lease: limits.lease,
            boot,
            kill_at: placed.kill_at,
        };
        let gang = match rank_purchase(&spec.spec, &history) {
            RankPurchase::Leads(launch) => Some(launch),
            RankPurchase::Alone | RankPurchase::Joins | RankPurchase::Follows => None,
        };
        let followers = followers(&spec.spec, &history);
        let mut reasons = vec![reason.to_owned()];
        reasons.extend(placed.reasons);
        reasons.extend(gang.as_ref().map(|gang| {
            let ranks = gang.ranks;
            match gang.fewest {
                None => {
                    format!("one call launches all {ranks} machines in one zone, or none of them")
                }
                Some(few) => format!(
                    "one call launches {few} to {ranks} machines in one zone, as many as it has"
                ),
            }
        }));
        if is_followed {
            reasons
                .push("the machines of the other ranks are bought one by one in its zone".into());
        }
        reasons.extend(decided.as_ref().map(|reason| reason.text.clone()));
        reasons.extend(uncounted(&placed.offer));
        reasons.extend(supply.notes);
        reasons.extend(
            self.store.region().and_then(|region| paid_by_the_gigabyte(&placed.offer, &region)),
        );
        reasons.extend(spec.continues.as_ref().map(|continues| goes_on_from(continues, kept)));
        let client_token =
            kept.map_or_else(|| self.client_token(spec, attempt), |kept| kept.client_token.clone());
        let plan = Plan {
            format: RECORD_FORMAT,
            job: spec.job.clone(),
            attempt,
            created: now,
            controller: self.name.clone(),
            offer: placed.offer,
            reasons,
            rejected: placed.rejected,
            bid: placed.bid,
            launch,
            most_usd: placed.most_usd,
            most_any_usd: placed.most_any_usd,
            most_job_usd: placed.most_job.usd,
            client_token,
            kill_at: placed.kill_at,
            lease: limits.lease,
            boot: limit,
            resume_from,
            launch_by: None,
            starts: spec
                .continues
                .as_ref()
                .zip(kept)
                .map(|(continues, kept)| continues.starts(kept)),
            tags: machine_tags(&spec.spec.tags, &tags, gang.as_ref()),
            gang,
            followers,
        };
        Ok(Planned {
            plan,
            most_job: placed.most_job,
            fallbacks: placed.fallbacks,
            ranking: placed.ranking,
            quotas: supply.quotas,
            refused: supply.refused,
            unready,
            decided,
            outlook,
            waits,
        })
    }

    /// Adds the script of the first boot, and ships the agent, if the plan has a launch call.
    pub(crate) async fn write_user_data(
        &self,
        spec: &ResolvedSpec,
        plan: &mut Plan,
    ) -> Result<(), ActError> {
        if let (Some(trial), Some(launch)) = (&spec.trial, &mut plan.launch) {
            launch.user_data = user_data::of_trial(trial, plan.boot);
            return Ok(());
        }
        let (Some(launch), Some(shipper)) = (&mut plan.launch, &self.shipper) else {
            return Ok(());
        };
        // A kept machine has its agent and its units.
        if plan.starts.is_some() {
            return Ok(());
        }
        let image = launch.image_name.as_deref().unwrap_or(&launch.image);
        let first = shipper
            .user_data(&*self.store, plan.offer.arch, &plan.offer.region, image, plan.boot)
            .await?;
        (launch.user_data, plan.launch_by) = (first.user_data, Some(first.launch_by));
        Ok(())
    }

    /// Equal for all controllers of this job root, and different for all other jobs: even two plans
    /// would make one machine.
    fn client_token(&self, spec: &ResolvedSpec, attempt: AttemptNo) -> String {
        let text = format!(
            "{}\n{}\n{}\n{}\n{attempt}",
            self.clouds.owner,
            self.store.url(),
            spec.job,
            spec.created
        );
        format!("lamp-{}", hex::encode(&Sha256::digest(text.as_bytes())[..16]))
    }
}

/// The user's tags with ours, which win.
fn machine_tags(
    user: &BTreeMap<String, String>,
    ours: &Tags,
    gang: Option<&GangLaunch>,
) -> BTreeMap<String, String> {
    let mut tags = user.clone();
    tags.extend(ours.to_map());
    tags.extend(gang.map(|gang| (RANKS_TAG.to_owned(), gang.ranks.to_string())));
    tags
}

/// AWS bills traffic that leaves a region. Its amount is unknown before the run, so no figure has
/// it, and the plan says so. EC2's price page, "Data Transfer": from $0.01 to $0.15 a GB, mostly
/// $0.02.
fn paid_by_the_gigabyte(offer: &Offer, bucket: &str) -> Option<String> {
    let elsewhere = offer.cloud == CloudKind::Aws && offer.region.as_str() != bucket;
    elsewhere.then(|| format!("what it saves goes to the bucket in {bucket}, mostly for $0.02 a GB, which no figure here counts"))
}

/// The chosen market with `market = "auto"`, and why; empty if there is no choice.
#[derive(Default)]
struct Choice {
    prefers: Option<Market>,
    decided: Option<Reason>,
    outlook: Option<Outlook>,
    waits: Option<NotNow>,
}

impl Choice {
    fn of(spec: &ResolvedSpec, market: &mut MarketMemory, ask: Ask<'_>) -> Choice {
        if !asks(spec) {
            return Choice::default();
        }
        let (verdict, outlook) = market.choose(&Choosing { spec, history: ask.history, ask });
        let (prefers, waits) = match verdict.step {
            AutoStep::Take(chosen) => (Some(chosen), None),
            AutoStep::Wait => (
                Some(Market::OnDemand),
                Some(NotNow { reason: verdict.reason.clone(), until: verdict.until }),
            ),
            AutoStep::Stay | AutoStep::Move(_) => (None, None),
        };
        Choice { prefers, decided: Some(verdict.reason), outlook, waits }
    }
}

/// The market, and the best machine that is ready. If a region or zone is not ready, the market is
/// chosen again without it: otherwise a job would wait for a place without a possible launch.
async fn ready_and_chosen(
    cloud: &dyn CloudPort,
    spec: &ResolvedSpec,
    market: &mut MarketMemory,
    asked: Ask<'_>,
    supply: &mut Supply,
    shown: bool,
) -> Result<(Choice, Launchable), ActError> {
    let mut search = Search::default();
    loop {
        let choice = Choice::of(spec, market, Ask { supply, ..asked });
        let before = search.passed_over();
        let found =
            launchable(cloud, &Ask { prefers: choice.prefers, ..asked }, supply, &mut search).await;
        if search.passed_over() > before && asks(spec) && found.is_ok() {
            continue;
        }
        return match (choice.waits, found) {
            (Some(not_now), _) if !shown => Err(ActError::NotNow(not_now)),
            (waits, found) => Ok((Choice { waits, ..choice }, found?)),
        };
    }
}

/// Keeps only the offer of the kept machine: at today's price, if it is still sold.
fn only(supply: &mut Supply, kept: &KeptMachine) {
    supply.offers.retain(|offer| offer.is_same_pool(&kept.offer));
    if supply.offers.is_empty() {
        supply.offers.push(kept.offer.clone());
    }
    supply.offers.truncate(1);
    supply.refused.clear();
}
