//! One fault alone, in a world where all else is well: which faults there are, and who is there to
//! do something about it.
//!
//! ```text
//!   Lone { fault, watching } ──> its work, its one fault, who is there (`faults::single_fault_plan`) ──> play ──> Measured: dark, gone, goes on, lost (`measured`)
//! ```
//! Not here: a bound (docs/promises.md tells them, tests/sim/bounds.rs asks for them).

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
    /// The same after a reboot, after the machine's clock was set back, and where no agent lives by
    /// then.
    CapAfterReboot,
    CapAfterClock,
    CapWithoutAgent,
    /// On the first machine nothing of ours comes up but its deadline unit.
    NoAgent,
    /// The kernel of the first machine hangs in its boot.
    DarkBoot,
    /// EC2 withdraws what is launched in the first half minute before it has run.
    Withdrawn,
    /// EC2 shows the first machine late.
    ShownLate,
    /// It is cancelled while its machine is launched by an EC2 that errs and loses answers.
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
    /// A machine is taken, and for twenty minutes EC2 does not say how any machine is.
    TakenUnseen,
    /// The work dies of it.
    GpuLost,
    /// Of work that needs no CPU, so that nothing else tells it from idleness.
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
    /// One is cancelled whose kernel hangs, while EC2 shows what was some seconds ago.
    StaleEnd,
    /// A cancelled machine hangs in its end.
    StuckEnd,
    /// One is cancelled whose kernel hangs, while EC2 throttles for ten minutes.
    Throttled,
    /// The workstation's session is over for an hour.
    SignedOut,
    /// Its clock is a day off for half an hour, in which a machine is taken.
    LaptopClock,
    /// From the beginning on.
    SecondController,
    /// Somebody takes from the machine's role what it may do in the job root, while the work goes
    /// on.
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
    /// Who buys the next machine, and writes receipts.
    pub fn has_workstation(self) -> bool {
        matches!(self, Watching::Both | Watching::Workstation)
    }

    pub(crate) fn has_sweeper(self) -> bool {
        matches!(self, Watching::Both | Watching::Sweeper)
    }

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
pub enum Moment {
    /// With the launch of the first machine.
    Launch,
    /// With what the work comes to.
    Work,
    /// When the first machine has run for as long as its job may.
    RunTime,
    /// At a moment of the dice.
    Dice,
}

