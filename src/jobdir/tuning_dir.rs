//! Typed access to the tunings of a job root.
//!
//! ```text
//!   tunings/<name>/tuning.json               lamp tune, once
//!   tunings/<name>/code/<sha256>.tar.zst     lamp tune, once
//!   tunings/<name>/trials/<n>.json           a controller, once each: the decision
//!   tunings/<name>/trials/<n>/pruned.json    a controller, once: why its job is stopped
//!   tunings/<name>/trials/<n>/paused-<k>.json    a controller, once each: why its job is stopped
//!   tunings/<name>/trials/<n>/resumed-<k>.json   a controller, once each: the job that goes on
//!   tunings/<name>/trials/<n>/ended.json     a controller, once
//!   tunings/<name>/ended.json                a controller or lamp tune stop, once
//! ```

use std::path::Path;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::job_dir::{create_or_read, read};
use super::layout;
use super::{JobDir, JobDirError};
use crate::job::{
    ResolvedSpec, TrialPaused, TrialPruned, TrialResumed, TuneTrial, TuneTrialEnd, Tuning,
    TuningEnd, other_members,
};
use crate::ports::{Store, StoreError};

/// One tuning in a job root. Cheap to clone.
#[derive(Clone)]
pub struct TuningDir {
    store: Arc<dyn Store>,
    name: String,
}

/// Parallel reads.
const READS_IN_FLIGHT: usize = 16;

/// Every tuning of a job root, ordered by name.
///
/// # Errors
/// When the store cannot be listed.
pub async fn tunings(store: &Arc<dyn Store>) -> Result<Vec<TuningDir>, StoreError> {
    let mut names: Vec<String> = store
        .children(layout::TUNINGS)
        .await?
        .into_iter()
        .map(|name| name.trim_end_matches('/').to_owned())
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names.into_iter().map(|name| TuningDir { store: Arc::clone(store), name }).collect())
}

impl TuningDir {
    pub fn new(store: Arc<dyn Store>, name: &str) -> Self {
        TuningDir { store, name: name.to_owned() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// As any read of a record.
    pub async fn record(&self) -> Result<Option<Tuning>, JobDirError> {
        self.read(layout::tuning(&self.name)).await
    }

    /// The tuning that exists afterwards, ours or another's.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn create(&self, tuning: &Tuning) -> Result<Tuning, JobDirError> {
        self.create_or_read(layout::tuning(&self.name), tuning).await
    }

    /// Stores the packed workdir, once for each content.
    ///
    /// # Errors
    /// When the store refuses, or the file does not have this hash.
    pub async fn put_code(&self, sha256: &str, path: &Path) -> Result<(), JobDirError> {
        let key = layout::tuning_code(&self.name, sha256);
        if self.store.head(&key).await?.is_some() {
            return Ok(());
        }
        let (_, sent) = self.store.put_file(&key, path).await?;
        if sent == sha256 { Ok(()) } else { Err(JobDirError::Taken { key }) }
    }

    /// The trials from this number on, ordered by number.
    ///
    /// # Errors
    /// When the store does not answer, or a record cannot be read.
    pub async fn trials_from(&self, first: u32) -> Result<Vec<TuneTrial>, JobDirError> {
        let names = self.store.children(&layout::tuning_trials(&self.name)).await?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        numbers.retain(|number| *number >= first);
        numbers.sort_unstable();
        let found: Vec<Option<TuneTrial>> =
            stream::iter(numbers.into_iter().map(|number| self.trial(number)))
                .buffered(READS_IN_FLIGHT)
                .try_collect()
                .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// # Errors
    /// As any read of a record.
    pub async fn trial(&self, number: u32) -> Result<Option<TuneTrial>, JobDirError> {
        self.read(layout::tuning_trial(&self.name, number)).await
    }

    /// The lock between controllers: the record that exists afterwards, ours or another's, is the
    /// trial of this number.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn decide(&self, trial: &TuneTrial) -> Result<TuneTrial, JobDirError> {
        self.create_or_read(layout::tuning_trial(&self.name, trial.number), trial).await
    }

    /// Makes the jobs of a trial, code first. Idempotent: the specs come from the decision. Rank 0
    /// is made last, because it may buy the machines of all ranks.
    ///
    /// # Errors
    /// When the store refuses. The next step tries again.
    pub async fn make_jobs(&self, spec: &ResolvedSpec) -> Result<(), JobDirError> {
        for other in other_members(spec) {
            self.make_job(&other).await?;
        }
        self.make_job(spec).await
    }

    async fn make_job(&self, spec: &ResolvedSpec) -> Result<(), JobDirError> {
        let dir = JobDir::new(Arc::clone(&self.store), spec.job.clone());
        self.copy_code(spec).await?;
        let _same = dir.create_spec(spec).await?;
        Ok(())
    }

    /// Gives the job of a trial its code.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn copy_code(&self, spec: &ResolvedSpec) -> Result<(), JobDirError> {
        let Some(code) = &spec.code else { return Ok(()) };
        let from = layout::tuning_code(&self.name, &code.sha256);
        self.store.copy(&from, &layout::code(&spec.job, &code.sha256)).await?;
        Ok(())
    }

