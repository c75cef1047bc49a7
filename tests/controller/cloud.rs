//! A small working cloud, with agents on its machines that write what real ones write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::instance::{InstanceState, InstanceView, MachineRef, Status, Tags};
use lamplighter::job::{
    AttemptPhase, CheckpointNo, EndedBecause, ExitStatus, Lease, MachineSpec, Manifest, Outcome, Plan, RECORD_FORMAT, Reason, Refusal,
};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{self, Arch, Market, Offer, Region, Span, Supply, Usd, UsdPerHour, Zone};
use lamplighter::ports::{Clock, Cloud, CloudError};

use super::dir_of;
pub use super::fate::{CloudFault, Life};
use super::support::virtual_clock::VirtualClock;

struct Machine {
    view: InstanceView,
    price: UsdPerHour,
}

#[derive(Default)]
struct State {
    machines: Vec<Machine>,
    launch_faults: Vec<CloudFault>,
    describe_faults: usize,
    /// How long a new machine does not show up.
    invisible: Duration,
    /// Whether the records of our machines can be read just now.
    unreadable: bool,
    complaints: Vec<String>,
    launches: usize,
}

pub struct FakeCloud {
    clock: Arc<VirtualClock>,
    dir: JobDir,
    lives: Vec<Life>,
    /// `market::Cloud` of its offers: decides how long a missing machine may still be there.
    pub kind: Mutex<market::Cloud>,
    state: Arc<Mutex<State>>,
}

impl FakeCloud {
    pub fn new(clock: Arc<VirtualClock>, dir: JobDir, lives: &[Life]) -> Arc<Self> {
        Arc::new(FakeCloud { clock, dir, lives: lives.to_vec(), kind: Mutex::new(market::Cloud::Local), state: Arc::default() })
    }

    pub fn fail_launches(&self, faults: &[CloudFault]) {
        self.state.lock().unwrap().launch_faults = faults.to_vec();
    }

    pub fn fail_describes(&self, times: usize) {
        self.state.lock().unwrap().describe_faults = times;
    }

    pub fn invisible_for(&self, time: Duration) {
        self.state.lock().unwrap().invisible = time;
    }

    pub fn unreadable(&self, unreadable: bool) {
        self.state.lock().unwrap().unreadable = unreadable;
    }

    pub fn launches(&self) -> usize {
        self.state.lock().unwrap().launches
    }

    pub fn running(&self) -> Vec<String> {
        self.state.lock().unwrap().machines.iter().filter(|machine| machine.view.state.bills()).map(|machine| machine.view.id.clone()).collect()
    }

