//! The plan of a rank whose machine is launched by the call of rank 0.
//!
//! ```text
//!   the plan of rank 0 ──> its machines by the token ──> the one of this rank ──> plan.json
//! ```
//! This rank buys nothing: without the machine there is no plan, and the job waits. So a lost reply
//! or a refusal concerns the job of rank 0 alone. If the launch made fewer machines than ranks, the
//! plan of a rank without one is refused, and its next one buys a machine alone. With spot
//! machines, or with roles that have their own, each rank buys its machine itself, once rank 0 has
//! one. Not here: a later machine of a rank (`plan`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use super::launcher::JobLauncher;
use crate::controller::act_result::{ActEffect, ActError};
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::instance::{InstanceView, RANKS_TAG, tags_of_rank};
use crate::job::{
    GangLaunch, GangMember, Plan, Reason, Refusal, ResolvedSpec, Spec, Wish, machine_kinds,
};
use crate::jobdir::{GangDir, JobDir, JobDirError};
use crate::market::{CloudKind, Supply, Zone};
use crate::policy::Wishes;
use crate::policy::gang::rank_launch::{RankPurchase, rank_purchase};
use crate::ports::{Clock, CloudError, Created};

/// Between two looks for the launch of rank 0. Shorter asks EC2 once more for each rank. Longer
/// leaves a machine without its plan, and its agent without a price.
const LAUNCH_LOOK: Duration = Duration::from_secs(10);

/// The result of the call of rank 0 for another rank.
enum Launched {
    Machine(String),
    /// It made machines for other ranks only.
    None {
        refusal: Refusal,
        why: String,
    },
}

/// A rank that ends and has no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unjoined {
    /// Nothing was to record: it has no machine, or goes on.
    None,
    /// Its plan is recorded now.
    Recorded,
    /// Rank 0 may still launch its machine.
    Waits,
}

impl JobLauncher {
    /// Whether the gang is over. Then no machine is bought for a rank, and its job ends.
    pub(super) async fn is_gang_over(&self, member: &GangMember) -> Result<bool, JobDirError> {
        let leader = JobDir::new(Arc::clone(&self.store), member.leader().clone());
        let gang = GangDir::new(Arc::clone(&self.store), member.leader().clone());
        let (receipt, end) = tokio::try_join!(leader.receipt(), gang.end())?;
        Ok(end.is_some() || member.rank > 0 && receipt.is_some())
    }

    /// Ends the job of a rank that has no machine.
    pub(super) async fn end_rank(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
    ) -> Result<ActEffect, ActError> {
        info!(job = %dir.job(), "the gang is over: no machine is launched for this rank");
        memory.held_back = None;
        dir.insist_on(Wish::Cancel, &self.name, &self.clock).await?;
        Ok(ActEffect::Changed)
    }

    /// Ends the job of a rank whose agent has not begun when the gang is over. Its machine would
    /// bill until its time to boot is over. Returns whether it left the wish.
    pub(crate) async fn leave_ended_gang(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        observed: &Observed,
    ) -> Result<bool, JobDirError> {
        let Some(member) = spec.member().filter(|_| awaits_agent(spec, observed)) else {
            return Ok(false);
        };
        let is_asked = Wishes::of(&observed.requests).end.is_some();
        if is_asked || !self.is_gang_over(member).await? {
            return Ok(false);
        }
        info!(job = %dir.job(), "the gang is over: its machine ends, whose agent has not begun");
        dir.insist_on(Wish::Cancel, &self.name, &self.clock).await?;
        Ok(true)
    }

    /// A rank may end before its plan is recorded. The call of rank 0 may have launched its machine
    /// all the same, and only a plan brings the cost into the receipt of this rank.
    pub(crate) async fn settle_unjoined(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
    ) -> Result<Unjoined, ActError> {
        let joins = rank_purchase(&spec.spec, &[]) == RankPurchase::Joins;
        let member = spec.member().filter(|_| joins && observed.attempts.is_empty());
        let Some(member) = member else { return Ok(Unjoined::None) };
        let is_asked = Wishes::of(&observed.requests).end.is_some();
        if !is_asked && !self.is_gang_over(member).await? {
            return Ok(Unjoined::None);
        }
        let leader = JobDir::new(Arc::clone(&self.store), member.leader().clone());
        for number in leader.attempts().await?.into_iter().rev() {
            let settled = leader.settled(number).await?;
            if settled.is_some_and(|settled| !settled.was_launched()) {
                continue;
            }
            let plan = leader.plan(number).await?.and_then(|plan| rank_plan(plan, dir, member));
            let Some(plan) = plan else { continue };
            info!(job = %dir.job(), "it ends, and rank 0 may have launched its machine");
            self.record_launch(dir, memory, plan, None).await?;
            return Ok(Unjoined::Recorded);
        }
        let is_made = leader.spec().await?.is_some();
        let is_over = leader.receipt().await?.is_some();
        Ok(if is_over || !is_made { Unjoined::None } else { Unjoined::Waits })
    }

