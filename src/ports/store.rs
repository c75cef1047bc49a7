//! Objects by key: the only channel between controller and agent.
//!
//! Create-if-absent is the only primitive for agreement, because a local folder has no compare-and-swap.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::market::Span;

/// What a create-if-absent did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Created {
    New,
    /// Somebody was there first; nothing was written.
    Exists,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    pub key: String,
    pub bytes: u64,
    /// By the store's own clock.
    pub modified: Timestamp,
}

/// For how long a signed URL is to be good.
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
    /// Where the store is: whoever asks S3 for a bucket of another region is only told so. `None`: it is the same everywhere.
    pub region: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Permissions or credentials: a retry will not help before somebody mends them.
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
    /// Somebody must sign in anew, or for longer.
    #[error("the credentials end in {left}, and what they sign ends with them: {needed} are needed")]
    ShortLived { left: Span, needed: Span },
    /// This one file, name or object: the store is well, and a retry changes nothing.
    #[error("cannot {act} `{key}`, now or later")]
    Unfit {
        act: &'static str,
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Anything else; a write may have happened. Try again.
    #[error("cannot {act} `{key}`")]
    Unavailable {
        act: &'static str,
        key: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The largest object that is read into memory as a whole: the manifest of as many files as a checkpoint may have is smaller.
pub const OBJECT_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl StoreError {
    pub fn too_large(key: &str, bytes_max: u64) -> Self {
        let cause = format!("it is larger than {bytes_max} bytes").into();
        StoreError::Unfit { act: "read", key: key.to_owned(), cause }
    }

    /// Of a create that found something where nothing is: S3's 409, another write of the same key is under way. Try again.
    pub fn vanished(key: String) -> Self {
        StoreError::Unavailable { act: "create", key, cause: "somebody else is writing it, and it is not there yet".into() }
    }
}

/// Keys use `/` and never start with it; they are relative to the job root. "Not there" is `Ok(None)`, never an error.
/// How much of a file has arrived at its store.
#[derive(Debug, Default)]
pub struct Arrival {
    pub bytes: AtomicU64,
    /// What of them an earlier try has sent: that says nothing of how fast they go now.
    pub before: AtomicU64,
}

impl Arrival {
    /// An earlier try has sent so much.
    pub fn is_there(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.before.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How much is there, and how much of that was before.
    pub fn so_far(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.before.load(Ordering::Relaxed))
    }

    /// Of a new try, what is there counts again.
    pub fn begins(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.before.store(0, Ordering::Relaxed);
    }
}

#[async_trait]
pub trait Store: Send + Sync {
    /// For people: `file:///...` or `s3://...`.
    fn url(&self) -> String;

    /// A folder here: a look costs nothing, and it has no clock of its own.
    fn is_folder(&self) -> bool {
        self.url().starts_with("file:")
    }

    /// Where it lies, in the words of its cloud; `None`: nowhere, or nobody has said.
    fn region(&self) -> Option<String> {
        None
    }

    /// Anything but a regular object of at most [`OBJECT_BYTES_MAX`] is [`StoreError::Unfit`].
    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError>;

    /// As [`Store::get`], for what is never larger than this: a larger one is refused before it is read, where the store can tell.
    async fn get_at_most(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, StoreError> {
        let found = self.get(key).await?;
        match &found {
            Some(bytes) if bytes.len() as u64 > bytes_max => Err(StoreError::too_large(key, bytes_max)),
            _ => Ok(found),
        }
    }

    /// Writes or overwrites; readers see the old or the new, never a part.
    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError>;

    /// As [`Store::put`], and a power cut after it takes nothing back: for what is written once and never again.
    async fn put_durable(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.put(key, body).await
    }

    /// Writes only if nothing is there. Exactly one of many callers gets [`Created::New`]; after a lost reply, a retry may
    /// report [`Created::Exists`] for the caller's own write, so callers compare what is there with what they meant.
    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError>;

    /// Size and age of one object, by the store's own clock.
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError>;

    /// All objects under a prefix (ending in `/`), at any depth, in order of their keys.
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError>;

    /// The names directly under a prefix (ending in `/`): folders without their `/`, and objects.
    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError>;

    /// Of the names directly under a prefix, those that come after this one; no folders. For what only grows: it costs what is
    /// new, where the store can begin in the middle.
    async fn children_after(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        let names = self.children(prefix).await?;
        Ok(names.into_iter().filter(|name| name.as_str() > after).collect())
    }

    /// Uploads a file in bounded memory; gives its size and the SHA-256 of exactly the bytes that were sent.
    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError>;

    /// As [`Store::put_file`], and counts the bytes as they arrive, for whoever waits and wants to see them.
    async fn put_file_counted(&self, key: &str, path: &Path, sent: &Arrival) -> Result<(u64, String), StoreError> {
        let told = self.put_file(key, path).await?;
        sent.bytes.fetch_add(told.0, Ordering::Relaxed);
        Ok(told)
    }

    /// As [`Store::put_file`], for whoever does not keep the hash: half of what an upload computes, where the store can do
    /// without.
    async fn put_file_unhashed(&self, key: &str, path: &Path) -> Result<u64, StoreError> {
        Ok(self.put_file(key, path).await?.0)
    }

    /// Downloads into a new file in bounded memory; gives its size and SHA-256. `None`: not there.
    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError>;

    /// A URL that gives this object to whoever holds it, by a plain GET, for so long; at this endpoint, where it is another
    /// one than ours. `None`: this store has no such thing.
    ///
    /// # Errors
    /// [`StoreError::ShortLived`] when it could not live so long, because who signs it does not.
    async fn presign_get(&self, _key: &str, _lives: Lives, _endpoint: Option<&str>) -> Result<Option<SignedUrl>, StoreError> {
        Ok(None)
    }

    /// As [`Store::get_file`], and counts the bytes as they come, for whoever waits and wants to see them.
    async fn get_file_counted(&self, key: &str, path: &Path, come: &Arc<AtomicU64>) -> Result<Option<(u64, String)>, StoreError> {
        let found = self.get_file(key, path).await?;
        come.fetch_add(found.as_ref().map_or(0, |(bytes, _)| *bytes), Ordering::Relaxed);
        Ok(found)
    }

    /// Copies one object to a key where nothing is, or the same. Where the store cannot, through this process.
    async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        match self.get(from).await? {
            Some(body) => self.put_durable(to, body).await,
            None => Err(StoreError::Unavailable { act: "copy", key: from.to_owned(), cause: "it is not there".into() }),
        }
    }

    /// Removes one object; nothing there is success. Only ever our own scratch objects.
    async fn delete(&self, key: &str) -> Result<(), StoreError>;
}
