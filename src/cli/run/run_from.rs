//! `lamp run --from JOB`: a new job with its own spec, from the newest checkpoint of an ended job.
//!
//! `lamp start` continues with the same spec. Not here: what happens to the job then (`run`).

use std::path::PathBuf;

use crate::app::drive;
use crate::app::find_job;
use crate::app::launch::first_plan;
use crate::app::view::discarded;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, JobArgs};
use crate::controller::Kept;
use crate::job::{Continues, ResolvedSpec, StoredKind};
use crate::jobdir::JobDir;
use crate::wire::StoreHandle;

const NOTHING: &str = "nothing was started or billed";

pub struct RunFrom {
    kept: Kept,
}

impl RunFrom {
    /// # Errors
    /// Fails when the job is missing, still runs, or has saved nothing.
    pub async fn find(context: &Context, job: &str) -> Result<RunFrom, Fault> {
        let store = job_root::open_existing(context).await?;
        let dir = find_job::find(&store, Some(job)).await?;
        let controller = drive::controller(&job_root::workstation(context)?, &store)?;
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
            Some(&JobDir::new(StoreHandle::clone(&store), from.job.clone())),
            StoredKind::Checkpoints,
        )
        .await?;
        Ok(RunFrom { kept })
    }

    /// The job file of that job, if the user named none and it is on this workstation.
    pub fn with_its_file(&self, context: &Context, args: &JobArgs) -> JobArgs {
        let here =
            job_root::workstation(context).ok().and_then(|workstation| workstation.here().ok());
        let source = self.kept.spec.code.as_ref().and_then(|code| code.source.as_ref());
        let source =
            source.filter(|source| here.is_some_and(|here| here.as_str() == source.workstation));
        let file = source.and_then(|source| source.file.as_ref()).map(PathBuf::from);
        JobArgs { file: args.file.clone().or(file), ..args.clone() }
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
