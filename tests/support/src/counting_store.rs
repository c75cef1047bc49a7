//! Counts the calls to a store by what they do and which record they are about: each is a request
//! that is paid for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use lamplighter::ports::{Created, ObjectMeta, Store, StoreError};

pub struct CountingStore {
    store: Arc<dyn Store>,
    calls: Mutex<BTreeMap<(&'static str, String), u32>>,
    keys: Mutex<BTreeSet<(&'static str, String)>>,
}

impl CountingStore {
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(CountingStore { store, calls: Mutex::default(), keys: Mutex::default() })
    }

    /// Everything since the last time, and a table of it.
    pub fn take(&self) -> BTreeMap<(&'static str, String), u32> {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        for ((act, record), count) in &calls {
            println!("{count:>6} {act:<6} {record}");
        }
        calls
    }

    /// Every key that was asked for, and how.
    pub fn keys(&self) -> BTreeSet<(&'static str, String)> {
        self.keys.lock().unwrap().clone()
    }

    fn count(&self, act: &'static str, key: &str) {
        self.keys.lock().unwrap().insert((act, key.to_owned()));
        *self.calls.lock().unwrap().entry((act, record(key))).or_default() += 1;
    }
}

/// `jobs/x/attempts/0001/log/00000001.zst` is about `attempts/log`.
fn record(key: &str) -> String {
    let parts = key
        .split('/')
        .skip(2)
        .filter(|part| !part.is_empty() && !part.chars().all(|letter| letter.is_ascii_digit()));
    let named = parts.filter(|part| !part.starts_with(|letter: char| letter.is_ascii_digit()));
    let text = named.collect::<Vec<_>>().join("/");
    if text.is_empty() { "jobs/".into() } else { text }
}

#[async_trait]
impl Store for CountingStore {
    /// Far away, so that those who are slower there are.
    fn url(&self) -> String {
        "s3://bucket/root".into()
    }
    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.count("get", key);
        self.store.get(key).await
    }
    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.count("put", key);
        self.store.put(key, body).await
    }
    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        self.count("put", key);
        self.store.create(key, body).await
    }
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.count("get", key);
        self.store.head(key).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.count("list", prefix);
        self.store.list(prefix).await
    }
    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.count("list", prefix);
        self.store.children(prefix).await
    }
    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.count("put", key);
        self.store.put_file(key, path).await
    }
    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        self.count("get", key);
        self.store.get_file(key, path).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.count("delete", key);
        self.store.delete(key).await
    }
}

/// The calls of one kind.
pub fn sum(calls: &BTreeMap<(&'static str, String), u32>, act: &str) -> u32 {
    calls.iter().filter(|((kind, _), _)| *kind == act).map(|(_, count)| count).sum()
}
