//! What a job that has ended still keeps: it is said, and it is given up when somebody says so.

use serde_json::{Value, json};

use crate::faces::terminal::Terminal;
use crate::place::{Place, end};
use crate::sandbox::{Sandbox, repository};

const JOB: &str = "home/.local/state/lamplighter/jobs/digits-7f3k2q";

/// A job that has ended, and whose receipt says that its disk was kept.
fn ended() -> Sandbox {
    let record = |name: &str| {
        std::fs::read_to_string(repository().join("tests/data/v1").join(name)).expect("a record")
    };
    let sandbox = Sandbox::new();
    let mut receipt: Value = serde_json::from_str(&record("receipt.json")).expect("JSON");
    receipt["left"] = json!([
        { "kind": "volume", "id": "vol-1", "region": "us-east-1", "detail": "100 GiB, kept by the stopped i-1", "usd_per_month": 8.0, "fate": "kept" },
        { "kind": "alarm", "id": "a-1", "region": "us-east-1", "detail": "gone", "usd_per_month": 0.1, "fate": "removed" },
    ]);
    sandbox.write(&format!("{JOB}/spec.json"), record("spec.json"));
    sandbox.write(&format!("{JOB}/receipt.json"), receipt.to_string());
    sandbox
}

#[test]
fn status_shows_kept_disks_until_they_are_gone() {
    let sandbox = ended();
    let list = sandbox.lamp(&["status"]);
    let said = "digits-7f3k2q keeps volume vol-1 in us-east-1 (100 GiB, kept by the stopped i-1): $8.00 a month";
    assert!(
        list.code == 0
            && list.err.contains(said)
            && list.err.contains("`lamp cancel digits-7f3k2q`"),
        "{list:?}"
    );
    let one = sandbox.lamp(&["status", "digits"]);
    assert!(
        one.out.lines().any(|line| line.starts_with("keeps ") && line.ends_with("$8.00 a month")),
        "{one:?}"
    );
    let (_, document) = sandbox.json(&["status", "-o", "json"]);
    let kept = document["jobs"][0]["kept"].as_array().expect("a list");
    assert_eq!(
        (kept.len(), &kept[0]["id"], &kept[0]["usd_per_month"]),
        (1, &json!("vol-1"), &json!(8.0)),
        "{document:#}"
    );
    // And whoever wants to change it hears that it bills.
    let extended = sandbox.lamp(&["extend", "digits", "1h"]);
    assert!(
        extended.code == 102
            && extended.err.contains("$8.00 a month")
            && !extended.err.contains("nothing of it bills"),
        "{extended:?}"
    );
    // Nobody can look at it from here: then nothing is recorded, and it is said on.
    for verb in ["stop", "cancel"] {
        let blind = sandbox.lamp(&[verb, "digits"]);
        assert!(
            blind.code == 102
                && blind
                    .err
                    .contains("nothing was looked at: no plan of a machine is among its records"),
            "{blind:?}"
        );
        assert!(
            blind.err.contains("$8.00 a month") && !blind.err.contains("nothing of it bills"),
            "{blind:?}"
        );
    }
    assert!(sandbox.lamp(&["status"]).err.contains("keeps volume vol-1"));
}

