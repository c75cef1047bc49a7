//! The errors of reading and writing records.

use crate::job::RECORD_FORMAT;
use crate::ports::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum JobDirError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another writer's record is there. It is never overwritten.
    #[error("`{key}` was written by somebody else")]
    Taken { key: String },
    /// Several tries of a write got no answer: the record may be there, or may appear. Only
    /// [`super::insist`] returns this.
    #[error(transparent)]
    Unsure(StoreError),
}

impl JobDirError {
    /// The record is there but cannot be read: a power failure cut it short, or it is not lamp's.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            JobDirError::Record(RecordError::Broken { .. } | RecordError::Foreign { .. })
        )
    }
}

/// For records that are not essential: a damaged one counts as none.
///
/// # Errors
/// When the store does not answer, or a newer version wrote it.
pub fn unless_damaged<T>(read: Result<Option<T>, JobDirError>) -> Result<Option<T>, JobDirError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        other => other,
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A newer version of lamp wrote it. It is neither read nor changed.
    #[error("`{key}` has format {found}, and this version knows formats up to {RECORD_FORMAT}")]
    Newer { key: String, found: u64 },
    #[error("`{key}` is not a record of ours")]
    Broken {
        key: String,
        #[source]
        cause: serde_json::Error,
    },
    /// Not a regular object, or larger than any record.
    #[error("`{key}` is not a record of ours")]
    Foreign {
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
