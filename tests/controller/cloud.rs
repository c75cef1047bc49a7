//! A small working cloud, with agents on its machines that write what real ones write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::account::ForeignMachine;
use lamplighter::instance::{InstanceState, InstanceView, Status, Tags};
use lamplighter::job::{
    AttemptPhase, CheckpointNo, EndedBecause, ExitStatus, JobId, Lease, Manifest, Outcome, Plan,
    RECORD_FORMAT, Reason,
};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{self, Market, Span, Usd, UsdPerHour};
use lamplighter::ports::Clock;

pub use crate::cloud_machine::{CloudFault, Life};
use crate::cloud_machine::{tags_of, view};
use crate::dir_of;
use crate::launch::spot_market::SpotMarket;
use lamp_test_support::virtual_clock::VirtualClock;

pub(super) struct Machine {
    pub(super) view: InstanceView,
    price: UsdPerHour,
    /// What its earlier runs came to.
    before: Usd,
    /// When it billed no more; the view has its last change alone, as EC2's has.
    dark: Option<Timestamp>,
}

impl Machine {
    fn new(view: InstanceView, price: UsdPerHour) -> Machine {
        Machine { view, price, before: Usd::ZERO, dark: None }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) machines: Vec<Machine>,
    pub(super) launch_faults: Vec<CloudFault>,
    pub(super) describe_faults: usize,
    /// Ends of machines that are refused, and looks at them: how many.
    pub(super) denied_ends: usize,
    pub(super) denied_looks: usize,
    /// How long a new machine does not show up.
    pub(super) invisible: Duration,
    /// How long an ended machine is still shown.
    pub(super) forgets_after: Option<Duration>,
    /// Whether the records of our machines can be read just now.
    pub(super) unreadable: bool,
    pub(super) complaints: Vec<String>,
    /// When it last said which machines there are.
    pub(super) described: Option<Timestamp>,
    /// The machine whose last checkpoint is not complete yet.
    pub(super) saving: Option<String>,
    launches: usize,
    pub(super) start_faults: Vec<CloudFault>,
}

pub struct FakeCloud {
    pub(super) clock: Arc<VirtualClock>,
    pub(super) dir: JobDir,
    lives: Mutex<Vec<Life>>,
    /// Of a machine that is started again.
    pub second_life: Mutex<Life>,
    /// Machines that `lamp` did not launch.
    pub foreign: Mutex<Vec<ForeignMachine>>,
    /// `market::CloudKind` of its offers: decides how long a missing machine may still be there.
    pub kind: Mutex<market::CloudKind>,
    /// When there is no spot capacity, on the steady clock; and the work of [`Life::Works`].
    pub market: Mutex<SpotMarket>,
    pub supply_takes: Mutex<Duration>,
    pub(super) state: Arc<Mutex<State>>,
}

impl FakeCloud {
    pub fn new(clock: Arc<VirtualClock>, dir: JobDir, lives: &[Life]) -> Arc<Self> {
        Arc::new(FakeCloud {
            clock,
            dir,
            lives: Mutex::new(lives.to_vec()),
            second_life: Mutex::new(Life::Ends { secs: 2, code: 0 }),
            kind: Mutex::new(market::CloudKind::Local),
            market: Mutex::default(),
            supply_takes: Mutex::default(),
            foreign: Mutex::default(),
            state: Arc::default(),
        })
    }

    pub fn fail_launches(&self, faults: &[CloudFault]) {
        self.state.lock().unwrap().launch_faults = faults.to_vec();
    }

    pub fn fail_starts(&self, faults: &[CloudFault]) {
        self.state.lock().unwrap().start_faults = faults.to_vec();
    }

    /// The machines and how they stand.
    pub fn states(&self) -> Vec<(String, InstanceState)> {
        self.state
            .lock()
            .unwrap()
            .machines
            .iter()
            .map(|machine| (machine.view.id.clone(), machine.view.state))
            .collect()
    }

    pub fn fail_describes(&self, times: usize) {
        self.state.lock().unwrap().describe_faults = times;
    }

    /// As EC2 does, after about an hour.
    pub fn forget_after(&self, time: Duration) {
        self.state.lock().unwrap().forgets_after = Some(time);
    }

    /// The credentials have expired: so many ends of machines, and looks at them, are refused.
    pub fn deny(&self, ends: usize, looks: usize) {
        let mut state = self.state.lock().unwrap();
        (state.denied_ends, state.denied_looks) = (ends, looks);
    }

    pub fn denied_ends(&self) -> usize {
        self.state.lock().unwrap().denied_ends
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
        self.state
            .lock()
            .unwrap()
            .machines
            .iter()
            .filter(|machine| machine.view.state.bills())
            .map(|machine| machine.view.id.clone())
            .collect()
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
        state.machines.push(Machine::new(
            view("i-foreign", tags, "foreign", self.clock.now()),
            UsdPerHour::ZERO,
        ));
    }

    /// What becomes of machines from now on.
    pub fn live_on(&self, life: Life) {
        *self.lives.lock().unwrap() = vec![life];
    }

