//! Downloads a file from a bucket in pieces, a few at a time, each with its own request and
//! retries.
//!
//! It asks for the size, then reads pieces of 8 MiB, four at once, all of one version, into a file
//! beside the target, and renames it. If the store does not answer, the piece is asked for again
//! for two minutes. So no request is large, and a line that fails for a minute keeps the earlier
//! pieces. Not here: the reaction to a failure; the caller repeats or reports it.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};

use super::folder::Staged;
use super::s3_multipart::PARTS_IN_FLIGHT;
use super::s3_upload_source::{PART_BYTES_MIN, generic};
use crate::adapters::host::system_clock::SystemClock;
use crate::ports::{Clock as _, chain};

/// How long a piece is asked for again, in addition to the client's own retries. If this is
/// shorter, a broken line loses the earlier pieces of a large file. If it is longer, a user at a
/// terminal is told too late.
const ASKED_FOR: Duration = Duration::from_secs(120);

/// The pause between two rounds of retries. If it is shorter, a store that is down gets useless
/// requests. If it is longer, a repaired line stays unused.
const PAUSE: Duration = Duration::from_secs(2);

/// Returns size and SHA-256; `None`: the object does not exist. `come` counts the bytes as they
/// arrive.
///
/// # Errors
/// If a piece is missing or of another version, or the disk refuses it. `path` is unchanged then.
pub(crate) async fn download(
    s3: &impl ObjectStore,
    key: &Key,
    path: &Path,
    come: &AtomicU64,
) -> Result<Option<(u64, String)>, Error> {
    let found = match head(s3, key).await {
        Err(Error::NotFound { .. }) => return Ok(None),
        found => found?,
    };
    let starts = (0..found.size).step_by(PART_BYTES_MIN as usize);
    let pieces = starts.map(|start| {
        let range = start..found.size.min(start + PART_BYTES_MIN);
        piece(
            s3,
            key,
            GetOptions {
                range: Some(range.into()),
                if_match: found.e_tag.clone(),
                ..GetOptions::default()
            },
        )
    });
    let mut pieces = stream::iter(pieces).buffered(PARTS_IN_FLIGHT);
    let mut staged = Staged::new(path).map_err(generic)?;
    let (mut hash, mut total) = (Sha256::new(), 0);
    while let Some(piece) = pieces.try_next().await? {
        staged.file.write_all(&piece).map_err(generic)?;
        hash.update(&piece);
        total += piece.len() as u64;
        come.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    staged.publish(path).map_err(generic)?;
    Ok(Some((total, hex::encode(hash.finalize()))))
}

/// Whether a list request is forbidden. `object_store` has no variant for it, and its
/// `RequestError` is private, so only the text shows the status. Refused credentials of a machine
/// have the same text for other requests, and may recover.
pub(crate) fn is_refused(error: &Error) -> bool {
    let forbids = |text: String| {
        text.contains("performing list request")
            && ["403", "401"]
                .iter()
                .any(|code| text.contains(&format!("non-2xx status code: {code}")))
    };
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => true,
        Error::Generic { .. } => forbids(chain(error)),
        _ => false,
    }
}

/// The answer to a HEAD lacks a body with the reason for a refusal. A request for the first byte
/// has one.
pub(crate) async fn head(s3: &impl ObjectStore, key: &Key) -> Result<ObjectMeta, Error> {
    match s3.head(key).await {
        Err(refused) if is_refused(&refused) => {
            Err(s3.get_range(key, 0..1).await.err().unwrap_or(refused))
        }
        told => told,
    }
}

/// A refused, missing or changed object fails at once; only missing answers are tried again.
async fn piece(s3: &impl ObjectStore, key: &Key, options: GetOptions) -> Result<Bytes, Error> {
    let until = SystemClock.mono() + ASKED_FOR;
    loop {
        let asked = async { s3.get_opts(key, options.clone()).await?.bytes().await };
        match asked.await {
            Err(error @ Error::Generic { .. }) if SystemClock.mono() + PAUSE < until => {
                tracing::debug!("a piece of `{key}` did not come, asking for it again: {error}");
                SystemClock.sleep(PAUSE).await;
            }
            answered => return answered,
        }
    }
}
