//! Whether anybody here drives a job: it is seen, and it ends with the process, however that ends.

use std::process::Stdio;

use crate::place::{Place, Words, end, pids, signal, wait_until};

/// Waits for a file.
const WAITS: &str = "while [ ! -e GO ]; do sleep 0.1; done";

#[test]
fn job_that_nobody_drives_any_more_says_so_and_what_drives_it() {
    let place = Place::new(WAITS);
    let started = place.0.lamp(&["run", "-d", "-q", "--name", "alone", "--", "sh", "job.sh"]);
    assert_eq!(started.code, 0, "{started:?}");
    let job = started.out.trim().to_owned();
    assert_eq!(
        place.status(&job)["driven_here"],
        true,
        "its driver holds it from its first moment"
    );
    place.until(&job, "running");
    for pid in pids(&place, &["daemon", "--until-done", &job]) {
        signal(pid, "KILL");
    }
    wait_until("the driver is gone", || (place.status(&job)["driven_here"] == false).then_some(()));
    let said = format!("`lamp daemon --job {job} --until-done` drives it");
    let list = place.0.lamp(&["status"]);
    assert!(
        list.code == 0
            && list.err.contains(&format!("no process on this workstation drives {job}"))
            && list.err.contains(&said),
        "{list:?}"
    );
    let one = place.0.lamp(&["status", &job]);
    assert!(
        one.out
            .lines()
            .any(|line| line.starts_with("driven by")
                && line.contains("no process on this workstation")),
        "{one:?}"
    );
    // What it says to type does it.
    let driver = place.start(&["daemon", "--job", &job, "--until-done"]);
    wait_until("it is driven again", || (place.status(&job)["driven_here"] == true).then_some(()));
    let after = place.0.lamp(&["status"]);
    assert!(!after.err.contains("no process on this workstation"), "{after:?}");
    place.0.write("go", "");
    let (code, _, err) = end(driver);
    assert_eq!(code, 0, "{err}");
    let ended = place.status(&job);
    assert_eq!(
        (&ended["state"], &ended["driven_here"]),
        (&"succeeded".into(), &serde_json::Value::Null),
        "{ended}"
    );
    place.nothing_is_left();
}

