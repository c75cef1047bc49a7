//! One world: its time, active faults, cloud and store, and the judge that checks every deed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use super::active_faults::Weather;
use super::host::Host;
use super::machines::Ec2;
use super::offers::SimMarket;
use super::store::Objects;
use super::workload::{Habit, Start};
use crate::instance::{InstanceState, InstanceView};
use crate::job::{JobId, Plan, ResolvedSpec, leader_key, member_key};
use crate::sim::faults::planted_bugs::Bug;
use crate::sim::gang::gang_world::GangWorld;
use crate::sim::kernel::rng::Dice;
use crate::sim::kernel::trace::Trace;
use crate::sim::kernel::virtual_time::Timeline;
use crate::sim::laws::laws::LAWS;
use crate::sim::laws::observer::Judge;

/// The owner tag of our machines.
pub const OWNER: &str = "me";

/// The job of every world; one that goes on from it has another name.
pub const JOB: &str = "digits-222222";

/// An attempt: the number of its job, and its own. The job of a rank has the number of the rank. A
/// continued job has 1.
pub type Which = (u32, u32);

pub fn which(job: &str, attempt: u32) -> Which {
    if job == JOB {
        return (0, attempt);
    }
    let rank = member_key(job).filter(|(key, _)| leader_key(JOB).as_ref() == Some(key));
    (rank.map_or(1, |(_, rank)| rank), attempt)
}

/// The most violations that are reported.
const VIOLATIONS_MAX: usize = 10;

/// A change in the world. Each one is traced and judged.
pub enum Deed<'a> {
    Launched {
        plan: &'a Plan,
        id: &'a str,
        new: bool,
        by: &'a str,
    },
    Described {
        by: &'a str,
        views: &'a [InstanceView],
    },
    Asked {
        ask: EndRequest,
        id: &'a str,
        by: &'a str,
    },
    State {
        id: &'a str,
        state: InstanceState,
        reason: &'a str,
    },
    Wrote {
        key: &'a str,
        body: &'a Bytes,
        by: &'a str,
        new: bool,
    },
    Started {
        host: &'a Host,
        start: &'a Start,
        step: u64,
    },
    /// The cloud gives a machine notice: it takes the machine after `ahead`.
    Noticed {
        host: &'a Host,
        ahead: Duration,
    },
    /// A minute has passed.
    Minute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndRequest {
    Terminate,
    Stop,
}

/// A law was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in `laws`.
    pub law: u8,
    pub at_secs: u64,
    pub what: String,
}

/// Chance, by concern.
pub struct DiceBox {
    pub store: Dice,
    /// Whether the caller waits for a lost reply of the store.
    pub late: Dice,
    /// Whether a write lands after its sender gave up, and when.
    pub landing: Dice,
    pub cloud: Dice,
    pub faults: Dice,
    /// For faults that were added later: the rolls of the other dice stay the same.
    pub newer: Dice,
}

/// Kinds of random faults beside the fault plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roughly {
    /// It has random faults.
    pub is_rough: bool,
    /// A write that timed out may take effect minutes later, and replaces newer writes.
    pub writes_land_late: bool,
}

#[derive(Default)]
struct Deaths {
    wanted: Option<Death>,
    /// The calls of all processes of that kind that have ended.
    calls: u64,
}

pub struct World {
    pub timeline: Arc<Timeline>,
    pub weather: Weather,
    pub dice: DiceBox,
    pub objects: Objects,
    pub ec2: Ec2,
    pub spec: ResolvedSpec,
    pub habit: Habit,
    pub sold: SimMarket,
    /// Whether a sweeper of ours runs in the cloud (switch E).
    pub swept: bool,
    pub roughly: Roughly,
    planted: Option<Bug>,
    /// The job that goes on from the first one.
    pub goes_on: OnceLock<JobId>,
    /// Its job has several machines.
    gang: OnceLock<GangWorld>,
    held_back: Mutex<Vec<(String, Bytes)>>,
    trace: Mutex<Trace>,
    judge: Mutex<Judge>,
    violations: Mutex<Vec<Violation>>,
    deaths: Mutex<Deaths>,
}

