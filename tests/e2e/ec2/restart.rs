//! `lamp start` on EC2: the disk is kept, and the machine that boots from it again is real.

use serde_json::Value;

use super::desk::{Desk, JOB};
use super::machines::{Ec2, patiently};
use super::story::Story;
use crate::bench::Finish as _;
use crate::jobs::assert_code;
use lamp_test_support::ec2::State;

/// How the first of two jobs ends, whose machine is kept.
struct End {
    name: &'static str,
    /// For its file.
    on: &'static str,
    code: u8,
    outcome: &'static str,
}

const ENDS: [End; 2] = [
    End { name: "failed", on: "[on]\nfailure = 'stop'\n", code: 3, outcome: "failed" },
    End { name: "done", on: "[on]\nsuccess = 'stop'\n", code: 0, outcome: "succeeded" },
];

fn kept_and_started_again(desk: &Desk<Ec2>, end: &End) {
    let file = format!(
        "env = {{ SAVE_EVERY = '5' }}\n{}{}",
        JOB.replace("market = 'spot'", "market = 'on-demand'"),
        end.on
    );
    let story = Story::begin(desk, end.name, &file);
    let (old, first) = (&story.job, story.machine("0001"));
    patiently("a checkpoint is complete", || desk.checkpoint(old));
    desk.goes(&first.id, end.code);
    desk.ec2.until(&first.id, State::Stopped);
    let receipt = desk.receipt(old);
    assert_eq!(receipt["outcome"], end.outcome, "{receipt:#}");
    let kept =
        receipt["left"].as_array().expect("a list").iter().find(|left| left["fate"] == "kept");
    assert!(kept.is_some_and(|kept| kept["usd_per_month"].as_f64() > Some(0.0)), "{receipt:#}");
    std::fs::remove_file(desk.ec2.file(&first.id, "root/go")).expect("the disk is there");

    let plan = desk.must(&["start", old, "--dry-run", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(
        (plan["instance"].as_str(), plan["continues"].as_str()),
        (Some(first.id.as_str()), Some(old.as_str())),
        "{plan:#}"
    );
    assert!(
        plan["checkpoint"]["checkpoint"]["number"].as_u64() >= Some(1)
            && plan["most_usd"].as_f64() > Some(0.0),
        "{plan:#}"
    );
    assert_eq!(desk.ec2.instance(&first.id).state, State::Stopped, "a dry run starts nothing");
    desk.must(&["start", "--detach", "--unproven", old]);
    let begun = patiently("the trainer begins again", || desk.begun(&first.id).get(1).cloned());
    let (attempt, step) = begun.split_once(' ').expect("two numbers");
    assert!(
        attempt == "1" && step.parse::<u32>().is_ok_and(|step| step > 0),
        "it goes on where it was: {begun}"
    );
    let running = desk.ec2.instance(&first.id);
    assert_eq!(
        running.tags.get("lamplighter:job").map(String::as_str),
        plan["job"].as_str(),
        "it carries the new job's name"
    );
    // It is kept once more, and given up by a word.
    desk.go(&first.id);
    let next = plan["job"].as_str().expect("an id");
    let second = desk.receipt(next);
    assert_eq!(
        (&second["outcome"], &second["attempts"][0]["instance"]),
        (&Value::from("succeeded"), &Value::from(first.id.as_str())),
        "{second:#}"
    );
    if end.code == 0 {
        desk.ec2.until(&first.id, State::Stopped);
        desk.must(&["cancel", "--yes", next]);
    }
    desk.ec2.until(&first.id, State::Terminated);
    let billed =
        |receipt: &Value| receipt["attempts"][0]["billed_seconds"].as_f64().expect("billed");
    let ledger = desk.ec2.ledger(&first.id).billed_seconds() as f64;
    assert!(
        (billed(&receipt) + billed(&second) - ledger).abs() <= 40.0,
        "{} and {} on the receipts, {ledger} on the ledger",
        billed(&receipt),
        billed(&second)
    );
    let again = desk.lamp(&["start", next]).finish();
    assert_code(&again, 102);
}

#[test]
fn kept_machine_starts_again_and_goes_on_from_its_checkpoint() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    std::thread::scope(|scope| {
        for end in &ENDS {
            let desk = &desk;
            scope.spawn(move || kept_and_started_again(desk, end));
        }
    });
    assert_eq!(desk.ec2.instances().len(), ENDS.len(), "one machine for two jobs each");
}
