//! Several machines as one job, through the real binary: ranks that meet at the address that they
//! are given.

#![expect(clippy::disallowed_methods, reason = "a test waits for conditions and starts programs")]

use std::path::Path;
use std::time::{Duration, Instant};

use lamp_test_support::skipped;
use serde_json::Value;

use crate::place::{Place, end, pids, signal, wait_until};
use crate::sandbox::PATIENCE;

/// Ranks that meet at MASTER_ADDR with the standard library alone, and count steps together.
const RANKS: &str = include_str!("../ranks.py");

fn place(steps: u32, gang: &str, more: &str) -> Place {
    let place = Place::new("");
    place.0.write("ranks.py", RANKS);
    place.0.write(
        "lamp.toml",
        format!(
            "name = \"g\"\ncommand = [\"python3\", \"ranks.py\", \"{steps}\"]\n{more}\n{gang}\n\
             [checkpoint]\npath = \"ckpt\"\nsignal = \"SIGUSR1\"\ninterval = \"1s\"\n"
        ),
    );
    place
}

/// The id of the newest gang.
fn leader_id(place: &Place) -> String {
    let (_, listed) = place.0.json(&["status", "-o", "json"]);
    listed["jobs"][0]["job"].as_str().expect("a job").to_owned()
}

fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("its bits");
}

fn wait_for_step(place: &Place, step: f64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (_, listed) = place.0.json(&["status", "-o", "json"]);
        if listed["jobs"][0]["progress"]["step"].as_f64().is_some_and(|at| at >= step) {
            return;
        }
        assert!(Instant::now() < end, "never at step {step}: {listed:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn epochs(place: &Place, file: &str) -> Vec<Value> {
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let leader = std::fs::read_dir(&jobs)
        .expect("jobs")
        .flatten()
        .map(|entry| entry.path().join("gang"))
        .find(|gang| gang.is_dir())
        .expect("rank 0 has the epochs");
    let mut folders: Vec<_> = std::fs::read_dir(leader).expect("epochs").flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    let read = |folder: &Path| std::fs::read(folder.join(file)).ok();
    let records = folders.iter().filter_map(|folder| read(&folder.path()));
    records.map(|bytes| serde_json::from_slice(&bytes).expect("a record")).collect()
}

#[test]
fn ranks_meet_work_and_end_together() {
    let place = place(5, "[gang]\nengine = \"env\"", "nodes = 3");
    let (code, out, err) = end(place.start(&["run"]));
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("rank 0 finished at step 5"), "{out}");
    for rank in ["rank 0: succeeded", "rank 1: succeeded", "rank 2: succeeded"] {
        assert!(err.contains(rank), "{err}");
    }
    let logs = place.0.lamp(&["logs", "--rank", "2", "g"]);
    assert!(logs.out.contains("rank 2 finished at step 5"), "{}", logs.out);
    let all = place.0.lamp(&["logs", "g"]);
    for line in ["[0] rank 0 finished at step 5", "[2] rank 2 finished at step 5"] {
        assert!(all.out.lines().any(|printed| printed == line), "{line}: {}", all.out);
    }
    assert!(all.out.lines().all(|line| line.starts_with('[')), "{}", all.out);
    let last = place.0.lamp(&["logs", "-f", "--tail", "1", "g"]);
    assert_eq!(last.out.lines().count(), 3, "{}", last.out);
    let (_, document) = place.0.json(&["logs", "g", "-o", "json"]);
    let ranks: std::collections::BTreeSet<Option<u64>> = document["pieces"]
        .as_array()
        .expect("pieces")
        .iter()
        .map(|piece| piece["rank"].as_u64())
        .collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(2)].into(), "{document:#}");
    let wrong = place.0.lamp(&["logs", "--rank", "3", "g"]);
    assert!(wrong.err.contains("has no rank 3"), "{}", wrong.err);
    let formations = epochs(&place, "formation.json");
    assert_eq!(formations.len(), 1, "{formations:?}");
    let members = formations[0]["members"].as_array().expect("members");
    let ports: std::collections::BTreeSet<u64> =
        members.iter().filter_map(|member| member["port"].as_u64()).collect();
    assert_eq!(ports.len(), 3, "each rank has a port of its own: {members:?}");
    place.nothing_is_left();
}

