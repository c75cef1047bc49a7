//! Whether anybody here drives a job: it is seen, and it ends with the process, however that ends.

use std::process::Stdio;

use super::place::{Place, end, signal, wait_until};

/// Waits for a file.
const WAITS: &str = "while [ ! -e GO ]; do sleep 0.1; done";

/// The processes of this place whose words contain all of these.
fn pids(place: &Place, words: &[&str]) -> Vec<u32> {
    let said =
        |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " ")).unwrap_or_default();
    place.processes().into_iter().filter(|pid| words.iter().all(|word| said(pid).contains(word))).collect()
}

#[test]
fn a_job_that_nobody_drives_any_more_says_so_and_what_drives_it() {
    let place = Place::new(WAITS);
    let started = place.0.lamp(&["run", "-d", "-q", "--name", "alone", "--", "sh", "job.sh"]);
    assert_eq!(started.code, 0, "{started:?}");
    let job = started.out.trim().to_owned();
    assert_eq!(place.status(&job)["driven_here"], true, "its driver holds it from its first moment");
    place.until(&job, "running");
    for pid in pids(&place, &["daemon", "--until-done", &job]) {
        signal(pid, "KILL");
    }
    wait_until("the driver is gone", || (place.status(&job)["driven_here"] == false).then_some(()));
    let said = format!("`lamp daemon --job {job} --until-done` drives it");
    let list = place.0.lamp(&["status"]);
    assert!(list.code == 0 && list.err.contains(&format!("nobody on this workstation drives {job}")) && list.err.contains(&said), "{list:?}");
    let one = place.0.lamp(&["status", &job]);
    assert!(one.out.lines().any(|line| line.starts_with("driven by") && line.contains("nobody on this workstation")), "{one:?}");
    // What it says to type does it.
    let driver = place.start(&["daemon", "--job", &job, "--until-done"]);
    wait_until("it is driven again", || (place.status(&job)["driven_here"] == true).then_some(()));
    let after = place.0.lamp(&["status"]);
    assert!(!after.err.contains("nobody on this workstation"), "{after:?}");
    place.0.write("go", "");
    let (code, _, err) = end(driver);
    assert_eq!(code, 0, "{err}");
    let ended = place.status(&job);
    assert_eq!((&ended["state"], &ended["driven_here"]), (&"succeeded".into(), &serde_json::Value::Null), "{ended}");
    place.nothing_is_left();
}

/// Each stop starts a driver, with the credentials that its user has by then: the one before makes room for it.
#[test]
fn of_two_drivers_of_a_job_the_newer_goes_on_alone() {
    let place = Place::new(WAITS);
    let started = place.0.lamp(&["run", "-d", "-q", "--name", "twice", "--", "sh", "job.sh"]);
    let job = started.out.trim().to_owned();
    place.until(&job, "running");
    let first = pids(&place, &["daemon", "--until-done", &job]);
    assert_eq!(first.len(), 1, "{started:?}");
    let second = place.start(&["daemon", "--job", &job, "--until-done"]);
    let of_ours = || pids(&place, &["daemon", "--until-done", &job]);
    wait_until("the older has ended", || (of_ours() == [second.id()]).then_some(()));
    assert_eq!(place.status(&job)["driven_here"], true);
    place.0.write("go", "");
    let (code, _, err) = end(second);
    assert!(code == 0 && !err.contains("taken"), "{err}");
    assert_eq!(place.status(&job)["state"], "succeeded");
    place.nothing_is_left();
}

#[test]
fn an_attached_run_and_a_daemon_drive_what_they_see() {
    let place = Place::new(WAITS);
    let run = place.start(&["run", "-q", "--name", "beside", "--", "sh", "job.sh"]);
    place.until("beside", "running");
    assert_eq!(place.status("beside")["driven_here"], true);
    // Killed, it hands over to nobody.
    signal(run.id(), "KILL");
    let _ = end(run);
    assert_eq!(place.status("beside")["driven_here"], false);
    let daemon = place.start(&["daemon"]);
    wait_until("the daemon drives it", || (place.status("beside")["driven_here"] == true).then_some(()));
    place.0.write("go", "");
    place.until("beside", "succeeded");
    signal(daemon.id(), "TERM");
    let _ = end(daemon);
    place.nothing_is_left();
}

#[test]
fn another_owner_leaves_a_running_attempt_alone_and_status_says_why() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.05; done; exit 3");
    let mut run = place.start(&["run", "--idle", "off", "--max-runtime", "2h", "--", "sh", "job.sh"]);
    let job = place.until("job", "running")["job"].as_str().unwrap().to_owned();
    run.kill().unwrap();
    run.wait().unwrap();
    let mut other = place.0.command(&["daemon", "--job", &job, "--until-done"]);
    let mut other = other.env("LAMP_OWNER", "other").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let seen = place.0.end(place.0.command(&["status", &job]).env("LAMP_OWNER", "other"));
    assert!(seen.out.contains("its machine is of the owner `alice`, and this is `other`"), "{seen:?}");
    assert!(!place.0.lamp(&["status", &job]).out.contains("of the owner"));
    for asks in [&["stop", &job][..], &["cancel", &job], &["extend", &job, "1h"]] {
        let asked = place.0.end(place.0.command(asks).env("LAMP_OWNER", "other"));
        let told = asked.err.contains("is of the owner `alice`") && asked.err.contains("nobody was there to ask");
        assert!(asked.code == 102 && told, "whose money it is: {asked:?}");
    }
    place.0.write("go", "");
    let (code, _, err) = end(place.start(&["daemon", "--job", &job, "--until-done"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(other.wait().unwrap().code(), Some(0), "what its owner has settled ends it for everybody");
    let receipt = place.receipt(&job);
    assert_eq!((receipt["exit_code"].as_i64(), receipt["attempts"].as_array().unwrap().len()), (Some(3), 1));
    place.nothing_is_left();
}
