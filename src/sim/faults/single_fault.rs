//! A single fault in a world without others: the faults, and the parties that can react.
//!
//! ```text
//!   Lone { fault, watching } ──> its work and its fault (`faults::single_fault_plan`) ──> play
//!       ──> RecoveryTimes: stopped billing, ended, resumed, lost (`faults::recovery_times`)
//! ```
//! Not here: the bounds (tests/sim/bounds.md lists them, tests/sim/bounds.rs checks them).

/// A fault, and the parties that can react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lone {
    pub fault: LoneFault,
    pub watching: Watching,
}

/// A fault at a random time during the work, or a way that the work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoneFault {
    /// No fault: the work ends, and then its machine.
    Done,
    Fails,
    Hangs,
    Idles,
    /// The work ends, and no power-off within the machine works.
    PowerBroken,
    /// The work ends on a full disk.
    DiskFull,
    /// The work ends, and the store has refused writes since the fault.
    StoreGone,
    /// Its run time is over before its work.
    Cap,
    /// The same after a reboot, after a clock change, and without a running agent.
    CapAfterReboot,
    CapAfterClock,
    CapWithoutAgent,
    /// Only the deadline unit starts on the first machine.
    NoAgent,
    /// The kernel of the first machine hangs in its boot.
    DarkBoot,
    /// EC2 withdraws machines of the first half minute before they run.
    Withdrawn,
    /// EC2 shows the first machine late.
    ShownLate,
    /// The user cancels during a launch, while EC2 fails and loses answers.
    CancelAtLaunch,
    KernelHang,
    HostDies,
    AgentCrash,
    AgentHang,
    /// Each agent that starts dies.
    AgentGone,
    Reboot,
    /// EC2 takes a spot machine, with two minutes of notice or with none.
    Noticed,
    Taken,
    /// The notice comes, and the machine stays.
    NotTaken,
    Rebalance,
    /// EC2 takes a machine, and has no capacity anywhere for an hour.
    NoRoom,
    /// EC2 takes a machine, and Describe fails for twenty minutes.
    TakenUnseen,
    /// A GPU is lost, and the work dies.
    GpuLost,
    /// The driver stops answering. The work uses no CPU, so only the GPU shows that it works.
    NvmlLost,
    MachineClock,
    /// The machine has no network for twenty minutes.
    Offline,
    /// Its metadata service does not answer for twenty minutes.
    MetadataDown,
    ConsoleEnd,
    /// A person stops an on-demand machine in the console, with its disk.
    ConsoleStop,
    Stop,
    Cancel,
    /// The user cancels, the kernel hangs, and EC2 shows old states.
    StaleEnd,
    /// A cancelled machine hangs while it terminates.
    StuckEnd,
    /// The user cancels, the kernel hangs, and EC2 throttles for ten minutes.
    Throttled,
    /// The workstation's session has expired for an hour.
    SignedOut,
    /// Its clock is a day wrong for half an hour, and EC2 takes a machine meanwhile.
    LaptopClock,
    /// A second controller runs from the beginning.
    SecondController,
    /// The machine's role loses its permissions in the job root, while the work runs.
    RoleGone,
}

/// The parties that watch the machine from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watching {
    /// An awake workstation, and the sweeper in the cloud.
    Both,
    /// The workstation sleeps after the first three minutes.
    Sweeper,
    /// No sweeper is installed.
    Workstation,
    /// Neither.
    Nobody,
}

impl Watching {
    /// Whether a workstation launches the next machine and writes receipts.
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

/// When the time of a fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultStart {
    /// At the launch of the first machine.
    Launch,
    /// At the end or hang of the work.
    Work,
    /// When the first machine has used the run time of its job.
    RunTime,
    /// At a random time.
    Dice,
}

impl LoneFault {
    /// The fault, as the table in tests/sim/bounds.md calls it.
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

    pub fn moment(self) -> FaultStart {
        match self {
            LoneFault::NoAgent
            | LoneFault::DarkBoot
            | LoneFault::Withdrawn
            | LoneFault::ShownLate
            | LoneFault::SecondController => FaultStart::Launch,
            LoneFault::Cap
            | LoneFault::CapAfterReboot
            | LoneFault::CapAfterClock
            | LoneFault::CapWithoutAgent => FaultStart::RunTime,
            LoneFault::Done
            | LoneFault::Fails
            | LoneFault::Hangs
            | LoneFault::Idles
            | LoneFault::PowerBroken
            | LoneFault::DiskFull
            | LoneFault::StoreGone => FaultStart::Work,
            _ => FaultStart::Dice,
        }
    }
}

impl Lone {
    /// Each fault with the parties that can react to it.
    pub fn all() -> Vec<Lone> {
        use LoneFault as Fault;
        use Watching::{Both, Nobody, Sweeper, Workstation};
        // The machine handles these by itself. At most the sweeper is there.
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
        // A workstation must react to these, or could react too much.
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