    /// A machine of ours for the first attempt of this job, which nobody waits for any more.
    pub fn add_late(&self, job: &JobId) -> String {
        let mut tags = tags_of(&self.dir);
        (tags.owner, tags.job) = ("me".into(), job.clone());
        let mut state = self.state.lock().unwrap();
        let token = state
            .machines
            .iter()
            .find(|machine| machine.view.tags.job == *job)
            .and_then(|machine| machine.view.client_token.clone());
        let late = view("i-late", tags, token.as_deref().unwrap_or("late"), self.clock.now());
        state.machines.push(Machine::new(late, UsdPerHour::ZERO));
        "i-late".into()
    }

    /// The cloud's own ledger.
    pub fn bill(&self) -> Usd {
        let state = self.state.lock().unwrap();
        let cost = |machine: &Machine| {
            let (from, ended) = (
                machine.view.launched,
                machine
                    .dark
                    .filter(|_| !machine.view.state.bills())
                    .unwrap_or_else(|| self.clock.now()),
            );
            let ran = Duration::try_from(ended.duration_since(from)).unwrap();
            let taken = machine
                .view
                .state_reason
                .as_deref()
                .is_some_and(|reason| reason.starts_with("Server.Spot"));
            // As EC2: what it takes back within the first hour is free.
            let is_ec2 = *self.kind.lock().unwrap() == market::CloudKind::Aws;
            let free = is_ec2
                && taken
                && machine.view.market == Market::Spot
                && ran < Duration::from_secs(3600);
            machine.before
                + if free {
                    Usd::ZERO
                } else {
                    self.price_moved(from, ended).unwrap_or_else(|| machine.price.cost_of(ran))
                }
        };
        state.machines.iter().map(cost).sum()
    }

    pub(super) fn buy(self: &Arc<Self>, plan: &Plan) -> String {
        let mut state = self.state.lock().unwrap();
        state.launches += 1;
        if let Some(there) = state
            .machines
            .iter()
            .find(|machine| machine.view.client_token.as_deref() == Some(&plan.client_token))
        {
            return there.view.id.clone();
        }
        let tags = Tags::from_map(&plan.tags).unwrap();
        if state.machines.iter().any(|machine| {
            machine.view.state.bills()
                && machine.view.tags.job == tags.job
                && machine.view.tags.owner == tags.owner
        }) {
            state.complaints.push(format!(
                "attempt {} was launched while another machine of the job runs",
                plan.attempt
            ));
        }
        let id = format!("i-{}", state.machines.len() + 1);
        let bought = InstanceView {
            market: plan.offer.market,
            ..view(&id, tags, &plan.client_token, self.clock.now())
        };
        state.machines.push(Machine::new(bought, plan.offer.price));
        let number = plan.attempt.number() as usize - 1;
        let life = {
            let lives = self.lives.lock().unwrap();
            lives[number.min(lives.len() - 1)]
        };
        let (cloud, plan, instance) = (Arc::clone(self), plan.clone(), id.clone());
        tokio::spawn(async move { cloud.live(&plan, &instance, life).await });
        id
    }

