//! Typed access to the models of a job root.
//!
//! ```text
//!   models/<model>/model.json                          once
//!   models/<model>/versions/<version>.json             once, after its files
//!   models/<model>/files/<version>/<upload>/<path>     once, before its record
//!   models/<model>/default.json                        overwritten
//! ```
//! A version exists once its record exists. When two users make the same version, the first record
//! wins, and the other upload is removed.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::error::JobDirError;
use super::job_dir::{create, read};
use super::layout;
use super::record::encode;
use crate::job::{DefaultVersion, ModelFile, ModelName, ModelRecord, ModelVersion};
use crate::ports::{Created, Store, StoreError};

/// One model in a job root. Cheap to clone.
#[derive(Clone)]
pub struct ModelDir {
    store: Arc<dyn Store>,
    model: ModelName,
}

/// The names of all models, in order. A folder with another name is none of ours.
///
/// # Errors
/// When the store cannot be listed.
pub async fn models(store: &Arc<dyn Store>) -> Result<Vec<ModelDir>, StoreError> {
    let mut names: Vec<ModelName> =
        store.children(layout::MODELS).await?.iter().filter_map(|name| name.parse().ok()).collect();
    names.sort_unstable();
    Ok(names.into_iter().map(|model| ModelDir { store: Arc::clone(store), model }).collect())
}

impl ModelDir {
    pub fn new(store: Arc<dyn Store>, model: ModelName) -> Self {
        ModelDir { store, model }
    }

    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// # Errors
    /// As any read of a record.
    pub async fn record(&self) -> Result<Option<ModelRecord>, JobDirError> {
        read(&*self.store, &layout::model(&self.model)).await
    }

    /// # Errors
    /// As any write of a record.
    pub async fn create(&self, record: &ModelRecord) -> Result<Created, JobDirError> {
        create(&*self.store, layout::model(&self.model), record).await
    }

    /// # Errors
    /// As any read of a record.
    pub async fn default_version(&self) -> Result<Option<DefaultVersion>, JobDirError> {
        read(&*self.store, &layout::model_default(&self.model)).await
    }

    /// Overwrites the choice, but not a record of a newer version of lamp.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn put_default(&self, default: &DefaultVersion) -> Result<(), JobDirError> {
        match self.default_version().await {
            Err(error) if !error.is_damage() => return Err(error),
            _ => {}
        }
        let key = layout::model_default(&self.model);
        Ok(self.store.put_durable(&key, Bytes::from(encode(default))).await?)
    }

    /// Only the first version of a model becomes its default by itself.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn create_default(&self, default: &DefaultVersion) -> Result<Created, JobDirError> {
        create(&*self.store, layout::model_default(&self.model), default).await
    }

    /// The names of the complete versions, in order.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub async fn versions(&self) -> Result<Vec<ModelName>, StoreError> {
        let names = self.store.children(&layout::model_versions(&self.model)).await?;
        let mut versions: Vec<ModelName> =
            names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// # Errors
    /// As any read of a record.
    pub async fn version(&self, version: &ModelName) -> Result<Option<ModelVersion>, JobDirError> {
        read(&*self.store, &layout::model_version(&self.model, version)).await
    }

    /// Publishes a version whose files are all there.
    ///
    /// # Errors
    /// As any write of a record.
    pub async fn create_version(&self, version: &ModelVersion) -> Result<Created, JobDirError> {
        create(&*self.store, layout::model_version(&self.model, &version.version), version).await
    }

    /// Stores one file of an upload. Returns it with the sum of the bytes that were sent.
    ///
    /// # Errors
    /// When the file cannot be read, or the store refuses.
    pub async fn put_file(
        &self,
        version: &ModelName,
        upload: &str,
        path: &str,
        from: &Path,
    ) -> Result<ModelFile, StoreError> {
        let key = format!("{}{path}", layout::model_upload(&self.model, version, upload));
        let (bytes, sha256) = self.store.put_file(&key, from).await?;
        Ok(ModelFile { path: path.to_owned(), bytes, sha256 })
    }

    /// Fetches one file of a version. Returns whether it is the file that was stored.
    ///
    /// # Errors
    /// When the store does not answer, or the file cannot be written.
    pub async fn get_file(
        &self,
        version: &ModelVersion,
        file: &ModelFile,
        to: &Path,
    ) -> Result<bool, StoreError> {
        let folder = layout::model_upload(&self.model, &version.version, &version.upload);
        let found = self.store.get_file(&format!("{folder}{}", file.path), to).await?;
        Ok(found.is_some_and(|(bytes, sha256)| bytes == file.bytes && sha256 == file.sha256))
    }

    /// Removes an upload that no record names.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn remove_upload(&self, version: &ModelName, upload: &str) -> Result<(), StoreError> {
        self.remove_below(&layout::model_upload(&self.model, version, upload)).await
    }

    /// Removes a version, its record first, so that no reader finds half of it.
    ///
    /// # Errors
    /// When the store refuses. The files that stay have no record.
    pub async fn remove_version(&self, version: &ModelName) -> Result<(), StoreError> {
        self.store.delete(&layout::model_version(&self.model, version)).await?;
        self.remove_below(&layout::model_uploads(&self.model, version)).await
    }

    /// # Errors
    /// When the store refuses.
    pub async fn forget_default(&self) -> Result<(), StoreError> {
        self.store.delete(&layout::model_default(&self.model)).await
    }

    /// Removes a model, its record first.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn remove(&self) -> Result<(), StoreError> {
        self.store.delete(&layout::model(&self.model)).await?;
        self.remove_below(&layout::model_folder(&self.model)).await
    }

    async fn remove_below(&self, prefix: &str) -> Result<(), StoreError> {
        for object in self.store.list(prefix).await? {
            self.store.delete(&object.key).await?;
        }
        Ok(())
    }
}
