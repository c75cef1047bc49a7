//! The machine is taken away: with notice, on purpose, and what is said when the work would not
//! have survived it.

use std::process::Output;

use serde_json::{Value, json};

use crate::bench::{Bench, Finish as _, Running, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code, text};

/// The places of these events among all of an attempt, in this order.
fn in_order(all: &[Value], story: &[&dyn Fn(&Value) -> bool]) {
    let mut events = all.iter();
    for (index, chapter) in story.iter().enumerate() {
        assert!(
            events.by_ref().any(chapter),
            "chapter {index} of the story is missing, or is told too early: {all:#?}"
        );
    }
}

fn is(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |event| event["kind"] == kind
}

fn asked_to_save(event: &Value) -> bool {
    event["kind"] == "verdict" && event["reason"]["policy"] == "interruption"
}

#[test]
fn rehearsal_to_the_end_proves_that_the_work_survives() {
    let bench = Bench::new();
    bench.trainer("STEPS = 150", SAVES);
    let out = bench
        .lamp(&[
            "rehearse",
            "job.toml",
            "--interrupt-after",
            "1s",
            "--notice",
            "30s",
            "--to-end",
            "-o",
            "json",
        ])
        .finish();
    assert_code(&out, 0);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["proved"], true, "{report:#}");
    let names: Vec<&str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|check| check["name"].as_str())
        .collect();
    let mut named = names.iter();
    for name in ["checkpoint_spec", "interrupted", "asked", "saved", "resumed", "went_on"] {
        assert!(named.any(|found| *found == name), "`{name}` in its place: {names:?}");
    }
    assert_eq!(report["receipt"]["outcome"], "succeeded");

    // Not only in words: the second trainer began where the checkpoint of the notice was, and never
    // beside the first.
    bench.never_twice();
    let begins = bench.begins();
    assert_eq!(begins.iter().map(|begin| begin.0).collect::<Vec<_>>(), [1, 2]);
    assert!(begins[0].2 == 0 && begins[1].2 > 0, "{begins:?}");
    let notices = &|event: &Value| event["kind"] == "checkpoint" && event["asked_by"].is_string();
    in_order(&bench.events(1), &[&is("workload_started"), &is("notice"), &asked_to_save, notices]);
    in_order(&bench.events(2), &[&is("resumed"), &is("workload_started"), &is("workload_ended")]);

    let receipt = bench.receipt();
    assert_eq!(receipt["attempts"][0]["ended_because"], "interrupted");
    assert_eq!(receipt["attempts"][0]["market"], "spot");
    assert_eq!(
        receipt["attempts"][1]["resumed_from"]["step"].as_f64(),
        Some(f64::from(begins[1].2))
    );
    adds_up(&receipt);
}

/// A rehearsal that proves nothing; gives its failed lines.
fn not_proved(env: &str, more: &str, words: &[&str]) -> Vec<(String, String)> {
    let bench = Bench::new();
    bench.trainer(env, more);
    let out: Output = bench
        .lamp(&["rehearse", "job.toml", "--interrupt-after", "1s", "-o", "json"])
        .args(words)
        .finish();
    assert_code(&out, 109);
    bench.never_twice();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["proved"], false);
    let checks =
        report["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false);
    let said = |check: &Value, field: &str| {
        check[field].as_str().unwrap_or_else(|| panic!("no {field}: {check:#}")).to_owned()
    };
    checks
        .map(|check| {
            (said(check, "name"), format!("{} / {}", said(check, "text"), said(check, "hint")))
        })
        .collect()
}

fn assert_said(failed: &[(String, String)], name: &str, words: &[&str]) {
    let said = failed
        .iter()
        .find(|(failed, _)| failed == name)
        .unwrap_or_else(|| panic!("`{name}` has not failed: {failed:?}"));
    for word in words {
        assert!(said.1.contains(word), "`{word}` is not said: {failed:?}");
    }
}

#[test]
fn rehearsal_says_exactly_what_is_missing() {
    // Each waits for the end of a notice, so they wait together.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_said(
                &not_proved("STEPS = 0", "", &[]),
                "checkpoint_spec",
                &["add [checkpoint]", "LAMP_CHECKPOINT_DIR"],
            )
        });
        scope.spawn(|| {
            let failed = not_proved("ASKED = 'ignored'", SAVES, &["--notice", "6s"]);
            assert_said(
                &failed,
                "saved",
                &["no process of the workload has a handler", "install a handler for SIGUSR1"],
            );
            assert_said(&failed, "resumed", &["no checkpoint"]);
        });
        scope.spawn(|| {
            let failed = not_proved("FROM_ZERO = 1", SAVES, &["--notice", "30s"]);
            assert_said(&failed, "went_on", &["began again at step 1", "LAMP_RESUME"]);
        });
        scope.spawn(|| {
            let failed = not_proved("SAVE_SECS = 60", SAVES, &["--notice", "6s"]);
            assert_said(
                &failed,
                "saved",
                &["asked to save", "changed nothing", "within checkpoint.grace"],
            );
        });
        scope.spawn(|| {
            let failed = not_proved("ASKED = 'default'", SAVES, &["--notice", "6s"]);
            assert_said(
                &failed,
                "saved",
                &["no process of the workload has a handler", "install a handler for SIGUSR1"],
            );
        });
        scope.spawn(|| {
            let failed = not_proved("STEPS = 3", SAVES, &["--notice", "6s"]);
            assert_said(&failed, "interrupted", &["ended before", "--interrupt-after"]);
        });
    });
}

