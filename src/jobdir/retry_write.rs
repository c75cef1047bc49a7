//! Writes for a waiting user: a write without an answer is retried before the user hears about it.
//!
//! ```text
//!   create ──> no answer ──> the same bytes again ──> done, or another writer's record
//!                        └─> still no answer ──> JobDirError::Unsure: it may be there
//! ```
//! An S3 client does not retry a create, and a store may write and then lose its reply. Repeating
//! the same bytes is safe, since a create counts them as new. The loops of the controller and the
//! agent do not use this: their next tick is the retry, and they must not wait while a store is
//! down.

use std::time::Duration;

use super::error::JobDirError;
use crate::ports::{Clock, NoCredentials, StoreError};

/// Backoff between tries. After a reset, a connection works at once; a restarted server works
/// within seconds. With more tries, a user at a terminal only waits longer to learn that the store
/// is down.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// No try starts later than this. Shorter, and a slow connection gets no second try. Longer, and
/// the caller's view of the store is too old.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

/// Retries until there is an answer, for a limited time. The operation must be safe to repeat.
///
/// # Errors
/// The store's own error if it certainly wrote nothing, otherwise [`JobDirError::Unsure`].
pub async fn insist<T, F>(clock: &dyn Clock, mut ask: impl FnMut() -> F) -> Result<T, JobDirError>
where
    F: Future<Output = Result<T, JobDirError>>,
{
    let began = clock.mono();
    let mut may_be_written = false;
    for pause in PAUSES {
        match ask().await {
            Err(JobDirError::Store(error)) if is_silence(&error) => {
                may_be_written = true;
                if clock.mono().saturating_sub(began) + pause > BEGUN_WITHIN {
                    return Err(JobDirError::Unsure(error));
                }
                tracing::debug!("no answer, asking again: {error}");
                clock.sleep(pause).await;
            }
            // The store refuses now, but an earlier try may have written.
            Err(JobDirError::Store(error)) if may_be_written => {
                return Err(JobDirError::Unsure(error));
            }
            other => return other,
        }
    }
    ask().await.map_err(|error| match error {
        JobDirError::Store(error) => JobDirError::Unsure(error),
        other => other,
    })
}

/// Whether the write may have happened. Without credentials nothing was sent.
pub fn is_silence(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. }) && NoCredentials::among(error).is_none()
}
