//! What takes its minutes: a machine that is dark or was never alive is ended within its bounds, and a whole notice is used.
//!
//! The bounds are the shortest that a job file may ask for, in real time; the stories are told side by side.

use std::time::{Duration, Instant};

use super::desk::{Desk, JOB};
use super::journey::bill_agrees;
use super::machines::Ec2;
use crate::bench::Running;
use crate::false_ec2::{Seen, State};

/// Two minutes of the bound, one of the timer of the dead-man's switch, and one for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// As the false EC2 gives it, and EC2.
const NOTICE: Duration = Duration::from_secs(120);

fn patiently<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// One job of several on one desk.
struct Story<'a> {
    desk: &'a Desk<Ec2>,
    job: String,
}

impl<'a> Story<'a> {
    fn begin(desk: &'a Desk<Ec2>, name: &str, more: &str) -> Self {
        let file = format!("{name}.toml");
        desk.bench.write(
            &file,
            &format!("{}{more}", JOB.replace("'toy'", &format!("'{name}'")).replace("[limits]\n", "[limits]\nlease = '2m'\nboot = '2m'\n")),
        );
        Story { desk, job: desk.submit_file(&file) }
    }

    /// The machine of an attempt.
    fn machine(&self, attempt: &str) -> Seen {
        let tag = |seen: &Seen, key: &str| seen.tags.get(&format!("lamplighter:{key}")).cloned().unwrap_or_default();
        let ours = |seen: &Seen| tag(seen, "job") == self.job && tag(seen, "attempt") == attempt;
        patiently("it is launched", || self.desk.ec2.instances().into_iter().find(ours))
    }

    fn until_terminated(&self, id: &str) -> Seen {
        patiently(&format!("{id} is terminated"), || Some(self.desk.ec2.instance(id)).filter(|seen| seen.state == State::Terminated))
    }

    /// Lets the second machine finish, which goes on behind `step`.
    fn second_goes_on(&self, first: &Seen, step: u32) {
        let second = self.machine("0002");
        let begun = self.desk.begins(&second.id);
        let resumed: u32 = begun.strip_prefix("2 ").and_then(|step| step.parse().ok()).unwrap_or_else(|| panic!("{begun}"));
        assert!(resumed > step, "it goes on behind step {step}: {begun}");
        self.desk.go(&second.id);
        let receipt = self.desk.receipt(&self.job);
        assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
        bill_agrees(self.desk, &receipt, &[first, &second]);
    }

    fn driver(&self) -> Vec<u32> {
        let mine = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&self.job));
        self.desk.bench.processes().into_iter().filter(mine).collect()
    }
}

/// Its agent cannot say that it is dead, and EC2 says that it runs: the lease ends it, and the work goes on elsewhere.
fn the_plug_is_pulled(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "plug", "[env]\nSAVE_EVERY = '5'\n");
    let first = story.machine("0001");
    desk.begins(&first.id);
    patiently("a checkpoint is complete", || desk.has_checkpoint(&story.job).then_some(()));
    desk.ec2.plug(&first.id);
    let pulled = Instant::now();
    assert_eq!(desk.ec2.instance(&first.id).state, State::Running, "EC2 knows nothing");
    let ended = story.until_terminated(&first.id);
    assert_eq!(ended.reason, "Client.UserInitiatedShutdown");
    // The heartbeat before it may be a quarter of a minute old.
    assert!(pulled.elapsed() > Duration::from_secs(90), "the lease was kept: {:?}", pulled.elapsed());
    story.second_goes_on(&first, 0);
    let receipt = desk.receipt(&story.job);
    assert_eq!(receipt["attempts"][0]["ended_because"], "lost", "{receipt:#}");
}

/// Nothing of the user data ever ran: the controller ends the machine when the time of a boot is over.
fn nothing_ever_comes_up(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "dark", "[interruptions]\nmax = 0\n");
    let machine = story.machine("0001");
    patiently("it is switched on", || (desk.ec2.boots(&machine.id) > 0).then_some(()));
    desk.ec2.plug(&machine.id);
    let ended = story.until_terminated(&machine.id);
    assert_eq!(ended.reason, "Client.UserInitiatedShutdown");
    let receipt = desk.receipt(&story.job);
    assert_eq!((&receipt["outcome"], &receipt["attempts"][0]["ended_because"]), (&"failed".into(), &"lost".into()), "{receipt:#}");
    bill_agrees(desk, &receipt, &[&machine]);
}

/// The user data dies before it has an agent, and the workstation is gone: the switch that was armed first is all there is.
fn no_agent_and_nobody_watches(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "mute", "[interruptions]\nmax = 0\n");
    let machine = story.machine("0001");
    desk.ec2.partition(&machine.id, true);
    patiently("the switch is armed", || desk.ec2.said(&machine.id).contains("the agent could not be fetched").then_some(()));
    desk.ec2.run(&machine.id, &["systemctl", "kill", "--signal=SIGKILL", "user-data.service"]);
    for pid in story.driver() {
        crate::bench::kill(pid, "KILL");
    }
    patiently("nobody watches", || story.driver().is_empty().then_some(()));
    let ended = story.until_terminated(&machine.id);
    assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
    let mut daemon = Running::start(&mut desk.lamp(&["daemon", "--job", &story.job, "--until-done"]));
    let receipt = desk.receipt(&story.job);
    assert!(receipt["outcome"].as_str().is_some_and(|outcome| outcome != "succeeded"), "{receipt:#}");
    assert!(daemon.wait().success());
    bill_agrees(desk, &receipt, &[&machine]);
}

/// The work goes on for as long as the notice allows, and nothing of it is lost.
fn a_whole_notice(desk: &Desk<Ec2>) {
    let story = Story::begin(desk, "notice", "");
    let first = story.machine("0001");
    desk.begins(&first.id);
    patiently("it has done some steps", || (desk.step(&first.id) > 5).then_some(()));
    desk.ec2.interrupt(&first.id, NOTICE);
    let noticed = desk.step(&first.id);
    let ended = story.until_terminated(&first.id);
    assert_eq!(ended.reason, "Server.SpotInstanceTermination");
    assert!(desk.step(&first.id) > noticed + 50, "a notice is no end: {} steps after {noticed}", desk.step(&first.id));
    story.second_goes_on(&first, noticed);
}

#[test]
fn machines_end_within_their_bounds_and_a_notice_of_two_minutes_is_used() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    let stories = [the_plug_is_pulled, nothing_ever_comes_up, no_agent_and_nobody_watches, a_whole_notice];
    std::thread::scope(|scope| {
        for story in stories {
            let desk = &desk;
            scope.spawn(move || story(desk));
        }
    });
}
