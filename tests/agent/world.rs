//! A machine and a workload that do as they are told, around a whole agent in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::agent::report::retry_sender::Outbox;
use lamplighter::agent::startup::boot;
use lamplighter::agent::{Agent, AgentPorts, Attempt, Finish, Folders, Mode};
use lamplighter::instance::{GpuSample, Marks, Notice, NoticeKind, Reading, Sample, Status};
use lamplighter::job::{AttemptNo, ExitStatus, Outcome, ResolvedSpec};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{Usd, UsdPerHour};
use lamplighter::ports::{
    Clock, Ended, Identity, Launch, Metadata, MetadataError, Meter, People, Power, PowerError,
    PowerOff, Scope, SensorFeed, Service, Signal, Stacks, Store, Workload, WorkloadError,
    Workloads,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Rig;
use lamp_test_support::virtual_clock::VirtualClock;

/// `WatchdogSec` in systemd/lamp-agent.service.
const WATCHDOG: Duration = Duration::from_secs(30);

/// One machine. A clone is the same one.
#[derive(Clone)]
pub struct Played {
    clock: Arc<VirtualClock>,
    /// The workload's end, once it has one; it is there from its start on.
    ended: watch::Sender<Option<Ended>>,
    started: Arc<Mutex<u32>>,
    now: Arc<Mutex<Now>>,
    powered_off: Arc<Mutex<bool>>,
    /// What its cloud says of its end.
    pub notices: Arc<Mutex<Vec<Notice>>>,
    /// Its metadata service errs.
    pub deaf: Arc<AtomicBool>,
    /// Nothing but SIGKILL ends the workload.
    pub stubborn: Arc<AtomicBool>,
    /// Bytes that its holder has counted.
    pub printed: Arc<AtomicU64>,
    /// The files that the workload has open for writing. `None`: the kernel does not tell.
    pub open: Arc<Mutex<Option<BTreeSet<String>>>>,
    /// How often it was asked to save.
    pub asked: Arc<AtomicU64>,
    /// What was started says its first word so many seconds later.
    pub starts_slowly: Arc<AtomicU64>,
    /// What its processes wait for cannot be read.
    pub stacks_hang: Arc<AtomicBool>,
    /// A reboot took what was started, and what it left as its last word.
    pub rebooted: Arc<AtomicBool>,
    /// When the agent last said that it lives, and the longest that it said nothing.
    said: Arc<Mutex<Option<Duration>>>,
    silent: Arc<Mutex<Duration>>,
    /// Where the agent publishes its measurements.
    pub meter: Option<Arc<dyn Meter>>,
    /// It was launched for the job, and nobody else is on it.
    pub own_machine: bool,
    /// When it was launched, by the cloud's clock; `None`: now, by its own.
    pub launched: Option<Timestamp>,
    /// The hard end that its launch set.
    pub kill_at: Option<Timestamp>,
    /// What the spec says of the packed workdir.
    pub code: Value,
    /// How long ago somebody last typed there.
    pub typed: Arc<Mutex<Option<Duration>>>,
    /// What its terminals were told, and when.
    pub told: Arc<Mutex<Vec<(Duration, String)>>>,
}

/// What the next sample shows.
pub struct Now {
    pub gpus: Reading<Vec<GpuSample>>,
    /// Of its disk.
    pub free_bytes: u64,
    /// The tree uses a whole core, or nothing.
    pub works: bool,
    /// Somebody else uses a whole core: a container, or a neighbour.
    pub rest_works: bool,
    cpu: Duration,
    rest: Duration,
    at: Duration,
}

impl Played {
    /// The cloud says so from now on, beside what it has said.
    pub fn notice(&self, kind: NoticeKind, at: Timestamp) {
        self.notices.lock().expect("nobody panics with it").push(Notice {
            kind,
            at,
            detail: "terminate".into(),
        });
    }

    pub fn new(rig: &Rig) -> Self {
        let now = Now {
            gpus: Reading::Absent,
            free_bytes: 1 << 40,
            works: true,
            rest_works: false,
            cpu: Duration::ZERO,
            rest: Duration::ZERO,
            at: Duration::ZERO,
        };
        let (now, started, powered_off) =
            (Arc::new(Mutex::new(now)), Arc::default(), Arc::default());
        Played {
            clock: rig.clock.clone(),
            ended: watch::Sender::new(None),
            started,
            now,
            powered_off,
            notices: Arc::default(),
            deaf: Arc::default(),
            stubborn: Arc::default(),
            printed: Arc::default(),
            open: Arc::default(),
            asked: Arc::default(),
            starts_slowly: Arc::default(),
            stacks_hang: Arc::default(),
            rebooted: Arc::default(),
            said: Arc::default(),
            silent: Arc::default(),
            meter: None,
            own_machine: true,
            launched: None,
            kill_at: None,
            code: Value::Null,
            typed: Arc::default(),
            told: Arc::default(),
        }
    }

    pub fn agent(&self, rig: &Rig, spec: &str) -> Agent {
        self.agent_with(rig, rig.store.clone(), spec)
    }

    /// The agent of the first attempt, with what an earlier one left on the disk.
    pub fn agent_with(&self, rig: &Rig, store: Arc<dyn Store>, spec: &str) -> Agent {
        let mut words: Value = json!({"name": "digits", "command": {"shell": "train"}});
        let more: Value = serde_json::from_str(spec).expect("JSON");
        words.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        let resolved: ResolvedSpec = serde_json::from_value(json!({
            "format": 1, "job": "digits-222222", "created": "2026-01-01T00:00:00Z", "written_by": "test", "code": self.code, "origins": {}, "spec": words,
        }))
        .expect("a spec");
        let state = rig.path("state");
        let dir = JobDir::new(store, resolved.job.clone());
        let outbox = Outbox {
            dir,
            attempt: AttemptNo::FIRST,
            clock: rig.clock.clone(),
            files: rig.files.clone(),
            state: state.clone(),
        };
        let attempt = Attempt {
            resolved,
            no: AttemptNo::FIRST,
            instance: "i-1".into(),
            launched: self.launched.unwrap_or_else(|| rig.clock.now()),
            price: UsdPerHour::ZERO,
            spent_before: Usd::ZERO,
            kill_at: self.kill_at,
            folders: Folders { work: rig.path("work"), state, cache: rig.path("cache") },
            mode: Mode::Launched,
        };
        *self.said.lock().expect("nobody panics with it") = None;
        let this = || Arc::new(self.clone());
        let world = AgentPorts {
            sensors: Box::new(self.clone()),
            workloads: this(),
            metadata: Some(this()),
            power: this(),
            insist: true,
            own_network: Arc::default(),
            switch_files: None,
            own_machine: self.own_machine,
            meter: self.meter.clone(),
            exposed: None,
            service: this(),
            stacks: this(),
            people: this(),
            signals: watch::channel(0).1,
        };
        let memory = boot::remember(&outbox);
        Agent::new(attempt, world, outbox, memory)
    }

    /// One life of an agent as systemd keeps it; `None`: it said nothing for so long that it was
    /// ended.
    pub async fn watched(&self, agent: Agent) -> Option<Finish> {
        let begun = self.clock.mono();
        let silence = async {
            loop {
                let said = self.said.lock().expect("nobody panics with it").unwrap_or(begun);
                let now = self.clock.mono();
                if now >= said + WATCHDOG {
                    break;
                }
                self.clock.sleep(said + WATCHDOG - now).await;
            }
        };
        tokio::select! {
            biased;
            finish = agent.run() => Some(finish),
            () = silence => None,
        }
    }

    pub fn show(&self, change: impl FnOnce(&mut Now)) {
        let mut now = self.now.lock().expect("nobody panics with it");
        now.pass(self.clock.mono());
        change(&mut now);
    }

    pub fn end(&self, exit: ExitStatus) {
        self.ended.send_replace(Some(Ended { exit, orphans: 0, ..Default::default() }));
    }

    pub fn starts(&self) -> u32 {
        *self.started.lock().expect("nobody panics with it")
    }

    /// The workload has ended, by itself or because it was told to.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    pub fn is_off(&self) -> bool {
        *self.powered_off.lock().expect("nobody panics with it")
    }
}

