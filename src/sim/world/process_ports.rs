//! A process's ports: each call goes through the process, which may be frozen, or die at it.
//!
//! Every method of a trait is here, also those with a default: tests/sim/wrappers.rs compares the
//! names. Not here: an answer of its own.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use super::process::SimProcess;
use crate::account::{ForeignMachine, Residue};
use crate::instance::{InstanceView, MachineRef, Notice, Sample};
use crate::job::{CodeArchive, JobId, LaunchRequest, MachineSpec, Plan, ResolvedSpec, Spec};
use crate::market::{Offer, PriceHistory, Region, Span, Supply};
use crate::ports::{
    Arrival, Clock, ClockLead, Cloud, CloudError, Created, Ended, FileStamp, Files, Identity,
    Launch, Lives, Metadata, MetadataError, ObjectMeta, Power, PowerError, PowerOff, Scope,
    SensorFeed, Signal, SignedUrl, StageFile, StagedFile, Store, StoreError, Tree, Workload,
    WorkloadError, Workloads,
};

/// A port as one process has it.
pub struct Through<T: ?Sized> {
    pub process: Arc<SimProcess>,
    pub inner: Arc<T>,
}

impl<T: ?Sized> Through<T> {
    pub fn new(process: &Arc<SimProcess>, inner: Arc<T>) -> Arc<Self> {
        Arc::new(Through { process: Arc::clone(process), inner })
    }

    fn write(&self, work: impl FnOnce(&T) -> io::Result<()>) -> io::Result<()> {
        self.process.act(|| work(&self.inner), || Err(io::Error::other("dead")))
    }
}

#[async_trait]
impl Clock for Through<dyn Clock> {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }
    fn mono(&self) -> Duration {
        self.inner.mono()
    }
    fn boot(&self) -> String {
        self.inner.boot()
    }
    async fn sleep(&self, time: Duration) {
        self.inner.sleep(time).await;
        self.process.running().await;
    }
}

#[async_trait]
impl Store for Through<dyn Store> {
    fn url(&self) -> String {
        self.inner.url()
    }
    fn is_folder(&self) -> bool {
        self.inner.is_folder()
    }
    fn region(&self) -> Option<String> {
        self.inner.region()
    }
    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.process.call(self.inner.get(key)).await
    }
    async fn get_at_most(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, StoreError> {
        self.process.call(self.inner.get_at_most(key, bytes_max)).await
    }
    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.process.call(self.inner.put(key, body)).await
    }
    async fn put_durable(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.process.call(self.inner.put_durable(key, body)).await
    }
    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        self.process.call(self.inner.create(key, body)).await
    }
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.process.call(self.inner.head(key)).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.process.call(self.inner.list(prefix)).await
    }
    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.process.call(self.inner.children(prefix)).await
    }
    async fn children_after(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        self.process.call(self.inner.children_after(prefix, after)).await
    }
    async fn put_file(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.process.call(self.inner.put_file(key, path)).await
    }
    async fn put_file_of_set(&self, key: &str, path: &Path) -> Result<(u64, String), StoreError> {
        self.process.call(self.inner.put_file_of_set(key, path)).await
    }
    async fn make_durable(&self, prefix: &str) -> Result<(), StoreError> {
        self.process.call(self.inner.make_durable(prefix)).await
    }
    async fn put_file_counted(
        &self,
        key: &str,
        path: &Path,
        sent: &Arrival,
    ) -> Result<(u64, String), StoreError> {
        self.process.call(self.inner.put_file_counted(key, path, sent)).await
    }
    async fn put_file_unhashed(&self, key: &str, path: &Path) -> Result<u64, StoreError> {
        self.process.call(self.inner.put_file_unhashed(key, path)).await
    }
    async fn get_file(&self, key: &str, path: &Path) -> Result<Option<(u64, String)>, StoreError> {
        self.process.call(self.inner.get_file(key, path)).await
    }
    async fn presign_get(
        &self,
        key: &str,
        lives: Lives,
        endpoint: Option<&str>,
    ) -> Result<Option<SignedUrl>, StoreError> {
        self.process.call(self.inner.presign_get(key, lives, endpoint)).await
    }
    async fn get_file_counted(
        &self,
        key: &str,
        path: &Path,
        come: &Arc<AtomicU64>,
    ) -> Result<Option<(u64, String)>, StoreError> {
        self.process.call(self.inner.get_file_counted(key, path, come)).await
    }
    async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.process.call(self.inner.copy(from, to)).await
    }
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.process.call(self.inner.delete(key)).await
    }
}

