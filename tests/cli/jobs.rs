//! Whole jobs through the real binary, on the local cloud.

#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for conditions and looks for processes"
)]

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Place, Words, end, signal, wait_until};

#[test]
fn job_runs_to_its_end_and_says_what_it_was() {
    let place =
        Place::new("printf 'one\\n\\000\\377two'; mkdir -p out; echo kept > out/a.txt; exit 7");
    let run = place.start(&[
        "run",
        "--usd-per-hour",
        "1.5",
        "--idle",
        "off",
        "--keep",
        "out/**",
        "--",
        "sh",
        "job.sh",
    ]);
    let (code, out, err) = end(run);
    assert_eq!(code, 7, "{err}");
    assert_eq!(out, b"one\n\0\xfftwo", "the log is the workload's own bytes: {err}");
    assert!(err.contains("receipt of job-"), "{err}");
    let receipt = place.receipt("job");
    assert_eq!(
        (receipt["outcome"].as_str(), receipt["exit_code"].as_i64()),
        (Some("failed"), Some(7))
    );
    assert!(receipt["total_usd"].as_f64().unwrap() > 0.0);
    let job = receipt["job"].as_str().unwrap();
    assert_eq!(place.0.read(&format!("lamp-outputs/{job}/out/a.txt")), "kept\n");
    let logs = place.start(&["logs", job]);
    assert_eq!(end(logs).1, b"one\n\0\xfftwo");
    let explained = place.0.lamp(&["explain", job]);
    assert!(
        explained.out.contains("failed: the workload ended with exit code 7"),
        "{}",
        explained.out
    );
    place.nothing_is_left();
}

/// kubernetes#101695: a message of a job must not move the cursor of a terminal, or set the title
/// of its window.
#[test]
fn control_characters_of_a_message_reach_no_terminal() {
    let message = r#"{"step": 1, "message": "\u001b[2J\u001b]0;owned\u0007hello"}"#;
    let place = Place::new(&format!(
        "printf '%s\\n' '{message}' >> \"$LAMP_PROGRESS\"; while [ ! -e GO ]; do sleep 0.1; done"
    ));
    let job = place
        .0
        .lamp(&["run", "-d", "-q", "--name", "said", "--", "sh", "job.sh"])
        .out
        .trim()
        .to_owned();
    wait_until("its message is told", || {
        place.status(&job)["progress"]["message"]
            .as_str()
            .filter(|text| text.contains("hello"))
            .map(drop)
    });
    for args in
        [&["status"][..], &["status", &job], &["status", &job, "-o", "json"], &["explain", &job]]
    {
        let said = place.0.lamp(args);
        assert!(
            said.code == 0
                && !said.out.contains(['\u{1b}', '\u{7}'])
                && !said.err.contains('\u{1b}'),
            "{args:?}: {said:?}"
        );
    }
    place.0.write("go", "");
    place.until(&job, "succeeded");
    place.nothing_is_left();
}

