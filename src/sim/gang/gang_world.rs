//! The truth of a gang: which engines work together, and what hinders a single rank.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::job::Plan;
use crate::sim::kernel::rng::Dice;
use crate::sim::laws::observer::Judge;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::machines::SimMachine;
use crate::sim::world::process::SimProcess;
use crate::sim::world::world::{OWNER, World, which};

/// The step of a rank must be so young for its machine to count as working, beside two steps.
const WORKS_WITHIN: Duration = Duration::from_secs(120);

/// A rank whose engine fails, at half of the work.
#[derive(Clone, Copy, Debug)]
pub struct RankFailure {
    pub rank: u32,
    pub code: i32,
    /// How often it fails.
    pub times: u32,
}

pub struct GangWorld {
    pub(super) dice: Dice,
    ranks: u32,
    state: Mutex<GangState>,
}

#[derive(Default)]
struct GangState {
    epochs: BTreeMap<u32, Collective>,
    /// The most steps that an epoch has done.
    reached: u64,
    failure: Option<RankFailure>,
    /// How many machines of a rank never run an agent.
    boots_failing: BTreeMap<u32, u32>,
    /// The most machines that EC2 has for one call, and until when.
    room: Option<(u32, Duration)>,
    /// How long each call of the store takes, and until when.
    slow: Option<(Duration, Duration)>,
    /// The network between a rank and the others is cut until then.
    split: BTreeMap<u32, Duration>,
    /// A rank does not reach the store until then.
    offline: BTreeMap<u32, Duration>,
    /// By machine: the minutes in a row without work.
    waits: BTreeMap<String, u32>,
}

/// The engines of one epoch.
struct Collective {
    meeting: Meeting,
    /// By the place in the formation.
    engines: BTreeMap<u32, PeerEngine>,
    done: u64,
}

struct PeerEngine {
    rank: u32,
    kernel: Arc<SimProcess>,
    begun: u64,
    at: u64,
    has_ended: bool,
}

/// Where the engines of an epoch meet. All of them must know the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meeting {
    pub rendezvous: String,
    pub master: String,
    pub nodes: u32,
}

/// One engine, as it was started.
#[derive(Clone, Debug)]
pub(super) struct EnginePlace {
    pub epoch: u32,
    pub rank: u32,
    pub node: u32,
    pub meeting: Meeting,
}

/// The other ranks as an engine sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    /// All have done this step.
    Together,
    Waiting,
    /// One has ended: its connections are reset.
    Gone,
}

impl GangWorld {
    pub fn new(dice: Dice, ranks: u32, failure: Option<RankFailure>) -> Self {
        let state = Mutex::new(GangState { failure, ..GangState::default() });
        GangWorld { dice, ranks, state }
    }

    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    pub fn reached(&self) -> u64 {
        self.state().reached
    }

    /// The machine that has waited longest, with its minutes.
    pub fn longest_wait(&self) -> Option<(String, u32)> {
        let state = self.state();
        let longest = state.waits.iter().max_by_key(|(_, minutes)| **minutes)?;
        Some((longest.0.clone(), *longest.1))
    }

    /// An engine starts with the checkpoint of a step. Returns the broken laws.
    pub(super) fn arrive(
        &self,
        place: &EnginePlace,
        kernel: &Arc<SimProcess>,
        begun: u64,
    ) -> Vec<(u8, String)> {
        let (mut state, mut broken) = (self.state(), Vec::new());
        let fresh =
            || Collective { meeting: place.meeting.clone(), engines: BTreeMap::new(), done: 0 };
        let collective = state.epochs.entry(place.epoch).or_insert_with(fresh);
        if collective.meeting != place.meeting {
            let (one, other) = (&collective.meeting, &place.meeting);
            broken.push((21, format!("epoch {} has two worlds: {one:?}, {other:?}", place.epoch)));
        }
        let is_twice = |engine: &PeerEngine| !engine.has_ended && !engine.kernel.is_dead();
        if collective.engines.get(&place.node).is_some_and(is_twice) {
            broken.push((21, format!("epoch {} has two of node {}", place.epoch, place.node)));
        }
        if let Some(other) = collective.engines.values().find(|other| other.begun != begun) {
            broken.push((
                23,
                format!(
                    "in epoch {} rank {} begins at step {begun}, and rank {} at {}",
                    place.epoch, place.rank, other.rank, other.begun
                ),
            ));
        }
        let kernel = Arc::clone(kernel);
        let engine = PeerEngine { rank: place.rank, kernel, begun, at: begun, has_ended: false };
        collective.engines.insert(place.node, engine);
        broken
    }

    pub(super) fn leave(&self, place: &EnginePlace) {
        let mut state = self.state();
        let collective = state.epochs.get_mut(&place.epoch);
        let engine = collective.and_then(|collective| collective.engines.get_mut(&place.node));
        engine.into_iter().for_each(|engine| engine.has_ended = true);
    }

    /// This engine has computed its part of a step.
    pub(super) fn computed(&self, place: &EnginePlace, step: u64) {
        let mut state = self.state();
        let collective = state.epochs.get_mut(&place.epoch);
        let engine = collective.and_then(|collective| collective.engines.get_mut(&place.node));
        engine.into_iter().for_each(|engine| engine.at = step);
    }

