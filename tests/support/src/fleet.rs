//! Ten thousand running jobs in one bucket and one region, without agents. The store makes each
//! record when it is read, and the cloud is a list. Both count the calls that cost money or time:
//! one for each thousand entries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use lamplighter::account::Residue;
use lamplighter::instance::{InstanceState, InstanceView, MachineRef, Tags};
use lamplighter::job::{JobId, MachineSpec, Plan};
use lamplighter::market::{self, Market, Region, Span, Supply};
use lamplighter::ports::{Clock, Cloud, CloudError, Created, ObjectMeta, Store, StoreError};
use serde_json::{Value, json};

pub const OWNER: &str = "me";
const REGION: &str = "us-east-2";

/// The most entries in one answer of S3 and EC2.
const PAGE: usize = 1000;

/// The placeholder for the job id in shared records.
const JOB: &str = "@JOB@";

/// The calls at the end of one job, without one for each machine: for machines, disks, addresses,
/// interfaces and spot requests. tests/adapters/ec2/ec2_residue.rs counts them in the adapter.
pub const RESIDUE_CALLS: usize = 5;

/// As long as the script of a real machine's first boot.
const USER_DATA_BYTES: usize = 9_000;

#[derive(Clone)]
enum Body {
    Own(Bytes),
    Shared(Arc<str>),
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Body, Timestamp)>,
    machines: BTreeMap<JobId, InstanceView>,
    calls: BTreeMap<&'static str, usize>,
    /// A stale listing, if it is frozen.
    stale: Option<Vec<ObjectMeta>>,
    stale_asked: bool,
    /// How long each answer of the store takes.
    away: Duration,
}

pub struct Fleet {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    records: BTreeMap<&'static str, Arc<str>>,
}

/// The job with this number.
pub fn job(number: usize) -> JobId {
    let letter = |place: u32| char::from(b"bcdfghjkmn"[number / 10_usize.pow(place) % 10]);
    format!("fleet-{}", (0..6).rev().map(letter).collect::<String>()).parse().expect("it is an id")
}

/// The records of version 1, adapted to these jobs.
fn records(now: Timestamp) -> BTreeMap<&'static str, Arc<str>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/v1");
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(data.join(format!("{name}.json")))
            .expect("the records of version 1 are kept");
        serde_json::from_str(&text).expect("records are JSON")
    };
    let now = json!(now.to_string());
    let mut made = BTreeMap::new();
    for name in ["spec", "plan", "lease", "status", "receipt", "outcome"] {
        let mut record = read(name);
        if record.get("job").is_some() {
            record["job"] = json!(JOB);
        }
        if record.get("attempt").is_some() {
            record["attempt"] = json!(1);
        }
        for time in ["created", "at", "taken", "started"] {
            if record.get(time).is_some() {
                record[time] = now.clone();
            }
        }
        match name {
            "spec" => record["spec"]["limits"] = json!({}),
            "status" => {
                (record["attention"], record["notice"], record["held_until"], record["exit"]) =
                    (json!([]), Value::Null, Value::Null, Value::Null);
            }
            "plan" => {
                record["client_token"] = json!(format!("token-{JOB}"));
                record["kill_at"] = Value::Null;
                record["resume_from"] = Value::Null;
                record["tags"] = json!({"lamplighter:job": JOB, "lamplighter:owner": OWNER});
                record["launch"]["user_data"] = json!("x".repeat(USER_DATA_BYTES));
            }
            _ => {}
        }
        made.insert(name, Arc::from(record.to_string()));
    }
    made
}

impl Fleet {
    /// `running` jobs with a machine each, and `ended` ones with a receipt.
    pub fn new(clock: Arc<dyn Clock>, running: usize, ended: usize) -> Arc<Self> {
        let now = clock.now();
        let fleet = Fleet { clock, state: Mutex::default(), records: records(now) };
        for number in 0..running {
            let job = job(number);
            let attempt = |name: &str| format!("jobs/{job}/attempts/0001/{name}.json");
            fleet.share(&format!("jobs/{job}/spec.json"), "spec");
            for name in ["plan", "lease", "status"] {
                fleet.share(&attempt(name), name);
            }
            for news in ["made", "0001-phase", "0001-beat"] {
                fleet.share(&format!("news/{job}/{news}"), "");
            }
            let words =
                [("owner", OWNER), ("job", job.as_str()), ("attempt", "0001"), ("lease-s", "1800")];
            let tags = Tags::from_map(
                &words.map(|(key, value)| (format!("lamplighter:{key}"), value.to_owned())).into(),
            )
            .expect("they are ours");
            let view = InstanceView {
                id: format!("i-{number:017x}"),
                cloud: market::CloudKind::Aws,
                region: Region::new(REGION),
                instance_type: "g5.xlarge".into(),
                market: Market::Spot,
                state: InstanceState::Running,
                tags,
                client_token: Some(format!("token-{job}")),
                launched: now,
                ended: None,
                state_reason: None,
            };
            fleet.state().machines.insert(job, view);
        }
        for number in running..running + ended {
            let job = job(number);
            fleet.share(&format!("jobs/{job}/spec.json"), "spec");
            fleet.share(&format!("jobs/{job}/receipt.json"), "receipt");
        }
        Arc::new(fleet)
    }