/// The first rank that fails ends the epoch on all, and gives its exit code to the job. No port of
/// the failed epoch is used again.
#[test]
fn failed_rank_ends_its_gang_or_is_tried_again() {
    let failing = "[gang]\nengine = \"env\"\n[env]\nFAIL_AT = \"1:3\"";
    let gang = place(6, failing, "nodes = 2");
    let (code, _, err) = end(gang.start(&["run"]));
    assert_eq!(code, 9, "{err}");
    assert!(err.contains("over: rank 1 failed: exit code 9"), "{err}");
    gang.nothing_is_left();
    let gang = place(6, failing, "nodes = 2");
    let (code, _, err) = end(gang.start(&["run", "--retries", "1"]));
    assert_eq!(code, 0, "{err}");
    let ports: Vec<u64> = epochs(&gang, "formation.json")
        .iter()
        .filter_map(|formed| formed["members"][0]["port"].as_u64())
        .collect();
    assert!(ports.len() == 2 && ports[0] != ports[1], "{ports:?}");
    gang.nothing_is_left();
}

#[test]
fn missing_rank_ends_the_gang_with_its_name() {
    let setup = "setup = \"case $LAMP_JOB in *-r1-*) exit 3;; esac\"\nnodes = 2";
    let place = place(6, "[gang]\nengine = \"env\"", setup);
    let (code, _, err) = end(place.start(&["run"]));
    assert_eq!(code, 106, "{err}");
    let text = "rank 1 does not come back: its job has ended: setup failed";
    assert!(err.contains(text), "{err}");
    let (_, receipt) = place.0.json(&["receipt", "g", "-o", "json"]);
    assert!(receipt["gang"]["end"].as_str().is_some_and(|end| end.contains(text)), "{receipt:#}");
    let ranks = receipt["gang"]["ranks"].as_array().expect("ranks");
    let states: Vec<_> = ranks.iter().filter_map(|rank| rank["state"].as_str()).collect();
    assert_eq!(states, ["failed", "setup failed"], "{receipt:#}");
    let failed = place.receipt(&leader_id(&place).replacen("g-", "g-r1-", 1));
    assert_eq!(failed["attempts"][0]["ended_because"], "setup_failed", "{failed:#}");
    place.nothing_is_left();
}

/// Rank 0 waits for the setup of rank 1, and another program takes its port meanwhile.
#[test]
fn taken_port_of_rank_0_is_chosen_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", go.display());
    let setup = format!("setup = \"case $LAMP_JOB in *-r1-*) {wait};; esac\"\nnodes = 2");
    let place = place(5, "[gang]\nengine = \"env\"", &setup);
    let run = place.start(&["run"]);
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let port = wait_until("rank 0 is ready", || {
        let mut jobs = std::fs::read_dir(&jobs).ok()?.flatten();
        let ready =
            jobs.find_map(|job| std::fs::read(job.path().join("gang/0001/member-0.json")).ok())?;
        let ready: Value = serde_json::from_slice(&ready).ok()?;
        u16::try_from(ready["port"].as_u64()?).ok()
    });
    let taken = std::net::TcpListener::bind(("0.0.0.0", port)).expect("it was free");
    std::fs::write(&go, "").expect("the folder is there");
    let (code, out, err) = end(run);
    drop(taken);
    assert_eq!(code, 0, "{}\n{err}", String::from_utf8_lossy(&out));
    let over = epochs(&place, "over.json");
    assert_eq!(over[0]["because"], "unstarted", "{over:#?}");
    let text = format!("another program has its port {port}");
    assert!(over[0]["text"].as_str().is_some_and(|said| said.contains(&text)), "{over:#?}");
    let formed = epochs(&place, "formation.json");
    assert!(formed.len() == 2 && formed[1]["members"][0]["port"] != port, "{formed:#?}");
    place.nothing_is_left();
}

