//! The false world: the shipped controller and agent, played by seed (src/sim). `just soak` plays
//! as many as one likes.

mod bounds_table;
mod gangs;
mod named_seeds;
mod single_fault;
mod user_job;
mod wrappers;

use std::cell::RefCell;

use lamplighter::job::{EndedBecause, JobOutcome};
use lamplighter::sim::{Bug, Story, WorldResult, WorldRun, play};

/// Seeds that are played here without optimisation: six seconds. The program of `just soak` plays
/// `WORLDS` below.
const SEEDS: u64 = 12;

/// How many calls of the short job are skipped between two deaths. The program of `just soak` dies
/// at each call.
const STRIDE: u64 = 31;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A panic in a task of the world only ends that task. It is stored here, and fails the test.
fn remember_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            before(panic);
        }));
    });
    PANICS.take();
}

fn played(how: WorldRun) -> WorldResult {
    remember_panics();
    let played = play(how);
    let panics = PANICS.take();
    assert!(panics.is_empty(), "{how:?}: {panics:?}");
    played
}

/// The message for a failing seed.
fn told(played: &WorldResult) -> String {
    let law = |violation: &lamplighter::sim::Violation| {
        format!("  law {} at {} s: {}", violation.law, violation.at_secs, violation.what)
    };
    let laws: Vec<String> = played.violations.iter().map(law).collect();
    format!("seed {}:\n{}\nits story: {}", played.seed, laws.join("\n"), played.command)
}

