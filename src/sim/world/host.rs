//! A machine from boot to end: a kernel, the shipped agent under a service manager, the deadline
//! unit, a disk, and the processes that the agent starts.
//!
//! Not here: what the agent decides. It is the shipped one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::active_faults::WorldFault;
use super::disk::MemoryDisk;
use super::host_ports::{HostClock, Ports};
use super::process::SimProcess;
use super::process_ports::{SensesThrough, Through};
use super::sensors::Senses;
use super::store::Line;
use super::watchdog::Watchdog;
use super::workload::{Habit, Start};
use super::world::{Which, World, which};
use crate::agent::shutdown::deadman::SwitchFiles;
use crate::agent::startup::boot::{BootPorts, boot};
use crate::agent::{AGENT_STATE_FILE, Agent, AgentPorts, AgentState, Folders};
use crate::instance::Notice;
use crate::job::{Plan, Shutdown};
use crate::ports::{Clock, Files, Metadata, Nobody, Power, Service, Store, Workloads};
use crate::sim::faults::planted_bugs::Bug;
use crate::sim::kernel::virtual_time::nanos;

/// Where the deadline unit reads its deadline, seconds since 1970 (systemd/lamp-deadman.service).
const DEADLINE: &str = "/etc/lamplighter/deadline";
/// Where it reads the agent's last sign of life, and how many seconds a silence may last. It is in
/// memory.
const ALIVE: &str = "/run/lamplighter/alive";
/// The deadline that user data sets at first.
pub const BOOT_TTL: Duration = Duration::from_secs(15 * 60);
/// The cloud's checks notice a dead host after this time.
const CHECKED_WITHIN: Duration = Duration::from_secs(120);
/// How often the unit checks.
const DEADMAN_EVERY: Duration = Duration::from_secs(60);
const DEADMAN_LOOKS_AGAIN: Duration = Duration::from_secs(30);
/// `RestartSec` of the agent's unit.
const RESTART: Duration = Duration::from_secs(2);
/// Where the agent keeps its state.
const STATE: &str = "/var/lib/lamplighter/agent";
/// Where systemd/lamp-boot.service counts boots without a lease, and at which count it powers off.
const BOOTS: &str = "/var/lib/lamplighter/agent/boots";
const BOOTS_MAX: u32 = 3;

pub struct Host {
    pub world: Arc<World>,
    pub id: String,
    pub plan: Plan,
    pub kernel: Arc<SimProcess>,
    pub disk: Arc<MemoryDisk>,
    /// How far the machine's wall clock is off, milliseconds.
    wall_off: AtomicI64,
    clock_was_set: AtomicBool,
    /// Its power-off failed.
    power_failed: AtomicBool,
    pub boots: AtomicU32,
    /// When its kernel began, by the world's steady clock.
    life: AtomicU64,
    /// Its GPU is broken from the start.
    pub lacks_gpu: bool,
    /// How its first boot ends.
    first_boot: BootOutcome,
    pub state: Mutex<HostState>,
    booted: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BootOutcome {
    Well,
    /// The deadline unit, and no agent: its download failed, or it does not run there.
    NoAgent,
    /// The kernel hangs.
    Dark,
}

#[derive(Default)]
pub struct HostState {
    pub agent: Option<Arc<SimProcess>>,
    /// When each agent started.
    pub agents: Vec<Duration>,
    pub starts: Vec<Arc<Start>>,
    pub notices: Vec<Notice>,
    /// The GPU errors that its driver reported.
    pub xids: Vec<u64>,
    /// How many more agents crash soon after they start.
    pub crash_loop: u32,
    /// When an agent died last.
    pub last_death: Option<Duration>,
    /// Since when its deadline unit powers it off. No program can cancel that.
    pub switched: Option<Duration>,
    /// Since when its hardware is dead.
    dead: Option<Duration>,
    /// A crash after the n-th call of the first agent: for the exhaustive test.
    pub reboot: Option<Arc<SimProcess>>,
}

impl Host {
    pub fn new(world: &Arc<World>, id: &str, plan: &Plan) -> Arc<Self> {
        let lacks_gpu = world.roughly.is_rough && world.dice.faults.percent(2);
        let first_boot = match () {
            () if world.weather.is(WorldFault::BadBoots) => {
                world.dice.newer.pick(&[BootOutcome::NoAgent, BootOutcome::Dark])
            }
            () if world.gang().is_some_and(|gang| gang.fails_to_boot(plan)) => BootOutcome::NoAgent,
            () if world.weather.is(WorldFault::NoAgents) => BootOutcome::NoAgent,
            () if world.weather.is(WorldFault::DarkBoots) => BootOutcome::Dark,
            () => BootOutcome::Well,
        };
        Arc::new(Host { first_boot, ..Host::fresh(world, id, plan, lacks_gpu) })
    }

