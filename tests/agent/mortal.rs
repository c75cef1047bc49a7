//! Death of the shipped agent at any call of a port: whoever comes after it brings the attempt to the same end.
//!
//! Behind each port the agent dies at the n-th call, before or after its effect; what it would do later has no effect. A
//! new agent boots a second later, as its service manager would have it. The workload lives on meanwhile.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use lamplighter::instance::{Notice, Sample};
use lamplighter::job::CodeArchive;
use lamplighter::ports::{
    Clock, Created, Ended, FileStamp, Files, Identity, Launch, Metadata, MetadataError, ObjectMeta, Power, PowerError, PowerOff, Scope, SensorFeed,
    Signal, Store, StoreError, Tree, Workload, WorkloadError, Workloads,
};
use tokio::sync::Notify;

/// How long one agent has to live.
pub struct Life {
    left: AtomicI64,
    /// Whether the last call still has its effect.
    after: bool,
    dead: AtomicBool,
    died: Notify,
}

impl Life {
    pub fn of(calls: i64, after: bool) -> Arc<Self> {
        Arc::new(Life { left: AtomicI64::new(calls), after, dead: AtomicBool::new(false), died: Notify::new() })
    }

    pub fn endless() -> Arc<Self> {
        Life::of(i64::MAX, false)
    }

    pub async fn died(&self) {
        self.died.notified().await;
    }

    fn dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Whether the call that begins now is the last.
    fn is_last(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 0
    }

    fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_one();
    }

    async fn call<T>(&self, work: impl Future<Output = T>) -> T {
        if !self.dead() {
            let last = self.is_last();
            if !last || self.after {
                let done = work.await;
                if !last && !self.dead() {
                    return done;
                }
            }
            self.die();
        }
        std::future::pending().await
    }

    /// The same for a call that does not wait; the answer that a dead agent gets is of no consequence.
    fn act<T>(&self, work: impl FnOnce() -> T, nothing: impl FnOnce() -> T) -> T {
        if self.dead() {
            return nothing();
        }
        if !self.is_last() {
            return work();
        }
        let done = if self.after { work() } else { nothing() };
        self.die();
        done
    }
}

pub struct Mortal<T: ?Sized> {
    pub life: Arc<Life>,
    pub inner: Arc<T>,
}

impl<T: ?Sized> Mortal<T> {
    pub fn new(life: &Arc<Life>, inner: Arc<T>) -> Arc<Self> {
        Arc::new(Mortal { life: Arc::clone(life), inner })
    }

    fn write(&self, work: impl FnOnce(&T) -> io::Result<()>) -> io::Result<()> {
        self.life.act(|| work(&self.inner), || Err(io::Error::other("dead")))
    }
}

#[async_trait]
impl Store for Mortal<dyn Store> {
    fn url(&self) -> String {
        self.inner.url()
    }
    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.life.call(self.inner.get(key)).await
    }
    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.life.call(self.inner.put(key, body)).await
    }
    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        self.life.call(self.inner.create(key, body)).await
    }
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.life.call(self.inner.head(key)).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.life.call(self.inner.list(prefix)).await
    }
    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.life.call(self.inner.children(prefix)).await
    }
    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.life.call(self.inner.put_file(key, path)).await
    }
    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        self.life.call(self.inner.get_file(key, path)).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.life.call(self.inner.delete(key)).await
    }
}

/// Reading changes nothing, so a death while reading is the death at the change before.
#[async_trait]
impl Files for Mortal<dyn Files> {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.inner.read(path)
    }
    fn read_from(&self, path: &Path, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        self.inner.read_from(path, offset, bytes_max)
    }
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write(|files| files.append(path, bytes))
    }
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write(|files| files.replace(path, bytes))
    }
    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        self.inner.stamp(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, FileStamp)>> {
        self.inner.list(folder)
    }
    fn walk(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        self.inner.walk(folder, files_max)
    }
    async fn walk_aside(&self, folder: &Path, files_max: usize) -> io::Result<Tree> {
        self.inner.walk_aside(folder, files_max).await
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.write(|files| files.remove(path))
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.write(|files| files.create_folder(path))
    }
    fn place(&self, from: &Path, to: &Path, mode: Option<u32>) -> io::Result<()> {
        self.write(|files| files.place(from, to, mode))
    }
    fn unpack(&self, archive: &Path, into: &Path, code: &CodeArchive) -> io::Result<()> {
        self.write(|files| files.unpack(archive, into, code))
    }
}

#[async_trait]
impl Clock for Mortal<dyn Clock> {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }
    fn mono(&self) -> Duration {
        self.inner.mono()
    }
    async fn sleep(&self, time: Duration) {
        self.inner.sleep(time).await;
        if self.life.dead() {
            std::future::pending().await
        }
    }
}

#[async_trait]
impl Workloads for Mortal<dyn Workloads> {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let started = self.life.call(self.inner.start(launch)).await?;
        Ok(Box::new(Mortal::<dyn Workload> { life: Arc::clone(&self.life), inner: started.into() }))
    }
    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        let found = self.life.call(self.inner.attach(dir)).await?;
        Ok(found.map(|found| Box::new(Mortal::<dyn Workload> { life: Arc::clone(&self.life), inner: found.into() }) as Box<dyn Workload>))
    }
}

#[async_trait]
impl Workload for Mortal<dyn Workload> {
    fn scope(&self) -> Scope {
        self.inner.scope()
    }
    async fn ended(&self) -> Ended {
        let ended = self.inner.ended().await;
        self.life.call(async { ended }).await
    }
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError> {
        self.life.act(|| self.inner.signal(signal), || Ok(()))
    }
    fn ask(&self, signal: Signal) -> Result<u32, WorkloadError> {
        self.life.act(|| self.inner.ask(signal), || Ok(1))
    }
    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        self.life.call(self.inner.kill_tree()).await
    }
    fn printed(&self) -> (u64, u64) {
        self.inner.printed()
    }
}

#[async_trait]
impl Metadata for Mortal<dyn Metadata> {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        self.life.call(self.inner.identity()).await
    }
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        self.life.call(self.inner.notices()).await
    }
}

#[async_trait]
impl Power for Mortal<dyn Power> {
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        self.life.call(self.inner.off(how, why)).await
    }
}

/// Sensors are one agent's own.
pub struct MortalSensors(pub Arc<Life>, pub Box<dyn SensorFeed>);

#[async_trait]
impl SensorFeed for MortalSensors {
    async fn sample(&mut self, scope: &Scope) -> Option<Sample> {
        self.0.call(self.1.sample(scope)).await
    }
}
