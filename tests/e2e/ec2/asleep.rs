//! The laptop sleeps from the moment of the launch until EC2 has taken the machine, and for longer:
//! what it finds on waking is what was, and the work goes on.

use std::time::Duration;

use serde_json::Value;

use super::desk::{Desk, JOB};
use super::machines::{Ec2, patiently};
use super::story::{ITSELF, SAVES, Story};
use lamp_test_support::ec2::State;

/// Short: what the first attempt has saved is enough for the second.
const NOTICE: Duration = Duration::from_secs(5);

/// `T`: stopped by a signal. A process that is on its way out shows nothing.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with(['T', 'Z']))
}

#[test]
fn laptop_asleep_during_an_attempt_settles_it_on_waking() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    let story = Story::begin(&desk, "asleep", &format!("{JOB}{SAVES}"));
    let first = story.machine("0001");
    let drivers = story.drivers();
    assert!(!drivers.is_empty(), "somebody drives it");
    drivers.iter().for_each(|pid| crate::bench::kill(*pid, "STOP"));
    patiently("the laptop sleeps", || drivers.iter().all(|pid| is_stopped(*pid)).then_some(()));

    assert_eq!(story.begins(1, &first), 0);
    patiently("checkpoints are complete", || {
        desk.checkpoint(&story.job).filter(|newest| *newest > 1)
    });
    desk.ec2.interrupt(&first.id, NOTICE);
    let ended = desk.ec2.until(&first.id, State::Terminated);
    assert_eq!(ended.reason, "Server.SpotInstanceTermination");
    let newest = desk.checkpoint(&story.job).expect("there were some");
    assert!(
        drivers.iter().all(|pid| is_stopped(*pid)) && story.machines().len() == 1,
        "nobody was awake"
    );

    drivers.iter().for_each(|pid| crate::bench::kill(*pid, "CONT"));
    let second = story.machine("0002");
    assert!(story.begins(2, &second) > 0, "it goes on");
    desk.go(&second.id);
    let receipt = story.ends(&[&first, &second], ITSELF, "succeeded");
    let [one, two] = [&receipt["attempts"][0], &receipt["attempts"][1]];
    assert_eq!(
        (&one["ended_because"], &two["ended_because"]),
        (&"interrupted".into(), &"succeeded".into()),
        "{receipt:#}"
    );
    assert_eq!(two["resumed_from"]["number"], newest, "the newest that is complete: {receipt:#}");

    // EC2 took it back in its first hour, so the machine costs nothing, and its disk and its
    // address do.
    let ledger = desk.ec2.ledger(&first.id);
    assert!(ledger.free && ledger.spans.len() == 1, "{ledger:?}");
    let hourly = |attempt: &Value| {
        attempt["usd"]
            .as_f64()
            .zip(attempt["billed_seconds"].as_f64())
            .map(|(usd, seconds)| usd / seconds)
    };
    let [taken, paid] =
        [one, two].map(|attempt| hourly(attempt).unwrap_or_else(|| panic!("{receipt:#}")));
    assert!(taken > 0.0 && taken < paid / 2.0, "{taken} and {paid} a second: {receipt:#}");
}
