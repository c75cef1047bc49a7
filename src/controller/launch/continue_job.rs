//! The remains of an ended job, and the job that continues it.
//!
//! ```text
//!   receipt, last plan, checkpoints, the cloud ──> Kept ──> code ──> spec.json of the next job
//! ```
//! The next job's id follows from the old one's, and its spec is created only if absent. So a
//! second start, or a start after a crash, makes one job. The spec holds all that the start needs:
//! any controller can continue from it.

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

/// The remains of an ended job that a new job continues.
#[derive(Clone, Debug)]
pub struct Kept {
    pub spec: ResolvedSpec,
    pub receipt: Receipt,
    /// The checkpoint and the machine; either may be missing.
    pub continues: Continues,
    /// The rest of the job's budget, with its extensions; `None`: it has no budget.
    pub budget_left: Option<Usd>,
    /// With its extensions.
    pub deadline: Option<Timestamp>,
    /// Its machine is stopping and cannot be started yet.
    pub stopping: Option<String>,
    /// Why this controller cannot see its machine.
    pub elsewhere: Option<String>,
}

/// The id of the job that continues another one: always the same.
pub fn continuation_of(job: &JobId, name: &str) -> JobId {
    let hash = Sha256::digest(format!("goes on from\n{job}").as_bytes());
    let mut letters = [0; 6];
    letters.copy_from_slice(&hash[..6]);
    JobId::from_name(name, letters)
}

impl JobLauncher {
    /// The remains of a job; `None`: it runs, or is unknown.
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
            continues: Continues {
                job: dir.job().clone(),
                checkpoint,
                machine,
                new_code: false,
                only_setup: false,
            },
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

    /// The stopped machine of an ended trial, for another trial that begins on its setup. `None`:
    /// it has none, or another job has it.
    ///
    /// # Errors
    /// When the store or the cloud does not answer.
    pub async fn reusable(&self, dir: &JobDir) -> Result<Option<Continues>, ActError> {
        let Some(plan) = last_plan(dir).await? else { return Ok(None) };
        let view = self.clouds.machine_of(&plan, self.clock.mono()).await?;
        let machine = view
            .filter(|view| can_start(view) && &view.tags.job == dir.job())
            .map(|view| kept_machine(&plan, view));
        Ok(machine.map(|machine| Continues {
            job: dir.job().clone(),
            checkpoint: None,
            machine: Some(machine),
            new_code: false,
            only_setup: true,
        }))
    }

    /// Whether the cloud shows the machine of the last attempt as stopped.
    ///
    /// When the store does not answer. Without an answer of the cloud the result is `false`.
    pub async fn is_stopped(&self, dir: &JobDir) -> Result<bool, JobDirError> {
        let Some(plan) = last_plan(dir).await? else { return Ok(false) };
        let view = self.clouds.machine_of(&plan, self.clock.mono()).await.ok().flatten();
        Ok(view.is_some_and(|view| view.state == InstanceState::Stopped))
    }

    /// Copies the code of a job to the one that continues it, through a file of this workstation.
    ///
    /// When the job root refuses, or the code is gone.
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

/// A reason of a plan: the remains that the job continues with.
pub(crate) fn goes_on_from(continues: &Continues, kept: Option<&KeptMachine>) -> String {
    let checkpoint = continues.checkpoint.as_ref().map(|from| match from.checkpoint.step {
        Some(step) => format!(
            "from checkpoint {} (step {step}) of {}",
            from.checkpoint.number.number(),
            from.job
        ),
        None => format!("from checkpoint {} of {}", from.checkpoint.number.number(), from.job),
    });
    if continues.only_setup {
        return match kept {
            Some(kept) => {
                format!("it begins on the setup of {}, by {}", kept.instance, continues.job)
            }
            None => format!("it begins on a new machine; {} kept one", continues.job),
        };
    }
    let disk = kept.map(|kept| format!("on the kept disk of {}", kept.instance));
    let from: Vec<String> = checkpoint.into_iter().chain(disk).collect();
    if from.is_empty() {
        format!("it goes on from {}", continues.job)
    } else {
        format!("it goes on {}", from.join(", "))
    }
}
