//! Brings the files of a version, or of a URL in the job root, into the cache.

use std::path::{Path, PathBuf};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use super::registry::FILES_IN_FLIGHT;
use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::record_errors::record_fault;
use crate::app::submit::job_text::JOB_DIR;
use crate::job::{JOB_DIR_URL, ModelVersion, ResolvedSpec};
use crate::jobdir::{self, JobDir, JobDirError, ModelDir, layout};
use crate::wire::{ScratchFolder, StoreHandle, forget_old_folders};

/// The folder of a version in the cache. It is fetched once: the files of a version never change.
///
/// # Errors
/// When the job root is unreachable, a file was changed, or the cache is full.
pub async fn fetch_version(
    store: &StoreHandle,
    version: &ModelVersion,
    scratch: &ScratchFolder,
    cache: &Path,
) -> Result<PathBuf, Fault> {
    let models = cache.join("models");
    forget_old_folders(&models);
    let kept = models.join(&version.upload);
    if kept.is_dir() {
        return Ok(kept);
    }
    let dir = ModelDir::new(store.clone(), version.model.clone());
    let folder = scratch.path().join("model");
    let (dir, folder) = (&dir, &folder);
    let gets = version.files.iter().map(|file| async move {
        let to = folder.join(&file.path);
        scratch.make_folder_of(&to).map_err(|error| cache_fault(&error))?;
        let same = dir.get_file(version, file, &to).await;
        let same = same.map_err(|error| record_fault(&JobDirError::Store(error)))?;
        Ok::<_, Fault>((file, same))
    });
    let mut got = stream::iter(gets).buffered(FILES_IN_FLIGHT);
    while let Some((file, is_same)) = got.try_next().await? {
        if !is_same {
            let (name, model) = (&version.version, &version.model);
            let what = format!("`{}` of version `{name}` is not the stored file", file.path);
            return Err(Fault::new(ExitCode::REFUSED, what)
                .meaning("it was changed or removed in the job root, so nothing was predicted")
                .hint(format!(
                    "`lamp models versions delete {name} --model {model}`, then make the version again"
                )));
        }
    }
    scratch.keep("model", &kept).map_err(|error| cache_fault(&error))
}

/// The place in the job root of a folder below the `--job-dir` of a job. The newest such job
/// counts. `None`: no job had it.
///
/// # Errors
/// When the job root is unreachable.
pub async fn place_of_job_dir(store: &StoreHandle, origin: &str) -> Result<Option<String>, Fault> {
    if !origin.contains("://") || origin.starts_with(store.url().trim_end_matches('/')) {
        return Ok(None);
    }
    let jobs = jobdir::jobs(store.as_ref()).await;
    let jobs = jobs.map_err(|error| record_fault(&JobDirError::Store(error)))?;
    let read = stream::iter(jobs).map(|job| async move {
        // A spec that cannot be read is of no job that kept this folder.
        let spec = JobDir::new(store.clone(), job).spec().await.ok().flatten()?;
        let below = below_job_dir(&spec, origin)?;
        Some((spec.created, format!("{}{JOB_DIR}/{below}", layout::outputs(&spec.job))))
    });
    let found = read.buffer_unordered(READS_IN_FLIGHT).filter_map(std::future::ready);
    let places: Vec<(Timestamp, String)> = found.collect().await;
    let newest = places.into_iter().max();
    Ok(newest.map(|(_, key)| format!("{}/{key}", store.url().trim_end_matches('/'))))
}

/// The rest of a URL after the `--job-dir` of a job. A trial has a folder of its own there.
fn below_job_dir<'a>(spec: &ResolvedSpec, origin: &'a str) -> Option<&'a str> {
    let mut url = spec.spec.env.get(JOB_DIR_URL)?.clone();
    if let Some(trial) = &spec.tuned {
        url = format!("{url}/{}", trial.number);
    }
    let below = origin.strip_prefix(&url)?;
    let below = if below.is_empty() { below } else { below.strip_prefix('/')? };
    Some(below.trim_end_matches('/'))
}

/// Fetches what is below a URL of the job root. `None`: the origin is no such URL.
///
/// # Errors
/// When the job root is unreachable, or the folder is missing.
pub async fn fetch_origin(
    store: &StoreHandle,
    origin: &str,
    scratch: &ScratchFolder,
) -> Result<Option<PathBuf>, Fault> {
    let root = store.url();
    let Some(below) = origin.strip_prefix(root.trim_end_matches('/')) else { return Ok(None) };
    let Some(prefix) = below.strip_prefix('/') else { return Ok(None) };
    let prefix = format!("{}/", prefix.trim_end_matches('/'));
    let silent = |error| record_fault(&JobDirError::Store(error));
    let objects = store.list(&prefix).await.map_err(silent)?;
    if objects.is_empty() {
        let what = format!("nothing is below `{origin}`");
        return Err(Fault::new(ExitCode::NOT_FOUND, what)
            .hint("`lamp outputs JOB --list` shows what a job kept"));
    }
    let folder = scratch.path().join("origin");
    for object in objects {
        let Some(path) = object.key.strip_prefix(&prefix) else { continue };
        let to = folder.join(path);
        scratch.make_folder_of(&to).map_err(|error| cache_fault(&error))?;
        store.get_file(&object.key, &to).await.map_err(silent)?;
    }
    Ok(Some(folder))
}

pub fn cache_fault(error: &std::io::Error) -> Fault {
    Fault::new(ExitCode::UNREACHABLE, "the cache cannot be written")
        .because(error)
        .hint("XDG_CACHE_HOME says where it is")
}
