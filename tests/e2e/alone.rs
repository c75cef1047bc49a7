//! `lamp-agent run` and `watch`, as on a machine that somebody rented by hand.

use std::process::Stdio;

use crate::bench::{Bench, Finish as _, Running, alive, kill, wait_until};
use lamp_test_support::fake_nvml::{BUSY, FakeNvml, MISMATCH};

/// Works for a moment, then does nothing for long.
const WORKS_THEN_SLEEPS: &str =
    "echo $$ > pid; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exec sleep 300";

fn pid_of(bench: &Bench, file: &str) -> u32 {
    wait_until("the workload wrote its pid", || {
        std::fs::read_to_string(bench.file(file)).ok()?.trim().parse().ok()
    })
}

#[test]
fn output_and_exit_code_are_the_commands_own() {
    let bench = Bench::new();
    let out = bench
        .agent()
        .args(["run", "--", "sh", "-c", "echo to stdout; echo to stderr >&2; exit 7"])
        .finish();
    assert_eq!(out.status.code(), Some(7));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("to stdout") && said.contains("to stderr"), "{said}");
    let outcome = bench.json("state", "outcome.json");
    assert_eq!(outcome["because"], "failed");
    assert_eq!(outcome["exit"]["code"], 7);
}

/// What `lamp` says of the runs of the agent alone.
fn asked(bench: &Bench, words: &[&str]) -> (i32, String, String) {
    let mut lamp = bench.command(env!("CARGO_BIN_EXE_lamp"));
    let out = lamp.env("LAMP_JOB_ROOT", bench.file("state/lamplighter/agent")).args(words).finish();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().expect("it ended by itself"), text(&out.stdout), text(&out.stderr))
}