    fn fresh(world: &Arc<World>, id: &str, plan: &Plan, lacks_gpu: bool) -> Self {
        Host {
            world: Arc::clone(world),
            id: id.to_owned(),
            plan: plan.clone(),
            kernel: SimProcess::new(None),
            disk: MemoryDisk::new(Arc::clone(&world.timeline)),
            wall_off: AtomicI64::new(0),
            clock_was_set: AtomicBool::new(false),
            power_failed: AtomicBool::new(false),
            boots: AtomicU32::new(0),
            life: AtomicU64::default(),
            lacks_gpu,
            first_boot: BootOutcome::Well,
            state: Mutex::default(),
            booted: world.timeline.wall(),
        }
    }

    /// The same machine, started again for another attempt: its disk is what it was.
    pub fn again(before: &Arc<Self>, plan: &Plan) -> Arc<Self> {
        // Its bill has the time before the stop too (seed 63002937 of 24 h).
        let power_failed = AtomicBool::new(before.hung_in_its_end());
        Arc::new(Host {
            disk: Arc::clone(&before.disk),
            power_failed,
            ..Host::fresh(&before.world, &before.id, plan, before.lacks_gpu)
        })
    }

    pub fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().expect("the lock is not poisoned")
    }

    /// From power-on to the end of the kernel.
    pub async fn run(self: Arc<Self>) {
        if self.first_boot != BootOutcome::Well {
            self.world
                .told(format_args!("{}: its first boot fails: {:?}", self.id, self.first_boot));
            self.kernel.freeze(self.first_boot == BootOutcome::Dark);
        }
        let ttl = (self.booted + BOOT_TTL).as_second();
        let _ = self.disk.write(Path::new(DEADLINE), format!("{ttl}\n").as_bytes());
        tokio::select! {
            biased;
            () = self.kernel.died() => {}
            () = self.deadman() => {}
            () = self.boots() => {}
        }
    }

    /// Whether the agent's state says that the machine is terminating.
    pub fn tells_its_end(&self) -> bool {
        let memory = self.disk.read(&Path::new(STATE).join(AGENT_STATE_FILE)).ok().flatten();
        memory
            .and_then(|body| serde_json::from_slice::<AgentState>(&body).ok())
            .is_some_and(|memory| memory.is_terminating())
    }

    /// The deadline unit. It reads two files, and does not know the agent.
    async fn deadman(&self) {
        loop {
            self.world.timeline.sleep(DEADMAN_EVERY).await;
            self.kernel.running().await;
            let has_passed = || {
                self.is_silent() || self.deadline().is_some_and(|deadline| self.wall() >= deadline)
            };
            if !has_passed() {
                continue;
            }
            self.world.timeline.sleep(DEADMAN_LOOKS_AGAIN).await;
            self.kernel.running().await;
            if has_passed() {
                self.world.told(format_args!(
                    "{}: the deadline has passed or the agent is silent, the unit powers off",
                    self.id
                ));
                self.state().switched = Some(self.world.timeline.now());
                self.world.timeline.sleep(Duration::from_secs(5)).await;
                self.kernel.running().await;
                self.go_dark();
                // Its power switch does nothing.
                self.state().switched = None;
            }
        }
    }

    /// The hardware dies. Only the cloud's own checks show it, minutes later.
    pub fn die(&self) {
        self.kernel.freeze(true);
        self.state().dead.get_or_insert(self.world.timeline.now());
    }

    pub fn revive(&self) {
        self.kernel.freeze(false);
        self.state().dead = None;
    }

    /// How long the cloud's checks have failed.
    pub fn fails_for(&self, now: Duration) -> Duration {
        self.state().dead.map_or(Duration::ZERO, |since| now.saturating_sub(since + CHECKED_WITHIN))
    }

    /// One boot after the other; a reboot ends everything but the disk.
    async fn boots(self: &Arc<Self>) {
        loop {
            let boot = SimProcess::new(Some(Arc::clone(&self.kernel)));
            self.state().reboot = Some(Arc::clone(&boot));
            self.boots.fetch_add(1, Ordering::Relaxed);
            self.life.store(nanos(self.world.timeline.now()), Ordering::Relaxed);
            if self.begin_boot() {
                self.go_dark();
            }
            tokio::select! {
                biased;
                () = boot.died() => {}
                () = self.supervise(&boot) => {}
            }
            self.world.told(format_args!("{}: reboots", self.id));
            for start in &self.state().starts {
                start.vanish();
            }
            self.world.timeline.sleep(Duration::from_secs(45)).await;
            self.kernel.running().await;
            self.world.began_anew(self.attempt());
        }
    }

