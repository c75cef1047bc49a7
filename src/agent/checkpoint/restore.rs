//! Restores the newest complete checkpoint into the folder, before the workload starts.
//!
//! Every file is checked against its SHA-256 before any is moved into place. A damaged checkpoint
//! is skipped with an event, and the next older one is taken. If the store does not answer, the
//! attempt waits: a start from zero would lose work. On a kept disk, newer files on the disk win
//! over the checkpoint.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, TryStreamExt};

use super::completeness::file_names::{is_log, link_stays_below, stays_below};
use super::completeness::folder_diff::{is_link, picture};
use super::persisted_state::{CheckpointState, STATE_FILE};
use super::upload::FILES_MAX;
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, RetryDelay, chain};
use crate::agent::startup::fetch_status::Fetching;
use crate::job::{CheckpointNo, JobId, Manifest, ManifestEntry, StoredKind};
use crate::jobdir::{EventDetail, JobDir, JobDirError, layout};
use crate::ports::StoreError;

/// Parallel downloads, bounded for the same reason as uploads.
const FILES_IN_FLIGHT: usize = 4;

/// The longest upload time that a manifest is trusted with. Slower is of no use on a spot machine.
const UPLOAD_SECS_MAX: f64 = 24.0 * 3600.0;

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("cannot write the checkpoint folder")]
    Disk(#[source] io::Error),
    /// The user asked to continue, and a start from zero costs money.
    #[error("the job goes on from `{0}`, whose checkpoints were discarded")]
    Discarded(JobId),
}

