//! The simulated training: steps with a log line and a progress line each, checkpoints
//! (`super::training_checkpoints`), and failures. It outlives its agents. A reboot ends it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use super::host::Host;
use super::host_ports::Ports;
use super::process::SimProcess;
use super::training_checkpoints::SaveStyle;
use super::world::Deed;
use crate::job::ExitStatus;
use crate::ports::{Ended, Files, Launch, Scope, Signal, Workload, WorkloadError, Workloads};
use crate::sim::faults::planted_bugs::Bug;
use crate::sim::gang::rank_program;

/// How a workload behaves, at each start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habit {
    pub steps: u64,
    pub step: Duration,
    pub save_every: u64,
    pub saves: SaveStyle,
    /// How it ends.
    pub end: WorkEnd,
    /// It saves on SIGUSR1.
    pub saves_when_asked: bool,
    pub ignores_term: bool,
    /// It uses no CPU.
    pub quiet: bool,
    /// The time from its start to its first step: it loads and compiles.
    pub prepares: Duration,
}

impl Habit {
    /// Its steps alone.
    pub(crate) fn work(&self) -> Duration {
        self.step.saturating_mul(u32::try_from(self.steps).unwrap_or(u32::MAX))
    }

    /// With its saves, because no steps are computed during a save (seed 37016122 of 24 h: 22 hours
    /// of steps take 37 hours).
    pub(crate) fn whole(&self) -> Duration {
        self.prepares
            + self.work()
            + self
                .saves
                .takes()
                .saturating_mul(u32::try_from(self.steps / self.save_every).unwrap_or(u32::MAX))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkEnd {
    Succeeds,
    /// With this exit code, after half of its steps, at its first start only.
    FailsOnce(i32),
    Fails(i32),
    /// A collective that never returns, after half of its steps, at its first start only. The GPU
    /// is busy without progress.
    HangsOnce,
    Hangs,
    /// It waits after half of its steps, and does nothing.
    Idles,
}

/// SIGKILL, and the signal of a collective that lost its GPU.
pub(crate) const KILLED: i32 = 9;
pub const ABORTED: i32 = 6;

/// One start.
pub struct Start {
    pub launch: Launch,
    ended: watch::Sender<Option<Ended>>,
    pub(crate) told: Notify,
    pub(crate) asked: Notify,
    printed: AtomicU64,
    pub(crate) busy: AtomicBool,
    /// A reboot ended it. No agent finds it again.
    gone: AtomicBool,
    pub(crate) life: Arc<SimProcess>,
    began: Duration,
    truth: Mutex<Truth>,
    /// The file that it is writing.
    open: Mutex<Option<PathBuf>>,
}

/// The true state of the training. The laws compare records with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth {
    pub step: u64,
    /// When its last step was done; before the first, when it began.
    pub moved: Duration,
    /// The newest step whose checkpoint is whole on the disk, and since when.
    pub saved: Option<(u64, Duration)>,
    /// The steps of this start.
    pub steps: u64,
    /// The time computed for the current step, and since when it computes. `None`: it waits or
    /// saves.
    begun: Duration,
    computes_since: Option<Duration>,
    /// Since when it does nothing.
    pub quiet_since: Option<Duration>,
    /// Since when its collective hangs: the GPU is busy without progress.
    pub hung_since: Option<Duration>,
}

impl Truth {
    /// The time computed so far for the step that is not done.
    pub fn of_a_step(&self, now: Duration) -> Duration {
        self.begun + self.computes_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

impl Start {
    pub fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.ended.borrow().is_some()
    }

    /// A signal ended it.
    pub fn was_ended(&self) -> bool {
        self.ended
            .borrow()
            .is_some_and(|ended| ended.exit.signal == Some(KILLED) || ended.exit.code == Some(143))
    }

    /// It failed before its first step, without a signal.
    pub fn failed_at_once(&self) -> bool {
        let failed = self.ended.borrow().is_some_and(|ended| !ended.exit.success());
        failed && !self.was_ended() && self.truth().steps == 0
    }

    pub fn is_busy(&self) -> bool {
        !self.is_over() && self.busy.load(Ordering::Relaxed)
    }

    /// Neither it nor its machine has ended.
    pub fn lives(&self) -> bool {
        !self.is_over() && !self.life.is_dead()
    }

    pub fn began(&self) -> Duration {
        self.began
    }

    pub fn truth(&self) -> Truth {
        *self.truth.lock().expect("the lock is not poisoned")
    }

    pub fn is_setup(&self) -> bool {
        self.launch.argv.iter().any(|argument| argument == "-ec")
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Truth)) {
        change(&mut self.truth.lock().expect("the lock is not poisoned"));
    }