/// skypilot#8860: another shell drives the job later. The second attempt keeps the environment of
/// the submission.
#[test]
fn second_attempt_has_the_environment_of_its_submission() {
    let place = Place::new(
        "printf '%s\\n' \"$HOLLER $PATH\" >> SEEN; while [ ! -e GO ]; do sleep 0.1; done",
    );
    let seen = place.0.path().join("seen");
    place.0.write("job.sh", place.0.read("job.sh").replace("SEEN", &seen.display().to_string()));
    let path =
        format!("{}/tools:{}", place.0.path().display(), std::env::var("PATH").expect("it is set"));
    let mut run = place.0.command(&["run", "-d", "-q", "--name", "env", "--", "sh", "job.sh"]);
    let started = place.0.end(run.env("HOLLER", "yes").env("PATH", &path));
    let job = started.out.trim().to_owned();
    let lines = || {
        std::fs::read_to_string(&seen)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    wait_until("it has begun", || (lines().len() == 1).then_some(()));
    for pid in pids(&place, &["daemon", "--until-done", &job])
        .into_iter()
        .chain(pids(&place, &["agent", "machine"]))
    {
        signal(pid, "KILL");
    }
    let mut again = place.0.command(&["daemon", "--job", &job, "--until-done"]);
    let driver = again
        .env_remove("HOLLER")
        .env("PATH", "/usr/bin:/bin")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    wait_until("it has begun again", || (lines().len() == 2).then_some(()));
    assert_eq!(lines(), [format!("yes {path}"), format!("yes {path}")]);
    place.0.write("go", "");
    let (code, _, err) = end(driver);
    assert_eq!(code, 0, "{err}");
    place.nothing_is_left();
}

/// A stop starts a driver, with the credentials that its user has by then, and another one right
/// after it starts none. The one before does its work well and stays: what it has seen of the
/// machine the newer has yet to see.
#[test]
fn second_stop_starts_no_second_driver() {
    let place = Place::new("trap '' TERM; while [ ! -e GO ]; do sleep 0.1; done");
    // After its grace the stopped job would end, and its driver with it.
    place.0.write("twice.toml", "command = ['sh', 'job.sh']\nwatch.grace = '20m'\n");
    let started = place.0.lamp(&["run", "-d", "-q", "--name", "twice", "twice.toml"]);
    let job = started.out.trim().to_owned();
    place.until(&job, "running");
    let all = || pids(&place, &["daemon", "--until-done", &job]);
    // Between fork and exec a process that it starts looks like itself.
    let first = wait_until("one drives it", || Some(all()).filter(|all| all.len() == 1));
    first.iter().for_each(|pid| signal(*pid, "KILL"));
    wait_until("nobody drives it", || all().is_empty().then_some(()));
    for _ in 0..3 {
        assert_eq!(place.0.lamp(&["stop", &job]).code, 0);
        wait_until("it is driven", || (place.status(&job)["driven_here"] == true).then_some(()));
    }
    // Between fork and exec a process that it starts looks like itself.
    wait_until("one drives it for all of them", || (all().len() == 1).then_some(()));
    let older = place.start(&["daemon", "--job", &job, "--until-done"]);
    place.0.write("go", "");
    let (code, _, err) = end(older);
    assert_eq!(code, 0, "{err}");
    assert!(place.receipt(&job)["outcome"].is_string());
    place.nothing_is_left();
}

/// The cap in the machine's tags is raised by whoever drives the job: more time that nobody carries
/// out would end it all the same.
#[test]
fn more_time_for_a_job_that_nobody_drives_starts_who_does() {
    let place = Place::new(WAITS);
    let started = place.0.lamp(&[
        "run",
        "-d",
        "-q",
        "--name",
        "more",
        "--max-runtime",
        "1h",
        "--",
        "sh",
        "job.sh",
    ]);
    let job = started.out.trim().to_owned();
    place.until(&job, "running");
    let all = || pids(&place, &["daemon", "--until-done", &job]);
    let before = all();
    assert_eq!(place.0.lamp(&["extend", &job, "1h"]).code, 0);
    assert_eq!(all(), before, "it is driven");
    before.iter().for_each(|pid| signal(*pid, "KILL"));
    wait_until("nobody drives it", || (place.status(&job)["driven_here"] == false).then_some(()));
    assert_eq!(place.0.lamp(&["extend", &job, "1h"]).code, 0);
    wait_until("it is driven", || (place.status(&job)["driven_here"] == true).then_some(()));
    place.0.write("go", "");
    wait_until("it has ended", || (place.status(&job)["state"] == "succeeded").then_some(()));
    place.nothing_is_left();
}

/// From its first record on a job has a driver, and its user knows of it; before that there is
/// none.
#[test]
fn ctrl_c_at_any_moment_of_a_launch_leaves_no_job_alone() {
    let place = Place::new("");
    place.0.write("w/job.sh", "sleep 1");
    place.0.write(
        "cut.toml",
        "name = 'cut'\nworkdir = 'w'\ncommand = ['sh', 'job.sh']\nwatch.idle = 'off'\n",
    );
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let names = || {
        std::fs::read_dir(&jobs)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect::<Vec<_>>()
    };
    let mut made = 0;
    for try_no in 0..16_u64 {
        let before = names().len();
        let flag: &[&str] = if try_no % 2 == 0 { &["--detach"] } else { &[] };
        let mut run = place.start(&[&["run", "cut.toml"], flag].concat());
        // From the first write on, each a little later.
        let begins = wait_until("it begins to make a job", || match run.try_wait().unwrap() {
            _ if names().len() > before => Some(true),
            ended => ended.map(|_| false),
        });
        if !begins {
            panic!("{try_no}: {:?}", end(run));
        }
        std::thread::sleep(std::time::Duration::from_millis(try_no * 3));
        signal(run.id(), "INT");
        let (code, out, err) = end(run);
        let out = String::from_utf8_lossy(&out).into_owned();
        let job = names()
            .into_iter()
            .map(|name| name.into_string().unwrap())
            .find(|name| out.contains(name) || err.contains(name));
        match job {
            // It may have been through before the signal came.
            Some(job) if code == 130 || code == 0 => {
                assert!(err.contains("detached; job"), "{err}");
                // Its driver may end between the two that a look looks at; a job that nobody drives
                // stays so.
                wait_until(&format!("it is driven, or has ended: {err}"), || {
                    let status = place.status(&job);
                    (status["driven_here"] == true || status["exit_code"].is_number()).then_some(())
                });
                made += 1;
            }
            _ => assert!(
                code == 130 && err.contains("left before the job was made"),
                "{try_no}: {code}: {out}{err}"
            ),
        }
    }
    assert!(made > 0, "none was made");
    let of_ours = || pids(&place, &["daemon", "--until-done"]);
    wait_until("all of them have ended", || of_ours().is_empty().then_some(()));
    place.nothing_is_left();
}

#[test]
fn attached_run_and_a_daemon_drive_what_they_see() {
    let place = Place::new(WAITS);
    let run = place.start(&["run", "-q", "--name", "beside", "--", "sh", "job.sh"]);
    place.until("beside", "running");
    assert_eq!(place.status("beside")["driven_here"], true);
    // Killed, it hands over to nobody.
    signal(run.id(), "KILL");
    let _ = end(run);
    assert_eq!(place.status("beside")["driven_here"], false);
    let daemon = place.start(&["daemon"]);
    wait_until("the daemon drives it", || {
        (place.status("beside")["driven_here"] == true).then_some(())
    });
    place.0.write("go", "");
    place.until("beside", "succeeded");
    signal(daemon.id(), "TERM");
    assert_eq!(end(daemon).0, 0, "a daemon that is ended ends well");
    place.nothing_is_left();
}

#[test]
fn attempt_of_another_owner_is_left_alone_and_status_says_why() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.05; done; exit 3");
    let mut run =
        place.start(&["run", "--idle", "off", "--max-runtime", "2h", "--", "sh", "job.sh"]);
    let job = place.until("job", "running")["job"].as_str().unwrap().to_owned();
    run.kill().unwrap();
    run.wait().unwrap();
    let mut other = place.0.command(&["daemon", "--job", &job, "--until-done"]);
    let other = other
        .env("LAMP_OWNER", "other")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let seen = place.0.end(place.0.command(&["status", &job]).env("LAMP_OWNER", "other"));
    assert!(
        seen.out.contains("its machine is of the owner `alice`, and this is `other`"),
        "{seen:?}"
    );
    assert!(!place.0.lamp(&["status", &job]).out.contains("of the owner"));
    for asks in [&["stop", &job][..], &["cancel", &job], &["extend", &job, "1h"]] {
        let asked = place.0.end(place.0.command(asks).env("LAMP_OWNER", "other"));
        let told = asked.err.contains("is of the owner `alice`")
            && asked.err.contains("this call cannot ask");
        assert!(asked.code == 102 && told, "whose money it is: {asked:?}");
    }
    place.0.write("go", "");
    let (code, _, err) = end(place.start(&["daemon", "--job", &job, "--until-done"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(end(other).0, 0, "what its owner has settled ends it for everybody");
    let receipt = place.receipt(&job);
    assert_eq!(
        (receipt["exit_code"].as_i64(), receipt["attempts"].as_array().unwrap().len()),
        (Some(3), 1)
    );
    place.nothing_is_left();
}

/// The drivers of a folder of jobs all find at once that there is room for a machine: one takes it.
#[test]
fn cap_lets_one_of_several_drivers_launch() {
    let place = Place::new(WAITS);
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 1.5\n");
    place.0.write("paid.toml", "workdir = '.'\ncommand = ['sh', 'job.sh']\nwatch.idle = 'off'\n[machine]\nusd_per_hour = 1\n");
    let names = ["paid-a", "paid-b", "paid-c", "paid-d", "paid-e"];
    let starts: Vec<_> = names
        .iter()
        .map(|name| place.start(&["run", "-d", "-q", "--name", name, "paid.toml"]))
        .collect();
    for started in starts {
        let (code, _, err) = end(started);
        assert_eq!(code, 0, "{err}");
    }
    let list = || place.0.json(&["status", "-o", "json"]).1;
    let state = |state: &str| {
        list()["jobs"].as_array().unwrap().iter().filter(|job| job["state"] == state).count()
    };
    wait_until("one runs", || (state("running") == 1).then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let all = list();
    assert_eq!((all["caps"]["machines"].as_u64(), state("running")), (Some(1), 1), "{all:#}");
    for name in names {
        assert_eq!(place.0.lamp(&["cancel", name, "--yes"]).code, 0);
    }
    for name in names {
        place.until(name, "cancelled");
    }
    place.nothing_is_left();
}

/// A user who wrote 0 for "no cap" is told before a job waits for ever. The daemon logs it too.
#[test]
fn cap_of_nothing_is_told_by_a_launch_and_by_a_daemon() {
    let place = Place::new("true");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 0\n");
    place.0.write("paid.toml", "workdir = '.'\ncommand = ['sh', 'job.sh']\nwatch.idle = 'off'\n[machine]\nusd_per_hour = 1\n");
    let refused = place.0.lamp(&["run", "paid.toml"]);
    let said = "it would wait for ever for the cap of $0.00 an hour: it lets nothing be launched that costs anything";
    assert!(
        refused.code == 102
            && refused.err.contains(said)
            && refused.err.contains("without `usd_per_hour` in [caps]"),
        "{refused:?}"
    );
    let free = place.0.lamp(&["run", "-q", "--name", "free", "--", "sh", "job.sh"]);
    assert_eq!(free.code, 0, "this workstation costs nothing: {free:?}");
    let mut daemon = place.start(&["daemon"]);
    let words = Words::of(daemon.stderr.take());
    words.until("a cap in [caps] is 0: nothing is launched that costs anything");
    signal(daemon.id(), "TERM");
    drop(words);
    assert_eq!(end(daemon).0, 0, "a daemon that is ended ends well");
    place.nothing_is_left();
}

/// `--detach` from a job's own script: whatever the workload has started is ended with it, so that
/// it is told before anything is launched, and said again of what drives the job.
#[test]
fn detached_job_within_a_workload_is_said_to_end_with_it() {
    let lamp = env!("CARGO_BIN_EXE_lamp");
    let words = format!("{lamp} run -d --name inner --idle off -- sh -c 'exit 0'");
    let place = Place::new(&format!(
        "{words} || exit 9\nuntil {lamp} receipt inner > /dev/null 2>&1; do sleep 0.2; done"
    ));
    let (code, _, err) =
        end(place.start(&["run", "-q", "--name", "outer", "--idle", "off", "--", "sh", "job.sh"]));
    assert_eq!(code, 0, "{err}");
    // It prints to a terminal, where sentences are folded.
    let log = place.0.lamp(&["logs", "outer"]).out.replace("\n  ", " ");
    let outer = place.receipt("outer")["job"].as_str().unwrap().to_owned();
    let told =
        log.find(&format!("this runs within the workload of job `{outer}`, and what is started here ends with that, the machine of the new job too"));
    let (told, left) = (
        told.unwrap_or_else(|| panic!("{log}")),
        log.find("detached; job inner-").unwrap_or_else(|| panic!("{log}")),
    );
    assert!(
        told < left && log[told..].contains("hint: without --detach `lamp run` waits for it"),
        "{log}"
    );
    assert!(log[left..].contains(&format!(", until the workload of job `{outer}` ends")), "{log}");
    let outside = place.0.lamp(&["run", "-d", "--name", "outside", "--", "sh", "-c", "exit 0"]);
    assert!(
        outside.code == 0 && !outside.err.contains("within") && !outside.err.contains(", until "),
        "{outside:?}"
    );
    place.until("outside", "succeeded");
    place.nothing_is_left();
}
