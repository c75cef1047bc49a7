//! Whether anybody here drives a job: it is seen, and it ends with the process, however that ends.

use super::place::{Place, signal, wait_until};

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
    let (code, _, err) = super::place::end(driver);
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
    let (code, _, err) = super::place::end(second);
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
    let _ = super::place::end(run);
    assert_eq!(place.status("beside")["driven_here"], false);
    let daemon = place.start(&["daemon"]);
    wait_until("the daemon drives it", || (place.status("beside")["driven_here"] == true).then_some(()));
    place.0.write("go", "");
    place.until("beside", "succeeded");
    signal(daemon.id(), "TERM");
    let _ = super::place::end(daemon);
    place.nothing_is_left();
}