    /// Whether all engines of the epoch have come to this step.
    pub(super) fn look(&self, place: &EnginePlace, step: u64, now: Duration) -> Peers {
        let state = self.state();
        let Some(collective) = state.epochs.get(&place.epoch) else { return Peers::Waiting };
        let is_cut =
            |engine: &PeerEngine| state.split.get(&engine.rank).is_some_and(|cut| now < *cut);
        if place.meeting.nodes > 1 && collective.engines.values().any(is_cut) {
            return Peers::Waiting;
        }
        // A machine without power or with a kernel that hangs resets no connection.
        let is_gone = |engine: &PeerEngine| {
            engine.kernel.is_running() && engine.has_ended && engine.at < step.max(1)
        };
        if collective.engines.values().any(is_gone) {
            return Peers::Gone;
        }
        let is_there = |engine: &PeerEngine| {
            engine.at >= step && (engine.has_ended || engine.kernel.is_running())
        };
        let all = collective.engines.values().filter(|engine| is_there(engine)).count();
        if all >= place.meeting.nodes as usize { Peers::Together } else { Peers::Waiting }
    }

    /// All engines of an epoch have done a step. Returns the broken laws.
    pub(super) fn did(&self, place: &EnginePlace, step: u64) -> Option<(u8, String)> {
        let mut state = self.state();
        state.reached = state.reached.max(step);
        let later = state.epochs.range(place.epoch + 1..).find(|(_, later)| later.done > 0);
        let later = later.map(|(epoch, _)| *epoch);
        let collective = state.epochs.get_mut(&place.epoch)?;
        let is_new = collective.done < step;
        collective.done = collective.done.max(step);
        let later = later.filter(|_| is_new)?;
        Some((21, format!("epoch {} does step {step} beside epoch {later}", place.epoch)))
    }

    /// The exit code of an engine that fails before this step.
    pub(super) fn failure(&self, rank: u32, step: u64, steps: u64) -> Option<i32> {
        let mut state = self.state();
        let failure = state.failure.as_mut()?;
        if failure.rank != rank || failure.times == 0 || step <= steps / 2 {
            return None;
        }
        failure.times -= 1;
        Some(failure.code)
    }

    /// Whether the machine of this plan never runs an agent.
    pub fn fails_to_boot(&self, plan: &Plan) -> bool {
        let (rank, _) = which(plan.job.as_str(), 0);
        let mut state = self.state();
        let Some(left) = state.boots_failing.get_mut(&rank).filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }

    /// The most machines that EC2 has for one call.
    pub fn room(&self, now: Duration) -> u32 {
        self.state().room.filter(|(_, until)| now < *until).map_or(u32::MAX, |(most, _)| most)
    }

    /// How long a call of the store takes beside the usual time.
    pub fn store_takes(&self, now: Duration) -> Option<Duration> {
        self.state().slow.filter(|(_, until)| now < *until).map(|(takes, _)| takes)
    }

    pub fn is_offline(&self, rank: u32, now: Duration) -> bool {
        self.state().offline.get(&rank).is_some_and(|until| now < *until)
    }

    /// Whether a decision at this moment was made without the store, or just after. The agent reads
    /// what the others do once a minute at the latest.
    pub fn was_offline(&self, rank: u32, told: Duration) -> bool {
        const READ_AGAIN: Duration = Duration::from_secs(60);
        self.is_offline(rank, told.saturating_sub(READ_AGAIN))
    }

    pub(super) fn fail_boots(&self, rank: u32, times: u32) {
        self.state().boots_failing.insert(rank, times);
    }

    pub(super) fn limit_room(&self, machines: u32, until: Duration) {
        self.state().room = Some((machines, until));
    }

    pub(super) fn slow_store(&self, takes: Duration, until: Duration) {
        self.state().slow = Some((takes, until));
    }

    pub(super) fn split(&self, rank: u32, until: Duration) {
        self.state().split.insert(rank, until);
    }

    pub(super) fn take_offline(&self, rank: u32, until: Duration) {
        self.state().offline.insert(rank, until);
    }

    /// All faults of ranks are over.
    pub(super) fn make_well(&self) {
        let mut state = self.state();
        (state.room, state.slow) = (None, None);
        state.boots_failing.clear();
        state.split.clear();
        state.offline.clear();
    }

    /// Counts the minutes without work of each machine that bills. Only a sweeper that can work
    /// bounds them for every machine.
    pub fn count_minute(&self, world: &World) {
        let now = world.timeline.now();
        let is_healthy = world.swept
            && Judge::can_sweep(world)
            && !world.weather.is(WorldFault::Ec2Throttled)
            && self.store_takes(now).is_none();
        let within = world.habit.step * 2 + WORKS_WITHIN;
        let works = |machine: &SimMachine| {
            let host = machine.host.as_ref()?;
            let start = host.state().starts.last().cloned()?;
            let truth = start.truth();
            let is_young = now.saturating_sub(truth.moved) < within;
            Some(start.is_busy() && truth.steps > 0 && is_young)
        };
        let billing: Vec<(String, bool)> = world.ec2.look(|machines| {
            let ours = machines
                .iter()
                .filter(|machine| machine.owner() == Some(OWNER) && machine.state().bills());
            ours.map(|machine| (machine.id.clone(), works(machine).unwrap_or_default())).collect()
        });
        let mut state = self.state();
        let before = std::mem::take(&mut state.waits);
        let count = |(id, works): (String, bool)| {
            let waited = before.get(&id).copied().unwrap_or_default();
            let minutes = if works { 0 } else { waited + u32::from(is_healthy) };
            (id, minutes)
        };
        state.waits = billing.into_iter().map(count).collect();
    }

    fn state(&self) -> MutexGuard<'_, GangState> {
        self.state.lock().expect("the lock is not poisoned")
    }
}
