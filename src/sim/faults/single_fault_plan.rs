//! The plan of a single fault: the work, the limit of the job, and the time.
//!
//! Not here: the faults (`single_fault`), their recovery (`recovery_times`).

use std::time::Duration;

use super::fault_plan::{Due, Fate};
use super::single_fault::{Lone, LoneFault, Moment};
use crate::market::Market;
use crate::sim::kernel::rng::Dice;
use crate::sim::world::active_faults::Trouble;
use crate::sim::world::workload::{End, Habit};

/// An hour and a half of work in steps of twenty seconds. It saves once a minute, and its job
/// uploads every two minutes.
const STEPS: u64 = 270;
const STEP: Duration = Duration::from_secs(20);
const SAVE_EVERY: u64 = 3;

/// The same for work that uses no CPU: each step is longer than an idle window.
const QUIET_STEPS: u64 = 5;
const QUIET_STEP: Duration = Duration::from_secs(18 * 60);

/// The fault comes between these, while the work runs.
const FROM: Duration = Duration::from_secs(10 * 60);
const TO: Duration = Duration::from_secs(80 * 60);

/// The run time if it ends the work, and the latest time of a fault before that.
const CAP_MINUTES: u64 = 50;
const BEFORE_CAP: Duration = Duration::from_secs(40 * 60);

/// The run time for a wrong clock: the work takes up to 125 minutes with its saves. A clock an hour
/// ahead must not end it.
const ROOM_MINUTES: u64 = 150;

/// How long EC2 fails at first, and the latest time of a cancel during the launch.
const ERRS: Duration = Duration::from_secs(60);
const LAUNCHING: Duration = Duration::from_secs(20);

/// When a laptop goes to sleep: it knows its launch by then.
const LID: Duration = Duration::from_secs(180);

/// The first launch is within this time, and sometimes the second after a withdrawn one.
const WITHDRAWS: Duration = Duration::from_secs(30);

const NO_ROOM: Duration = Duration::from_secs(3600);
const THROTTLED: Duration = Duration::from_secs(600);

/// How long a machine is offline, or EC2 or a metadata service does not answer.
pub const A_WHILE: Duration = Duration::from_secs(20 * 60);

const SIGNED_OUT: Duration = Duration::from_secs(3600);

/// How long a workstation's clock is wrong, and when EC2 takes the machine meanwhile.
pub const CLOCK_OFF: Duration = Duration::from_secs(30 * 60);
const TAKEN_AFTER: Duration = Duration::from_secs(60);

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Until the end of all faults.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);

impl Lone {
    pub(crate) fn steps(self) -> u64 {
        if self.is_quiet() { QUIET_STEPS } else { STEPS }
    }

    pub(crate) fn step(self) -> Duration {
        if self.is_quiet() { QUIET_STEP } else { STEP }
    }

    fn is_quiet(self) -> bool {
        self.fault == LoneFault::NvmlLost
    }

    pub(crate) fn habit(self, habit: Habit) -> Habit {
        let end = match self.fault {
            LoneFault::Fails => End::Fails(3),
            LoneFault::Hangs => End::Hangs,
            LoneFault::Idles => End::Idles,
            _ => End::Succeeds,
        };
        // Work that saves on request loses nothing after a notice. Other work loses the steps since
        // its last save.
        let saves_when_asked = matches!(self.fault, LoneFault::Noticed | LoneFault::Rebalance)
            || habit.saves_when_asked;
        let (steps, step, quiet) = (self.steps(), self.step(), self.is_quiet());
        let save_every = if quiet { 1 } else { SAVE_EVERY };
        Habit {
            steps,
            step,
            save_every,
            saves_when_asked,
            end,
            ignores_term: false,
            quiet,
            ..habit
        }
    }

    /// The market of its machine, if that matters.
    pub(crate) fn market(self) -> Option<Market> {
        match self.fault {
            LoneFault::Noticed
            | LoneFault::Taken
            | LoneFault::NotTaken
            | LoneFault::Rebalance
            | LoneFault::NoRoom
            | LoneFault::TakenUnseen
            | LoneFault::LaptopClock => Some(Market::Spot),
            LoneFault::ConsoleStop => Some(Market::OnDemand),
            _ => None,
        }
    }

    /// The run time of its job in minutes, if that ends it or must not end it.
    pub(crate) fn max_runtime(self) -> Option<u64> {
        match self.fault {
            LoneFault::MachineClock => Some(ROOM_MINUTES),
            _ => (self.fault.moment() == Moment::RunTime).then_some(CAP_MINUTES),
        }
    }

