//! The machine that an ended job keeps: stopped, with its disk, until the user gives it up.
//!
//! ```text
//!   the last machine, by its tags ──> terminate, until it is gone ──> its leftovers are removed
//!                                                                            │
//!   ended in the console ──> neither the machine nor its disk is shown ──────┴──> given-up.json
//! ```
//! The tags are read again before each call. If `lamp start` has given the machine to another job
//! meanwhile, it is not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::settler::Settler;
use crate::controller::act_result::ActError;
use crate::controller::job_memory::Leavings;
use crate::controller::observe::last_plan;
use crate::instance::{InstanceState, InstanceView, MachineRef};
use crate::job::{GivenUp, JobId, Leaving, LeavingFate, RECORD_FORMAT, Receipt};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Region, elapsed};
use crate::ports::{Clock, CloudError, chain};

/// Between two looks at the machine. A stopped one has nothing to shut down, and is mostly gone at
/// the first look.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks, a minute in all, because the user waits. A slower machine continues to end, and the same
/// command checks it again.
const LOOKS: u32 = 30;

/// The cloud surely shows a machine that stopped before that. EC2 shows only new ones late.
const SHOWN_SURELY: Duration = Duration::from_secs(10 * 60);

/// The result of giving up a machine.
#[derive(Clone, Debug)]
pub struct GaveUp {
    /// The cloud shows that it is gone; `false`: it was asked to end it.
    pub is_gone: bool,
    /// Its leftovers, and their fate.
    pub left: Vec<Leaving>,
    /// Regions that did not answer.
    pub left_unasked: Vec<Region>,
}

