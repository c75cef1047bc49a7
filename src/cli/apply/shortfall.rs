//! How a job of `lamp apply` falls short of its file, and what is said about that.
//!
//! ```text
//!   no end yet ─┬─ it was asked to end ──> it ends
//!               └─ else ─────────────────> nothing
//!   ended ──────┬─ with success ─────────> nothing
//!               └─ else ─ continued? ─┬─ runs or succeeded ─> it goes on, or nothing
//!                                     └─ no, or ended too ──> it has ended
//! ```
//!
//! Not here: what is done about it (`policy::schedule::apply_diff`).

use std::sync::Arc;

use crate::controller::continuation_of;
use crate::job::{JobId, JobOutcome, Receipt};
use crate::jobdir::{JobDir, JobDirError, unless_damaged};
use crate::policy::Wishes;

pub enum Short {
    Ends,
    /// `lamp start` continued it: this job does its work now.
    GoesOn(JobId),
    Ended(JobOutcome),
}

impl Short {
    /// `None`: it runs, or it has done its work.
    ///
    /// # Errors
    /// Fails when the job root is unreachable.
    pub async fn of(dir: &JobDir, receipt: Option<&Receipt>) -> Result<Option<Short>, JobDirError> {
        match receipt {
            None => Ok(Wishes::of(&dir.requests().await?).end.map(|_| Short::Ends)),
            Some(receipt) if receipt.outcome == JobOutcome::Succeeded => Ok(None),
            Some(receipt) => went_on(dir, receipt).await,
        }
    }

    /// Whether no other job does the same work.
    pub fn is_over(&self) -> bool {
        matches!(self, Short::Ended(_))
    }

    pub fn told(&self, again: &str) -> String {
        match self {
            Short::Ends => {
                format!("its job ends, as a user asked; after that `{again}` makes it again")
            }
            Short::GoesOn(job) => format!("its job goes on as {job}"),
            Short::Ended(outcome @ (JobOutcome::Failed | JobOutcome::Ended)) => {
                format!("its job has {outcome}; `{again}` makes it again")
            }
            Short::Ended(outcome) => format!("its job was {outcome}; `{again}` makes it again"),
        }
    }
}

/// Follows a job after an end without success: `lamp start` may have continued it, several times.
async fn went_on(dir: &JobDir, receipt: &Receipt) -> Result<Option<Short>, JobDirError> {
    let (mut outcome, mut next) = (receipt.outcome, continuation_of(dir.job(), &receipt.name));
    loop {
        let dir = JobDir::new(Arc::clone(dir.store()), next.clone());
        match dir.spec().await {
            Ok(None) => return Ok(Some(Short::Ended(outcome))),
            Err(error @ JobDirError::Store(_)) => return Err(error),
            // A job with an unreadable spec is still a job.
            Ok(Some(_)) | Err(_) => {}
        }
        match unless_damaged(dir.receipt().await)? {
            None => return Ok(Some(Short::GoesOn(next))),
            Some(ended) if ended.outcome == JobOutcome::Succeeded => return Ok(None),
            Some(ended) => (outcome, next) = (ended.outcome, continuation_of(&next, &ended.name)),
        }
    }
}