#[test]
fn lamp_tells_the_story_of_a_run_of_the_agent_alone() {
    let bench = Bench::new();
    let script =
        "echo $$ > pid; echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over; exit 3";
    let mut run = Running::start(
        bench
            .agent()
            .args(["run", "--", "sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    pid_of(&bench, "pid");
    let state = |expected: &str| {
        wait_until(&format!("`lamp status` says {expected}"), || {
            let status: serde_json::Value =
                serde_json::from_str(&asked(&bench, &["status", "-o", "json"]).1).ok()?;
            let job = status["jobs"].get(0)?.clone();
            (job["state"] == expected).then_some(job)
        })
    };
    let job = state("running");
    assert_eq!(job["alone"], true);
    let id = job["job"].as_str().expect("an id");
    let (code, _, err) = asked(&bench, &["receipt"]);
    assert!(code == 101 && err.contains("its agent has not written how it ended"), "{err}");
    // Nobody drives it: a wish, or a controller that takes it for its own, would start it a second
    // time.
    let (code, _, err) = asked(&bench, &["stop"]);
    assert!(code == 102 && err.contains("a run of the agent alone"), "{err}");
    assert_eq!(
        asked(&bench, &["daemon", "--until-done", "--job", id]).0,
        0,
        "for a controller there is nothing to do"
    );
    bench.write("go", "");
    assert_eq!(asked(&bench, &["logs", "-f"]).1, "begun\nover\n");
    assert_eq!(run.wait().code(), Some(3));

    let (code, _, err) = asked(&bench, &["start"]);
    assert!(
        code == 102
            && err.contains("was a run of the agent alone, and has ended")
            && err.contains("`lamp logs "),
        "{err}"
    );

    let job = state("failed");
    assert_eq!(
        (&job["exit_code"], &job["verdict"], &job["usd_per_hour"]),
        (&3.into(), &serde_json::Value::Null, &serde_json::Value::Null)
    );
    let (code, text, _) = asked(&bench, &["receipt"]);
    assert!(
        code == 0
            && text.contains(": failed\n  the workload ended with exit code 3\n")
            && text.contains("nobody told it what this one costs"),
        "{text}"
    );
    let receipt: serde_json::Value =
        serde_json::from_str(&asked(&bench, &["receipt", "-o", "json"]).1).expect("a document");
    assert_eq!(
        (&receipt["outcome"], &receipt["exit_code"], &receipt["because"]),
        (&"failed".into(), &3.into(), &"failed".into())
    );
    assert_eq!(
        (&receipt["total_usd"], &receipt["attempts"][0]["market"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(bench.find("state", "plan.json").len(), 0, "nobody planned a machine for it");
}

#[test]
fn command_for_the_end_that_fails_is_called_so() {
    let bench = Bench::new();
    let out = bench.agent().args(["run", "--then", "exit 4", "--", "true"]).finish();
    assert_eq!(out.status.code(), Some(0), "the exit code is the workload's own");
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        err.contains("the command of `--then` failed: `exit 4` ended with exit code 4")
            && !err.contains("power off"),
        "{err}"
    );
    assert!(
        err.contains(
            "the machine is still on, and a rented one still bills: `sudo poweroff` puts it out"
        ),
        "{err}"
    );
}

#[test]
fn typing_error_in_the_then_command_is_found_before_the_start() {
    let bench = Bench::new();
    for (verb, then, said) in [
        ("run", "powerof", "did you mean `--then poweroff`?"),
        ("watch", "power-off", "did you mean `--then poweroff`?"),
        ("run", "./upload.sh --all", "there is no program `./upload.sh`"),
        ("run", "echo 'x", "the shell does not understand"),
    ] {
        let command: &[&str] = if verb == "run" { &["--", "sh", "-c", "touch ran"] } else { &[] };
        let out = bench.agent().args([verb, "--then", then]).args(command).finish();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains(said) && err.contains("nothing was started"), "{err}");
    }
    assert!(
        !bench.file("ran").exists() && bench.find("state", "spec.json").is_empty(),
        "not even a record"
    );
}

#[test]
fn name_that_is_alive_is_not_started_a_second_time() {
    let bench = Bench::new();
    let script = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let command = ["run", "--name", "night", "--", "sh", "-c", script];
    let mut first =
        Running::start(bench.agent().args(command).stdout(Stdio::null()).stderr(Stdio::null()));
    pid_of(&bench, "pids");
    for more in [&command[..], &["run", "--name", "night", "--", "touch", "ran"]] {
        let out = bench.agent().args(more).finish();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(102), "{err}");
        assert!(
            err.contains(&format!(
                "a run named `night` is alive: process {} watches it as `night-",
                first.pid()
            )),
            "{err}"
        );
        assert!(err.contains("logs -f night-") && err.contains("another --name"), "{err}");
    }
    assert!(!bench.file("ran").exists());
    let other = bench.agent().args(["run", "--name", "day", "--", "true"]).finish();
    assert_eq!(other.status.code(), Some(0), "another name is another run");

    // The agent's death frees the name, and the same words watch the same run again.
    kill(first.pid(), "KILL");
    first.wait();
    let mut second =
        Running::start(bench.agent().args(command).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the second agent has taken it up", || {
        let events = bench
            .find("state", "events.jsonl")
            .into_iter()
            .find(|path| path.to_string_lossy().contains("night-"))?;
        std::fs::read_to_string(events).ok()?.contains("\"reattached\":true").then_some(())
    });
    bench.write("go", "");
    assert_eq!(second.wait().code(), Some(5));
    assert_eq!(
        std::fs::read_to_string(bench.file("pids")).unwrap().lines().count(),
        1,
        "started once"
    );
    let again = bench.agent().args(["run", "--name", "night", "--", "true"]).finish();
    assert_eq!(again.status.code(), Some(0), "after the end the name is free");
}

#[test]
fn watch_that_ends_runs_its_command_once_with_the_reason() {
    let bench = Bench::new();
    // Nothing of this machine may count as work: its quiet is what the thresholds say, and others
    // use it too.
    let args = [
        "watch",
        "--idle",
        "2s",
        "--idle-grace",
        "0s",
        "--max-runtime",
        "20s",
        "--then",
        "echo \"$LAMP_REASON\" >> after",
    ];
    let out = bench.agent().args(args).finish();
    assert_eq!(out.status.code(), Some(124), "{}", String::from_utf8_lossy(&out.stderr));
    let after = std::fs::read_to_string(bench.file("after")).expect("the command of --then ran");
    assert_eq!(after.lines().count(), 1, "{after}");
    let outcome = bench.json("state", "outcome.json");
    let because = outcome["because"].as_str().expect("a word");
    // A machine that others load is not idle (`tests/agent/startup/alone.rs` has a quiet one); then the
    // longest run ends it. In both cases the reason is the outcome's own.
    assert!(["idle", "max_runtime"].contains(&because), "{outcome}");
    let reasons = outcome["reasons"].as_array().expect("a chain");
    assert_eq!(
        Some(after.trim()),
        reasons.last().and_then(|reason| reason["text"].as_str()),
        "{outcome}"
    );
    assert!(!after.contains('.') || because == "idle", "no fractions of a second: {after}");
}

#[test]
fn command_for_the_end_of_a_watch_that_fails_is_called_so() {
    let bench = Bench::new();
    let out = bench
        .agent()
        .args(["watch", "--idle", "off", "--max-runtime", "2s", "--then", "exit 4"])
        .finish();
    assert_eq!(out.status.code(), Some(124));
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        err.contains("`exit 4` ended with exit code 4") && err.contains("the machine is still on"),
        "{err}"
    );
}

#[test]
fn command_that_a_signal_ended_is_told_by_its_name() {
    let bench = Bench::new();
    let out = bench.agent().args(["run", "--", "sh", "-c", "kill -SEGV $$"]).finish();
    assert_eq!(out.status.code(), Some(128 + 11), "{}", String::from_utf8_lossy(&out.stderr));
    let (code, text, _) = asked(&bench, &["receipt"]);
    assert!(
        code == 0 && text.contains("the workload was killed by SIGSEGV (a crash in native code)"),
        "{text}"
    );
    let (_, text, _) = asked(&bench, &["explain"]);
    assert!(
        text.contains("SIGSEGV") && !text.contains("Client.") && !text.contains("failed/failed"),
        "{text}"
    );
}

#[test]
fn idle_run_ends_with_its_reason_and_its_then_command_runs() {
    let bench = Bench::new();
    let out = bench
        .agent()
        .args([
            "run",
            "--idle",
            "1s",
            "--idle-grace",
            "1s",
            "--then",
            "echo \"$LAMP_REASON\" > after",
            "--",
            "sh",
            "-c",
            WORKS_THEN_SLEEPS,
        ])
        .finish();
    assert_eq!(out.status.code(), Some(124), "{}", String::from_utf8_lossy(&out.stderr));
    let after = std::fs::read_to_string(bench.file("after")).expect("the command of --then ran");
    assert!(after.starts_with("idle: nothing for"), "{after}");
    let outcome = bench.json("state", "outcome.json");
    assert_eq!(outcome["because"], "idle");
    let reason = &outcome["reasons"][0];
    assert_eq!(reason["policy"], "idle");
    assert!(reason["numbers"]["quiet_secs"].as_f64().unwrap() >= 1.0, "{reason}");
    assert!(!alive(pid_of(&bench, "pid")), "the workload is gone");
}

#[test]
fn workload_that_ignores_sigterm_and_forks_away_is_killed() {
    let bench = Bench::new();
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > away; sleep 300 & wait; sleep 300' & \
                  while [ ! -s away ]; do sleep 0.05; done; echo $$ > pid; while :; do sleep 1; done";
    let out = bench
        .agent()
        .args(["run", "--max-runtime", "10s", "--grace", "1s", "--", "sh", "-c", script])
        .finish();
    assert_eq!(out.status.code(), Some(124));
    assert_eq!(bench.json("state", "outcome.json")["because"], "max_runtime");
    for file in ["pid", "away"] {
        assert!(!alive(pid_of(&bench, file)), "{file} is gone");
    }
}

#[test]
fn hung_run_is_restarted_and_then_ended_as_stalled() {
    let bench = Bench::new();
    // Prints, so that there was progress, and then spins without a word.
    let script = "echo start >> starts; for i in $(seq 18); do echo line $i; sleep 0.4; done; while :; do :; done";
    let out = bench
        .agent()
        .args(["run", "--stall", "2s", "--grace", "1s", "--", "sh", "-c", script])
        .finish();
    assert_eq!(out.status.code(), Some(124), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(bench.json("state", "outcome.json")["because"], "stalled");
    let starts = std::fs::read_to_string(bench.file("starts")).unwrap();
    assert_eq!(starts.lines().count(), 3, "once, and two restarts");
    assert!(
        !bench.find("state", "stacks/0001.txt").is_empty(),
        "what it waited for was written down"
    );
}

#[test]
fn workload_survives_its_agent_and_the_next_agent_watches_it() {
    let bench = Bench::new();
    let command = [
        "run",
        "--",
        "sh",
        "-c",
        "echo $$ > pid; echo begun >> log; while [ ! -e go ]; do sleep 0.05; done; echo done >> log; exit 5",
    ];
    let first =
        Running::start(bench.agent().args(command).stdout(Stdio::null()).stderr(Stdio::null()));
    let workload = pid_of(&bench, "pid");
    kill(first.pid(), "KILL");
    wait_until("the agent is dead", || (!alive(first.pid())).then_some(()));
    assert!(alive(workload), "the workload does not notice");

    let mut second =
        Running::start(bench.agent().args(command).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the second agent has taken it up", || {
        let events = bench.find("state", "events.jsonl");
        std::fs::read_to_string(events.first()?).ok()?.contains("\"reattached\":true").then_some(())
    });
    bench.write("go", "");
    assert_eq!(second.wait().code(), Some(5), "the exit code of a workload that it did not start");
    assert_eq!(
        std::fs::read_to_string(bench.file("log")).unwrap(),
        "begun\ndone\n",
        "started once"
    );
}

#[test]
fn next_run_removes_ended_and_killed_runs_but_no_live_one() {
    let bench = Bench::new();
    let runs = || {
        std::fs::read_dir(bench.file("state/lamplighter/agent/runs"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    assert_eq!(bench.agent().args(["run", "--", "true"]).finish().status.code(), Some(0));
    let ended = runs();
    let mut agent = Running::start(
        bench
            .agent()
            .args(["run", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"])
            .stderr(Stdio::null()),
    );
    let pid = pid_of(&bench, "pid");
    kill(agent.pid(), "KILL");
    agent.wait();
    let killed = runs();
    assert!(ended.len() == 1 && killed.len() == 1 && ended != killed, "{ended:?} {killed:?}");
    let old = |folder: &std::path::Path| {
        let file = std::fs::File::options()
            .write(true)
            .open(folder.join("heartbeat.json"))
            .expect("it is there");
        file.set_modified(
            std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 86_400),
        )
        .expect("set");
    };
    old(&killed[0]);
    assert_eq!(bench.agent().args(["run", "--", "echo", "1"]).finish().status.code(), Some(0));
    assert!(killed[0].exists(), "its work runs");
    kill(pid, "KILL");
    wait_until("it is gone", || (!alive(pid)).then_some(()));
    assert_eq!(bench.agent().args(["run", "--", "echo", "2"]).finish().status.code(), Some(0));
    assert!(!killed[0].exists() && runs().len() == 1, "{:?}", runs());
}

#[test]
fn ctrl_c_ends_the_workload_politely() {
    let bench = Bench::new();
    let script =
        "trap 'echo saved > saved; exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let mut agent = Running::start(
        bench
            .agent()
            .args(["run", "--", "sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let workload = pid_of(&bench, "pid");
    kill(agent.pid(), "INT");
    agent.wait();
    assert!(bench.file("saved").exists(), "it got SIGTERM and had its say");
    assert!(!alive(workload));
    assert_eq!(bench.json("state", "outcome.json")["because"], "user_stopped");
}

#[test]
fn sigterm_after_the_end_is_the_shutdown_and_is_not_held_up() {
    let bench = Bench::new();
    let then = "echo $$ > then; exec sleep 300";
    let mut agent = Running::start(
        bench
            .agent()
            .args(["run", "--then", then, "--", "sh", "-c", "exit 5"])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let then = pid_of(&bench, "then");
    kill(agent.pid(), "TERM");
    assert_eq!(agent.wait().code(), Some(5));
    // On a real machine the shutdown ends it; here nobody does.
    kill(then, "KILL");
}

#[test]
fn lost_sensor_is_unknown_and_unknown_is_never_idle() {
    let bench = Bench::new();
    let gpu = FakeNvml::in_dir(bench.path());
    gpu.play(MISMATCH);
    let out = bench
        .agent()
        .env("LAMP_NVML_LIBRARY", gpu.library())
        .args(["run", "--idle", "1s", "--idle-grace", "0s", "--", "sh", "-c", "sleep 8; exit 3"])
        .finish();
    assert_eq!(
        out.status.code(),
        Some(3),
        "it ended by itself: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn busy_gpu_keeps_a_silent_command() {
    let bench = Bench::new();
    let gpu = FakeNvml::in_dir(bench.path());
    gpu.play(BUSY);
    let out = bench
        .agent()
        .env("LAMP_NVML_LIBRARY", gpu.library())
        .args([
            "run",
            "--idle",
            "1s",
            "--idle-grace",
            "0s",
            "--gpus",
            "all",
            "--",
            "sh",
            "-c",
            "sleep 8; exit 4",
        ])
        .finish();
    assert_eq!(out.status.code(), Some(4), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_command_that_is_not_there_is_said_as_a_shell_would() {
    let bench = Bench::new();
    let out = bench.agent().args(["run", "--", "no-such-program-here"]).finish();
    assert_eq!(out.status.code(), Some(127));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("no-such-program-here"), "{said}");
}

#[test]
fn dry_run_says_what_would_be_done_and_does_nothing() {
    let bench = Bench::new();
    let out = bench
        .agent()
        .args([
            "run",
            "--dry-run",
            "--idle",
            "15m",
            "--then",
            "poweroff",
            "--",
            "sh",
            "-c",
            "touch ran",
        ])
        .finish();
    assert!(out.status.success());
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("systemctl poweroff") && said.contains("15m"), "{said}");
    assert!(!bench.file("ran").exists());
    assert!(bench.find("state", "").is_empty(), "not even a record");
}

#[test]
fn nothing_is_left_running() {
    let bench = Bench::new();
    let status = bench
        .agent()
        .args(["run", "--", "sh", "-c", "sleep 300 & setsid sleep 300 & exit 0"])
        .finish();
    assert_eq!(status.status.code(), Some(0));
    wait_until("every process of the run is gone", || bench.processes().is_empty().then_some(()));
}

#[test]
fn who_names_gpus_is_never_judged_without_them() {
    let bench = Bench::new();
    let out = bench
        .agent()
        .env("LAMP_NVML_LIBRARY", bench.file("no-such-library.so"))
        .args([
            "run",
            "--gpus",
            "0",
            "--idle",
            "1s",
            "--idle-grace",
            "0s",
            "--",
            "sh",
            "-c",
            "sleep 8; exit 3",
        ])
        .finish();
    assert_eq!(
        out.status.code(),
        Some(3),
        "it ended by itself: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn watch_that_is_stopped_by_hand_does_nothing_to_the_machine() {
    let bench = Bench::new();
    let mut agent = Running::start(
        bench
            .agent()
            .args(["watch", "--idle", "30m", "--then", "touch then"])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    wait_until("it watches", || (!bench.find("state", "status.json").is_empty()).then_some(()));
    kill(agent.pid(), "TERM");
    agent.wait();
    assert!(
        !bench.file("then").exists(),
        "who stops it has taken the machine into their own hands"
    );
}

#[test]
fn terminal_that_is_closed_ends_nothing() {
    let bench = Bench::new();
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; exit 6";
    let mut agent = Running::start(
        bench
            .agent()
            .args(["run", "--then", "touch then", "--", "sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let workload = pid_of(&bench, "pid");
    kill(agent.pid(), "HUP");
    std::fs::write(bench.file("go"), "").unwrap();
    assert_eq!(agent.wait().code(), Some(6), "the agent lived on and saw the end");
    assert!(!alive(workload));
    assert!(bench.file("then").exists(), "and did what comes after it");
}

#[test]
fn restart_that_the_agent_did_not_survive_is_not_a_success() {
    let bench = Bench::new();
    // Hangs after its first steps, and answers SIGTERM slowly with exit code 0.
    let script = "trap 'echo t >> terms; sleep 3; exit 0' TERM; echo $$ > pid; echo s >> starts; for i in 1 2 3 4 5 6 7 8 9; do echo step $i; sleep 1; done; while :; do :; done";
    let command = [
        "run",
        "--stall",
        "2s",
        "--grace",
        "10s",
        "--max-runtime",
        "50s",
        "--",
        "sh",
        "-c",
        script,
    ];
    let first =
        Running::start(bench.agent().args(command).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the restart has begun", || bench.file("terms").exists().then_some(()));
    kill(first.pid(), "KILL");
    let mut second =
        Running::start(bench.agent().args(command).stdout(Stdio::null()).stderr(Stdio::null()));
    let code = second.wait().code();
    let outcome = bench.json("state", "outcome.json");
    assert_ne!(outcome["because"], "succeeded", "{outcome}");
    assert_eq!(code, Some(124));
    assert!(
        std::fs::read_to_string(bench.file("starts")).unwrap().lines().count() >= 2,
        "it was started again"
    );
}