    pub(crate) fn is_swept(self) -> bool {
        self.watching.has_sweeper()
    }

    /// When it strikes, if it has a random time.
    pub(crate) fn at(self, dice: &Dice) -> Duration {
        let (from, to) = match self.fault {
            LoneFault::CancelAtLaunch => (Duration::ZERO, LAUNCHING),
            _ if self.fault.moment() == Moment::RunTime => (FROM, BEFORE_CAP),
            _ => (FROM, TO),
        };
        dice.fork("moment").between(from, to)
    }

    pub(crate) fn due(self, dice: &Dice) -> Vec<Due> {
        let at = self.at(dice);
        let now = |fate| vec![Due { at, fate }];
        let weather = |trouble, at, lasts| Due { at, fate: Fate::Weather(trouble, lasts) };
        let sign = if dice.fork("sign").percent(50) { 1 } else { -1 };
        let taken = Fate::Reclaim { notice: None, takes: true };
        let first = |trouble, lasts| vec![weather(trouble, Duration::ZERO, lasts)];
        let mut due = match self.fault {
            LoneFault::Done
            | LoneFault::Fails
            | LoneFault::Hangs
            | LoneFault::Idles
            | LoneFault::Cap => Vec::new(),
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
            LoneFault::MachineClock | LoneFault::CapAfterClock => {
                now(Fate::BoxClock(sign * HOUR_MS))
            }
            LoneFault::Noticed => {
                now(Fate::Reclaim { notice: Some(Duration::from_secs(120)), takes: true })
            }
            LoneFault::Taken => now(taken),
            LoneFault::NotTaken => {
                now(Fate::Reclaim { notice: Some(Duration::from_secs(120)), takes: false })
            }
            LoneFault::Rebalance => now(Fate::Rebalance),
            LoneFault::NoRoom => {
                vec![
                    weather(Trouble::NoCapacityA, at, NO_ROOM),
                    weather(Trouble::NoCapacityB, at, NO_ROOM),
                    Due { at, fate: taken },
                ]
            }
            LoneFault::TakenUnseen => {
                vec![weather(Trouble::Ec2Down, at, A_WHILE), Due { at, fate: taken }]
            }
            LoneFault::GpuLost => now(Fate::Xid(true)),
            LoneFault::NvmlLost => vec![weather(Trouble::NvmlLost, at, FOR_GOOD)],
            LoneFault::Offline => vec![weather(Trouble::MachineOffline, at, A_WHILE)],
            LoneFault::MetadataDown => vec![weather(Trouble::MetadataDown, at, A_WHILE)],
            LoneFault::ConsoleEnd => now(Fate::ConsoleTerminate),
            LoneFault::ConsoleStop => now(Fate::ConsoleStop),
            LoneFault::Stop => now(Fate::Stop),
            LoneFault::Cancel => now(Fate::Cancel),
            LoneFault::CancelAtLaunch => vec![
                weather(Trouble::Ec2Lossy, Duration::ZERO, ERRS),
                Due { at, fate: Fate::Cancel },
            ],
            LoneFault::StaleEnd => {
                [Fate::KernelHang, Fate::Weather(Trouble::Ec2Stale, FOR_GOOD), Fate::Cancel]
                    .map(|fate| Due { at, fate })
                    .into()
            }
            LoneFault::StuckEnd => {
                vec![weather(Trouble::StuckEnds, at, FOR_GOOD), Due { at, fate: Fate::Cancel }]
            }
            LoneFault::Throttled => {
                [Fate::KernelHang, Fate::Weather(Trouble::Ec2Throttled, THROTTLED), Fate::Cancel]
                    .map(|fate| Due { at, fate })
                    .into()
            }
            LoneFault::SignedOut => vec![weather(Trouble::SignedOut, at, SIGNED_OUT)],
            LoneFault::LaptopClock => vec![
                Due { at, fate: Fate::LaptopClock(sign * DAY_MS) },
                Due { at: at + TAKEN_AFTER, fate: taken },
                Due { at: at + CLOCK_OFF, fate: Fate::LaptopClock(0) },
            ],
            LoneFault::SecondController => {
                vec![Due { at: Duration::ZERO, fate: Fate::SecondController }]
            }
            LoneFault::RoleGone => vec![weather(Trouble::RoleGone, at, FOR_GOOD)],
        };
        if !self.watching.has_workstation() {
            due.push(Due { at: LID, fate: Fate::LaptopSleep(FOR_GOOD) });
        }
        due.sort_by_key(|due| due.at);
        due
    }
}
