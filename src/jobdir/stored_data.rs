//! The stored data of a job beside its records, and how it is deleted: checkpoints, outputs, logs,
//! code.
//!
//! ```text
//!   may delete? ──> discarded.json ──> list again ──> manifests (checkpoints end) ──> the rest
//! ```
//! The records stay. Without a receipt, a controller would launch the job again. Without a spec,
//! `lamp apply` and a daemon would make it again. Receipts also explain the bill. Whether data may
//! be deleted does not belong here (`policy::lifecycle::discardable`).

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::error::{JobDirError, unless_damaged};
use super::job_dir::{JobDir, read};
use super::layout;
use super::record::encode;
use crate::job::{Discarded, JobId, StoredKind};
use crate::ports::{ObjectMeta, Store, StoreError};

/// Parallel deletes. A distant store answers in 100 ms: ten thousand log pieces take half a minute.
const DELETES_IN_FLIGHT: usize = 32;

/// The kind of data under a key of this job. `None`: a record, which stays.
pub fn stored_kind(job: &JobId, key: &str) -> Option<StoredKind> {
    let inner = key.strip_prefix(layout::job(job).as_str())?;
    let parts: Vec<&str> = inner.split('/').collect();
    match parts.as_slice() {
        ["checkpoints", _, ..] => Some(StoredKind::Checkpoints),
        ["outputs", _, ..] => Some(StoredKind::Outputs),
        // Older versions kept the code in one file.
        ["code", _, ..] | ["code.tar.zst"] => Some(StoredKind::Code),
        ["attempts", _, "log" | "samples", _, ..] => Some(StoredKind::Logs),
        _ => None,
    }
}

impl JobDir {
    /// Everything the job has stored, by kind.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn stored(&self) -> Result<Vec<(StoredKind, ObjectMeta)>, JobDirError> {
        let objects = self.store().list(&layout::job(self.job())).await?;
        Ok(objects
            .into_iter()
            .filter_map(|object| Some((stored_kind(self.job(), &object.key)?, object)))
            .collect())
    }

    /// The job's data that was deleted. `None`: nothing, or the record is damaged.
    ///
    /// # Errors
    /// When the store does not answer, or a newer version wrote it.
    pub async fn discarded(&self) -> Result<Option<Discarded>, JobDirError> {
        let record: Option<Discarded> =
            unless_damaged(read(&**self.store(), &layout::discarded(self.job())).await)?;
        // Without kinds it is an intent that was withdrawn.
        Ok(record.filter(|gone| !gone.kinds.is_empty()))
    }

    /// The same, if it includes this kind.
    ///
    /// # Errors
    /// As [`JobDir::discarded`].
    pub async fn discarded_of(&self, kind: StoredKind) -> Result<Option<Discarded>, JobDirError> {
        Ok(self.discarded().await?.filter(|gone| gone.kinds.contains(&kind)))
    }

    /// Records the intent to delete, merged with the kinds before. Returns the record before, so
    /// that the caller can restore it.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn mean_to_discard(
        &self,
        intent: Discarded,
    ) -> Result<Option<Discarded>, JobDirError> {
        let before = self.discarded().await?;
        let all =
            before.iter().flat_map(|before| &before.kinds).chain(&intent.kinds).copied().collect();
        self.put_discarded(&Discarded { kinds: all, ..intent }).await?;
        Ok(before)
    }

    /// Overwrites the record of what was deleted.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn put_discarded(&self, record: &Discarded) -> Result<(), JobDirError> {
        Ok(self
            .store()
            .put_durable(&layout::discarded(self.job()), Bytes::from(encode(record)))
            .await?)
    }

    /// Checks the permission to delete, by deleting an object that never exists.
    ///
    /// # Errors
    /// When a delete would fail.
    pub async fn try_to_delete(&self) -> Result<(), JobDirError> {
        Ok(self.store().delete(&format!("{}nothing", layout::checkpoints(self.job()))).await?)
    }

    /// Deletes these objects of [`JobDir::stored`] and counts them in `gone`. Record the intent
    /// first.
    ///
    /// # Errors
    /// When the store refuses: some may be deleted. A second call continues.
    pub async fn delete_stored(
        &self,
        objects: &[(StoredKind, ObjectMeta)],
        gone: &AtomicU64,
    ) -> Result<(), JobDirError> {
        let is_manifest = |(kind, object): &&(StoredKind, ObjectMeta)| {
            *kind == StoredKind::Checkpoints && object.key.ends_with("/manifest.json")
        };
        let (manifests, rest): (Vec<_>, Vec<_>) = objects.iter().partition(is_manifest);
        for group in [manifests, rest] {
            let deletes = stream::iter(group).map(|(_, object)| async move {
                self.store().delete(&object.key).await?;
                gone.fetch_add(1, Ordering::Relaxed);
                Ok::<(), JobDirError>(())
            });
            deletes.buffer_unordered(DELETES_IN_FLIGHT).try_collect::<()>().await?;
        }
        Ok(())
    }
}

/// Whether the job's folder is empty or contains only code: the job was never made.
///
/// # Errors
/// When the store cannot be listed.
pub async fn is_code_alone(store: &dyn Store, job: &JobId) -> Result<bool, StoreError> {
    Ok(store.children(&layout::job(job)).await?.iter().all(|name| name == "code"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AttemptNo, CheckpointNo};

    #[test]
    fn no_record_is_taken_for_something_stored() {
        let job: JobId = "toy-222222".parse().expect("an id");
        let (no, saved) = (AttemptNo::FIRST, CheckpointNo::FIRST);
        for record in [
            layout::spec(&job),
            layout::receipt(&job),
            layout::given_up(&job),
            layout::discarded(&job),
            layout::request(&job, 1),
            layout::plan(&job, no),
            layout::settled(&job, no),
            layout::ending(&job, no),
            layout::lease(&job, no),
            layout::status(&job, no),
            layout::outcome(&job, no),
            layout::event_batch(&job, no, 1),
            layout::stacks(&job, no, 1),
            layout::told(&job, "ended-0a"),
            layout::attention(&job),
            layout::waiting(&job),
            layout::market(&job),
        ] {
            assert_eq!(stored_kind(&job, &record), None, "{record}");
        }
        let stored = [
            (layout::manifest(&job, saved), StoredKind::Checkpoints),
            (layout::checkpoint_file(&job, saved, "a/model.pt"), StoredKind::Checkpoints),
            (format!("{}spec.json", layout::outputs(&job)), StoredKind::Outputs),
            (layout::log_piece(&job, no, 1), StoredKind::Logs),
            (layout::sample_batch(&job, no, 1), StoredKind::Logs),
            (layout::code(&job, "0a"), StoredKind::Code),
            (format!("{}code.tar.zst", layout::job(&job)), StoredKind::Code),
        ];
        for (key, kind) in stored {
            assert_eq!(stored_kind(&job, &key), Some(kind), "{key}");
            assert_eq!(
                stored_kind(&"toy-333333".parse().expect("an id"), &key),
                None,
                "it is another job's"
            );
        }
    }
}