    /// A stopped machine runs for another job.
    pub(super) fn start_again(self: &Arc<Self>, instance: &str, plan: &Plan) {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.now();
        let tags = Tags::from_map(&plan.tags).unwrap();
        let Some(machine) = state.machines.iter_mut().find(|machine| machine.view.id == instance)
        else {
            return;
        };
        machine.view.tags = tags;
        if machine.view.state != InstanceState::Stopped {
            return;
        }
        let (launched, ended) = (machine.view.launched, machine.dark.take().unwrap());
        machine.before +=
            machine.price.cost_of(Duration::try_from(ended.duration_since(launched)).unwrap());
        (machine.view.state, machine.view.launched) = (InstanceState::Running, now);
        (machine.view.ended, machine.view.state_reason) = (None, None);
        let life = *self.second_life.lock().unwrap();
        let (cloud, plan, instance) = (Arc::clone(self), plan.clone(), instance.to_owned());
        tokio::spawn(async move { cloud.live(&plan, &instance, life).await });
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
        let lease = Lease {
            format: RECORD_FORMAT,
            instance: instance.into(),
            nonce: "n".into(),
            taken: self.clock.now(),
        };
        dir_of(&self.dir, plan).take_lease(plan.attempt, &lease).await.unwrap();
        let started = self.clock.now();
        self.beat(plan, instance, started, 1).await;
        match life {
            Life::Ends { secs, code } => {
                self.works(plan, instance, started, secs).await;
                let because =
                    if code == 0 { EndedBecause::Succeeded } else { EndedBecause::Failed };
                self.outcome(plan, instance, started, because, Some(code)).await;
                self.end(instance, "Client.InstanceInitiatedShutdown: done");
            }
            Life::Stops { secs, code } => {
                sleep(secs).await;
                self.save(plan).await;
                let because =
                    if code == 0 { EndedBecause::Succeeded } else { EndedBecause::Failed };
                self.outcome(plan, instance, started, because, Some(code)).await;
                self.leave(
                    instance,
                    InstanceState::Stopped,
                    "Client.InstanceInitiatedShutdown: done",
                );
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
            Life::Unmeasured { secs, falls_silent } => {
                self.is_unmeasured(plan, instance, started, (secs, falls_silent)).await
            }
            Life::FallsSilent | Life::TakenYoung { .. } | Life::NeverSpeaks => {}
            Life::Deaf => self.goes_on(plan, instance, started).await,
            Life::Endless => self.until_told(plan, instance, started, None).await,
            Life::SavesLong { secs } => self.until_told(plan, instance, started, Some(secs)).await,
            Life::Works { start_secs } => self.work(plan, instance, started, start_secs).await,
        }
    }

    async fn until_told(
        &self,
        plan: &Plan,
        instance: &str,
        started: Timestamp,
        saves: Option<u64>,
    ) {
        for beat in 2.. {
            self.clock.sleep(Duration::from_secs(30)).await;
            if !self.running().iter().any(|id| id == instance) {
                return;
            }
            let wishes =
                lamplighter::policy::Wishes::of(&dir_of(&self.dir, plan).requests().await.unwrap());
            if let Some(wish) = wishes.end {
                if let Some(secs) = saves {
                    self.state.lock().unwrap().saving = Some(instance.to_owned());
                    for saved in 0..secs / 30 {
                        self.drains(plan, instance, started, beat + saved).await;
                        self.clock.sleep(Duration::from_secs(30)).await;
                    }
                    self.save(plan).await;
                    self.state.lock().unwrap().saving = None;
                    return self.outcome(plan, instance, started, wish.because(), None).await;
                }
                self.outcome(plan, instance, started, wish.because(), None).await;
                return self.end(instance, "Client.InstanceInitiatedShutdown: done");
            }
            self.beat(plan, instance, started, beat).await;
        }
    }

    pub(super) async fn beat(
        &self,
        plan: &Plan,
        instance: &str,
        started: Timestamp,
        sequence: u64,
    ) {
        let status = self.status(instance, started, sequence);
        dir_of(&self.dir, plan).put_status(plan.attempt, &status, false).await.unwrap();
    }

    pub(super) fn status(&self, instance: &str, started: Timestamp, sequence: u64) -> Status {
        Status {
            format: RECORD_FORMAT,
            instance: instance.into(),
            sequence,
            at: self.clock.now(),
            phase: AttemptPhase::Running,
            started,
            verdict: "busy".into(),
            reason: None,
            metric: None,
            progress: None,
            gpus: vec![],
            cpu_percent: None,
            memory_bytes: None,
            useful: Span::from_secs(3),
            idle: Span::from_secs(1),
            last_checkpoint: None,
            checkpoints: 1,
            working_since: None,
            saved: Span::ZERO,
            notice: None,
            starts: 1,
            held_until: None,
            unmeasured: false,
            keeps: true,
            doubts: false,
            attention_kinds: Vec::new(),
            attention: vec![],
            exit: None,
        }
    }

    async fn save(&self, plan: &Plan) {
        let manifest = Manifest {
            format: RECORD_FORMAT,
            number: CheckpointNo::new(plan.attempt.number()),
            attempt: plan.attempt,
            created: self.clock.now(),
            step: None,
            files: vec![],
            links: Vec::new(),
            save_secs: 0.0,
            upload_secs: 0.0,
            marks: None,
            silent_secs: None,
            asked_by: None,
        };
        let _ = dir_of(&self.dir, plan).create_manifest(&manifest).await.unwrap();
    }

    pub(super) async fn outcome(
        &self,
        plan: &Plan,
        instance: &str,
        started: Timestamp,
        because: EndedBecause,
        code: Option<i32>,
    ) {
        let outcome = self.outcome_of(plan, instance, started, because, code);
        let _ = dir_of(&self.dir, plan).create_outcome(&outcome).await.unwrap();
    }

    pub(super) fn outcome_of(
        &self,
        plan: &Plan,
        instance: &str,
        started: Timestamp,
        because: EndedBecause,
        code: Option<i32>,
    ) -> Outcome {
        Outcome {
            format: RECORD_FORMAT,
            job: plan.job.clone(),
            attempt: plan.attempt,
            instance: instance.into(),
            metric: None,
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
            went_back: None,
            progress: None,
            working_since: None,
            saved: Span::ZERO,
            losses: vec![],
        }
    }

    pub(super) fn end(&self, instance: &str, reason: &str) {
        self.leave(instance, InstanceState::Terminated, reason);
    }

    /// A stopped machine can still be terminated; its billing has ended before.
    pub(super) fn leave(&self, instance: &str, to: InstanceState, reason: &str) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap();
        let machine =
            state.machines.iter_mut().find(|machine| machine.view.id == instance).unwrap();
        if machine.view.state.bills() {
            machine.dark = Some(now);
        }
        if machine.view.state.bills()
            || (to, machine.view.state) == (InstanceState::Terminated, InstanceState::Stopped)
        {
            (machine.view.state, machine.view.ended) = (to, Some(now));
            machine.view.state_reason = Some(reason.into());
        }
    }
}
