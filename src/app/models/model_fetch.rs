//! Brings the files of a version, or of a URL in the job root, into the cache.

use std::path::{Path, PathBuf};

use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::app::record_errors::record_fault;
use crate::job::ModelVersion;
use crate::jobdir::{JobDirError, ModelDir};
use crate::wire::{ScratchFolder, Store, forget_old_folders};

/// The folder of a version in the cache. It is fetched once: the files of a version never change.
///
/// # Errors
/// When the job root is unreachable, a file was changed, or the cache is full.
pub async fn fetch_version(
    store: &Store,
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
    for file in &version.files {
        let to = folder.join(&file.path);
        scratch.make_folder_of(&to).map_err(|error| cache_fault(&error))?;
        let same = dir
            .get_file(version, file, &to)
            .await
            .map_err(|error| record_fault(&JobDirError::Store(error)))?;
        if !same {
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

/// Fetches what is below a URL of the job root. `None`: the origin is no such URL.
///
/// # Errors
/// When the job root is unreachable, or the folder is missing.
pub async fn fetch_origin(
    store: &Store,
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