    /// As systemd/lamp-boot.service does: each boot gets a deadline, and the third boot in a row
    /// without a lease powers off.
    fn begin_boot(&self) -> bool {
        // It was in memory, so a reboot clears it.
        let _ = self.disk.remove(Path::new(ALIVE));
        let path = Path::new(BOOTS);
        let count = self
            .disk
            .read(path)
            .ok()
            .flatten()
            .and_then(|bytes| String::from_utf8(bytes).ok()?.trim().parse::<u32>().ok())
            .unwrap_or(0)
            + 1;
        if count >= BOOTS_MAX {
            let _ = self.disk.remove(path);
            return true;
        }
        let _ = self.disk.write(path, format!("{count}\n").as_bytes());
        let (now, boot) = (self.wall(), BOOT_TTL);
        if !self.deadline().is_some_and(|deadline| now < deadline && deadline <= now + boot) {
            let _ = self
                .disk
                .write(Path::new(DEADLINE), format!("{}\n", (now + boot).as_second()).as_bytes());
        }
        false
    }

    /// `Restart=always`.
    async fn supervise(self: &Arc<Self>, boot: &Arc<SimProcess>) {
        if self.first_boot == BootOutcome::NoAgent {
            return std::future::pending().await;
        }
        loop {
            let dies = self.world.next_death("agent").or_else(|| {
                let mut state = self.state();
                state.crash_loop = state.crash_loop.checked_sub(1)?;
                Some((self.world.dice.faults.roll(60) + 1, true))
            });
            if self.world.planted() == Some(Bug::AgentForgets) {
                let _ = self.disk.remove(Path::new(STATE));
            }
            let agent = SimProcess::mortal(Some(Arc::clone(boot)), dies);
            self.state().agents.push(self.world.timeline.now());
            self.state().agent = Some(Arc::clone(&agent));
            let counted = CallCount { world: &self.world, kind: "agent", process: &agent };
            let watchdog = Watchdog::new(&self.world.timeline, &agent);
            tokio::task::spawn_local(Arc::clone(self).watch(Arc::clone(&watchdog)));
            tokio::select! {
                biased;
                () = agent.died() => self.world.told(format_args!("{}: the agent died", self.id)),
                () = self.agent(&agent, watchdog) => {}
            }
            drop(counted);
            agent.kill();
            self.state().last_death = Some(self.world.timeline.now());
            self.world.began_anew(self.attempt());
            self.world.timeline.sleep(RESTART).await;
            boot.running().await;
        }
    }

    /// Runs beside one agent, and ends it once it is silent for too long.
    async fn watch(self: Arc<Self>, watchdog: Arc<Watchdog>) {
        if watchdog.watch(&self.kernel).await {
            self.world.told(format_args!(
                "{}: the agent was silent and the watchdog has ended it",
                self.id
            ));
        }
    }

    /// Runs the shipped agent until it ends.
    async fn agent(self: &Arc<Self>, process: &Arc<SimProcess>, service: Arc<dyn Service>) {
        let clock: Arc<dyn Clock> =
            Arc::new(HostClock { host: Arc::clone(self), process: Arc::clone(process) });
        let files: Arc<dyn Files> =
            Through::<dyn Files>::new(process, Arc::clone(&self.disk) as Arc<dyn Files>);
        let line = Line {
            world: Arc::clone(&self.world),
            who: self.id.clone(),
            cut_by: WorldFault::MachineOffline,
            disk: Some(Arc::clone(&self.disk)),
        };
        let store: Arc<dyn Store> = Through::<dyn Store>::new(process, Arc::new(line));
        let this = || Arc::new(Ports(Arc::clone(self)));
        let metadata: Arc<dyn Metadata> = Through::<dyn Metadata>::new(process, this());
        let power: Arc<dyn Power> = Through::<dyn Power>::new(process, this());
        let workloads: Arc<dyn Workloads> = Through::<dyn Workloads>::new(process, this());
        let ports = BootPorts {
            clock,
            files,
            store,
            metadata,
            power,
            service,
            nonce: format!("nonce of {}", self.id),
        };
        let folders = Folders {
            work: "/lamp/work".into(),
            state: STATE.into(),
            cache: "/var/cache/lamplighter".into(),
        };
        let Ok((attempt, outbox, memory)) = boot(&ports, folders).await else { return };
        let world = AgentPorts {
            sensors: Box::new(SensesThrough(
                Arc::clone(process),
                Box::new(Senses::new(Arc::clone(self))),
            )),
            workloads,
            metadata: Some(ports.metadata),
            power: ports.power,
            insist: true,
            own_network: Arc::default(),
            switch_files: Some(SwitchFiles { deadline: DEADLINE.into(), alive: ALIVE.into() }),
            own_machine: true,
            meter: None,
            exposed: None,
            service: ports.service,
            stacks: this(),
            people: Arc::new(Nobody),
            signals: tokio::sync::watch::channel(0).1,
        };
        Agent::new(attempt, world, outbox, memory).run().await;
    }