#[async_trait]
impl Cloud for Through<dyn Cloud> {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        self.process.call(self.inner.regions()).await
    }
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        self.process.call(self.inner.supply(machine)).await
    }
    async fn prepare(
        &self,
        spec: &Spec,
        offer: &Offer,
    ) -> Result<Option<LaunchRequest>, CloudError> {
        self.process.call(self.inner.prepare(spec, offer)).await
    }
    fn known_unfit(&self, spec: &Spec, offer: &Offer) -> Option<String> {
        self.inner.known_unfit(spec, offer)
    }
    async fn permitted(&self, plan: &Plan) -> Result<(), CloudError> {
        self.process.call(self.inner.permitted(plan)).await
    }
    fn submitted(&self, spec: &ResolvedSpec) {
        self.inner.submitted(spec);
    }
    fn settled(&self, job: &JobId) {
        self.inner.settled(job);
    }
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        self.process.call(self.inner.launch(plan)).await
    }
    async fn confirm_missing(&self, plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        self.process.call(self.inner.confirm_missing(plan)).await
    }
    async fn start(&self, machine: &MachineRef, plan: &Plan) -> Result<(), CloudError> {
        self.process.call(self.inner.start(machine, plan)).await
    }
    async fn guard(&self, plan: &Plan, machine: &MachineRef) -> Result<(), CloudError> {
        self.process.call(self.inner.guard(plan, machine)).await
    }
    async fn unguard(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.process.call(self.inner.unguard(machine)).await
    }
    async fn alarmed(&self, machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
        self.process.call(self.inner.alarmed(machine)).await
    }
    async fn failing_hosts(&self, region: &Region) -> Result<BTreeSet<String>, CloudError> {
        self.process.call(self.inner.failing_hosts(region)).await
    }
    async fn residue(&self, owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
        self.process.call(self.inner.residue(owner, region)).await
    }
    async fn residue_of(
        &self,
        owner: &str,
        region: &Region,
        job: &JobId,
        machines: &BTreeSet<String>,
    ) -> Result<Vec<Residue>, CloudError> {
        self.process.call(self.inner.residue_of(owner, region, job, machines)).await
    }
    async fn foreign(
        &self,
        owner: &str,
        region: &Region,
    ) -> Result<Vec<ForeignMachine>, CloudError> {
        self.process.call(self.inner.foreign(owner, region)).await
    }
    async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        self.process.call(self.inner.clear(residue)).await
    }
    async fn describe(
        &self,
        owner: &str,
        region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        self.process.call(self.inner.describe(owner, region)).await
    }
    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.process.call(self.inner.terminate(machine)).await
    }
    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.process.call(self.inner.stop(machine)).await
    }
    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError> {
        self.process.call(self.inner.interrupt(machine, notice)).await
    }
    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        self.process.call(self.inner.raise_kill_at(machine, kill_at)).await
    }
    async fn spot_prices(
        &self,
        offer: &Offer,
        from: Timestamp,
    ) -> Result<PriceHistory, CloudError> {
        self.process.call(self.inner.spot_prices(offer, from)).await
    }
    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.process.call(self.inner.release(machine)).await
    }
}

/// Reads change nothing: a death at a read equals a death after the write before it.
#[async_trait]
impl Files for Through<dyn Files> {
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
    fn replace_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write(|files| files.replace_durable(path, bytes))
    }
    fn stamp(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        self.inner.stamp(path)
    }
    async fn stamp_aside(&self, path: &Path) -> io::Result<Option<FileStamp>> {
        self.inner.stamp_aside(path).await
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
    async fn stage_aside(
        &self,
        files: &[StageFile],
        folders: &[PathBuf],
    ) -> io::Result<Vec<StagedFile>> {
        self.write(|_| Ok(()))?;
        self.inner.stage_aside(files, folders).await
    }
    async fn clock_lead(&self, folder: &Path, other: &Path) -> io::Result<ClockLead> {
        self.inner.clock_lead(folder, other).await
    }
    fn link(&self, path: &Path, target: &str) -> io::Result<()> {
        self.write(|files| files.link(path, target))
    }
    fn set_modified(&self, path: &Path, nanos: i64) -> io::Result<()> {
        self.write(|files| files.set_modified(path, nanos))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.write(|files| files.remove(path))
    }
    async fn remove_aside(&self, path: &Path) -> io::Result<()> {
        self.process.call(self.inner.remove_aside(path)).await
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
    async fn unpack_aside(
        &self,
        archive: &Path,
        into: &Path,
        code: &CodeArchive,
    ) -> io::Result<()> {
        self.process.call(self.inner.unpack_aside(archive, into, code)).await
    }
}

#[async_trait]
impl Workloads for Through<dyn Workloads> {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let started = self.process.call(self.inner.start(launch)).await?;
        Ok(Box::new(Through::<dyn Workload> {
            process: Arc::clone(&self.process),
            inner: started.into(),
        }))
    }
    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        let found = self.process.call(self.inner.attach(dir)).await?;
        let through = |found: Box<dyn Workload>| -> Box<dyn Workload> {
            Box::new(Through::<dyn Workload> {
                process: Arc::clone(&self.process),
                inner: found.into(),
            })
        };
        Ok(found.map(through))
    }
}

#[async_trait]
impl Workload for Through<dyn Workload> {
    fn scope(&self) -> Scope {
        self.inner.scope()
    }
    async fn ended(&self) -> Ended {
        let ended = self.inner.ended().await;
        self.process.call(async { ended }).await
    }
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError> {
        self.process.act(|| self.inner.signal(signal), || Ok(()))
    }
    fn ask(&self, signal: Signal) -> Result<u32, WorkloadError> {
        self.process.act(|| self.inner.ask(signal), || Ok(1))
    }
    fn tell(&self, signal: Signal) -> Result<u32, WorkloadError> {
        self.process.act(|| self.inner.tell(signal), || Ok(1))
    }
    fn tell_rest(&self) {
        self.process.act(|| self.inner.tell_rest(), || ());
    }
    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        self.process.call(self.inner.kill_tree()).await
    }
    fn printed(&self) -> (u64, u64) {
        self.inner.printed()
    }
    async fn open_for_writing(&self, folder: &Path) -> Option<BTreeSet<String>> {
        self.inner.open_for_writing(folder).await
    }
}

#[async_trait]
impl Metadata for Through<dyn Metadata> {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        self.process.call(self.inner.identity()).await
    }
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        self.process.call(self.inner.notices()).await
    }
}

#[async_trait]
impl Power for Through<dyn Power> {
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        self.process.call(self.inner.off(how, why)).await
    }
}

/// Senses are one agent's own.
pub struct SensesThrough(pub Arc<SimProcess>, pub Box<dyn SensorFeed>);

#[async_trait]
impl SensorFeed for SensesThrough {
    async fn sample(&mut self, scope: &Scope) -> Option<Sample> {
        self.0.call(self.1.sample(scope)).await
    }
}
