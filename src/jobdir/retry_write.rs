//! Writes for somebody who waits and is told how they went: what nobody has answered is asked again before that.
//!
//! ```text
//!   create ──> no answer ──> the same bytes once more ──> done, or somebody else's
//!                        └─> still no answer ──> JobDirError::Unsure: it may be there
//! ```
//! A client of S3 does not repeat a create by itself, and a store may write and then lose its reply. Who repeats the same bytes
//! does no harm, since a create counts them as new. What must never live here: the loops' own next try (a tick is a retry), so
//! that nothing of a controller or an agent waits here while a store is down.

use std::time::Duration;

use super::job_dir::JobDirError;
use crate::ports::{Clock, NoCredentials, StoreError};

/// Between two tries. A connection that was reset is there again at once, a server that restarts within seconds; more of them,
/// and somebody at a terminal waits for a store that is down only to be told so.
const PAUSES: [Duration; 4] = [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// No try begins later than this: where a client takes many seconds to give one up, there are fewer. Shorter, and a slow line
/// gets no second one; longer, and what is begun here is a look at the world of a minute ago.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

/// Asks until somebody answers, or for so long. What it asks must do no harm when it is done twice.
///
/// # Errors
/// The store's own where it certainly wrote nothing; [`JobDirError::Unsure`] where it may have.
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
                tracing::debug!("nobody has answered, asking again: {error}");
                clock.sleep(pause).await;
            }
            // It refuses now, and may have written before.
            Err(JobDirError::Store(error)) if may_be_written => return Err(JobDirError::Unsure(error)),
            other => return other,
        }
    }
    ask().await.map_err(|error| match error {
        JobDirError::Store(error) => JobDirError::Unsure(error),
        other => other,
    })
}

/// Whether it may have been written all the same. Without credentials nothing was sent.
pub fn is_silence(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. }) && NoCredentials::among(error).is_none()
}
