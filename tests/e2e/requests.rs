//! What people ask of a job that runs: how it stands, its log, more time, an end.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::bench::{Bench, Finish as _, Running, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code, text};

/// How often the workload was asked to save for this reason.
fn asked_to_save(bench: &Bench, by: &str) -> usize {
    bench.events_of(1, "asked").iter().filter(|event| event["by"] == by).count()
}

#[test]
fn a_stop_saves_first_and_the_attached_run_says_stopped() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    let mut run = Running::start(
        bench.lamp(&["run", "job.toml"]).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    bench.trains(1, 3.0);
    let receipt = bench.ask(&["stop", "--wait", "toy"]);
    assert_eq!(run.wait().code(), Some(108));
    assert_eq!(receipt["outcome"], "stopped", "{receipt:#}");
    assert_eq!(receipt["attempts"][0]["ended_because"], "user_stopped");
    assert!(receipt["last_checkpoint"]["step"].as_f64().unwrap() >= 3.0, "{receipt:#}");
    assert_eq!(receipt["losses"], json!([]));
    assert_eq!(asked_to_save(&bench, "user_stopped"), 1, "{:#?}", bench.events(1));
    adds_up(&receipt);
    let again = bench.lamp(&["stop", "toy"]).finish();
    assert_code(&again, 102);
    assert!(text(&again.stderr).contains("has ended"), "{}", text(&again.stderr));
}

/// The file of the save has already replaced the one before: a half of it would be all that is left.
#[test]
fn stop_waits_for_a_save_that_is_being_written() {
    let bench = Bench::new();
    let script = "mkdir -p ckpt; echo whole > ckpt/last.pt; sleep 4; \
        { echo first; touch \"$BENCH/writes\"; sleep 3; echo second; } > ckpt/last.pt; sleep 600";
    let script = script.replace("$BENCH", &bench.file("").display().to_string());
    bench.shell(&script, "[checkpoint]\npath = 'ckpt'\n[limits]\nmax_runtime = '1h'\n");
    bench.submit();
    wait_until("it saves", || bench.file("writes").exists().then_some(()));
    let receipt = bench.ask(&["stop", "--wait", "toy"]);
    assert_eq!(receipt["outcome"], "stopped", "{receipt:#}");
    let last = &receipt["last_checkpoint"];
    let number = last["number"].as_str().map(str::to_owned);
    let number = number.unwrap_or_else(|| format!("{:04}", last["number"].as_u64().unwrap()));
    let folder = bench.root().join("jobs").join(bench.only_job().unwrap()).join("checkpoints");
    let kept = std::fs::read_to_string(folder.join(number).join("files/last.pt")).unwrap();
    assert_eq!(kept, "first\nsecond\n", "{receipt:#}");
}

#[test]
fn a_cancel_ends_at_once_without_a_checkpoint() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    bench.submit();
    bench.trains(1, 1.0);
    let asked = bench.ask(&["cancel", "toy"]);
    assert_eq!(asked["wish"], "cancel");
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "cancelled", "{receipt:#}");
    assert_eq!(receipt["attempts"][0]["ended_because"], "user_cancelled");
    assert!(receipt["reason"].as_str().unwrap().contains("cancel"));
    assert_eq!(
        asked_to_save(&bench, "user_cancelled"),
        0,
        "what lies in the folder may be kept, and nobody is asked to save: {:#?}",
        bench.events(1)
    );
}

/// A job that was submitted and that nobody has driven yet: the spec of another under a new id.
fn copied(bench: &Bench, from: &str, job: &str) {
    let jobs = bench.root().join("jobs");
    let codes = |job: &str| jobs.join(job).join("code");
    std::fs::create_dir_all(codes(job)).unwrap();
    for code in std::fs::read_dir(codes(from)).unwrap().map(Result::unwrap) {
        std::fs::copy(code.path(), codes(job).join(code.file_name())).unwrap();
    }
    let spec =
        std::fs::read_to_string(jobs.join(from).join("spec.json")).unwrap().replace(from, job);
    std::fs::write(jobs.join(job).join("spec.json"), spec).unwrap();
}

#[test]
fn of_several_jobs_of_a_name_nobody_guesses_which_is_meant() {
    let bench = Bench::new();
    // Whoever extends a job drives it, so that one that was copied may begin at any moment, and
    // must not end.
    bench.shell(
        &format!("while [ ! -e {} ]; do sleep 0.1; done", bench.file("go").display()),
        "[limits]\nmax_runtime = '1h'\n",
    );
    bench.write("go", "");
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 0);
    std::fs::remove_file(bench.file("go")).unwrap();
    let ended = bench.only_job().unwrap();
    // One that has ended never stands before one that is under way.
    copied(&bench, &ended, "toy-222222");
    assert_eq!(bench.ask(&["extend", "toy", "1h"])["job"], "toy-222222");
    copied(&bench, &ended, "toy-333333");
    for words in [&["cancel", "toy"][..], &["stop"], &["extend", "toy", "1h"]] {
        let refused = bench.lamp(words).finish();
        assert_code(&refused, 102);
        let said = text(&refused.stderr);
        assert!(said.contains("2 jobs") && said.contains("toy-222222, toy-333333"), "{said}");
    }
    let refused = bench.lamp(&["stop", &ended]).finish();
    assert!(text(&refused.stderr).contains("nothing of it bills"), "{}", text(&refused.stderr));
    let more = bench.lamp(&["run", "--detach", "job.toml"]).finish();
    assert_code(&more, 0);
    assert!(
        text(&more.stderr).contains("`toy-222222` of this name is under way already"),
        "{}",
        text(&more.stderr)
    );
    bench.write("go", "");
}