    pub fn kill_at(&self) -> Option<Timestamp> {
        self.state.lock().unwrap().machines.last().and_then(|machine| machine.view.tags.kill_at)
    }

    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().unwrap().complaints.clone()
    }

    /// A machine of somebody else, with our job's name on it.
    pub fn add_foreign(&self) {
        let mut state = self.state.lock().unwrap();
        let mut tags = tags_of(&self.dir);
        tags.owner = "somebody else".into();
        state.machines.push(Machine { view: view("i-foreign", tags, "foreign", self.clock.now()), price: UsdPerHour::ZERO });
    }

    /// The cloud's own ledger.
    pub fn bill(&self) -> Usd {
        let state = self.state.lock().unwrap();
        let cost = |machine: &Machine| {
            let ended = machine.view.ended.unwrap_or_else(|| self.clock.now());
            machine.price.cost_of(Duration::try_from(ended.duration_since(machine.view.launched)).unwrap())
        };
        state.machines.iter().map(cost).sum()
    }

    fn buy(self: &Arc<Self>, plan: &Plan) -> String {
        let mut state = self.state.lock().unwrap();
        state.launches += 1;
        if let Some(there) = state.machines.iter().find(|machine| machine.view.client_token.as_deref() == Some(&plan.client_token)) {
            return there.view.id.clone();
        }
        let tags = Tags::from_map(&plan.tags).unwrap();
        if state
            .machines
            .iter()
            .any(|machine| machine.view.state.bills() && machine.view.tags.job == tags.job && machine.view.tags.owner == tags.owner)
        {
            state.complaints.push(format!("attempt {} was launched while another machine of the job runs", plan.attempt));
        }
        let id = format!("i-{}", state.machines.len() + 1);
        state.machines.push(Machine { view: view(&id, tags, &plan.client_token, self.clock.now()), price: plan.offer.price });
        let number = plan.attempt.number() as usize - 1;
        let life = self.lives[number.min(self.lives.len() - 1)];
        let (cloud, plan, instance) = (Arc::clone(self), plan.clone(), id.clone());
        tokio::spawn(async move { cloud.live(&plan, &instance, life).await });
        id
    }

    /// The agent on a machine; everything it does stops when the machine ends.
    async fn live(&self, plan: &Plan, instance: &str, life: Life) {
        let sleep = |secs| self.clock.sleep(Duration::from_secs(secs));
        if let Life::TakenYoung { secs } = life {
            sleep(secs).await;
            return self.end(instance, "Server.SpotInstanceTermination: no capacity");
        }
        if life == Life::NeverSpeaks {
            return;
        }
        sleep(1).await;
        let lease = Lease { format: RECORD_FORMAT, instance: instance.into(), nonce: "n".into(), taken: self.clock.now() };
        dir_of(&self.dir, plan).take_lease(plan.attempt, &lease).await.unwrap();
        let started = self.clock.now();
        self.beat(plan, instance, started, 1).await;
        match life {
            Life::Ends { secs, code } => {
                sleep(secs).await;
                let because = if code == 0 { EndedBecause::Succeeded } else { EndedBecause::Failed };
                self.outcome(plan, instance, started, because, Some(code)).await;
                self.end(instance, "Client.InstanceInitiatedShutdown: done");
            }
            Life::Taken { secs } => {
                self.save(plan).await;
                sleep(secs).await;
                self.end(instance, "Server.SpotInstanceTermination: no capacity");
            }
            Life::EndedByHand { secs } => {
                sleep(secs).await;
                self.end(instance, "Client.UserInitiatedShutdown: User initiated");
            }
            Life::NeverDark => {
                sleep(5).await;
                self.outcome(plan, instance, started, EndedBecause::Succeeded, Some(0)).await;
            }
            Life::FallsSilent | Life::TakenYoung { .. } | Life::NeverSpeaks => {}
            Life::Endless => self.until_told(plan, instance, started).await,
        }
    }

    async fn until_told(&self, plan: &Plan, instance: &str, started: Timestamp) {
        for beat in 2.. {
            self.clock.sleep(Duration::from_secs(30)).await;
            if !self.running().iter().any(|id| id == instance) {
                return;
            }
            let wishes = lamplighter::policy::Wishes::of(&dir_of(&self.dir, plan).requests().await.unwrap());
            if let Some(wish) = wishes.end {
                self.outcome(plan, instance, started, wish.because(), None).await;
                return self.end(instance, "Client.InstanceInitiatedShutdown: done");
            }
            self.beat(plan, instance, started, beat).await;
        }
    }

    async fn beat(&self, plan: &Plan, instance: &str, started: Timestamp, sequence: u64) {
        let status = Status {
            format: RECORD_FORMAT,
            instance: instance.into(),
            sequence,
            at: self.clock.now(),
            phase: AttemptPhase::Running,
            started,
            verdict: "busy".into(),
            reason: None,
            progress: None,
            gpus: vec![],
            cpu_percent: None,
            memory_bytes: None,
            useful: Span::from_secs(3),
            idle: Span::from_secs(1),
            last_checkpoint: None,
            checkpoints: 1,
            notice: None,
            starts: 1,
            held_until: None,
            attention: vec![],
            exit: None,
        };
        dir_of(&self.dir, plan).put_status(plan.attempt, &status, false).await.unwrap();
    }

    async fn save(&self, plan: &Plan) {
        let manifest = Manifest {
            format: RECORD_FORMAT,
            number: CheckpointNo::new(plan.attempt.number()),
            attempt: plan.attempt,
            created: self.clock.now(),
            step: None,
            files: vec![],
            save_secs: 0.0,
            upload_secs: 0.0,
            asked_by: None,
        };
        let _ = dir_of(&self.dir, plan).create_manifest(&manifest).await.unwrap();
    }

    async fn outcome(&self, plan: &Plan, instance: &str, started: Timestamp, because: EndedBecause, code: Option<i32>) {
        let outcome = Outcome {
            format: RECORD_FORMAT,
            job: plan.job.clone(),
            attempt: plan.attempt,
            instance: instance.into(),
            started,
            ended: self.clock.now(),
            because,
            exit: code.map(|code| ExitStatus { code: Some(code), ..ExitStatus::default() }),
            reasons: vec![Reason::new(self.clock.now(), "workload", because.word(), "it ended")],
            useful: Span::from_secs(10),
            idle: Span::ZERO,
            unknown: Span::ZERO,
            last_checkpoint: None,
            checkpoints: 0,
            resumed_from: None,
            progress: None,
            losses: vec![],
        };
        let _ = dir_of(&self.dir, plan).create_outcome(&outcome).await.unwrap();
    }

    fn end(&self, instance: &str, reason: &str) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap();
        let machine = state.machines.iter_mut().find(|machine| machine.view.id == instance).unwrap();
        if machine.view.ended.is_none() {
            machine.view.state = InstanceState::Terminated;
            machine.view.ended = Some(now);
            machine.view.state_reason = Some(reason.into());
        }
    }
}

