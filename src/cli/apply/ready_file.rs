//! A job file that `lamp apply` has read: its job or its schedule, before anything is done.

use std::path::Path;
use std::sync::Arc;

use crate::app::gang::gang_jobs::refuse_scheduled_gang;
use crate::app::launch::packed_job::{self, PackedJob};
use crate::app::launch::preflight;
use crate::app::launch::submission::Submission;
use crate::app::record_errors;
use crate::app::session::Session;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::{Applied, JobId, RECORD_FORMAT, Schedule};
use crate::jobdir::ScheduleDir;
use crate::market::CloudKind;

pub struct ReadyFile {
    pub submission: Submission,
    pub applied: Applied,
    pub scheduled: Option<Scheduled>,
}

pub struct Scheduled {
    pub dir: ScheduleDir,
    pub new: Schedule,
    pub kept: Option<Schedule>,
    pub packed: PackedJob,
}

impl Scheduled {
    pub fn is_as_kept(&self) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| has_same_words(kept, &self.new) && has_same_code(kept, &self.new))
    }

    /// Whether only the workdir differs. Every file in it counts, also job files.
    pub fn is_of_another_workdir(&self) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| has_same_words(kept, &self.new) && !has_same_code(kept, &self.new))
    }
}

fn has_same_code(kept: &Schedule, new: &Schedule) -> bool {
    kept.code.as_ref().map(|code| &code.sha256) == new.code.as_ref().map(|code| &code.sha256)
}

/// The same except for the workdir.
fn has_same_words(kept: &Schedule, new: &Schedule) -> bool {
    kept.removed.is_none()
        && kept.applied == new.applied
        && kept.schedule == new.schedule
        && kept.spec == new.spec
        && kept.here == new.here
}

/// Reads what is kept for a file, and packs the workdir if it has a schedule.
///
/// # Errors
/// Fails when the job root is unreachable, the workdir cannot be packed, or another owner has the
/// schedule.
pub async fn read(
    context: &Context,
    session: &Session<'_>,
    set: &str,
    submission: &Submission,
) -> Result<ReadyFile, Fault> {
    let loaded = &submission.loaded;
    let file = loaded.file.as_deref().unwrap_or(Path::new(""));
    preflight::refuse_cloud(loaded.spec.machine.cloud)?;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let applied = Applied {
        set: set.to_owned(),
        file: name.clone(),
        sha256: loaded.file_sha256.clone().unwrap_or_default(),
        owner: context.config.user.owner.clone(),
        due: None,
    };
    let submission = submission.clone();
    let Some(schedule) = loaded.schedule.clone() else {
        return Ok(ReadyFile { submission, applied, scheduled: None });
    };
    refuse_scheduled_gang(&loaded.spec)?;
    let dir = ScheduleDir::new(
        Arc::clone(session.store),
        set,
        &JobId::slug(&file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default()),
    );
    let kept = dir.record().await.map_err(|error| record_errors::record_fault(&error))?;
    if let Some(kept) = kept
        .as_ref()
        .filter(|kept| kept.applied.owner != applied.owner || kept.applied.file != applied.file)
    {
        let whose = format!(
            "the schedule `{set}/{}` is `{}` of `{}`",
            dir.name(),
            kept.applied.file,
            kept.applied.owner
        );
        return Err(Fault::new(ExitCode::REFUSED, whose)
            .meaning("nothing was changed")
            .hint("`--set NAME` keeps yours beside it"));
    }
    let spec = submission.spec(&context.config.user.owner, context.clock.now());
    let packed = packed_job::pack(session, &submission, spec).await?;
    let here = match loaded.spec.machine.cloud {
        CloudKind::Local => Some(here(context)?),
        CloudKind::Aws => None,
    };
    let mut new = Schedule {
        format: RECORD_FORMAT,
        applied: applied.clone(),
        since: context.clock.now(),
        written_by: packed.spec.written_by.clone(),
        schedule,
        spec: loaded.spec.clone(),
        code: packed.spec.code.clone(),
        origins: loaded.origins.clone(),
        here,
        removed: None,
    };
    // A changed workdir alone makes nothing due again.
    if let Some(kept) = kept.as_ref().filter(|kept| has_same_words(kept, &new)) {
        new.since = kept.since;
    }
    Ok(ReadyFile { submission, applied, scheduled: Some(Scheduled { dir, new, kept, packed }) })
}

fn here(context: &Context) -> Result<String, Fault> {
    let here = job_root::workstation(context)?.here();
    here.map(|here| here.as_str().to_owned()).map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "cannot write in the state folder").because(&error)
    })
}