#[test]
fn rehearsal_takes_a_rank_away_and_proves_that_the_gang_goes_on() {
    let place = place(5000, "[gang]\nengine = \"env\"", "nodes = 2");
    let (code, report) = place.0.json(&["rehearse", "--interrupt-after", "2s", "-o", "json"]);
    assert_eq!((code, report["proved"].as_bool()), (0, Some(true)), "{report:#}");
    let names: Vec<&str> = report["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .filter_map(|check| check["name"].as_str())
        .collect();
    assert_eq!(names, ["formed", "saved", "formed_again", "resumed", "went_on"]);
    place.nothing_is_left();
}

/// Rank 0 alone saves, and its machine is the one that is taken.
#[test]
fn rehearsal_takes_the_machine_of_the_named_rank() {
    let place = place(5000, "[gang]\nengine = \"env\"", "nodes = 2");
    let wrong = place.0.lamp(&["rehearse", "--rank", "2"]);
    assert!(wrong.code != 0 && wrong.err.contains("has no rank 2"), "{}", wrong.err);
    let rehearsal = ["rehearse", "--rank", "0", "--interrupt-after", "2s"];
    let (code, _, err) = end(place.start(&rehearsal));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("the machine of rank 0 is cut"), "{err}");
    place.nothing_is_left();
}

#[test]
fn wrong_number_of_machines_is_refused_in_words() {
    let cases = [
        ("nodes = \"4..2\"", "", "is not a number of machines"),
        ("nodes = 2", "[gang.worker]\ncount = 2", "is given beside the roles"),
        (
            "nodes = 2",
            "[machine]\ncloud = \"aws\"\nmarket = \"auto\"",
            "cannot be `auto` for several machines",
        ),
        ("nodes = 99", "[gang]\nengine = \"env\"", "is more than 64"),
    ];
    for (more, gang, said) in cases {
        let place = place(1, gang, more);
        let ended = place.0.lamp(&["check"]);
        let all = format!("{}{}", ended.out, ended.err);
        assert!(ended.code != 0 && all.contains(said), "{more} {gang}: {all}");
    }
}

