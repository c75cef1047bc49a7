//! `lamp-agent boot` under its own unit, on a machine that systemd runs: from power-on to
//! power-off.
//!
//! Skipped, with a word, where no such machine can be had: it takes root and systemd-nspawn.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bench::wait_until;
use crate::faults::Disk;
use crate::systemd::nspawn::Machine;
use lamp_test_support::imds::FalseImds;

/// The job of these machines.
const JOB: &str = "box-222222";
pub const FOLDER: &str = "var/lib/lamplighter/root/jobs/box-222222";

/// Works where the agent may not, then waits for a word.
const SCRIPT: &str = "echo x > here && echo x > /tmp/there && echo $HOME > $LAMP_OUTPUT_DIR/home && echo x > $LAMP_CACHE_DIR/kept || exit 9; \
                      while [ ! -e /root/go ]; do sleep 0.05; done";

/// A unit as it is installed, but for the place of the program.
fn agent_unit(name: &str) -> String {
    let unit = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name);
    std::fs::read_to_string(unit)
        .expect("a unit")
        .replace("/usr/local/bin/lamp-agent", "/opt/lamp-agent")
}

/// The folders that systemd has made on the machine's disk for units with a PrivateTmp.
fn private_folders(machine: &Machine) -> Vec<String> {
    let found = std::fs::read_dir(machine.path("var/tmp"))
        .expect("there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    found.filter(|name| name.starts_with("systemd-private-") && name.contains("lamp")).collect()
}

/// A job root on the disk of a machine, with the records of a job that runs this; gives the
/// machine's hard end.
pub fn recorded(machine: &Machine, script: &str, setup: &str) -> jiff::Timestamp {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1");
    let record = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(data.join(name)).expect("there")).expect("JSON")
    };
    let (mut spec, mut plan) = (record("spec.json"), record("plan.json"));
    (spec["job"], spec["code"]) = (json!(JOB), Value::Null);
    let settings = &mut spec["spec"];
    (settings["command"], settings["setup"]) =
        (json!({ "args": ["/bin/sh", "-c", script] }), json!(setup));
    (settings["checkpoint"], settings["outputs"]) = (Value::Null, json!([]));
    (settings["machine"]["gpus"], settings["machine"]["cuda"]) = (json!("none"), Value::Null);
    // No store of secrets is here.
    settings["secrets"] = json!({});
    settings["limits"] = json!({ "max_runtime": "30m", "budget": null, "deadline": null });
    let kill_at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    (plan["job"], plan["attempt"], plan["resume_from"]) = (json!(JOB), json!(1), Value::Null);
    plan["kill_at"] = json!(kill_at.to_string());
    machine.write(&format!("{FOLDER}/spec.json"), &spec.to_string());
    machine.write(&format!("{FOLDER}/attempts/0001/plan.json"), &plan.to_string());
    kill_at
}

/// The metadata service of such a machine.
pub fn metadata() -> FalseImds {
    let tags = [("owner", "me"), ("job", JOB), ("attempt", "0001"), ("lease-s", "1800")];
    let tags: BTreeMap<String, String> = tags
        .iter()
        .map(|(key, value)| (format!("lamplighter:{key}"), (*value).to_owned()))
        .collect();
    let imds = FalseImds::default();
    imds.is("i-0123", "g5.xlarge", "us-east-1a", jiff::Timestamp::now());
    imds.tagged(&tags);
    imds
}

/// This machine with the job on it that runs this; gives its hard end.
pub fn launched(machine: &Machine, script: &str, setup: &str) -> jiff::Timestamp {
    let kill_at = recorded(machine, script, setup);
    let imds = metadata();
    let settings = format!(
        "LAMP_JOB_ROOT=file:///var/lib/lamplighter/root\nAWS_EC2_METADATA_SERVICE_ENDPOINT={}\n",
        imds.listen()
    );
    machine.write("etc/lamplighter/agent.env", &settings);
    for name in ["lamp-agent.service", "lamp-agent-tmp.service"] {
        machine.unit(name, &agent_unit(name));
    }
    machine.wants("lamp-agent.service");
    // As the user data left it, twice.
    machine.write("etc/lamplighter/deadline", "1\n");
    machine.write("var/lib/lamplighter/agent/boots", "2\n");
    kill_at
}

/// Everything that happened so far, in order; the numbers have no gaps.
fn events(machine: &Machine) -> Vec<Value> {
    let Ok(folder) = std::fs::read_dir(machine.path(&format!("{FOLDER}/attempts/0001/events")))
    else {
        return Vec::new();
    };
    let mut files: Vec<_> = folder
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    files.sort();
    let text: String =
        files.iter().map(|file| std::fs::read_to_string(file).expect("readable")).collect();
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(events.iter().enumerate().all(|(at, event)| event["seq"] == at + 1), "{text}");
    events
}

pub fn until(machine: &Machine, what: &str, is_it: impl Fn(&Value) -> bool) {
    wait_until(what, || events(machine).iter().any(&is_it).then_some(()));
}