#[test]
fn rehearsal_says_at_once_that_checkpoint_files_never_rest() {
    let bench = Bench::new();
    // Both are open from beginning to end, and written on: a pair that is closed now and then is
    // kept between two saves.
    bench.write(
        "train.sh",
        "exec 3> $LAMP_CHECKPOINT_DIR/model.pt 4> $LAMP_CHECKPOINT_DIR/optimizer.pt; while :; do echo x >&3; sleep 0.4; echo x >&4; sleep 0.4; done\n",
    );
    bench.write(
        "job.toml",
        "name = \"pair\"\ncommand = [\"sh\", \"train.sh\"]\n[checkpoint]\npath = \"ckpt\"\n",
    );
    let to = |name: &str| std::fs::File::create(bench.file(name)).expect("a file");
    let words = ["rehearse", "job.toml", "--interrupt-after", "1s", "--notice", "10m"];
    let mut rehearsal = Running::start(bench.lamp(&words).stdout(to("report")).stderr(to("said")));
    assert_eq!(rehearsal.wait().code(), Some(109));
    let text = |name: &str| std::fs::read_to_string(bench.file(name)).expect("written");
    let (report, said) = (text("report"), text("said"));
    assert!(
        report.contains("`ckpt` is always being written") && report.contains("LAMP_PROGRESS"),
        "{report}"
    );
    assert!(
        said.contains("the checkpoint folder has not rested")
            && said.contains("no checkpoint will be complete; the power is cut"),
        "{said}"
    );
}

/// What a person, or another tool, leaves in the job directory.
fn wish(bench: &Bench, number: u32, wish: &Value) {
    let job = bench.only_job().unwrap();
    let now = jiff::Timestamp::now();
    let request = json!({ "format": 1, "number": number, "at": now.to_string(), "by": "a test", "wish": wish });
    bench.write(&format!("jobs-root/jobs/{job}/requests/{number:04}.json"), &request.to_string());
}

#[test]
fn after_a_notice_the_work_goes_on_on_the_next_machine() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    let job = bench.submit();
    bench.trains(1, 3.0);
    wish(&bench, 1, &json!({ "interrupt": { "notice": "8s" } }));
    wait_until("the second attempt trains", || bench.begins().get(1).copied());
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    let because: Vec<&str> = receipt["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|attempt| attempt["ended_because"].as_str())
        .collect();
    assert_eq!(because, ["interrupted", "succeeded"]);
    bench.never_twice();
    adds_up(&receipt);

    let notice = &bench.events_of(1, "notice")[0]["notice"];
    assert_eq!(notice["kind"], "interruption");
    let saves = bench.events_of(1, "checkpoint");
    assert!(saves.iter().any(|save| save["asked_by"] == "interrupted"), "{saves:#?}");
    let last = saves.last().unwrap()["checkpoint"]["step"].as_f64().unwrap();
    assert_eq!(f64::from(bench.begins()[1].2), last, "nothing that was saved was done twice");
    let explained = bench.ask(&["explain", &job]);
    assert_eq!(explained["attempts"][0]["settled"]["because"], "interrupted");
}

#[test]
fn script_that_saves_and_exits_at_sigterm_resumes_as_well() {
    let bench = Bench::new();
    bench.trainer("", &SAVES.replace("SIGUSR1", "SIGTERM"));
    bench.submit();
    bench.trains(1, 3.0);
    wish(&bench, 1, &json!({ "interrupt": { "notice": "8s" } }));
    let (_, _, from) = wait_until("the second attempt trains", || bench.begins().get(1).copied());
    bench.go();
    let receipt = bench.receipt();
    assert!(from >= 3, "{:?}", bench.begins());
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    bench.never_twice();
}

#[test]
fn no_more_interruptions_than_were_allowed() {
    let bench = Bench::new();
    bench.trainer("", &format!("{SAVES}[interruptions]\nmax = 0\n"));
    bench.submit();
    bench.trains(1, 1.0);
    wish(&bench, 1, &json!({ "interrupt": { "notice": "4s" } }));
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "failed");
    assert!(receipt["reason"].as_str().unwrap().contains("interruptions.max"), "{receipt:#}");
    assert!(receipt["last_checkpoint"]["step"].as_f64().unwrap() >= 1.0, "what was done is kept");
    let out = bench.lamp(&["status", "toy"]).finish();
    assert!(text(&out.stdout).contains("interrupted"), "{}", text(&out.stdout));
}
