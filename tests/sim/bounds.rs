//! `just soak N --bounds`: each fault alone, N times, each with everybody who can do something about it, and how long it took until what
//! the fault matrix (docs/promises.md) promises was there. What is asked of all of them stands here.

use std::time::Duration;

use lamplighter::sim::LoneFault as Fault;
use lamplighter::sim::Watching::Sweeper;
use lamplighter::sim::{Lone, Measured};

const MINUTE: u64 = 60;

/// An interval of two minutes, up to the next save of the work within one.
const LOST: u64 = 3 * MINUTE;

/// The ladder of the power-off, whose first rung may do nothing for a minute.
const LADDER: u64 = 90;

/// Boot, code and checkpoint of the next machine.
const NEXT: u64 = 5 * MINUTE;

/// What a fault asks for, and within which time of it.
struct Asked {
    what: &'static str,
    took: fn(&Measured) -> Option<Duration>,
    within: u64,
}

/// The row of the matrix, and what it asks for.
fn asked(lone: Lone) -> (&'static str, Vec<Asked>) {
    let dark = |within| Asked { what: "dark", took: |measured| measured.dark, within };
    let goes_on = |within| Asked { what: "goes on", took: |measured| measured.goes_on, within };
    let lost = |within| Asked { what: "does again", took: |measured| measured.lost, within };
    let gone = |within| Asked { what: "gone", took: |measured| measured.gone, within };
    // A lease, a visit, and the second look and the call; with a workstation that is awake nobody waits for a visit.
    let lease = match lone.watching {
        Sweeper => 37 * MINUTE,
        _ => 33 * MINUTE,
    };
    // Where there is somebody to buy the next.
    let elsewhere = |within: u64| if lone.watching == Sweeper { vec![] } else { vec![goes_on(within + NEXT), lost(LOST)] };
    let ends = |within: u64| std::iter::once(dark(within)).chain(elsewhere(within)).collect();
    match lone.fault {
        // The end of the work, its last save and its uploads, and the ladder.
        Fault::Done => ("row 33", vec![dark(30 + LADDER)]),
        // Once more after ten seconds, from the last save on, to where it failed.
        Fault::Fails => ("row 34", vec![dark(5 * MINUTE)]),
        // The first rung is twenty minutes; two of them restart it from its last save.
        Fault::Hangs => ("row 35", vec![goes_on(23 * MINUTE), dark(72 * MINUTE)]),
        Fault::Idles => ("idle work", vec![dark(10 * MINUTE)]),
        // Of a machine that has told its outcome a workstation does not wait for the lease.
        Fault::PowerBroken => ("no switch works", vec![dark(if lone.watching == Sweeper { lease } else { 5 * MINUTE })]),
        Fault::BadBoot => ("row 25", vec![dark(22 * MINUTE)]),
        Fault::KernelHang => ("row 51", ends(lease)),
        Fault::HostDies => ("row 28", ends(if lone.watching == Sweeper { 37 * MINUTE } else { 15 * MINUTE })),
        // The work goes on, unwatched and unsaved, and may end in one of their lives.
        Fault::AgentGone => ("row 40", vec![dark(lease)]),
        // It cannot beat, so that its lease lapses, though it works.
        Fault::RoleGone => ("role gone", vec![dark(lease)]),
        Fault::Reboot => ("row 29", vec![goes_on(5 * MINUTE), lost(LOST)]),
        // Not a step that was done when the last save was made; from then on it may go on until it is taken.
        Fault::Noticed => ("row 18", vec![goes_on(10 * MINUTE), lost(MINUTE)]),
        Fault::Taken => ("row 19", vec![goes_on(10 * MINUTE), lost(LOST)]),
        // Two minutes to the end that was told, and three in which it may still come.
        Fault::NotTaken => ("row 20", vec![goes_on(5 * MINUTE + 30), lost(MINUTE)]),
        Fault::Rebalance => ("row 21", vec![]),
        // The hour, a refusal that is asked for again after twelve minutes at most, and a boot.
        Fault::NoRoom => ("row 14", vec![goes_on(75 * MINUTE)]),
        Fault::Withdrawn => ("row 23", vec![goes_on(NEXT)]),
        Fault::GpuLost => ("row 43", vec![dark(10 * MINUTE), goes_on(15 * MINUTE)]),
        Fault::ConsoleEnd => ("row 32", vec![]),
        // The last save has its minute.
        Fault::Stop => ("a stop", vec![dark(MINUTE + LADDER)]),
        Fault::Cancel => ("a cancel", vec![dark(LADDER)]),
        Fault::StuckEnd => ("row 24", vec![gone(12 * MINUTE)]),
        // Ten minutes, a pause of one, and a look.
        Fault::Throttled => ("row 10", vec![dark(12 * MINUTE)]),
    }
}