impl Rig {
    pub async fn status(&self) -> Status {
        self.dir()
            .status(AttemptNo::FIRST)
            .await
            .expect("the store answers")
            .expect("there is a heartbeat")
    }

    pub async fn outcome(&self) -> Outcome {
        self.dir()
            .outcome(AttemptNo::FIRST)
            .await
            .expect("the store answers")
            .expect("there is an outcome")
    }
}

impl Now {
    fn pass(&mut self, mono: Duration) {
        if self.works {
            self.cpu += mono.saturating_sub(self.at);
        }
        if self.rest_works {
            self.rest += mono.saturating_sub(self.at);
        }
        self.at = mono;
    }
}

#[async_trait]
impl SensorFeed for Played {
    async fn sample(&mut self, _: &Scope) -> Option<Sample> {
        let (mono, at) = (self.clock.mono(), self.clock.now());
        let mut now = self.now.lock().expect("nobody panics with it");
        now.pass(mono);
        Some(Sample {
            at,
            mono,
            gpus: now.gpus.clone(),
            cuda: Reading::Absent,
            tree_cpu: Reading::Known(now.cpu),
            machine_cpu: Reading::Known(now.cpu + now.rest),
            cores: 2,
            tree_memory_bytes: Reading::Known(1 << 30),
            machine_memory_bytes: Reading::Known((1 << 30, 1 << 33)),
            tree_disk: Reading::Known(lamplighter::instance::IoCounters::default()),
            network: Reading::Absent,
            disk_free_bytes: Reading::Known(now.free_bytes),
            tree_processes: Reading::Known(3),
            typing: Reading::Known(*self.typed.lock().expect("nobody panics with it")),
            marks: Marks::default(),
        })
    }
}

