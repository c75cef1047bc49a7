//! What a person asks of a machine that works, told from `lamp run --detach` to `lamp receipt`:
//! every program is the real one, and what the receipt says is what EC2 bills.
//!
//! The stories are told side by side on one workstation: what they take is mostly waiting.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::desk::{Desk, JOB};
use super::journey::bill_agrees;
use super::machines::{Ec2, patiently, took};
use super::story::{ITSELF, Story};
use lamp_test_support::ec2::State;

/// From what a person asks for to a machine that bills no more.
const ENDS: Duration = Duration::from_secs(120);

/// None is saved unless somebody asks for it.
const SELDOM: (&str, &str) = ("interval = '1s'", "interval = '10m'");

fn begin_seldom<'a>(desk: &'a Desk<Ec2>, name: &str) -> Story<'a> {
    Story::begin(desk, name, &JOB.replace(SELDOM.0, SELDOM.1))
}

/// What was done when it was asked to stop is in the checkpoint that the stop asks for, and in no
/// other.
fn a_stop_saves_first(desk: &Desk<Ec2>) {
    let story = begin_seldom(desk, "stops");
    let machine = story.machine("0001");
    assert_eq!(story.begins(1, &machine), 0);
    patiently("it has done some steps", || (desk.step(&machine.id) > 5).then_some(()));
    assert!(!desk.has_checkpoint(&story.job));
    let (asked, done) = (Instant::now(), desk.step(&machine.id));
    desk.must(&["stop", &story.job]);
    desk.ec2.until(&machine.id, State::Terminated);
    took("stop to terminated", asked, ENDS);
    let receipt = story.ends(&[&machine], ITSELF, "stopped");
    assert_eq!(receipt["attempts"][0]["ended_because"], "user_stopped", "{receipt:#}");
    assert_eq!(receipt["checkpoints"], 1, "{receipt:#}");
    assert!(
        receipt["last_checkpoint"]["step"].as_f64() >= Some(f64::from(done)),
        "step {done} was done: {receipt:#}"
    );
}

/// Nothing is asked of the work, and what it has not saved is lost.
fn a_cancel_saves_nothing(desk: &Desk<Ec2>) {
    let story = begin_seldom(desk, "cancels");
    let machine = story.machine("0001");
    story.begins(1, &machine);
    patiently("it has done some steps", || (desk.step(&machine.id) > 5).then_some(()));
    let asked = Instant::now();
    desk.must(&["cancel", &story.job]);
    desk.ec2.until(&machine.id, State::Terminated);
    took("cancel to terminated", asked, ENDS);
    let receipt = desk.receipt(&story.job);
    assert_eq!(
        (&receipt["outcome"], &receipt["attempts"][0]["ended_because"]),
        (&json!("cancelled"), &json!("user_cancelled")),
        "{receipt:#}"
    );
    assert_eq!(
        (&receipt["checkpoints"], desk.has_checkpoint(&story.job)),
        (&json!(0), false),
        "{receipt:#}"
    );
    bill_agrees(desk, &receipt, &[&machine]);
}

