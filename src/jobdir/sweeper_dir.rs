//! Typed access to what the sweeper in the cloud leaves in a job root.
//!
//! ```text
//!   sweeper/<name>/suspects.json    the sweeper, overwritten
//!   sweeper/<name>/visit.json       the sweeper, overwritten
//! ```
//! Each owner's sweeper has its own name, so each key has one writer.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{JobDirError, unless_damaged};
use super::job_dir::read;
use super::layout;
use super::record::encode;
use crate::account::sweeper_visit::{Suspects, Visit};
use crate::ports::{Store, StoreError};

/// One sweeper's records. Cheap to clone.
#[derive(Clone)]
pub struct SweeperDir {
    store: Arc<dyn Store>,
    name: String,
}

impl SweeperDir {
    pub fn new(store: Arc<dyn Store>, name: &str) -> Self {
        SweeperDir { store, name: name.to_owned() }
    }

    /// The suspects of the previous visit. A damaged record counts as none, and all machines are
    /// checked again.
    ///
    /// # Errors
    /// When the store does not answer, or a newer version wrote it.
    pub async fn suspects(&self) -> Result<Option<Suspects>, JobDirError> {
        unless_damaged(self.read(layout::suspects(&self.name)).await)
    }

    /// # Errors
    /// When the store refuses.
    pub async fn put_suspects(&self, suspects: &Suspects) -> Result<(), JobDirError> {
        self.put(layout::suspects(&self.name), suspects).await
    }

    /// # Errors
    /// As any read of a record.
    pub async fn visit(&self) -> Result<Option<Visit>, JobDirError> {
        self.read(layout::visit(&self.name)).await
    }

    /// The result of the previous visit. A damaged record counts as none.
    ///
    /// # Errors
    /// When the store does not answer, or a newer version wrote it.
    pub async fn visit_before(&self) -> Result<Option<Visit>, JobDirError> {
        unless_damaged(self.visit().await)
    }

    /// The newest visit, and when its record was written, by the store's clock.
    ///
    /// # Errors
    /// As any read of a record.
    pub async fn newest_visit(&self) -> Result<Option<(Visit, Timestamp)>, JobDirError> {
        let Some(came) = self.came().await? else { return Ok(None) };
        Ok(self.visit().await?.map(|visit| (visit, came)))
    }

    /// When the record of the newest visit was written, by the store's clock.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn came(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.store.head(&layout::visit(&self.name)).await?.map(|meta| meta.modified))
    }

    /// Overwrites the result of the previous visit, but not a record of a newer version.
    ///
    /// # Errors
    /// As any write of a record, and when a newer version wrote the record.
    pub async fn put_visit(&self, visit: &Visit) -> Result<(), JobDirError> {
        self.visit_before().await?;
        self.put(layout::visit(&self.name), visit).await
    }

    async fn read<T: DeserializeOwned>(&self, key: String) -> Result<Option<T>, JobDirError> {
        read(&*self.store, &key).await
    }

    async fn put<T: Serialize>(&self, key: String, record: &T) -> Result<(), JobDirError> {
        Ok(self.store.put(&key, Bytes::from(encode(record))).await?)
    }
}
