//! Workloads in units of their own, on a machine that systemd runs. Skipped, with a word, on any
//! other.

use std::fs;
use std::process::Command;

use lamplighter::adapters::host::process_tree::ProcessRef;
use lamplighter::adapters::workload::process::{WorkloadIsolation, workloads};
use lamplighter::job::ExitStatus;
use lamplighter::ports::{Workload, Workloads};

use crate::workload::workload::{Bench, soon, until};
use lamp_test_support::skipped;

/// A start whose unit ends with the test.
struct Unit(Bench);

impl Unit {
    fn of_script(test: &str, script: &str) -> Option<Self> {
        if !std::path::Path::new("/run/systemd/system").exists()
            || !rustix::process::geteuid().is_root()
        {
            skipped("systemd", "systemd does not run this machine, or this is not root");
            return None;
        }
        let mut bench = Bench::of_script(script);
        bench.launch.name = format!("test-{}-{test}", std::process::id());
        Some(Unit(bench))
    }

    fn name(&self) -> String {
        format!("lamp-{}.service", self.0.launch.name)
    }

    fn workloads(&self) -> Box<dyn Workloads> {
        workloads(self.0.program.clone(), WorkloadIsolation::Own)
    }

    async fn start(&self) -> Box<dyn Workload> {
        self.workloads()
            .start(&self.0.launch)
            .await
            .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
    }

    fn systemctl(&self, arguments: &[&str]) -> String {
        let output = Command::new("systemctl")
            .args(arguments)
            .arg(self.name())
            .output()
            .expect("systemd runs this machine");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    async fn until_it_is_gone(&self) {
        until("the unit is gone", || {
            self.systemctl(&["is-active"]) != "active"
                && self.systemctl(&["show", "--property=LoadState", "--value"]) == "not-found"
        })
        .await;
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = Command::new("systemctl").args(["kill", "--signal=SIGKILL", &self.name()]).output();
    }
}

#[tokio::test]
async fn it_runs_in_a_unit_that_is_gone_afterwards() {
    let Some(unit) =
        Unit::of_script("end", "echo hello; while [ ! -e go ]; do sleep 0.01; done; exit 3")
    else {
        return;
    };
    let workload = unit.start().await;
    let settings = unit.systemctl(&["show", "--property=KillMode,OOMPolicy,Delegate,Type"]);
    for setting in ["Type=exec", "Delegate=yes", "OOMPolicy=continue", "KillMode=control-group"] {
        assert!(settings.lines().any(|line| line == setting), "{setting} in {settings}");
    }
    let group = workload.scope().cgroup.expect("a group of its own");
    let root = workload.scope().root_pid.expect("it runs");
    assert!(
        fs::read_to_string(group.join("cgroup.procs"))
            .expect("readable")
            .lines()
            .any(|pid| pid == root.to_string())
    );
    assert!(
        fs::read_to_string(format!("/proc/{}/cgroup", unit.0.holder().pid))
            .expect("readable")
            .lines()
            .any(|line| line.ends_with("/holder"))
    );
    assert_eq!(
        fs::read_to_string(format!("/proc/{root}/oom_score_adj")).expect("readable").trim(),
        "0"
    );
    fs::write(unit.0.file("go"), "").expect("written");
    let ended = soon("it ends", workload.ended()).await;
    assert_eq!((ended.exit.code, unit.0.output()), (Some(3), b"hello\n".to_vec()));
    unit.until_it_is_gone().await;
    let attached =
        unit.workloads().attach(unit.0.dir()).await.expect("readable").expect("it was started");
    assert_eq!(soon("its end is found again", attached.ended()).await, ended);
}

#[tokio::test]
async fn whole_unit_is_killed_and_the_end_is_known() {
    let script = "(setsid sh -c 'echo $$ > away.part; mv away.part away; while :; do sleep 0.01; done' &); while :; do sleep 0.01; done";
    let Some(unit) = Unit::of_script("kill", script) else { return };
    let workload = unit.start().await;
    unit.0.until_file("away").await;
    let away: u32 =
        fs::read_to_string(unit.0.file("away")).expect("there").trim().parse().expect("a number");
    let away = ProcessRef::of(away).expect("it runs");
    soon("the tree dies", workload.kill_tree()).await.expect("nothing is stuck");
    assert!(!away.alive());
    assert_eq!(
        soon("its end is known", workload.ended()).await.exit,
        ExitStatus { code: None, signal: Some(9), oom: false }
    );
    unit.until_it_is_gone().await;
}

#[tokio::test]
async fn shutdown_of_the_machine_lets_it_save() {
    let Some(unit) = Unit::of_script(
        "stop",
        "trap 'echo saved > saved; exit 9' TERM; touch ready; while :; do sleep 0.01; done",
    ) else {
        return;
    };
    let workload = unit.start().await;
    unit.0.until_file("ready").await;
    unit.systemctl(&["stop"]);
    assert_eq!(soon("it ends", workload.ended()).await.exit.code, Some(9));
    assert_eq!(fs::read_to_string(unit.0.file("saved")).expect("written"), "saved\n");
}

#[tokio::test]
async fn command_that_is_not_there_is_told_apart_in_a_unit_too() {
    let Some(mut unit) = Unit::of_script("missing", "true") else { return };
    unit.0.launch.argv = vec!["no-such-program".into()];
    let refused = unit.workloads().start(&unit.0.launch).await.err().expect("nothing to execute");
    assert!(
        matches!(refused, lamplighter::ports::WorkloadError::CannotExecute { .. }),
        "{refused:?}"
    );
    unit.until_it_is_gone().await;
}

#[tokio::test]
async fn child_out_of_memory_is_noticed_and_the_workload_goes_on() {
    let Some(unit) = Unit::of_script(
        "oom",
        "touch ready; while [ ! -e go ]; do sleep 0.01; done; tail /dev/zero; exit 4",
    ) else {
        return;
    };
    let workload = unit.start().await;
    unit.0.until_file("ready").await;
    if !workload.scope().cgroup.is_some_and(|group| group.join("memory.events").exists()) {
        skipped("systemd", "this kernel keeps its memory figures in the first version of the tree");
        return;
    }
    let limited = Command::new("systemctl")
        .args(["set-property", "--runtime", &unit.name(), "MemoryMax=48M", "MemorySwapMax=0"])
        .status();
    assert!(limited.is_ok_and(|status| status.success()));
    fs::write(unit.0.file("go"), "").expect("written");
    let exit = soon("it ends", workload.ended()).await.exit;
    assert_eq!(
        (exit.code, exit.oom),
        (Some(4), true),
        "the shell outlives what it started, and the group's own counter moved"
    );
}
