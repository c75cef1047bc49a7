//! The jobs that ended so long ago that no cost sum needs to read them.
//!
//! ```text
//!   jobs-over.json     overwritten by each launch under a cap
//! ```
//! This is a cache, not a record: it may be deleted, and of two writers the later one wins. A job
//! that is missing in it is read and added again. Not here: a job that may still cost something.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::{JobDirError, unless_damaged};
use super::job_dir::read;
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

/// The jobs that are known to be over, in one request.
///
/// # Errors
/// When the store does not answer, or a newer version wrote it.
pub async fn jobs_over(store: &dyn Store) -> Result<BTreeSet<JobId>, JobDirError> {
    let known: Option<JobsOver> = unless_damaged(read(store, layout::JOBS_OVER).await)?;
    Ok(known.map(|over| over.jobs).unwrap_or_default())
}

/// Overwrites the list, which the caller has read before.
///
/// # Errors
/// When the store refuses. Then later sums read more.
pub async fn put_jobs_over(store: &dyn Store, jobs: BTreeSet<JobId>) -> Result<(), JobDirError> {
    let over = JobsOver { format: RECORD_FORMAT, jobs };
    Ok(store.put(layout::JOBS_OVER, Bytes::from(encode(&over))).await?)
}