/// What was seen of one fault.
#[derive(Default)]
pub struct Seen {
    pub measured: Vec<(Measured, u64)>,
    /// Seeds in which the fault found no machine.
    pub missed: Vec<u64>,
}

/// A line for each thing that is asked for; and what was not so, by the command that plays it again.
pub fn tell(lone: Lone, seen: &Seen, command: impl Fn(u64) -> String) -> (Vec<String>, Vec<String>) {
    let (row, asked) = asked(lone);
    let (mut lines, mut broken) = (Vec::new(), Vec::new());
    let head = format!("{row}, {:?}, {}", lone.fault, lone.watching.words());
    for Asked { what, took, within } in &asked {
        let mut all: Vec<(Duration, u64)> = Vec::new();
        for (measured, seed) in &seen.measured {
            match took(measured) {
                Some(time) => all.push((time, *seed)),
                None => broken.push(format!("{head}: never {what}: {}", command(*seed))),
            }
        }
        all.sort_unstable();
        let most = clock(Duration::from_secs(*within));
        let late = all.iter().filter(|(time, _)| time.as_secs() > *within);
        broken.extend(late.map(|(time, seed)| format!("{head}: {what} after {}, and {most} were asked: {}", clock(*time), command(*seed))));
        let at = |percent: usize| clock(all[(all.len() * percent).div_ceil(100).max(1) - 1].0);
        if let Some((longest, seed)) = all.last() {
            let (half, nearly, many) = (at(50), at(99), all.len());
            lines.push(format!(
                "{head}: {what} after {half} (half of {many}), {nearly} (99 %), {} (the longest, seed {seed}), of {most}",
                clock(*longest)
            ));
        }
    }
    let not_so = |what: &str, is_wrong: fn(&Measured) -> bool| -> (String, Vec<String>) {
        let seeds: Vec<u64> = seen.measured.iter().filter(|(measured, _)| is_wrong(measured)).map(|(_, seed)| *seed).collect();
        let line = format!("{head}: {what} in {} of {}", seeds.len(), seen.measured.len());
        (line, seeds.into_iter().map(|seed| format!("{head}: {what}: {}", command(seed))).collect())
    };
    let is_over = [Fault::Done, Fault::Fails, Fault::Hangs, Fault::Idles].contains(&lone.fault);
    let by_a_person = [Fault::ConsoleEnd, Fault::Stop, Fault::Cancel, Fault::StuckEnd, Fault::Throttled].contains(&lone.fault);
    let stays = [Fault::NotTaken, Fault::Rebalance, Fault::Reboot].contains(&lone.fault);
    let mut never = Vec::new();
    if is_over || by_a_person || stays {
        never.push(not_so("another machine was bought", |measured| measured.bought > 0));
    }
    if lone.fault == Fault::Rebalance {
        never.push(not_so("the work was stopped", |measured| !measured.went_on));
    }
    for (line, wrong) in never {
        lines.push(line);
        broken.extend(wrong);
    }
    broken.extend(seen.missed.iter().map(|seed| format!("{head}: the fault found no machine: {}", command(*seed))));
    (lines, broken)
}

fn clock(time: Duration) -> String {
    let secs = time.as_secs();
    if secs < MINUTE { format!("{secs} s") } else { format!("{} min {:02} s", secs / MINUTE, secs % MINUTE) }
}