#[test]
fn no_seed_breaks_a_law() {
    // Each world runs on one thread.
    let of = |from: u64| (from..SEEDS).step_by(2).map(|seed| played(WorldRun::seed(seed)));
    let broken_of = |from| {
        of(from)
            .filter(|played| !played.violations.is_empty())
            .map(|played| told(&played))
            .collect::<Vec<String>>()
    };
    let broken = std::thread::scope(|scope| {
        let odd = scope.spawn(|| broken_of(1));
        [broken_of(0), odd.join().expect("a panic there fails the test here")].concat()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

#[test]
fn same_seed_gives_the_same_world() {
    for seed in [3, 4] {
        let sums: Vec<(String, u64)> = (0..2)
            .map(|_| played(WorldRun::seed(seed)))
            .map(|played| (played.sha256, played.deeds))
            .collect();
        assert_eq!(sums[0], sums[1], "seed {seed}");
    }
    assert_ne!(played(WorldRun::seed(3)).sha256, played(WorldRun::seed(4)).sha256);
    // In separate processes: the trace must not depend on addresses or earlier worlds.
    let sums: Vec<String> = (0..2).map(|_| soak(&["--seed", "3"])).collect();
    assert!(sums[0] == sums[1] && sums[0].contains(" deeds, "), "{}", sums[0]);
}

/// Seeds 584 and 1181: its cost was missing in the receipt.
#[test]
fn machine_that_no_controller_saw_is_in_the_receipt() {
    let stories = [
        (Story::DiedUnseen, JobOutcome::Succeeded, None, EndedBecause::Lost),
        (Story::DiedUnwanted, JobOutcome::Stopped, None, EndedBecause::UserStopped),
        // Beside three machines of others, numbered from one.
        (Story::DiedNamed, JobOutcome::Succeeded, Some("i-0004"), EndedBecause::Lost),
    ];
    for (story, outcome, instance, because) in stories {
        let played = played(WorldRun { story: Some(story), ..WorldRun::seed(0) });
        assert!(played.violations.is_empty(), "{story:?}: {}", told(&played));
        let receipt = played.receipt.unwrap();
        assert_eq!(receipt.outcome, outcome, "{story:?}");
        let unseen = &receipt.attempts[0];
        assert_eq!(
            (unseen.instance.as_deref(), unseen.billed_estimated, unseen.ended_because),
            (instance, true, because),
            "{story:?}"
        );
        assert!(
            unseen.usd > lamplighter::market::Usd::ZERO && receipt.total_usd >= unseen.usd,
            "{story:?}"
        );
    }
}

/// Seeds 121 and 3006: the receipt had the cost until the last heartbeat as exact. An estimate must
/// never be too low.
#[test]
fn forgotten_machine_is_in_the_receipt_at_its_highest_cost() {
    let stories = [
        (Story::HungUnseen, vec![EndedBecause::Lost, EndedBecause::Succeeded], 37 * 60..3 * 3600),
        (Story::EndedUnseen, vec![EndedBecause::Succeeded], 60..400),
    ];
    for (story, because, billed) in stories {
        let played = played(WorldRun { story: Some(story), ..WorldRun::seed(0) });
        assert!(played.violations.is_empty(), "{story:?}: {}", told(&played));
        let receipt = played.receipt.unwrap();
        let ends: Vec<EndedBecause> =
            receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
        assert_eq!((receipt.outcome, ends), (JobOutcome::Succeeded, because), "{story:?}");
        let forgotten = &receipt.attempts[0];
        assert!(
            forgotten.billed_estimated && billed.contains(&(forgotten.billed_seconds as u64)),
            "{story:?}: {forgotten:?}"
        );
    }
}

/// Row 11 of docs/promises.md: while Describe fails, the controller launches no other machine.
#[test]
fn machine_in_a_short_zone_outage_is_not_replaced() {
    let played = played(WorldRun { story: Some(Story::ZoneBlinks), ..WorldRun::seed(0) });
    assert!(played.violations.is_empty(), "{}", told(&played));
    let receipt = played.receipt.unwrap();
    let ends: Vec<EndedBecause> =
        receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
    assert_eq!((receipt.outcome, ends), (JobOutcome::Succeeded, vec![EndedBecause::Succeeded]));
}

/// Seed 4632: it launched a machine after that machine's own hard end.
#[test]
fn laptop_with_clock_a_day_behind_launches_nothing() {
    let played = played(WorldRun { story: Some(Story::ClockBehind), ..WorldRun::seed(0) });
    assert!(played.violations.is_empty(), "{}", told(&played));
    let receipt = played.receipt.unwrap();
    let [taken, next] = &receipt.attempts[..] else { panic!("{receipt:?}") };
    assert_eq!(
        (taken.ended_because, next.ended_because),
        (EndedBecause::Interrupted, EndedBecause::Succeeded)
    );
    let waited = next.started.unwrap().duration_since(taken.ended.unwrap()).as_secs();
    assert!((1700..2400).contains(&waited), "{waited} s");
}

/// The part of the result that deaths must not change.
fn story(played: &WorldResult) -> (Option<JobOutcome>, Vec<EndedBecause>, Option<f64>) {
    let receipt = played.receipt.as_ref();
    let ends = receipt
        .map(|receipt| receipt.attempts.iter().map(|attempt| attempt.ended_because).collect())
        .unwrap_or_default();
    let step = receipt
        .and_then(|receipt| receipt.last_checkpoint.as_ref())
        .and_then(|checkpoint| checkpoint.step);
    (receipt.map(|receipt| receipt.outcome), ends, step)
}

/// Runs the program of `just soak`, which cargo builds with the profile `soak`. Returns its output
/// on success.
fn soak(args: &[&str]) -> String {
    let (well, out, err) = try_soak(args);
    assert!(well, "soak {}:\n{out}\n{err}", args.join(" "));
    out
}

/// Cargo tells a test its package. `ring` builds again when these change, and with it most of the
/// crates.
const TOLD_BY_CARGO: [&str; 9] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// The result of a run of `just soak` that the gate begins beside the other tests, when a
/// processor is free (`play_worlds` in .ci/run). `None`: it is not played there.
#[expect(clippy::disallowed_methods, reason = "the folder of the gate")]
fn played_beside(args: &[&str]) -> Option<(bool, String, String)> {
    let folder = std::path::PathBuf::from(std::env::var_os("LAMP_TEST_PLAYED")?);
    let name = args.join(" ");
    let read = |end: &str| std::fs::read_to_string(folder.join(format!("{name}.{end}")));
    read("asked").ok()?;
    loop {
        if let Ok(status) = read("status") {
            return Some((status.trim() == "0", read("out").ok()?, read("err").ok()?));
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

fn try_soak(args: &[&str]) -> (bool, String, String) {
    if let Some(played) = played_beside(args) {
        return played;
    }
    let mut cargo = std::process::Command::new(env!("CARGO"));
    for name in TOLD_BY_CARGO {
        cargo.env_remove(name);
    }
    let cargo = cargo
        .args([
            "run",
            "--quiet",
            "--profile",
            "soak",
            "--no-default-features",
            "--features",
            "lamp",
            "--example",
            "soak",
            "--",
        ])
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // The gate lints what it builds, and clippy builds without optimisation of its MIR.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .expect("cargo runs these tests");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (cargo.status.success(), text(&cargo.stdout), text(&cargo.stderr))
}

/// Two minutes of two processors. `just soak 2000` plays more, before a release.
const WORLDS: u64 = 600;
/// The least strikes of each kind of fault in these worlds, and the number of kinds. A fault
/// without strikes is untested.
const STRIKES_MIN: u64 = 3;
const KINDS: usize = 45;

/// The least attempts that end by each of these reasons. The laws do not notice a watch that never
/// fires.
const ENDS_MIN: [(&str, u64); 7] = [
    ("idle", 12),
    ("stalled", 6),
    ("interrupted", 80),
    ("hardware_lost", 18),
    ("lost", 45),
    ("user_stopped", 30),
    ("failed", 22),
];

#[test]
fn worlds_break_no_law_and_deaths_change_nothing() {
    let deaths = soak(&["--deaths"]);
    let counted: Vec<u64> = deaths
        .lines()
        .filter_map(|line| line.split_once(": ")?.1.strip_suffix(" deaths")?.parse().ok())
        .collect();
    let [controllers, agents, cancelled, cancelled_agents] = counted.as_slice() else {
        panic!("{deaths}")
    };
    // The counts must equal `docs/promises.md`. Fewer deaths mean that calls are left out.
    let promises = include_str!("../../docs/promises.md");
    for words in [
        format!("{controllers} and {agents} deaths"),
        format!("({cancelled} and {cancelled_agents})"),
    ] {
        assert!(promises.contains(&words), "{words}: {deaths}");
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let worlds = soak(&["--threads", &threads, &WORLDS.to_string()]);
    assert!(
        worlds.contains(&format!("{WORLDS} played"))
            && worlds.contains(", 0 seeds with violations"),
        "{worlds}"
    );
    let strikes: Vec<(&str, u64)> = worlds
        .lines()
        .filter_map(|line| line.strip_suffix(" found a machine")?.split_once(": "))
        .filter_map(|(kind, counts)| Some((kind, counts.split_once(" of ")?.0.parse().ok()?)))
        .collect();
    let rare: Vec<&(&str, u64)> =
        strikes.iter().filter(|(_, struck)| *struck < STRIKES_MIN).collect();
    assert!(
        strikes.len() >= KINDS && rare.is_empty(),
        "{} kinds of faults, too rare: {rare:?}",
        strikes.len()
    );
    let ends = worlds
        .lines()
        .find_map(|line| line.strip_prefix("attempts ended: "))
        .expect("it is printed");
    let ends: std::collections::BTreeMap<String, u64> =
        serde_json::from_str(ends).expect("words and counts");
    let few: Vec<_> = ENDS_MIN
        .iter()
        .filter(|(end, least)| ends.get(*end).is_none_or(|count| count < least))
        .collect();
    assert!(few.is_empty(), "too few of {few:?}: {ends:?}");
    let mutants = soak(&["--threads", &threads, "--mutants"]);
    assert!(mutants.contains("30 of 30 planted bugs were caught"), "{mutants}");
    let named = soak(&["--threads", &threads, "--named"]);
    let many = named_seeds::NAMED.len()
        + named_seeds::NAMED_AS_THEY_ARE.len()
        + named_seeds::NAMED_WITH_NEWER.len();
    assert!(
        named.contains(&format!("{many} named seeds played, {many} without a violation")),
        "{named}"
    );
    // This profile aborts on a panic.
    let (well, out, _) = try_soak(&["--bug", "Panics", "--seed", "7"]);
    assert!(!well && out.contains("seed 7 panics"), "{out}");
    let (well, _, err) = try_soak(&["--bug", "Panic", "--seed", "7"]);
    assert!(!well && err.contains("there are DropToken, "), "{err}");
    let (well, _, err) = try_soak(&["--bug", "NoCap", "20"]);
    assert!(!well && err.contains("--seed says which"), "{err}");
}

/// The pages state the number of planted bugs and of named seeds.
#[test]
fn pages_have_the_true_counts_of_bugs_and_seeds() {
    let many = named_seeds::NAMED.len()
        + named_seeds::NAMED_AS_THEY_ARE.len()
        + named_seeds::NAMED_WITH_NEWER.len();
    let bugs = Bug::ALL.len();
    for (page, words) in [
        (include_str!("../../docs/promises.md"), format!("the {many} seeds that once found a bug")),
        (include_str!("../../docs/false-world.md"), format!("plant {bugs} bugs")),
        (include_str!("../../justfile"), format!("Plants {bugs} bugs")),
    ] {
        assert!(page.contains(&words), "{words}");
    }
}

/// Each zone follows the recording by itself: periods of minutes to hours, repeated.
#[test]
#[expect(clippy::disallowed_methods, reason = "the recording that is read")]
fn recorded_capacity_breaks_no_law() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capacity.json");
    std::fs::write(&file, r#"{"gap_seconds": 300, "first": 1, "runs": [3, 1, 17, 30, 6, 2, 1, 1, 40, 55, 9, 4, 25, 8]}"#).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let worlds = soak(&["--threads", &threads, "--trace", file.to_str().unwrap(), "200"]);
    assert!(
        worlds.contains("200 played") && worlds.contains(", 0 seeds with violations"),
        "{worlds}"
    );
    let ends = worlds
        .lines()
        .find_map(|line| line.strip_prefix("attempts ended: "))
        .expect("it is printed");
    let ends: std::collections::BTreeMap<String, u64> =
        serde_json::from_str(ends).expect("words and counts");
    assert!(
        ends["interrupted"] > 100 && ends["launch_failed"] > 300,
        "it takes machines, and has none: {ends:?}"
    );
    let (well, _, err) = try_soak(&["--trace", "nowhere.json", "1"]);
    assert!(!well && err.contains("nowhere.json"), "{err}");
}

/// Only tests and examples use the feature.
#[test]
fn planted_bugs_are_built_only_for_tests() {
    let manifest = include_str!("../../Cargo.toml");
    let asks: Vec<&str> = manifest
        .lines()
        .filter(|line| line.contains("planted") && !line.starts_with('#'))
        .collect();
    assert_eq!(
        asks,
        [
            "planted = []",
            r#"lamplighter = { path = ".", default-features = false, features = ["planted"] }"#
        ]
    );
    assert!(
        manifest.find("[dev-dependencies]") < manifest.find(asks[1]),
        "only of tests and examples"
    );
}

/// A panic in a task of the world only ends that task.
#[test]
fn panic_in_a_world_fails_its_test_and_names_the_seed() {
    let how = WorldRun { planted: Some(Bug::Panics), ..WorldRun::seed(7) };
    let panic = std::panic::catch_unwind(|| played(how)).expect_err("it was played to its end");
    let words = panic.downcast_ref::<String>().expect("an assertion has words");
    assert!(words.contains("seed: 7,") && words.contains("planted"), "{words}");
}

fn die_everywhere(kind: &'static str) -> u64 {
    let short = WorldRun { short: true, ..WorldRun::seed(0) };
    let undisturbed = story(&played(short));
    assert_eq!(
        undisturbed,
        (
            Some(JobOutcome::Succeeded),
            vec![EndedBecause::Interrupted, EndedBecause::Succeeded],
            Some(14.0)
        )
    );
    let mut deaths = 0;
    for call in (1..).step_by(STRIDE as usize) {
        let after = call / STRIDE % 2 == 1;
        let lived = played(WorldRun { death: Some((kind, call, after)), ..short });
        if !lived.died {
            return deaths;
        }
        deaths += 1;
        assert!(
            lived.violations.is_empty(),
            "{kind} died at call {call}, after its effect: {after}: {}",
            told(&lived)
        );
        assert_eq!(
            story(&lived),
            undisturbed,
            "{kind} died at call {call}, after its effect: {after}"
        );
    }
    deaths
}

#[test]
fn controller_death_at_any_call_changes_nothing() {
    assert!(die_everywhere("controller") > 5);
}

#[test]
fn agent_death_at_any_call_changes_nothing() {
    assert!(die_everywhere("agent") > 5);
}
