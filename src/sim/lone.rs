//! One fault alone, in a world where all else is well: which faults there are, who is there to do something about it, and how it is made to
//! happen.
//!
//! ```text
//!   Lone { fault, watching } ──> its work, its one fault, who is there ──> play ──> Measured: dark, gone, goes on, lost (`measured`)
//! ```
//! What must never live here: a bound (docs/promises.md tells them, tests/sim/bounds.rs asks for them).

use std::time::Duration;

use super::dice::Dice;
use super::fates::{Due, Fate};
use super::weather::Trouble;
use super::workload::{End, Habit};
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
    /// The work ends on a disk that is full.
    DiskFull,
    /// The work ends, and the store has taken nothing since the moment.
    StoreGone,
    /// Its time is over before its work.
    Cap,
    /// The same after a reboot, after the machine's clock was set back, and where no agent lives by then.
    CapAfterReboot,
    CapAfterClock,
    CapWithoutAgent,
    /// On the first machine nothing of ours comes up but its deadline unit.
    NoAgent,
    /// The kernel of the first machine hangs in its boot.
    DarkBoot,
    /// EC2 withdraws the first machine before it has run.
    Withdrawn,
    /// EC2 shows the first machine four minutes late.
    ShownLate,
    /// It is cancelled while it is launched, or boots.
    CancelAtLaunch,
    KernelHang,
    HostDies,
    AgentCrash,
    AgentHang,
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
    NvmlLost,
    MachineClock,
    /// The machine reaches nothing for twenty minutes.
    Offline,
    /// Its metadata service answers nothing for as long.
    MetadataDown,
    ConsoleEnd,
    /// An on-demand machine is stopped there, with its disk.
    ConsoleStop,
    Stop,
    Cancel,
    /// It is cancelled while EC2 shows what was some seconds ago.
    StaleEnd,
    /// A cancelled machine hangs in its end.
    StuckEnd,
    /// One is cancelled whose kernel hangs, while EC2 throttles for ten minutes.
    Throttled,
    /// EC2 does not say how any machine is for twenty minutes.
    Ec2Silent,
    /// The workstation's session is over for an hour.
    SignedOut,
    LaptopClock,
    SecondController,
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
    /// Neither.
    Nobody,
}

impl Watching {
    pub fn words(self) -> &'static str {
        match self {
            Watching::Both => "workstation and sweeper",
            Watching::Sweeper => "no workstation",
            Watching::Workstation => "no sweeper",
            Watching::Nobody => "nobody",
        }
    }
}

/// When a fault begins to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// With the launch of the first machine.
    Launch,
    /// With what the work comes to.
    Work,
    /// With the machine's hard end.
    HardEnd,
    /// At a moment of the dice.
    Dice,
}

/// An hour and a half of work in steps of twenty seconds, which saves once a minute; its job asks for a checkpoint every two.
pub(super) const STEPS: u64 = 270;
pub(super) const STEP: Duration = Duration::from_secs(20);
const SAVE_EVERY: u64 = 3;

/// The fault comes within these: the work has begun, and is not done.
const FROM: Duration = Duration::from_secs(10 * 60);
const TO: Duration = Duration::from_secs(80 * 60);

/// Of a machine whose time is over before its work: what befalls it before that.
const CAP_MINUTES: u64 = 50;
const BEFORE_CAP: Duration = Duration::from_secs(40 * 60);

/// The launch is a matter of seconds, a boot of half a minute.
const LAUNCHED_BY: Duration = Duration::from_secs(10);
const BOOTED_BY: Duration = Duration::from_secs(45);

/// When a laptop that is to sleep does so: what it launched is known to it.
const LID: Duration = Duration::from_secs(180);

/// The first launch is within it, and none that follows.
const WITHDRAWS: Duration = Duration::from_secs(30);

const NO_ROOM: Duration = Duration::from_secs(3600);
const THROTTLED: Duration = Duration::from_secs(600);
const A_WHILE: Duration = Duration::from_secs(20 * 60);
const SIGNED_OUT: Duration = Duration::from_secs(3600);

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// For as long as there are faults.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