#[test]
fn detached_job_is_driven_and_stops_on_request() {
    let place = Place::new("trap 'exit 5' TERM; while :; do echo x; sleep 0.1; done");
    let ended = place.0.lamp(&["run", "--detach", "--idle", "off", "--", "sh", "job.sh"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let job = ended.out.trim();
    place.until(job, "running");
    let stopped = place.0.lamp(&["stop", "--wait", job]);
    assert_eq!(stopped.code, 0, "{}", stopped.err);
    let receipt = place.receipt(job);
    assert_eq!(
        (receipt["outcome"].as_str(), receipt["attempts"][0]["ended_because"].as_str()),
        (Some("stopped"), Some("user_stopped"))
    );
    assert_eq!(place.0.lamp(&["stop", job]).code, 102, "what has ended cannot be stopped");
    place.nothing_is_left();
}

#[test]
fn who_leaves_leaves_the_job_running() {
    // Ctrl-C, and a terminal that is closed.
    for name in ["INT", "HUP"] {
        let place = Place::new("echo begun; while [ ! -e GO ]; do sleep 0.05; done; exit 0");
        let run = place.start(&["run", "--idle", "off", "--", "sh", "job.sh"]);
        place.until("job", "running");
        signal(run.id(), name);
        let (code, _, err) = end(run);
        assert_eq!(code, 130, "{err}");
        assert!(
            err.contains("goes on")
                && err.contains("lamp logs -f job-")
                && err.contains("lamp stop job-"),
            "{err}"
        );
        place.until("job", "running");
        place.0.write("go", "");
        place.until("job", "succeeded");
        place.nothing_is_left();
    }
}

#[test]
fn command_that_tells_is_not_cut_off_by_the_end_of_run() {
    let place = Place::new("exit 0");
    let told = place.0.path().join("told").display().to_string();
    let config = format!(
        "[notify]\ncommand = ['sh', '-c', 'sleep 1; echo $LAMP_TEXT > {told}.new; mv {told}.new {told}']\n"
    );
    place.0.write("home/.config/lamplighter/config.toml", config);
    let (code, _, err) = end(place.start(&["run", "--idle", "off", "--", "sh", "job.sh"]));
    assert_eq!(code, 0, "{err}");
    assert!(place.0.read("told").starts_with("succeeded: "), "{err}");
    place.nothing_is_left();
}

#[test]
fn a_killed_controller_is_replaced_by_any_other() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.05; done; exit 3");
    let mut run = place.start(&["run", "--idle", "off", "--", "sh", "job.sh"]);
    let job = place.until("job", "running")["job"].as_str().unwrap().to_owned();
    run.kill().unwrap();
    run.wait().unwrap();
    place.0.write("go", "");
    place.until(&job, "terminating");
    // Whoever asks for the receipt may write it.
    assert_eq!(place.receipt(&job)["exit_code"], 3);
    std::fs::remove_file(
        place.0.path().join(format!("home/.local/state/lamplighter/jobs/{job}/receipt.json")),
    )
    .unwrap();
    // Two at once do no harm.
    let begun = Instant::now();
    let (one, other) = (
        place.start(&["daemon", "--job", &job, "--until-done"]),
        place.start(&["daemon", "--job", &job, "--until-done"]),
    );
    assert_eq!((end(one).0, end(other).0), (0, 0));
    // The first look, a tick at the latest, and three times as much for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let receipt = place.receipt(&job);
    assert_eq!(
        (receipt["exit_code"].as_i64(), receipt["attempts"].as_array().unwrap().len()),
        (Some(3), 1)
    );
    place.nothing_is_left();
}

#[test]
fn daemon_drives_what_is_left_to_it() {
    let place = Place::new("if [ $LAMP_ATTEMPT = 1 ]; then sleep 1000; fi; exit 0");
    let (daemon, _words) = place.driving(&["daemon"]);
    assert_eq!(place.0.lamp(&["daemon"]).code, 102, "a second daemon is refused");
    let detached =
        place.0.lamp(&["run", "--detach", "--idle", "off", "--name", "d", "--", "sh", "job.sh"]);
    assert_eq!(
        (detached.code, detached.err.contains("`lamp daemon` drives it")),
        (0, true),
        "{}",
        detached.err
    );
    // It relaunches what was lost, and writes the receipt.
    let instance = place.until("d", "running")["instance"].as_str().unwrap().to_owned();
    let record: Value = serde_json::from_str(
        &place.0.read(&format!("home/.local/state/lamplighter/local/{instance}/machine.json")),
    )
    .unwrap();
    signal(u32::try_from(record["process"]["pid"].as_u64().unwrap()).unwrap(), "KILL");
    place.until("d", "succeeded");
    assert_eq!(place.receipt("d")["attempts"].as_array().unwrap().len(), 2);
    signal(daemon.id(), "TERM");
    assert_eq!(end(daemon).0, 0);
    place.nothing_is_left();
}

#[test]
fn one_daemon_drives_several_job_roots() {
    let place = Place::new("exit 0");
    // The second job is packed while the machine of the first writes its records below the same
    // folder.
    place.0.write(".lampignore", "home/\none/\nother/\n");
    let roots = ["one", "other"].map(|name| place.0.path().join(name).display().to_string());
    let both = ["--job-root", &roots[0], "--job-root", &roots[1]];
    let refused = place.0.lamp(&[&both[..], &["status"]].concat());
    assert!(
        refused.code == 2 && refused.err.contains("only `lamp daemon` takes several"),
        "{refused:?}"
    );
    let of_one = place.0.lamp(&[&both[..], &["daemon", "--job", "x-222222"]].concat());
    assert!(
        of_one.code == 2 && of_one.err.contains("--job names a job of one job root"),
        "{of_one:?}"
    );
    let mut daemon = place.start(&[&both[..], &["daemon"]].concat());
    let words = Words::of(daemon.stderr.take());
    let said = words.until("driving the jobs of");
    assert!(roots.iter().all(|root| said.contains(root)), "{said}");
    for root in &roots {
        assert_eq!(
            place.0.lamp(&["--job-root", root, "daemon"]).code,
            102,
            "{root}: a second daemon is refused"
        );
        let run = place.0.lamp(&[
            "--job-root",
            root,
            "run",
            "--detach",
            "--idle",
            "off",
            "--name",
            "d",
            "--",
            "sh",
            "job.sh",
        ]);
        let named = run.err.contains("`lamp --job-root ") && run.err.contains(" daemon` drives it");
        assert_eq!((run.code, named), (0, true), "{}", run.err);
    }
    for root in &roots {
        wait_until("the job of each root has ended", || {
            let (code, status) = place.0.json(&["--job-root", root, "status", "-o", "json"]);
            (code == 0 && status["jobs"][0]["state"] == "succeeded").then_some(())
        });
    }
    signal(daemon.id(), "TERM");
    assert_eq!(end(daemon).0, 0);
    place.nothing_is_left();
}

#[test]
fn record_that_stops_the_display_does_not_leave_the_job_alone() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.05; done; exit 0");
    let run = place.start(&["run", "--idle", "off", "--", "sh", "job.sh"]);
    let job = place.until("job", "running")["job"].as_str().unwrap().to_owned();
    // Of a lease or an outcome, damage is passed over; nobody may guess what a receipt says.
    let receipt = format!("home/.local/state/lamplighter/jobs/{job}/receipt.json");
    place.0.write(&receipt, "{");
    let (code, _, err) = end(run);
    assert!(
        code != 0
            && err.contains("is not a record of ours")
            && err.contains("a background process drives it"),
        "{code}: {err}"
    );
    std::fs::remove_file(place.0.path().join(&receipt)).unwrap();
    place.0.write("go", "");
    place.until(&job, "succeeded");
    place.nothing_is_left();
}

