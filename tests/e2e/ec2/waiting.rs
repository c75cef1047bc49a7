//! `market = "auto"` where no machine is cheap enough yet: nothing fails, both ways of `lamp run`
//! wait and say for what, and what comes is taken.

use std::process::Stdio;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::desk::{Desk, JOB};
use super::journey::bill_agrees;
use super::machines::{Ec2, patiently};
use crate::bench::Running;
use crate::jobs::text;
use lamp_test_support::ec2::State;

const KIND: &str = "m5.large";
const ZONE: &str = "us-east-1b";

/// Spot machines cost more than this user pays, and the deadline is far.
fn job_file(name: &str) -> String {
    let deadline = Timestamp::now() + Duration::from_secs(8 * 3600);
    let job = JOB
        .replace("'toy'", &format!("'{name}'"))
        .replace("market = 'spot'", "market = 'auto'\nmax_price = '0.02'");
    job.replace(
        "max_runtime = '20m'",
        &format!("max_runtime = '2h'\nwork = '30m'\ndeadline = '{deadline}'"),
    )
}

#[test]
fn job_that_waits_for_a_cheaper_machine_gets_it() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    desk.bench.write("first.toml", &job_file("first"));
    desk.bench.write("second.toml", &job_file("second"));
    let said = std::fs::File::create(desk.bench.file("said")).expect("writable");
    let mut run = Running::start(desk.lamp(&["run", "first.toml"]).stderr(Stdio::from(said)));
    let said = || std::fs::read_to_string(desk.bench.file("said")).unwrap_or_default();
    let waits = "waits for a cheaper machine than one on demand: ";
    patiently("it says what it waits for", || said().contains(waits).then_some(()));
    assert!(
        said().contains("at the latest") && said().contains("if nothing cheaper comes: m5.large"),
        "{}",
        said()
    );

    // The other way: it returns with the name of a job that waits, and a job that waits can be
    // stopped.
    let second = desk.submit_file("second.toml");
    let explained = text(&desk.must(&["explain", &second]).stdout);
    assert!(
        explained.contains(&waits[..waits.len() - 1]) && explained.contains("at the latest"),
        "{explained}"
    );
    desk.must(&["stop", &second]);
    assert_eq!(desk.receipt(&second)["attempts"].as_array().map(Vec::len), Some(0));
    assert!(desk.ec2.instances().is_empty(), "nothing was launched so far");

    // Prices are kept for five minutes on disk; somebody clears that, also what a look keeps that
    // had asked before.
    desk.ec2.spot_prices(KIND, ZONE, &[(SignedDuration::from_secs(60), 0.01)]);
    let machine = patiently("it is launched", || {
        let _cleared = std::fs::remove_dir_all(desk.bench.file("cache"));
        desk.ec2.instances().into_iter().next()
    });
    assert!(machine.spot && machine.zone == ZONE, "{machine:?}");
    desk.begins(&machine.id);
    desk.go(&machine.id);
    desk.ec2.until(&machine.id, State::Terminated);
    let first = desk.jobs().into_iter().find(|job| job.starts_with("first-")).expect("it was made");
    let receipt = desk.receipt(&first);
    assert!(run.wait().success(), "{}", said());
    assert_eq!(
        (&receipt["outcome"], &receipt["attempts"][0]["market"]),
        (&Value::from("succeeded"), &Value::from("spot")),
        "{receipt:#}"
    );
    bill_agrees(&desk, &receipt, &[&machine]);
    let explained = text(&desk.must(&["explain", &first]).stdout);
    assert!(
        explained.contains("market") && explained.contains(&waits[..waits.len() - 2]),
        "{explained}"
    );
}