#[test]
fn machine_outlives_a_dead_agent_and_power_cut_and_powers_off() {
    let Some(mut machine) = Machine::new() else { return };
    let kill_at = launched(&machine, SCRIPT, "echo x > /tmp/by-setup");
    machine.power_on();
    // The first start is the setup.
    until(&machine, "the command is started", |event| {
        event["kind"] == "workload_started" && event["start"] == 2
    });

    // The switch knows the hard end now, and this was a boot that led to work.
    let deadline = std::fs::read_to_string(machine.path("etc/lamplighter/deadline"))
        .expect("the agent may write it");
    assert!(
        (deadline.trim().parse::<i64>().expect("a number") - kill_at.as_second()).abs() <= 1,
        "{deadline} for {kill_at}"
    );
    assert!(!machine.path("var/lib/lamplighter/agent/boots").exists());

    let folders = private_folders(&machine);
    assert!(
        matches!(folders.as_slice(), [one] if one.contains("-lamp-agent-tmp.service-")),
        "{folders:?}"
    );
    machine.run(&["systemctl", "kill", "--signal=SIGKILL", "lamp-agent"]);
    until(&machine, "the agent is back and finds its workload", |event| {
        event["kind"] == "agent" && event["reattached"] == true
    });
    assert_eq!(
        private_folders(&machine),
        folders,
        "systemd makes none on the disk for an agent that starts again"
    );

    machine.cut_the_power();
    machine.power_on();
    until(&machine, "the work is started again", |event| {
        event["kind"] == "workload_started" && event["start"] == 3
    });

    machine.write("root/go", "");
    machine.until_dark();
    let outcome = std::fs::read(machine.path(&format!("{FOLDER}/attempts/0001/outcome.json")))
        .expect("the last thing before the power goes");
    let outcome: Value = serde_json::from_slice(&outcome).expect("JSON");
    assert_eq!(
        (&outcome["because"], &outcome["exit"]["code"]),
        (&json!("succeeded"), &json!(0)),
        "{outcome}"
    );
    let home = std::fs::read_to_string(machine.path(&format!("{FOLDER}/outputs/lamp-output/home")))
        .expect("an output that was kept");
    assert_eq!(home, "/root\n");
    let ended: Vec<Value> =
        events(&machine).into_iter().filter(|event| event["kind"] == "workload_ended").collect();
    assert_eq!(ended.len(), 2, "the setup and the last start, and neither crash: {ended:?}");
}

/// Its agent is stopped for good, and no controller runs.
#[test]
fn machine_whose_agent_is_silent_for_a_lease_puts_itself_out() {
    let Some(mut machine) = Machine::new() else { return };
    launched(&machine, SCRIPT, "true");
    machine.unit("lamp-deadman.service", &agent_unit("lamp-deadman.service"));
    machine.power_on();
    until(&machine, "the command is started", |event| {
        event["kind"] == "workload_started" && event["start"] == 2
    });
    machine.run(&[
        "sh",
        "-c",
        "read -r said lease </run/lamplighter/alive; [ $said -gt 1 ] && [ $lease -eq 1800 ]",
    ]);
    machine.run(&["systemctl", "start", "lamp-deadman.service"]);
    machine.run(&["systemctl", "stop", "lamp-agent"]);
    machine.run(&["sh", "-c", "read -r said lease </run/lamplighter/alive && echo $((said - lease)) $lease >/run/lamplighter/alive"]);
    machine.run(&["systemctl", "start", "--no-block", "lamp-deadman.service"]);
    machine.until_dark();
    assert!(
        !machine.path(&format!("{FOLDER}/attempts/0001/outcome.json")).exists(),
        "its agent had no part in it"
    );
}

/// The disk on which the agent and its workload live is full before the work ends, and stays so:
/// the end is told as it was, and the machine goes dark. The job root is elsewhere, as a bucket is.
#[test]
fn a_machine_whose_disk_is_full_tells_the_end_and_goes_dark() {
    let Some(mut machine) = Machine::new() else { return };
    // Large enough for the preflight; what it really holds is little.
    let Some(disk) = Disk::mount_at(machine.path("var"), "4g") else { return };
    let Some(_root) = Disk::mount_at(machine.path("var/lib/lamplighter/root"), "64m") else {
        return;
    };
    let fills = "while [ ! -e /root/go ]; do sleep 0.05; done; head -c 200000000 /dev/zero > /var/fill 2> /dev/null; \
                 for i in 1 2 3 4 5 6; do echo step $i; sleep 0.3; done";
    launched(&machine, fills, "true");
    machine.power_on();
    until(&machine, "the command is started", |event| {
        event["kind"] == "workload_started" && event["start"] == 2
    });
    disk.becomes("64m");
    machine.write("root/go", "");
    machine.until_dark();
    assert!(
        std::fs::write(machine.path("var/more"), [1; 100_000]).is_err(),
        "it is full to the end"
    );
    let outcome = std::fs::read(machine.path(&format!("{FOLDER}/attempts/0001/outcome.json")))
        .expect("the last thing before the power goes");
    let outcome: Value = serde_json::from_slice(&outcome).expect("JSON");
    assert_eq!(
        (&outcome["because"], &outcome["exit"]["code"]),
        (&json!("succeeded"), &json!(0)),
        "{outcome}"
    );
    // Not there when nothing of it could be kept.
    let log = std::fs::read_dir(machine.path(&format!("{FOLDER}/attempts/0001/log")))
        .into_iter()
        .flatten()
        .flatten();
    let log: String = log.filter_map(|piece| std::fs::read_to_string(piece.path()).ok()).collect();
    let whole = (1..=6).all(|step| log.contains(&format!("step {step}\n")));
    assert!(
        whole || outcome["losses"].to_string().contains("bytes of output"),
        "kept, or its loss is told: {log} {outcome:#}"
    );
}