#[test]
fn kept_machine_of_an_ended_job_is_given_up_only_by_cancel() {
    let place = Place::new("exit 3");
    place
        .0
        .write("lamp.toml", "name = 'kept'\ncommand = ['sh', 'job.sh']\n[on]\nfailure = 'stop'\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    let receipt = place.receipt("kept");
    let (job, machine) =
        (receipt["job"].as_str().unwrap(), receipt["attempts"][0]["instance"].as_str().unwrap());
    let stop = place.0.lamp(&["stop", "kept"]);
    assert!(
        stop.code == 102
            && stop
                .err
                .contains(&format!("its machine {machine} is stopped, and kept with its disk")),
        "{stop:?}"
    );
    assert!(stop.err.contains(&format!("`lamp cancel {job}` gives it up for good")), "{stop:?}");
    let unsaid = place.0.lamp(&["cancel", "kept"]);
    assert!(
        unsaid.code == 102
            && unsaid.err.contains("this call cannot ask")
            && unsaid.err.contains("`--yes`"),
        "{unsaid:?}"
    );
    assert!(
        unsaid.err.contains("what is kept stays") && !unsaid.err.contains("bills on"),
        "a folder here is nobody's bill: {unsaid:?}"
    );
    assert_eq!(place.0.lamp(&["start", "kept", "--dry-run"]).code, 0, "it is still there");
    let unnamed = place.0.lamp(&["cancel", "--yes"]);
    assert!(
        unnamed.code == 102
            && unnamed.err.contains(&format!("`lamp cancel {job}` gives it up with its disk")),
        "{unnamed:?}"
    );
    let (code, document) = place.0.json(&["cancel", "kept", "--yes", "-o", "json"]);
    assert_eq!(
        (code, &document["instance"], &document["gone"]),
        (0, &machine.into(), &true.into()),
        "{document}"
    );
    let none = place.0.lamp(&["start", "kept"]);
    assert!(none.code == 102 && none.err.contains("nothing is kept"), "{none:?}");
    let again = place.0.lamp(&["cancel", "kept", "--yes"]);
    assert!(
        again.code == 102 && again.err.contains("nothing of it runs, and nothing of it bills"),
        "{again:?}"
    );
    place.nothing_is_left();
}

/// The first time it fails, and its machine is kept; the second time it runs until it is told to
/// end.
const AGAIN: &str = "if [ -e again ]; then trap 'exit 0' TERM; while :; do sleep 0.1; done; fi; touch again; exit 3";

/// While the question waits for its answer, another user continues the job on the kept machine. The
/// machine belongs to the new job.
#[test]
fn start_between_the_question_and_the_yes_keeps_the_machine() {
    if !Terminal::is_there() {
        return lamp_test_support::skipped("script", "no `script`, which makes a terminal");
    }
    let place = Place::new(AGAIN);
    place.0.write("lamp.toml", "name = 'kept'\ncommand = ['sh', 'job.sh']\n[on]\nfailure = 'stop'\n[watch]\nidle = 'off'\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    let job = place.receipt("kept")["job"].as_str().unwrap().to_owned();
    let mut terminal = Terminal::of(&place, &["cancel", &job]);
    terminal.until("go on? [y/N]");
    let started = place.0.lamp(&["start", "-d", "--same-code", &job]);
    assert_eq!(started.code, 0, "{started:?}");
    let next = started.out.trim().to_owned();
    place.until(&next, "running");
    terminal.types("y\n");
    assert_eq!(terminal.end(), Some(102), "{}", terminal.screen());
    assert!(
        terminal.screen().contains(&format!("it went on as job `{next}`")),
        "{}",
        terminal.screen()
    );
    assert_eq!(place.status(&next)["state"], "running", "it lives");
    assert_eq!(place.0.lamp(&["cancel", "--yes", "--wait", &next]).code, 0);
    place.nothing_is_left();
}

#[test]
fn cancel_left_at_its_question_says_that_nothing_was_ended() {
    if !Terminal::is_there() {
        return lamp_test_support::skipped("script", "no `script`, which makes a terminal");
    }
    let place = Place::new(AGAIN);
    place.0.write("lamp.toml", "name = 'kept'\ncommand = ['sh', 'job.sh']\n[on]\nfailure = 'stop'\n[watch]\nidle = 'off'\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 3);
    let mut terminal = Terminal::of(&place, &["cancel", "kept"]);
    terminal.until("go on? [y/N]");
    terminal.types("\x03");
    assert_eq!(terminal.end(), Some(130), "{}", terminal.screen());
    let screen = terminal.screen();
    assert!(
        screen.contains("left at the question")
            && screen.contains("nothing was ended: what is kept stays"),
        "{screen}"
    );
    assert_eq!(place.0.lamp(&["cancel", "kept", "--yes"]).code, 0, "it was still there");
    place.nothing_is_left();
}
