//! What takes its minutes: a machine that is dark or was never alive is ended within its bounds,
//! and a whole notice is used.
//!
//! The bounds are the shortest that a job file may ask for, in real time; the stories are told side
//! by side.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use lamplighter::market::elapsed;
use serde_json::Value;

use super::desk::{Desk, JOB};
use super::journey::bill_agrees;
use super::machines::{Ec2, patiently, took};
use super::story::{ITSELF, SAVES, Story};
use crate::bench::Running;
use lamp_test_support::ec2::{Seen, State};
use lamp_test_support::imds::{ACTION, Reply};

/// As the false EC2 gives it, and EC2.
const NOTICE: Duration = Duration::from_secs(120);

/// The shortest that a job file may ask for, as a lease and as the time of a boot.
const SHORTEST: Duration = Duration::from_secs(120);
const SHORT: (&str, &str) = ("[limits]\n", "[limits]\nlease = '2m'\nboot = '2m'\n");

/// After the lease, or the time of a boot, nobody has more than this: two looks of the controller,
/// or those of the dead-man's switch, a minute and then half a minute apart.
const LOOKS: Duration = Duration::from_secs(90);

/// Between the power button and the dark, at the most that these machines are left.
const SHUTDOWN: Duration = Duration::from_secs(30);

fn begin<'a>(desk: &'a Desk<Ec2>, name: &str, more: &str) -> Story<'a> {
    Story::begin(desk, name, &format!("{}{more}", JOB.replace(SHORT.0, SHORT.1)))
}

/// Lets the second machine finish, which goes on behind `step`.
fn second_goes_on(story: &Story<'_>, first: &Seen, step: u32) -> Value {
    let second = story.machine("0002");
    let resumed = story.begins(2, &second);
    assert!(resumed > step, "it goes on behind step {step}: {resumed}");
    story.desk.go(&second.id);
    story.ends(&[first, &second], ITSELF, "succeeded")
}

/// Its agent cannot say that it is dead, and EC2 says that it runs: the lease ends it, and the work
/// goes on elsewhere.
fn the_plug_is_pulled(desk: &Desk<Ec2>) {
    let story = begin(desk, "plug", SAVES);
    let first = story.machine("0001");
    desk.begins(&first.id);
    patiently("a checkpoint is complete", || desk.has_checkpoint(&story.job).then_some(()));
    desk.ec2.plug(&first.id);
    let pulled = Instant::now();
    assert_eq!(desk.ec2.instance(&first.id).state, State::Running, "EC2 knows nothing");
    let ended = desk.ec2.until(&first.id, State::Terminated);
    assert_eq!(ended.reason, "Client.UserInitiatedShutdown");
    took("pulled plug to terminated", pulled, SHORTEST + LOOKS);
    // The heartbeat before it may be a quarter of a minute old.
    assert!(
        pulled.elapsed() > Duration::from_secs(90),
        "the lease was kept: {:?}",
        pulled.elapsed()
    );
    let receipt = second_goes_on(&story, &first, 0);
    assert_eq!(receipt["attempts"][0]["ended_because"], "lost", "{receipt:#}");
}

/// Nothing of the user data ever ran: the controller ends the machine when the time of a boot is
/// over.
fn nothing_ever_comes_up(desk: &Desk<Ec2>) {
    let story = begin(desk, "dark", "[interruptions]\nmax = 0\n");
    let machine = story.machine("0001");
    let launched = Instant::now();
    patiently("it is switched on", || (desk.ec2.boots(&machine.id) > 0).then_some(()));
    desk.ec2.plug(&machine.id);
    let ended = desk.ec2.until(&machine.id, State::Terminated);
    took("launch of what never comes up to terminated", launched, SHORTEST + LOOKS);
    assert_eq!(ended.reason, "Client.UserInitiatedShutdown");
    let receipt = desk.receipt(&story.job);
    assert_eq!(
        (&receipt["outcome"], &receipt["attempts"][0]["ended_because"]),
        (&"failed".into(), &"lost".into()),
        "{receipt:#}"
    );
    bill_agrees(desk, &receipt, &[&machine]);
}

