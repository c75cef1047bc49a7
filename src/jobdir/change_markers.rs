//! Finds changes in a job root with one listing: ten thousand records cannot be read in every tick.
//!
//! ```text
//!   news/<job>/made            the job was submitted
//!   news/<job>/wish-<n>        request <n> was left
//!   news/<job>/<n>-phase       overwritten when attempt <n> has a new phase or attention line
//!   news/<job>/<n>-beat        overwritten once a minute: the agent of attempt <n> runs
//! ```
//! Each marker is an empty object, written *after* its record. Its name and the store's time are
//! the whole content. Markers only save reads: the controller reads the records before it acts, so
//! a missing or late marker costs only time. The controller removes them when the job ends. A job
//! root in a local folder has no markers, since a record there is as cheap to read as a marker. Not
//! here: anything that must not be lost.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;

use super::layout;
use crate::job::{AttemptNo, JobId};
use crate::ports::{Store, StoreError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Made,
    Wish(u32),
    Phase(AttemptNo),
    Beat(AttemptNo),
}

impl News {
    /// The key of its marker.
    pub(super) fn key(self, job: &JobId) -> String {
        let name = match self {
            News::Made => "made".to_owned(),
            News::Wish(number) => format!("wish-{number:04}"),
            News::Phase(attempt) => format!("{attempt}-phase"),
            News::Beat(attempt) => format!("{attempt}{BEAT}"),
        };
        format!("{}{name}", layout::news(job))
    }
}

/// The markers of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobNews {
    /// Changes when anything but a beat is new.
    pub version: u64,
    /// By the store's clock, ordered by attempt.
    pub beats: Vec<(AttemptNo, Timestamp)>,
}

impl JobNews {
    pub fn beat(&self, attempt: AttemptNo) -> Option<Timestamp> {
        self.beats.iter().find(|(number, _)| *number == attempt).map(|(_, at)| *at)
    }
}

/// Whether this job root has markers: only where each request costs money.
pub fn has_news(store: &dyn Store) -> bool {
    !store.is_folder()
}

/// The markers of every job that has some. One request lists a thousand.
///
/// # Errors
/// When the store cannot be listed.
pub async fn news(store: &dyn Store) -> Result<BTreeMap<JobId, JobNews>, StoreError> {
    let mut all: BTreeMap<JobId, JobNews> = BTreeMap::new();
    for meta in store.list(layout::NEWS).await? {
        let Some((job, what)) =
            meta.key.strip_prefix(layout::NEWS).and_then(|rest| rest.split_once('/'))
        else {
            continue;
        };
        let Ok(job) = job.parse::<JobId>() else { continue };
        let news = all.entry(job).or_default();
        match what.strip_suffix(BEAT).and_then(|number| number.parse().ok()) {
            Some(number) => news.beats.push((number, meta.modified)),
            None => {
                let mut hash = DefaultHasher::new();
                (news.version, what, meta.modified.as_nanosecond()).hash(&mut hash);
                news.version = hash.finish();
            }
        }
    }
    Ok(all)
}

const BEAT: &str = "-beat";
