//! Finds the job that the user means: by its id, the beginning of it, or its name.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt as _};
use sha2::{Digest as _, Sha256};

use super::exit_code::ExitCode;
use super::fault::Fault;
use super::missing_spec::SpecGone;
use super::record_errors::record_fault;
use super::view::kept_machines;
use super::view::standalone_run::AloneRun;
use crate::config::closest;
use crate::instance::OWNER_TAG;
use crate::job::{JobId, Receipt, Spec, shell_word};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::wire::StoreHandle;

/// The hint for an empty job root.
pub const FIRST_JOB: &str = "`lamp init` writes a job file for the script that is here, `lamp run` runs it; --job-root names another place";

/// The job that the user means: its id, the beginning of one, or the newest with this name. Without
/// a word, the newest of all.
///
/// # Errors
/// Fails when there is no match, or several ids begin so.
pub async fn find(store: &StoreHandle, text: Option<&str>) -> Result<JobDir, Fault> {
    refuse_blank(text)?;
    find_among(store, &listed(store).await?, text).await
}

/// As [`find`], but without a word it prefers a job that is under way.
///
/// # Errors
/// As [`find`].
pub async fn find_to_watch(store: &StoreHandle, text: Option<&str>) -> Result<JobDir, Fault> {
    if text.is_some() {
        return find(store, text).await;
    }
    let jobs = listed(store).await?;
    let open = without_receipt(store, jobs.clone()).await;
    find_among(store, if open.is_empty() { &jobs } else { &open }, None).await
}

/// An unset variable in a script gives an empty word, which is the beginning of every id.
fn refuse_blank(text: Option<&str>) -> Result<(), Fault> {
    match text {
        Some(text) if text.trim().is_empty() => {
            Err(Fault::new(ExitCode::USAGE, "the name of the job is empty")
                .meaning("nothing was looked for, and nothing was changed")
                .hint("is the variable set that was to hold it? `lamp status` lists the jobs"))
        }
        _ => Ok(()),
    }
}

/// Exactly one job: its id, the beginning of one, or a unique name. For what cannot be undone.
///
/// # Errors
/// As [`find`], and when several have that name.
pub async fn find_only(store: &StoreHandle, text: &str) -> Result<JobDir, Fault> {
    refuse_blank(Some(text))?;
    let jobs = listed(store).await?;
    match by_name(store, &jobs, text).await.as_slice() {
        [] | [_] => find_among(store, &jobs, Some(text)).await,
        several => {
            let what = format!("have the name `{text}`");
            Err(say_which(ExitCode::NOT_FOUND, &what, several.iter())
                .meaning("nothing was changed"))
        }
    }
}

async fn listed(store: &StoreHandle) -> Result<Vec<JobId>, Fault> {
    jobdir::jobs(store.as_ref()).await.map_err(|error| record_fault(&error.into()))
}

async fn find_among(
    store: &StoreHandle,
    jobs: &[JobId],
    text: Option<&str>,
) -> Result<JobDir, Fault> {
    let dir = |job: &JobId| JobDir::new(Arc::clone(store), job.clone());
    let Some(text) = text else {
        return newest(store, jobs).await?.map(|job| dir(&job)).ok_or_else(|| no_jobs(store));
    };
    if let Some(job) = jobs.iter().find(|job| job.as_str() == text) {
        return Ok(dir(job));
    }
    if let Some(job) = newest(store, &named(store, jobs, text).await).await? {
        return Ok(dir(&job));
    }
    let begin_so: Vec<&JobId> = jobs.iter().filter(|job| job.as_str().starts_with(text)).collect();
    match begin_so.as_slice() {
        [job] => Ok(dir(job)),
        [] => match of_schedule(store, text).await {
            Some(fault) => Err(fault),
            None => Err(not_found(store, text, jobs)),
        },
        several => Err(say_which(
            ExitCode::NOT_FOUND,
            &format!("begin with `{text}`"),
            several.iter().copied(),
        )),
    }
}

/// The newest job of any of these names.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn newest_named(store: &StoreHandle, names: &[&str]) -> Result<Option<JobDir>, Fault> {
    let jobs = listed(store).await?;
    let mut meant = Vec::new();
    for name in names {
        meant.extend(named(store, &jobs, name).await);
    }
    Ok(newest(store, &meant).await?.map(|job| JobDir::new(Arc::clone(store), job)))
}

