//! What goes wrong on a machine, told from `lamp run --detach` to `lamp receipt`: every program is
//! the real one, and what the receipt says is what EC2 bills.
//!
//! The stories are told side by side on one workstation: what they take is mostly waiting. They
//! stand in for the same ones that were once told of an agent on its own, without `lamp`: there the
//! plan, the tags and the launch were the test's, and nobody settled.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use lamplighter::market::elapsed;
use serde_json::{Value, json};

use super::desk::{Desk, JOB};
use super::machines::{Ec2, patiently, took};
use super::story::{ITSELF, SAVES, Story};
use lamp_test_support::ec2::State;
use lamp_test_support::imds::{ACTION, Reply};

/// Time for a save and for its way into the bucket, on a busy machine too.
const NOTICE: Duration = Duration::from_secs(45);

/// All that a spot machine may get, at the worst.
const SHORT_NOTICE: Duration = Duration::from_secs(5);

/// Says nothing, does nothing, and can be told to end.
const QUIET: &str = "while [ ! -e /root/go ]; do sleep 0.5; done; exit $(cat /root/go)\n";

const IDLE: &str = "[watch]\nidle = '2s'\nidle_cpu_percent = 50\n";

/// None but the cloud's, and those that the trainer makes at its own pace.
const SELDOM: (&str, &str) = ("interval = '1s'", "interval = '10m'");

fn it_fails(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "fails", JOB);
    let machine = story.machine("0001");
    story.begins(1, &machine);
    desk.goes(&machine.id, 7);
    let ended = Instant::now();
    desk.ec2.until(&machine.id, State::Terminated);
    took("work that fails to terminated", ended, Duration::from_secs(120));
    let receipt = story.ends(&[&machine], ITSELF, "failed");
    assert_eq!(
        (&receipt["because"], &receipt["exit_code"]),
        (&json!("failed"), &json!(7)),
        "{receipt:#}"
    );
}

fn it_idles(desk: &Desk<Ec2>) {
    let story =
        Story::begin(desk, "idles", &format!("{}{IDLE}", JOB.replace("job.sh", "quiet.sh")));
    let machine = story.machine("0001");
    let receipt = story.ends(&[&machine], ITSELF, "ended");
    assert_eq!(
        (&receipt["because"], &receipt["exit_code"]),
        (&json!("idle"), &json!(143)),
        "{receipt:#}"
    );
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> = bytes
        .windows(old.len())
        .enumerate()
        .filter(|(_, here)| *here == old)
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty() && old.len() == new.len());
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    bytes
}

/// What the machine fetches as the agent does not run there: it puts itself out, with nobody's
/// help.
fn its_agent_does_not_run(desk: &Desk<Ec2>) {
    // A program for machines like this one, but none of them has what it is loaded by.
    let broken = replaced(desk.agent(), b"ld-linux", b"ld-absen");
    std::fs::write(desk.bench.file("broken-agent"), broken).expect("writable");
    let story = Story::begin_with(
        desk,
        "broken",
        &format!("{JOB}[interruptions]\nmax = 0\n"),
        "broken-agent",
    );
    let machine = story.machine("0001");
    let receipt = story.ends(&[&machine], ITSELF, "failed");
    assert_eq!(
        (&receipt["because"], &receipt["exit_code"]),
        (&json!("lost"), &Value::Null),
        "{receipt:#}"
    );
    let said = desk.ec2.said(&machine.id);
    assert!(said.contains("does not run on this image"), "{said}");
    // Its boot, which tries the agent once: no lease and no time of a boot is waited for.
    let billed = receipt["attempts"][0]["billed_seconds"].as_f64().expect("a number");
    eprintln!("measured: a machine whose agent does not run billed {billed} s of 120 s");
    assert!(billed <= 120.0, "{receipt:#}");
}

