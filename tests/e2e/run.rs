//! `lamp run` from the file to the receipt: whose exit code, whose output, what comes home.

use std::io::Write as _;
use std::process::Stdio;

use lamp_test_support::skipped;

use crate::bench::{Bench, Finish as _, Running, kill, wait_until};
use crate::jobs::{SAVES, adds_up, assert_code, text};

#[test]
fn job_runs_and_its_outputs_and_receipt_come_home() {
    let bench = Bench::new();
    bench.trainer(
        "STEPS = 12, SAVE_EVERY = 5",
        &format!("{SAVES}\n[limits]\nmax_runtime = '10m'\n"),
    );
    let file = bench.file("job.toml");
    let job = std::fs::read_to_string(&file)
        .unwrap()
        .replace("workdir = 'w'", "workdir = 'w'\noutputs = ['metrics.json']");
    std::fs::write(&file, job).unwrap();

    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 0);
    let steps: String = (1..=12).map(|step| format!("step {step}\n")).collect();
    assert_eq!(text(&out.stdout), format!("begin at 0\n{steps}done\n"), "stdout is the workload's");
    assert!(text(&out.stderr).contains("costs at most"), "{}", text(&out.stderr));

    let job = bench.only_job().unwrap();
    let home = bench.file("lamp-outputs").join(&job);
    assert_eq!(std::fs::read_to_string(home.join("metrics.json")).unwrap(), "{\"steps\": 12}");
    assert_eq!(std::fs::read_to_string(home.join("model.txt")).unwrap(), "trained 12 steps\n");

    let receipt = bench.ask(&["receipt", &job]);
    assert_eq!((&receipt["outcome"], &receipt["exit_code"]), (&"succeeded".into(), &0.into()));
    assert_eq!(receipt["attempts"].as_array().unwrap().len(), 1);
    assert!(
        receipt["total_usd"].as_f64().unwrap() > 0.0
            && receipt["checkpoints"].as_u64().unwrap() >= 1,
        "{receipt:#}"
    );
    assert_eq!(receipt["losses"], serde_json::json!([]));
    adds_up(&receipt);
    let settled = bench.record("attempts/0001/settled.json").unwrap();
    let span = |name: &str| settled["outcome"][name].clone();
    assert!(
        span("useful").is_string() && span("idle").is_string() && span("unknown").is_string(),
        "{settled:#}"
    );
}

#[test]
fn what_nobody_asked_to_keep_is_named_before_it_is_gone() {
    let bench = Bench::new();
    bench.shell("echo weights > model.pt; mkdir -p runs lamp-output; echo a > runs/log.txt; echo kept > lamp-output/x; touch empty", "");
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 0);
    let losses = bench.receipt()["losses"].clone();
    let text = losses[0].as_str().unwrap();
    assert!(
        text.contains("`model.pt` (8 B), `runs/log.txt` (2 B); ") && text.contains("`outputs = ["),
        "{losses}"
    );
    let err = self::text(&out.stderr).replace("\n", " ");
    assert!(err.contains("kept by nobody"), "{err}");
    // Named, it comes home, and nothing is said.
    let out = bench
        .lamp(&[
            "run", "job.toml", "--name", "again", "--keep", "model.pt", "--keep", "runs/**", "-o",
            "json",
        ])
        .finish();
    assert_code(&out, 0);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()["losses"],
        serde_json::json!([])
    );
}

#[test]
fn workloads_own_exit_code_is_lamps() {
    let bench = Bench::new();
    bench.trainer("STEPS = 2, EXIT = 7", "");
    let out = bench.lamp(&["run", "job.toml", "-o", "json"]).finish();
    assert_code(&out, 7);
    let receipt: serde_json::Value =
        serde_json::from_slice(&out.stdout).expect("with -o json stdout is the receipt");
    assert_eq!(receipt["outcome"], "failed");
    assert_eq!(receipt["exit_code"], 7);
    assert_eq!(receipt["attempts"][0]["exit"]["code"], 7);
    adds_up(&receipt);
    assert_eq!(receipt, bench.ask(&["receipt"]), "the same as the verb's");
}

#[test]
fn command_alone_is_a_job_and_keeps_what_follows_the_dashes() {
    let bench = Bench::new();
    bench.write("w/x.sh", "echo \"$@\"; kill -KILL $$");
    let out = bench
        .lamp(&[
            "run",
            "--workdir",
            "w",
            "--name",
            "alone",
            "--",
            "sh",
            "x.sh",
            "--epochs",
            "10",
            "--name",
            "mine",
        ])
        .finish();
    assert_code(&out, 137);
    assert_eq!(text(&out.stdout), "--epochs 10 --name mine\n");
    let receipt = bench.ask(&["receipt", "alone"]);
    assert_eq!(receipt["attempts"][0]["exit"]["signal"], 9, "{receipt:#}");
}