    /// Starts or stops to compute.
    pub(crate) fn computes(&self, goes_on: bool, now: Duration) {
        self.change(|truth| {
            let begun = truth.of_a_step(now);
            (truth.begun, truth.computes_since) = (begun, goes_on.then_some(now));
        });
    }

    pub fn vanish(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.life.kill();
    }

    pub fn end(&self, code: i32) {
        self.end_with(ExitStatus { code: Some(code), ..ExitStatus::default() });
    }

    /// Ended by a signal.
    pub fn end_by(&self, signal: i32) {
        self.end_with(ExitStatus { signal: Some(signal), ..ExitStatus::default() });
    }

    fn end_with(&self, exit: ExitStatus) {
        self.busy.store(false, Ordering::Relaxed);
        self.ended.send_if_modified(|ended| {
            ended.is_none()
                && ended.replace(Ended { exit, orphans: 0, ..Default::default() }).is_none()
        });
        self.life.kill();
    }

    async fn live(&self, host: &Host, habit: Habit, first: bool) {
        let resumed = habit.saves.resumed(host, &self.folder());
        self.change(|truth| (truth.step, truth.moved) = (resumed, host.world.timeline.now()));
        host.world.happened(&Deed::Started { host, start: self, step: resumed });
        if habit.saves.announces() {
            self.mark(host, resumed);
        }
        if !habit.prepares.is_zero() && !self.prepare(host, habit).await {
            return self.end(143);
        }
        let half = habit.steps / 2;
        for step in resumed + 1..=habit.steps {
            if step > half {
                match habit.end {
                    WorkEnd::FailsOnce(code) if first => return self.end(code),
                    WorkEnd::Fails(code) => return self.end(code),
                    WorkEnd::Idles => {
                        self.busy.store(false, Ordering::Relaxed);
                        self.change(|truth| truth.quiet_since = Some(host.world.timeline.now()));
                        return self.wait_for_term(habit).await;
                    }
                    WorkEnd::Hangs | WorkEnd::HangsOnce if first || habit.end == WorkEnd::Hangs => {
                        self.change(|truth| truth.hung_since = Some(host.world.timeline.now()));
                        return self.wait_for_term(habit).await;
                    }
                    _ => {}
                }
            }
            if !self.step(host, habit, step).await {
                return self.end(143);
            }
            self.print(host, &format!("step {step}"));
            self.progress(host, &format!("{{\"step\": {step}, \"total\": {}}}", habit.steps));
            self.change(|truth| {
                (truth.step, truth.steps, truth.moved) =
                    (step, truth.steps + 1, host.world.timeline.now());
                (truth.begun, truth.computes_since) = (Duration::ZERO, None);
            });
            if step % habit.save_every == 0 || step == habit.steps {
                self.save(host, habit, step).await;
            }
        }
        self.end(0);
    }

    /// False: it got SIGTERM and ends. A request to save has no effect yet.
    async fn prepare(&self, host: &Host, habit: Habit) -> bool {
        let ready = host.world.timeline.sleep(habit.prepares);
        tokio::pin!(ready);
        loop {
            tokio::select! {
                biased;
                () = self.told.notified() => if !habit.ignores_term { return false },
                () = &mut ready => break,
            }
        }
        self.life.running().await;
        true
    }

    /// False: it got SIGTERM and ends.
    async fn step(&self, host: &Host, habit: Habit, step: u64) -> bool {
        let mut until = host.world.timeline.now() + habit.step;
        self.computes(true, host.world.timeline.now());
        loop {
            let left = until.saturating_sub(host.world.timeline.now());
            tokio::select! {
                biased;
                () = self.told.notified() => if !habit.ignores_term { return false },
                () = self.asked.notified() => {
                    let began = host.world.timeline.now();
                    self.computes(false, began);
                    self.save(host, habit, step - 1).await;
                    // Nothing is computed meanwhile.
                    until += host.world.timeline.now() - began;
                    self.computes(true, host.world.timeline.now());
                }
                () = host.world.timeline.sleep(left) => break,
            }
        }
        self.life.running().await;
        true
    }

    async fn wait_for_term(&self, habit: Habit) {
        loop {
            self.told.notified().await;
            if !habit.ignores_term {
                return self.end(143);
            }
        }
    }

    fn folder(&self) -> PathBuf {
        self.launch
            .env
            .get("LAMP_CHECKPOINT_DIR")
            .map(PathBuf::from)
            .unwrap_or_else(|| "/lamp/work/ckpt".into())
    }

    /// If the disk is full, the old checkpoint stays.
    pub(crate) async fn save(&self, host: &Host, habit: Habit, step: u64) {
        if !habit
            .saves
            .write(host, &self.folder(), step, &self.open, async || self.life.running().await)
            .await
        {
            return;
        }
        self.change(|truth| truth.saved = Some((step, host.world.timeline.now())));
        if habit.saves.marks() {
            self.mark(host, step);
        }
    }