    fn attempt(&self) -> Which {
        which(self.plan.job.as_str(), self.plan.attempt.number())
    }

    /// How its workload behaves. A continued job has twice the steps.
    pub fn habit(&self) -> Habit {
        let habit = self.world.habit;
        Habit {
            steps: if self.attempt().0 == 0 || self.world.gang().is_some() {
                habit.steps
            } else {
                2 * habit.steps
            },
            ..habit
        }
    }

    /// The machine's own clock, which may be wrong.
    pub fn wall(&self) -> Timestamp {
        self.world.timeline.wall()
            + SignedDuration::from_millis(self.wall_off.load(Ordering::Relaxed))
    }

    /// How far its clock is ahead of the true time.
    pub fn is_fast_by(&self) -> Duration {
        Duration::from_millis(
            u64::try_from(self.wall_off.load(Ordering::Relaxed)).unwrap_or_default(),
        )
    }

    /// Sets its clock to the true time plus `off` milliseconds.
    pub fn set_clock(&self, off: i64) {
        if self.wall_off.swap(off, Ordering::Relaxed) != off {
            self.clock_was_set.store(true, Ordering::Relaxed);
        }
    }

    /// Whether its clock was always right.
    pub fn knows_the_time(&self) -> bool {
        !self.clock_was_set.load(Ordering::Relaxed)
    }

    /// Whether its agent has been silent for longer than a lease.
    fn is_silent(&self) -> bool {
        let numbers = || {
            let bytes = self.disk.read(Path::new(ALIVE)).ok().flatten()?;
            let text = String::from_utf8(bytes).ok()?;
            let (at, lease) = text.trim().split_once(' ')?;
            Some(at.parse::<i64>().ok()? + lease.parse::<i64>().ok()?)
        };
        numbers().is_some_and(|until| self.wall().as_second() >= until)
    }

    /// The deadline that its unit reads.
    pub fn deadline(&self) -> Option<Timestamp> {
        let bytes = self.disk.read(Path::new(DEADLINE)).ok().flatten()?;
        Timestamp::from_second(std::str::from_utf8(&bytes).ok()?.trim().parse().ok()?).ok()
    }

    /// When its kernel began.
    pub(crate) fn life(&self) -> Duration {
        Duration::from_nanos(self.life.load(Ordering::Relaxed))
    }

    pub(crate) fn booted(&self) -> Timestamp {
        self.booted
    }

    pub(crate) fn power_fails(&self) -> bool {
        let fails = self.world.weather.is(WorldFault::PowerBroken);
        if fails && !self.power_failed.swap(true, Ordering::Relaxed) {
            self.world.told(format_args!("{}: its power switch does nothing", self.id));
        }
        fails
    }

    /// Whether it ever hung in its power-off, also before a restart.
    pub fn hung_in_its_end(&self) -> bool {
        self.kernel.was_frozen() || self.power_failed.load(Ordering::Relaxed)
    }

    /// Stops or terminates the machine, as its launch request says.
    pub(crate) fn go_dark(&self) {
        if self.power_fails() {
            return;
        }
        let reason = "Client.InstanceInitiatedShutdown: Instance initiated shutdown";
        match self.plan.launch.as_ref().map(|launch| launch.shutdown) {
            Some(Shutdown::Stop) => self.world.ec2.stop(&self.world, &self.id, reason),
            _ => self.world.ec2.terminate(&self.world, &self.id, reason),
        }
    }
}

/// Counts the calls of a process when it is dropped.
pub struct CallCount<'a> {
    pub world: &'a World,
    pub kind: &'static str,
    pub process: &'a SimProcess,
}

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        self.world.count_calls(self.kind, self.process.calls());
    }
}