#[derive(Debug, thiserror::Error)]
enum DamagedCheckpoint {
    #[error("it says `{0}`, which leads out of the checkpoint folder")]
    Path(String),
    #[error("`{0}` is listed twice")]
    Twice(String),
    #[error("`{0}` is missing in the job directory")]
    Missing(String),
    #[error("`{0}` is not what was saved")]
    Content(String),
    #[error("its manifest cannot be read")]
    Manifest(#[source] JobDirError),
}

enum FetchStop {
    Damaged(DamagedCheckpoint),
    Store(StoreError),
    Disk(io::Error),
}

impl From<DamagedCheckpoint> for FetchStop {
    fn from(damaged: DamagedCheckpoint) -> Self {
        FetchStop::Damaged(damaged)
    }
}

/// Restores the newest complete checkpoint. While the job has none, restores the newest of the job
/// that it continues (`inherited`). `None`: there is none yet. Other files in the folder stay.
/// Records `Resumed`. Retries without limit when the store does not answer, and tells `fetching`.
///
/// `is_kept`: the folder is on the disk of the continued job. If a checkpoint file there is newer
/// than the checkpoint, uploads were behind: the folder stays as it is, and its step is unknown.
///
/// # Errors
/// When it cannot be put in place, or was discarded.
pub async fn restore(
    outbox: &Outbox,
    inherited: Option<&JobId>,
    journal: &Journal,
    (folder, is_kept): (&Path, bool),
    fetching: &Fetching,
) -> Result<Option<Manifest>, RestoreError> {
    let scratch = scratch(folder);
    let theirs = theirs(outbox, inherited);
    let mut own = true;
    let try_both = async {
        match (
            try_all(outbox, journal, (folder, RestoreTarget::Any), &scratch, fetching).await?,
            &theirs,
        ) {
            (None, Some(theirs)) => {
                own = false;
                let target = if is_kept { RestoreTarget::OnKeptDisk } else { RestoreTarget::Any };
                let found = try_all(theirs, journal, (folder, target), &scratch, fetching).await?;
                let is_gone = found.is_none()
                    && !is_kept
                    && matches!(
                        theirs.dir.discarded_of(StoredKind::Checkpoints).await,
                        Ok(Some(_))
                    );
                if is_gone {
                    Err(RestoreError::Discarded(theirs.dir.job().clone()))
                } else {
                    Ok(found)
                }
            }
            (found, _) => Ok(found),
        }
    };
    fetching.begin("the checkpoint of the job".into());
    let found: Result<Option<RestoredState>, RestoreError> = try_both.await;
    if let Err(error) = outbox.files.remove(&scratch) {
        tracing::warn!("cannot remove {}: {error}", scratch.display());
    }
    let manifest = match found? {
        None => return Ok(None),
        Some(RestoredState::Restored(manifest)) => manifest,
        Some(RestoredState::OlderThan { path, manifest }) => {
            let text = format!(
                "`{path}` on the kept disk is newer than checkpoint {}: the work goes on from what is there",
                manifest.number
            );
            tracing::warn!("{text}");
            journal.record(EventDetail::Attention { text });
            outbox.keep(
                STATE_FILE,
                &CheckpointState {
                    last: Some(manifest.summary()),
                    marks: manifest.marks,
                    ..CheckpointState::default()
                },
            );
            return Ok(Some(Manifest { step: None, ..manifest }));
        }
    };
    remember(outbox, folder, &manifest, own, CheckpointState::default());
    journal.record(EventDetail::Resumed { checkpoint: manifest.summary(), went_back: None });
    Ok(Some(manifest))
}

pub(crate) fn theirs(outbox: &Outbox, inherited: Option<&JobId>) -> Option<Outbox> {
    inherited.map(|job| Outbox {
        dir: JobDir::new(Arc::clone(outbox.dir.store()), job.clone()),
        ..outbox.clone()
    })
}

/// Beside the folder, so that a file can be moved into it in one step.
pub(crate) fn scratch(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.with_file_name(format!(".{name}.lamp-restore"))
}

#[derive(Clone)]
pub(crate) enum RestoreTarget<'a> {
    /// The newest.
    Any,
    /// The newest. But if one of its files on the disk is newer, the folder stays as it is.
    OnKeptDisk,
    /// The newest below a number whose content differs from `unlike`. Only `shipped` stays in the
    /// folder.
    Before { number: Option<CheckpointNo>, unlike: Option<Manifest>, shipped: &'a [String] },
}

impl RestoreTarget<'_> {
    /// Whether this manifest is acceptable.
    pub(crate) fn takes(&self, manifest: &Manifest) -> bool {
        !matches!(self, RestoreTarget::Before { unlike: Some(unlike), .. } if is_same_but_logs(unlike, manifest))
    }

    pub(crate) fn is_below(&self, number: CheckpointNo) -> bool {
        !matches!(self, RestoreTarget::Before { number: Some(before), .. } if number >= *before)
    }
}

fn is_same_but_logs(one: &Manifest, other: &Manifest) -> bool {
    let files = |manifest: &Manifest| -> BTreeSet<(String, String)> {
        let files = manifest.files.iter().filter(|file| !is_log(&file.path));
        files.map(|file| (file.path.clone(), file.sha256.clone())).collect()
    };
    files(one) == files(other)
}

/// The state that the workload starts from.
pub(crate) enum RestoredState {
    Restored(Manifest),
    /// This file on the disk is newer than the checkpoint. No file was changed.
    OlderThan {
        path: String,
        manifest: Manifest,
    },
}

