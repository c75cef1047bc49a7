//! Asks several ranks of a gang for the same, and says which could not be asked.

use crate::job::{JobId, Wish};
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::ClockHandle;

/// The ranks that were asked, and the failures.
#[derive(Default)]
pub struct AskedRanks {
    /// A process must see each of them through.
    pub asked: Vec<JobDir>,
    pub failed: Vec<(JobId, JobDirError)>,
}

/// It was made and has not ended, as far as its records can be read.
pub async fn is_open(dir: &JobDir) -> bool {
    !matches!(dir.receipt().await, Ok(Some(_))) && !matches!(dir.spec().await, Ok(None))
}

/// Leaves the wish for each of these jobs. A job that has ended, or was never made, is left out.
pub async fn ask_ranks(ranks: &[JobDir], wish: Wish, by: &str, clock: &ClockHandle) -> AskedRanks {
    let mut found = AskedRanks::default();
    for dir in ranks {
        if !is_open(dir).await {
            continue;
        }
        match dir.insist_on(wish, by, &**clock).await {
            Ok(_) => found.asked.push(dir.clone()),
            Err(error) => found.failed.push((dir.job().clone(), error)),
        }
    }
    found
}