impl LoneFault {
    /// What befalls the job, in the words of the table.
    pub fn words(self) -> &'static str {
        match self {
            LoneFault::Done => "the work is done",
            LoneFault::Fails => "the work fails, and once more where it is run again",
            LoneFault::Hangs => "the work hangs",
            LoneFault::Idles => "the work idles",
            LoneFault::PowerBroken => {
                "the work is done, and no power switch within the machine does anything"
            }
            LoneFault::DiskFull => "the work is done, and the machine's disk is full",
            LoneFault::StoreGone => {
                "the work is done, and the job root takes nothing from anybody any more"
            }
            LoneFault::Cap => "its run time is over before its work",
            LoneFault::CapAfterReboot => "a reboot, and then its run time is over",
            LoneFault::CapAfterClock => {
                "the machine's clock is set by an hour, and then its run time is over"
            }
            LoneFault::CapWithoutAgent => "no agent lives any more, and then its run time is over",
            LoneFault::NoAgent => {
                "nothing of ours comes up on the first machine but its deadline unit"
            }
            LoneFault::DarkBoot => "the kernel of the first machine hangs in its boot",
            LoneFault::Withdrawn => "EC2 withdraws what is launched in the first half minute",
            LoneFault::ShownLate => "EC2 shows the first machine 270 s late",
            LoneFault::CancelAtLaunch => {
                "`lamp cancel` in the first twenty seconds, while EC2 errs and loses answers for a minute"
            }
            LoneFault::KernelHang => "the kernel hangs",
            LoneFault::HostDies => "the host dies",
            LoneFault::AgentCrash => "the agent crashes",
            LoneFault::AgentHang => "the agent hangs",
            LoneFault::AgentGone => "whatever agent comes up dies",
            LoneFault::Reboot => "a reboot",
            LoneFault::Noticed => "taken, with two minutes of notice",
            LoneFault::Taken => "taken, without a notice",
            LoneFault::NotTaken => "a notice, and it is not taken",
            LoneFault::Rebalance => "a rebalance recommendation",
            LoneFault::NoRoom => "taken, and an hour without capacity anywhere",
            LoneFault::TakenUnseen => {
                "taken, and EC2 does not say for twenty minutes how any machine is"
            }
            LoneFault::GpuLost => "a GPU is lost, and the work dies of it",
            LoneFault::NvmlLost => "the driver answers nothing any more, of work that needs no CPU",
            LoneFault::MachineClock => "the machine's clock is set by an hour",
            LoneFault::Offline => "the machine is offline for twenty minutes",
            LoneFault::MetadataDown => "its metadata service answers nothing for twenty minutes",
            LoneFault::ConsoleEnd => "ended by hand in the console",
            LoneFault::ConsoleStop => "stopped by hand in the console",
            LoneFault::Stop => "`lamp stop`",
            LoneFault::Cancel => "`lamp cancel`",
            LoneFault::StaleEnd => {
                "cancelled, its kernel hangs, and EC2 shows what was some seconds ago"
            }
            LoneFault::StuckEnd => "cancelled, and hangs in its end",
            LoneFault::Throttled => "cancelled, its kernel hangs, EC2 throttled for ten minutes",
            LoneFault::SignedOut => "the workstation's session is over for an hour",
            LoneFault::LaptopClock => {
                "the workstation's clock is a day off for half an hour, and a machine is taken meanwhile"
            }
            LoneFault::SecondController => "a second controller, from the beginning on",
            LoneFault::RoleGone => "the machine's role is taken away, and its work goes on",
        }
    }

    pub fn moment(self) -> Moment {
        match self {
            LoneFault::NoAgent
            | LoneFault::DarkBoot
            | LoneFault::Withdrawn
            | LoneFault::ShownLate
            | LoneFault::SecondController => Moment::Launch,
            LoneFault::Cap
            | LoneFault::CapAfterReboot
            | LoneFault::CapAfterClock
            | LoneFault::CapWithoutAgent => Moment::RunTime,
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
        let by_its_cap =
            [Fault::Cap, Fault::CapAfterReboot, Fault::CapAfterClock, Fault::CapWithoutAgent];
        let by_its_cap = by_its_cap.map(|fault| Lone { fault, watching: Nobody });
        let from_within = [Fault::Done, Fault::Fails, Fault::Hangs, Fault::Idles, Fault::DiskFull];
        let from_within = from_within.map(|fault| Lone { fault, watching: Sweeper });
        let from_outside = [
            Fault::PowerBroken,
            Fault::NoAgent,
            Fault::DarkBoot,
            Fault::KernelHang,
            Fault::HostDies,
            Fault::AgentGone,
            Fault::RoleGone,
        ];
        let from_outside = from_outside.into_iter().flat_map(|fault| {
            [Both, Sweeper, Workstation].map(|watching| Lone { fault, watching })
        });
        // Who is there could do too much of it, or must do something.
        let by_workstation = [
            Fault::StoreGone,
            Fault::AgentCrash,
            Fault::AgentHang,
            Fault::Reboot,
            Fault::Noticed,
            Fault::Taken,
            Fault::NotTaken,
            Fault::Rebalance,
            Fault::NoRoom,
            Fault::TakenUnseen,
            Fault::Withdrawn,
            Fault::ShownLate,
            Fault::CancelAtLaunch,
            Fault::GpuLost,
            Fault::NvmlLost,
            Fault::MachineClock,
            Fault::Offline,
            Fault::MetadataDown,
            Fault::ConsoleEnd,
            Fault::ConsoleStop,
            Fault::Stop,
            Fault::Cancel,
            Fault::StaleEnd,
            Fault::StuckEnd,
            Fault::Throttled,
            Fault::SignedOut,
            Fault::LaptopClock,
            Fault::SecondController,
        ];
        let by_workstation = by_workstation.map(|fault| Lone { fault, watching: Both });
        from_within
            .into_iter()
            .chain(by_its_cap)
            .chain(from_outside)
            .chain(by_workstation)
            .collect()
    }
}
