//! `just soak N --bounds`: plays each single fault N times with each set of parties that can react.
//! It measures the time until the result that the fault matrix (docs/promises.md) promises, and
//! prints the rows of bounds.md. The bounds themselves are here.

use std::time::Duration;

use lamplighter::sim::LoneFault as Fault;
use lamplighter::sim::{A_WHILE, CLOCK_OFF, FaultStart, Lone, RecoveryTimes, WorldResult};

const MINUTE: u64 = 60;

/// An interval of two minutes, up to the next save of the work within one.
const LOST: u64 = 3 * MINUTE;

/// A power-off, whose first way may do nothing for a minute.
const LADDER: u64 = 90;

/// Boot, code and checkpoint of the next machine.
const NEXT: u64 = 5 * MINUTE;

/// `RestartSec` and `WatchdogSec` of the agent's unit.
const RESTART: u64 = 2;
const WATCHDOG: u64 = 30;

/// After the run time a machine has five minutes to save and power off. Then the deadline unit
/// checks once a minute, and again after 30 s.
const AFTER_ITS_TIME: u64 = 5 * MINUTE;
const SWITCH: u64 = 90;

/// The bound of a fault.
enum Asked {
    /// This result comes within so many seconds.
    Within(&'static str, fn(&RecoveryTimes) -> Option<Duration>, u64),
    /// This result never comes.
    Never(&'static str, fn(&RecoveryTimes) -> bool),
}

use Asked::{Never, Within};

const fn dark(within: u64) -> Asked {
    Within("dark", |measured| measured.dark, within)
}

const fn gone(within: u64) -> Asked {
    Within("terminated", |measured| measured.gone, within)
}

const fn goes_on(within: u64) -> Asked {
    Within("the work goes on", |measured| measured.goes_on, within)
}

const fn lost(within: u64) -> Asked {
    Within("of work done again", |measured| measured.lost, within)
}

const fn lives_again(within: u64) -> Asked {
    Within("an agent lives again", |measured| measured.agent, within)
}

const NONE_BOUGHT: Asked = Never("another machine is bought", |measured| measured.bought > 0);

const NO_SECOND_BOUGHT: Asked = Never("two machines are bought", |measured| measured.bought > 1);

const NONE_BY_THAT_CLOCK: Asked = Never("a machine is bought by that clock", |measured| {
    measured.bought_at.is_some_and(|at| at < CLOCK_OFF)
});

const NONE_UNSEEN: Asked = Never("a machine is bought meanwhile", |measured| {
    measured.bought_at.is_some_and(|at| at < A_WHILE)
});

const NOT_STOPPED: Asked = Never("the work is stopped", |measured| !measured.went_on);

const NOT_EARLY: Asked = Never("dark more than two minutes before", |measured| {
    measured.early > Duration::from_secs(2 * MINUTE)
});

/// The row of the matrix, if it has one, and the bounds.
fn asked(lone: Lone) -> (Option<u32>, Vec<Asked>) {
    let buys = lone.watching.has_workstation();
    // A lease, a visit, the second check and the call. An awake workstation acts without a visit.
    let lease = if buys { 33 * MINUTE } else { 37 * MINUTE };
    // If a workstation can launch the next machine.
    let elsewhere =
        |within: u64| if buys { vec![goes_on(within + NEXT), lost(LOST)] } else { vec![] };
    let ends = |within: u64| std::iter::once(dark(within)).chain(elsewhere(within)).collect();
    match lone.fault {
        // The end of the work, its last save and its uploads, and the ladder.
        Fault::Done => (Some(33), vec![dark(30 + LADDER)]),
        // Once more after ten seconds, from the last save on, to where it failed.
        Fault::Fails => (Some(34), vec![dark(5 * MINUTE)]),
        // The first rung is twenty minutes; two of them restart it from its last save.
        Fault::Hangs => (Some(35), vec![goes_on(23 * MINUTE), dark(72 * MINUTE)]),
        Fault::Idles => (None, vec![dark(10 * MINUTE)]),
        // After the outcome the lease does not matter: a sweep waits five minutes, and checks
        // twice.
        Fault::PowerBroken => (None, vec![dark(if buys { 5 * MINUTE } else { 12 * MINUTE })]),
        Fault::DiskFull => (Some(41), vec![dark(2 * MINUTE + LADDER)]),
        // Half an hour of uploads, and two minutes for the outcome. Without the outcome the work
        // counts as lost.
        Fault::StoreGone => (Some(47), vec![dark(32 * MINUTE + LADDER)]),
        Fault::Cap | Fault::CapAfterClock => (None, vec![dark(AFTER_ITS_TIME), NOT_EARLY]),
        Fault::CapAfterReboot => (Some(29), vec![dark(AFTER_ITS_TIME), NOT_EARLY]),
        // Only its run time ends this attempt. After a lease without an agent the machine may end
        // earlier.
        Fault::CapWithoutAgent => (None, vec![dark(AFTER_ITS_TIME + SWITCH + LADDER)]),
        // `limits.boot`, and a visit if there is no workstation.
        Fault::NoAgent | Fault::DarkBoot => (Some(25), vec![dark(22 * MINUTE)]),
        Fault::KernelHang => (Some(51), ends(lease)),
        Fault::HostDies => (Some(28), ends(if buys { 15 * MINUTE } else { 37 * MINUTE })),
        Fault::AgentCrash => (Some(38), vec![lives_again(RESTART + 1), NONE_BOUGHT, NOT_STOPPED]),
        Fault::AgentHang => {
            (Some(39), vec![lives_again(WATCHDOG + RESTART + 1), NONE_BOUGHT, NOT_STOPPED])
        }
        // The work continues without an agent, and may end meanwhile.
        Fault::AgentGone => (Some(38), vec![dark(lease)]),
        // It cannot write heartbeats, so its lease ends although it works.
        Fault::RoleGone => (None, vec![dark(lease)]),
        Fault::Reboot => (Some(29), vec![goes_on(5 * MINUTE), lost(LOST), NONE_BOUGHT]),
        // The last save has all steps until then. The work may continue until EC2 takes the
        // machine.
        Fault::Noticed => (Some(18), vec![goes_on(10 * MINUTE), lost(MINUTE)]),
        Fault::Taken => (Some(19), vec![goes_on(10 * MINUTE), lost(LOST)]),
        // Two minutes of notice, and three minutes more until the notice is void.
        Fault::NotTaken => (Some(20), vec![goes_on(5 * MINUTE + 30), lost(MINUTE), NONE_BOUGHT]),
        // The agent asks for a save at once. An earlier save that still runs comes first.
        Fault::Rebalance => (
            Some(21),
            vec![
                Within("a checkpoint is kept", |measured| measured.saved, 45),
                NONE_BOUGHT,
                NOT_STOPPED,
            ],
        ),
        // The hour, a refusal that is asked for again after twelve minutes at most, and a boot.
        Fault::NoRoom => (Some(14), vec![goes_on(75 * MINUTE)]),
        Fault::TakenUnseen => {
            (Some(11), vec![goes_on(A_WHILE.as_secs() + 2 * NEXT), NONE_UNSEEN, NO_SECOND_BOUGHT])
        }
        Fault::Withdrawn => (Some(23), vec![goes_on(NEXT)]),
        Fault::ShownLate => (Some(12), vec![NONE_BOUGHT]),
        // A minute of an EC2 that errs, a look, thirty seconds for an agent that boots, and its
        // end.
        Fault::CancelAtLaunch => (Some(16), vec![dark(2 * MINUTE + LADDER), NONE_BOUGHT]),
        Fault::GpuLost => (Some(43), vec![dark(10 * MINUTE), goes_on(15 * MINUTE)]),
        Fault::NvmlLost => (Some(42), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::MachineClock => (Some(44), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::Offline => (Some(45), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::MetadataDown => (Some(46), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::ConsoleEnd | Fault::ConsoleStop => (Some(32), vec![NONE_BOUGHT]),
        // The last save has its minute.
        Fault::Stop => (None, vec![dark(MINUTE + LADDER), NONE_BOUGHT]),
        Fault::Cancel => (None, vec![dark(LADDER), NONE_BOUGHT]),
        // Three minutes for an agent to obey, a look, and an answer that is half a minute old.
        Fault::StaleEnd => (Some(13), vec![dark(4 * MINUTE), NONE_BOUGHT]),
        Fault::StuckEnd => (Some(24), vec![gone(12 * MINUTE), NONE_BOUGHT]),
        // Ten minutes, a pause of one, and a look.
        Fault::Throttled => (Some(10), vec![dark(12 * MINUTE), NONE_BOUGHT]),
        Fault::SignedOut => (Some(15), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::LaptopClock => (
            Some(8),
            vec![goes_on(CLOCK_OFF.as_secs() + 2 * NEXT), NONE_BY_THAT_CLOCK, NO_SECOND_BOUGHT],
        ),
        Fault::SecondController => (Some(7), vec![NONE_BOUGHT]),
    }
}

/// The measurements of one fault.
#[derive(Default)]
pub struct Seen {
    pub measured: Vec<(RecoveryTimes, u64)>,
    /// Seeds in which it struck no machine.
    pub missed: Vec<u64>,
}

impl Seen {
    pub fn add(&mut self, lone: Lone, played: &WorldResult) {
        // A fault at a random time may miss: the machine, the agent or the market may differ then.
        let missed = lone.fault.moment() == FaultStart::Dice
            && lone.fault != Fault::CancelAtLaunch
            && played.strikes.values().any(|(_, struck)| *struck == 0);
        match played.measured.filter(|_| !missed) {
            Some(measured) => self.measured.push((measured, played.seed)),
            // A job that is cancelled before its launch has no machine.
            None if lone.fault == Fault::CancelAtLaunch => {}
            None => self.missed.push(played.seed),
        }
    }
}

/// A row for each bound, and each broken bound with the command that plays it again.
pub fn tell(
    lone: Lone,
    seen: &Seen,
    command: impl Fn(u64) -> String,
) -> (Vec<String>, Vec<String>) {
    let (row, asked) = asked(lone);
    let row = row.map_or("-".to_owned(), |row| row.to_string());
    let head = format!("| {row} | {} | {} ", lone.fault.words(), lone.watching.words());
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    let mut wrong = |what: String, seed: u64| {
        broken.push(format!(
            "{}, {}: {what}: {}",
            lone.fault.words(),
            lone.watching.words(),
            command(seed)
        ))
    };
    for asked in &asked {
        match asked {
            Within(what, took, within) => {
                let mut all: Vec<(Duration, u64)> = Vec::new();
                for (measured, seed) in &seen.measured {
                    match took(measured) {
                        Some(time) => all.push((time, *seed)),
                        None => wrong(format!("never {what}"), *seed),
                    }
                }
                all.sort_unstable();
                let most = clock(Duration::from_secs(*within));
                let late = all.iter().filter(|(time, _)| *time > Duration::from_secs(*within));
                late.for_each(|(time, seed)| {
                    wrong(format!("{what} after {}, and {most} were asked", clock(*time)), *seed)
                });
                let at =
                    |percent: usize| clock(all[(all.len() * percent).div_ceil(100).max(1) - 1].0);
                if let Some((longest, seed)) = all.last() {
                    let (half, nearly, longest) = (at(50), at(99), clock(*longest));
                    rows.push(format!("{head}| {what} | {half} | {nearly} | {longest} | {most} | `{:?}:{:?}` {seed} |", lone.fault, lone.watching));
                }
            }
            Never(what, came) => {
                let seeds: Vec<u64> = seen
                    .measured
                    .iter()
                    .filter(|(measured, _)| came(measured))
                    .map(|(_, seed)| *seed)
                    .collect();
                rows.push(format!(
                    "{head}| {what} | - | - | {} times | 0 times | `{:?}:{:?}` |",
                    seeds.len(),
                    lone.fault,
                    lone.watching
                ));
                seeds.into_iter().for_each(|seed| wrong((*what).to_owned(), seed));
            }
        }
    }
    seen.missed.iter().for_each(|seed| wrong("it found nothing to befall".to_owned(), *seed));
    (rows, broken)
}

/// Rounds up to seconds: 90.4 s is beyond a bound of 90 s.
fn clock(time: Duration) -> String {
    let secs = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    if secs < MINUTE {
        format!("{secs} s")
    } else {
        format!("{} min {:02} s", secs / MINUTE, secs % MINUTE)
    }
}