#[test]
fn what_a_job_leaves_is_its_owners_alone_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("exit 0");
    for folder in ["home/.cache", "home/.local/state"] {
        std::fs::create_dir_all(place.0.path().join(folder)).unwrap();
    }
    let lamp = place.0.command(&[]).get_program().to_owned();
    let mut run = std::process::Command::new("/bin/sh");
    run.args(["-c", "umask 000; exec \"$@\"", "sh"])
        .arg(lamp)
        .args(["run", "-q", "--idle", "off", "--", "sh", "job.sh"]);
    run.current_dir(place.0.path())
        .env_clear()
        .env("HOME", place.0.path().join("home"))
        .env("PATH", "/usr/bin:/bin")
        .env("USER", "alice");
    assert_eq!(place.0.end(&mut run).code, 0);
    let mut seen = 0;
    for folder in [
        "home/.cache/lamplighter",
        "home/.local/state/lamplighter",
        "home/.local/state/lamplighter/local",
    ] {
        let folder = place.0.path().join(folder);
        let below = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        for path in below.chain([folder.clone()]) {
            seen += 1;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o700, "{} is {mode:o}", path.display());
        }
    }
    assert!(seen > 4, "{seen}");
    place.nothing_is_left();
}

#[test]
fn idle_job_is_ended_and_the_exit_code_says_so() {
    let place = Place::new("echo busy; sleep 1000");
    let toml = "command = [\"sh\", \"job.sh\"]\nname = \"idler\"\n[watch]\nidle = \"2s\"\nidle_grace = \"1s\"\n";
    place.0.write("job.toml", toml);
    let (code, _, err) = end(place.start(&["run", "job.toml"]));
    assert_eq!(code, 107, "{err}");
    let receipt = place.receipt("idler");
    assert_eq!(receipt["attempts"][0]["ended_because"], "idle");
    assert!(place.0.lamp(&["explain", "idler"]).out.contains("quiet for "));
    place.nothing_is_left();
}