/// Somebody else's terminal is theirs and the group's of all terminals; the agent may pass over no
/// rights.
#[test]
fn agent_in_its_sandbox_may_write_to_terminals_of_others() {
    let Some(mut machine) = Machine::new() else { return };
    let tells =
        "/bin/sh -c 'for terminal in /dev/pts/[0-9]*; do echo told > $$terminal || exit 1; done'";
    let probe = |unit: &str| {
        let unit = unit
            .replace("/opt/lamp-agent boot", tells)
            .replace("Type=notify", "Type=oneshot")
            .replace("Restart=always", "Restart=no");
        unit.lines()
            .filter(|line| !line.starts_with("WatchdogSec="))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let unit = agent_unit("lamp-agent.service");
    let alone = unit.replace("SupplementaryGroups=tty\n", "");
    assert_ne!(unit, alone);
    machine.unit("lamp-agent-tmp.service", &agent_unit("lamp-agent-tmp.service"));
    machine.unit("tells.service", &probe(&unit));
    machine.unit("tells-nobody.service", &probe(&alone));
    machine.unit("up.service", "[Service]\nType=oneshot\nExecStart=/bin/touch /var/up\n");
    machine.wants("up.service");
    machine.power_on();
    wait_until("the machine is up", || machine.path("var/up").exists().then_some(()));
    machine.run(&[
        "systemd-run",
        "--quiet",
        "--unit=person",
        "--uid=nobody",
        "script",
        "--quiet",
        "--command",
        "sleep 600",
        "/dev/null",
    ]);
    machine.run(&["sh", "-c", "until ls /dev/pts/[0-9]* > /dev/null 2>&1; do sleep 0.1; done"]);
    machine.run(&["systemctl", "start", "tells"]);
    machine.run(&["sh", "-c", "! systemctl start tells-nobody 2> /dev/null"]);
}

/// Under the unit as installed: the command finds what a login shell finds, and a save that another
/// user wrote for itself alone is kept.
#[test]
fn job_has_the_login_environment_and_private_saves_are_kept() {
    let Some(mut machine) = Machine::new() else { return };
    let script = "[ \"$CUDA_HOME\" = /usr/local/cuda ] && [ \"$VIRTUAL_ENV\" = /opt/pytorch ] || exit 9; \
                  cd checkpoints && chmod 777 . && setpriv --reuid=1000 --regid=1000 --clear-groups sh -c \
                  'umask 077; head -c 100000 /dev/urandom > part && mv part step-1.pt' || exit 8; \
                  while [ ! -e /root/go ]; do sleep 0.05; done";
    launched(&machine, &format!("mkdir -p checkpoints; {script}"), "true");
    let file = format!("{FOLDER}/spec.json");
    let mut spec: Value =
        serde_json::from_slice(&std::fs::read(machine.path(&file)).expect("it was just written"))
            .expect("JSON");
    spec["spec"]["checkpoint"] =
        json!({ "path": "checkpoints", "interval": "1s", "signal": null, "grace": "5s" });
    machine.write(&file, &spec.to_string());
    machine.write("etc/profile", "export CUDA_HOME=/usr/local/cuda\n");
    machine.write("opt/pytorch/bin/activate", "export VIRTUAL_ENV=/opt/pytorch\n");
    machine.power_on();
    until(&machine, "the save is kept", |event| {
        event["kind"] == "checkpoint" && event["checkpoint"]["bytes"] == 100_000
    });
    machine.write("root/go", "");
    machine.until_dark();
    let outcome = std::fs::read(machine.path(&format!("{FOLDER}/attempts/0001/outcome.json")))
        .expect("the last thing before the power goes");
    let outcome: Value = serde_json::from_slice(&outcome).expect("JSON");
    assert_eq!(outcome["because"], json!("succeeded"), "{outcome:#}");
    assert!(outcome["losses"].as_array().is_none_or(Vec::is_empty), "{outcome:#}");
}
