//! The jobs of a gang, found by any one of them.

use std::sync::Arc;

use crate::app::{ExitCode, Fault, find_job, record_errors};
use crate::job::{GangMember, JobId, ResolvedSpec, Spec};
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::StoreHandle;

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

/// Rank 0 of the gang of this job, or the job itself.
pub async fn leader_of(dir: JobDir) -> JobDir {
    let member = member_of(&dir).await.ok().flatten();
    let leader = member.map(|member| member.leader().clone());
    leader.map_or(dir.clone(), |leader| JobDir::new(Arc::clone(dir.store()), leader))
}

/// The jobs that a job stands for: all ranks for rank 0, and itself for each other job. If its
/// spec cannot be read, the caller finds that too.
pub async fn ranks_below(dir: &JobDir) -> Vec<JobId> {
    let member = member_of(dir).await.ok().flatten().filter(|member| member.rank == 0);
    let alone = || vec![dir.job().clone()];
    member.map_or_else(alone, |member| member.seats.into_iter().map(|seat| seat.job).collect())
}

/// The job that a person means: a word, and the rank if the job has several.
///
/// # Errors
/// Fails when the job or the rank is missing.
pub async fn find_rank(
    store: &StoreHandle,
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

/// Refuses a schedule of a gang: the daemon starts jobs of one machine.
///
/// # Errors
/// Fails when the job has several machines.
pub fn refuse_scheduled_gang(spec: &Spec) -> Result<(), Fault> {
    if spec.gang.is_none() {
        return Ok(());
    }
    let what = "a [schedule] cannot start a job of several machines yet";
    Err(Fault::new(ExitCode::REFUSED, what)
        .meaning("nothing was started or billed")
        .hint("leave out [schedule] and run `lamp apply` when it is due"))
}
