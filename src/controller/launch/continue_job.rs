//! What is kept of a job that has ended, and the job that goes on from it.
//!
//! ```text
//!   receipt, last plan, checkpoints, the cloud's answer ──> Kept ──> code ──> spec.json of the next job ──> as any other
//! ```
//! The next job's id follows from the old one's, and its spec is created only if absent: whoever
//! starts a job twice, or dies on the way, makes one job. The spec holds all that the start needs,
//! so any controller goes on from there. What must never live here: what a user is told.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::launcher::JobLauncher;
use super::submit::{SubmitError, upload_code};
use crate::controller::act_result::ActError;
use crate::controller::observe::last_plan;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{Continues, Inherited, JobId, KeptMachine, Plan, Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::market::Usd;
use crate::policy::Wishes;
use crate::policy::lifecycle::continuation::can_start;
use crate::ports::{Clock, Store};

/// What a job goes on from that is started again.
#[derive(Clone, Debug)]
pub struct Kept {
    pub spec: ResolvedSpec,
    pub receipt: Receipt,
    /// The checkpoint and the machine that are there; either may be missing.
    pub continues: Continues,
    /// Of the job's budget, with what was added to it; `None`: it has none.
    pub budget_left: Option<Usd>,
    /// With what was added to it.
    pub deadline: Option<Timestamp>,
    /// Its machine is on the way to being stopped: it cannot be started yet.
    pub stopping: Option<String>,
    /// Why its machine, if there is one, cannot be seen from here.
    pub elsewhere: Option<String>,
}

/// The id of the job that goes on from another. It is like any other id, and always the same.
pub fn continuation_of(job: &JobId, name: &str) -> JobId {
    let hash = Sha256::digest(format!("goes on from\n{job}").as_bytes());
    let mut letters = [0; 6];
    letters.copy_from_slice(&hash[..6]);
    JobId::from_name(name, letters)
}

impl JobLauncher {
    /// What is kept of a job; `None`: it has not ended, or is no job.
    ///
    /// # Errors
    /// When the store or the cloud does not answer.
    pub async fn kept(&self, dir: &JobDir) -> Result<Option<Kept>, ActError> {
        let (spec, receipt, requests) =
            tokio::try_join!(dir.spec(), dir.receipt(), dir.requests())?;
        let (Some(spec), Some(receipt)) = (spec, receipt) else { return Ok(None) };
        let wishes = Wishes::of(&requests);
        let checkpoint = match dir.newest_checkpoint().await? {
            Some(manifest) => {
                Some(Inherited { job: dir.job().clone(), checkpoint: manifest.summary() })
            }
            None => spec.inherited().cloned(),
        };
        let (mut machine, mut stopping, mut elsewhere) = (None, None, None);
        if let Some(plan) = last_plan(dir).await? {
            elsewhere = self.clouds.belongs_elsewhere(&plan);
            let view = if elsewhere.is_none() {
                self.clouds.machine_of(&plan, self.clock.mono()).await?
            } else {
                None
            };
            stopping = view
                .as_ref()
                .filter(|view| view.state == InstanceState::Stopping)
                .map(|view| view.id.clone());
            machine = view.filter(can_start).map(|view| kept_machine(&plan, view));
        }
        let limits = &spec.spec.limits;
        let more = |moment: Timestamp| {
            moment.saturating_add(wishes.more_time.duration()).unwrap_or(Timestamp::MAX)
        };
        Ok(Some(Kept {
            continues: Continues { job: dir.job().clone(), checkpoint, machine, new_code: false },
            budget_left: limits
                .budget
                .map(|budget| budget + wishes.more_budget - receipt.total_usd),
            deadline: limits.deadline.map(more),
            spec,
            receipt,
            stopping,
            elsewhere,
        }))
    }

    /// Whether the machine of a job's last attempt stands still, by the cloud's own word.
    ///
    /// # Errors
    /// When the store does not answer. A cloud that does not has not said so.
    pub async fn is_stopped(&self, dir: &JobDir) -> Result<bool, JobDirError> {
        let Some(plan) = last_plan(dir).await? else { return Ok(false) };
        let view = self.clouds.machine_of(&plan, self.clock.mono()).await.ok().flatten();
        Ok(view.is_some_and(|view| view.state == InstanceState::Stopped))
    }

    /// Brings the code of a job to the one that goes on from it, by way of a file of this
    /// workstation.
    ///
    /// # Errors
    /// When the job root refuses, or the code is not there any more.
    pub async fn carry_code(
        &self,
        from: &JobDir,
        next: &ResolvedSpec,
        scratch: &Path,
    ) -> Result<(), SubmitError> {
        let Some(code) = &next.code else { return Ok(()) };
        let store: &Arc<dyn Store> = from.store();
        if store.get_file(&layout::code(from.job(), &code.sha256), scratch).await?.is_none() {
            return Err(SubmitError::NoCode(from.job().clone()));
        }
        upload_code(store, &self.clock, next, &scratch.into()).await
    }
}

fn kept_machine(plan: &Plan, view: InstanceView) -> KeptMachine {
    KeptMachine {
        instance: view.id,
        launched: view.launched,
        client_token: plan.client_token.clone(),
        offer: plan.offer.clone(),
        launch: plan.launch.clone(),
    }
}

/// A reason of a plan: what the job goes on with.
pub(crate) fn goes_on_from(continues: &Continues, kept: Option<&KeptMachine>) -> String {
    let checkpoint = continues.checkpoint.as_ref().map(|from| match from.checkpoint.step {
        Some(step) => format!(
            "from checkpoint {} (step {step}) of {}",
            from.checkpoint.number.number(),
            from.job
        ),
        None => format!("from checkpoint {} of {}", from.checkpoint.number.number(), from.job),
    });
    let disk = kept.map(|kept| format!("on the kept disk of {}", kept.instance));
    let from: Vec<String> = checkpoint.into_iter().chain(disk).collect();
    if from.is_empty() {
        format!("it goes on from {}", continues.job)
    } else {
        format!("it goes on {}", from.join(", "))
    }
}