/// An id is the name and six letters or digits.
fn of_name(jobs: &[JobId], name: &str) -> Vec<JobId> {
    jobs.iter()
        .filter(|job| job.as_str().rsplit_once('-').is_some_and(|(of, _)| of == name))
        .cloned()
        .collect()
}

/// All jobs of this name, ended ones too.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn all_named(store: &StoreHandle, name: &str) -> Result<Vec<JobId>, Fault> {
    Ok(named(store, &listed(store).await?, name).await)
}

/// The id of a job whose name no other job of the job root may have.
pub fn id_of_only(store: &StoreHandle, name: &str) -> JobId {
    let root = store.url();
    let hash = Sha256::digest(format!("{}\nonly\n{name}", root.trim_end_matches('/')).as_bytes());
    let mut letters = [0; 6];
    letters.copy_from_slice(&hash[..6]);
    JobId::from_name(name, letters)
}

/// The same by the name in the spec: an id has no capitals and blanks.
async fn named(store: &StoreHandle, jobs: &[JobId], name: &str) -> Vec<JobId> {
    let slug = JobId::slug(name);
    let alike = of_name(jobs, &slug);
    if slug == name {
        return alike;
    }
    let read = stream::iter(alike).map(|job| async move {
        let spec = JobDir::new(Arc::clone(store), job.clone()).spec().await;
        spec.ok().flatten().is_some_and(|spec| spec.spec.name == name).then_some(job)
    });
    read.buffered(READS_IN_FLIGHT).filter_map(std::future::ready).collect().await
}

/// Jobs of this name, unless it is the id of one job.
async fn by_name(store: &StoreHandle, jobs: &[JobId], text: &str) -> Vec<JobId> {
    if jobs.iter().any(|job| job.as_str() == text) {
        Vec::new()
    } else {
        named(store, jobs, text).await
    }
}

/// Unfinished jobs of this name, as far as their records can be read.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn under_way(store: &StoreHandle, name: &str) -> Result<Vec<JobId>, Fault> {
    Ok(without_receipt(store, named(store, &listed(store).await?, name).await).await)
}

/// All unfinished jobs, to end them; an error for each job whose state cannot be read. A job
/// without a spec counts while its machine may run.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn all_under_way(store: &StoreHandle) -> Result<Vec<Result<JobDir, Fault>>, Fault> {
    let read = stream::iter(listed(store).await?).map(|job| async move {
        let dir = JobDir::new(Arc::clone(store), job);
        match tokio::join!(dir.receipt(), dir.spec()) {
            (Ok(Some(_)), _) => None,
            (Ok(None), Ok(Some(spec))) => (!spec.is_alone()).then_some(Ok(dir)),
            (Ok(None), Ok(None)) => match SpecGone::of(&dir).await {
                Ok(gone) => gone.filter(SpecGone::may_run).map(|_| Ok(dir)),
                Err(error) => Some(Err(record_fault(&error))),
            },
            (Err(error), _) | (_, Err(error)) => Some(Err(record_fault(&error))),
        }
    });
    Ok(read.buffered(READS_IN_FLIGHT).filter_map(std::future::ready).collect().await)
}

/// All jobs except those that have certainly ended: an unreadable job may be open.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn all_that_may_be_open(store: &StoreHandle) -> Result<Vec<JobId>, Fault> {
    let read = stream::iter(listed(store).await?).map(|job| async move {
        let dir = JobDir::new(Arc::clone(store), job.clone());
        let is_open = match (dir.receipt().await, dir.spec().await) {
            (Err(error @ JobDirError::Store(_)), _) | (_, Err(error @ JobDirError::Store(_))) => {
                return Err(record_fault(&error));
            }
            (Ok(Some(_)), _) | (_, Ok(None)) => false,
            (_, Ok(Some(spec))) => !spec.is_alone(),
            // A damaged spec cannot be launched; a newer version can launch a newer spec.
            (_, Err(error)) => !error.is_damage(),
        };
        Ok(is_open.then_some(job))
    });
    let read: Vec<Option<JobId>> = read.buffered(READS_IN_FLIGHT).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

