//! Resets the checkpoint folder to an older checkpoint.
//!
//! A script resumes from the highest number that it finds, so newer files must go. They are in the
//! job directory, or were never complete. Not here: whether to go back
//! (`policy::lifecycle::checkpoint_rollback`), or the check of downloads (`checkpoint::restore`).

use std::path::Path;
use std::sync::Arc;

use super::persisted_state::{CheckpointState, STATE_FILE};
use super::restore::{
    RestoreError, RestoreTarget, RestoredState, remember, scratch, theirs, try_all,
};
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, RetryDelay};
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
    let target = RestoreTarget::Before {
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
            (folder, RestoreTarget::Before { number, unlike: None, shipped }),
            &scratch,
            fetching,
        )
        .await?;
    }
    if let Err(error) = outbox.files.remove(&scratch) {
        tracing::warn!("cannot remove {}: {error}", scratch.display());
    }
    let Some(RestoredState::Restored(manifest)) = found else { return Ok(None) };
    let known = outbox.recall::<CheckpointState>(STATE_FILE).unwrap_or_default();
    remember(
        outbox,
        folder,
        &manifest,
        own,
        CheckpointState {
            files: Vec::new(),
            contents: Arc::default(),
            doubted: Vec::new(),
            ..known
        },
    );
    Ok(Some(manifest))
}

/// The manifest of a checkpoint, if it is this job's own.
async fn own_manifest(
    outbox: &Outbox,
    begun: &CheckpointSummary,
    fetching: &Fetching,
) -> Option<Manifest> {
    let pace = RetryDelay::default();
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
