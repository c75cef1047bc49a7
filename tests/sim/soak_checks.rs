//! Other modes of `just soak`: deaths at every call, planted bugs, the named seeds, single faults,
//! and a job of three days.

use lamplighter::job::{EndedBecause, JobOutcome};
use lamplighter::sim::{Bug, Lone, SaveStyle, Story, WorldResult, WorldRun};

use super::bounds::Seen;
use super::{Run, bounds_table, played, processor, side_by_side, tell};

/// How a job and its attempts ended, and the step of its newest checkpoint. Deaths must not change
/// this.
fn end(played: &WorldResult) -> Option<(JobOutcome, Vec<EndedBecause>, Option<f64>)> {
    let receipt = played.receipt.as_ref()?;
    let ends = receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
    Some((
        receipt.outcome,
        ends,
        receipt.last_checkpoint.as_ref().and_then(|checkpoint| checkpoint.step),
    ))
}

/// Plays the short job, and the same job with a cancel during its work. The last saved step of a
/// cancelled job is random.
pub fn deaths() {
    let short = WorldRun { short: true, ..WorldRun::seed(0) };
    let cancelled = WorldRun { story: Some(Story::Cancelled), ..short };
    let (mut all, mut changed) = (0, 0);
    for (job, short, counts_steps) in
        [("", short, true), (", of a job that is cancelled", cancelled, false)]
    {
        let end = |played: &WorldResult| {
            end(played).map(|(outcome, ends, step)| (outcome, ends, step.filter(|_| counts_steps)))
        };
        let undisturbed = end(&played(short));
        for kind in ["controller", "agent"] {
            let mut deaths = 0;
            for after in [false, true] {
                for call in 1.. {
                    let played = played(WorldRun { death: Some((kind, call, after)), ..short });
                    if !played.died {
                        break;
                    }
                    deaths += 1;
                    let end = end(&played);
                    if !played.violations.is_empty() || end.is_none() || end != undisturbed {
                        changed += 1;
                        println!(
                            "{kind} died at call {call}, after its effect: {after}: {end:?}; its story: {}",
                            played.command
                        );
                        tell(&played);
                    }
                }
            }
            println!("{kind}{job}: {deaths} deaths");
            all += deaths;
        }
    }
    println!("of these {all}, {changed} changed what came of the job");
    if changed > 0 {
        std::process::exit(1);
    }
}

/// The seeds within which each bug must break its law.
const MUTANT_SEEDS: u64 = 500;

/// The seed that shows a bug which few seeds show. It is tried first, and then all from 0 on.
fn telling_seed(bug: Bug) -> u64 {
    match bug {
        Bug::StopSpot => 10,
        Bug::PowerLost => 11,
        Bug::SilenceIsRefusal => 32,
        Bug::NoticesUnread => 42,
        Bug::MemoryIsWork => 47,
        Bug::UnknownIsIdle => 48,
        Bug::BlindSweeper => 63,
        Bug::ErrorIsEmpty => 64,
        Bug::DropToken | Bug::RequestDrifts => 208,
        Bug::WallForSteady => 378,
        _ => 0,
    }
}

pub fn mutants(run: &Run) {
    let came = side_by_side(run, Bug::ALL.len() as u64, |_, number| {
        let bug = Bug::ALL[number as usize];
        let mut seeds = std::iter::once(telling_seed(bug)).chain(0..MUTANT_SEEDS);
        let caught = seeds.find_map(|seed| {
            let broken = played(WorldRun { planted: Some(bug), ..WorldRun::seed(seed) }).violations;
            let violation = broken.into_iter().find(|violation| violation.law == bug.law())?;
            // The violation must come from the bug, so the world without it must be clean.
            played(WorldRun::seed(seed)).violations.is_empty().then_some((seed, violation))
        });
        match &caught {
            Some((seed, violation)) => {
                println!("{bug:?}: seed {seed}, law {}: {}", violation.law, violation.what)
            }
            None => println!("{bug:?}: NOT SEEN by law {} in {MUTANT_SEEDS} seeds", bug.law()),
        }
        caught.is_some()
    });
    let caught = came.iter().filter(|caught| **caught).count();
    println!("{caught} of {} planted bugs were caught", Bug::ALL.len());
    if caught < Bug::ALL.len() {
        std::process::exit(1);
    }
}

pub fn named(run: &Run) {
    let as_they_are =
        super::named_seeds::NAMED_AS_THEY_ARE.iter().map(|named| (*named, None, false));
    let with_newer = super::named_seeds::NAMED_WITH_NEWER.iter().map(|named| (*named, None, true));
    let renamed =
        super::named_seeds::NAMED.iter().map(|named| (*named, Some(SaveStyle::Renamed), false));
    let all: Vec<_> = renamed.chain(as_they_are).chain(with_newer).collect();
    let came = side_by_side(run, all.len() as u64, |_, number| {
        let ((hours, seed), saves, newer) = all[number as usize];
        let played =
            played(WorldRun { hours, saves, newer, layouts: false, ..WorldRun::seed(seed) });
        tell(&played);
        if !played.violations.is_empty() {
            println!("seed {seed} of {hours} h breaks a law again: {}", played.command);
        }
        played.violations.is_empty()
    });
    println!(
        "{} named seeds played, {} without a violation",
        came.len(),
        came.iter().filter(|well| **well).count()
    );
    if !came.iter().all(|well| *well) {
        std::process::exit(1);
    }
}

/// Measures each single fault.
pub fn bounds(run: &Run) {
    let all = Lone::all();
    let came = side_by_side(run, all.len() as u64 * run.count, |_, number| {
        let (lone, seed) = (all[(number / run.count) as usize], run.from + number % run.count);
        let played = played(WorldRun { lone: Some(lone), ..run.world(seed) });
        tell(&played);
        (lone, played)
    });
    let mut late: Vec<String> = Vec::new();
    let mut table = vec![bounds_table::HEAD.to_owned()];
    for lone in all {
        let mut seen = Seen::default();
        came.iter().filter(|(of, _)| *of == lone).for_each(|(_, played)| seen.add(lone, played));
        let (rows, broken) = super::bounds::tell(lone, &seen, |seed| {
            WorldRun { lone: Some(lone), ..run.world(seed) }.command()
        });
        table.extend(rows);
        late.extend(broken);
    }
    let failed =
        late.len() + came.iter().filter(|(_, played)| !played.violations.is_empty()).count();
    println!("{}\n", table.join("\n"));
    late.iter().for_each(|line| println!("{line}"));
    println!("{} worlds played, {failed} not within what is asked", came.len());
    if failed > 0 {
        std::process::exit(1);
    }
}

/// The same for one world. True if all its bounds hold.
pub fn is_within(lone: Lone, played: &WorldResult) -> bool {
    let mut seen = Seen::default();
    seen.add(lone, played);
    let (rows, broken) = super::bounds::tell(lone, &seen, |_| played.command.clone());
    rows.iter().chain(&broken).for_each(|line| println!("{line}"));
    broken.is_empty()
}

/// Prints the processor time of 72 hours of one job.
pub fn long() {
    let played = played(WorldRun { hours: 72, calm: true, long: true, ..WorldRun::seed(0) });
    println!(
        "{:.1} machine-hours in {:.2} s of a processor",
        played.machine_time.as_secs_f64() / 3600.0,
        processor().as_secs_f64()
    );
}