    /// # Errors
    /// As any read of a record.
    pub async fn trial_end(&self, number: u32) -> Result<Option<TuneTrialEnd>, JobDirError> {
        self.read(layout::tuning_trial_part(&self.name, number, "ended")).await
    }

    /// # Errors
    /// As any write of a record.
    pub async fn end_trial(&self, end: &TuneTrialEnd) -> Result<TuneTrialEnd, JobDirError> {
        self.create_or_read(layout::tuning_trial_part(&self.name, end.number, "ended"), end).await
    }

    /// # Errors
    /// As any read of a record.
    pub async fn pruned(&self, number: u32) -> Result<Option<TrialPruned>, JobDirError> {
        self.read(layout::tuning_trial_part(&self.name, number, "pruned")).await
    }

    /// # Errors
    /// As any write of a record.
    pub async fn prune(&self, pruned: &TrialPruned) -> Result<TrialPruned, JobDirError> {
        let key = layout::tuning_trial_part(&self.name, pruned.number, "pruned");
        self.create_or_read(key, pruned).await
    }

    /// # Errors
    /// As any read of a record.
    pub async fn paused(
        &self,
        number: u32,
        pause: u32,
    ) -> Result<Option<TrialPaused>, JobDirError> {
        self.read(layout::tuning_trial_part(&self.name, number, &format!("paused-{pause}"))).await
    }

    /// # Errors
    /// As any write of a record.
    pub async fn pause(&self, paused: &TrialPaused) -> Result<TrialPaused, JobDirError> {
        let part = format!("paused-{}", paused.pause);
        let key = layout::tuning_trial_part(&self.name, paused.number, &part);
        self.create_or_read(key, paused).await
    }

    /// # Errors
    /// As any read of a record.
    pub async fn resumed(
        &self,
        number: u32,
        pause: u32,
    ) -> Result<Option<TrialResumed>, JobDirError> {
        self.read(layout::tuning_trial_part(&self.name, number, &format!("resumed-{pause}"))).await
    }

    /// The lock between controllers, as for a new trial.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn resume(&self, resumed: &TrialResumed) -> Result<TrialResumed, JobDirError> {
        let part = format!("resumed-{}", resumed.pause);
        let key = layout::tuning_trial_part(&self.name, resumed.number, &part);
        self.create_or_read(key, resumed).await
    }

    /// # Errors
    /// As any read of a record.
    pub async fn end(&self) -> Result<Option<TuningEnd>, JobDirError> {
        self.read(layout::tuning_end(&self.name)).await
    }

    /// The first reason stays.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn put_end(&self, end: &TuningEnd) -> Result<TuningEnd, JobDirError> {
        self.create_or_read(layout::tuning_end(&self.name), end).await
    }

    async fn read<T: DeserializeOwned>(&self, key: String) -> Result<Option<T>, JobDirError> {
        read(&*self.store, &key).await
    }

    async fn create_or_read<T>(&self, key: String, record: &T) -> Result<T, JobDirError>
    where
        T: Serialize + DeserializeOwned + Clone,
    {
        create_or_read(&*self.store, key, record).await
    }
}