/// The user data dies before it has an agent, and the workstation is gone: the switch that was
/// armed first is all there is.
fn no_agent_and_nobody_watches(desk: &Desk<Ec2>) {
    let story = begin(desk, "mute", "[interruptions]\nmax = 0\n");
    let machine = story.machine("0001");
    desk.ec2.partition(&machine.id, true);
    patiently("the switch is armed", || {
        desk.ec2.said(&machine.id).contains("the agent could not be fetched").then_some(())
    });
    // It counts from before that.
    let armed = Instant::now();
    desk.ec2.run(&machine.id, &["systemctl", "kill", "--signal=SIGKILL", "user-data.service"]);
    for pid in story.drivers() {
        crate::bench::kill(pid, "KILL");
    }
    patiently("nobody watches", || story.drivers().is_empty().then_some(()));
    let ended = desk.ec2.until(&machine.id, State::Terminated);
    assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
    took("armed switch to terminated", armed, SHORTEST + LOOKS + SHUTDOWN);
    let mut daemon =
        Running::start(&mut desk.lamp(&["daemon", "--job", &story.job, "--until-done"]));
    let receipt = desk.receipt(&story.job);
    assert!(
        receipt["outcome"].as_str().is_some_and(|outcome| outcome != "succeeded"),
        "{receipt:#}"
    );
    assert!(daemon.wait().success());
    bill_agrees(desk, &receipt, &[&machine]);
}

/// The work goes on for as long as the notice allows, and nothing of it is lost.
fn a_whole_notice(desk: &Desk<Ec2>) {
    let story = begin(desk, "notice", "");
    let first = story.machine("0001");
    desk.begins(&first.id);
    patiently("it has done some steps", || (desk.step(&first.id) > 5).then_some(()));
    desk.ec2.interrupt(&first.id, NOTICE);
    let noticed = desk.step(&first.id);
    let ended = desk.ec2.until(&first.id, State::Terminated);
    assert_eq!(ended.reason, "Server.SpotInstanceTermination");
    assert!(
        desk.step(&first.id) > noticed + 50,
        "a notice is no end: {} steps after {noticed}",
        desk.step(&first.id)
    );
    second_goes_on(&story, &first, noticed);
}

/// While EC2's notice stands, the metadata service answers four of five requests of each kind with
/// 401 and 503, those for a token too: the notice is seen all the same, the work is saved because
/// of it, and goes on elsewhere.
fn a_notice_in_a_storm(desk: &Desk<Ec2>) {
    let story = begin(desk, "storm", "");
    let first = story.machine("0001");
    desk.begins(&first.id);
    patiently("it has done some steps", || (desk.step(&first.id) > 5).then_some(()));
    let (imds, given) = (desk.ec2.imds(&first.id), Timestamp::now());
    let asked = imds.asked(ACTION);
    imds.gusts(&[Reply::Text(401, String::new()), Reply::Text(503, "busy".into())], 5);
    desk.ec2.interrupt(&first.id, NOTICE);
    let noticed = desk.step(&first.id);
    let event =
        desk.until_event(&story.job, 1, "the notice is seen", |event| event["kind"] == "notice");
    let asked = imds.asked(ACTION) - asked;
    let seen: Timestamp = event["at"].as_str().and_then(|at| at.parse().ok()).expect("a time");
    // Fifteen polls of a second, three times as long on a busy machine: a third of them ask for a
    // token only.
    let took = elapsed(given, seen);
    assert!(
        asked >= 5 && took < NOTICE / 2,
        "seen after {took:?}, and {asked} questions until it was told"
    );
    eprintln!("measured: a notice in a storm was seen after {:.1} s", took.as_secs_f64());
    let ended = desk.ec2.until(&first.id, State::Terminated);
    assert_eq!(ended.reason, "Server.SpotInstanceTermination");
    let receipt = second_goes_on(&story, &first, noticed);
    assert_eq!(receipt["attempts"][0]["ended_because"], "interrupted", "{receipt:#}");
}

#[test]
fn machines_end_within_their_bounds_and_use_their_notice() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    let stories = [
        the_plug_is_pulled,
        nothing_ever_comes_up,
        no_agent_and_nobody_watches,
        a_whole_notice,
        a_notice_in_a_storm,
    ];
    std::thread::scope(|scope| {
        for story in stories {
            let desk = &desk;
            scope.spawn(move || story(desk));
        }
    });
}
