//! What stands in the way of a job, as `lamp status` shows it.

use serde_json::Value;

use crate::sandbox::{Sandbox, repository};

const JOB: &str = "home/.local/state/lamplighter/jobs/digits-7f3k2q";

fn record(name: &str) -> String {
    std::fs::read_to_string(repository().join("tests/data/v1").join(name)).expect("a record")
}

/// A job whose machine cannot be ended; `text`: what its controller has recorded of that.
fn place(attention: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(&format!("{JOB}/spec.json"), record("spec.json"));
    sandbox.write(&format!("{JOB}/attempts/0002/plan.json"), record("plan.json"));
    sandbox.write(&format!("{JOB}/attention.json"), attention);
    sandbox
}

#[test]
fn what_stands_in_the_way_is_seen_in_the_list_and_of_the_job() {
    let attention: Value = serde_json::from_str(&record("attention.json")).expect("JSON");
    let text = attention["text"].as_str().expect("a sentence");
    let sandbox = place(&attention.to_string());
    let list = sandbox.lamp(&["status"]);
    assert_eq!(list.code, 0, "{list:?}");
    assert!(
        list.out.contains("digits-7f3k2q")
            && list.err.contains(&format!("warning: digits-7f3k2q: {text}")),
        "{list:?}"
    );
    let one = sandbox.lamp(&["status", "digits"]);
    let line = one
        .out
        .lines()
        .find(|line| line.starts_with("attention "))
        .unwrap_or_else(|| panic!("{one:?}"));
    assert!(line.ends_with(text), "{line}");
    let document: Value =
        serde_json::from_str(&sandbox.lamp(&["status", "-o", "json"]).out).expect("JSON");
    assert_eq!(document["jobs"][0]["trouble"], text, "{document:#}");
    assert!(
        document["jobs"][0]["attention"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == text)),
        "{document:#}"
    );
}

/// Its agent says it in its status, and takes it back there.
#[test]
fn that_nothing_is_saved_is_seen_in_the_list() {
    let sandbox = Sandbox::new();
    sandbox.write(&format!("{JOB}/spec.json"), record("spec.json"));
    sandbox.write(&format!("{JOB}/attempts/0002/plan.json"), record("plan.json"));
    let mut status: Value = serde_json::from_str(&record("status.json")).expect("JSON");
    let text = "nothing is saved, and it is tried again: the job root does not take it";
    (status["attention"], status["phase"]) = (serde_json::json!([text]), "running".into());
    sandbox.write(&format!("{JOB}/attempts/0002/status.json"), status.to_string());
    let list = sandbox.lamp(&["status"]);
    assert!(
        list.code == 0 && list.err.contains(&format!("warning: digits-7f3k2q: {text}")),
        "{list:?}"
    );
    status["attention"] = serde_json::json!([]);
    sandbox.write(&format!("{JOB}/attempts/0002/status.json"), status.to_string());
    assert!(!sandbox.lamp(&["status"]).err.contains("nothing is saved"), "it is over");
}

/// Held back by a cap of its own: whoever else looks is told whose it is, and not that nobody
/// drives it.
#[test]
fn job_of_another_owner_that_waits_says_whose_it_is() {
    let sandbox = Sandbox::new();
    let mut spec: Value = serde_json::from_str(&record("spec.json")).expect("JSON");
    (spec["applied"], spec["owner"]) = (Value::Null, "bob".into());
    sandbox.write(&format!("{JOB}/spec.json"), spec.to_string());
    let list = sandbox.lamp(&["status"]);
    assert!(
        list.code == 0
            && list.err.contains("digits-7f3k2q waits for its owner `bob`, who buys its machine"),
        "{list:?}"
    );
    assert!(!list.err.contains("no process on this workstation drives"), "{list:?}");
    let mut waiting: Value = serde_json::from_str(&record("waiting.json")).expect("JSON");
    waiting["at"] = "2026-11-20T23:00:00Z".into();
    sandbox.write(&format!("{JOB}/waiting.json"), waiting.to_string());
    let (_, document) = sandbox.json(&["status", "-o", "json"]);
    let job = &document["jobs"][0];
    let why = waiting["why"].as_str().expect("a sentence");
    assert_eq!(
        job["waiting"],
        format!("its owner `bob`, who buys its machine, and there for {why}"),
        "{document:#}"
    );
    assert_eq!(
        (&job["driven_here"], job["attention"].as_array().map(Vec::len)),
        (&Value::Null, Some(1)),
        "{document:#}"
    );
    let refused = sandbox.lamp(&["cancel", "digits"]);
    assert!(refused.code == 102 && refused.err.contains("is of the owner `bob`"), "{refused:?}");
}

#[test]
fn what_is_over_is_not_shown_and_a_torn_record_hides_no_job() {
    let mut over: Value = serde_json::from_str(&record("attention.json")).expect("JSON");
    over["text"] = Value::Null;
    for written in [over.to_string(), "{ torn".to_owned()] {
        let sandbox = place(&written);
        let list = sandbox.lamp(&["status"]);
        assert!(
            list.code == 0 && list.out.contains("digits-7f3k2q") && !list.err.contains("warning"),
            "{list:?}"
        );
        let one = sandbox.lamp(&["status", "digits"]);
        assert!(one.code == 0 && one.out.contains("state"), "{one:?}");
    }
}
