//! Objects by key: the only channel between controller and agent.
//!
//! Create-if-absent is the only primitive for agreement, because a local folder has no
//! compare-and-swap.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::market::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Created {
    New,
    /// Another writer was first; nothing was written.
    Exists,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    pub key: String,
    pub bytes: u64,
    /// By the store's own clock.
    pub modified: Timestamp,
}

/// How long a signed URL must be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lives {
    pub least: Duration,
    pub most: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedUrl {
    pub url: String,
    /// By the clock of this computer.
    pub until: Timestamp,
    /// The store's region: S3 redirects a request that goes to another region. `None`: there are no
    /// regions.
    pub region: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Permissions or credentials are missing. A retry helps only after a person fixes them.
    #[error("not allowed to {act} `{key}`")]
    Denied {
        act: &'static str,
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No space is left for it.
    #[error("no space left to {act} `{key}`")]
    Full {
        act: &'static str,
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The user must sign in again, or for longer.
    #[error(
        "the credentials end in {left}, and what they sign ends with them: {needed} are needed"
    )]
    ShortLived { left: Span, needed: Span },
    /// Only this file, name or object is at fault: the store works, and a retry fails again.
    #[error("cannot {act} `{key}`, now or later")]
    Unfit {
        act: &'static str,
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Anything else. The write may have happened. Try again.
    #[error("cannot {act} `{key}`")]
    Unavailable {
        act: &'static str,
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The largest object that is read into memory at once: larger than any manifest.
pub const OBJECT_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl StoreError {
    pub fn too_large(key: &str, bytes_max: u64) -> Self {
        let cause = format!("it is larger than {bytes_max} bytes").into();
        StoreError::Unfit { act: "read", key: key.to_owned(), cause }
    }

    /// A create found an object that a read does not: S3's 409, another write is in progress. Try
    /// again.
    pub fn vanished(key: String) -> Self {
        StoreError::Unavailable {
            act: "create",
            key,
            cause: "somebody else is writing it, and it is not there yet".into(),
        }
    }
}

/// How much of a file has arrived at its store.
#[derive(Debug, Default)]
pub struct Arrival {
    pub bytes: AtomicU64,
    /// The part that an earlier try has sent. It does not count for the speed.
    pub before: AtomicU64,
}

impl Arrival {
    /// An earlier try has sent this much.
    pub fn is_there(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.before.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes that arrived, and the part that an earlier try sent.
    pub fn so_far(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.before.load(Ordering::Relaxed))
    }

    /// A new try starts: counts from zero.
    pub fn begins(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.before.store(0, Ordering::Relaxed);
    }
}

/// Keys use `/` without a leading one, relative to the job root. A missing object is `Ok(None)`,
/// not an error.
#[async_trait]
pub trait Store: Send + Sync {
    /// For people: `file:///...` or `s3://...`.
    fn url(&self) -> String;

    /// Whether this is a local folder: requests are free, and its clock is the machine's.
    fn is_folder(&self) -> bool {
        self.url().starts_with("file:")
    }

    /// The region in the cloud's own words. `None`: no region, or unknown.
    fn region(&self) -> Option<String> {
        None
    }

    /// Anything but a regular object of at most [`OBJECT_BYTES_MAX`] is [`StoreError::Unfit`].
    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError>;

    /// Like [`Store::get`] with a smaller limit. A larger one is refused before it is read, if
    /// possible.
    async fn get_at_most(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, StoreError> {
        let found = self.get(key).await?;
        match &found {
            Some(bytes) if bytes.len() as u64 > bytes_max => {
                Err(StoreError::too_large(key, bytes_max))
            }
            _ => Ok(found),
        }
    }

    /// Creates or overwrites. Readers see the old or the new content, never a part.
    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError>;

    /// Like [`Store::put`], but the content survives a power failure: for objects written once.
    async fn put_durable(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.put(key, body).await
    }

    /// Writes only if no object is there. Exactly one of many callers gets [`Created::New`]. After
    /// a lost reply, a retry may return [`Created::Exists`] for the caller's own write. So callers
    /// compare what is there with what they wrote.
    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError>;

    /// Size and age of one object, by the store's own clock.
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError>;

    /// All objects under a prefix (ending in `/`), at any depth, ordered by key.
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError>;

    /// The names directly under a prefix (ending in `/`): objects, and folders without their `/`.
    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError>;

    /// The object names directly under a prefix that sort after `after`; no folders. For prefixes
    /// that only grow: a store that can start in the middle lists only what is new.
    async fn children_after(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        let names = self.children(prefix).await?;
        Ok(names.into_iter().filter(|name| name.as_str() > after).collect())
    }

    /// Uploads a file in bounded memory. Returns the size and SHA-256 of the bytes that were sent.
    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError>;

    /// Like [`Store::put_file`], but the file may be lost in a power failure until the next
    /// [`Store::make_durable`]. For many files that count only with the object written after it.
    async fn put_file_of_set(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.put_file(key, path).await
    }

    /// The files that [`Store::put_file_of_set`] sent below a prefix survive a power failure.
    async fn make_durable(&self, _prefix: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// Like [`Store::put_file`], and counts the bytes as they arrive, to show progress.
    async fn put_file_counted(
        &self,
        key: &str,
        path: &Path,
        sent: &Arrival,
    ) -> Result<(u64, String), StoreError> {
        let told = self.put_file(key, path).await?;
        sent.bytes.fetch_add(told.0, Ordering::Relaxed);
        Ok(told)
    }

    /// Like [`Store::put_file`], without the hash: half the computing time of an upload.
    async fn put_file_unhashed(&self, key: &str, path: &Path) -> Result<u64, StoreError> {
        Ok(self.put_file(key, path).await?.0)
    }

    /// Downloads into a new file in bounded memory. Returns its size and SHA-256. `None`: not
    /// there.
    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError>;

    /// A URL from which anyone can download this object for that long with a plain GET. `endpoint`:
    /// the endpoint to use, if it differs from ours. `None`: this store has no such URLs.
    ///
    /// # Errors
    /// [`StoreError::ShortLived`] when the signing credentials expire too soon.
    async fn presign_get(
        &self,
        _key: &str,
        _lives: Lives,
        _endpoint: Option<&str>,
    ) -> Result<Option<SignedUrl>, StoreError> {
        Ok(None)
    }

    /// Like [`Store::get_file`], and counts the bytes as they arrive, to show progress.
    async fn get_file_counted(
        &self,
        key: &str,
        path: &Path,
        come: &Arc<AtomicU64>,
    ) -> Result<Option<(u64, String)>, StoreError> {
        let found = self.get_file(key, path).await?;
        come.fetch_add(found.as_ref().map_or(0, |(bytes, _)| *bytes), Ordering::Relaxed);
        Ok(found)
    }

    /// Copies an object to a key with no object, or the same one. Copies through this process if
    /// the store cannot copy.
    async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        match self.get(from).await? {
            Some(body) => self.put_durable(to, body).await,
            None => Err(StoreError::Unavailable {
                act: "copy",
                key: from.to_owned(),
                cause: "it is not there".into(),
            }),
        }
    }

    /// Deletes one object. Success if it is not there. Only for objects of lamp.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;
}