/// The owner of a job's machines, by its newest readable plan, else by its spec. `None`: unknown.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn owner_of(dir: &JobDir) -> Result<Option<String>, Fault> {
    for attempt in dir.attempts().await.map_err(|error| record_fault(&error))?.into_iter().rev() {
        match dir.plan(attempt).await {
            Ok(Some(plan)) => return Ok(plan.tags.get(OWNER_TAG).cloned()),
            Err(error @ JobDirError::Store(_)) => return Err(record_fault(&error)),
            Ok(None) | Err(_) => {}
        }
    }
    match dir.spec().await {
        Err(error @ JobDirError::Store(_)) => Err(record_fault(&error)),
        spec => Ok(spec.ok().flatten().and_then(|spec| spec.owner().map(str::to_owned))),
    }
}

pub const READS_IN_FLIGHT: usize = 32;

async fn without_receipt(store: &StoreHandle, jobs: Vec<JobId>) -> Vec<JobId> {
    let read = stream::iter(jobs).map(|job| async move {
        let dir = JobDir::new(Arc::clone(store), job.clone());
        let is_open = matches!(dir.receipt().await, Ok(None))
            && matches!(dir.spec().await, Ok(Some(spec)) if !spec.is_alone());
        is_open.then_some(job)
    });
    read.buffered(READS_IN_FLIGHT).filter_map(std::future::ready).collect().await
}

/// The job to end or to change. As [`find`], but a job under way is preferred, and several are an
/// error.
///
/// # Errors
/// Fails when there is no match, or several are under way.
pub async fn find_under_way(store: &StoreHandle, text: Option<&str>) -> Result<JobDir, Fault> {
    refuse_blank(text)?;
    under_way_among(store, &listed(store).await?, text).await
}

/// The same for each of these words, with one listing.
///
/// # Errors
/// Fails when the job root is unreachable; each word may have its own error.
pub async fn each_under_way(
    store: &StoreHandle,
    words: &[String],
) -> Result<Vec<Result<JobDir, Fault>>, Fault> {
    let jobs = listed(store).await?;
    let mut found = Vec::new();
    for word in words {
        found.push(match refuse_blank(Some(word)) {
            Ok(()) => under_way_among(store, &jobs, Some(word)).await,
            Err(blank) => Err(blank),
        });
    }
    Ok(found)
}

async fn under_way_among(
    store: &StoreHandle,
    jobs: &[JobId],
    text: Option<&str>,
) -> Result<JobDir, Fault> {
    let meant = match text {
        Some(text) => by_name(store, jobs, text).await,
        None => jobs.to_vec(),
    };
    match without_receipt(store, meant).await.as_slice() {
        [] => find_among(store, jobs, text).await,
        [only] => Ok(JobDir::new(Arc::clone(store), only.clone())),
        several => {
            let what = text.map_or_else(
                || "are under way".to_owned(),
                |name| format!("of the name `{name}` are under way"),
            );
            Err(say_which(ExitCode::REFUSED, &what, several.iter()).meaning("nothing was changed"))
        }
    }
}

/// The spec of the job that a wish is for. A job that has ended or is unreadable gets no wish.
///
/// # Errors
/// Fails for such a job, and when the job root is unreachable.
pub async fn must_be_under_way(dir: &JobDir) -> Result<Spec, Fault> {
    let fault = |error| record_fault(&error);
    if let Some(ended) = dir.receipt().await.map_err(fault)? {
        let kept = kept_machines::kept_of(dir, &ended).await.map_err(fault)?;
        let refused = has_ended(dir, &ended);
        return Err(match kept.as_slice() {
            [] => refused.meaning("nothing of it runs, and nothing of it bills"),
            _ => refused.meaning(format!(
                "nothing of it runs; {}",
                kept_machines::sentence(dir.job().as_str(), &kept)
            )),
        });
    }
    spec_under_way(dir).await
}

pub fn has_ended(dir: &JobDir, ended: &Receipt) -> Fault {
    Fault::new(ExitCode::REFUSED, format!("job `{}` has ended: {}", dir.job(), ended.told()))
}