pub(crate) async fn try_all(
    outbox: &Outbox,
    journal: &Journal,
    (folder, target): (&Path, RestoreTarget<'_>),
    scratch: &Path,
    fetching: &Fetching,
) -> Result<Option<RestoredState>, RestoreError> {
    let pace = RetryDelay::default();
    let mut failures = 0;
    let mut damaged: BTreeSet<CheckpointNo> = BTreeSet::new();
    loop {
        let problem = match newest(outbox, &damaged, &target).await {
            Ok(None) => return Ok(None),
            Ok(Some((number, Err(error)))) => {
                pass_over(journal, number, &DamagedCheckpoint::Manifest(error));
                damaged.insert(number);
                continue;
            }
            Ok(Some((number, Ok(manifest)))) if !target.takes(&manifest) => {
                damaged.insert(number);
                continue;
            }
            Ok(Some((_, Ok(manifest))))
                if matches!(target, RestoreTarget::OnKeptDisk)
                    && let Some(path) = newer_on_disk(outbox, &manifest, folder) =>
            {
                return Ok(Some(RestoredState::OlderThan { path, manifest }));
            }
            Ok(Some((number, Ok(manifest)))) => {
                match fetch(outbox, &manifest, (folder, &target), scratch, fetching).await {
                    Ok(()) => return Ok(Some(RestoredState::Restored(manifest))),
                    Err(FetchStop::Damaged(why)) => {
                        pass_over(journal, number, &why);
                        damaged.insert(number);
                        continue;
                    }
                    Err(FetchStop::Disk(error)) => return Err(RestoreError::Disk(error)),
                    Err(FetchStop::Store(error)) => JobDirError::Store(error),
                }
            }
            Err(error) => error,
        };
        fetching.failed(&problem);
        // The log and the agent's records need the space until the retry.
        if let Err(error) = outbox.files.remove(scratch) {
            tracing::warn!("cannot remove {}: {error}", scratch.display());
        }
        failures += 1;
        tracing::warn!("the checkpoint is not restored yet: {}", chain(&problem));
        pace.wait(&*outbox.clock, failures).await;
    }
}

fn pass_over(journal: &Journal, number: CheckpointNo, why: &DamagedCheckpoint) {
    journal.record(EventDetail::Attention {
        text: format!("checkpoint {number} cannot be used and is passed over: {}", chain(why)),
    });
}

/// The newest checkpoint with a manifest that is not known to be damaged. The inner error: the
/// manifest cannot be read.
async fn newest(
    outbox: &Outbox,
    damaged: &BTreeSet<CheckpointNo>,
    target: &RestoreTarget<'_>,
) -> Result<Option<(CheckpointNo, Result<Manifest, JobDirError>)>, JobDirError> {
    let wanted = |number: &CheckpointNo| !damaged.contains(number) && target.is_below(*number);
    for number in outbox.dir.checkpoint_numbers().await?.into_iter().rev().filter(wanted) {
        match outbox.dir.manifest(number).await {
            Ok(None) => {}
            Ok(Some(manifest)) => return Ok(Some((number, Ok(manifest)))),
            Err(error @ JobDirError::Record(_)) => return Ok(Some((number, Err(error)))),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Downloads everything beside the folder, checks it, and only then moves it in.
async fn fetch(
    outbox: &Outbox,
    manifest: &Manifest,
    (folder, target): (&Path, &RestoreTarget<'_>),
    scratch: &Path,
    fetching: &Fetching,
) -> Result<(), FetchStop> {
    check(manifest)?;
    // The sizes come from a file and may be wrong, so the sum saturates.
    let bytes = manifest.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    fetching.begin(format!("checkpoint {} ({:.1} MB)", manifest.number, bytes as f64 / 1e6));
    let come = fetching.counter();
    outbox.files.remove(scratch).map_err(FetchStop::Disk)?;
    outbox.files.create_folder(scratch).map_err(FetchStop::Disk)?;
    let download =
        |(index, file)| download(outbox, file, scratch.join(format!("{index}")), &come).boxed();
    let downloads: Vec<BoxFuture<'_, _>> =
        manifest.files.iter().enumerate().map(download).collect();
    futures::stream::iter(downloads).buffer_unordered(FILES_IN_FLIGHT).try_collect::<()>().await?;
    if let RestoreTarget::Before { shipped, .. } = target {
        clear(outbox, folder, shipped).await.map_err(FetchStop::Disk)?;
    }
    // Scripts find the newest file by modification time, or by its position in the folder.
    let mut files: Vec<(usize, &ManifestEntry)> = manifest.files.iter().enumerate().collect();
    files.sort_by_key(|(_, file)| file.modified);
    for (index, file) in files {
        if let Some(modified) = file.modified
            && let Err(error) =
                outbox.files.set_modified(&scratch.join(index.to_string()), modified)
        {
            tracing::warn!("the time of `{}` is not set: {error}", file.path);
        }
        outbox
            .files
            .place(&scratch.join(index.to_string()), &folder.join(&file.path), file.mode)
            .map_err(FetchStop::Disk)?;
    }
    for link in &manifest.links {
        outbox.files.link(&folder.join(&link.path), &link.target).map_err(FetchStop::Disk)?;
    }
    Ok(())
}

/// Removes everything but `shipped`. After a crash in here, the next agent finds the files held
/// aside.
pub(crate) async fn clear(outbox: &Outbox, folder: &Path, shipped: &[String]) -> io::Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let held = folder.with_file_name(format!(".{name}.lamp-held"));
    let movable = |from: &Path, to: &Path| -> io::Result<()> {
        for path in shipped {
            if outbox.files.stamp(&from.join(path))?.is_some() {
                outbox.files.place(&from.join(path), &to.join(path), None)?;
            }
        }
        Ok(())
    };
    movable(folder, &held)?;
    outbox.files.remove_aside(folder).await?;
    outbox.files.create_folder(folder)?;
    movable(&held, folder)?;
    outbox.files.remove(&held)
}

/// A checkpoint file that was written on this disk after the save. The same machine's clock dates
/// both.
fn newer_on_disk(outbox: &Outbox, manifest: &Manifest, folder: &Path) -> Option<String> {
    let saved = i64::try_from(manifest.created.as_nanosecond()).unwrap_or(i64::MAX);
    let is_newer = |file: &&ManifestEntry| {
        let stamp = outbox.files.stamp(&folder.join(&file.path)).ok().flatten();
        stamp.is_some_and(|stamp| stamp.modified_nanos > saved)
    };
    manifest
        .files
        .iter()
        .filter(|_| check(manifest).is_ok())
        .find(is_newer)
        .map(|file| file.path.clone())
}

/// Refuses a manifest with paths that lead out of the folder or the job.
fn check(manifest: &Manifest) -> Result<(), DamagedCheckpoint> {
    let mut paths = BTreeSet::new();
    for file in &manifest.files {
        for path in [&file.path, &file.key] {
            if !stays_below(path) {
                return Err(DamagedCheckpoint::Path(path.clone()));
            }
        }
        if !paths.insert(file.path.as_str()) {
            return Err(DamagedCheckpoint::Twice(file.path.clone()));
        }
    }
    for link in &manifest.links {
        if !link_stays_below(link) {
            return Err(DamagedCheckpoint::Path(link.path.clone()));
        }
        if !paths.insert(link.path.as_str()) {
            return Err(DamagedCheckpoint::Twice(link.path.clone()));
        }
    }
    // No file is written through a link.
    let below = |path: &str| {
        manifest
            .links
            .iter()
            .any(|link| path.strip_prefix(&link.path).is_some_and(|rest| rest.starts_with('/')))
    };
    match paths.iter().find(|path| below(path)) {
        Some(path) => Err(DamagedCheckpoint::Path((*path).to_owned())),
        None => Ok(()),
    }
}

async fn download(
    outbox: &Outbox,
    file: &ManifestEntry,
    to: PathBuf,
    come: &Arc<AtomicU64>,
) -> Result<(), FetchStop> {
    let key = format!("{}{}", layout::job(outbox.dir.job()), file.key);
    match outbox.dir.store().get_file_counted(&key, &to, come).await {
        Ok(Some((bytes, sha256))) if bytes == file.bytes && sha256 == file.sha256 => Ok(()),
        Ok(Some(_)) => Err(DamagedCheckpoint::Content(file.path.clone()).into()),
        Ok(None) => Err(DamagedCheckpoint::Missing(file.path.clone()).into()),
        Err(error) => Err(FetchStop::Store(error)),
    }
}

/// Marks the restored files as kept, so that they are neither a change nor uploaded
/// again. Another job's files are uploaded with the first checkpoint, which must not depend on that
/// job.
pub(crate) fn remember(
    outbox: &Outbox,
    folder: &Path,
    manifest: &Manifest,
    own: bool,
    before: CheckpointState,
) {
    // The number comes from a file, so clamp it.
    let measured = vec![manifest.upload_secs.clamp(0.0, UPLOAD_SECS_MAX)];
    let uploads = if before.uploads.is_empty() { measured } else { before.uploads.clone() };
    let mut kept = CheckpointState {
        last: Some(manifest.summary()),
        marks: manifest.marks,
        uploads,
        ..before
    };
    for file in &manifest.files {
        let Ok(Some(stamp)) = outbox.files.stamp(&folder.join(&file.path)) else { continue };
        if own {
            kept.contents.add(stamp, file.key.clone(), file.sha256.clone());
        }
        kept.files.push((file.path.clone(), stamp));
    }
    if let Ok(tree) = outbox.files.walk(folder, FILES_MAX).map(picture) {
        kept.files.extend(
            tree.iter().filter(|file| is_link(file)).map(|file| (file.path.clone(), file.stamp)),
        );
    }
    kept.files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    outbox.keep(STATE_FILE, &kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AttemptNo, CheckpointLink, RECORD_FORMAT};

    fn manifest(paths: &[(&str, &str)]) -> Manifest {
        let file = |(path, key): &(&str, &str)| ManifestEntry {
            path: (*path).into(),
            bytes: 1,
            sha256: "00".into(),
            key: (*key).into(),
            mode: None,
            modified: None,
        };
        Manifest {
            format: RECORD_FORMAT,
            number: CheckpointNo::FIRST,
            attempt: AttemptNo::FIRST,
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
            step: None,
            files: paths.iter().map(file).collect(),
            links: Vec::new(),
            save_secs: 0.0,
            upload_secs: 0.0,
            marks: None,
            silent_secs: None,
            asked_by: None,
        }
    }

    #[test]
    fn manifest_path_stays_inside_folder() {
        let good = "checkpoints/0001/files/a";
        assert!(check(&manifest(&[("a", good), ("b/c.pt", good), ("layer\\0.pt", good)])).is_ok());
        for path in ["../a", "a/../../b", "/etc/passwd", "", ".", "a//b", "a\0b"] {
            assert!(
                matches!(check(&manifest(&[(path, good)])), Err(DamagedCheckpoint::Path(_))),
                "path {path}"
            );
            assert!(
                matches!(check(&manifest(&[("a", path)])), Err(DamagedCheckpoint::Path(_))),
                "key {path}"
            );
        }
        assert!(matches!(
            check(&manifest(&[("a", good), ("a", good)])),
            Err(DamagedCheckpoint::Twice(_))
        ));
    }

    #[test]
    fn link_of_manifest_stays_inside() {
        let linked = |path: &str, target: &str| {
            let links = vec![CheckpointLink { path: path.into(), target: target.into() }];
            check(&Manifest { links, ..manifest(&[("step-40/a", "checkpoints/0001/files/a")]) })
        };
        for (path, target) in
            [("latest", "step-40"), ("runs/latest", "../step-40"), ("latest", "./step-40/")]
        {
            assert!(linked(path, target).is_ok(), "{path} -> {target}");
        }
        for (path, target) in [
            ("latest", "../secrets"),
            ("latest", "/etc"),
            ("latest", "."),
            ("a/b", "../.."),
            ("../x", "step-40"),
            ("step-40", "a"),
            ("latest", ""),
        ] {
            assert!(linked(path, target).is_err(), "{path} -> {target}");
        }
    }
}
