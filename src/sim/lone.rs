//! One fault alone, in a world where all else is well, and how long it takes until what it asks for is there: what the bounds of the
//! fault matrix come to with the shipped controller and agent, in virtual time.
//!
//! ```text
//!   Lone { fault, watching } ──> its work, its one fault, who is there ──> play ──> Measured: dark, gone, goes on, lost
//! ```
//! What must never live here: a bound (docs/promises.md tells them, tests/sim/bounds.rs asks for them).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dice::Dice;
use super::ec2::Machine;
use super::fates::{Due, Fate};
use super::weather::Trouble;
use super::workload::{End, Habit, Start};
use super::world::{OWNER, World};
use crate::market::Market;

/// A fault, and who is there to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lone {
    pub fault: LoneFault,
    pub watching: Watching,
}

/// What happens once, at a moment of the dice while the work is done; or what the work comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoneFault {
    /// None: the work ends, and its machine after it.
    Done,
    Fails,
    Hangs,
    Idles,
    /// The work ends, and no power switch from within does anything.
    PowerBroken,
    /// On the first machine nothing of ours comes up, or nothing but its deadline unit.
    BadBoot,
    /// EC2 withdraws the first machine before it has run.
    Withdrawn,
    KernelHang,
    HostDies,
    /// Whatever agent comes up dies.
    AgentGone,
    Reboot,
    /// A spot machine is taken, after two minutes of notice or without any.
    Noticed,
    Taken,
    /// The notice comes, and the machine stays.
    NotTaken,
    Rebalance,
    /// A machine is taken, and for an hour there is none in any zone and market.
    NoRoom,
    GpuLost,
    ConsoleEnd,
    Stop,
    Cancel,
    /// A cancelled machine hangs in its end.
    StuckEnd,
    /// One is cancelled whose kernel hangs, while EC2 throttles for ten minutes.
    Throttled,
    /// Somebody takes from the machine's role what it may do in the job root, while the work goes on.
    RoleGone,
}

/// Who looks after the machine from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watching {
    /// A workstation that is awake, and the sweeper in the cloud.
    Both,
    /// The workstation sleeps from three minutes after the beginning on.
    Sweeper,
    /// No sweeper is installed.
    Workstation,
}

impl Watching {
    pub fn words(self) -> &'static str {
        match self {
            Watching::Both => "workstation and sweeper",
            Watching::Sweeper => "no workstation",
            Watching::Workstation => "no sweeper",
        }
    }
}

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

/// An hour and a half of work in steps of twenty seconds, which saves once a minute; its job asks for a checkpoint every two.
const STEPS: u64 = 270;
const STEP: Duration = Duration::from_secs(20);
const SAVE_EVERY: u64 = 3;

/// The fault comes within these: the work has begun, and is not done.
const FROM: Duration = Duration::from_secs(10 * 60);
const TO: Duration = Duration::from_secs(80 * 60);

/// When a laptop that is to sleep does so: what it launched is known to it.
const LID: Duration = Duration::from_secs(180);

/// The first launch is within it, and none that follows.
const WITHDRAWS: Duration = Duration::from_secs(30);

const NO_ROOM: Duration = Duration::from_secs(3600);
const THROTTLED: Duration = Duration::from_secs(600);

/// For as long as there are faults.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

impl Lone {
    /// Every fault with everybody who can do something about it.
    pub fn all() -> Vec<Lone> {
        use LoneFault::{
            AgentGone, BadBoot, Cancel, ConsoleEnd, Done, Fails, GpuLost, Hangs, HostDies, Idles, KernelHang, NoRoom, NotTaken, Noticed, PowerBroken,
            Rebalance, Reboot, RoleGone, Stop, StuckEnd, Taken, Throttled, Withdrawn,
        };
        use Watching::{Both, Sweeper, Workstation};
        // Nobody need be there from outside, so that nobody is.
        let from_within = [Done, Fails, Hangs, Idles, Reboot, NotTaken, Rebalance].map(|fault| Lone { fault, watching: Sweeper });
        let from_outside = [PowerBroken, BadBoot, KernelHang, HostDies, AgentGone, RoleGone];
        let from_outside = from_outside.into_iter().flat_map(|fault| [Both, Sweeper, Workstation].map(|watching| Lone { fault, watching }));
        let by_workstation =
            [Noticed, Taken, NoRoom, Withdrawn, GpuLost, ConsoleEnd, Stop, Cancel, StuckEnd, Throttled].map(|fault| Lone { fault, watching: Both });
        from_within.into_iter().chain(from_outside).chain(by_workstation).collect()
    }

    pub(super) fn habit(self, habit: Habit) -> Habit {
        let end = match self.fault {
            LoneFault::Fails => End::Fails(3),
            LoneFault::Hangs => End::Hangs,
            LoneFault::Idles => End::Idles,
            _ => End::Succeeds,
        };
        // Who saves when it is asked loses nothing to a notice; who does not, what came after its last save.
        let saves_when_asked = self.fault == LoneFault::Noticed || habit.saves_when_asked;
        Habit { steps: STEPS, step: STEP, save_every: SAVE_EVERY, saves_when_asked, end, ignores_term: false, quiet: false, ..habit }
    }

