//! Typed access to the schedules of a job root.
//!
//! ```text
//!   schedules/<set>/<name>.json                     lamp apply, overwritten
//!   schedules/<set>/<name>/code/<sha256>.tar.zst    lamp apply, once
//!   schedules/<set>/<name>/runs/<due>.json          a daemon, once each: the decision
//!   schedules/<set>/<name>/waiting.json             a daemon, overwritten
//! ```

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::job_dir::read;
use super::layout;
use super::record::encode;
use super::retry_write::insist;
use super::{JobDir, JobDirError};
use crate::job::{ResolvedSpec, Schedule, ScheduleRun, Waiting};
use crate::ports::{Clock, Created, Store, StoreError};

/// One schedule in a job root. Cheap to clone.
#[derive(Clone)]
pub struct ScheduleDir {
    store: Arc<dyn Store>,
    set: String,
    name: String,
}

/// Parallel listings and reads.
const READS_IN_FLIGHT: usize = 16;

/// Every schedule of a job root, of one set or of all, ordered by name.
///
/// # Errors
/// When the store cannot be listed.
pub async fn schedules(
    store: &Arc<dyn Store>,
    set: Option<&str>,
) -> Result<Vec<ScheduleDir>, StoreError> {
    let sets = match set {
        Some(set) => vec![set.to_owned()],
        None => store.children(layout::SCHEDULES).await?,
    };
    let listed = sets.into_iter().map(|set| async move {
        let names = store.children(&layout::schedule_set(&set)).await?;
        let names =
            names.into_iter().filter_map(|name| name.strip_suffix(".json").map(str::to_owned));
        Ok(names
            .map(|name| ScheduleDir { store: Arc::clone(store), set: set.clone(), name })
            .collect::<Vec<_>>())
    });
    let listed: Vec<Vec<ScheduleDir>> =
        stream::iter(listed).buffered(READS_IN_FLIGHT).try_collect().await?;
    Ok(listed.into_iter().flatten().collect())
}

impl ScheduleDir {
    pub fn new(store: Arc<dyn Store>, set: &str, name: &str) -> Self {
        ScheduleDir { store, set: set.to_owned(), name: name.to_owned() }
    }

    pub fn set(&self) -> &str {
        &self.set
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// As any read of a record.
    pub async fn record(&self) -> Result<Option<Schedule>, JobDirError> {
        self.read(layout::schedule(&self.set, &self.name)).await
    }

    /// Overwrites the schedule for a waiting user, with retries. A record of a newer version is not
    /// changed.
    ///
    /// # Errors
    /// [`JobDirError::Unsure`] when it may be written. After any other error it is not.
    pub async fn put_record(
        &self,
        record: &Schedule,
        clock: &dyn Clock,
    ) -> Result<(), JobDirError> {
        match self.record().await {
            Err(error) if !error.is_damage() => return Err(error),
            _ => {}
        }
        let (key, body) = (layout::schedule(&self.set, &self.name), Bytes::from(encode(record)));
        insist(clock, || async { Ok(self.store.put_durable(&key, body.clone()).await?) }).await
    }

    /// Stores the packed workdir, once for each content.
    ///
    /// # Errors
    /// When the store refuses, or the file does not have this hash.
    pub async fn put_code(&self, sha256: &str, path: &Path) -> Result<(), JobDirError> {
        let key = self.code_key(sha256);
        if self.store.head(&key).await?.is_some() {
            return Ok(());
        }
        let (_, sent) = self.store.put_file(&key, path).await?;
        if sent == sha256 { Ok(()) } else { Err(JobDirError::Taken { key }) }
    }

    /// The key of the packed workdir.
    pub fn code_key(&self, sha256: &str) -> String {
        layout::schedule_code(&self.set, &self.name, sha256)
    }

    /// The due times with a decision, in order.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub async fn due_times(&self) -> Result<Vec<Timestamp>, StoreError> {
        let names = self.store.children(&layout::schedule_runs(&self.set, &self.name)).await?;
        let mut times: Vec<Timestamp> =
            names.iter().filter_map(|name| layout::due_of(name)).collect();
        times.sort_unstable();
        Ok(times)
    }

    /// # Errors
    /// As any read of a record.
    pub async fn run(&self, due: Timestamp) -> Result<Option<ScheduleRun>, JobDirError> {
        self.read(layout::schedule_run(&self.set, &self.name, due)).await
    }

    /// The newest decision.
    ///
    /// # Errors
    /// When the record cannot be read, or the store does not answer.
    pub async fn newest_run(&self) -> Result<Option<ScheduleRun>, JobDirError> {
        let Some(due) = self.due_times().await?.last().copied() else { return Ok(None) };
        self.run(due).await
    }

    /// The lock between daemons: the record that exists afterwards, ours or another's, is the
    /// decision.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn decide(&self, run: &ScheduleRun) -> Result<ScheduleRun, JobDirError> {
        let key = layout::schedule_run(&self.set, &self.name, run.due);
        match self.store.create(&key, Bytes::from(encode(run))).await? {
            Created::New => Ok(run.clone()),
            Created::Exists => {
                self.run(run.due).await?.ok_or_else(|| StoreError::vanished(key).into())
            }
        }
    }

    /// Makes the job of a decision, code first. Idempotent.
    ///
    /// # Errors
    /// When the store refuses. The next tick tries again.
    pub async fn make_job(&self, spec: &ResolvedSpec) -> Result<(), JobDirError> {
        let dir = JobDir::new(Arc::clone(&self.store), spec.job.clone());
        if let Some(code) = &spec.code {
            self.store
                .copy(&self.code_key(&code.sha256), &layout::code(&spec.job, &code.sha256))
                .await?;
        }
        // Another daemon wrote the same spec: it comes from the decision.
        let _same = dir.create_spec(spec).await?;
        Ok(())
    }

    /// # Errors
    /// As any read of a record.
    pub async fn waiting(&self) -> Result<Option<Waiting>, JobDirError> {
        self.read(layout::schedule_waiting(&self.set, &self.name)).await
    }

    /// # Errors
    /// When the store refuses.
    pub async fn put_waiting(&self, waiting: &Waiting) -> Result<(), JobDirError> {
        Ok(self
            .store
            .put(&layout::schedule_waiting(&self.set, &self.name), Bytes::from(encode(waiting)))
            .await?)
    }

    async fn read<T: DeserializeOwned>(&self, key: String) -> Result<Option<T>, JobDirError> {
        read(&*self.store, &key).await
    }
}
