//! The records of a job's attempts, as a command reads them: without what only a controller watches.
//!
//! A job that waits for room asks place after place, and has hundreds of attempts: a few are read at once. What must never live here: what
//! is said of them.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError, unless_damaged};
use crate::policy::lifecycle::reconcile::{AttemptFacts, Journal, Watched};

/// Attempts that are read at once, two objects each: of a job with hundreds more would take more connections than a process may have.
const READS_IN_FLIGHT: usize = 16;

/// # Errors
/// When the store does not answer, or a later version wrote a record.
pub async fn attempts_of(dir: &JobDir, numbers: Vec<AttemptNo>) -> Result<Vec<AttemptFacts>, JobDirError> {
    let read = stream::iter(numbers).map(|number| attempt(dir, number)).buffered(READS_IN_FLIGHT);
    read.try_filter_map(|attempt| async { Ok(attempt) }).try_collect().await
}

async fn attempt(dir: &JobDir, number: AttemptNo) -> Result<Option<AttemptFacts>, JobDirError> {
    let (plan, settled) = tokio::try_join!(dir.plan(number), dir.settled(number))?;
    let Some(plan) = plan.map(Arc::new) else { return Ok(None) };
    let settled = settled.map(Arc::new);
    let mut facts =
        AttemptFacts { plan, lease: None, status: None, outcome: None, settled, journal: Journal::default(), watched: Watched::default() };
    if facts.settled.is_none() {
        let lease = async { unless_damaged(dir.lease(number).await) };
        let outcome = async { unless_damaged(dir.outcome(number).await) };
        (facts.status, facts.lease, facts.outcome) = tokio::try_join!(dir.status(number), lease, outcome)?;
    }
    Ok(Some(facts))
}
