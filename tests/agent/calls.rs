//! What an hour of an agent costs in requests to the store. `cargo test --test agent calls -- --nocapture` shows the table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lamplighter::agent::outbox::Outbox;
use lamplighter::agent::{Agent, Attempt, Folders, Memory, Mode, World};
use lamplighter::instance::{Marks, Notice, Reading, Sample};
use lamplighter::job::{AttemptNo, ResolvedSpec};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{Usd, UsdPerHour};
use lamplighter::ports::{
    Clock, Ended, Identity, Launch, Metadata, MetadataError, Power, PowerError, PowerOff, Scope, SensorFeed, Service, Signal, Stacks, Workload,
    WorkloadError, Workloads,
};
use serde_json::json;

use super::Rig;
use super::support::counting_store::{CountingStore, sum};
use super::support::virtual_clock::{VirtualClock, simulate};

/// A machine that works and that nothing happens to.
struct Calm(Arc<VirtualClock>);

#[async_trait]
impl SensorFeed for Calm {
    async fn sample(&mut self, _: &Scope) -> Option<Sample> {
        let mono = self.0.mono();
        Some(Sample {
            at: self.0.now(),
            mono,
            gpus: Reading::Absent,
            tree_cpu: Reading::Known(mono),
            machine_cpu: Reading::Known(mono),
            cores: 2,
            tree_memory_bytes: Reading::Known(1 << 30),
            machine_memory_bytes: Reading::Known((1 << 30, 1 << 33)),
            tree_disk: Reading::Absent,
            network: Reading::Absent,
            disk_free_bytes: Reading::Known(1 << 40),
            tree_processes: Reading::Known(3),
            typing: Reading::Absent,
            marks: Marks::default(),
        })
    }
}

#[async_trait]
impl Workloads for Calm {
    async fn start(&self, _: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        Ok(Box::new(Calm(Arc::clone(&self.0))))
    }
    async fn attach(&self, _: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        Ok(None)
    }
}

#[async_trait]
impl Workload for Calm {
    fn scope(&self) -> Scope {
        Scope::default()
    }
    async fn ended(&self) -> Ended {
        std::future::pending().await
    }
    fn signal(&self, _: Signal) -> Result<(), WorkloadError> {
        Ok(())
    }
    fn ask(&self, _: Signal) -> Result<u32, WorkloadError> {
        Ok(1)
    }
    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        Ok(())
    }
    fn printed(&self) -> (u64, u64) {
        (0, 0)
    }
}

#[async_trait]
impl Metadata for Calm {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        Ok(Identity { instance: "i-1".into(), tags: BTreeMap::new(), launched: self.0.now() })
    }
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Power for Calm {
    async fn off(&self, _: PowerOff, _: &str) -> Result<(), PowerError> {
        Ok(())
    }
}

#[async_trait]
impl Stacks for Calm {
    async fn dump(&self, _: &Scope, _: usize) -> String {
        String::new()
    }
}

impl Service for Calm {
    fn ready(&self) {}
    fn alive(&self) {}
    fn status(&self, _: &str) {}
    fn stopping(&self) {}
}

fn agent(rig: &Rig, store: Arc<CountingStore>) -> Agent {
    let resolved: ResolvedSpec = serde_json::from_value(json!({
        "format": 1, "job": "digits-222222", "created": "2026-01-01T00:00:00Z", "written_by": "test", "code": null, "origins": {},
        "spec": {"name": "digits", "command": {"shell": "train"}, "checkpoint": {"path": "ckpt", "interval": "10m", "grace": "90s"}},
    }))
    .expect("a spec");
    let state = rig.path("state");
    let outbox = Outbox {
        dir: JobDir::new(store, resolved.job.clone()),
        attempt: AttemptNo::FIRST,
        clock: rig.clock.clone(),
        files: rig.files.clone(),
        state: state.clone(),
    };
    let attempt = Attempt {
        resolved,
        no: AttemptNo::FIRST,
        instance: "i-1".into(),
        launched: rig.clock.now(),
        price: UsdPerHour::ZERO,
        spent_before: Usd::ZERO,
        kill_at: None,
        folders: Folders { work: rig.path("work"), state, cache: rig.path("cache") },
        mode: Mode::Launched,
    };
    let calm = || Arc::new(Calm(rig.clock.clone()));
    let world = World {
        sensors: Box::new(Calm(rig.clock.clone())),
        workloads: calm(),
        metadata: Some(calm()),
        power: calm(),
        insist: true,
        own_network: Arc::default(),
        deadline_file: None,
        service: calm(),
        stacks: calm(),
        signals: tokio::sync::watch::channel(0).1,
    };
    Agent::new(attempt, world, outbox, Memory::new(rig.clock.now()))
}

/// A line a second and a checkpoint of three files every ten minutes.
async fn train(rig: &Rig, secs: u64) {
    let log = rig.path("state/starts/0001/log");
    std::fs::create_dir_all(&log).expect("a folder");
    std::fs::create_dir_all(rig.path("work/ckpt")).expect("a folder");
    for second in 0..secs {
        let mut text = std::fs::read_to_string(log.join("00000001.log")).unwrap_or_default();
        text.push_str(&format!("step {second} loss 0.5\n"));
        std::fs::write(log.join("00000001.log"), text).expect("the folder is there");
        if second % 600 == 300 {
            for name in ["model", "optimizer", "state"] {
                std::fs::write(rig.path(&format!("work/ckpt/{name}")), second.to_string()).expect("the folder is there");
            }
        }
        rig.clock.sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn an_hour_of_an_agent_costs_a_cent_in_requests() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let store = CountingStore::new(rig.store.clone());
        let hour = async {
            train(&rig, 60).await;
            println!("the first minute:");
            store.take();
            train(&rig, 3600).await;
            println!("an hour after it:");
            store.take()
        };
        let calls = tokio::select! {
            calls = hour => calls,
            finish = agent(&rig, store.clone()).run() => panic!("nothing ends it: {finish:?}"),
        };
        // S3: $5 a million for writes and listings, $0.40 for reads.
        let (writes, lists, reads) = (sum(&calls, "put"), sum(&calls, "list"), sum(&calls, "get"));
        println!("{writes} writes, {lists} listings, {reads} reads: ${:.4}", f64::from(writes + lists) * 5e-6 + f64::from(reads) * 4e-7);
        assert!(writes > 200, "it works: {writes}");
        assert!(writes + lists <= 2000 && reads <= 100, "{calls:?}");
    });
}