#[test]
fn killed_machine_is_lost_and_the_job_goes_on_elsewhere() {
    let place = Place::new("if [ $LAMP_ATTEMPT = 1 ]; then sleep 1000; fi; exit 0");
    let run = place.start(&["run", "--idle", "off", "--usd-per-hour", "10", "--", "sh", "job.sh"]);
    let instance = place.until("job", "running")["instance"].as_str().unwrap().to_owned();
    let record: Value = serde_json::from_str(
        &place.0.read(&format!("home/.local/state/lamplighter/local/{instance}/machine.json")),
    )
    .unwrap();
    signal(u32::try_from(record["process"]["pid"].as_u64().unwrap()).unwrap(), "KILL");
    let (code, _, err) = end(run);
    assert_eq!(code, 0, "{err}");
    let receipt = place.receipt("job");
    let becauses: Vec<&str> = receipt["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["ended_because"].as_str().unwrap())
        .collect();
    assert_eq!(becauses, ["lost", "succeeded"]);
    place.nothing_is_left();
}

#[test]
fn what_is_not_there_is_said_with_what_was_meant() {
    let place = Place::new("exit 0");
    let none = place.0.lamp(&["receipt"]);
    assert_eq!((none.code, none.err.contains("no jobs in")), (101, true), "{}", none.err);
    assert_eq!(end(place.start(&["run", "-q", "--name", "digits", "--", "sh", "job.sh"])).0, 0);
    let missing = place.0.lamp(&["status", "digit"]);
    assert_eq!(missing.code, 0, "the beginning of an id is enough: {}", missing.err);
    let missing = place.0.lamp(&["logs", "digtis"]);
    assert_eq!(
        (missing.code, missing.err.contains("did you mean `digits")),
        (101, true),
        "{}",
        missing.err
    );
    let attempt = place.0.lamp(&["logs", "digits", "--attempt", "9"]);
    assert_eq!(attempt.code, 101);
}

#[test]
fn dry_run_starts_nothing() {
    let place = Place::new("exit 0");
    let planned = place.0.lamp(&[
        "run",
        "--dry-run",
        "--usd-per-hour",
        "2",
        "--max-runtime",
        "1h",
        "--",
        "sh",
        "job.sh",
    ]);
    assert_eq!(planned.code, 0, "{}", planned.err);
    assert!(
        planned.out.contains("costs at most $2.17"),
        "an hour, and five minutes to go dark: {}",
        planned.out
    );
    let (_, plan) =
        place.0.json(&["plan", "-o", "json", "--usd-per-hour", "2", "--", "sh", "job.sh"]);
    assert_eq!(plan["most_usd"], Value::Null);
    let (_, status) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(status["jobs"].as_array().unwrap().len(), 0);
    let mut aws =
        place.0.command(&["run", "--cloud", "aws", "--budget", "20", "--", "sh", "job.sh"]);
    let aws = place.0.end(aws.env("AWS_EC2_METADATA_DISABLED", "true"));
    // Built without it, or nobody there: two ways of not starting anything.
    let code = if cfg!(feature = "aws") { 103 } else { 104 };
    assert_eq!((aws.code, aws.err.contains("or billed")), (code, true), "{}", aws.err);
}

#[test]
fn limit_ends_a_job_unless_it_is_extended() {
    let place = Place::new("sleep 40");
    let (code, _, err) = end(place.start(&[
        "run",
        "-q",
        "--name",
        "cut",
        "--idle",
        "off",
        "--max-runtime",
        "4s",
        "--",
        "sh",
        "job.sh",
    ]));
    assert_eq!(code, 124, "{err}");
    assert_eq!(place.receipt("cut")["attempts"][0]["ended_because"], "max_runtime");

    let run = place.start(&[
        "run",
        "-q",
        "--name",
        "more",
        "--idle",
        "off",
        "--max-runtime",
        "35s",
        "--",
        "sh",
        "job.sh",
    ]);
    place.until("more", "running");
    assert_eq!(place.0.lamp(&["extend", "more"]).code, 2, "by what?");
    let extended = place.0.lamp(&["extend", "more", "1h"]);
    assert_eq!((extended.code, extended.err.contains("1h more")), (0, true), "{}", extended.err);
    assert!(
        extended.err.contains("its run time is 1h instead of 35s; it costs at most $0.00 now"),
        "{}",
        extended.err
    );
    let (code, _, err) = end(run);
    assert_eq!(code, 0, "{err}");
    let receipt = place.receipt("more");
    assert!(receipt["attempts"][0]["billed_seconds"].as_f64().unwrap() > 35.0, "{receipt}");
}

#[test]
fn job_of_a_newer_version_hides_no_other_and_is_not_touched() {
    let place = Place::new("exit 0");
    assert_eq!(end(place.start(&["run", "-q", "--name", "mine", "--", "sh", "job.sh"])).0, 0);
    let newer = "{\"format\": 99, \"job\": \"newer-222222\"}";
    let key = "home/.local/state/lamplighter/jobs/newer-222222/spec.json";
    place.0.write(key, newer);
    let status = place.0.lamp(&["status"]);
    assert_eq!(
        (status.code, status.out.contains("mine-"), status.err.contains("format 99")),
        (0, true, true),
        "{}{}",
        status.out,
        status.err
    );
    let folder = place.0.path().join("home/.local/state/lamplighter/jobs/newer-222222");
    // Its machine may bill: a wish to end it is left all the same, by its id.
    for (verb, code, entries) in [("status", 102, 1), ("receipt", 102, 1), ("stop", 0, 2)] {
        let one = place.0.lamp(&[verb, "newer-222222"]);
        assert_eq!((one.code, one.err.contains("format 99")), (code, true), "{verb}: {}", one.err);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), entries, "{verb}");
    }
    assert_eq!(place.0.read(key), newer);
}