/// The kind of process, the call at which it dies, and whether that call takes effect.
pub type Death = (&'static str, u64, bool);

impl World {
    pub fn new(
        timeline: Arc<Timeline>,
        dice: &Dice,
        spec: ResolvedSpec,
        habit: Habit,
        (swept, roughly): (bool, Roughly),
        (death, planted): (Option<Death>, Option<Bug>),
        sold: SimMarket,
    ) -> Arc<Self> {
        Arc::new(World {
            weather: Weather::new(Arc::clone(&timeline)),
            dice: DiceBox {
                store: dice.fork("store"),
                late: dice.fork("late"),
                landing: dice.fork("landing"),
                cloud: dice.fork("cloud"),
                faults: dice.fork("faults"),
                newer: dice.fork("newer faults"),
            },
            objects: Objects::default(),
            ec2: Ec2::default(),
            judge: Mutex::new(Judge::new(&spec)),
            spec,
            habit,
            sold,
            swept,
            roughly,
            planted,
            goes_on: OnceLock::new(),
            gang: OnceLock::new(),
            held_back: Mutex::default(),
            trace: Mutex::default(),
            violations: Mutex::default(),
            deaths: Mutex::new(Deaths { wanted: death, calls: 0 }),
            timeline,
        })
    }

    pub fn job(&self) -> &JobId {
        &self.spec.job
    }

    /// `None`: its job has one machine.
    pub fn gang(&self) -> Option<&GangWorld> {
        self.gang.get()
    }

    /// The machine of one rank does not reach the store, and the others do.
    pub fn is_cut_alone(&self, machine: &str, at: Duration) -> bool {
        self.gang().is_some_and(|gang| {
            let rank = self.ec2.with(machine, |machine| machine.attempt());
            rank.flatten().is_some_and(|(rank, _)| gang.is_offline(rank, at))
        })
    }

    /// From now on its job has several machines.
    pub fn begin_gang(&self, gang: GangWorld) {
        let _first = self.gang.set(gang);
    }

    /// The continued job if there is one.
    pub fn newest_job(&self) -> &JobId {
        self.goes_on.get().unwrap_or(&self.spec.job)
    }

    /// A line for readers of the full story: it changes only a machine's own disk.
    pub fn aside(&self, what: fmt::Arguments<'_>) {
        self.trace().aside(self.timeline.now(), what);
    }

    /// A line of the trace that is also shown to people.
    pub fn told(&self, what: fmt::Arguments<'_>) {
        self.trace().add(self.timeline.now(), true, what);
    }

    /// Traces a deed and holds every law against it.
    pub fn happened(&self, deed: &Deed<'_>) {
        self.write_down(deed);
        let mut judge = self.judge.lock().expect("the lock is not poisoned");
        judge.take_note(self, deed);
        for (number, law) in LAWS {
            if let Err(what) = law(&judge, self, deed) {
                self.violated(*number, what);
            }
        }
        judge.forget(self, deed);
    }

    fn write_down(&self, deed: &Deed<'_>) {
        let now = self.timeline.now();
        let mut trace = self.trace();
        match deed {
            Deed::Launched { plan, id, new, by } => {
                trace.add(
                    now,
                    true,
                    format_args!(
                        "{by} launches attempt {}: {id}{}",
                        plan.attempt,
                        if *new { "" } else { ", known" }
                    ),
                );
            }
            Deed::Described { by, views } => {
                trace.add(now, false, format_args!("{by} describes: {}", views.len()))
            }
            Deed::Asked { ask, id, by } => {
                trace.add(now, true, format_args!("{by} asks: {ask:?} {id}"))
            }
            Deed::State { id, state, reason } => {
                trace.add(now, true, format_args!("{id} is {state} {reason}"))
            }
            Deed::Wrote { key, body, by, new } => {
                let told = *new && key.ends_with(".json") && !key.contains("/samples/");
                trace.add(
                    now,
                    told,
                    format_args!("{by} writes {key} {} {:016x}", body.len(), fnv(body)),
                );
            }
            Deed::Started { host, start, step } => trace.add(
                now,
                true,
                format_args!("{} starts {} at step {step}", host.id, start.launch.name),
            ),
            Deed::Noticed { .. } | Deed::Minute => {}
        }
    }

    pub fn violated(&self, law: u8, what: String) {
        let mut violations = self.violations.lock().expect("the lock is not poisoned");
        if violations.len() < VIOLATIONS_MAX
            && !violations.iter().any(|before| before.law == law && before.what == what)
        {
            self.told(format_args!("LAW {law} IS BROKEN: {what}"));
            violations.push(Violation { law, at_secs: self.timeline.now().as_secs(), what });
        }
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.violations.lock().expect("the lock is not poisoned").clone()
    }

    pub fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().expect("the lock is not poisoned")
    }

    /// Writes that a planted bug delays.
    pub fn held_back(&self) -> MutexGuard<'_, Vec<(String, Bytes)>> {
        self.held_back.lock().expect("the lock is not poisoned")
    }

    /// When the next process of this kind must die. Calls are counted over all processes of the
    /// kind.
    pub fn next_death(&self, kind: &'static str) -> Option<(u64, bool)> {
        let deaths = self.deaths();
        let (_, call, after) = deaths.wanted.filter(|(whose, ..)| *whose == kind)?;
        (call > deaths.calls).then(|| (call - deaths.calls, after))
    }

    /// Adds the calls of an ended process.
    pub fn count_calls(&self, kind: &'static str, calls: u64) {
        let mut deaths = self.deaths();
        if deaths.wanted.is_some_and(|(whose, ..)| whose == kind) {
            deaths.calls += calls;
        }
    }

    /// Whether the planned death happened.
    pub fn has_died(&self) -> bool {
        let deaths = self.deaths();
        deaths.wanted.is_some_and(|(_, call, _)| deaths.calls >= call)
    }

    fn deaths(&self) -> MutexGuard<'_, Deaths> {
        self.deaths.lock().expect("the lock is not poisoned")
    }

    /// The bug that this world plants. In builds that ship it is always `None`, and the compiler
    /// removes every planted bug.
    pub fn planted(&self) -> Option<Bug> {
        if cfg!(feature = "planted") { self.planted } else { None }
    }

    /// The newest step that a complete checkpoint in the store holds.
    pub fn kept(&self) -> u64 {
        self.judge.lock().expect("the lock is not poisoned").committed.unwrap_or(0)
    }

    /// The machines that the sweeper must end on a visit that begins now.
    pub fn due(&self) -> Vec<String> {
        self.judge.lock().expect("the lock is not poisoned").due()
    }

    /// Such a visit has ended without errors.
    pub fn visited(&self, mut due: Vec<String>) {
        due.retain(|id| self.ec2.with(id, |machine| machine.state().bills()) == Some(true));
        self.judge.lock().expect("the lock is not poisoned").visited(due);
    }

    /// The next controller begins to watch anew.
    pub fn controller_died(&self, who: &str) {
        self.judge.lock().expect("the lock is not poisoned").controller_died(who);
    }

    /// The time that an estimate of its bill may lack: the minutes without use while the sweeper
    /// could not end the machine (seed 102665). `None`: any time, because it hung in its power-off
    /// (seed 101112, docs/promises.md).
    pub fn estimate_may_lack(&self, id: &str, attempt: Option<Which>) -> Option<Duration> {
        let judge = self.judge.lock().expect("the lock is not poisoned");
        let host = self.ec2.with(id, |machine| machine.host.clone())?;
        let is_over = attempt.is_some_and(|attempt| judge.outcomes.contains_key(&attempt));
        if is_over && host.is_some_and(|host| host.hung_in_its_end()) {
            return None;
        }
        // An agent that dies during its power-off begins it again (seed 15 of six hours). So does
        // one whose machine reboots (seed 65021981 of 24 h: the store loses half of the writes).
        let died = attempt.and_then(|attempt| {
            Some((*judge.deaths.get(&attempt)?, *judge.outcomes.get(&attempt)?))
        });
        let again = died.map_or(Duration::ZERO, |(died, over)| died.saturating_sub(over));
        // Seed 37018485 of 24 h: a kernel that never came up, while the cloud of the sweeper was
        // throttled for an hour.
        let minutes = |of: &BTreeMap<String, u32>| of.get(id).copied().unwrap_or_default();
        Some(
            again
                + Duration::from_secs(
                    u64::from(minutes(&judge.unswept) + minutes(&judge.throttled)) * 60,
                ),
        )
    }

    /// An agent of an attempt died, or its machine has come up again.
    pub fn began_anew(&self, attempt: Which) {
        self.judge
            .lock()
            .expect("the lock is not poisoned")
            .deaths
            .insert(attempt, self.timeline.now());
    }

    /// Whether kernel and agent of the running machine work. True if there is no machine.
    pub fn is_well(&self) -> bool {
        let runs = |host: &Host| {
            host.kernel.is_running()
                && host.state().agent.as_ref().is_some_and(|agent| agent.is_running())
        };
        self.ec2.running(OWNER).is_none_or(|host| runs(&host))
    }

    pub fn has_a_stuck_end(&self) -> bool {
        self.ec2.look(|machines| {
            machines
                .iter()
                .any(|machine| machine.owner() == Some(OWNER) && machine.hangs_in_its_end())
        })
    }

    /// Drops all references to the world.
    pub fn dismantle(&self) {
        self.ec2.clear();
        self.objects.clear();
    }
}

/// FNV-1a: enough to see that two bodies differ.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