#[test]
fn stop_that_was_asked_for_is_not_asked_for_again() {
    let bench = Bench::new();
    let script =
        "trap '' TERM; touch \"$BENCH/deaf\"; while [ ! -e \"$BENCH/go\" ]; do sleep 0.1; done";
    bench.shell(
        &script.replace("$BENCH", &bench.file("").display().to_string()),
        "[watch]\ngrace = '5m'\n",
    );
    bench.submit();
    wait_until("it is deaf", || bench.file("deaf").exists().then_some(()));
    let first = bench.ask(&["stop", "toy"]);
    assert_eq!(bench.ask(&["stop", "toy"])["request"], first["request"]);
    let again = text(&bench.lamp(&["stop", "toy"]).finish().stderr);
    assert!(again.contains("was asked to stop") && again.contains("once is enough"), "{again}");
    bench.write("go", "");
    bench.receipt();
}

#[test]
fn a_cancel_before_any_machine_wins() {
    let bench = Bench::new();
    bench.trainer("STEPS = 1", "");
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 0);
    let job = "toy-222222";
    copied(&bench, &bench.only_job().unwrap(), job);
    assert_eq!(bench.ask(&["status", job])["jobs"][0]["state"], "submitted");
    bench.ask(&["cancel", job]);
    assert_code(&bench.lamp(&["daemon", "--job", job, "--until-done"]).finish(), 0);
    let receipt = bench.ask(&["receipt", job]);
    assert_eq!(
        (&receipt["outcome"], &receipt["attempts"]),
        (&json!("cancelled"), &json!([])),
        "{receipt:#}"
    );
    assert_eq!(bench.begins().len(), 1, "only the first job ever ran");
}

#[test]
fn more_time_reaches_a_job_that_runs() {
    let bench = Bench::new();
    bench.trainer("", &format!("{SAVES}[limits]\nmax_runtime = '30s'\n"));
    bench.submit();
    bench.trains(1, 1.0);
    bench.ask(&["extend", "toy", "10m"]);
    let (first, _) = wait_until("it runs beyond its first limit", || {
        let status = bench.record("attempts/0001/status.json")?;
        let step = status["progress"]["step"].as_f64()?;
        (step > 310.0).then_some((step, ()))
    });
    assert!(first > 310.0);
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    assert!(receipt["attempts"][0]["billed_seconds"].as_f64().unwrap() > 30.0, "{receipt:#}");
    assert_eq!(bench.events_of(1, "wish").len(), 1);
}

#[test]
fn log_is_byte_for_byte_and_can_be_followed() {
    let bench = Bench::new();
    bench.shell("printf '\\000\\001\\377\\376begin\\r\\n'; while [ ! -e $E2E_BENCH/go ]; do sleep 0.1; done; printf 'end without a newline'", "");
    bench.submit();
    let mut follow = Running::start(
        bench
            .lamp(&["logs", "-f", "toy"])
            .stdout(std::fs::File::create(bench.file("followed")).unwrap())
            .stderr(Stdio::null()),
    );
    wait_until("the follower has the beginning", || {
        std::fs::read(bench.file("followed")).ok()?.ends_with(b"begin\r\n").then_some(())
    });
    bench.go();
    assert!(follow.wait().success(), "it ends with the job");
    let all = b"\x00\x01\xff\xfebegin\r\nend without a newline";
    assert_eq!(std::fs::read(bench.file("followed")).unwrap(), all);
    bench.receipt();
    assert_eq!(bench.lamp(&["logs"]).finish().stdout, all);
}

#[test]
fn jobs_are_listed_newest_first_and_found_by_what_one_types() {
    let bench = Bench::new();
    bench.trainer("STEPS = 1", "");
    let ran = |name: &str| {
        let out = bench.lamp(&["run", "job.toml", "--name", name, "-o", "json"]).finish();
        assert_code(&out, 0);
        serde_json::from_slice::<Value>(&out.stdout).unwrap()["job"].as_str().unwrap().to_owned()
    };
    let (first, second) = (ran("first"), ran("second"));
    bench.trainer("", "");
    let out = bench.lamp(&["run", "--detach", "--name", "third", "job.toml"]).finish();
    assert_code(&out, 0);
    let third = text(&out.stdout).trim().to_owned();

    let listed = || bench.ask(&["status"])["jobs"].as_array().unwrap().clone();
    let running = wait_until("the third runs", || {
        listed().first().filter(|job| job["progress"]["step"].is_number()).cloned()
    });
    for (field, value) in [
        ("job", json!(third)),
        ("state", json!("running")),
        ("attempt", json!(1)),
        ("name", json!("third")),
    ] {
        assert_eq!(running[field], value, "{running:#}");
    }
    assert!(running["instance"].as_str().unwrap().starts_with("i-local-"), "{running:#}");
    assert!(
        running["verdict"].is_string() && running["usd"].as_f64().unwrap() > 0.0,
        "{running:#}"
    );
    let order: Vec<String> =
        listed().iter().map(|job| job["job"].as_str().unwrap().to_owned()).collect();
    assert_eq!(order, [third.clone(), second.clone(), first.clone()]);

    for (typed, job) in
        [("first", &first), (second.as_str(), &second), (&first[..first.len() - 2], &first)]
    {
        assert_eq!(bench.ask(&["receipt", typed])["job"], json!(job));
    }
    let unfinished = bench.lamp(&["receipt", "third"]).finish();
    assert_code(&unfinished, 101);
    let unknown = bench.lamp(&["receipt", "frist"]).finish();
    assert_code(&unknown, 101);
    assert!(text(&unknown.stderr).contains("did you mean"), "{}", text(&unknown.stderr));
    bench.go();
    wait_until("the third has ended", || {
        (bench.ask(&["status", "third"])["jobs"][0]["state"] == "succeeded").then_some(())
    });
}
