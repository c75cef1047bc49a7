//! `just soak N --bounds`: each fault alone, N times, each with everybody who can do something about it, and how long it took until what
//! the fault matrix (docs/promises.md) promises was there, as the rows of the table in docs/false-world.md. What is asked of all of them
//! stands here.

use std::time::Duration;

use lamplighter::sim::LoneFault as Fault;
use lamplighter::sim::Watching::{Nobody, Sweeper};
use lamplighter::sim::{Lone, Measured};

const MINUTE: u64 = 60;

/// An interval of two minutes, up to the next save of the work within one.
const LOST: u64 = 3 * MINUTE;

/// The ladder of the power-off, whose first rung may do nothing for a minute.
const LADDER: u64 = 90;

/// Boot, code and checkpoint of the next machine.
const NEXT: u64 = 5 * MINUTE;

/// What a fault asks for.
enum Asked {
    /// What is there within so many seconds of it.
    Within(&'static str, fn(&Measured) -> Option<Duration>, u64),
    /// What does not come of it.
    Never(&'static str, fn(&Measured) -> bool),
}

use Asked::{Never, Within};

const fn dark(within: u64) -> Asked {
    Within("dark", |measured| measured.dark, within)
}

const fn gone(within: u64) -> Asked {
    Within("terminated", |measured| measured.gone, within)
}

const fn beyond_its_end(within: u64) -> Asked {
    Within("dark, from its hard end on", |measured| measured.dark, within)
}

const fn goes_on(within: u64) -> Asked {
    Within("the work goes on", |measured| measured.goes_on, within)
}

const fn lost(within: u64) -> Asked {
    Within("of work done again", |measured| measured.lost, within)
}

const NONE_BOUGHT: Asked = Never("another machine is bought", |measured| measured.bought > 0);

const NOT_STOPPED: Asked = Never("the work is stopped", |measured| !measured.went_on);

/// The row of the matrix, if it has one, and what it asks for.
fn asked(lone: Lone) -> (Option<u32>, Vec<Asked>) {
    // A lease, a visit, and the second look and the call; with a workstation that is awake nobody waits for a visit.
    let lease = match lone.watching {
        Sweeper | Nobody => 37 * MINUTE,
        _ => 33 * MINUTE,
    };
    // Where there is somebody to buy the next.
    let elsewhere = |within: u64| if lone.watching == Sweeper { vec![] } else { vec![goes_on(within + NEXT), lost(LOST)] };
    let ends = |within: u64| std::iter::once(dark(within)).chain(elsewhere(within)).collect();
    match lone.fault {
        // The end of the work, its last save and its uploads, and the ladder.
        Fault::Done => (Some(33), vec![dark(30 + LADDER), NONE_BOUGHT]),
        // Once more after ten seconds, from the last save on, to where it failed.
        Fault::Fails => (Some(34), vec![dark(5 * MINUTE), NONE_BOUGHT]),
        // The first rung is twenty minutes; two of them restart it from its last save.
        Fault::Hangs => (Some(35), vec![goes_on(23 * MINUTE), dark(72 * MINUTE), NONE_BOUGHT]),
        Fault::Idles => (None, vec![dark(10 * MINUTE), NONE_BOUGHT]),
        // Of a machine that has told its outcome a workstation does not wait for the lease.
        Fault::PowerBroken => (None, vec![dark(if lone.watching == Sweeper { lease } else { 5 * MINUTE })]),
        Fault::DiskFull => (Some(41), vec![dark(2 * MINUTE + LADDER), NONE_BOUGHT]),
        // Half an hour of uploads, and two minutes for the outcome.
        Fault::StoreGone => (Some(47), vec![dark(32 * MINUTE + LADDER)]),
        // Before it, by the agent; by the switch a look each minute, a second one after 30 s, and its ladder.
        Fault::Cap | Fault::CapAfterClock => (None, vec![beyond_its_end(0), NONE_BOUGHT]),
        Fault::CapAfterReboot => (Some(29), vec![beyond_its_end(0), NONE_BOUGHT]),
        Fault::CapWithoutAgent => (None, vec![beyond_its_end(90 + LADDER)]),
        // `limits.boot`, and a visit where nobody else is there.
        Fault::NoAgent | Fault::DarkBoot => (Some(25), vec![dark(22 * MINUTE)]),
        Fault::KernelHang => (Some(51), ends(lease)),
        Fault::HostDies => (Some(28), ends(if lone.watching == Sweeper { 37 * MINUTE } else { 15 * MINUTE })),
        Fault::AgentCrash => (Some(38), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::AgentHang => (Some(39), vec![NONE_BOUGHT, NOT_STOPPED]),
        // The work goes on, unwatched and unsaved, and may end in one of their lives.
        Fault::AgentGone => (Some(40), vec![dark(lease)]),
        // It cannot beat, so that its lease lapses, though it works.
        Fault::RoleGone => (None, vec![dark(lease)]),
        Fault::Reboot => (Some(29), vec![goes_on(5 * MINUTE), lost(LOST), NONE_BOUGHT]),
        // Not a step that was done when the last save was made; from then on it may go on until it is taken.
        Fault::Noticed => (Some(18), vec![goes_on(10 * MINUTE), lost(MINUTE)]),
        Fault::Taken => (Some(19), vec![goes_on(10 * MINUTE), lost(LOST)]),
        // Two minutes to the end that was told, and three in which it may still come.
        Fault::NotTaken => (Some(20), vec![goes_on(5 * MINUTE + 30), lost(MINUTE), NONE_BOUGHT]),
        Fault::Rebalance => (Some(21), vec![NONE_BOUGHT, NOT_STOPPED]),
        // The hour, a refusal that is asked for again after twelve minutes at most, and a boot.
        Fault::NoRoom => (Some(14), vec![goes_on(75 * MINUTE)]),
        Fault::Withdrawn => (Some(23), vec![goes_on(NEXT)]),
        Fault::ShownLate => (Some(12), vec![NONE_BOUGHT]),
        Fault::CancelAtLaunch => (Some(16), vec![gone(60 + LADDER), NONE_BOUGHT]),
        Fault::GpuLost => (Some(43), vec![dark(10 * MINUTE), goes_on(15 * MINUTE)]),
        Fault::NvmlLost => (Some(42), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::MachineClock => (Some(44), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::Offline => (Some(45), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::MetadataDown => (Some(46), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::ConsoleEnd | Fault::ConsoleStop => (Some(32), vec![NONE_BOUGHT]),
        // The last save has its minute.
        Fault::Stop => (None, vec![dark(MINUTE + LADDER), NONE_BOUGHT]),
        Fault::Cancel => (None, vec![dark(LADDER), NONE_BOUGHT]),
        Fault::StaleEnd => (Some(13), vec![dark(LADDER), NONE_BOUGHT]),
        Fault::StuckEnd => (Some(24), vec![gone(12 * MINUTE), NONE_BOUGHT]),
        // Ten minutes, a pause of one, and a look.
        Fault::Throttled => (Some(10), vec![dark(12 * MINUTE), NONE_BOUGHT]),
        Fault::Ec2Silent => (Some(11), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::SignedOut => (Some(15), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::LaptopClock => (Some(8), vec![NONE_BOUGHT, NOT_STOPPED]),
        Fault::SecondController => (Some(7), vec![NONE_BOUGHT, NOT_STOPPED]),
    }
}

/// What was seen of one fault.
#[derive(Default)]
pub struct Seen {
    pub measured: Vec<(Measured, u64)>,
    /// Seeds in which the fault found no machine.
    pub missed: Vec<u64>,
}

/// The head of the table that [`tell`] makes the rows of.
pub const HEAD: &str = "| Row | What befalls it | Who is there outside | Until | Half | 99 % | The longest | Asked | The longest again |\n|---|---|---|---|---|---|---|---|---|";

/// A row for each thing that is asked for; and what was not so, by the command that plays it again.
pub fn tell(lone: Lone, seen: &Seen, command: impl Fn(u64) -> String) -> (Vec<String>, Vec<String>) {
    let (row, asked) = asked(lone);
    let row = row.map_or("-".to_owned(), |row| row.to_string());
    let head = format!("| {row} | {} | {} ", lone.fault.words(), lone.watching.words());
    let (mut rows, mut broken) = (Vec::new(), Vec::new());
    let mut wrong = |what: String, seed: u64| broken.push(format!("{what}: {}", command(seed)));
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
                late.for_each(|(time, seed)| wrong(format!("{what} after {}, and {most} were asked", clock(*time)), *seed));
                let at = |percent: usize| clock(all[(all.len() * percent).div_ceil(100).max(1) - 1].0);
                if let Some((longest, seed)) = all.last() {
                    let (half, nearly, longest) = (at(50), at(99), clock(*longest));
                    rows.push(format!("{head}| {what} | {half} | {nearly} | {longest} | {most} | `{:?}:{:?}` {seed} |", lone.fault, lone.watching));
                }
            }
            Never(what, came) => {
                let seeds: Vec<u64> = seen.measured.iter().filter(|(measured, _)| came(measured)).map(|(_, seed)| *seed).collect();
                rows.push(format!("{head}| {what} | - | - | {} times | 0 times | `{:?}:{:?}` |", seeds.len(), lone.fault, lone.watching));
                seeds.into_iter().for_each(|seed| wrong((*what).to_owned(), seed));
            }
        }
    }
    seen.missed.iter().for_each(|seed| wrong("the fault found no machine".to_owned(), *seed));
    (rows, broken)
}

/// To the second above: what took 90.4 s was not there within 90.
fn clock(time: Duration) -> String {
    let secs = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    if secs < MINUTE { format!("{secs} s") } else { format!("{} min {:02} s", secs / MINUTE, secs % MINUTE) }
}
