//! Resets the checkpoint folder to an older checkpoint.
//!
//! A script resumes from the highest number that it finds, so newer files must go. They are in the
//! job directory, or were never complete. Not here: whether to go back
//! (`policy::lifecycle::checkpoint_rollback`), or the check of downloads (`checkpoint::restore`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::file_names::is_log;
use super::handle::{KEPT, Kept};
use super::restore::{Found, RestoreError, remember, scratch, theirs, try_all};
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, Pace};
use crate::agent::startup::fetch_status::Fetching;
use crate::job::{CheckpointNo, CheckpointSummary, JobId, Manifest};
use crate::jobdir::JobDirError;

/// Resets the folder to a complete checkpoint before `begun`, plus `shipped`: the newest whose
/// content differs from `begun`. `before`: the number to stay below. `None`: there is none, and the
/// folder is unchanged.
///
/// # Errors
/// When it cannot be put in place.
pub(crate) async fn restore_before(
    outbox: &Outbox,
    inherited: Option<&JobId>,
    journal: &Journal,
    (folder, shipped): (&Path, &[String]),
    (begun, before): (&CheckpointSummary, CheckpointNo),
    fetching: &Fetching,
) -> Result<Option<Manifest>, RestoreError> {
    let scratch = scratch(folder);
    fetching.begin("an older checkpoint of the job".into());
    let theirs = theirs(outbox, inherited);
    // The number of an inherited checkpoint counts in the other job.
    let its = own_manifest(outbox, begun, fetching).await;
    let is_own = its.is_some() || theirs.is_none();
    let target = Target::Before {
        number: Some(before),
        unlike: its.filter(|_| before == begun.number),
        shipped,
    };
    let mut own = is_own;
    let mut found = if is_own {
        try_all(outbox, journal, (folder, target), &scratch, fetching).await?
    } else {
        None
    };
    if let (None, Some(theirs)) = (&found, &theirs) {
        own = false;
        // All of the other job's checkpoints are older than this job's.
        let number = (!is_own).then_some(before);
        found = try_all(
            theirs,
            journal,
            (folder, Target::Before { number, unlike: None, shipped }),
            &scratch,
            fetching,
        )
        .await?;
    }
    if let Err(error) = outbox.files.remove(&scratch) {
        tracing::warn!("cannot remove {}: {error}", scratch.display());
    }
    let Some(Found::Restored(manifest)) = found else { return Ok(None) };
    let known = outbox.recall::<Kept>(KEPT).unwrap_or_default();
    remember(
        outbox,
        folder,
        &manifest,
        own,
        Kept { files: Vec::new(), contents: Arc::default(), doubted: Vec::new(), ..known },
    );
    Ok(Some(manifest))
}

/// The manifest of a checkpoint, if it is this job's own.
async fn own_manifest(
    outbox: &Outbox,
    begun: &CheckpointSummary,
    fetching: &Fetching,
) -> Option<Manifest> {
    let pace = Pace::default();
    for failures in 1.. {
        match outbox.dir.manifest(begun.number).await {
            Ok(manifest) => return manifest.filter(|manifest| manifest.created == begun.created),
            Err(JobDirError::Record(_)) => return None,
            Err(error) => fetching.failed(&error),
        }
        pace.wait(&*outbox.clock, failures).await;
    }
    None
}

#[derive(Clone)]
pub(crate) enum Target<'a> {
    /// The newest.
    Any,
    /// The newest. But if one of its files on the disk is newer, the folder stays as it is.
    OnKeptDisk,
    /// The newest below a number whose content differs from `unlike`. Only `shipped` stays in the
    /// folder.
    Before { number: Option<CheckpointNo>, unlike: Option<Manifest>, shipped: &'a [String] },
}

impl Target<'_> {
    /// Whether this manifest is acceptable.
    pub(crate) fn takes(&self, manifest: &Manifest) -> bool {
        !matches!(self, Target::Before { unlike: Some(unlike), .. } if is_same_but_logs(unlike, manifest))
    }

    pub(crate) fn is_below(&self, number: CheckpointNo) -> bool {
        !matches!(self, Target::Before { number: Some(before), .. } if number >= *before)
    }
}

fn is_same_but_logs(one: &Manifest, other: &Manifest) -> bool {
    let files = |manifest: &Manifest| -> BTreeSet<(String, String)> {
        let files = manifest.files.iter().filter(|file| !is_log(&file.path));
        files.map(|file| (file.path.clone(), file.sha256.clone())).collect()
    };
    files(one) == files(other)
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
