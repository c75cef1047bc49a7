//! Measures the recovery after a single fault: the time from the fault to each step of the
//! recovery.
//!
//! It only reads, and changes nothing in the world.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::single_fault::{FaultStart, Lone, LoneFault};
use crate::sim::world::machines::SimMachine;
use crate::sim::world::workload::Start;
use crate::sim::world::world::{OWNER, World};

/// Times since the fault; `None`: it never happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryTimes {
    /// Its machine stopped billing.
    pub dark: Option<Duration>,
    /// How long before the fault it stopped billing.
    pub early: Duration,
    /// It is terminated or stopped.
    pub gone: Option<Duration>,
    /// The next start of the work begins.
    pub goes_on: Option<Duration>,
    /// How much work that start repeats, in whole steps.
    pub lost: Option<Duration>,
    /// The next checkpoint is uploaded, if there was new work.
    pub saved: Option<Duration>,
    /// The next agent starts.
    pub agent: Option<Duration>,
    /// The start that ran at the fault reached its last step.
    pub went_on: bool,
    /// How many machines were launched after the fault, and when the first was.
    pub bought: usize,
    pub bought_at: Option<Duration>,
}

/// The machine and the time of the fault.
#[derive(Clone, Debug)]
pub(crate) struct Struck {
    lone: Lone,
    id: String,
    since: Duration,
    /// Whether all its work was saved at the fault.
    is_all_saved: bool,
}

/// The time between two checks of the work.
const LOOK: Duration = Duration::from_secs(1);

fn last_start(machine: &SimMachine) -> Option<Arc<Start>> {
    let host = machine.host.as_ref()?;
    let state = host.state();
    state.starts.iter().rev().find(|start| !start.is_setup()).cloned()
}

/// When the fault struck this machine, if it has by `now`.
fn since(machine: &SimMachine, lone: Lone, now: Duration, at: Duration) -> Option<Duration> {
    // It may have happened at any time since the last check, so no measured time is too short.
    let seen = || now.saturating_sub(LOOK);
    match (lone.fault.moment(), lone.fault) {
        (FaultStart::Launch, _) => Some(machine.launched),
        (FaultStart::RunTime, _) => {
            Some(machine.launched + Duration::from_secs(lone.max_runtime()? * 60))
        }
        (FaultStart::Dice, LoneFault::CancelAtLaunch) => Some(at),
        (FaultStart::Dice, _) => machine.state().bills().then_some(at),
        (FaultStart::Work, fault) => {
            let start = last_start(machine)?;
            let truth = start.truth();
            match fault {
                LoneFault::Hangs => truth.hung_since,
                LoneFault::Idles => truth.quiet_since,
                // Only the first failure counts. Later starts fail again.
                LoneFault::Fails => start.is_over().then(seen),
                _ => (start.is_over() && truth.step >= lone.steps()).then(seen),
            }
        }
    }
}

/// Waits for the fault, and stores where it struck. It changes nothing in the world.
pub(crate) async fn watch(
    world: Arc<World>,
    lone: Lone,
    at: Duration,
    struck: Arc<Mutex<Option<Struck>>>,
) {
    let waits = lone.fault.moment() != FaultStart::Dice || lone.fault == LoneFault::CancelAtLaunch;
    // Just before the fault, because it may end the machine at once.
    if !waits {
        world.timeline.sleep(at.saturating_sub(LOOK)).await;
    }
    let found = loop {
        let now = world.timeline.now();
        let found = world.ec2.look(|machines| {
            let mut ours = machines
                .iter()
                .filter(|machine| machine.owner() == Some(OWNER) && machine.is_of_a_plan());
            ours.find_map(|machine| {
                let since = since(machine, lone, now, at)?;
                let truth = last_start(machine).map(|start| start.truth());
                let is_all_saved = truth
                    .is_some_and(|truth| truth.saved.is_some_and(|(step, _)| step == truth.step));
                Some(Struck { lone, id: machine.id.clone(), since, is_all_saved })
            })
        });
        if found.is_some() || !waits {
            break found;
        }
        world.timeline.sleep(LOOK).await;
    };
    *struck.lock().expect("the lock is not poisoned") = found;
}

/// Measures the recovery at the end of the world.
pub(crate) fn measure(world: &World, struck: &Struck) -> RecoveryTimes {
    let (since, lone) = (struck.since, struck.lone);
    let after = |moment: Duration| moment.saturating_sub(since);
    let saved = if struck.is_all_saved {
        Some(since)
    } else {
        world.objects.born_after("manifest.json", since)
    };
    world.ec2.look(|machines| {
        let ours = || {
            machines
                .iter()
                .filter(|machine| machine.owner() == Some(OWNER) && machine.is_of_a_plan())
        };
        let machine = ours().find(|machine| machine.id == struck.id);
        let hosts = || ours().filter_map(|machine| machine.host.clone());
        let starts: Vec<Arc<Start>> = hosts()
            .flat_map(|host| host.state().starts.clone())
            .filter(|start| !start.is_setup())
            .collect();
        let next =
            starts.iter().filter(|start| start.began() > since).min_by_key(|start| start.began());
        let before =
            starts.iter().filter(|start| start.began() <= since).max_by_key(|start| start.began());
        let worked = |steps: u64| lone.step() * u32::try_from(steps).unwrap_or(u32::MAX);
        let from = |start: &Arc<Start>| start.truth().step.saturating_sub(start.truth().steps);
        let again =
            |next: &Arc<Start>| Some(worked(before?.truth().step.saturating_sub(from(next))));
        let others = || ours().filter(|machine| machine.id != struck.id);
        let bought =
            || others().map(|machine| machine.launched).filter(|launched| *launched > since);
        let ended = machine.and_then(|machine| machine.ended);
        RecoveryTimes {
            dark: ended.map(after),
            early: ended.map(|ended| since.saturating_sub(ended)).unwrap_or_default(),
            gone: machine.and_then(SimMachine::gone).map(after),
            goes_on: next.map(|start| after(start.began())),
            lost: next.and_then(again),
            saved: saved.map(after),
            agent: hosts()
                .flat_map(|host| host.state().agents.clone())
                .filter(|came| *came > since)
                .min()
                .map(after),
            went_on: before.is_some_and(|start| start.truth().step >= lone.steps()),
            bought: bought().count(),
            bought_at: bought().min().map(after),
        }
    })
}
