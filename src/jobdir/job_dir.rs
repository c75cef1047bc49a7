//! Typed access to one job's records.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::change_markers::{News, has_news};
use super::error::{JobDirError, RecordError, unless_damaged};
use super::journal::Event;
use super::layout;
use super::record::{decode, encode};
use super::retry_write::insist;
use crate::instance::Status;
use crate::job::{
    AttemptNo, Attention, CheckpointNo, Ending, GivenUp, JobId, Lease, Manifest, MarketLog,
    Outcome, Plan, RECORD_FORMAT, Receipt, Request, ResolvedSpec, Settled, Waiting, Wish,
};
use crate::ports::{Clock, Created, OBJECT_BYTES_MAX, ObjectMeta, Store, StoreError};

/// A record, by its key. `None`: not written yet.
pub(crate) async fn read<T: DeserializeOwned>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<T>, JobDirError> {
    read_at_most(store, key, RECORD_BYTES_MAX).await
}

async fn read_at_most<T: DeserializeOwned>(
    store: &dyn Store,
    key: &str,
    bytes_max: u64,
) -> Result<Option<T>, JobDirError> {
    match store.get_at_most(key, bytes_max).await {
        Ok(Some(bytes)) => Ok(Some(decode(key, &bytes)?)),
        Ok(None) => Ok(None),
        Err(StoreError::Unfit { key, cause, .. }) => {
            Err(RecordError::Foreign { key, cause }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Create-if-absent. After a lost reply our record may already be there: the same bytes count as
/// new.
pub(crate) async fn create<T: Serialize>(
    store: &dyn Store,
    key: String,
    record: &T,
) -> Result<Created, JobDirError> {
    let body = Bytes::from(encode(record));
    if store.create(&key, body.clone()).await? == Created::New {
        return Ok(Created::New);
    }
    let there = match store.get(&key).await {
        Err(StoreError::Unfit { .. }) => return Ok(Created::Exists),
        read => read?,
    };
    match there {
        Some(there) => Ok(if there == body { Created::New } else { Created::Exists }),
        None => Err(StoreError::vanished(key).into()),
    }
}

/// The record that exists afterwards, ours or another's.
pub(crate) async fn create_or_read<T>(
    store: &dyn Store,
    key: String,
    record: &T,
) -> Result<T, JobDirError>
where
    T: Serialize + DeserializeOwned + Clone,
{
    match create(store, key.clone(), record).await? {
        Created::New => Ok(record.clone()),
        Created::Exists => {
            let there = read(store, &key).await?;
            there.ok_or_else(|| StoreError::vanished(key).into())
        }
    }
}

/// The largest record. The sweeper's function has 256 MB and reads many at once. A spec has at most
/// 1 MB.
const RECORD_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// One job in a job root. Cheap to clone.
///
/// A read returns `None` if the record is not written yet. It fails when the store does not answer,
/// when a newer version wrote the record, and when the record is damaged. Some methods treat a
/// damaged record as none; their comments say so.
///
/// A `create_` writes only if no record is there, and fails only when the store fails.
/// [`Created::Exists`]: another writer's record is there and stays. Our own record after a lost
/// reply counts as new. A `put_` overwrites, and fails when the store refuses.
#[derive(Clone)]
pub struct JobDir {
    store: Arc<dyn Store>,
    job: JobId,
}

/// Parallel reads after a listing.
const READS_IN_FLIGHT: usize = 16;

/// Every job of a job root, ordered by id.
///
/// # Errors
/// When the store cannot be listed.
pub async fn jobs(store: &dyn Store) -> Result<Vec<JobId>, StoreError> {
    let names = store.children(layout::JOBS).await?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

impl JobDir {
    pub fn new(store: Arc<dyn Store>, job: JobId) -> Self {
        JobDir { store, job }
    }

    pub fn job(&self) -> &JobId {
        &self.job
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The spec of the job. `None`: not written yet.
    pub async fn spec(&self) -> Result<Option<ResolvedSpec>, JobDirError> {
        self.read(layout::spec(&self.job)).await
    }

    /// Makes the job. [`Created::Exists`]: another spec has its id. The marker is written in
    /// parallel: a reader without a spec looks again.
    pub async fn create_spec(&self, spec: &ResolvedSpec) -> Result<Created, JobDirError> {
        let create = self.create(layout::spec(&self.job), spec);
        if spec.is_alone() {
            return create.await;
        }
        let (created, told) = tokio::join!(create, self.tell_news(News::Made));
        if let Err(error) = told {
            tracing::debug!(job = %self.job, "a daemon will hear of it a little later: {error}");
        }
        created
    }

    /// Why the job ended. `None`: not written yet.
    pub async fn receipt(&self) -> Result<Option<Receipt>, JobDirError> {
        self.read(layout::receipt(&self.job)).await
    }

    /// [`Created::Exists`]: another writer ended the job first, and its receipt stays.
    pub async fn create_receipt(&self, receipt: &Receipt) -> Result<Created, JobDirError> {
        self.create(layout::receipt(&self.job), receipt).await
    }

    /// The record that the job's resources were given up. `None`: not given up, or the record is
    /// damaged.
    pub async fn given_up(&self) -> Result<Option<GivenUp>, JobDirError> {
        unless_damaged(self.read(layout::given_up(&self.job)).await)
    }

    /// [`Created::Exists`]: it was given up before.
    pub async fn create_given_up(&self, given_up: &GivenUp) -> Result<Created, JobDirError> {
        self.create(layout::given_up(&self.job), given_up).await
    }

    /// Why nothing is launched now. `None`: the job never waited.
    pub async fn waiting(&self) -> Result<Option<Waiting>, JobDirError> {
        self.read(layout::waiting(&self.job)).await
    }

    /// Overwrites it; fails when the store refuses.
    pub async fn put_waiting(&self, waiting: &Waiting) -> Result<(), JobDirError> {
        Ok(self.store.put(&layout::waiting(&self.job), Bytes::from(encode(waiting))).await?)
    }

    /// Messages that a person must know. `None`: nothing yet, or the record is damaged.
    pub async fn attention(&self) -> Result<Option<Attention>, JobDirError> {
        unless_damaged(self.read(layout::attention(&self.job)).await)
    }

    /// Overwrites it; fails when the store refuses.
    pub async fn put_attention(&self, attention: &Attention) -> Result<(), JobDirError> {
        Ok(self.store.put(&layout::attention(&self.job), Bytes::from(encode(attention))).await?)
    }

    /// The decisions between markets. `None`: none yet, or the record is damaged.
    pub async fn market(&self) -> Result<Option<MarketLog>, JobDirError> {
        unless_damaged(self.read(layout::market(&self.job)).await)
    }

    /// Overwrites it; fails when the store refuses.
    pub async fn put_market(&self, log: &MarketLog) -> Result<(), JobDirError> {
        Ok(self.store.put(&layout::market(&self.job), Bytes::from(encode(log))).await?)
    }

    /// The numbers of all attempts, in order. Fails when the store cannot be listed.
    pub async fn attempts(&self) -> Result<Vec<AttemptNo>, JobDirError> {
        let names = self.store.children(&layout::attempts(&self.job)).await?;
        let mut numbers: Vec<AttemptNo> =
            names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The plan of an attempt. `None`: not written yet.
    pub async fn plan(&self, no: AttemptNo) -> Result<Option<Plan>, JobDirError> {
        self.read(layout::plan(&self.job, no)).await
    }

    /// The lock between controllers: the one that gets [`Created::New`] launches.
    pub async fn create_plan(&self, plan: &Plan) -> Result<Created, JobDirError> {
        self.create(layout::plan(&self.job, plan.attempt), plan).await
    }

    /// How the attempt's machine ended. `None`: not written yet.
    pub async fn settled(&self, no: AttemptNo) -> Result<Option<Settled>, JobDirError> {
        self.read(layout::settled(&self.job, no)).await
    }

    /// [`Created::Exists`]: another controller settled it first.
    pub async fn create_settled(&self, settled: &Settled) -> Result<Created, JobDirError> {
        self.create(layout::settled(&self.job, settled.attempt), settled).await
    }

    /// Why a controller or the sweeper ended the machine. `None`: not written, or damaged: the
    /// reason can also be inferred.
    pub async fn ending(&self, no: AttemptNo) -> Result<Option<Ending>, JobDirError> {
        unless_damaged(self.read(layout::ending(&self.job, no)).await)
    }

    /// [`Created::Exists`]: a reason was written before.
    pub async fn create_ending(
        &self,
        no: AttemptNo,
        ending: &Ending,
    ) -> Result<Created, JobDirError> {
        self.create(layout::ending(&self.job, no), ending).await
    }

    /// Which agent holds the attempt. `None`: none yet.
    pub async fn lease(&self, no: AttemptNo) -> Result<Option<Lease>, JobDirError> {
        self.read(layout::lease(&self.job, no)).await
    }

    /// Takes the lease, or confirms that it is ours (after a restart of the agent or a lost reply).
    ///
    /// # Errors
    /// [`JobDirError::Taken`] when another machine holds it: this one must terminate itself. Any
    /// other error: unknown who holds it.
    pub async fn take_lease(&self, no: AttemptNo, lease: &Lease) -> Result<(), JobDirError> {
        if self.create(layout::lease(&self.job, no), lease).await? == Created::New {
            return Ok(());
        }
        match self.lease(no).await? {
            Some(held) if held.instance == lease.instance && held.nonce == lease.nonce => Ok(()),
            Some(_) => Err(JobDirError::Taken { key: layout::lease(&self.job, no) }),
            None => Err(StoreError::vanished(layout::lease(&self.job, no)).into()),
        }
    }

    /// Writes a marker, if this job root has markers. Call it after the record is written.
    ///
    /// # Errors
    /// When the store refuses. Then the controller only notices the change later.
    pub async fn tell_news(&self, what: News) -> Result<(), StoreError> {
        if !has_news(self.store.as_ref()) {
            return Ok(());
        }
        self.store.put(&what.key(&self.job), Bytes::new()).await
    }

    /// Removes the markers of an ended job.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn clear_news(&self) -> Result<(), StoreError> {
        for marker in self.store.list(&layout::news(&self.job)).await? {
            self.store.delete(&marker.key).await?;
        }
        Ok(())
    }

    /// The newest heartbeat. `None`: there is none yet. A power failure may also tear it, since it
    /// is not synced to disk.
    pub async fn status(&self, no: AttemptNo) -> Result<Option<Status>, JobDirError> {
        unless_damaged(self.read(layout::status(&self.job, no)).await)
    }

    /// Overwrites the heartbeat. Reads the old one first, unless it is ours: an older agent must
    /// not overwrite a newer record.
    pub async fn put_status(
        &self,
        no: AttemptNo,
        status: &Status,
        ours: bool,
    ) -> Result<(), JobDirError> {
        let key = layout::status(&self.job, no);
        if !ours {
            match self.read::<Status>(key.clone()).await {
                Err(error) if !error.is_damage() => return Err(error),
                _ => {}
            }
        }
        Ok(self.store.put(&key, Bytes::from(encode(status))).await?)
    }

    /// Why the attempt ended, written by its agent. `None`: not written yet.
    pub async fn outcome(&self, no: AttemptNo) -> Result<Option<Outcome>, JobDirError> {
        self.read(layout::outcome(&self.job, no)).await
    }

    /// [`Created::Exists`]: an outcome is there and stays.
    pub async fn create_outcome(&self, outcome: &Outcome) -> Result<Created, JobDirError> {
        self.create(layout::outcome(&self.job, outcome.attempt), outcome).await
    }

    /// All requests, ordered by number. Skips, with a warning, one that is damaged or from a newer
    /// version: it must not hide a cancel. Fails when the store does not answer.
    pub async fn requests(&self) -> Result<Vec<Request>, JobDirError> {
        let names = self.store.children(&layout::requests(&self.job)).await?;
        let numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        let keys = numbers.into_iter().map(|number| layout::request(&self.job, number));
        let found: Vec<Option<Request>> = stream::iter(keys)
            .map(|key| self.read_if_understood(key))
            .buffered(READS_IN_FLIGHT)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Leaves a request under the next free number. After an error it may be there, and a retry
    /// leaves two.
    pub async fn add_request(
        &self,
        wish: Wish,
        by: &str,
        at: Timestamp,
    ) -> Result<Request, JobDirError> {
        self.leave(None, wish, by, at).await
    }

    /// The same for a waiting user: retries when there is no answer, and leaves the request once.
    ///
    /// # Errors
    /// [`JobDirError::Unsure`] when it may be there. After any other error it is not.
    pub async fn insist_on(
        &self,
        wish: Wish,
        by: &str,
        clock: &dyn Clock,
    ) -> Result<Request, JobDirError> {
        self.leave(Some(clock), wish, by, clock.now()).await
    }

    async fn leave(
        &self,
        insists: Option<&dyn Clock>,
        wish: Wish,
        by: &str,
        at: Timestamp,
    ) -> Result<Request, JobDirError> {
        let mut number = self.requests().await?.last().map_or(1, |last| last.number + 1);
        loop {
            let request = Request { format: RECORD_FORMAT, number, at, by: by.to_owned(), wish };
            let create = || self.create(layout::request(&self.job, number), &request);
            let created = match insists {
                Some(clock) => insist(clock, create).await?,
                None => create().await?,
            };
            match created {
                Created::New => {
                    // Without the marker the controller only looks later, and the agent polls by
                    // itself.
                    if let Err(error) = self.tell_news(News::Wish(number)).await {
                        tracing::debug!("not told at once: {error}");
                    }
                    return Ok(request);
                }
                Created::Exists => number += 1,
            }
        }
    }

    /// All events of an attempt, in order. Skips lines that are torn or foreign. Fails when the
    /// store does not answer.
    pub async fn events(&self, no: AttemptNo) -> Result<Vec<Event>, JobDirError> {
        self.events_in(self.event_batches(no).await?).await
    }

    /// The event batches of an attempt. Fails when the store cannot be listed.
    pub async fn event_batches(&self, no: AttemptNo) -> Result<Vec<ObjectMeta>, JobDirError> {
        Ok(self.store.list(&layout::events(&self.job, no)).await?)
    }

    /// The events in these batches, read in parallel: an agent that restarts for hours leaves
    /// thousands of them. A missing batch counts as empty. Fails when the store does not answer.
    pub async fn events_in(&self, batches: Vec<ObjectMeta>) -> Result<Vec<Event>, JobDirError> {
        let mut events = Vec::new();
        let read = |batch: ObjectMeta| async move {
            match self.store.get_at_most(&batch.key, RECORD_BYTES_MAX).await {
                // Not an event batch.
                Err(StoreError::Unfit { .. }) => Ok(None),
                read => read,
            }
        };
        let read: Vec<Option<Bytes>> =
            stream::iter(batches).map(read).buffered(READS_IN_FLIGHT).try_collect().await?;
        for bytes in read.into_iter().flatten() {
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                events.extend(serde_json::from_slice::<Event>(line).ok());
            }
        }
        events.sort_by_key(|event| event.seq);
        events.dedup_by_key(|event| event.seq);
        Ok(events)
    }

    /// Writes a batch of events; fails when the store refuses. A retry writes the same bytes under
    /// the same key.
    pub async fn put_events(&self, no: AttemptNo, events: &[Event]) -> Result<(), JobDirError> {
        let Some(first) = events.first() else { return Ok(()) };
        let mut body = Vec::new();
        for event in events {
            serde_json::to_writer(&mut body, event)
                .expect("events hold only strings, finite numbers and maps with string keys");
            body.push(b'\n');
        }
        Ok(self
            .store
            .put_durable(&layout::event_batch(&self.job, no, first.seq), Bytes::from(body))
            .await?)
    }

    /// The numbers of all checkpoints, complete or torn, in order. Fails when the store cannot be
    /// listed.
    pub async fn checkpoint_numbers(&self) -> Result<Vec<CheckpointNo>, JobDirError> {
        let names = self.store.children(&layout::checkpoints(&self.job)).await?;
        let mut numbers: Vec<CheckpointNo> =
            names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The files of a checkpoint. `None`: it is torn, or still being written.
    pub async fn manifest(&self, no: CheckpointNo) -> Result<Option<Manifest>, JobDirError> {
        // It names every file of a checkpoint, so it may be large.
        read_at_most(&*self.store, &layout::manifest(&self.job, no), OBJECT_BYTES_MAX).await
    }

    /// Written last, after every file of the checkpoint. [`Created::Exists`]: a complete checkpoint
    /// has this number.
    pub async fn create_manifest(&self, manifest: &Manifest) -> Result<Created, JobDirError> {
        self.create(layout::manifest(&self.job, manifest.number), manifest).await
    }

    /// The newest complete checkpoint. Skips one with a damaged manifest, like a torn one. `None`:
    /// none is complete. Fails when the store does not answer, or a newer version wrote one.
    pub async fn newest_checkpoint(&self) -> Result<Option<Manifest>, JobDirError> {
        for number in self.checkpoint_numbers().await?.into_iter().rev() {
            match self.manifest(number).await {
                Ok(Some(manifest)) => return Ok(Some(manifest)),
                Err(error) if !error.is_damage() => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    async fn read<T: DeserializeOwned>(&self, key: String) -> Result<Option<T>, JobDirError> {
        read(&*self.store, &key).await
    }

    async fn read_if_understood<T: DeserializeOwned>(
        &self,
        key: String,
    ) -> Result<Option<T>, JobDirError> {
        match self.read(key).await {
            Err(JobDirError::Record(error)) => {
                tracing::warn!("passed over: {error}");
                Ok(None)
            }
            other => other,
        }
    }

    async fn create<T: Serialize>(&self, key: String, record: &T) -> Result<Created, JobDirError> {
        create(&*self.store, key, record).await
    }
}
