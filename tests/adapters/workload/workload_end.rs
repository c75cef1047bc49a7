//! How a workload begins and ends, and that each end is told apart.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lamplighter::job::ExitStatus;
use lamplighter::ports::{Signal, WorkloadError, Workloads};

use crate::workload::workload::{Bench, soon, until};
use lamp_test_support::skipped;

fn code(code: i32) -> ExitStatus {
    ExitStatus { code: Some(code), ..ExitStatus::default() }
}

#[tokio::test]
async fn exit_code_is_the_workloads_own() {
    for wanted in [0, 3, 255] {
        let bench = Bench::of_script(&format!("exit {wanted}"));
        let workload = bench.start().await;
        let ended = soon("it ends", workload.ended()).await;
        assert_eq!((ended.exit, ended.orphans), (code(wanted), 0));
        assert_eq!(soon("again", workload.ended()).await, ended, "asking twice is fine");
    }
}

#[tokio::test]
async fn signal_is_no_exit_code() {
    let bench = Bench::of_script("kill -SEGV $$");
    let ended = soon("it ends", bench.start().await.ended()).await;
    assert_eq!(ended.exit, ExitStatus { code: None, signal: Some(11), oom: false });
}

#[tokio::test]
async fn command_that_is_not_there_is_told_apart() {
    let bench = Bench::of(&["no-such-program", "x"]);
    let refused = bench.workloads().start(&bench.launch).await.err().expect("nothing to execute");
    assert!(
        matches!(&refused, WorkloadError::CannotExecute { program, cause } if program == "no-such-program" && cause.kind() == std::io::ErrorKind::NotFound),
        "{refused:?}"
    );
    let attached = bench
        .workloads()
        .attach(bench.dir())
        .await
        .err()
        .expect("an agent that restarts hears the same");
    assert!(matches!(attached, WorkloadError::CannotExecute { .. }), "{attached:?}");

    let bench = Bench::of(&["/etc/passwd"]);
    let refused = bench.workloads().start(&bench.launch).await.err().expect("not executable");
    assert!(
        matches!(&refused, WorkloadError::CannotExecute { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied),
        "{refused:?}"
    );

    let bench = Bench::of(&[]);
    let refused = bench.workloads().start(&bench.launch).await.err().expect("nothing at all");
    assert!(matches!(refused, WorkloadError::CannotExecute { .. }), "{refused:?}");
}

#[tokio::test]
async fn missing_working_directory_is_not_a_missing_command() {
    let mut bench = Bench::of_script("true");
    bench.launch.cwd = bench.folder.path().join("nowhere");
    let refused = bench.workloads().start(&bench.launch).await.err().expect("no such folder");
    let WorkloadError::NotStarted { cause } = refused else { panic!("{refused:?}") };
    assert!(cause.to_string().contains("nowhere"), "{cause}");
}

#[tokio::test]
async fn workload_gets_the_agents_and_its_own_environment_and_a_mark() {
    let mut bench = Bench::of(&["env"]);
    bench.launch.env.insert("GREETING".into(), "hello world".into());
    soon("it ends", bench.start().await.ended()).await;
    let output = String::from_utf8(bench.output()).expect("text");
    let has = |line: &str| output.lines().any(|found| found == line);
    assert!(has("GREETING=hello world"), "{output}");
    assert!(output.contains(&format!("LAMP_WORKLOAD={}", bench.dir().display())), "{output}");
    assert!(
        has(concat!("CARGO_MANIFEST_DIR=", env!("CARGO_MANIFEST_DIR"))),
        "the agent's own: {output}"
    );
    // What a service manager told the agent about the agent is not the workload's.
    for manager in ["NOTIFY_SOCKET=", "WATCHDOG_USEC=", "INVOCATION_ID=", "JOURNAL_STREAM="] {
        assert!(!output.lines().any(|line| line.starts_with(manager)), "{output}");
    }
}

#[tokio::test]
async fn it_gets_a_signal_in_its_own_group_and_session() {
    let bench = Bench::of_script(
        "trap 'echo saved > saved; exit 9' USR1; touch ready; while :; do sleep 0.01; done",
    );
    let workload = bench.start().await;
    bench.until_file("ready").await;
    workload.signal(Signal::Usr1).expect("it may");
    assert_eq!(soon("it ends", workload.ended()).await.exit, code(9));
    assert_eq!(fs::read_to_string(bench.file("saved")).expect("written"), "saved\n");
    workload.signal(Signal::Term).expect("a workload that is gone is success");
}

#[tokio::test]
async fn workload_that_ignores_sigterm_dies_of_sigkill_and_not_of_oom() {
    let bench = Bench::of_script("trap '' TERM; touch ready; while :; do sleep 0.01; done");
    let workload = bench.start().await;
    bench.until_file("ready").await;
    workload.signal(Signal::Term).expect("it may");
    workload.signal(Signal::Kill).expect("it may");
    let ended = soon("it ends", workload.ended()).await;
    assert_eq!(ended.exit, ExitStatus { code: None, signal: Some(9), oom: false });
}

#[tokio::test]
async fn nothing_was_started_where_nothing_was_asked_for() {
    let bench = Bench::of_script("true");
    assert!(bench.workloads().attach(bench.dir()).await.expect("readable").is_none());
}

#[tokio::test]
async fn state_folder_has_one_start() {
    let bench = Bench::of_script("echo once");
    soon("it ends", bench.start().await.ended()).await;
    assert!(bench.workloads().start(&bench.launch).await.is_err());
    assert_eq!(bench.output(), b"once\n");
    let mode = fs::metadata(bench.dir()).expect("there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "the environment in it may hold secrets");
}

/// needrestart restarts the unit of a workload: its holder is run again, in the same state folder.
#[tokio::test]
async fn holder_that_is_run_again_starts_nothing() {
    let bench = Bench::of_script("echo once; exit 3");
    soon("it ends", bench.start().await.ended()).await;
    until("the first holder is gone", || !bench.holder().alive()).await;
    let again = std::process::Command::new(&bench.program.exe)
        .args(bench.program.arguments(bench.dir()))
        .output()
        .expect("it runs");
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("had its start"),
        "{again:?}"
    );
    assert_eq!(bench.output(), b"once\n");
    assert_eq!(bench.attach().await.ended().await.exit, code(3), "the record stays");
}

/// `systemctl stop` sends SIGTERM to the whole unit, the holder with it.
#[tokio::test]
async fn end_that_the_service_manager_asked_for_says_so() {
    for (script, with_a_record) in [
        ("trap 'exit 0' TERM; touch ready; while :; do sleep 0.01; done", true),
        ("touch ready; exec sleep 1000", false),
    ] {
        let bench = Bench::of_script(script);
        let workload = bench.start().await;
        bench.until_file("ready").await;
        bench.holder().signal(rustix::process::Signal::TERM).expect("it may");
        until("the holder has noted it", || bench.dir().join("told").exists()).await;
        if with_a_record {
            workload.signal(Signal::Term).expect("it may");
        } else {
            // A unit that does not end in its time is killed with its holder.
            bench.holder().signal(rustix::process::Signal::KILL).expect("it may");
        }
        let ended = soon("it ends", workload.ended()).await;
        assert!(ended.told, "{ended:?}");
        assert_eq!(ended.exit.success(), with_a_record);
    }
    let bench = Bench::of_script("exit 0");
    assert!(!soon("it ends", bench.start().await.ended()).await.told);
}

/// skypilot#3803
#[tokio::test]
async fn what_outlives_a_command_for_a_moment_only_is_not_left_behind() {
    let bench = Bench::of_script("(sleep 0.1) & exit 0");
    assert_eq!(soon("it ends", bench.start().await.ended()).await.orphans, 0);
    for (script, behind) in [("sleep 1000 & exit 0", 1), ("setsid sleep 1000 & exit 0", 0)] {
        let bench = Bench::of_script(script);
        let ended = soon("it ends", bench.start().await.ended()).await;
        assert_eq!((ended.orphans, ended.behind), (1, behind), "{script}");
    }
}

/// `docker exec` and `kubectl exec` start a program in a PID namespace that its session does not
/// belong to.
#[tokio::test]
async fn end_is_recorded_where_the_session_has_no_number() {
    let bench = Bench::of_script("sleep 1000 & setsid sleep 1000 & exit 0");
    fs::create_dir_all(bench.dir()).expect("a folder");
    fs::write(bench.dir().join("launch.json"), serde_json::to_vec(&bench.launch).expect("json"))
        .expect("written");
    // With `-m` bash makes the holder the leader of a group, which cannot leave its session.
    let program = bench.program.exe.display();
    let script = format!("set -m; {program} holder {} & wait", bench.dir().display());
    let mut namespace = std::process::Command::new("unshare");
    namespace
        .args(["--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", &script])
        .stdout(std::process::Stdio::null());
    let mut namespace = namespace.spawn().expect("unshare is part of every system");
    let mut ended = None;
    until("the end is on record, or no namespace can be made", || {
        ended = namespace.try_wait().expect("it was started here");
        bench.has_exit_record() || ended.is_some()
    })
    .await;
    if ended.is_some_and(|status| !status.success()) && !bench.dir().join("started.json").exists() {
        return skipped("root", "only root can make a PID namespace");
    }
    namespace.kill().expect("it is ours");
    namespace.wait().expect("it is dead");
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.dir().join("exit.json")).expect("an end"))
            .expect("json");
    let end = &record["end"]["ended"];
    assert_eq!(
        (&end["exit"]["code"], &end["orphans"], &end["behind"]),
        (&0.into(), &2.into(), &1.into()),
        "{record}"
    );
}

#[tokio::test]
async fn kept_environment_is_what_the_command_inherits() {
    let mut bench = Bench::of(&["env"]);
    let file = bench.folder.path().join("environment");
    fs::write(&file, "KEPT=as it was\0LOCAL_RANK=3\0SLURM_PROCID=1\0").expect("written");
    bench.program.environment = Some(file);
    bench.launch.env.insert("RANK".into(), "7".into());
    soon("it ends", bench.start().await.ended()).await;
    let output = String::from_utf8(bench.output()).expect("text");
    let has = |line: &str| output.lines().any(|found| found == line);
    assert!(has("KEPT=as it was") && has("RANK=7"), "{output}");
    assert!(!output.contains("CARGO_MANIFEST_DIR"), "nothing of whoever drives the job: {output}");
    assert!(
        !output.contains("LOCAL_RANK") && !output.contains("SLURM_"),
        "no launcher started it: {output}"
    );
}