    /// The same jobs as gangs of so many ranks: each job knows the jobs of its gang. `running` is a
    /// multiple of `ranks`.
    pub fn of_gangs(clock: Arc<dyn Clock>, running: usize, ranks: usize) -> Arc<Self> {
        let fleet = Fleet::new(clock, running, 0);
        for first in (0..running).step_by(ranks) {
            let jobs = || (first..first + ranks).map(job);
            let seats: Vec<Value> =
                jobs().map(|job| json!({ "job": job, "role": "worker" })).collect();
            for (rank, job) in jobs().enumerate() {
                let mut spec: Value =
                    serde_json::from_str(&fleet.records["spec"].replace(JOB, job.as_str()))
                        .expect("it was written here");
                spec["spec"]["gang"] = json!({ "engine": "torchrun",
                    "member": { "rank": rank, "seats": seats, "retries_max": 0 } });
                let body = Body::Own(Bytes::from(spec.to_string()));
                let key = format!("jobs/{job}/spec.json");
                fleet.state().objects.insert(key, (body, fleet.clock.now()));
            }
        }
        fleet
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the lock is not poisoned")
    }

    fn share(&self, key: &str, record: &str) {
        let body = self
            .records
            .get(record)
            .map_or(Body::Own(Bytes::new()), |text| Body::Shared(Arc::clone(text)));
        self.state().objects.insert(key.to_owned(), (body, self.clock.now()));
    }

    /// All running agents write a heartbeat and its change marker, as within a tick.
    pub fn beat(&self) {
        let alive: Vec<JobId> = self
            .state()
            .machines
            .values()
            .filter(|view| view.state.bills())
            .map(|view| view.tags.job.clone())
            .collect();
        for job in alive {
            self.beat_of(&job);
        }
    }

    pub fn beat_of(&self, job: &JobId) {
        self.share(&format!("jobs/{job}/attempts/0001/status.json"), "status");
        self.share(&format!("news/{job}/0001-beat"), "");
    }

    /// The workload of a job ends: its agent writes the outcome, and its machine terminates.
    pub fn end(&self, job: &JobId) {
        self.share(&format!("jobs/{job}/attempts/0001/outcome.json"), "outcome");
        self.share(&format!("news/{job}/0001-phase"), "");
        self.take_away(job, "Client.InstanceInitiatedShutdown: done");
    }

    pub fn take_away(&self, job: &JobId, why: &str) {
        let now = self.clock.now();
        let mut state = self.state();
        let view = state.machines.get_mut(job).expect("it has a machine");
        (view.state, view.ended, view.state_reason) =
            (InstanceState::Terminated, Some(now), Some(why.into()));
    }

    pub fn machine(&self, job: &JobId) -> InstanceState {
        self.state().machines[job].state
    }

    pub fn has(&self, key: &str) -> bool {
        self.state().objects.contains_key(key)
    }

    /// From now on listings repeat their first answer, until this is called with false.
    pub fn freeze_listings(&self, frozen: bool) {
        let mut state = self.state();
        (state.stale, state.stale_asked) = (None, frozen);
    }

    /// The calls since the last time, by what they do.
    pub fn take(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut self.state().calls)
    }

    fn count(&self, act: &'static str, calls: usize) {
        *self.state().calls.entry(act).or_default() += calls;
    }

    fn render(key: &str, body: &Body) -> Bytes {
        match body {
            Body::Own(bytes) => bytes.clone(),
            Body::Shared(text) => {
                Bytes::from(text.replace(JOB, key.split('/').nth(1).unwrap_or_default()))
            }
        }
    }
}

/// All calls of the store, all calls of the cloud.
pub fn sums(calls: &BTreeMap<&'static str, usize>) -> (usize, usize) {
    let of = |cloud: bool| {
        calls
            .iter()
            .filter(|(act, _)| act.starts_with("cloud ") == cloud)
            .map(|(_, calls)| calls)
            .sum()
    };
    (of(false), of(true))
}