#[test]
fn job_root_that_cannot_be_written_is_said_and_nothing_runs() {
    let place = Place::new("exit 0");
    for root in ["/proc/lamp", "file:///dev/null/jobs"] {
        let ended = place.0.lamp(&["--job-root", root, "run", "--", "sh", "job.sh"]);
        assert_eq!((ended.code, ended.err.contains("--job-root")), (103, true), "{}", ended.err);
    }
    place.nothing_is_left();
}

const TRAINS: &str = r#"
import json, os, pathlib, signal, time
want = []
HANDLER
folder = pathlib.Path(os.environ["LAMP_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
state = folder / "state.json"
step = json.loads(state.read_text())["step"] if state.exists() and RESUMES else 0
while step < 4000:
    step += 1
    with open(os.environ["LAMP_PROGRESS"], "a") as progress:
        progress.write(json.dumps({"step": step, "total": 4000}) + "\n")
    time.sleep(0.05)
    if want:
        want.clear()
        new = folder / ".new"
        new.write_text(json.dumps({"step": step}))
        new.rename(state)
"#;

fn rehearse(handler: &str, resumes: bool) -> (i32, Value) {
    let place = Place::new("");
    place.0.write(
        "train.py",
        TRAINS
            .replace("HANDLER", handler)
            .replace("RESUMES", if resumes { "True" } else { "False" }),
    );
    place.0.write(
        "lamp.toml",
        "name = \"r\"\ncommand = [\"python3\", \"train.py\"]\n[checkpoint]\npath = \"ckpt\"\nsignal = \"SIGUSR1\"\ninterval = \"1h\"\ngrace = \"5s\"\n",
    );
    let report =
        place.0.json(&["rehearse", "--interrupt-after", "1s", "--notice", "15s", "-o", "json"]);
    if report.0 == 0 {
        // Its job was cancelled because it had been played, and a list does not make that a
        // failure.
        let all = place.0.lamp(&["status", "--all"]);
        assert!(all.out.contains("cancelled, rehearsed"), "{all:?}");
    }
    place.nothing_is_left();
    report
}

pub fn failed(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks
        .filter(|check| check["passed"] == false)
        .map(|check| check["name"].as_str().unwrap())
        .collect()
}

#[test]
fn rehearsal_proves_a_script_that_resumes() {
    let (code, report) = rehearse("signal.signal(signal.SIGUSR1, lambda *_: want.append(1))", true);
    assert_eq!((code, report["proved"].as_bool()), (0, Some(true)), "{report:#}");
    let resumed = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == "resumed")
        .unwrap();
    assert!(resumed["seconds"].as_f64().unwrap() < 60.0);
}

#[test]
fn rehearsal_finds_a_script_that_begins_again() {
    let (code, report) =
        rehearse("signal.signal(signal.SIGUSR1, lambda *_: want.append(1))", false);
    assert_eq!((code, failed(&report)), (109, vec!["went_on"]), "{report:#}");
    assert!(report.to_string().contains("LAMP_RESUME"));
}

#[test]
fn rehearsal_finds_a_script_that_ignores_the_signal() {
    let (code, report) = rehearse("signal.signal(signal.SIGUSR1, lambda *_: None)", true);
    assert_eq!((code, failed(&report).first()), (109, Some(&"saved")), "{report:#}");
}

#[test]
fn rehearsal_finds_a_script_that_has_no_handler() {
    let (code, report) = rehearse("", true);
    assert_eq!((code, failed(&report)), (109, vec!["asked", "saved", "resumed"]), "{report:#}");
    assert!(
        report.to_string().contains("no process of the script has a handler for SIGUSR1"),
        "{report:#}"
    );
}

#[test]
fn rehearsal_without_a_checkpoint_says_what_is_missing() {
    let place = Place::new("exit 0");
    let ended = place.0.lamp(&["rehearse", "--", "sh", "job.sh"]);
    assert_eq!(
        (ended.code, ended.out.contains("add [checkpoint]")),
        (109, true),
        "{}{}",
        ended.out,
        ended.err
    );
}

#[test]
fn reader_that_goes_away_ends_the_printing() {
    let place = Place::new("seq 200000");
    assert_eq!(end(place.start(&["run", "-q", "--", "sh", "job.sh"])).0, 0);
    let mut logs = place.start(&["logs", "job"]);
    let mut some = [0; 10];
    logs.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let (code, _, err) = end(logs);
    assert_eq!(code, 0, "{err}");
}
