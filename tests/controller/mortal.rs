//! Death at any call: a store and a cloud behind which the controller dies at the n-th call, before or after its effect; or
//! stands still there for a while, as a laptop does that is closed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use lamplighter::instance::{InstanceView, MachineRef};
use lamplighter::job::{MachineSpec, Plan};
use lamplighter::market::{Region, Span, Supply};
use lamplighter::ports::{Clock, Cloud, CloudError, Created, ObjectMeta, Store, StoreError};
use tokio::sync::Notify;

use super::support::virtual_clock::VirtualClock;

/// How long one controller has to live.
pub struct Mortality {
    left: AtomicI64,
    /// Whether the last call still has its effect.
    after: bool,
    /// It is no death, but a pause.
    pause: Option<(Arc<VirtualClock>, Duration)>,
    dead: Notify,
}

impl Mortality {
    pub fn new(calls: i64, after: bool) -> Arc<Self> {
        Arc::new(Mortality { left: AtomicI64::new(calls), after, pause: None, dead: Notify::new() })
    }

    pub fn pausing(calls: i64, after: bool, clock: &Arc<VirtualClock>, pause: Duration) -> Arc<Self> {
        Arc::new(Mortality { left: AtomicI64::new(calls), after, pause: Some((Arc::clone(clock), pause)), dead: Notify::new() })
    }

    /// Whether it came to the call at which it dies or pauses.
    pub fn was_reached(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    pub async fn died(&self) {
        self.dead.notified().await;
    }

    async fn call<T>(&self, work: impl Future<Output = T>) -> T {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        if let (0, Some((clock, pause))) = (left, &self.pause) {
            if self.after {
                let done = work.await;
                clock.sleep(*pause).await;
                return done;
            }
            clock.sleep(*pause).await;
            return work.await;
        }
        if left > 0 || self.pause.is_some() {
            return work.await;
        }
        if self.after {
            work.await;
        }
        self.dead.notify_one();
        std::future::pending().await
    }
}

pub struct Mortal<T: ?Sized> {
    pub life: Arc<Mortality>,
    pub inner: Arc<T>,
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

#[async_trait]
impl Cloud for Mortal<dyn Cloud> {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        self.life.call(self.inner.regions()).await
    }
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        self.life.call(self.inner.supply(machine)).await
    }
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        self.life.call(self.inner.launch(plan)).await
    }
    async fn describe(&self, owner: &str, region: &Region) -> Result<Vec<InstanceView>, CloudError> {
        self.life.call(self.inner.describe(owner, region)).await
    }
    async fn confirm_missing(&self, plan: &Plan) -> Result<(), CloudError> {
        self.life.call(self.inner.confirm_missing(plan)).await
    }
    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.life.call(self.inner.terminate(machine)).await
    }
    async fn start(&self, machine: &MachineRef, plan: &Plan) -> Result<(), CloudError> {
        self.life.call(self.inner.start(machine, plan)).await
    }
    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError> {
        self.life.call(self.inner.interrupt(machine, notice)).await
    }
    async fn raise_kill_at(&self, machine: &MachineRef, kill_at: Timestamp) -> Result<(), CloudError> {
        self.life.call(self.inner.raise_kill_at(machine, kill_at)).await
    }
    async fn alarmed(&self, machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
        self.life.call(self.inner.alarmed(machine)).await
    }
    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.life.call(self.inner.release(machine)).await
    }
}