impl Fleet {
    /// From now on the store is so far away.
    pub fn is_away(&self, away: Duration) {
        self.state().away = away;
    }

    async fn comes(&self) {
        let away = self.state().away;
        if !away.is_zero() {
            self.clock.sleep(away).await;
        }
    }
}

#[async_trait]
impl Store for Fleet {
    fn url(&self) -> String {
        "s3://bucket/root".into()
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.comes().await;
        self.count("get", 1);
        Ok(self.state().objects.get(key).map(|(body, _)| Self::render(key, body)))
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        self.comes().await;
        self.count("put", 1);
        self.state().objects.insert(key.to_owned(), (Body::Own(body), self.clock.now()));
        Ok(())
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created, StoreError> {
        if self.has(key) {
            self.count("put", 1);
            return Ok(Created::Exists);
        }
        self.put(key, body).await.map(|()| Created::New)
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.comes().await;
        self.count("head", 1);
        Ok(self.state().objects.get(key).map(|(_, modified)| ObjectMeta {
            key: key.into(),
            bytes: 1,
            modified: *modified,
        }))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.comes().await;
        let mut state = self.state();
        let from =
            state.objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let mut found: Vec<ObjectMeta> = from
            .map(|(key, (_, modified))| ObjectMeta {
                key: key.clone(),
                bytes: 1,
                modified: *modified,
            })
            .collect();
        if state.stale_asked && prefix == "news/" {
            found = state.stale.get_or_insert(found).clone();
        }
        *state.calls.entry("list").or_default() += found.len().div_ceil(PAGE).max(1);
        Ok(found)
    }

    async fn children(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.comes().await;
        let mut state = self.state();
        let from =
            state.objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let mut names: Vec<String> = from
            .map(|(key, _)| key[prefix.len()..].split('/').next().unwrap_or_default().to_owned())
            .collect();
        names.dedup();
        *state.calls.entry("list").or_default() += names.len().div_ceil(PAGE).max(1);
        Ok(names)
    }

    async fn put_file(&self, _key: &str, _path: &Path) -> Result<(u64, String), StoreError> {
        unreachable!("a controller that drives uploads nothing")
    }

    async fn get_file(
        &self,
        _key: &str,
        _path: &Path,
    ) -> Result<Option<(u64, String)>, StoreError> {
        unreachable!("a controller that drives fetches nothing")
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.count("delete", 1);
        self.state().objects.remove(key);
        Ok(())
    }
}

/// The cloud as the controller sees it.
pub struct FleetCloud(pub Arc<Fleet>);

#[async_trait]
impl Cloud for FleetCloud {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(vec![Region::new(REGION)])
    }

    async fn supply(&self, _machine: &MachineSpec) -> Result<Supply, CloudError> {
        Err(CloudError::Throttled)
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        self.0.count("cloud launch", 1);
        Err(CloudError::Invalid { what: format!("{} was launched already", plan.job) })
    }

    async fn describe(
        &self,
        _owner: &str,
        _region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        let views: Vec<InstanceView> = self.0.state().machines.values().cloned().collect();
        self.0.count("cloud describe", views.len().div_ceil(PAGE).max(1));
        Ok(views)
    }

    async fn residue_of(
        &self,
        _owner: &str,
        _region: &Region,
        _job: &JobId,
        machines: &BTreeSet<String>,
    ) -> Result<Vec<Residue>, CloudError> {
        self.0.count("cloud residue", RESIDUE_CALLS + machines.len());
        Ok(Vec::new())
    }

    async fn residue(&self, _owner: &str, _region: &Region) -> Result<Vec<Residue>, CloudError> {
        unreachable!("a daemon that drives asks for the residue of a job, never for everybody's")
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.0.count("cloud terminate", 1);
        let job = self
            .0
            .state()
            .machines
            .values()
            .find(|view| view.id == machine.id)
            .map(|view| view.tags.job.clone());
        self.0.take_away(
            &job.expect("it is a machine of ours"),
            "Client.UserInitiatedShutdown: User initiated",
        );
        Ok(())
    }

    async fn interrupt(&self, _machine: &MachineRef, _notice: Span) -> Result<(), CloudError> {
        Ok(())
    }

    async fn raise_kill_at(
        &self,
        _machine: &MachineRef,
        _kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        Ok(())
    }

    async fn guard(&self, _plan: &Plan, _machine: &MachineRef) -> Result<(), CloudError> {
        self.0.count("cloud guard", 1);
        Ok(())
    }

    async fn release(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        self.0.count("cloud release", 1);
        Ok(())
    }
}