    /// Records the plan of the machine that rank 0 launched for this rank.
    pub(super) async fn join_launch(
        &self,
        dir: &JobDir,
        member: &GangMember,
        memory: &mut JobMemory,
    ) -> Result<ActEffect, ActError> {
        let found = self.launched_for(dir, member).await?;
        if let Some((plan, Launched::None { refusal, why })) = found {
            info!(job = %dir.job(), attempt = plan.attempt.number(), "rank 0 launched none: {why}");
            let attempt = plan.attempt;
            self.record_launch(dir, memory, plan, None).await?;
            let attempt = memory.attempts.entry(attempt).or_default();
            attempt.refused(Some(refusal), why, self.clock.mono());
            return Ok(ActEffect::Changed);
        }
        let Some((plan, Launched::Machine(instance))) = found else {
            let text = format!("rank 0, {}, which launches all machines", member.leader());
            let reason = Reason::new(self.clock.now(), "gang", "wait", text);
            self.wait_for(dir, memory, reason, None, LAUNCH_LOOK).await;
            return Ok(ActEffect::Waiting);
        };
        info!(job = %dir.job(), attempt = plan.attempt.number(), instance, "rank 0 launched it");
        self.record_launch(dir, memory, plan, Some(instance)).await?;
        Ok(ActEffect::Changed)
    }

    /// Keeps the offers for rank 0 in zones that sell the machines of all roles.
    pub(super) async fn keep_shared_zones(
        &self,
        spec: &Spec,
        supply: &mut Supply,
    ) -> Result<(), ActError> {
        let Some(gang) = &spec.gang else { return Ok(()) };
        let cloud = self.clouds.get(spec.machine.cloud)?;
        for (role, machine, _) in machine_kinds(gang, &spec.machine).into_iter().skip(1) {
            let offers = cloud.supply(&machine).await?.offers;
            let zones: BTreeSet<Zone> = offers.into_iter().map(|offer| offer.zone).collect();
            let had = supply.offers.len();
            supply.offers.retain(|offer| zones.contains(&offer.zone));
            if had > 0 && supply.offers.is_empty() {
                let role = role.word();
                let text = format!("no zone that sells it sells the machines of [gang.{role}] too");
                supply.refused.push(text);
            }
        }
        Ok(())
    }

    /// The zone of the machine that rank 0 has. `None`: it has none yet, and this rank waits.
    pub(super) async fn leader_zone(
        &self,
        dir: &JobDir,
        member: &GangMember,
        memory: &mut JobMemory,
    ) -> Result<Option<Zone>, ActError> {
        let leader = JobDir::new(Arc::clone(&self.store), member.leader().clone());
        if let Some(number) = leader.attempts().await?.into_iter().next_back()
            && let Some(plan) = leader.plan(number).await?
            && leader.settled(number).await?.is_none()
        {
            let cloud = self.clouds.get(plan.offer.cloud)?;
            let machines = cloud.describe(&self.clouds.owner, &plan.offer.region).await?;
            let is_its = |machine: &&InstanceView| {
                machine.tags.job == *leader.job()
                    && machine.tags.attempt == number
                    && machine.state.bills()
            };
            if machines.iter().any(|machine| is_its(&machine)) {
                return Ok(Some(plan.offer.zone));
            }
        }
        let text = format!("the machine of rank 0, {}, whose zone all ranks share", leader.job());
        let reason = Reason::new(self.clock.now(), "gang", "wait", text);
        self.wait_for(dir, memory, reason, None, LAUNCH_LOOK).await;
        Ok(None)
    }

    /// `instance`: `None` if it is not known.
    async fn record_launch(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        plan: Plan,
        instance: Option<String>,
    ) -> Result<(), ActError> {
        let (attempt, now) = (plan.attempt, self.clock.mono());
        if dir.create_plan(&plan).await? == Created::New {
            self.caps.planned(&plan);
            let attempt = memory.attempts.entry(attempt).or_default();
            attempt.planned(plan, now);
            if let Some(instance) = instance {
                attempt.launched(instance, now);
            }
        }
        Ok(())
    }

    /// The plan of this rank, from the newest launch of rank 0, with what it made for this rank.
    async fn launched_for(
        &self,
        dir: &JobDir,
        member: &GangMember,
    ) -> Result<Option<(Plan, Launched)>, ActError> {
        let leader = JobDir::new(Arc::clone(&self.store), member.leader().clone());
        for number in leader.attempts().await?.into_iter().rev() {
            let plan = leader.plan(number).await?.and_then(|plan| rank_plan(plan, dir, member));
            let Some(plan) = plan else { continue };
            match self.clouds.get(plan.offer.cloud)?.launch(&plan).await {
                Ok(instance) => return Ok(Some((plan, Launched::Machine(instance)))),
                Err(CloudError::NoCapacity { refusal, what }) => {
                    return Ok(Some((plan, Launched::None { refusal, why: what })));
                }
                // The cloud shows no machine of this launch: refused, or not made yet.
                Err(CloudError::Ambiguous { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// Whether a rank has a machine whose agent has not begun. Only a tick can find out whether its
/// gang is over.
pub(crate) fn awaits_agent(spec: &ResolvedSpec, observed: &Observed) -> bool {
    let open = observed.attempts.iter().find(|attempt| attempt.settled.is_none());
    spec.member().is_some()
        && spec.spec.machine.cloud != CloudKind::Local
        && open.is_some_and(|open| open.lease.is_none() && open.status.is_none())
}

/// The plan of rank 0 as the plan of another rank. `None`: it launches one machine only.
fn rank_plan(leader: Plan, dir: &JobDir, member: &GangMember) -> Option<Plan> {
    let launch = leader.gang.clone()?;
    let mut tags: BTreeMap<String, String> = tags_of_rank(leader.tags, member.rank);
    tags.remove(RANKS_TAG);
    let reason =
        format!("one call of {} launches all ranks, also rank {}", launch.leader, member.rank);
    Some(Plan {
        job: dir.job().clone(),
        reasons: vec![reason],
        rejected: Vec::new(),
        gang: Some(GangLaunch { rank: member.rank, ..launch }),
        tags,
        ..leader
    })
}
