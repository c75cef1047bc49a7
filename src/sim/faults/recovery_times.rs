//! What a fault alone takes: where it struck, and how long it was from then until what it asks for
//! was there.
//!
//! Not here: anything that changes what happens; it looks on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::single_fault::{Lone, LoneFault, Moment};
use crate::sim::world::machines::Machine;
use crate::sim::world::workload::Start;
use crate::sim::world::world::{OWNER, World};

/// From the fault on; `None`: it never came to that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Its machine bills no longer.
    pub dark: Option<Duration>,
    /// How long before the fault it billed no longer.
    pub early: Duration,
    /// It is terminated or stopped.
    pub gone: Option<Duration>,
    /// The next start of the work begins.
    pub goes_on: Option<Duration>,
    /// How much of the work that start does again, in whole steps.
    pub lost: Option<Duration>,
    /// The next checkpoint is kept, where there was anything new to keep.
    pub saved: Option<Duration>,
    /// The next agent comes up.
    pub agent: Option<Duration>,
    /// A start of the work that was begun by then has gone on to its end.
    pub went_on: bool,
    /// Machines that were bought afterwards, and when the first of them was.
    pub bought: usize,
    pub bought_at: Option<Duration>,
}

/// Where and when it struck.
#[derive(Clone, Debug)]
pub(crate) struct Struck {
    lone: Lone,
    id: String,
    since: Duration,
    /// Of what its work had done by then.
    is_all_saved: bool,
}

/// Between two looks at what the work comes to.
const LOOK: Duration = Duration::from_secs(1);

fn last_start(machine: &Machine) -> Option<Arc<Start>> {
    let host = machine.host.as_ref()?;
    let state = host.state();
    state.starts.iter().rev().find(|start| !start.is_setup()).cloned()
}

/// When it struck this machine, if it has by `now`.
fn since(machine: &Machine, lone: Lone, now: Duration, at: Duration) -> Option<Duration> {
    // It may have been at any moment since the look before: no time is told too short.
    let seen = || now.saturating_sub(LOOK);
    match (lone.fault.moment(), lone.fault) {
        (Moment::Launch, _) => Some(machine.launched),
        (Moment::RunTime, _) => {
            Some(machine.launched + Duration::from_secs(lone.max_runtime()? * 60))
        }
        (Moment::Dice, LoneFault::CancelAtLaunch) => Some(at),
        (Moment::Dice, _) => machine.state().bills().then_some(at),
        (Moment::Work, fault) => {
            let start = last_start(machine)?;
            let truth = start.truth();
            match fault {
                LoneFault::Hangs => truth.hung_since,
                LoneFault::Idles => truth.quiet_since,
                // The first time; what is run again fails again.
                LoneFault::Fails => start.is_over().then(seen),
                _ => (start.is_over() && truth.step >= lone.steps()).then(seen),
            }
        }
    }
}

/// Waits for it to strike, and says where. Nothing is changed by it.
pub(crate) async fn watch(
    world: Arc<World>,
    lone: Lone,
    at: Duration,
    struck: Arc<Mutex<Option<Struck>>>,
) {
    let waits = lone.fault.moment() != Moment::Dice || lone.fault == LoneFault::CancelAtLaunch;
    // Just before: who is struck may be gone at once.
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
    *struck.lock().expect("nobody panics while setting it") = found;
}

/// What came of it, once the world has come to its end.
pub(crate) fn measure(world: &World, struck: &Struck) -> Measured {
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
        Measured {
            dark: ended.map(after),
            early: ended.map(|ended| since.saturating_sub(ended)).unwrap_or_default(),
            gone: machine.and_then(Machine::gone).map(after),
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
