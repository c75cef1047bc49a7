//! The jobs of a gang, found by any one of them.

use std::sync::Arc;

use crate::app::{ExitCode, Fault, find_job, record_errors};
use crate::job::{GangMember, ResolvedSpec, Spec};
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::Store;

/// The place of a job in its gang. `None`: its job has one machine.
///
/// # Errors
/// When the job root does not answer.
pub async fn member_of(dir: &JobDir) -> Result<Option<GangMember>, JobDirError> {
    let spec: Option<ResolvedSpec> = dir.spec().await?;
    Ok(spec.and_then(|spec| spec.member().cloned()))
}

/// The directories of all ranks, in order.
pub fn all_ranks(dir: &JobDir, member: &GangMember) -> Vec<JobDir> {
    let of = |seat: &crate::job::GangSeat| JobDir::new(Arc::clone(dir.store()), seat.job.clone());
    member.seats.iter().map(of).collect()
}

/// The job that a person means: a word, and the rank if the job has several.
///
/// # Errors
/// Fails when the job or the rank is missing.
pub async fn find_rank(
    store: &Store,
    text: Option<&str>,
    rank: Option<u32>,
) -> Result<JobDir, Fault> {
    let dir = find_job::find_to_watch(store, text).await?;
    let Some(rank) = rank else { return Ok(dir) };
    let member = member_of(&dir).await.map_err(|error| record_errors::record_fault(&error))?;
    let Some(member) = member else {
        let what = format!("job `{}` has one machine, and so no rank {rank}", dir.job());
        return Err(Fault::new(ExitCode::NOT_FOUND, what).hint("leave out `--rank`"));
    };
    let ranks = member.seats.len();
    all_ranks(&dir, &member).into_iter().nth(rank as usize).ok_or_else(|| {
        Fault::new(ExitCode::NOT_FOUND, format!("job `{}` has no rank {rank}", dir.job()))
            .hint(format!("its ranks are 0 to {}", ranks.saturating_sub(1)))
    })
}

/// Refuses a gang where this version only knows jobs of one machine. `act`: `` `lamp apply` ``.
///
/// # Errors
/// Fails when the job has several machines.
pub fn refuse_gang(spec: &Spec, act: &str) -> Result<(), Fault> {
    if spec.gang.is_none() {
        return Ok(());
    }
    let what = format!("{act} cannot start a job of several machines yet");
    Err(Fault::new(ExitCode::REFUSED, what)
        .meaning("nothing was started or billed")
        .hint("`lamp run FILE` starts all its machines; leave out `nodes` and [gang] for one"))
}
