//! A file of a bucket, brought home in pieces: a few of them ahead, each a request with its own
//! time and its own tries.
//!
//! ```text
//!   how large ──> pieces of 8 MiB, four at once, all of one version ──> beside the file ──> its name
//!                   └─ nobody answers ──> that piece again, for two minutes
//! ```
//! So a large file is never too much for one request, and a line that breaks for a minute costs
//! that minute and not what has come. What must never live here: what to do when it fails all the
//! same (who asked tries again, or says so).

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

/// How long a piece is asked for again, beside the tries of the client itself. Shorter, and a line
/// that breaks costs all that has come of a large file; longer, and who waits for it at a terminal
/// is told too late.
const ASKED_FOR: Duration = Duration::from_secs(120);

/// Between two rounds of those tries. Oftener asks a store that is down for nothing; less often,
/// and a line that is there again waits.
const PAUSE: Duration = Duration::from_secs(2);

/// Its size and its SHA-256; `None`: it is not there. `come` counts what has come, as it comes.
///
/// # Errors
/// When a piece does not come, or is of another version, or the disk refuses it: then nothing is at
/// `path` that was not there before.
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

/// A list that is forbidden has no variant of its own in `object_store` (its `RequestError` is
/// private): its status is in the text alone. What forbids the credentials of a machine has the
/// same text, but for the list, and may pass.
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

/// The answer to a HEAD has no body, and so says nothing of why it is refused: a first byte that is
/// asked for does.
pub(crate) async fn head(s3: &impl ObjectStore, key: &Key) -> Result<ObjectMeta, Error> {
    match s3.head(key).await {
        Err(refused) if is_refused(&refused) => {
            Err(s3.get_range(key, 0..1).await.err().unwrap_or(refused))
        }
        told => told,
    }
}

/// What is refused, gone or of another version is so at once; of silence alone nobody knows.
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
