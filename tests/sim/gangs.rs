//! One job on several machines in the false world. `just soak N --gangs` plays as many as one likes.

use lamplighter::job::{EndedBecause, JobOutcome};
use lamplighter::sim::{Bug, WorldResult, WorldRun};

use super::{played, told};

/// Seeds that are played here without optimisation: a refused launch, lost ranks, a notice with a
/// split network, a launch of two machines of four.
const SEEDS: [u64; 4] = [1, 3, 8, 134];

/// Seeds that found a bug: a receipt without the machine of a rank, and a rank that ended as idle
/// while it waited.
const NAMED_GANGS: [u64; 2] = [7, 4];

/// The same in worlds of six hours: with `done = "any"`, rank 0 was killed in its last save; a
/// store of 15 s a call got no checkpoint; a rank that had been cut off ended as idle before it
/// could ask for time; rank 0 began at a save that was on its own disk alone; the first save of an
/// epoch had the step of the epoch before.
const NAMED_LONG: [u64; 5] = [58, 195, 519, 1050, 1572];

/// A seed whose world shows the planted bugs.
const MUTANT_SEED: u64 = 7;

fn gang(seed: u64) -> WorldRun {
    WorldRun { gang: true, ..WorldRun::seed(seed) }
}

fn broken(seeds: &[u64]) -> Vec<String> {
    let broken = |played: &WorldResult| !played.violations.is_empty();
    let worlds = seeds.iter().map(|seed| played(gang(*seed)));
    worlds.filter(broken).map(|played| told(&played)).collect()
}

#[test]
fn no_gang_breaks_a_law() {
    let broken = broken(&SEEDS);
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

#[test]
fn gangs_that_found_a_bug_break_no_law() {
    let mut broken = broken(&NAMED_GANGS);
    for seed in NAMED_LONG {
        let long = played(WorldRun { hours: 6, ..gang(seed) });
        broken.extend((!long.violations.is_empty()).then(|| told(&long)));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

#[test]
fn gang_without_faults_succeeds() {
    let played = played(WorldRun { calm: true, ..gang(1) });
    assert!(played.violations.is_empty(), "{}", told(&played));
    let receipt = played.receipt.expect("rank 0 has one");
    let ends: Vec<EndedBecause> =
        receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
    assert_eq!((receipt.outcome, ends), (JobOutcome::Succeeded, vec![EndedBecause::Succeeded]));
}

#[test]
fn same_seed_gives_the_same_gang() {
    let sum = |seed| played(gang(seed)).sha256;
    assert_eq!(sum(7), sum(7));
    assert_ne!(sum(7), sum(8));
}

#[test]
fn planted_bugs_of_gangs_break_their_laws() {
    for bug in Bug::OF_GANGS {
        let played = played(WorldRun { planted: Some(bug), ..gang(MUTANT_SEED) });
        let is_seen = played.violations.iter().any(|violation| violation.law == bug.law());
        assert!(is_seen, "{bug:?} is not seen by law {}", bug.law());
    }
}