/// Its agent dies, and hangs; its metadata refuses and errs, its way to the API is gone, it boots
/// anew: one attempt all the same.
fn nothing_of_this_ends_the_work(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "steadfast", &format!("{JOB}{SAVES}"));
    let machine = story.machine("0001");
    let (ec2, id) = (&desk.ec2, machine.id.as_str());
    story.begins(1, &machine);

    // Killed; then stopped, so that it is the watchdog that finds it.
    let mut last = 0;
    // Two seconds (RestartSec), or a watchdog of half a minute before them, and a start on a busy
    // machine.
    for (signal, most) in [("SIGKILL", 30), ("SIGSTOP", 60)] {
        let killed = Timestamp::now();
        ec2.run(
            id,
            &["systemctl", "kill", "--kill-who=main", &format!("--signal={signal}"), "lamp-agent"],
        );
        let is_back = |event: &Value| {
            event["kind"] == "agent"
                && event["reattached"] == true
                && event["seq"].as_u64() > Some(last)
        };
        let back = desk.until_event(
            &story.job,
            1,
            &format!("after {signal} it is back and finds its workload"),
            is_back,
        );
        last = back["seq"].as_u64().expect("a number");
        let at: Timestamp = back["at"].as_str().expect("a time").parse().expect("a time");
        let took = elapsed(killed, at).as_secs();
        eprintln!("measured: agent that got {signal} to the next one: {took} s of {most} s");
        assert!(took <= most, "{signal}: {took} s");
    }

    // The metadata service refuses its own tokens, then answers nothing but errors.
    let imds = ec2.imds(id);
    let asks_on = |path: &str| {
        let before = imds.asked(path);
        patiently("it goes on asking", || (imds.asked(path) > before + 2).then_some(()));
    };
    imds.refuses_tokens(true);
    asks_on("api/token");
    imds.refuses_tokens(false);
    imds.storm(Some(Reply::Text(503, "busy".into())));
    asks_on(ACTION);
    imds.storm(None);

    // The API is gone; the work goes on, and what it saved meanwhile arrives afterwards.
    patiently("a checkpoint is complete", || desk.checkpoint(&story.job));
    ec2.partition(id, true);
    let step = desk.step(id);
    patiently("it works on and saves", || (desk.step(id) > step + 11).then_some(()));
    let old = desk.checkpoint(&story.job);
    ec2.partition(id, false);
    patiently("a newer one arrives", || (desk.checkpoint(&story.job) > old).then_some(()));
    assert_eq!(desk.begun(id).len(), 1, "it was never restarted: {:?}", desk.begun(id));

    let rebooted = Instant::now();
    ec2.run(id, &["systemctl", "reboot"]);
    patiently("the trainer goes on", || (desk.begun(id).len() == 2).then_some(()));
    took("reboot to work", rebooted, Duration::from_secs(300));
    assert!(
        desk.begun(id)[1].starts_with("1 ") && desk.begun(id)[1] != "1 0",
        "where it was: {:?}",
        desk.begun(id)
    );
    desk.go(id);
    story.ends(&[&machine], ITSELF, "succeeded");
    assert_eq!(ec2.ledger(id).spans.len(), 1, "{:?}", ec2.ledger(id));
    // And its outputs outlived it.
    desk.must(&["outputs", &story.job, "--to", "home"]);
    let model = desk.bench.find("home", "model");
    assert!(
        model
            .iter()
            .any(|model| std::fs::read_to_string(model)
                .is_ok_and(|text| text.starts_with("trained "))),
        "{model:?}"
    );
}

/// The first saves because of the notice, and for no other reason. The second has no time for
/// anything, and loses no more than it had done.
fn notices_short_and_long(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "notices", &JOB.replace(SELDOM.0, SELDOM.1));
    let first = story.machine("0001");
    assert_eq!(story.begins(1, &first), 0);
    patiently("it has done some steps", || (desk.step(&first.id) > 3).then_some(()));
    desk.ec2.interrupt(&first.id, NOTICE);
    desk.ec2.until(&first.id, State::Terminated);
    let second = story.machine("0002");
    let resumed = story.begins(2, &second);
    assert!(resumed > 0, "it goes on where the notice found it");

    desk.ec2.interrupt(&second.id, SHORT_NOTICE);
    desk.ec2.until(&second.id, State::Terminated);
    let third = story.machine("0003");
    assert!(story.begins(3, &third) >= resumed, "what was saved once is not lost");
    desk.go(&third.id);
    let receipt = story.ends(&[&first, &second, &third], ITSELF, "succeeded");
    let ends: Vec<&Value> = receipt["attempts"]
        .as_array()
        .expect("attempts")
        .iter()
        .map(|attempt| &attempt["ended_because"])
        .collect();
    assert_eq!(ends, ["interrupted", "interrupted", "succeeded"], "{receipt:#}");
    assert!(
        desk.ec2.ledger(&first.id).free && desk.ec2.ledger(&second.id).free,
        "EC2 took them back in their first hour"
    );
}

#[test]
fn receipt_says_what_happened_on_a_machine_and_what_it_cost() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    desk.bench.write("w/quiet.sh", QUIET);
    let stories = [
        it_fails,
        it_idles,
        its_agent_does_not_run,
        nothing_of_this_ends_the_work,
        notices_short_and_long,
    ];
    std::thread::scope(|scope| {
        for story in stories {
            let desk = &desk;
            scope.spawn(move || story(desk));
        }
    });
}
