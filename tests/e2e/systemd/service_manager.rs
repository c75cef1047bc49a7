//! What a service manager does to a workload: needrestart after an installation, `systemctl stop`
//! by a person.
//!
//! Skipped, with a word, where no such machine can be had: it takes root and systemd-nspawn.
//! needrestart itself is run where it is installed.

use std::path::Path;

use serde_json::Value;

use crate::systemd::machine::{FOLDER, launched, until};
use crate::systemd::nspawn::Machine;

/// Saves and ends well when it is told to end; its program was replaced under it, as an
/// installation does.
const SCRIPT: &str = "cp /usr/bin/sleep /root/nap; /root/nap 1000 & nap=$!; \
                      until [ \"$(readlink /proc/$nap/exe)\" = /root/nap ]; do sleep 0.01; done; rm /root/nap; trap 'exit 0' TERM; echo x >> /root/began; \
                      while [ ! -e /root/go ]; do sleep 0.05; done; kill $nap";

/// The command's own unit; the start before it is the setup.
const UNIT: &str = "lamp-box-222222-0001-2.service";

#[test]
fn needrestart_and_systemctl_end_no_work() {
    let Some(mut machine) = Machine::new() else { return };
    launched(&machine, SCRIPT, "true");
    let needrestart = Path::new("/usr/sbin/needrestart").exists()
        && Path::new("/etc/needrestart/needrestart.conf").exists();
    if needrestart {
        let copied = std::process::Command::new("cp")
            .args(["-a", "/etc/needrestart"])
            .arg(machine.path("etc"))
            .status();
        assert!(copied.expect("cp").success());
        // As the user data writes it.
        machine.write(
            "etc/needrestart/conf.d/60-lamplighter.conf",
            "$nrconf{override_rc}{qr(^lamp-)} = 0;\n",
        );
    }
    machine.power_on();
    until(&machine, "the command is started", |event| {
        event["kind"] == "workload_started" && event["start"] == 2
    });
    crate::bench::wait_until("the command runs", || {
        machine.path("root/began").exists().then_some(())
    });

    for verb in ["stop", "restart", "try-restart"] {
        machine.run(&["sh", "-c", &format!("! systemctl {verb} {UNIT}")]);
    }
    machine.run(&["systemctl", "is-active", "--quiet", UNIT]);
    if needrestart {
        machine.run(&[
            "sh",
            "-c",
            "NEEDRESTART_UI=NeedRestart::UI::stdio needrestart -l -r a -v >/root/said 2>&1 || echo ended with $? >>/root/said",
        ]);
        let said = std::fs::read_to_string(machine.path("root/said")).expect("said");
        assert!(
            said.contains(UNIT) && !said.contains("ended with"),
            "it has seen the old program: {said}"
        );
        machine.run(&["systemctl", "is-active", "--quiet", UNIT]);
    } else {
        lamp_test_support::skipped("needrestart", "there is no needrestart on this machine");
    }
    assert_eq!(
        std::fs::read_to_string(machine.path("root/began")).expect("there"),
        "x\n",
        "nothing has disturbed it"
    );

    // What a stop does where it is not refused: SIGTERM to the whole unit. The script saves and
    // ends with 0.
    machine.run(&["systemctl", "kill", "--signal=SIGTERM", UNIT]);
    until(&machine, "the work is started again", |event| {
        event["kind"] == "workload_started" && event["start"] == 3
    });
    until(&machine, "it is said why", |event| event["reason"]["policy"] == "service");
    machine.write("root/go", "");
    machine.until_dark();
    let outcome = std::fs::read(machine.path(&format!("{FOLDER}/attempts/0001/outcome.json")))
        .expect("the last thing before the power goes");
    let outcome: Value = serde_json::from_slice(&outcome).expect("JSON");
    assert_eq!(outcome["because"], "succeeded", "{outcome}");
    assert_eq!(std::fs::read_to_string(machine.path("root/began")).expect("there"), "x\nx\n");
}
