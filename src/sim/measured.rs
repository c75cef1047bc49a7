//! What a fault alone takes: where it struck, and how long it was from then until what it asks for was there.
//!
//! What must never live here: anything that changes what happens; it looks on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::ec2::Machine;
use super::lone::{Lone, LoneFault, Moment, STEP, STEPS};
use super::timeline::at as wall;
use super::workload::Start;
use super::world::{OWNER, World};
use crate::instance::Tags;

/// From the fault on; `None`: it never came to that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Its machine bills no longer.
    pub dark: Option<Duration>,
    /// It is terminated or stopped.
    pub gone: Option<Duration>,
    /// The next start of the work begins.
    pub goes_on: Option<Duration>,
    /// How much of the work that start does again, in whole steps.
    pub lost: Option<Duration>,
    /// A start of the work that was begun by then has gone on to its end.
    pub went_on: bool,
    /// Machines that were bought afterwards.
    pub bought: usize,
}

/// Where and when it struck.
#[derive(Clone, Debug)]
pub(super) struct Struck {
    id: String,
    since: Duration,
}

fn last_start(machine: &Machine) -> Option<Arc<Start>> {
    let host = machine.host.as_ref()?;
    let state = host.state();
    state.starts.iter().rev().find(|start| !start.is_setup()).cloned()
}

/// When the hard end of a machine is, by its tags.
fn hard_end(machine: &Machine) -> Option<Duration> {
    let kill_at = Tags::from_map(&machine.tags).ok()?.kill_at?;
    Duration::try_from(kill_at.duration_since(wall(Duration::ZERO))).ok()
}

/// When it struck this machine, if it has by `now`.
fn since(machine: &Machine, fault: LoneFault, now: Duration, at: Duration) -> Option<Duration> {
    let truth = || Some(last_start(machine)?.truth());
    match fault.moment() {
        Moment::Launch => Some(machine.launched),
        Moment::HardEnd => hard_end(machine),
        Moment::Dice => Some(at),
        Moment::Work => match fault {
            LoneFault::Hangs => truth()?.hung_since,
            LoneFault::Idles => truth()?.quiet_since,
            _ => last_start(machine).filter(|start| start.is_over()).map(|_| now),
        },
    }
}

/// Waits for it to strike, and says where. Nothing is changed by it.
pub(super) async fn watch(world: Arc<World>, lone: Lone, at: Duration, struck: Arc<Mutex<Option<Struck>>>) {
    let by_dice = lone.fault.moment() == Moment::Dice;
    // Just before: who is struck may be gone at once.
    if by_dice {
        world.timeline.sleep(at.saturating_sub(Duration::from_secs(1))).await;
    }
    let found = loop {
        let now = world.timeline.now();
        let found = world.ec2.look(|machines| {
            let mut ours = machines.iter().filter(|machine| machine.owner() == Some(OWNER) && machine.is_of_a_plan());
            let machine = ours.find(|machine| lone.fault.moment() == Moment::Launch || machine.state().bills())?;
            Some(Struck { id: machine.id.clone(), since: since(machine, lone.fault, now, at)? })
        });
        if found.is_some() || by_dice {
            break found;
        }
        world.timeline.sleep(Duration::from_secs(1)).await;
    };
    *struck.lock().expect("nobody panics while setting it") = found;
}

/// What came of it, once the world has come to its end.
pub(super) fn measure(world: &World, struck: &Struck) -> Measured {
    let after = |moment: Duration| moment.saturating_sub(struck.since);
    world.ec2.look(|machines| {
        let ours = || machines.iter().filter(|machine| machine.owner() == Some(OWNER) && machine.is_of_a_plan());
        let machine = ours().find(|machine| machine.id == struck.id);
        let starts: Vec<Arc<Start>> = ours()
            .filter_map(|machine| machine.host.clone())
            .flat_map(|host| host.state().starts.clone())
            .filter(|start| !start.is_setup())
            .collect();
        let next = starts.iter().filter(|start| start.began() > struck.since).min_by_key(|start| start.began());
        let before = starts.iter().filter(|start| start.began() <= struck.since).max_by_key(|start| start.began());
        let worked = |steps: u64| STEP * u32::try_from(steps).unwrap_or(u32::MAX);
        let from = |start: &Arc<Start>| start.truth().step.saturating_sub(start.truth().steps);
        let again = |next: &Arc<Start>| Some(worked(before?.truth().step.saturating_sub(from(next))));
        Measured {
            dark: machine.and_then(|machine| machine.ended).map(after),
            gone: machine.and_then(Machine::gone).map(after),
            goes_on: next.map(|start| after(start.began())),
            lost: next.and_then(again),
            went_on: before.is_some_and(|start| start.truth().step >= STEPS),
            bought: ours().filter(|machine| machine.launched > struck.since).count(),
        }
    })
}
