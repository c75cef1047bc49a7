//! Whatever dies, at whatever moment: the workload is not hurt by it, nothing runs twice, and there
//! is one receipt.

use std::process::Stdio;

use serde_json::json;

use crate::bench::{Bench, Finish as _, PATIENCE, Running, alive, kill, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code};

/// The process of the bench that was called with these words.
fn process(bench: &Bench, words: &[&str]) -> Option<u32> {
    bench.processes().into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        words.iter().all(|word| line.iter().any(|found| found == word))
    })
}

fn agent(bench: &Bench) -> u32 {
    wait_until("an agent runs", || process(bench, &["agent", "boot"]))
}

fn machine(bench: &Bench) -> u32 {
    wait_until("a machine runs", || process(bench, &["agent", "machine"]))
}

#[test]
fn a_killed_agent_leaves_the_workload_alone_and_finds_it_again() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    bench.submit();
    bench.trains(1, 1.0);
    let before = bench.begins();
    for _ in 0..2 {
        let agent = agent(&bench);
        let attached = bench.events_of(1, "agent").len();
        kill(agent, "KILL");
        wait_until("it is dead, and another one watches", || {
            process(&bench, &["agent", "boot"]).filter(|other| *other != agent)
        });
        wait_until("it says that it found the workload", || {
            (bench.events_of(1, "agent").len() > attached).then_some(())
        });
    }
    assert!(alive(before[0].1), "the workload has not noticed");
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    assert_eq!(bench.begins(), before, "the same process, from its only begin to its end");
    assert!(bench.events_of(1, "agent").iter().skip(1).all(|event| event["reattached"] == true));
    assert_eq!(receipt["attempts"].as_array().unwrap().len(), 1);
    adds_up(&receipt);
}

#[test]
fn a_machine_without_power_is_lost_and_the_next_one_resumes() {
    let bench = Bench::new();
    bench.trainer("SAVE_EVERY = 5", SAVES);
    bench.submit();
    // A try that a save tears on a slow disk has used up its number.
    let first = wait_until("a checkpoint is complete", || {
        bench.find("jobs-root", "manifest.json").first().cloned()
    });
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(first).unwrap()).unwrap();
    let saved = manifest["step"].as_f64().unwrap();
    let workload = bench.begins()[0].1;
    // What is complete now is not lost, whatever was done since.
    let complete = bench.find("jobs-root", "manifest.json").len();
    kill(machine(&bench), "KILL");
    let (attempt, _, from) =
        wait_until("the second attempt trains", || bench.begins().get(1).copied());
    assert!(!alive(workload), "nothing of a machine without power runs on");
    assert!(attempt == 2 && f64::from(from) >= saved, "{:?}, saved {saved}", bench.begins());
    assert!(
        f64::from(from) >= 5.0 * complete as f64,
        "{complete} saves of five steps were complete, and it goes on from step {from}"
    );
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["attempts"][0]["ended_because"], "lost", "{receipt:#}");
    assert_eq!(receipt["outcome"], "succeeded");
    bench.never_twice();
    adds_up(&receipt);
}

#[test]
fn killed_holder_ends_the_attempt_and_the_next_goes_on() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    bench.submit();
    bench.trains(1, 1.0);
    let holder = wait_until("the workload is held", || process(&bench, &["agent", "holder"]));
    kill(holder, "KILL");
    bench.go();
    let receipt = bench.receipt();
    bench.never_twice();
    adds_up(&receipt);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    let because: Vec<&str> = receipt["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["ended_because"].as_str().unwrap())
        .collect();
    assert_eq!(
        because,
        ["lost", "succeeded"],
        "nobody knows how the workload would have ended: {receipt:#}"
    );
}

/// When to kill the controller.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Submitted,
    Planned,
    Launched,
    Running,
    Ending,
    Ended,
}

fn has_come(bench: &Bench, moment: Moment) -> bool {
    let there = |name: &str| {
        bench.only_job().is_some_and(|job| bench.root().join("jobs").join(job).join(name).exists())
    };
    match moment {
        Moment::Submitted => there("spec.json"),
        Moment::Planned => there("attempts/0001/plan.json"),
        Moment::Launched => there("attempts/0001/lease.json"),
        Moment::Running => !bench.begins().is_empty(),
        Moment::Ending => {
            bench.go();
            there("outputs/lamp-output/model.txt") || there("attempts/0001/outcome.json")
        }
        Moment::Ended => {
            bench.go();
            there("attempts/0001/outcome.json")
        }
    }
}