impl LoneFault {
    /// What befalls the job, in the words of the table.
    pub fn words(self) -> &'static str {
        match self {
            LoneFault::Done => "the work is done",
            LoneFault::Fails => "the work fails, twice where it is run again",
            LoneFault::Hangs => "the work hangs",
            LoneFault::Idles => "the work idles",
            LoneFault::PowerBroken => "the work is done, and no power switch within the machine does anything",
            LoneFault::DiskFull => "the work is done, and the machine's disk is full",
            LoneFault::StoreGone => "the work is done, and the job root takes nothing from anybody any more",
            LoneFault::Cap => "its time is over before its work",
            LoneFault::CapAfterReboot => "a reboot, and then its time is over",
            LoneFault::CapAfterClock => "the machine's clock is set an hour back, and then its time is over",
            LoneFault::CapWithoutAgent => "no agent lives any more, and then its time is over",
            LoneFault::NoAgent => "nothing of ours comes up on the first machine but its deadline unit",
            LoneFault::DarkBoot => "the kernel of the first machine hangs in its boot",
            LoneFault::Withdrawn => "EC2 withdraws the first machine",
            LoneFault::ShownLate => "EC2 shows the first machine four minutes late",
            LoneFault::CancelAtLaunch => "`lamp cancel` within 10 to 45 s of the beginning",
            LoneFault::KernelHang => "the kernel hangs",
            LoneFault::HostDies => "the host dies",
            LoneFault::AgentCrash => "the agent crashes",
            LoneFault::AgentHang => "the agent hangs",
            LoneFault::AgentGone => "no agent lives any more",
            LoneFault::Reboot => "a reboot",
            LoneFault::Noticed => "taken, with two minutes of notice",
            LoneFault::Taken => "taken, without a notice",
            LoneFault::NotTaken => "a notice, and it is not taken",
            LoneFault::Rebalance => "a rebalance recommendation",
            LoneFault::NoRoom => "taken, and an hour without capacity anywhere",
            LoneFault::GpuLost => "a GPU is lost",
            LoneFault::NvmlLost => "the driver answers nothing any more",
            LoneFault::MachineClock => "the machine's clock is set an hour ahead",
            LoneFault::Offline => "the machine is offline for twenty minutes",
            LoneFault::MetadataDown => "its metadata service answers nothing for twenty minutes",
            LoneFault::ConsoleEnd => "ended by hand in the console",
            LoneFault::ConsoleStop => "stopped by hand in the console",
            LoneFault::Stop => "`lamp stop`",
            LoneFault::Cancel => "`lamp cancel`",
            LoneFault::StaleEnd => "cancelled, and EC2 shows what was some seconds ago",
            LoneFault::StuckEnd => "cancelled, and hangs in its end",
            LoneFault::Throttled => "cancelled, its kernel hangs, EC2 throttled for ten minutes",
            LoneFault::Ec2Silent => "EC2 does not say for twenty minutes how any machine is",
            LoneFault::SignedOut => "the workstation's session is over for an hour",
            LoneFault::LaptopClock => "the workstation's clock is set a day ahead",
            LoneFault::SecondController => "a second controller comes",
            LoneFault::RoleGone => "the machine's role is taken away, and its work goes on",
        }
    }

    pub(super) fn moment(self) -> Moment {
        match self {
            LoneFault::NoAgent | LoneFault::DarkBoot | LoneFault::Withdrawn | LoneFault::ShownLate => Moment::Launch,
            LoneFault::Cap | LoneFault::CapAfterReboot | LoneFault::CapAfterClock | LoneFault::CapWithoutAgent => Moment::HardEnd,
            LoneFault::Done
            | LoneFault::Fails
            | LoneFault::Hangs
            | LoneFault::Idles
            | LoneFault::PowerBroken
            | LoneFault::DiskFull
            | LoneFault::StoreGone => Moment::Work,
            _ => Moment::Dice,
        }
    }
}

