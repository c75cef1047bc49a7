//! A store that counts its network traffic, which is the agent's and not the workload's.
//!
//! Only S3 is counted, since a folder uses no network. It counts bodies without headers. The
//! library below repeats requests, and this count misses those. Not here: anything but counting.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;

use crate::ports::{Arrival, Created, Lives, ObjectMeta, SignedUrl, Store, StoreError};

/// Passes every call on.
pub struct CountedStore {
    store: Arc<dyn Store>,
    bytes: Arc<AtomicU64>,
}

/// The store, and the bytes that it has moved over the network so far.
pub fn counted(store: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<AtomicU64>) {
    let bytes = Arc::new(AtomicU64::new(0));
    if store.is_folder() {
        return (store, bytes);
    }
    (Arc::new(CountedStore { store, bytes: Arc::clone(&bytes) }), bytes)
}

impl CountedStore {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for CountedStore {
    fn url(&self) -> String {
        self.store.url()
    }

    fn region(&self) -> Option<String> {
        self.store.region()
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let found = self.store.get(key).await?;
        self.add(found.as_ref().map_or(0, |body| body.len() as u64));
        Ok(found)
    }

    async fn get_at_most(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, StoreError> {
        let found = self.store.get_at_most(key, bytes_max).await?;
        self.add(found.as_ref().map_or(0, |body| body.len() as u64));
        Ok(found)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.add(body.len() as u64);
        self.store.put(key, body).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        self.add(body.len() as u64);
        self.store.create(key, body).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.store.head(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.store.list(prefix).await
    }

    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.store.children(prefix).await
    }

    async fn children_after(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        self.store.children_after(prefix, after).await
    }

    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let sent = self.store.put_file(key, path).await?;
        self.add(sent.0);
        Ok(sent)
    }

    async fn put_file_of_set(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        let sent = self.store.put_file_of_set(key, path).await?;
        self.add(sent.0);
        Ok(sent)
    }

    async fn make_durable(&self, prefix: &str) -> Result<(), StoreError> {
        self.store.make_durable(prefix).await
    }

    async fn put_file_counted(
        &self,
        key: &str,
        path: &Path,
        sent: &Arrival,
    ) -> Result<(u64, String), StoreError> {
        let told = self.store.put_file_counted(key, path, sent).await?;
        self.add(told.0);
        Ok(told)
    }

    async fn put_file_unhashed(&self, key: &str, path: &Path) -> Result<u64, StoreError> {
        let sent = self.store.put_file_unhashed(key, path).await?;
        self.add(sent);
        Ok(sent)
    }

    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        let found = self.store.get_file(key, path).await?;
        self.add(found.as_ref().map_or(0, |(bytes, _)| *bytes));
        Ok(found)
    }

    async fn get_file_counted(
        &self,
        key: &str,
        path: &Path,
        come: &Arc<AtomicU64>,
    ) -> Result<Option<(u64, String)>, StoreError> {
        let found = self.store.get_file_counted(key, path, come).await?;
        self.add(found.as_ref().map_or(0, |(bytes, _)| *bytes));
        Ok(found)
    }

    async fn presign_get(
        &self,
        key: &str,
        lives: Lives,
        endpoint: Option<&str>,
    ) -> Result<Option<SignedUrl>, StoreError> {
        self.store.presign_get(key, lives, endpoint).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.store.delete(key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folder_is_no_network() {
        let folder = tempfile::tempdir().unwrap();
        let (store, bytes) = counted(
            crate::adapters::store::open::open(&format!("file://{}", folder.path().display()))
                .unwrap(),
        );
        store.put("a", Bytes::from_static(b"four")).await.unwrap();
        assert_eq!(bytes.load(Ordering::Relaxed), 0);
        let counting = CountedStore { store, bytes: Arc::clone(&bytes) };
        counting.put("b", Bytes::from_static(b"four")).await.unwrap();
        counting.get("b").await.unwrap();
        assert_eq!(bytes.load(Ordering::Relaxed), 8);
    }
}
