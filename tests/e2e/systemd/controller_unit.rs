//! `lamp daemon` under its own unit, on a machine that systemd runs: started, restarted, killed and
//! watched by systemd, it drives a job of the local cloud to its receipt.
//!
//! Skipped, with a word, where no such machine can be had. The unit is a user's own; here it is the
//! machine's, with the same walls.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::wait_until;
use crate::systemd::nspawn::Machine;

const ROOT: &str = "root/.local/state/lamplighter/jobs";

/// Above what the daemon waits between two looks at a folder, also on a busy machine, so that only
/// a loop that says nothing is killed.
const WATCHDOG: Duration = Duration::from_secs(20);

const JOB: &str = "name = 'unit'\ncommand = ['sh', '-c', 'echo begun > /root/begun; while [ ! -e /root/go ]; do sleep 0.1; done']\n\
                   [watch]\nidle = 'off'\n";

/// As it is installed, but for the place of the program and the patience of its watchdog.
fn unit() -> String {
    let shipped =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/lamp-controller.service");
    let shipped = std::fs::read_to_string(shipped).expect("a unit");
    let changed = shipped
        .replace("%h/.cargo/bin/lamp", "/opt/lamp")
        .replace("WatchdogSec=300", &format!("WatchdogSec={}", WATCHDOG.as_secs()));
    assert!(
        changed.contains("ExecStart=/opt/lamp daemon\n") && changed.contains("WatchdogSec=20\n"),
        "{changed}"
    );
    changed.replace(
        "[Service]\n",
        "[Service]\nEnvironment=HOME=/root LAMP_AGENT_BINARY=/opt/lamp-agent\n",
    )
}

/// What systemd knows of it.
fn shown(machine: &Machine, property: &str) -> String {
    machine.run(&[
        "sh",
        "-c",
        &format!("systemctl show --value --property={property} lamp-controller > /root/shown"),
    ]);
    std::fs::read_to_string(machine.path("root/shown")).expect("it was written").trim().to_owned()
}

fn receipt(machine: &Machine) -> Option<Value> {
    let jobs = std::fs::read_dir(machine.path(ROOT)).ok()?.flatten();
    jobs.filter_map(|job| std::fs::read(job.path().join("receipt.json")).ok())
        .find_map(|receipt| serde_json::from_slice(&receipt).ok())
}

#[test]
fn daemon_in_its_unit_drives_its_job_through_restart_and_kill() {
    let Some(machine) = Machine::new() else { return };
    let mut machine =
        machine.with(&[format!("--bind-ro={}:/opt/lamp", env!("CARGO_BIN_EXE_lamp"))]);
    machine.unit("lamp-controller.service", &unit());
    machine.wants("lamp-controller.service");
    machine.write("root/w/job.toml", JOB);
    machine.power_on();
    // `active` of such a unit is its own word that it is ready.
    wait_until("it is started", || {
        machine.path("root/.local/state/lamplighter").exists().then_some(())
    });
    wait_until("it is ready", || (shown(&machine, "ActiveState") == "active").then_some(()));
    assert!(!shown(&machine, "StatusText").is_empty());
    machine.run(&["sh", "-c", "cd /root/w && HOME=/root LAMP_AGENT_BINARY=/opt/lamp-agent /opt/lamp run --detach job.toml"]);
    wait_until("its job runs", || machine.path("root/begun").exists().then_some(()));

    // A restart ends none of the machines of the local cloud, which are processes of the unit's
    // group.
    let first = shown(&machine, "MainPID");
    machine.run(&["systemctl", "restart", "lamp-controller"]);
    let second = shown(&machine, "MainPID");
    assert!(first != second && second != "0", "{first} {second}");
    machine.run(&["systemctl", "kill", "--kill-who=main", "--signal=SIGKILL", "lamp-controller"]);
    wait_until("systemd starts it again", || {
        (shown(&machine, "NRestarts") == "1" && shown(&machine, "ActiveState") == "active")
            .then_some(())
    });

    // For longer than the watchdog's patience it says that it lives.
    let since = Instant::now();
    wait_until("two watchdogs have passed", || (since.elapsed() > WATCHDOG * 2).then_some(()));
    assert_eq!(shown(&machine, "NRestarts"), "1", "{}", machine.console());
    assert!(receipt(&machine).is_none());
    machine.write("root/go", "");
    let receipt = wait_until("the job has its receipt", || receipt(&machine));
    assert_eq!(
        (&receipt["outcome"], receipt["attempts"].as_array().map(Vec::len)),
        (&"succeeded".into(), Some(1)),
        "{receipt:#}"
    );
    machine.run(&["systemctl", "stop", "lamp-controller"]);
    assert_eq!(shown(&machine, "Result"), "success", "a stop is no failure");
}

/// The unit for jobs at AWS alone. Its job root is a folder here, which needs the drop-in that the
/// unit names.
#[test]
fn cloud_daemon_runs_in_its_sandbox_and_cannot_write_elsewhere() {
    let Some(machine) = Machine::new() else { return };
    let mut machine =
        machine.with(&[format!("--bind-ro={}:/opt/lamp", env!("CARGO_BIN_EXE_lamp"))]);
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("systemd/lamp-controller-cloud@.service");
    let shipped = std::fs::read_to_string(shipped).expect("a unit");
    let unit = shipped
        .replace("/home/%i/.cargo/bin/lamp", "/opt/lamp")
        .replace("/home/%i", "/root")
        .replace("%i", "root");
    let tries = "ExecStartPost=-/bin/sh -c 'echo x > /root/elsewhere; echo x > /root/.local/state/lamplighter/here'\n";
    machine.unit(
        "lamp-controller.service",
        &unit.replace("[Service]\n", &format!("[Service]\nEnvironment=HOME=/root\n{tries}")),
    );
    machine.wants("lamp-controller.service");
    machine.write("root/.local/state/lamplighter/jobs/.keep", "");
    machine.power_on();
    wait_until("it is started", || {
        machine.path("root/.local/state/lamplighter/here").exists().then_some(())
    });
    wait_until("it is ready", || (shown(&machine, "ActiveState") == "active").then_some(()));
    assert!(!shown(&machine, "StatusText").is_empty());
    assert!(!machine.path("root/elsewhere").exists());
}