impl Lone {
    /// Every fault with everybody who can do something about it.
    pub fn all() -> Vec<Lone> {
        use LoneFault as Fault;
        use Watching::{Both, Nobody, Sweeper, Workstation};
        // Nobody need be there from outside, so that nobody is, or the sweeper alone.
        let by_its_cap = [Fault::Cap, Fault::CapAfterReboot, Fault::CapAfterClock, Fault::CapWithoutAgent];
        let by_its_cap = by_its_cap.map(|fault| Lone { fault, watching: Nobody });
        let from_within = [
            Fault::Done,
            Fault::Fails,
            Fault::Hangs,
            Fault::Idles,
            Fault::DiskFull,
            Fault::Reboot,
            Fault::NotTaken,
            Fault::Rebalance,
            Fault::AgentCrash,
            Fault::AgentHang,
            Fault::NvmlLost,
            Fault::MachineClock,
            Fault::MetadataDown,
        ];
        let from_within = from_within.map(|fault| Lone { fault, watching: Sweeper });
        let from_outside =
            [Fault::PowerBroken, Fault::NoAgent, Fault::DarkBoot, Fault::KernelHang, Fault::HostDies, Fault::AgentGone, Fault::RoleGone];
        let from_outside = from_outside.into_iter().flat_map(|fault| [Both, Sweeper, Workstation].map(|watching| Lone { fault, watching }));
        let by_workstation = [
            Fault::StoreGone,
            Fault::Noticed,
            Fault::Taken,
            Fault::NoRoom,
            Fault::Withdrawn,
            Fault::ShownLate,
            Fault::CancelAtLaunch,
            Fault::GpuLost,
            Fault::Offline,
            Fault::ConsoleEnd,
            Fault::ConsoleStop,
            Fault::Stop,
            Fault::Cancel,
            Fault::StaleEnd,
            Fault::StuckEnd,
            Fault::Throttled,
            Fault::Ec2Silent,
            Fault::SignedOut,
            Fault::LaptopClock,
            Fault::SecondController,
        ];
        let by_workstation = by_workstation.map(|fault| Lone { fault, watching: Both });
        from_within.into_iter().chain(by_its_cap).chain(from_outside).chain(by_workstation).collect()
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
        match self.fault {
            LoneFault::Noticed | LoneFault::Taken | LoneFault::NotTaken | LoneFault::Rebalance | LoneFault::NoRoom => Some(Market::Spot),
            LoneFault::ConsoleStop => Some(Market::OnDemand),
            _ => None,
        }
    }

    /// The minutes that its job may run, where that is what ends it.
    pub(super) fn max_runtime(self) -> Option<u64> {
        (self.fault.moment() == Moment::HardEnd).then_some(CAP_MINUTES)
    }

    pub(super) fn is_swept(self) -> bool {
        matches!(self.watching, Watching::Both | Watching::Sweeper)
    }

    /// When it strikes, if it strikes at a moment of its own.
    pub(super) fn at(self, dice: &Dice) -> Duration {
        let (from, to) = match self.fault {
            LoneFault::CancelAtLaunch => (LAUNCHED_BY, BOOTED_BY),
            _ if self.max_runtime().is_some() => (FROM, BEFORE_CAP),
            _ => (FROM, TO),
        };
        dice.fork("moment").between(from, to)
    }