fn tags_of(dir: &JobDir) -> Tags {
    let (lease, boot) = (Span::from_secs(1800), lamplighter::job::BOOT);
    Tags { owner: "me".into(), job: dir.job().clone(), attempt: lamplighter::job::AttemptNo::FIRST, lease, boot, kill_at: None }
}

fn view(id: &str, tags: Tags, token: &str, now: Timestamp) -> InstanceView {
    InstanceView {
        id: id.into(),
        cloud: Default::default(),
        region: Region::new("local"),
        instance_type: "t".into(),
        market: Market::Spot,
        state: InstanceState::Running,
        tags,
        client_token: Some(token.into()),
        launched: now,
        ended: None,
        state_reason: None,
    }
}

/// The agents of the fake cloud hold on to it, so the port is on a handle.
#[async_trait]
impl Cloud for FakeCloudPort {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(vec![Region::new("local")])
    }

    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let kind = *self.0.kind.lock().unwrap();
        let offer = Offer {
            cloud: kind,
            region: Region::new("local"),
            zone: Zone::new("ws-test"),
            instance_type: "t".into(),
            gpus: 0,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 0,
            arch: Arch::X86_64,
            market: Market::Spot,
            price: machine.usd_per_hour,
            extras: UsdPerHour::ZERO,
            on_demand: Some(machine.usd_per_hour),
        };
        Ok(Supply { offers: vec![offer], ..Supply::default() })
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        let fault = {
            let faults = &mut self.0.state.lock().unwrap().launch_faults;
            if faults.is_empty() { None } else { Some(faults.remove(0)) }
        };
        let lost = || CloudError::Ambiguous { act: "launch".into(), cause: "injected".into() };
        match fault {
            Some(CloudFault::Down) => Err(lost()),
            Some(CloudFault::LostReply) => {
                self.0.buy(plan);
                Err(lost())
            }
            Some(CloudFault::NoCapacity) => Err(CloudError::NoCapacity { what: "t".into(), refusal: Refusal::Capacity }),
            Some(CloudFault::Invalid) => Err(CloudError::Invalid { what: "no such image".into() }),
            Some(CloudFault::Denied) => Err(CloudError::Denied { act: "launch a t in ws-test".into(), cause: "ExpiredToken".into() }),
            None => Ok(self.0.buy(plan)),
        }
    }

    async fn describe(&self, _owner: &str, _region: &Region) -> Result<Vec<InstanceView>, CloudError> {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock().unwrap();
        if state.describe_faults > 0 {
            state.describe_faults -= 1;
            return Err(CloudError::Throttled);
        }
        let visible = |machine: &&Machine| !state.unreadable && now.duration_since(machine.view.launched) >= state.invisible.try_into().unwrap();
        // As nasty as can be: it also shows what is not ours.
        Ok(state.machines.iter().filter(visible).map(|machine| machine.view.clone()).collect())
    }

    async fn confirm_missing(&self, _plan: &Plan) -> Result<(), CloudError> {
        let unreadable = self.0.state.lock().unwrap().unreadable;
        if unreadable { Err(CloudError::Ambiguous { act: "read the machine".into(), cause: "injected".into() }) } else { Ok(()) }
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        let instance = machine.id.as_str();
        if instance == "i-foreign" {
            self.0.state.lock().unwrap().complaints.push("somebody else's machine was terminated".into());
        }
        self.0.end(instance, "Client.UserInitiatedShutdown: User initiated");
        Ok(())
    }

    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError> {
        let (cloud, id) = (Arc::clone(&self.0), machine.id.clone());
        tokio::spawn(async move {
            cloud.clock.sleep(notice.duration()).await;
            cloud.end(&id, "Server.SpotInstanceTermination: rehearsed");
        });
        Ok(())
    }

    async fn raise_kill_at(&self, machine: &MachineRef, kill_at: Timestamp) -> Result<(), CloudError> {
        let mut state = self.0.state.lock().unwrap();
        let machine = state.machines.iter_mut().find(|known| known.view.id == machine.id).unwrap();
        machine.view.tags.kill_at = machine.view.tags.kill_at.max(Some(kill_at));
        Ok(())
    }

    async fn release(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }
}

/// The cloud as the controller sees it.
pub struct FakeCloudPort(pub Arc<FakeCloud>);