#[test]
fn setup_that_fails_is_no_failure_of_the_command() {
    let bench = Bench::new();
    bench.shell("touch $E2E_BENCH/ran", "");
    let file = bench.file("job.toml");
    let job = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("setup = ['echo fetching', 'false', 'echo never']\n{job}"))
        .unwrap();
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 106);
    assert!(!bench.file("ran").exists());
    let receipt = bench.ask(&["receipt"]);
    assert_eq!(receipt["attempts"][0]["ended_because"], "setup_failed");
    adds_up(&receipt);
    let log = text(&bench.lamp(&["logs"]).finish().stdout);
    assert!(log.contains("fetching") && !log.contains("never"), "{log}");
}

#[test]
fn setup_is_no_start_of_the_command() {
    let bench = Bench::new();
    bench.shell("echo work", "");
    let file = bench.file("job.toml");
    let job = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("setup = ['echo fetching']\n{job}")).unwrap();
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 0);
    assert_eq!(
        text(&bench.lamp(&["logs"]).finish().stdout),
        "fetching\n\n[lamp: start 1 of the workload]\nwork\n"
    );
    let story = text(&bench.lamp(&["explain"]).finish().stdout);
    assert!(
        story.contains("started    setup: echo fetching\n")
            && story.contains("started    start 1: sh job.sh\n"),
        "{story}"
    );
    assert!(!story.contains("start 2"), "{story}");
}

#[test]
fn a_command_that_is_not_there_is_said_as_a_shell_would() {
    let bench = Bench::new();
    bench.write("w/readme", "x");
    // With a setup that could bring it, only the machine can tell.
    bench.write("job.toml", "workdir = 'w'\nsetup = 'true'\ncommand = ['no-such-program-here']\n");
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 127);
    let receipt = bench.ask(&["receipt"]);
    assert!(receipt["reason"].as_str().unwrap().contains("no-such-program-here"), "{receipt:#}");
    assert_eq!(receipt["attempts"][0]["ended_because"], "failed");
}

#[test]
fn a_workload_that_fails_is_run_again_as_often_as_it_may() {
    let bench = Bench::new();
    bench.trainer("STEPS = 2, FAIL_TIMES = 2", "[retries]\nmax = 2\n");
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 0);
    assert_eq!(bench.begins().len(), 3, "once, and two retries, on one machine");
    assert_eq!(bench.receipt()["attempts"].as_array().unwrap().len(), 1);

    let bench = Bench::new();
    bench.trainer("STEPS = 2, FAIL_TIMES = 9", "[retries]\nmax = 1\n");
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 1);
    assert_eq!(bench.begins().len(), 2);
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "failed");
    assert_eq!(bench.events_of(1, "workload_ended").len(), 2);
}

#[test]
fn ctrl_c_detaches_and_the_job_goes_on_to_its_receipt() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    let mut lamp = Running::start(
        bench
            .lamp(&["run", "job.toml"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(bench.file("said")).unwrap()),
    );
    bench.trains(1, 1.0);
    kill(lamp.pid(), "INT");
    assert_eq!(lamp.wait().code(), Some(130));
    let said = std::fs::read_to_string(bench.file("said")).unwrap();
    assert!(said.contains("lamp logs -f toy-") && said.contains("lamp stop toy-"), "{said}");
    assert!(bench.record("receipt.json").is_none(), "it goes on");
    bench.go();
    let receipt = bench.receipt();
    assert_eq!(receipt["outcome"], "succeeded");
    assert_eq!(bench.begins().len(), 1);
    adds_up(&receipt);
    wait_until("its driver ends", || bench.processes().is_empty().then_some(()));
}

/// In a terminal of its own (util-linux's `script` makes one): a line under the log that is drawn
/// again and again, and Ctrl-C as the terminal sends it.
#[test]
fn terminal_has_a_live_line_and_ctrl_c_says_how_to_come_back() {
    let bench = Bench::new();
    bench.trainer("", SAVES);
    let lamp = format!("stty cols 100 rows 30; exec {} run job.toml", env!("CARGO_BIN_EXE_lamp"));
    let mut script = bench.command("script");
    script.env("LAMP_JOB_ROOT", bench.root()).env("TERM", "xterm").args([
        "-qfec",
        &lamp,
        "typescript",
    ]);
    let Ok(mut terminal) =
        script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    else {
        return skipped("script", "there is no `script` that makes a terminal");
    };
    let shown = || {
        std::fs::read(bench.file("typescript"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    };
    wait_until("a live line with its progress", || {
        let line = |line: &&str| {
            line.contains("  running ")
                && line.contains("  step ")
                && line.contains(", and no limit is set")
        };
        shown().split('\r').find(line).map(|line| {
            assert!(line.trim_start_matches("\u{1b}[2K").chars().count() <= 100, "{line}")
        })
    });
    let mut keys = terminal.stdin.take().expect("it is piped");
    keys.write_all(b"\x03").expect("the terminal takes a key");
    wait_until("the terminal's program ends", || terminal.try_wait().expect("it is our child"));
    let shown = shown();
    assert!(
        shown.contains("detached; job toy-")
            && shown.contains("lamp logs -f toy-")
            && shown.contains("lamp stop toy-"),
        "{shown}"
    );
    assert!(bench.record("receipt.json").is_none(), "it goes on");
    bench.go();
    assert_eq!(bench.receipt()["outcome"], "succeeded");
    wait_until("its driver ends", || bench.processes().is_empty().then_some(()));
}
