//! Typed access to the records of a gang, in the job directory of its rank 0.
//!
//! Each record has one key and is written once. So all members see the same epoch, whichever of
//! them wrote it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::JobDirError;
use super::job_dir::read;
use super::layout;
use super::record::encode;
use crate::job::{
    EpochOver, EpochRecord, Formation, GangEnd, GangReady, JobId, RankMark, RankStart,
};
use crate::ports::{Created, Store};

const FORMATION: &str = "formation.json";
const OVER: &str = "over.json";
const READY: &str = "member-";
const DONE: &str = "done-";
const LOST: &str = "lost-";
const START: &str = "start-";

/// The gang of one job. Cheap to clone.
#[derive(Clone)]
pub struct GangDir {
    store: Arc<dyn Store>,
    leader: JobId,
}

impl GangDir {
    pub fn new(store: Arc<dyn Store>, leader: JobId) -> Self {
        GangDir { store, leader }
    }

    /// The numbers of all epochs, in order.
    pub async fn epochs(&self) -> Result<Vec<u32>, JobDirError> {
        let names = self.store.children(&layout::gang(&self.leader)).await?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// `None`: the gang is not over.
    pub async fn end(&self) -> Result<Option<GangEnd>, JobDirError> {
        read(&*self.store, &layout::gang_end(&self.leader)).await
    }

    pub async fn create_end(&self, end: &GangEnd) -> Result<(), JobDirError> {
        self.create(layout::gang_end(&self.leader), end).await
    }

    /// `None`: the epoch is not over.
    pub async fn over(&self, epoch: u32) -> Result<Option<EpochOver>, JobDirError> {
        self.one(epoch, OVER).await
    }

    pub async fn create_over(&self, over: &EpochOver) -> Result<(), JobDirError> {
        self.create(self.key(over.epoch, OVER), over).await
    }

    /// `None`: the members of the epoch do not work together yet.
    pub async fn formation(&self, epoch: u32) -> Result<Option<Formation>, JobDirError> {
        self.one(epoch, FORMATION).await
    }

    pub async fn create_formation(&self, formation: &Formation) -> Result<(), JobDirError> {
        self.create(self.key(formation.epoch, FORMATION), formation).await
    }

    /// The rank's own record of an epoch.
    pub async fn ready_rank(
        &self,
        epoch: u32,
        rank: u32,
    ) -> Result<Option<GangReady>, JobDirError> {
        self.one(epoch, &format!("{READY}{rank}.json")).await
    }

    pub async fn create_ready(&self, epoch: u32, ready: &GangReady) -> Result<(), JobDirError> {
        self.create(self.key(epoch, &format!("{READY}{}.json", ready.rank)), ready).await
    }

    /// The ranks that are ready, in order.
    pub async fn ready(&self, epoch: u32) -> Result<Vec<GangReady>, JobDirError> {
        self.ready_beside(epoch, &[]).await
    }

    /// The same, with what was read before: such a record never changes.
    pub async fn ready_beside(
        &self,
        epoch: u32,
        known: &[GangReady],
    ) -> Result<Vec<GangReady>, JobDirError> {
        let mut found = Vec::new();
        for rank in self.ranks(epoch, READY).await? {
            match known.iter().find(|ready| ready.rank == rank) {
                Some(ready) => found.push(ready.clone()),
                None => found.extend(self.ready_rank(epoch, rank).await?),
            }
        }
        Ok(found)
    }

    pub async fn create_done(&self, epoch: u32, mark: &RankMark) -> Result<(), JobDirError> {
        self.create(self.key(epoch, &format!("{DONE}{}.json", mark.rank)), mark).await
    }

    /// The ranks that have finished.
    pub async fn done(&self, epoch: u32) -> Result<Vec<u32>, JobDirError> {
        self.ranks(epoch, DONE).await
    }

    /// The same with their times.
    pub async fn done_marks(&self, epoch: u32) -> Result<Vec<RankMark>, JobDirError> {
        let mut found = Vec::new();
        for rank in self.done(epoch).await? {
            found.extend(self.one::<RankMark>(epoch, &format!("{DONE}{rank}.json")).await?);
        }
        Ok(found)
    }

    pub async fn create_lost(&self, epoch: u32, mark: &RankMark) -> Result<(), JobDirError> {
        self.create(self.key(epoch, &format!("{LOST}{}.json", mark.rank)), mark).await
    }

    /// How the engine of the first machine starts this rank; `None`: it has not said so yet.
    pub async fn start(&self, epoch: u32, rank: u32) -> Result<Option<RankStart>, JobDirError> {
        self.one(epoch, &format!("{START}{rank}.json")).await
    }

    pub async fn create_start(&self, epoch: u32, start: &RankStart) -> Result<(), JobDirError> {
        self.create(self.key(epoch, &format!("{START}{}.json", start.rank)), start).await
    }

    /// All records of an epoch: who worked, and how it ended.
    pub async fn record(&self, epoch: u32) -> Result<EpochRecord, JobDirError> {
        Ok(EpochRecord {
            formation: self.formation(epoch).await?,
            over: self.over(epoch).await?,
            lost: self.ranks(epoch, LOST).await?,
        })
    }

    /// The ranks with a record of this kind, in order.
    async fn ranks(&self, epoch: u32, kind: &str) -> Result<Vec<u32>, JobDirError> {
        let names = self.store.children(&layout::gang_epoch(&self.leader, epoch)).await?;
        let rank =
            |name: &String| name.strip_prefix(kind)?.strip_suffix(".json")?.parse::<u32>().ok();
        let mut ranks: Vec<u32> = names.iter().filter_map(rank).collect();
        ranks.sort_unstable();
        Ok(ranks)
    }

    fn key(&self, epoch: u32, name: &str) -> String {
        layout::gang_epoch(&self.leader, epoch) + name
    }

    async fn one<T: DeserializeOwned>(
        &self,
        epoch: u32,
        name: &str,
    ) -> Result<Option<T>, JobDirError> {
        read(&*self.store, &self.key(epoch, name)).await
    }

    /// Writes only if no record is there. The record that is there counts, also another rank's.
    async fn create<T: Serialize>(&self, key: String, record: &T) -> Result<(), JobDirError> {
        let body = Bytes::from(encode(record));
        match self.store.create(&key, body).await? {
            Created::New | Created::Exists => Ok(()),
        }
    }
}