/// One row for the gang, with its ranks below, and its parts on its own page.
#[test]
fn status_shows_a_gang_as_one_row() {
    let place = place(5, "[gang]\nengine = \"env\"", "nodes = 2");
    let (code, _, err) = end(place.start(&["run"]));
    assert_eq!(code, 0, "{err}");
    let (_, listed) = place.0.json(&["status", "-o", "json"]);
    let jobs = listed["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 1, "{listed:#}");
    let ranks = jobs[0]["gang"]["ranks"].as_array().expect("ranks");
    let states: Vec<&str> = ranks.iter().filter_map(|rank| rank["state"].as_str()).collect();
    assert_eq!(states, ["succeeded", "succeeded"], "{listed:#}");
    let table = place.0.lamp(&["status"]);
    assert!(table.out.contains("2 ranks") && !table.out.contains("g-r1"), "{}", table.out);
    let one = place.0.lamp(&["status", "g"]);
    assert!(one.out.contains("rank 1: succeeded"), "{}", one.out);
    assert!(one.out.contains("epoch 1 formed"), "{}", one.out);
    let rank = place.0.lamp(&["status", "g-r1"]);
    assert!(rank.out.contains("g-r1-") && !rank.out.contains("epoch 1"), "{}", rank.out);
}

/// A script that ignores its rank does all the work on each machine.
#[test]
fn ranks_that_print_the_same_are_told_at_the_end() {
    let place = Place::new("");
    let gang = "nodes = 2\n[gang]\nengine = \"env\"";
    let command = "for step in $(seq 25); do echo step $step; done";
    place.0.write("lamp.toml", format!("name = \"g\"\ncommand = \"{command}\"\n{gang}\n"));
    let (code, _, err) = end(place.start(&["run"]));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("ranks 0 and 1 print the same"), "{err}");
    let (_, receipt) = place.0.json(&["receipt", "g", "-o", "json"]);
    assert_eq!(receipt["job"], Value::from(leader_id(&place)), "{receipt:#}");
    let gang = &receipt["gang"];
    assert_eq!(gang["ranks"].as_array().map(Vec::len), Some(2), "{receipt:#}");
    for key in ["total_usd", "assembly", "held", "tail"] {
        assert!(!gang[key].is_null(), "{key}: {receipt:#}");
    }
    place.nothing_is_left();
}

#[test]
fn caps_have_room_for_all_ranks_or_none_starts() {
    let place = place(6, "[gang]\nengine = \"env\"", "nodes = 3");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 1\n");
    let refused = place.0.lamp(&["run", "--detach", "--usd-per-hour", "0.5"]);
    assert_eq!(refused.code, 102, "{}", refused.err);
    assert!(refused.err.contains("$1.5"), "{}", refused.err);
    assert!(place.0.lamp(&["status"]).err.contains("no jobs in"), "none was made");
}

/// Its program would read the end of the gang only after the setup.
#[test]
fn rank_in_its_setup_ends_with_the_gang() {
    let setup = "setup = \"case $LAMP_JOB in *-r1-*) sleep 600;; esac\"\nnodes = 2";
    let place = place(6, "[gang]\nengine = \"env\"\njoin = \"10s\"", setup);
    let (code, _, err) = end(place.start(&["run"]));
    assert_ne!(code, 0, "{err}");
    assert!(err.contains("rank 1 did not come within"), "{err}");
    let leader = leader_id(&place);
    assert!(err.contains(&format!("`lamp logs --rank 1 {leader}`")), "{err}");
    let rank = leader.replacen("g-", "g-r1-", 1);
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let until = Instant::now() + PATIENCE;
    while !jobs.join(&rank).join("receipt.json").exists() {
        assert!(Instant::now() < until, "rank 1 prepares on, and bills");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(place.receipt(&rank)["outcome"], "stopped");
    place.nothing_is_left();
}

/// The agent of rank 1 is frozen, so it does not see that the gang is over.
#[test]
fn stop_asks_ranks_that_run_after_rank_0() {
    let place = Place::new(
        "[ \"$LAMP_RANK\" = 0 ] || exec sleep 600\nwhile [ ! -e GO ]; do sleep 0.1; done",
    );
    let gang = "nodes = 2\n[gang]\nengine = \"env\"\ndone = \"rank0\"";
    place.0.write("lamp.toml", format!("name = \"g\"\ncommand = [\"sh\", \"job.sh\"]\n{gang}\n"));
    let job = place.0.lamp(&["run", "-d", "-q"]).out.trim().to_owned();
    let rank = job.replacen("g-", "g-r1-", 1);
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let formed = jobs.join(&job).join("gang/0001/formation.json");
    wait_until("the gang is formed", || formed.exists().then_some(()));
    let machine = place.until(&rank, "running")["instance"].as_str().expect("one").to_owned();
    let frozen = pids(&place, &["machine", &machine]);
    assert!(!frozen.is_empty(), "no agent of {machine}");
    frozen.iter().for_each(|pid| signal(*pid, "STOP"));
    place.0.write("go", "");
    let has_ended = |job: &str| jobs.join(job).join("receipt.json").exists().then_some(());
    wait_until("rank 0 has ended", || has_ended(&job));
    let stopped = place.0.lamp(&["stop", &job]);
    frozen.iter().for_each(|pid| signal(*pid, "CONT"));
    assert_eq!(stopped.code, 0, "{}", stopped.err);
    let asked = "asked the other 1 of its 2 ranks to stop";
    assert!(stopped.err.contains(asked), "{}", stopped.err);
    wait_until("rank 1 has ended", || has_ended(&rank));
    place.nothing_is_left();
}

/// A stopped gang goes on from the checkpoint of rank 0, on all ranks.
#[test]
fn stopped_gang_goes_on_with_all_its_ranks() {
    let place = place(4000, "[gang]\nengine = \"env\"", "nodes = 2");
    let run = place.start(&["run"]);
    wait_for_step(&place, 12.0);
    let stopped = place.0.lamp(&["stop", "--wait", "g"]);
    assert_eq!(stopped.code, 0, "{}{}", stopped.out, stopped.err);
    let (_, _, err) = end(run);
    let (code, shown) = place.0.json(&["start", "g", "--dry-run", "--budget", "4", "-o", "json"]);
    assert_eq!((code, &shown["gang"]["nodes"]), (0, &Value::from("2")), "{shown:#}");
    assert_eq!(shown["limits"]["budget"].as_f64(), Some(2.0), "each rank has its part: {shown:#}");
    let (code, _, started) = end(place.start(&["start", "g", "--", "python3", "ranks.py", "40"]));
    assert_eq!(code, 0, "{err}\n{started}");
    let (first, second) =
        (place.0.lamp(&["logs", "g"]), place.0.lamp(&["logs", "--rank", "1", "g"]));
    for logs in [first.out, second.out] {
        let begun = logs.split("begins at step ").nth(1).expect("it began");
        let step: u32 = begun.split(',').next().and_then(|step| step.parse().ok()).expect("a step");
        assert!(step >= 10, "{logs}");
        assert!(logs.contains("finished at step"), "{logs}");
    }
    place.nothing_is_left();
}

/// The jobs that were made.
fn count_jobs(place: &Place) -> usize {
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let jobs = std::fs::read_dir(jobs).expect("jobs");
    jobs.flatten().filter(|job| job.path().join("spec.json").exists()).count()
}

/// The first `lamp start` is killed when it has made rank 0.
#[test]
fn second_start_makes_the_ranks_that_are_missing() {
    let place = place(4000, "[gang]\nengine = \"env\"", "nodes = 2");
    let run = place.start(&["run"]);
    wait_for_step(&place, 12.0);
    let job = leader_id(&place);
    let stopped = place.0.lamp(&["stop", "--wait", "g"]);
    assert_eq!(stopped.code, 0, "{}{}", stopped.out, stopped.err);
    let _ended = end(run);
    let before = count_jobs(&place);
    let mut first = place.start(&["start", &job, "--", "python3", "ranks.py", "40"]);
    let until = Instant::now() + PATIENCE;
    while count_jobs(&place) == before {
        assert!(Instant::now() < until, "no job was made");
        std::thread::sleep(Duration::from_millis(1));
    }
    first.kill().expect("it runs");
    let _killed = first.wait().expect("it was killed");
    assert_eq!(count_jobs(&place), before + 1, "it was cut off between the ranks");
    let (code, _, err) = end(place.start(&["start", &job]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(count_jobs(&place), before + 2, "{err}");
    assert!(err.contains("rank 1: succeeded"), "{err}");
    place.nothing_is_left();
}

#[test]
fn new_gang_begins_from_the_checkpoint_of_an_earlier_job() {
    let place = place(20, "[gang]\nengine = \"env\"", "nodes = 2");
    let (code, _, err) = end(place.start(&["run"]));
    assert_eq!(code, 0, "{err}");
    let job = leader_id(&place);
    let text = place.0.read("lamp.toml").replace("\"20\"", "\"30\"");
    place.0.write("lamp.toml", text);
    let (code, out, err) = end(place.start(&["run", "--from", &job]));
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("begins at step 20") && out.contains("finished at step 30"), "{out}");
    let logs = place.0.lamp(&["logs", "--rank", "1", "g"]);
    assert!(logs.out.contains("begins at step 20"), "{}", logs.out);
    place.nothing_is_left();
}

#[test]
fn applied_gang_starts_once_and_ends_with_its_file() {
    let place = place(4000, "[gang]\nengine = \"env\"", "nodes = 2");
    std::fs::create_dir(place.0.path().join("jobs")).expect("a folder");
    let text = place.0.read("lamp.toml").replace("name = ", "workdir = \"..\"\nname = ");
    place.0.write("jobs/g.toml", text);
    let applied = place.0.lamp(&["apply", "-y", "jobs"]);
    assert_eq!(applied.code, 0, "{}{}", applied.out, applied.err);
    wait_for_step(&place, 3.0);
    let again = place.0.lamp(&["apply", "-y", "jobs"]);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let (_, listed) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(1), "{listed:#}");
    let stopped = place.0.lamp(&["cancel", "--wait", "g"]);
    assert_eq!(stopped.code, 0, "{}{}", stopped.out, stopped.err);
    place.nothing_is_left();
}

/// The jobs are refused before they are made. This PATH has a shell and a Python without packages.
#[test]
fn engine_that_is_not_installed_is_said_before_anything_starts() {
    for (engine, said) in [("mpi", "`mpirun` of Open MPI"), ("ray", "has no package `ray`")] {
        let gang = format!("[gang]\nengine = \"{engine}\"");
        let place = place(1, &gang, "nodes = 2");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        std::os::unix::fs::symlink("/bin/sh", path.join("sh")).expect("a link");
        std::fs::write(path.join("python3"), "#!/bin/sh\nexit 1\n").expect("a script");
        make_executable(&path.join("python3"));
        let ended = place.0.end(place.0.command(&["run"]).env("PATH", path));
        assert_eq!(ended.code, 102, "{}", ended.err);
        assert!(ended.err.contains(said) && ended.err.contains("installs it"), "{}", ended.err);
        let (_, listed) = place.0.json(&["status", "-o", "json"]);
        assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(0), "{listed:#}");
    }
}

/// The real mpirun, without an SSH server: each process has the variables of its own rank.
#[test]
fn mpirun_starts_its_processes_through_the_job_directory() {
    let has_it = std::process::Command::new("mpirun").arg("--version").output();
    if !has_it.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Open MPI")) {
        return skipped("openmpi", "there is no mpirun of Open MPI");
    }
    let script = "echo process $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on rank $LAMP_RANK; \
                  sleep 1; test -z \\\"$FAIL\\\" || test $LAMP_RANK = 0 || exit 7";
    let job = |more: &str| {
        let place = Place::new("");
        place.0.write(
            "lamp.toml",
            format!(
                "name = \"g\"\ncommand = \"{script}\"\nnodes = 3\n[gang]\nengine = \"mpi\"\n{more}"
            ),
        );
        place
    };
    let place = job("");
    let (code, out, err) = end(place.start(&["run"]));
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    for rank in 0..3 {
        assert!(out.contains(&format!("process {rank} of 3 on rank {rank}")), "{out}");
    }
    place.nothing_is_left();
    let place = job("[env]\nFAIL = \"yes\"");
    let (code, _, err) = end(place.start(&["run"]));
    assert_eq!(code, 7, "the code of the process that failed: {err}");
    place.nothing_is_left();
}

/// LAMP_TEST_RAY names a Python that has Ray.
#[test]
fn ray_has_all_machines_when_the_command_runs() {
    let Ok(python) = std::env::var("LAMP_TEST_RAY") else {
        return skipped("ray", "LAMP_TEST_RAY names no Python with Ray");
    };
    let place = Place::new("");
    place.0.write(
        "machines.py",
        "import ray\nray.init(log_to_driver=False)\nprint(len(ray.nodes()), 'machines', flush=True)\n",
    );
    place.0.write(
        "lamp.toml",
        format!("name = \"g\"\ncommand = [\"{python}\", \"machines.py\"]\nnodes = 2\n[gang]\nengine = \"ray\"\n"),
    );
    let (code, out, err) = end(place.start(&["run"]));
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("2 machines"), "{out}");
    place.nothing_is_left();
}
