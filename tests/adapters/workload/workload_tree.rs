//! The end of processes: the workload runs on after its agent has ended. `kill_tree` and the end of
//! the machine end every process.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use lamplighter::adapters::host::process_tree::ProcessRef;
use lamplighter::job::ExitStatus;
use lamplighter::ports::{Signal, Workloads};
use rustix::process::{Pid, kill_process_group};

use crate::workload::workload::{Bench, LONG, soon, until};

/// Forks away twice into a session of its own, as a daemon does, and says so in `away`.
const FORK_AWAY: &str =
    "(setsid sh -c 'echo $$ > away.part; mv away.part away; while :; do sleep 0.01; done' &)";

/// A process of somebody else's, ended with the test.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        Bystander(
            Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sleep exists"),
        )
    }
    fn process(&self) -> ProcessRef {
        ProcessRef::of(self.0.id()).expect("it runs")
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn what_forked_away_is_counted_and_killed() {
    let bench =
        Bench::of_script(&format!("{FORK_AWAY}; while [ ! -e away ]; do sleep 0.01; done; exit 4"));
    let workload = bench.start().await;
    let ended = soon("the main process ends", workload.ended()).await;
    assert_eq!((ended.exit.code, ended.orphans >= 1), (Some(4), true), "{ended:?}");
    assert!(
        !bench.alive().is_empty() && bench.holder().alive(),
        "the holder stays with the orphan"
    );
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
    assert_eq!(bench.alive(), []);
    assert!(!bench.holder().alive(), "nothing is left to hold");
    assert_eq!(soon("still known", workload.ended()).await, ended);
}

#[tokio::test]
async fn running_tree_is_killed_whole() {
    let bench =
        Bench::of_script(&format!("trap '' TERM; {FORK_AWAY}; sleep 600 & sleep 600 & wait"));
    let workload = bench.start().await;
    bench.until_file("away").await;
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
    assert_eq!(bench.alive(), []);
    assert_eq!(
        soon("its end is known", workload.ended()).await.exit,
        ExitStatus { code: None, signal: Some(9), oom: false }
    );
}

#[tokio::test]
async fn it_outlives_the_agent_and_is_found_again() {
    let bench = Bench::of_script(
        "echo before; touch ready; while [ ! -e go ]; do sleep 0.01; done; echo after; exit 5",
    );
    let test = std::env::current_exe().expect("this test");
    let mut agent = Command::new(test);
    agent
        .args([
            "--exact",
            "workload::workload_tree::an_agent_that_will_be_killed",
            "--ignored",
            "--nocapture",
        ])
        .process_group(0);
    agent
        .env("LAMP_TEST_LAUNCH", serde_json::to_string(&bench.launch).expect("json"))
        .stdout(Stdio::null());
    let mut agent = Bystander(agent.spawn().expect("this program runs"));
    bench.until_file("ready").await;
    // A Ctrl-C at the terminal of the agent goes to its whole group, and so does this.
    let group = Pid::from_child(&agent.0);
    kill_process_group(group, rustix::process::Signal::KILL).expect("it is ours");
    agent.0.wait().expect("it is dead");

    let workload = bench.attach().await;
    assert!(
        workload
            .scope()
            .root_pid
            .is_some_and(|pid| bench.alive().iter().any(|process| process.pid == pid)),
        "untouched"
    );
    assert_eq!(workload.scope().workdir, bench.launch.cwd);
    fs::write(bench.file("go"), "").expect("written");
    assert_eq!(soon("it ends", workload.ended()).await.exit.code, Some(5));
    assert_eq!(bench.output(), b"before\nafter\n");
    assert_eq!(
        soon("an end is found again, too", bench.attach().await.ended()).await.exit.code,
        Some(5)
    );
}

/// The other process of the test above.
#[tokio::test]
#[ignore = "the agent of another test"]
async fn an_agent_that_will_be_killed() {
    let Ok(launch) = std::env::var("LAMP_TEST_LAUNCH") else { return };
    let bench = Bench::of_script("true");
    let workload = bench
        .workloads()
        .start(&serde_json::from_str(&launch).expect("a launch"))
        .await
        .expect("it starts");
    workload.ended().await;
}

#[tokio::test]
async fn sigterm_to_the_holder_changes_nothing() {
    let bench = Bench::of_script("touch ready; while [ ! -e go ]; do sleep 0.01; done; exit 6");
    let workload = bench.start().await;
    bench.until_file("ready").await;
    for signal in
        [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::HUP]
    {
        assert!(bench.holder().signal(signal).expect("it is ours"));
    }
    fs::write(bench.file("go"), "").expect("written");
    assert_eq!(soon("it ends", workload.ended()).await.exit.code, Some(6));
}

#[tokio::test]
async fn killed_holder_leaves_an_unknown_end_and_no_process() {
    let bench =
        Bench::of_script(&format!("trap '' PIPE; {FORK_AWAY}; while :; do sleep 0.01; done"));
    let workload = bench.start().await;
    bench.until_file("away").await;
    bench.holder().signal(rustix::process::Signal::KILL).expect("it is ours");
    let ended = soon("the end is noticed", workload.ended()).await;
    assert_eq!(ended.exit, ExitStatus::default(), "nobody knows how");
    assert!(ended.orphans >= 2, "{ended:?}");
    assert_eq!(bench.alive(), [], "neither the workload nor what forked away");
    assert!(!bench.has_exit_record());
}

#[tokio::test]
async fn power_cut_of_a_machine_kills_the_tree_and_writes_nothing() {
    let mut machine = Bystander::new();
    let mut bench =
        Bench::of_script(&format!("trap '' TERM HUP; {FORK_AWAY}; while :; do sleep 0.01; done"));
    bench.program.machine_pid = Some(machine.0.id());
    let _workload = bench.start().await;
    bench.until_file("away").await;
    machine.0.kill().expect("it is ours");
    until("everything is dark", || bench.alive().is_empty() && !bench.holder().alive()).await;
    assert!(!bench.has_exit_record(), "a machine without power writes nothing");
    machine.0.wait().expect("it is dead");
}

#[tokio::test]
async fn on_a_machine_that_is_off_nothing_starts() {
    let mut machine = Bystander::new();
    let pid = machine.0.id();
    machine.0.kill().expect("it is ours");
    machine.0.wait().expect("it is dead");
    let mut bench = Bench::of_script("touch ran");
    bench.program.machine_pid = Some(pid);
    let refused =
        soon("an answer", bench.workloads().start(&bench.launch)).await.err().expect("no power");
    assert_eq!(refused.to_string(), "cannot start the workload");
    assert!(!bench.file("ran").exists());
}

#[tokio::test]
async fn recycled_number_is_never_touched() {
    let bystander = Bystander::new();
    let bench = Bench::of_script("true");
    soon("it ends", bench.start().await.ended()).await;
    // The record of a workload and a holder that once had the number that the bystander has now.
    let path = bench.dir().join("started.json");
    let mut started: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).expect("started")).expect("json");
    let earlier =
        ProcessRef { start_ticks: bystander.process().start_ticks - 1, ..bystander.process() };
    started["workload"] = serde_json::to_value(earlier).expect("json");
    started["holder"] = started["workload"].clone();
    fs::write(&path, started.to_string()).expect("written");
    fs::remove_file(bench.dir().join("exit.json")).expect("there was one");

    let workload = bench.attach().await;
    for signal in [Signal::Term, Signal::Kill] {
        workload.signal(signal).expect("gone is success");
    }
    soon("an end", workload.ended()).await;
    soon("nothing to kill", workload.kill_tree()).await.expect("gone is success");
    assert!(bystander.process().alive());

    // The same numbers, but of before a reboot: not even an equal start tick makes them ours.
    started["workload"] = serde_json::to_value(bystander.process()).expect("json");
    started["holder"] = started["workload"].clone();
    started["boot_id"] = "00000000-0000-0000-0000-000000000000".into();
    fs::write(&path, started.to_string()).expect("written");
    let workload = bench.attach().await;
    workload.signal(Signal::Kill).expect("gone is success");
    soon("an end", workload.ended()).await;
    soon("nothing to kill", workload.kill_tree()).await.expect("gone is success");
    assert_eq!(workload.scope().root_pid, None);
    assert!(bystander.process().alive());
}

#[tokio::test]
async fn two_holders_of_one_folder_make_one_workload() {
    let bench = Bench::of_script("echo once >> runs; touch ready; while :; do sleep 0.01; done");
    let _workload = bench.start().await;
    bench.until_file("ready").await;
    let mut second = Command::new(&bench.program.exe);
    second.arg("holder").arg(bench.dir()).stderr(Stdio::null());
    let status = soon("it gives up", async {
        tokio::process::Command::from(second).status().await.expect("it runs")
    })
    .await;
    assert!(!status.success());
    assert_eq!(fs::read_to_string(bench.file("runs")).expect("written"), "once\n");
    assert!(bench.holder().alive(), "within {LONG:?}");
}
