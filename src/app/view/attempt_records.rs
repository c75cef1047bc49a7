//! The records of a job's attempts as a command reads them, without what only a controller watches.
//!
//! A job that waits for capacity has hundreds of attempts, so only a few are read in parallel. Not
//! here: what is said about them.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError, unless_damaged};
use crate::policy::lifecycle::reconcile::{AttemptFacts, CheckpointSummaries, Watched};

/// Attempts that are read in parallel, with two objects each. All of hundreds would exceed a
/// process's connections.
const READS_IN_FLIGHT: usize = 16;

/// # Errors
/// Fails when the store is unreachable, or a later version wrote a record.
pub async fn attempts_of(
    dir: &JobDir,
    numbers: Vec<AttemptNo>,
) -> Result<Vec<AttemptFacts>, JobDirError> {
    let read = stream::iter(numbers).map(|number| attempt(dir, number)).buffered(READS_IN_FLIGHT);
    read.try_filter_map(|attempt| async { Ok(attempt) }).try_collect().await
}

async fn attempt(dir: &JobDir, number: AttemptNo) -> Result<Option<AttemptFacts>, JobDirError> {
    let (plan, settled) = tokio::try_join!(dir.plan(number), dir.settled(number))?;
    let Some(plan) = plan.map(Arc::new) else { return Ok(None) };
    let settled = settled.map(Arc::new);
    let mut facts = AttemptFacts {
        plan,
        lease: None,
        status: None,
        outcome: None,
        settled,
        journal: CheckpointSummaries::default(),
        watched: Watched::default(),
    };
    if facts.settled.is_none() {
        let lease = async { unless_damaged(dir.lease(number).await) };
        let outcome = async { unless_damaged(dir.outcome(number).await) };
        (facts.status, facts.lease, facts.outcome) =
            tokio::try_join!(dir.status(number), lease, outcome)?;
    }
    Ok(Some(facts))
}

/// A machine without a report may boot, or may never have been launched.
pub fn is_heard(attempt: &AttemptFacts) -> bool {
    attempt.lease.is_some() || attempt.status.is_some() || attempt.outcome.is_some()
}
