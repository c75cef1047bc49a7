//! What is new in a job root, told by one listing: who drives ten thousand jobs cannot read ten thousand records a tick.
//!
//! ```text
//!   news/<job>/made            the job was submitted
//!   news/<job>/wish-<n>        request <n> was left
//!   news/<job>/<n>-phase       overwritten when the phase of attempt <n> or what a person should look at changed
//!   news/<job>/<n>-beat        overwritten once a minute: the agent of attempt <n> lives
//! ```
//! Empty objects, each written *after* the record that it tells of: their names and the store's times say everything. They
//! only save reading: whoever acts reads the records first, one that is missing or late costs time and nothing else, and
//! the controller removes them with the end of the job. A folder has none, since a record there costs as much as a name.
//! What must never live here: anything that somebody would miss.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use jiff::Timestamp;

use super::job_dir::JobDir;
use super::layout;
use crate::job::{AttemptNo, JobId};
use crate::ports::{Store, StoreError};

/// One thing that happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Made,
    Wish(u32),
    Phase(AttemptNo),
    Beat(AttemptNo),
}

/// What the listing says of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobNews {
    /// Differs when anything but a beat is new.
    pub version: u64,
    /// By the store's clock; in order of the attempts.
    pub beats: Vec<(AttemptNo, Timestamp)>,
}

impl JobNews {
    pub fn beat(&self, attempt: AttemptNo) -> Option<Timestamp> {
        self.beats.iter().find(|(number, _)| *number == attempt).map(|(_, at)| *at)
    }
}

/// Whether this job root has news: where each look is a request that is paid for.
pub fn has_news(store: &dyn Store) -> bool {
    !store.is_folder()
}

/// The news of every job that has any; one call for a thousand of them.
///
/// # Errors
/// When the store cannot be listed.
pub async fn news(store: &dyn Store) -> Result<BTreeMap<JobId, JobNews>, StoreError> {
    let mut all: BTreeMap<JobId, JobNews> = BTreeMap::new();
    for meta in store.list(layout::NEWS).await? {
        let Some((job, what)) = meta.key.strip_prefix(layout::NEWS).and_then(|rest| rest.split_once('/')) else { continue };
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

impl JobDir {
    /// Says that something is new, where there are news at all. After the record that it is about.
    ///
    /// # Errors
    /// When the store refuses. Nothing depends on it but how soon somebody looks.
    pub async fn tell_news(&self, what: News) -> Result<(), StoreError> {
        if !has_news(self.store().as_ref()) {
            return Ok(());
        }
        let name = match what {
            News::Made => "made".to_owned(),
            News::Wish(number) => format!("wish-{number:04}"),
            News::Phase(attempt) => format!("{attempt}-phase"),
            News::Beat(attempt) => format!("{attempt}{BEAT}"),
        };
        self.store().put(&format!("{}{name}", layout::news(self.job())), Bytes::new()).await
    }

    /// Removes what told of a job that is over.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn clear_news(&self) -> Result<(), StoreError> {
        for told in self.store().list(&layout::news(self.job())).await? {
            self.store().delete(&told.key).await?;
        }
        Ok(())
    }
}