    pub(crate) fn mark(&self, host: &Host, step: u64) {
        self.progress(host, &format!("{{\"step\": {step}, \"checkpoint\": \"step-{step}\"}}"));
    }

    pub(crate) fn print(&self, host: &Host, line: &str) {
        let _ = host
            .disk
            .append(&self.launch.dir.join("log/00000001.log"), format!("{line}\n").as_bytes());
        self.printed.fetch_add(line.len() as u64 + 1, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self, host: &Host, line: &str) {
        host.world.aside(format_args!("{} tells {line}", host.id));
        if let Some(path) = self.launch.env.get("LAMP_PROGRESS") {
            let _ = host.disk.append(Path::new(path), format!("{line}\n").as_bytes());
        }
    }
}

#[async_trait]
impl Workloads for Ports {
    async fn start(&self, launch: &Launch) -> Result<Box<dyn Workload>, WorkloadError> {
        let host = &self.0;
        let cannot =
            |kind: io::ErrorKind| WorkloadError::Failed { act: "start", cause: kind.into() };
        if host.state().starts.iter().any(|start| start.launch.dir == launch.dir) {
            return Err(cannot(io::ErrorKind::AlreadyExists));
        }
        // The holder writes its record before it begins.
        host.disk
            .write(&launch.dir.join("launch.json"), b"{}")
            .map_err(|error| cannot(error.kind()))?;
        let on = host.state().reboot.clone();
        let (ended, _) = watch::channel(None);
        let start = Arc::new(Start {
            launch: launch.clone(),
            ended,
            told: Notify::new(),
            asked: Notify::new(),
            printed: AtomicU64::new(0),
            busy: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            life: SimProcess::new(on),
            began: host.world.timeline.now(),
            truth: Mutex::default(),
            open: Mutex::default(),
        });
        let first = {
            let mut state = host.state();
            let running = state.starts.iter().any(|other| !other.is_over());
            let first = !state.starts.iter().any(|other| !other.is_setup());
            state.starts.push(Arc::clone(&start));
            drop(state);
            if running {
                host.world.violated(
                    1,
                    format!("{} was started beside another on {}", launch.name, host.id),
                );
            }
            first && host.plan.attempt.number() == 1
        };
        let (living, host) = (Arc::clone(&start), Arc::clone(host));
        tokio::task::spawn_local(async move {
            let habit = host.habit();
            let is_rank = rank_program::is_rank(&host, &living.launch);
            tokio::select! {
                biased;
                () = living.life.died() => {}
                () = rank_program::run(&living, &host), if is_rank => {}
                () = living.live(&host, habit, first), if !is_rank => {}
            }
            living.computes(false, host.world.timeline.now());
            let exit = living.ended.borrow().map(|ended| ended.exit);
            host.world.aside(format_args!("{} ends {}: {exit:?}", host.id, living.launch.name));
        });
        Ok(Box::new(Handle(start)))
    }

    async fn attach(&self, dir: &Path) -> Result<Option<Box<dyn Workload>>, WorkloadError> {
        let forgets = self.0.world.planted() == Some(Bug::SecondWorkload);
        let state = self.0.state();
        let found = state
            .starts
            .iter()
            .filter(|_| !forgets)
            .find(|start| start.launch.dir == dir && !start.gone.load(Ordering::Relaxed));
        Ok(found.map(|start| Box::new(Handle(Arc::clone(start))) as Box<dyn Workload>))
    }
}

struct Handle(Arc<Start>);

#[async_trait]
impl Workload for Handle {
    fn scope(&self) -> Scope {
        Scope::default()
    }
    async fn ended(&self) -> Ended {
        let mut ended = self.0.ended.subscribe();
        let found = ended.wait_for(Option::is_some).await.map(|found| *found);
        match found {
            Ok(ended) => ended.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
    fn signal(&self, signal: Signal) -> Result<(), WorkloadError> {
        match signal {
            Signal::Term => self.0.told.notify_one(),
            Signal::Kill => self.0.end_by(KILLED),
            _ => {}
        }
        Ok(())
    }
    fn ask(&self, _: Signal) -> Result<u32, WorkloadError> {
        if self.0.is_over() {
            return Ok(0);
        }
        self.0.asked.notify_one();
        Ok(1)
    }
    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        self.0.end_by(KILLED);
        Ok(())
    }
    fn printed(&self) -> (u64, u64) {
        (self.0.printed.load(Ordering::Relaxed), 0)
    }
    async fn open_for_writing(&self, folder: &Path) -> Option<BTreeSet<String>> {
        Some(
            self.0
                .open
                .lock()
                .expect("the lock is not poisoned")
                .iter()
                .filter_map(|path| Some(path.strip_prefix(folder).ok()?.to_str()?.to_owned()))
                .collect(),
        )
    }
}
