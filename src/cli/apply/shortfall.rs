//! How a job of `lamp apply` comes short of what its file asks for, and what is said of that.
//!
//! ```text
//!   no end yet ─┬─ somebody has asked it to end ──> it ends
//!               └─ else ─────────────────────────> nothing
//!   ended ──────┬─ with success ─────────────────> nothing
//!               └─ else ─ `lamp start` went on? ─┬─ under way, or with success ──> it goes on, or nothing
//!                                                └─ no, or that ended too ───────> it has ended
//! ```
//! What must never live here: what is done about it (`policy::schedule::apply_diff`).

use std::sync::Arc;

use crate::controller::continuation_of;
use crate::job::{JobId, JobOutcome, Receipt};
use crate::jobdir::{JobDir, JobDirError, unless_damaged};
use crate::policy::Wishes;

/// How a job comes short.
pub enum Short {
    /// Somebody has asked it to end, and it has not yet.
    Ends,
    /// Somebody went on with it: this job does its work now.
    GoesOn(JobId),
    Ended(JobOutcome),
}

impl Short {
    /// `None`: it runs, or it has done what it was to do.
    ///
    /// # Errors
    /// The job root does not answer.
    pub async fn of(dir: &JobDir, receipt: Option<&Receipt>) -> Result<Option<Short>, JobDirError> {
        match receipt {
            None => Ok(Wishes::of(&dir.requests().await?).end.map(|_| Short::Ends)),
            Some(receipt) if receipt.outcome == JobOutcome::Succeeded => Ok(None),
            Some(receipt) => went_on(dir, receipt).await,
        }
    }

    /// Whether the same work would not be done twice by another job.
    pub fn is_over(&self) -> bool {
        matches!(self, Short::Ended(_))
    }

    /// `again`: the command that makes it again.
    pub fn told(&self, again: &str) -> String {
        match self {
            Short::Ends => format!("its job ends, as somebody asked; after that `{again}` makes it again"),
            Short::GoesOn(job) => format!("its job goes on as {job}"),
            Short::Ended(outcome @ JobOutcome::Failed) => format!("its job has {outcome}; `{again}` makes it again"),
            Short::Ended(outcome) => format!("its job was {outcome}; `{again}` makes it again"),
        }
    }
}

/// What became of a job that has ended without success: `lamp start` may have gone on with it, and again with that.
async fn went_on(dir: &JobDir, receipt: &Receipt) -> Result<Option<Short>, JobDirError> {
    let (mut outcome, mut next) = (receipt.outcome, continuation_of(dir.job(), &receipt.name));
    loop {
        let dir = JobDir::new(Arc::clone(dir.store()), next.clone());
        match dir.spec().await {
            Ok(None) => return Ok(Some(Short::Ended(outcome))),
            Err(error @ JobDirError::Store(_)) => return Err(error),
            // A record that this version cannot read is one all the same.
            Ok(Some(_)) | Err(_) => {}
        }
        match unless_damaged(dir.receipt().await)? {
            None => return Ok(Some(Short::GoesOn(next))),
            Some(ended) if ended.outcome == JobOutcome::Succeeded => return Ok(None),
            Some(ended) => (outcome, next) = (ended.outcome, continuation_of(&next, &ended.name)),
        }
    }
}