impl Settler {
    /// Why this controller cannot look at the kept machine; `None`: it can.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn kept_elsewhere(&self, dir: &JobDir) -> Result<Option<String>, JobDirError> {
        let plan = last_plan(dir).await?;
        Ok(plan.map_or_else(
            || Some("no plan of a machine is among its records".to_owned()),
            |plan| self.clouds.belongs_elsewhere(&plan),
        ))
    }

    /// The kept machine of an ended job, while it belongs to this job; `None`: the cloud shows
    /// none.
    ///
    /// # Errors
    /// When the store or the cloud does not answer.
    pub async fn kept_machine(&self, dir: &JobDir) -> Result<Option<InstanceView>, ActError> {
        let is_there = |view: &InstanceView| {
            !matches!(view.state, InstanceState::ShuttingDown | InstanceState::Terminated)
        };
        Ok(self.own_machine(dir).await?.filter(is_there))
    }

    /// Mostly the machine of the last attempt. If a kept machine could not be started, and the job
    /// ran elsewhere, it is stopped with an earlier number.
    async fn own_machine(&self, dir: &JobDir) -> Result<Option<InstanceView>, ActError> {
        let mut gone = None;
        for attempt in dir.attempts().await?.into_iter().rev() {
            let Some(plan) = dir.plan(attempt).await? else { continue };
            let is_its_own = |view: &InstanceView| {
                *view.tags.owner == *self.clouds.owner
                    && &view.tags.job == dir.job()
                    && view.tags.attempt == plan.attempt
            };
            match self.clouds.machine_of(&plan, self.clock.mono()).await?.filter(is_its_own) {
                Some(view) if view.state == InstanceState::Terminated => gone = gone.or(Some(view)),
                Some(view) => return Ok(Some(view)),
                None => {}
            }
        }
        Ok(gone)
    }

    /// Terminates the kept machine of an ended job, and removes its leftovers. The record is
    /// written only if the end was requested and seen here, and every leftover was removed.
    ///
    /// When the store or the cloud does not answer: the machine may still bill.
    pub async fn give_up(&self, dir: &JobDir, machine: &MachineRef) -> Result<GaveUp, ActError> {
        let (mut is_gone, mut asked) = (false, false);
        for look in 0..LOOKS {
            if look > 1 {
                self.clock.sleep(LOOK_EVERY).await;
            }
            // Its tags are read again before each call. A machine that shuts down still holds its
            // disks.
            let is_it = |view: &InstanceView| {
                &view.machine() == machine && view.state != InstanceState::Terminated
            };
            let Some(view) = self.own_machine(dir).await?.filter(is_it) else {
                is_gone = true;
                break;
            };
            if view.state != InstanceState::ShuttingDown {
                tracing::warn!(job = %dir.job(), machine = %view.machine(), "terminating what the ended job kept: the user gives it up");
                match self.clouds.get(machine.cloud)?.terminate(machine).await {
                    // The request that may launch another one is among the leftovers.
                    Err(error @ CloudError::Relaunches { .. }) => {
                        tracing::warn!(job = %dir.job(), "{}", chain(&error))
                    }
                    ended => ended?,
                }
            }
            asked = true;
        }
        if !is_gone {
            return Ok(GaveUp { is_gone, left: Vec::new(), left_unasked: Vec::new() });
        }
        let places =
            [((machine.cloud, machine.region.clone()), BTreeSet::from([machine.id.clone()]))]
                .into();
        let Leavings { left, unasked } = self.take_from(dir.job(), places).await;
        if asked && unasked.is_empty() && left.iter().all(|left| left.fate == LeavingFate::Removed)
        {
            self.record_given_up(dir, Some(machine.id.clone())).await?;
        }
        Ok(GaveUp { is_gone, left, left_unasked: unasked })
    }

    /// Whether everything that a receipt lists as kept is gone, for example ended in the console.
    /// Only its own owner looks, by tags and by the token of the launch. Without an answer it
    /// counts as present. If it is gone, that is recorded, and no list names it again.
    ///
    /// When the store or the cloud gives no answer, or the machine has another name.
    pub async fn see_gone(&self, dir: &JobDir, receipt: &Receipt) -> Result<bool, ActError> {
        let kept: BTreeSet<&str> = receipt
            .left
            .iter()
            .filter(|left| left.fate == LeavingFate::Kept)
            .map(|left| left.id.as_str())
            .collect();
        if kept.is_empty() || dir.given_up().await?.is_some() {
            return Ok(true);
        }
        let Some(plan) = last_plan(dir).await? else { return Ok(false) };
        let is_young = elapsed(receipt.ended, self.clock.now()) < SHOWN_SURELY;
        if is_young || self.clouds.belongs_elsewhere(&plan).is_some() {
            return Ok(false);
        }
        if self
            .clouds
            .machine_of(&plan, self.clock.mono())
            .await?
            .is_some_and(|view| view.state != InstanceState::Terminated)
        {
            return Ok(false);
        }
        let cloud = self.clouds.get(plan.offer.cloud)?;
        cloud.confirm_missing(&plan).await?;
        if cloud
            .residue(&self.clouds.owner, &plan.offer.region)
            .await?
            .iter()
            .any(|left| kept.contains(left.id.as_str()))
        {
            return Ok(false);
        }
        tracing::info!(job = %dir.job(), "what it kept is gone");
        self.record_given_up(dir, None).await?;
        Ok(true)
    }

    /// Finds the jobs whose kept machine is not among these: a user has ended it elsewhere.
    pub(crate) async fn miss_kept(
        &self,
        gone: &mut BTreeSet<JobId>,
        kept: &BTreeMap<JobId, Box<Receipt>>,
        views: &[InstanceView],
    ) {
        let stands = |job: &JobId| {
            views.iter().any(|view| &view.tags.job == job && !view.state.is_terminated())
        };
        for (job, receipt) in kept.iter().filter(|(job, _)| !stands(job)) {
            if gone.contains(job) {
                continue;
            }
            let dir = JobDir::new(Arc::clone(&self.store), job.clone());
            match self.see_gone(&dir, receipt).await {
                Ok(true) => drop(gone.insert(job.clone())),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%job, "whether what it kept is still there is not known: {}", chain(&error))
                }
            }
        }
    }

    /// Records that an ended job has nothing in the cloud. The next look need not ask the cloud.
    pub(crate) async fn record_given_up(
        &self,
        dir: &JobDir,
        instance: Option<String>,
    ) -> Result<(), JobDirError> {
        let given_up = GivenUp {
            format: RECORD_FORMAT,
            at: self.clock.now(),
            by: self.name.clone(),
            instance,
        };
        dir.create_given_up(&given_up).await.map(drop)
    }
}
