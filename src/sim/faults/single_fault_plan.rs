//! The plan of a single fault: the work, the limit of the job, and the time.
//!
//! Not here: the faults (`single_fault`), their recovery (`recovery_times`).

use std::time::Duration;

use super::fault_plan::{Due, FaultKind};
use super::single_fault::{FaultStart, Lone, LoneFault};
use crate::market::Market;
use crate::sim::kernel::rng::Dice;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::workload::{Habit, WorkEnd};

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
            LoneFault::Fails => WorkEnd::Fails(3),
            LoneFault::Hangs => WorkEnd::Hangs,
            LoneFault::Idles => WorkEnd::Idles,
            _ => WorkEnd::Succeeds,
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
            _ => (self.fault.moment() == FaultStart::RunTime).then_some(CAP_MINUTES),
        }
    }

    pub(crate) fn is_swept(self) -> bool {
        self.watching.has_sweeper()
    }

    /// When it strikes, if it has a random time.
    pub(crate) fn at(self, dice: &Dice) -> Duration {
        let (from, to) = match self.fault {
            LoneFault::CancelAtLaunch => (Duration::ZERO, LAUNCHING),
            _ if self.fault.moment() == FaultStart::RunTime => (FROM, BEFORE_CAP),
            _ => (FROM, TO),
        };
        dice.fork("moment").between(from, to)
    }

    pub(crate) fn due(self, dice: &Dice) -> Vec<Due> {
        let at = self.at(dice);
        let now = |fate| vec![Due { at, fate }];
        let weather = |trouble, at, lasts| Due { at, fate: FaultKind::Weather(trouble, lasts) };
        let sign = if dice.fork("sign").percent(50) { 1 } else { -1 };
        let taken = FaultKind::Reclaim { notice: None, takes: true };
        let first = |trouble, lasts| vec![weather(trouble, Duration::ZERO, lasts)];
        let mut due = match self.fault {
            LoneFault::Done
            | LoneFault::Fails
            | LoneFault::Hangs
            | LoneFault::Idles
            | LoneFault::Cap => Vec::new(),
            LoneFault::PowerBroken => first(WorldFault::PowerBroken, FOR_GOOD),
            LoneFault::DiskFull => vec![weather(WorldFault::DiskFull, at, FOR_GOOD)],
            LoneFault::StoreGone => vec![weather(WorldFault::StoreDown, at, FOR_GOOD)],
            LoneFault::NoAgent => first(WorldFault::NoAgents, LID),
            LoneFault::DarkBoot => first(WorldFault::DarkBoots, LID),
            LoneFault::Withdrawn => first(WorldFault::Withdraws, WITHDRAWS),
            LoneFault::ShownLate => first(WorldFault::LateShows, WITHDRAWS),
            LoneFault::KernelHang => now(FaultKind::KernelHang),
            LoneFault::HostDies => now(FaultKind::HostDies),
            LoneFault::AgentCrash => now(FaultKind::AgentCrash),
            LoneFault::AgentHang => now(FaultKind::AgentHang(FOR_GOOD)),
            LoneFault::AgentGone | LoneFault::CapWithoutAgent => now(FaultKind::AgentGone),
            LoneFault::Reboot | LoneFault::CapAfterReboot => now(FaultKind::Reboot),
            LoneFault::MachineClock | LoneFault::CapAfterClock => {
                now(FaultKind::BoxClock(sign * HOUR_MS))
            }
            LoneFault::Noticed => {
                now(FaultKind::Reclaim { notice: Some(Duration::from_secs(120)), takes: true })
            }
            LoneFault::Taken => now(taken),
            LoneFault::NotTaken => {
                now(FaultKind::Reclaim { notice: Some(Duration::from_secs(120)), takes: false })
            }
            LoneFault::Rebalance => now(FaultKind::Rebalance),
            LoneFault::NoRoom => {
                vec![
                    weather(WorldFault::NoCapacityA, at, NO_ROOM),
                    weather(WorldFault::NoCapacityB, at, NO_ROOM),
                    Due { at, fate: taken },
                ]
            }
            LoneFault::TakenUnseen => {
                vec![weather(WorldFault::Ec2Down, at, A_WHILE), Due { at, fate: taken }]
            }
            LoneFault::GpuLost => now(FaultKind::Xid(true)),
            LoneFault::NvmlLost => vec![weather(WorldFault::NvmlLost, at, FOR_GOOD)],
            LoneFault::Offline => vec![weather(WorldFault::MachineOffline, at, A_WHILE)],
            LoneFault::MetadataDown => vec![weather(WorldFault::MetadataDown, at, A_WHILE)],
            LoneFault::ConsoleEnd => now(FaultKind::ConsoleTerminate),
            LoneFault::ConsoleStop => now(FaultKind::ConsoleStop),
            LoneFault::Stop => now(FaultKind::Stop),
            LoneFault::Cancel => now(FaultKind::Cancel),
            LoneFault::CancelAtLaunch => vec![
                weather(WorldFault::Ec2Lossy, Duration::ZERO, ERRS),
                Due { at, fate: FaultKind::Cancel },
            ],
            LoneFault::StaleEnd => [
                FaultKind::KernelHang,
                FaultKind::Weather(WorldFault::Ec2Stale, FOR_GOOD),
                FaultKind::Cancel,
            ]
            .map(|fate| Due { at, fate })
            .into(),
            LoneFault::StuckEnd => {
                vec![
                    weather(WorldFault::StuckEnds, at, FOR_GOOD),
                    Due { at, fate: FaultKind::Cancel },
                ]
            }
            LoneFault::Throttled => [
                FaultKind::KernelHang,
                FaultKind::Weather(WorldFault::Ec2Throttled, THROTTLED),
                FaultKind::Cancel,
            ]
            .map(|fate| Due { at, fate })
            .into(),
            LoneFault::SignedOut => vec![weather(WorldFault::SignedOut, at, SIGNED_OUT)],
            LoneFault::LaptopClock => vec![
                Due { at, fate: FaultKind::LaptopClock(sign * DAY_MS) },
                Due { at: at + TAKEN_AFTER, fate: taken },
                Due { at: at + CLOCK_OFF, fate: FaultKind::LaptopClock(0) },
            ],
            LoneFault::SecondController => {
                vec![Due { at: Duration::ZERO, fate: FaultKind::SecondController }]
            }
            LoneFault::RoleGone => vec![weather(WorldFault::RoleGone, at, FOR_GOOD)],
        };
        if !self.watching.has_workstation() {
            due.push(Due { at: LID, fate: FaultKind::LaptopSleep(FOR_GOOD) });
        }
        due.sort_by_key(|due| due.at);
        due
    }
}
