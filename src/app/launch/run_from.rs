//! `lamp run --from JOB`: a new job with its own spec, from the newest checkpoint of an ended job.
//!
//! `lamp start` continues with the same spec. Not here: what happens to the job then (`run`).

use std::path::PathBuf;

use super::first_plan;
use crate::app::session::Session;
use crate::app::view::discarded;
use crate::app::{ExitCode, Fault, drive, find_job};
use crate::controller::Kept;
use crate::job::{Continues, ResolvedSpec, StoredKind};
use crate::jobdir::JobDir;
use crate::wire::{StoreHandle, Workstation};

const NOTHING: &str = "nothing was started or billed";

pub struct RunFrom {
    kept: Kept,
}

impl RunFrom {
    /// # Errors
    /// Fails when the job is missing, still runs, or has saved nothing.
    pub async fn find(session: &Session<'_>, job: &str) -> Result<RunFrom, Fault> {
        let store = session.store;
        let dir = find_job::find(store, Some(job)).await?;
        let controller = drive::controller(session.workstation, store)?;
        let Some(kept) = controller
            .kept(&dir)
            .await
            .map_err(|error| first_plan::fault(&error).meaning(NOTHING))?
        else {
            return Err(Fault::new(
                ExitCode::REFUSED,
                format!("job `{}` has not ended: its newest checkpoint is not its last", dir.job()),
            )
            .meaning(NOTHING)
            .hint(format!("`lamp stop {}` ends it with a save", dir.job())));
        };
        let Some(from) = &kept.continues.checkpoint else {
            return Err(Fault::new(
                ExitCode::REFUSED,
                format!(
                    "job `{}` has saved no checkpoint: there is nothing to begin from",
                    dir.job()
                ),
            )
            .meaning(NOTHING)
            .hint("`lamp run FILE` runs a job from its start"));
        };
        discarded::refuse_start(
            &dir,
            Some(&JobDir::new(StoreHandle::clone(store), from.job.clone())),
            StoredKind::Checkpoints,
        )
        .await?;
        Ok(RunFrom { kept })
    }

    /// The job file of that job, if it is on this workstation.
    pub fn job_file(&self, workstation: &Workstation) -> Option<PathBuf> {
        let here = workstation.here().ok()?;
        let source = self.kept.spec.code.as_ref()?.source.as_ref()?;
        let is_here = here.as_str() == source.workstation;
        source.file.as_ref().filter(|_| is_here).map(PathBuf::from)
    }

    /// Sets the checkpoint of the new job. Its machine is new: a kept disk is for `lamp start`.
    ///
    /// # Errors
    /// Fails when the new job has no folder for checkpoints.
    pub fn give(&self, spec: &mut ResolvedSpec) -> Result<(), Fault> {
        if spec.spec.checkpoint.is_none() {
            let what =
                "the job names no [checkpoint] folder: a checkpoint could not be brought there";
            return Err(Fault::new(ExitCode::REFUSED, what)
                .meaning(NOTHING)
                .hint("name it in the job file, or with `--checkpoint PATH`"));
        }
        spec.continues = Some(Continues { machine: None, ..self.kept.continues.clone() });
        Ok(())
    }

    pub fn sentence(&self) -> Option<String> {
        let from = self.kept.continues.checkpoint.as_ref()?;
        let step = from.checkpoint.step.map(|step| format!(" (step {step})")).unwrap_or_default();
        Some(format!(
            "it begins from checkpoint {}{step} of {}",
            from.checkpoint.number.number(),
            from.job
        ))
    }
}