/// As [`must_be_under_way`], for a job that has no receipt, as the caller has seen.
///
/// # Errors
/// As there.
pub async fn spec_under_way(dir: &JobDir) -> Result<Spec, Fault> {
    let fault = |error| record_fault(&error);
    match dir.spec().await.map_err(fault)? {
        Some(resolved) if resolved.is_alone() => {
            if AloneRun::read(dir).await.map_err(fault)?.is_some_and(|run| run.has_ended()) {
                return Err(Fault::new(
                    ExitCode::REFUSED,
                    format!("`{}` was a run of the agent alone, and has ended", dir.job()),
                )
                .meaning("nothing was changed: such a run keeps no machine")
                .hint(format!(
                    "`lamp logs {}` prints what it said; `lamp-agent` on its machine runs it again",
                    dir.job()
                )));
            }
            Err(Fault::new(
                ExitCode::REFUSED,
                format!("`{}` is a run of the agent alone: it reads no wishes", dir.job()),
            )
            .meaning("nothing was changed")
            .hint("Ctrl-C where it was started, or SIGTERM to its `lamp-agent`, ends it"))
        }
        Some(resolved) => Ok(resolved.spec),
        None => {
            if let Some(gone) = SpecGone::of(dir).await.map_err(fault)? {
                return Err(gone.fault(dir));
            }
            // The code is uploaded before the spec, so an upload in progress and an aborted one
            // look the same.
            Err(Fault::new(
                ExitCode::NOT_FOUND,
                format!("job `{}` is being submitted just now, or never was to the end", dir.job()),
            )
            .meaning("nothing was asked of it; nothing of it runs or bills as long as that is so")
            .hint("where `lamp run` is at it, ask again in a moment"))
        }
    }
}

const NAMED: usize = 12;

fn say_which<'a>(
    code: ExitCode,
    what: &str,
    jobs: impl ExactSizeIterator<Item = &'a JobId>,
) -> Fault {
    let fault = Fault::new(code, format!("{} jobs {what}", jobs.len()));
    let more = jobs.len().saturating_sub(NAMED);
    let names: Vec<&str> = jobs.take(NAMED).map(JobId::as_str).collect();
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more; `lamp status` lists all")
    };
    fault.hint(format!("say which: {}{more}", names.join(", ")))
}

/// The error for the name of a schedule without a run. An unreadable schedule counts as none.
async fn of_schedule(store: &StoreHandle, text: &str) -> Option<Fault> {
    let schedules = jobdir::schedules(store, None).await.ok()?;
    let found = schedules.iter().find(|schedule| {
        schedule.name() == text || format!("{}/{}", schedule.set(), schedule.name()) == text
    })?;
    let (set, name) = (found.set(), found.name());
    let fault = Fault::new(
        ExitCode::NOT_FOUND,
        format!("`{set}/{name}` is a schedule, and no job of it is there"),
    )
    .meaning("nothing was changed");
    Some(fault.hint(format!("`lamp schedules` shows it; without its file in the folder, `lamp apply {} --prune` removes it", shell_word(set))))
}

fn not_found(store: &StoreHandle, text: &str, jobs: &[JobId]) -> Fault {
    let fault = Fault::new(ExitCode::NOT_FOUND, format!("no job `{text}` in {}", store.url()));
    let names = jobs.iter().filter_map(|job| job.as_str().rsplit_once('-')).map(|(name, _)| name);
    match closest(text, jobs.iter().map(JobId::as_str).chain(names)) {
        Some(job) => fault.hint(format!("did you mean `{job}`?")),
        // A whole id comes from somewhere: its records may be gone, but not its machine.
        None if text.parse::<JobId>().is_ok() => fault
            .hint("`lamp status` lists the jobs; --job-root names another place; a machine of a job that nobody here knows is named by `lamp sweep`"),
        None => fault.hint("`lamp status` lists the jobs; --job-root names another place"),
    }
}

fn no_jobs(store: &StoreHandle) -> Fault {
    Fault::new(ExitCode::NOT_FOUND, format!("no jobs in {}", store.url())).hint(FIRST_JOB)
}

async fn newest(store: &StoreHandle, jobs: &[JobId]) -> Result<Option<JobId>, Fault> {
    if let [only] = jobs {
        return Ok(Some(only.clone()));
    }
    let mut newest = None;
    for job in jobs {
        // A folder without a spec is no job yet; a record of a newer version must not hide the
        // others.
        let Ok(Some(spec)) = JobDir::new(Arc::clone(store), job.clone()).spec().await else {
            continue;
        };
        newest = newest.max(Some((spec.created, job.clone())));
    }
    Ok(newest.map(|(_, job)| job))
}
