//! `just soak N`: plays seeds and prints machine-days and violations; `--seed S` replays one, with its whole story;
//! `--deaths` dies at every call of the short job.

use std::time::{Duration, Instant};

use lamplighter::sim::{Bug, Play, Played, play};

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut count, mut from, mut hours, mut bug) = (100_u64, 0_u64, 6_u64, None);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number follows");
        match word.as_str() {
            "--seed" => return replay(number(), bug.as_deref()),
            "--deaths" => return deaths(),
            "--hours" => hours = number(),
            "--from" => from = number(),
            "--long" => return long(),
            "--mutants" => return mutants(),
            "--bug" => bug = words.next(),
            word => count = word.parse().expect("how many seeds"),
        }
    }
    soak(from, count, hours);
}

#[expect(clippy::disallowed_methods, reason = "the real time that it takes is what is printed")]
fn clock() -> Instant {
    Instant::now()
}

fn soak(from: u64, count: u64, hours: u64) {
    let began = clock();
    let (mut powered, mut broken, mut ended) = (Duration::ZERO, 0_u64, std::collections::BTreeMap::<String, u64>::new());
    for seed in from..from + count {
        let played = play(Play { hours, ..Play::seed(seed) });
        powered += played.machine_time;
        if let Some(receipt) = &played.receipt {
            for attempt in &receipt.attempts {
                *ended.entry(attempt.ended_because.word().to_owned()).or_default() += 1;
            }
        }
        if !played.violations.is_empty() {
            broken += 1;
            tell(&played);
        }
    }
    let took = began.elapsed();
    println!("attempts ended: {ended:?}");
    println!(
        "seeds {from}..{}: {:.1} machine-days, {} world-days, {broken} seeds with violations, in {:.1} s ({:.3} s a seed)",
        from + count,
        powered.as_secs_f64() / 86_400.0,
        count * hours / 24,
        took.as_secs_f64(),
        took.as_secs_f64() / count as f64
    );
    if broken > 0 {
        std::process::exit(1);
    }
}

fn tell(played: &Played) {
    for violation in &played.violations {
        println!("seed {} law {} at {} s: {}", played.seed, violation.law, violation.at_secs, violation.what);
    }
}

fn replay(seed: u64, bug: Option<&str>) {
    let planted = bug.map(|name| *Bug::ALL.iter().find(|bug| format!("{bug:?}") == name).expect("a bug of the list"));
    let played = play(Play { told: true, planted, ..Play::seed(seed) });
    played.story.iter().for_each(|line| println!("{line}"));
    println!("{} deeds, {}", played.deeds, played.sha256);
    println!("{:?}", played.receipt.as_ref().map(|receipt| (&receipt.outcome, &receipt.reason, receipt.total_usd)));
    tell(&played);
    if !played.violations.is_empty() {
        std::process::exit(1);
    }
}

fn deaths() {
    for kind in ["controller", "agent"] {
        let mut deaths = 0;
        for after in [false, true] {
            for call in 1.. {
                let played = play(Play { death: Some((kind, call, after)), short: true, ..Play::seed(0) });
                if !played.died {
                    break;
                }
                deaths += 1;
                let ended = played.receipt.as_ref().map(|receipt| receipt.outcome);
                if !played.violations.is_empty() || ended != Some(lamplighter::job::JobOutcome::Succeeded) {
                    println!("{kind} died at call {call}, after its effect: {after}: {ended:?}");
                    tell(&played);
                }
            }
        }
        println!("{kind}: {deaths} deaths");
    }
}

/// Each bug must break a law within so many seeds; one of them may go unseen.
const MUTANT_SEEDS: u64 = 500;

fn mutants() {
    let mut unseen = Vec::new();
    for bug in Bug::ALL {
        let caught = (0..MUTANT_SEEDS).find_map(|seed| {
            let played = play(Play { planted: Some(bug), ..Play::seed(seed) });
            let violation = played.violations.first()?.clone();
            // Of the bug, and not of the world.
            play(Play::seed(seed)).violations.is_empty().then_some((seed, violation))
        });
        match caught {
            Some((seed, violation)) => println!("{bug:?}: seed {seed}, law {}: {}", violation.law, violation.what),
            None => {
                println!("{bug:?}: NOT SEEN in {MUTANT_SEEDS} seeds");
                unseen.push(bug);
            }
        }
    }
    println!("{} of {} planted bugs were caught", Bug::ALL.len() - unseen.len(), Bug::ALL.len());
    if unseen.len() > 1 {
        std::process::exit(1);
    }
}

/// What 72 hours of one job cost.
fn long() {
    let began = clock();
    let played = play(Play { hours: 72, calm: true, long: true, ..Play::seed(0) });
    println!("{:.1} machine-hours in {:.2} s", played.machine_time.as_secs_f64() / 3600.0, began.elapsed().as_secs_f64());
}
