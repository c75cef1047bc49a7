//! Which jobs are over for so long that nothing of them counts any more: who asks what all jobs cost need not read those.
//!
//! ```text
//!   jobs-over.json     who launches under a cap, overwritten
//! ```
//! A saving and no record: it may be deleted, and of two that write at once the later one wins; whatever is missing in it is
//! read, and put in again. What must never live here: a job that may still cost something.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::job_dir::{JobDirError, read, unless_damaged};
use super::layout;
use super::record::encode;
use crate::job::{JobId, RECORD_FORMAT};
use crate::ports::Store;

/// `jobs-over.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsOver {
    pub format: u32,
    pub jobs: BTreeSet<JobId>,
}

/// Those that are known to be over; one call for all.
///
/// # Errors
/// When the store does not answer, or a newer version wrote it.
pub async fn jobs_over(store: &dyn Store) -> Result<BTreeSet<JobId>, JobDirError> {
    let known: Option<JobsOver> = unless_damaged(read(store, layout::JOBS_OVER).await)?;
    Ok(known.map(|over| over.jobs).unwrap_or_default())
}

/// Overwrites what was known, which the caller has read.
///
/// # Errors
/// When the store refuses. Nothing depends on it but how much is read.
pub async fn put_jobs_over(store: &dyn Store, jobs: BTreeSet<JobId>) -> Result<(), JobDirError> {
    let over = JobsOver { format: RECORD_FORMAT, jobs };
    Ok(store.put(layout::JOBS_OVER, Bytes::from(encode(&over))).await?)
}