    /// On which market its machine is, where that matters.
    pub(super) fn market(self) -> Option<Market> {
        matches!(self.fault, LoneFault::Noticed | LoneFault::Taken | LoneFault::NotTaken | LoneFault::Rebalance | LoneFault::NoRoom)
            .then_some(Market::Spot)
    }

    pub(super) fn is_swept(self) -> bool {
        self.watching != Watching::Workstation
    }

    /// When it strikes, if it strikes at a moment of its own.
    pub(super) fn at(dice: &Dice) -> Duration {
        dice.fork("moment").between(FROM, TO)
    }

    pub(super) fn due(self, dice: &Dice) -> Vec<Due> {
        let at = Self::at(dice);
        let now = |fate| vec![Due { at, fate }];
        let weather = |trouble, at| Due { at, fate: Fate::Weather(trouble, FOR_GOOD) };
        let mut due = match self.fault {
            LoneFault::Done | LoneFault::Fails | LoneFault::Hangs | LoneFault::Idles => Vec::new(),
            LoneFault::PowerBroken => vec![weather(Trouble::PowerBroken, Duration::ZERO)],
            LoneFault::BadBoot => vec![Due { at: Duration::ZERO, fate: Fate::Weather(Trouble::BadBoots, LID) }],
            LoneFault::Withdrawn => vec![Due { at: Duration::ZERO, fate: Fate::Weather(Trouble::Withdraws, WITHDRAWS) }],
            LoneFault::KernelHang => now(Fate::KernelHang),
            LoneFault::HostDies => now(Fate::HostDies),
            LoneFault::AgentGone => now(Fate::AgentGone),
            LoneFault::Reboot => now(Fate::Reboot),
            LoneFault::Noticed => now(Fate::Reclaim { notice: Some(Duration::from_secs(120)), takes: true }),
            LoneFault::Taken => now(Fate::Reclaim { notice: None, takes: true }),
            LoneFault::NotTaken => now(Fate::Reclaim { notice: Some(Duration::from_secs(120)), takes: false }),
            LoneFault::Rebalance => now(Fate::Rebalance),
            LoneFault::NoRoom => {
                let empty = |trouble| Fate::Weather(trouble, NO_ROOM);
                let taken = Fate::Reclaim { notice: None, takes: true };
                [empty(Trouble::NoCapacityA), empty(Trouble::NoCapacityB), taken].map(|fate| Due { at, fate }).into()
            }
            LoneFault::GpuLost => now(Fate::Xid(true)),
            LoneFault::ConsoleEnd => now(Fate::ConsoleTerminate),
            LoneFault::Stop => now(Fate::Stop),
            LoneFault::Cancel => now(Fate::Cancel),
            LoneFault::StuckEnd => vec![weather(Trouble::StuckEnds, at), Due { at, fate: Fate::Cancel }],
            LoneFault::Throttled => {
                [Fate::KernelHang, Fate::Weather(Trouble::Ec2Throttled, THROTTLED), Fate::Cancel].map(|fate| Due { at, fate }).into()
            }
            LoneFault::RoleGone => vec![weather(Trouble::RoleGone, at)],
        };
        if self.watching == Watching::Sweeper {
            due.push(Due { at: LID, fate: Fate::LaptopSleep(FOR_GOOD) });
        }
        due.sort_by_key(|due| due.at);
        due
    }
}

fn last_start(machine: &Machine) -> Option<Arc<Start>> {
    let host = machine.host.as_ref()?;
    let state = host.state();
    state.starts.iter().rev().find(|start| !start.is_setup()).cloned()
}

/// Waits for it to strike, and says where. Nothing is changed by it.
pub(super) async fn watch(world: Arc<World>, lone: Lone, at: Duration, struck: Arc<Mutex<Option<Struck>>>) {
    let by_its_launch = matches!(lone.fault, LoneFault::BadBoot | LoneFault::Withdrawn);
    let by_its_work = [LoneFault::Done, LoneFault::Fails, LoneFault::Hangs, LoneFault::Idles, LoneFault::PowerBroken];
    let by_itself = by_its_launch || by_its_work.contains(&lone.fault);
    // Just before: who is struck may be gone at once.
    if !by_itself {
        world.timeline.sleep(at.saturating_sub(Duration::from_secs(1))).await;
    }
    let found = loop {
        let now = world.timeline.now();
        let found = world.ec2.look(|machines| {
            let mut ours = machines.iter().filter(|machine| machine.owner() == Some(OWNER) && machine.is_of_a_plan());
            let machine = ours.find(|machine| by_its_launch || machine.state().bills())?;
            let start = last_start(machine);
            let truth = start.as_ref().map(|start| start.truth());
            let since = match lone.fault {
                LoneFault::Done | LoneFault::Fails | LoneFault::PowerBroken => start.filter(|start| start.is_over()).map(|_| now),
                LoneFault::Hangs => truth.and_then(|truth| truth.hung_since),
                LoneFault::Idles => truth.and_then(|truth| truth.quiet_since),
                _ if by_its_launch => Some(machine.launched),
                _ => Some(at),
            };
            Some(Struck { id: machine.id.clone(), since: since? })
        });
        if found.is_some() || !by_itself {
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