/// While it still boots; and what stands beside its machine in its name is looked for, priced and
/// removed.
fn a_cancel_during_the_boot(desk: &Desk<Ec2>) {
    let story = begin_seldom(desk, "boots");
    let machine = story.machine("0001");
    let named =
        [("lamplighter:owner", "me"), ("lamplighter:job", &story.job)].into_iter().enumerate();
    let named = named.flat_map(|(n, (key, value))| {
        let tag = format!("TagSpecification.1.Tag.{}", n + 1);
        [(format!("{tag}.Key"), key.to_owned()), (format!("{tag}.Value"), value.to_owned())]
    });
    let disk = [
        ("AvailabilityZone", machine.zone.as_str()),
        ("Size", "100"),
        ("TagSpecification.1.ResourceType", "volume"),
    ];
    let disk = disk
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .chain(named)
        .collect::<Vec<_>>();
    let disk = desk
        .ec2
        .ask(
            "CreateVolume",
            &disk.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>(),
        )
        .expect("a disk");
    let disk = disk.all("volumeId")[0].text.clone();
    let asked = Instant::now();
    desk.must(&["cancel", &story.job]);
    desk.ec2.until(&machine.id, State::Terminated);
    took("cancel during the boot to terminated", asked, ENDS);
    let receipt = desk.receipt(&story.job);
    assert_eq!(receipt["outcome"], "cancelled", "{receipt:#}");
    bill_agrees(desk, &receipt, &[&machine]);
    let left =
        receipt["left"].as_array().expect("a list").iter().find(|left| left["id"] == disk.as_str());
    let left = left.unwrap_or_else(|| panic!("{disk} is on no receipt: {receipt:#}"));
    assert_eq!(
        (&left["kind"], &left["fate"]),
        (&json!("volume"), &json!("removed")),
        "{receipt:#}"
    );
    assert!(left["usd_per_month"].as_f64() > Some(5.0), "{receipt:#}");
    let there = desk.ec2.ask("DescribeVolumes", &[]).expect("told");
    assert!(
        !there.all("volumeId").iter().any(|volume| volume.text == disk),
        "{disk} is still there"
    );
}

/// The alarm of the machine, armed from what its own agent publishes. CloudWatch rings it while
/// nobody of ours knows of anything: EC2 ends the machine, and the receipt says why.
fn its_alarm_is_armed_rings_and_is_taken_away(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "watched", &format!("{JOB}[interruptions]\nmax = 0\n"));
    let machine = story.machine("0001");
    story.begins(1, &machine);
    // The first one says that it lives; a minute of figures comes with the next.
    for metric in ["Heartbeat", "MachineCPU", "IdleSeconds"] {
        let says = |word: &str, params: &BTreeMap<String, String>| {
            params.values().any(|value| value == word)
        };
        let published = || {
            desk.ec2
                .calls_of("PutMetricData")
                .into_iter()
                .find(|call| says(&machine.id, &call.params) && says(metric, &call.params))
        };
        let call = patiently(&format!("the agent publishes {metric}"), published);
        assert_eq!(call.status, 200, "{call:?}");
    }
    let alarms = || {
        let told = desk.ec2.ask_cloudwatch("DescribeAlarms", &[]).expect("told");
        told.all("AlarmName")
            .into_iter()
            .map(|name| name.text.clone())
            .filter(|name| name.contains(&machine.id))
            .collect::<Vec<_>>()
    };
    let alarm = patiently("its alarm is armed", || alarms().pop());
    assert_eq!(desk.ec2.instance(&machine.id).state, State::Running);
    desk.ec2.ring(&alarm);
    let ended = desk.ec2.until(&machine.id, State::Terminated);
    assert_eq!(ended.reason, "Client.UserInitiatedShutdown");
    let receipt = desk.receipt(&story.job);
    assert_ne!(receipt["outcome"], "succeeded", "{receipt:#}");
    bill_agrees(desk, &receipt, &[&machine]);
    assert_eq!(alarms(), [""; 0], "an alarm costs: none is left of a machine that is gone");
    assert!(
        receipt["reason"].as_str().is_some_and(|reason| reason.starts_with("its alarm rang at ")),
        "{receipt:#}"
    );
}

#[test]
fn stop_cancel_or_alarm_ends_a_machine_as_its_receipt_says() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    // The API is slow to know of a machine.
    desk.ec2.unseen(Duration::from_secs(5));
    let stories = [
        a_stop_saves_first,
        a_cancel_saves_nothing,
        a_cancel_during_the_boot,
        its_alarm_is_armed_rings_and_is_taken_away,
    ];
    std::thread::scope(|scope| {
        for story in stories {
            let desk = &desk;
            scope.spawn(move || story(desk));
        }
    });
}