#[async_trait]
impl Workloads for Played {
    async fn start(&self, _: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        self.clock.sleep(Duration::from_secs(self.starts_slowly.load(Ordering::Relaxed))).await;
        *self.started.lock().expect("nobody panics with it") += 1;
        self.ended.send_replace(None);
        Ok(Box::new(self.clone()))
    }
    async fn attach(&self, _: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        Ok((self.starts() > 0 && !self.rebooted.load(Ordering::Relaxed))
            .then(|| Box::new(self.clone()) as Box<dyn Workload>))
    }
}

#[async_trait]
impl Workload for Played {
    fn scope(&self) -> Scope {
        Scope::default()
    }
    async fn ended(&self) -> Ended {
        let mut ended = self.ended.subscribe();
        let found = ended.wait_for(Option::is_some).await.expect("the sender is `self`");
        found.expect("it was waited for")
    }
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError> {
        if signal != Signal::Kill && self.stubborn.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.ended.send_if_modified(|ended| {
            ended.is_none() && ended.insert(Ended::default()).orphans == 0
        });
        Ok(())
    }
    fn ask(&self, _: Signal) -> Result<u32, WorkloadError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(1)
    }
    async fn open_for_writing(&self, _: &Path) -> Option<BTreeSet<String>> {
        self.open.lock().expect("nobody panics with it").clone()
    }
    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        self.signal(Signal::Kill)
    }
    fn printed(&self) -> (u64, u64) {
        (self.printed.load(Ordering::Relaxed), 0)
    }
}

#[async_trait]
impl Metadata for Played {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        Ok(Identity { instance: "i-1".into(), tags: BTreeMap::new(), launched: self.clock.now() })
    }
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        if self.deaf.load(Ordering::Relaxed) {
            return Err(MetadataError::Unavailable { what: "notices".into(), cause: "503".into() });
        }
        Ok(self.notices.lock().expect("nobody panics with it").clone())
    }
}

#[async_trait]
impl Power for Played {
    async fn off(&self, _: PowerOff, _: &str) -> Result<(), PowerError> {
        *self.powered_off.lock().expect("nobody panics with it") = true;
        Ok(())
    }
}

#[async_trait]
impl Stacks for Played {
    async fn dump(&self, _: &Scope, _: usize) -> String {
        if self.stacks_hang.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        String::new()
    }
}

impl People for Played {
    fn tell(&self, text: &str) {
        self.told.lock().expect("nobody panics with it").push((self.clock.mono(), text.to_owned()));
    }
}

impl Service for Played {
    fn ready(&self) {}
    fn alive(&self) {
        let now = self.clock.mono();
        let before = self.said.lock().expect("nobody panics with it").replace(now).unwrap_or(now);
        let mut silent = self.silent.lock().expect("nobody panics with it");
        *silent = now.saturating_sub(before).max(*silent);
        assert!(
            *silent < WATCHDOG,
            "the agent said nothing for {silent:?}: systemd would have ended it"
        );
    }
    fn status(&self, _: &str) {}
    fn stopping(&self) {}
}
