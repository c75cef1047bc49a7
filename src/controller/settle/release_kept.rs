//! What an ended job keeps: the machine that stands still with its disk, until somebody gives it
//! up.
//!
//! ```text
//!   ended ──> its last machine, by its tags ──> terminate, and again until it is seen to be gone
//!                                                └──> what it left beside it is removed ──> given-up.json
//!         ──> ended by others ──> neither it nor its disk is shown any more ─────────────────────┘
//! ```
//! The tags are read in the same decision as each end: a machine that `lamp start` has given to
//! another job meanwhile is not this job's any more, and lives. Not here: whether somebody wants it
//! gone.

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

/// Between two looks at a machine that is to end. A stopped one has nothing to shut down and is
/// mostly gone at the first.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks at it, a minute in all: who typed it waits for them. A machine that takes longer goes on
/// ending, and the same words see to it again.
const LOOKS: u32 = 30;

/// A machine that was stopped so long ago is shown to everybody who looks: EC2 shows what is new
/// late, and only that.
const SHOWN_SURELY: Duration = Duration::from_secs(10 * 60);

/// What has become of it.
#[derive(Clone, Debug)]
pub struct GaveUp {
    /// It was seen to be gone; else the cloud was asked, and has not shown it yet.
    pub is_gone: bool,
    /// What stood beside the machine, and what became of that.
    pub left: Vec<Leaving>,
    /// Regions that did not say.
    pub left_unasked: Vec<Region>,
}

impl Settler {
    /// Why what an ended job kept cannot be looked at from here; `None`: it can.
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

    /// The machine of a job that has ended, while it is there and this job's; `None`: the cloud
    /// shows none.
    ///
    /// # Errors
    /// When the store or the cloud does not answer.
    pub async fn kept_machine(&self, dir: &JobDir) -> Result<Option<InstanceView>, ActError> {
        let is_there = |view: &InstanceView| {
            !matches!(view.state, InstanceState::ShuttingDown | InstanceState::Terminated)
        };
        Ok(self.own_machine(dir).await?.filter(is_there))
    }

    /// Of its last attempt mostly; but where a kept machine could not be started, and the job went
    /// on elsewhere, it stands there with an earlier one's number.
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

    /// Ends the machine that an ended job keeps, for good, and what it left beside it. That nothing
    /// stands any more is recorded only where its end was asked for here and seen, and all that it
    /// left was removed.
    ///
    /// # Errors
    /// When the store or the cloud does not answer: the machine may be there and bill on.
    pub async fn give_up(&self, dir: &JobDir, machine: &MachineRef) -> Result<GaveUp, ActError> {
        let (mut is_gone, mut asked) = (false, false);
        for look in 0..LOOKS {
            if look > 1 {
                self.clock.sleep(LOOK_EVERY).await;
            }
            // Its tags, anew for each end. One that shuts down still holds its disks.
            let is_it = |view: &InstanceView| {
                &view.machine() == machine && view.state != InstanceState::Terminated
            };
            let Some(view) = self.own_machine(dir).await?.filter(is_it) else {
                is_gone = true;
                break;
            };
            if view.state != InstanceState::ShuttingDown {
                tracing::warn!(job = %dir.job(), machine = %view.machine(), "terminating what the ended job kept: somebody gives it up");
                match self.clouds.get(machine.cloud)?.terminate(machine).await {
                    // What may launch another is among what it left.
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

    /// Whether all that a receipt calls kept is gone, by whoever's hand: in the console, perhaps.
    /// Its own owner looks, by tags and by the token of its launch; whatever does not answer is
    /// there. Then it is recorded, and nobody names it any more.
    ///
    /// # Errors
    /// When the store or the cloud does not answer, or the machine is there under another name.
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

    /// Of the jobs that kept something, those whose machine none of these is any more: somebody has
    /// ended it elsewhere.
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

    /// That nothing of an ended job stands in the cloud any more: whoever looks at it next need not
    /// ask the cloud.
    async fn record_given_up(
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