fn killed_at(moment: Moment) {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    let controller = Running::start(
        bench.lamp(&["run", "job.toml"]).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    // As close to the moment as it goes: no pause between two looks.
    let until = std::time::Instant::now() + PATIENCE;
    while !has_come(&bench, moment) {
        assert!(std::time::Instant::now() < until, "never: {moment:?}");
        std::thread::yield_now();
    }
    kill(controller.pid(), "KILL");
    drop(controller);
    bench.go();
    let job = bench.only_job().unwrap();
    let next = bench.lamp(&["daemon", "--job", &job, "--until-done"]).finish();
    assert_code(&next, 0);
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{moment:?}: {receipt:#}");
    assert_eq!(receipt["attempts"].as_array().unwrap().len(), 1, "{moment:?}: {receipt:#}");
    assert_eq!(bench.begins().len(), 1, "{moment:?}");
    bench.never_twice();
    adds_up(&receipt);
}

#[test]
fn controller_may_be_killed_at_any_moment() {
    std::thread::scope(|scope| {
        for moment in [
            Moment::Submitted,
            Moment::Planned,
            Moment::Launched,
            Moment::Running,
            Moment::Ending,
            Moment::Ended,
        ] {
            scope.spawn(move || killed_at(moment));
        }
    });
}

#[test]
fn controllers_on_one_root_do_no_harm_to_each_other() {
    let bench = Bench::new();
    bench.trainer("SAVE_EVERY = 5", SAVES);
    let mut run = Running::start(
        bench.lamp(&["run", "job.toml"]).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    let job = wait_until("it is submitted", || {
        bench.only_job().filter(|_| bench.record("spec.json").is_some())
    });
    let others: Vec<Running> = (0..3)
        .map(|_| {
            Running::start(
                bench
                    .lamp(&["daemon", "--job", &job, "--until-done"])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null()),
            )
        })
        .collect();
    wait_until("a checkpoint is complete", || {
        bench.find("jobs-root", "manifest.json").first().cloned()
    });
    // A loss is where they would race: each sees it, and each would launch the next machine.
    kill(machine(&bench), "KILL");
    wait_until("the second attempt trains", || bench.begins().get(1).copied());
    bench.go();
    assert_eq!(run.wait().code(), Some(0));
    for mut other in others {
        assert!(other.wait().success());
    }
    let receipt = bench.receipt();
    assert_eq!(receipt["attempts"].as_array().unwrap().len(), 2, "{receipt:#}");
    assert_eq!(bench.begins().len(), 2);
    bench.never_twice();
    adds_up(&receipt);
}

#[test]
fn second_daemon_on_one_root_is_refused() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.root()).unwrap();
    let first = Running::start(
        bench
            .lamp(&["daemon"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(bench.file("said")).unwrap()),
    );
    wait_until("it drives", || {
        std::fs::read_to_string(bench.file("said")).ok()?.contains("driving").then_some(())
    });
    let second = bench.lamp(&["daemon"]).finish();
    assert_code(&second, 102);
    drop(first);
}

#[test]
fn a_torn_checkpoint_is_never_resumed_from() {
    let bench = Bench::new();
    bench.trainer("STEPS = 80, SAVE_EVERY = 5, STEP_SECS = 0.3", SAVES);
    bench.submit();
    wait_until("two checkpoints are complete", || {
        (bench.find("jobs-root", "manifest.json").len() >= 2).then_some(())
    });
    // Stopped, so that no third one comes while the two are damaged.
    let machine = machine(&bench);
    let all = bench.processes();
    for pid in all.iter().filter(|pid| process(&bench, &["daemon"]) != Some(**pid)) {
        kill(*pid, "STOP");
    }
    let job = bench.only_job().unwrap();
    let manifests = bench.find("jobs-root", "manifest.json");
    let newest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(manifests.last().unwrap()).unwrap()).unwrap();
    let older: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&manifests[manifests.len() - 2]).unwrap()).unwrap();
    // The newest one lies, and one after it has files and no manifest.
    let object = newest["files"][0]["key"].as_str().unwrap();
    bench.write(&format!("jobs-root/jobs/{job}/{object}"), "{\"step\": 9");
    let number = newest["number"].as_u64().unwrap() + 1;
    bench.write(
        &format!("jobs-root/jobs/{job}/checkpoints/{number:04}/files/state.json"),
        "{\"step\": 999}",
    );
    kill(machine, "KILL");
    let (_, _, from) = wait_until("the second attempt trains", || bench.begins().get(1).copied());
    assert_eq!(f64::from(from), older["step"].as_f64().unwrap(), "from the newest that is whole");
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    assert_eq!(receipt["attempts"][1]["resumed_from"]["number"], older["number"]);
    let told: Vec<_> = bench
        .events(2)
        .into_iter()
        .filter(|event| event["kind"] == "attention" || event["kind"] == "loss")
        .collect();
    assert!(!told.is_empty(), "and it is told");
    assert_ne!(
        receipt["last_checkpoint"]["number"],
        json!(number),
        "a number that was begun is never used again"
    );
}
