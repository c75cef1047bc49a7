//! `just soak N --bounds`: each fault alone, N times, each with everybody who can do something about it, and how long it took until what
//! the fault matrix (docs/promises.md) promises was there. What is asked of all of them stands here.

use std::time::Duration;

use lamplighter::sim::LoneFault as Fault;
use lamplighter::sim::Watching::{Both, Sweeper, Workstation};
use lamplighter::sim::{Lone, Measured, Watching};

const MINUTE: u64 = 60;

const LOST: u64 = 210;

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
    let by_lease = |watching: Watching| if watching == Workstation { 33 * MINUTE } else { 37 * MINUTE };
    match lone.fault {
        // The end of the work, its last save and its uploads, and a ladder whose first rung may do nothing for a minute.
        Fault::Done => ("row 33", vec![dark(2 * MINUTE)]),
        // Once more after ten seconds, from the last save on, to where it failed.
        Fault::Fails => ("row 34", vec![dark(5 * MINUTE)]),
        // Three rungs of the watch, of which two restart it from its last save, and the way to where it hung.
        Fault::Hangs => ("row 35", vec![dark(75 * MINUTE)]),
        Fault::Idles => ("idle work", vec![dark(10 * MINUTE)]),
        Fault::PowerBroken => ("row 30", vec![dark(by_lease(lone.watching))]),
        Fault::BadBoot => ("row 25", vec![dark(22 * MINUTE)]),
        Fault::KernelHang => ("row 51", vec![dark(by_lease(lone.watching))]),
        Fault::HostDies => ("row 28", vec![dark(if lone.watching == Sweeper { 37 * MINUTE } else { 15 * MINUTE })]),
        // Ten short lives come first.
        Fault::AgentGone => ("row 38", vec![dark(45 * MINUTE)]),
        // An interval of two minutes, up to the next save of the work within one, and the upload.
        Fault::Reboot => ("row 29", vec![goes_on(5 * MINUTE), lost(LOST)]),
        Fault::Noticed => ("row 18", vec![goes_on(10 * MINUTE), lost(LOST)]),
        Fault::Taken => ("row 19", vec![goes_on(10 * MINUTE), lost(LOST)]),
        // The hour, a refusal that is asked for again after twelve minutes at most, and a boot.
        Fault::NoRoom => ("row 14", vec![goes_on(75 * MINUTE)]),
        Fault::Withdrawn => ("row 23", vec![gone(2 * MINUTE), goes_on(5 * MINUTE)]),
        Fault::NotTaken => ("row 20", vec![]),
        Fault::Rebalance => ("row 21", vec![]),
        Fault::GpuLost => ("row 43", vec![dark(10 * MINUTE), goes_on(15 * MINUTE)]),
        Fault::ConsoleEnd => ("row 32", vec![gone(2 * MINUTE)]),
        Fault::Stop => ("row 16", vec![dark(4 * MINUTE)]),
        // The request, the last upload, and the ladder.
        Fault::Cancel => ("row 16", vec![dark(2 * MINUTE)]),
        Fault::StuckEnd => ("row 24", vec![gone(12 * MINUTE)]),
        // Ten minutes, a pause of one, and a look.
        Fault::Throttled => ("row 10", vec![dark(12 * MINUTE)]),
        // It cannot beat, so that its lease lapses.
        Fault::RoleGone => ("row 47", vec![dark(by_lease(lone.watching))]),
    }
}

/// What was seen of one fault.
#[derive(Default)]
pub struct Seen {
    pub measured: Vec<(Measured, u64)>,
    /// Seeds in which the fault found no machine.
    pub missed: u64,
}

/// A line for each thing that is asked for; and what was not so, by the command that plays it again.
pub fn tell(lone: Lone, seen: &Seen, command: impl Fn(u64) -> String) -> (Vec<String>, Vec<String>) {
    let (row, asked) = asked(lone);
    let (mut lines, mut broken) = (Vec::new(), Vec::new());
    let who = match lone.watching {
        Both => "workstation and sweeper",
        Sweeper => "no workstation",
        Workstation => "no sweeper",
    };
    let head = format!("{row}, {:?}, {who}", lone.fault);
    for Asked { what, took, within } in &asked {
        let mut all: Vec<(Duration, u64)> = Vec::new();
        for (measured, seed) in &seen.measured {
            match took(measured) {
                Some(time) => all.push((time, *seed)),
                None => broken.push(format!("{head}: never {what}: {}", command(*seed))),
            }
        }
        all.sort_unstable();
        broken.extend(all.iter().filter(|(time, _)| time.as_secs() > *within).map(|(time, seed)| {
            format!("{head}: {what} after {}, and {} were asked: {}", clock(*time), clock(Duration::from_secs(*within)), command(*seed))
        }));
        let at = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1].0;
        if let Some((longest, seed)) = all.last() {
            let within = clock(Duration::from_secs(*within));
            lines.push(format!(
                "{head}: {what} after {} (half of {}), {} (99 %), {} (the longest, seed {seed}), of {within}",
                clock(at(50)),
                all.len(),
                clock(at(99)),
                clock(*longest)
            ));
        }
    }
    let stays = matches!(lone.fault, Fault::Done | Fault::NotTaken | Fault::Rebalance | Fault::Reboot);
    let is_persons = matches!(lone.fault, Fault::ConsoleEnd | Fault::Stop | Fault::Cancel | Fault::StuckEnd | Fault::Throttled);
    if stays || is_persons {
        let bought: Vec<u64> = seen.measured.iter().filter(|(measured, _)| measured.bought > 0).map(|(_, seed)| *seed).collect();
        broken.extend(bought.iter().map(|seed| format!("{head}: another machine was bought: {}", command(*seed))));
        lines.push(format!("{head}: {} machines bought afterwards, of {} worlds", bought.len(), seen.measured.len()));
    }
    if seen.missed > 0 {
        lines.push(format!("{head}: found no machine in {} worlds", seen.missed));
    }
    (lines, broken)
}

fn clock(time: Duration) -> String {
    let secs = time.as_secs();
    if secs < MINUTE { format!("{secs} s") } else { format!("{} min {:02} s", secs / MINUTE, secs % MINUTE) }
}
