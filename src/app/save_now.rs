//! Asks a job to save a checkpoint now, and to go on.

use super::session::Session;
use super::view::job_summary::Summary;
use super::{ExitCode, Fault, find_job, record_errors};
use crate::job::{JobId, JobState, Spec, Wish};
use crate::jobdir::JobDir;

/// Says what the act does to the job and to its bill.
///
/// # Errors
/// Fails when the job has ended, saves no checkpoints, or the job root is unreachable.
pub async fn foretell(dir: &JobDir) -> Result<String, Fault> {
    let spec = find_job::must_be_under_way(dir).await?;
    must_save(&spec, dir.job())?;
    Ok(
        "the job saves a checkpoint and goes on. Nothing ends, and the bill changes only by the storage of the checkpoint"
            .to_owned(),
    )
}

/// Records the request. Returns its number.
///
/// # Errors
/// As [`foretell`], or when no machine runs the job now.
pub async fn save_now(session: &Session<'_>, dir: &JobDir) -> Result<u32, Fault> {
    let spec = find_job::must_be_under_way(dir).await?;
    must_save(&spec, dir.job())?;
    let fault = |error| record_errors::record_fault(&error);
    let now = session.clock.now();
    let summary = Summary::read(dir, now).await.map_err(fault)?;
    let state = summary.map_or(JobState::Submitted, |summary| summary.state);
    if state != JobState::Running {
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` is {state}: its command does not run now", dir.job()),
        )
        .meaning("the job and its bill are as before")
        .hint(format!("`lamp status {}` shows when it runs", dir.job())));
    }
    let owner = find_job::owner_of(dir).await?;
    session.confirm_owner(dir.job(), owner)?;
    let workstation = session.workstation;
    let request = dir
        .insist_on(Wish::Checkpoint, &workstation.name, &**session.clock)
        .await
        .map_err(|error| record_errors::wish_fault(&error, dir.job()))?;
    session.note(format!("asked {} to save a checkpoint now; it goes on after that", dir.job()));
    session.hint(format!("`lamp explain {}` shows when the checkpoint is complete", dir.job()));
    Ok(request.number)
}

fn must_save(spec: &Spec, job: &JobId) -> Result<(), Fault> {
    let why = match &spec.checkpoint {
        None => "has no [checkpoint] to save to",
        Some(checkpoint) if checkpoint.signal.is_none() => {
            "has no `signal` in [checkpoint], so it cannot be asked to save"
        }
        Some(_) => return Ok(()),
    };
    Err(Fault::new(ExitCode::REFUSED, format!("job `{job}` {why}"))
        .meaning("nothing was asked of it, and its machine runs on")
        .hint("add `signal = \"SIGUSR1\"` to [checkpoint] of the next job"))
}