    pub(super) fn due(self, dice: &Dice) -> Vec<Due> {
        let at = self.at(dice);
        let now = |fate| vec![Due { at, fate }];
        let weather = |trouble, at, lasts| Due { at, fate: Fate::Weather(trouble, lasts) };
        let first = |trouble, lasts| vec![weather(trouble, Duration::ZERO, lasts)];
        let mut due = match self.fault {
            LoneFault::Done | LoneFault::Fails | LoneFault::Hangs | LoneFault::Idles | LoneFault::Cap => Vec::new(),
            LoneFault::PowerBroken => first(Trouble::PowerBroken, FOR_GOOD),
            LoneFault::DiskFull => vec![weather(Trouble::DiskFull, at, FOR_GOOD)],
            LoneFault::StoreGone => vec![weather(Trouble::StoreDown, at, FOR_GOOD)],
            LoneFault::NoAgent => first(Trouble::NoAgents, LID),
            LoneFault::DarkBoot => first(Trouble::DarkBoots, LID),
            LoneFault::Withdrawn => first(Trouble::Withdraws, WITHDRAWS),
            LoneFault::ShownLate => first(Trouble::LateShows, WITHDRAWS),
            LoneFault::KernelHang => now(Fate::KernelHang),
            LoneFault::HostDies => now(Fate::HostDies),
            LoneFault::AgentCrash => now(Fate::AgentCrash),
            LoneFault::AgentHang => now(Fate::AgentHang(FOR_GOOD)),
            LoneFault::AgentGone | LoneFault::CapWithoutAgent => now(Fate::AgentGone),
            LoneFault::Reboot | LoneFault::CapAfterReboot => now(Fate::Reboot),
            LoneFault::MachineClock => now(Fate::BoxClock(HOUR_MS)),
            LoneFault::CapAfterClock => now(Fate::BoxClock(-HOUR_MS)),
            LoneFault::Noticed => now(Fate::Reclaim { notice: Some(Duration::from_secs(120)), takes: true }),
            LoneFault::Taken => now(Fate::Reclaim { notice: None, takes: true }),
            LoneFault::NotTaken => now(Fate::Reclaim { notice: Some(Duration::from_secs(120)), takes: false }),
            LoneFault::Rebalance => now(Fate::Rebalance),
            LoneFault::NoRoom => {
                let taken = Fate::Reclaim { notice: None, takes: true };
                vec![weather(Trouble::NoCapacityA, at, NO_ROOM), weather(Trouble::NoCapacityB, at, NO_ROOM), Due { at, fate: taken }]
            }
            LoneFault::GpuLost => now(Fate::Xid(true)),
            LoneFault::NvmlLost => vec![weather(Trouble::NvmlLost, at, FOR_GOOD)],
            LoneFault::Offline => vec![weather(Trouble::MachineOffline, at, A_WHILE)],
            LoneFault::MetadataDown => vec![weather(Trouble::MetadataDown, at, A_WHILE)],
            LoneFault::ConsoleEnd => now(Fate::ConsoleTerminate),
            LoneFault::ConsoleStop => now(Fate::ConsoleStop),
            LoneFault::Stop => now(Fate::Stop),
            LoneFault::Cancel | LoneFault::CancelAtLaunch => now(Fate::Cancel),
            LoneFault::StaleEnd => vec![weather(Trouble::Ec2Stale, at, FOR_GOOD), Due { at, fate: Fate::Cancel }],
            LoneFault::StuckEnd => vec![weather(Trouble::StuckEnds, at, FOR_GOOD), Due { at, fate: Fate::Cancel }],
            LoneFault::Throttled => {
                [Fate::KernelHang, Fate::Weather(Trouble::Ec2Throttled, THROTTLED), Fate::Cancel].map(|fate| Due { at, fate }).into()
            }
            LoneFault::Ec2Silent => vec![weather(Trouble::Ec2Down, at, A_WHILE)],
            LoneFault::SignedOut => vec![weather(Trouble::SignedOut, at, SIGNED_OUT)],
            LoneFault::LaptopClock => now(Fate::LaptopClock(DAY_MS)),
            LoneFault::SecondController => now(Fate::SecondController),
            LoneFault::RoleGone => vec![weather(Trouble::RoleGone, at, FOR_GOOD)],
        };
        if matches!(self.watching, Watching::Sweeper | Watching::Nobody) {
            due.push(Due { at: LID, fate: Fate::LaptopSleep(FOR_GOOD) });
        }
        due.sort_by_key(|due| due.at);
        due
    }
}
