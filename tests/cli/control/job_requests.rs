//! What is asked of a job that runs, or is not there: what is refused, and what is said.

use serde_json::{Value, json};

use crate::place::{Place, Words, end, signal, wait_until};
use crate::sandbox::{Sandbox, repository};

const WAITS: &str = "trap 'exit 5' TERM; while :; do sleep 0.1; done";

#[test]
fn only_a_limit_that_is_there_can_be_raised() {
    let place = Place::new(WAITS);
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "free", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    place.until("free", "running");
    for nothing in [&["free", "0s"][..], &["free", "--budget=-5"], &["free", "--budget", "0"]] {
        let refused = place.0.lamp(&[&["extend"], nothing].concat());
        assert_eq!(
            (refused.code, refused.err.contains("hint: ")),
            (2, true),
            "{nothing:?}: {}",
            refused.err
        );
    }
    for (what, missing) in
        [(&["free", "2h"][..], "no limit of its time"), (&["free", "--budget", "5"], "no budget")]
    {
        let refused = place.0.lamp(&[&["extend"], what].concat());
        assert_eq!(
            (refused.code, refused.err.contains(missing)),
            (102, true),
            "{what:?}: {}",
            refused.err
        );
    }
    let (_, explained) = place.0.json(&["explain", "free", "-o", "json"]);
    assert_eq!(explained["requests"].as_array().map(Vec::len), Some(0), "{explained}");
    let stopped = place.0.lamp(&["stop", "free"]);
    assert!(
        stopped.code == 0
            && stopped.err.contains("it has no [checkpoint]")
            && !stopped.err.contains("saves a checkpoint"),
        "{}",
        stopped.err
    );
    place.until("free", "stopped");
    place.nothing_is_left();
}

/// A running job bills, whatever its spec looks like. A wish needs the id alone.
#[test]
fn job_whose_spec_nobody_can_read_is_stopped_all_the_same() {
    for (name, torn) in [("torn", Some("{\"format\":1,\"jo")), ("newer", None)] {
        let place = Place::new(WAITS);
        assert_eq!(
            place
                .0
                .lamp(&["run", "-d", "--name", name, "--idle", "off", "--", "sh", "job.sh"])
                .code,
            0
        );
        place.until(name, "running");
        let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
        let job = std::fs::read_dir(&jobs)
            .expect("a job")
            .next()
            .expect("one")
            .expect("listed")
            .file_name()
            .into_string()
            .expect("an id");
        let spec = jobs.join(&job).join("spec.json");
        let whole = std::fs::read_to_string(&spec).expect("a spec");
        let newer = whole.replacen("\"format\": 1", "\"format\": 999", 1);
        std::fs::write(&spec, torn.map_or(newer, str::to_owned)).expect("written");
        let stopped = place.0.lamp(&["stop", &job]);
        assert!(
            stopped.code == 0 && stopped.err.contains(&format!("asked {job} to stop")),
            "{name}: {stopped:?}"
        );
        let outcome = jobs.join(&job).join("attempts/0001/outcome.json");
        wait_until(&format!("{name} has ended"), || outcome.exists().then_some(()));
        std::fs::write(&spec, whole).expect("written");
        // Its driver may have settled it meanwhile.
        let waited = place.0.lamp(&["stop", "--wait", &job]);
        assert!(waited.code == 0 || waited.err.contains("has ended"), "{name}: {waited:?}");
        place.nothing_is_left();
    }
}

/// One pipe in the place of a record hung every verb, and the daemon obeyed no SIGTERM.
#[test]
fn pipe_in_place_of_record_holds_up_no_other_job() {
    let place = Place::new("exit 0");
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let odd = jobs.join("odd-222222");
    std::fs::create_dir_all(&odd).expect("writable");
    rustix::fs::mkfifoat(rustix::fs::CWD, odd.join("spec.json"), rustix::fs::Mode::RWXU)
        .expect("writable");
    std::os::unix::fs::symlink("/dev/zero", odd.join("attention.json")).expect("writable");
    assert_eq!(place.0.lamp(&["run", "--name", "good", "--", "sh", "job.sh"]).code, 0);
    let status = place.0.lamp(&["status", "--all"]);
    assert!(status.out.contains("good-"), "{status:?}");
    let stopped = place.0.lamp(&["stop", "odd-222222"]);
    assert!(stopped.err.contains("is not a record of ours"), "{stopped:?}");
    place.nothing_is_left();
}

/// Whoever is at work on a machine is told to type this, whatever the job file says of limits.
#[test]
fn machine_that_is_held_can_be_kept_longer_by_any_job() {
    let record = |name: &str, change: fn(&mut Value)| {
        let text = std::fs::read_to_string(repository().join("tests/data/v1").join(name))
            .expect("a record");
        let mut record: Value = serde_json::from_str(&text).expect("JSON");
        change(&mut record);
        record.to_string()
    };
    for (phase, code) in [("held", 0), ("running", 102)] {
        let (sandbox, folder) =
            (Sandbox::new(), "home/.local/state/lamplighter/jobs/digits-7f3k2q");
        let plain = |spec: &mut Value| {
            (spec["spec"]["on"], spec["spec"]["limits"]) = (json!({}), json!({}));
        };
        sandbox.write(&format!("{folder}/spec.json"), record("spec.json", plain));
        sandbox.write(&format!("{folder}/attempts/0002/plan.json"), record("plan.json", |_| ()));
        let mut status: Value = serde_json::from_str(&record("status.json", |_| ())).expect("JSON");
        (status["phase"], status["held_until"]) = (json!(phase), json!("2099-01-01T00:00:00Z"));
        sandbox.write(&format!("{folder}/attempts/0002/status.json"), status.to_string());
        let extended = sandbox.lamp(&["extend", "digits", "1h", "--yes"]);
        assert_eq!(extended.code, code, "{phase}: {extended:?}");
        let said =
            if code == 0 { "digits-7f3k2q may have 1h more" } else { "no limit of its time" };
        assert!(extended.err.contains(said), "{phase}: {extended:?}");
    }
}

#[test]
fn status_shows_when_the_machine_ends_and_extend_moves_it() {
    let place = Place::new(WAITS);
    assert_eq!(
        place
            .0
            .lamp(&[
                "run",
                "-d",
                "--name",
                "longer",
                "--idle",
                "off",
                "--max-runtime",
                "10m",
                "--",
                "sh",
                "job.sh"
            ])
            .code,
        0
    );
    place.until("longer", "running");
    let ends = || {
        let status = place.0.lamp(&["status", "longer"]).out;
        status
            .lines()
            .find(|line| line.starts_with("ends "))
            .unwrap_or_else(|| panic!("{status}"))
            .to_owned()
    };
    let before = ends();
    assert!(before.contains("run time: in ") && before.ends_with(" UTC"), "{before}");
    assert_eq!(place.0.lamp(&["extend", "longer", "2h"]).code, 0);
    let moment = |line: &str| line.rsplit_once(", ").map(|(_, at)| at.to_owned());
    assert_ne!(moment(&ends()), moment(&before));
    assert_eq!(place.0.lamp(&["stop", "longer"]).code, 0);
    place.until("longer", "stopped");
    place.nothing_is_left();
}

/// `run --budget` and `extend --budget` are one word for two things, and each help says which.
#[test]
fn help_says_which_budget_sets_and_which_adds() {
    let place = Place::new("exit 0");
    let help = |verb: &str| {
        place.0.lamp(&[verb, "--help"]).out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(
        help("extend").contains(
            "on top of the budget that it has, like 5: with `lamp run --budget 20` it is $25 then"
        ),
        "{}",
        help("extend")
    );
    assert!(
        help("run").contains("in dollars; `lamp extend --budget` adds to it"),
        "{}",
        help("run")
    );
}

/// One figure wherever it is read: where it was given, in `status`, in the line under the log.
#[test]
fn what_was_added_to_a_budget_is_in_every_figure_of_the_most() {
    let place = Place::new("trap 'exit 5' TERM; echo begun; while [ ! -e GO ]; do sleep 0.1; done");
    let limits =
        ["--usd-per-hour", "0.6", "--budget", "0.5", "--max-runtime", "2h", "--idle", "off"];
    let run = place
        .0
        .lamp(&[&["run", "-d", "--name", "dear"][..], &limits, &["--", "sh", "job.sh"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    place.until("dear", "running");
    let (_, extended) = place.0.json(&["extend", "dear", "1h", "--budget", "5", "-o", "json"]);
    // The budget, and a drain of five minutes, which nobody bills a workstation for.
    assert_eq!(extended["most_job_usd"], 5.55, "{extended}");
    let status = place.status("dear");
    assert_eq!(
        [&status["most_job_usd"], &status["most_usd"]],
        [&extended["most_job_usd"], &extended["most_usd"]],
        "{status}"
    );
    let shown = place.0.lamp(&["status", "dear"]).out;
    assert!(
        shown.contains(" of at most $5.55\n") && !shown.contains("unless interrupted"),
        "{shown}"
    );
    let more = place.0.lamp(&["extend", "dear", "--budget", "1"]);
    assert!(
        more.err.contains(": adds $1.00 to the budget of $5.50: $6.50 now\n"),
        "`run --budget` sets, and this adds: {more:?}"
    );
    assert!(more.err.contains(" and at most $6.55 with all that may follow"), "{more:?}");
    let mut follow = place.start(&["logs", "-f", "dear"]);
    let words = Words::of(follow.stderr.take());
    let followed = words.until(" of at most $6.55");
    let stop = place.0.lamp(&["stop", "--wait", "dear"]);
    assert!(stop.code == 0 && stop.err.contains(" of at most $6.55"), "{stop:?}");
    assert_eq!(end(follow).0, 0);
    let rest = words.rest();
    assert!(
        ![&[followed], &rest[..]].concat().iter().any(|line| line.contains("of at most $0.5")),
        "{rest:?}"
    );
    place.nothing_is_left();
}

/// Until the agent has read a stop request, the state of the job is unchanged. `lamp status` then
/// shows the request on its own line, with its author and time. A second request names the first.
/// After Ctrl-C during the wait, the request stays and is carried out.
#[test]
fn stop_is_carried_out_after_its_user_interrupts_the_wait() {
    let place = Place::new("trap '' TERM; while [ ! -e GO ]; do sleep 0.1; done");
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "left", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    let job = place.until("left", "running")["job"].as_str().unwrap().to_owned();
    let said = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("--until-done"))
    };
    let drivers = || place.processes().into_iter().filter(said).collect::<Vec<u32>>();
    drivers().iter().for_each(|pid| signal(*pid, "KILL"));
    wait_until("nobody drives it", || drivers().is_empty().then_some(()));
    let mut waits = place.start(&["stop", "--wait", &job]);
    let words = Words::of(waits.stderr.take());
    // Of how the job stands it tells once it waits for it.
    words.until("  running ");
    signal(waits.id(), "INT");
    assert_eq!(end(waits).0, 130);
    words.until("the stop stands");
    assert_eq!(drivers().len(), 1);
    place.0.write("go", "");
    wait_until("it has ended", || drivers().is_empty().then_some(()));
    assert!(place.receipt(&job)["outcome"].is_string());
    place.nothing_is_left();
}

#[test]
fn job_that_was_asked_to_end_says_so_before_its_agent_knows() {
    let place = Place::new(WAITS);
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "deaf", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    place.until("deaf", "running");
    assert!(!place.0.lamp(&["status", "deaf"]).out.contains("was asked"));
    // Nobody acts on it: whoever drives the job, and the agent on the machine, stand still.
    let all = place.processes();
    all.iter().for_each(|pid| signal(*pid, "STOP"));
    let asked = place.0.lamp(&["stop", "deaf"]);
    assert!(asked.code == 0 && asked.err.contains(" to stop; "), "{asked:?}");
    let status = place.0.lamp(&["status", "deaf"]).out;
    let line = status
        .lines()
        .find(|line| line.starts_with("was asked"))
        .unwrap_or_else(|| panic!("{status}"));
    assert!(
        line.contains("to stop, by ") && line.ends_with(" ago") && status.contains("running"),
        "{status}"
    );
    let (_, listing) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(listing["jobs"][0]["end_asked"]["wish"], "stop", "{listing}");
    assert!(place.0.lamp(&["status"]).out.contains("running, to stop"), "the table too");
    let again = place.0.lamp(&["stop", "deaf"]);
    assert!(
        again.code == 0
            && again.err.contains(" was asked to stop ")
            && again.err.contains(" ago, and once is enough; "),
        "{again:?}"
    );
    let extended = place.0.lamp(&["extend", "deaf", "1h"]);
    assert!(
        extended.err.contains(" was asked to stop by ")
            && extended.err.contains("what is added is for its last save"),
        "{extended:?}"
    );
    let cancelled = place.0.lamp(&["cancel", "deaf"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let stopped = place.0.lamp(&["stop", "deaf"]);
    assert!(
        stopped.err.contains("it was asked to cancel ")
            && stopped.err.contains(" ago, and that stands: it saves nothing more"),
        "{stopped:?}"
    );
    let extended = place.0.lamp(&["extend", "deaf", "1h"]);
    assert!(
        extended.code == 102 && extended.err.contains(" was asked to cancel by "),
        "{extended:?}"
    );
    assert!(
        extended.err.contains(
            " ago: more time or money changes nothing\nit ends as it was asked to\nhint: "
        ),
        "{extended:?}"
    );
    let status = place.0.lamp(&["status", "deaf"]).out;
    assert!(
        status.lines().any(|line| line.starts_with("was asked") && line.contains("to cancel, by ")),
        "{status}"
    );
    all.iter().for_each(|pid| signal(*pid, "CONT"));
    place.until("deaf", "cancelled");
    place.nothing_is_left();
}

/// Work is lost by it: who names no job is asked, and where nobody can be asked, nothing is done.
#[test]
fn stop_that_loses_work_needs_a_job_name_or_yes() {
    let place = Place::new(WAITS);
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "only", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    place.until("only", "running");
    let refused = place.0.lamp(&["cancel"]);
    assert!(
        refused.code == 102
            && refused.err.contains("job `only-")
            && refused.err.contains("this call cannot ask"),
        "{refused:?}"
    );
    assert!(
        refused.err.contains("nothing more was asked of it")
            && refused.err.contains("`--yes` says so beforehand"),
        "{refused:?}"
    );
    let stop = place.0.lamp(&["stop"]);
    assert!(
        stop.code == 102 && stop.err.contains("this ends it, and it saves no checkpoint"),
        "{stop:?}"
    );
    assert!(!place.0.lamp(&["status", "only"]).out.contains("was asked"));
    assert_eq!(place.0.lamp(&["stop", "--yes"]).code, 0);
    place.until("only", "stopped");
    place.nothing_is_left();
}

/// `lamp cancel "$JOB" --yes` where JOB is not set: every id begins with nothing.
#[test]
fn empty_name_means_no_job() {
    let place = Place::new(WAITS);
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "only", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    place.until("only", "running");
    for verb in [
        &["cancel", "--yes"][..],
        &["stop", "--yes"],
        &["start"],
        &["outputs"],
        &["receipt"],
        &["status"],
        &["logs"],
        &["explain"],
    ] {
        for blank in ["", "  "] {
            let refused = place.0.lamp(&[verb, &[blank]].concat());
            let said = refused.err.contains("the name of the job is empty")
                && refused.err.contains("hint: ");
            assert!(refused.code == 2 && said, "{verb:?}: {refused:?}");
        }
    }
    assert!(!place.0.lamp(&["status", "only"]).out.contains("was asked"));
    assert_eq!(place.0.lamp(&["stop", "only"]).code, 0);
    place.until("only", "stopped");
    place.nothing_is_left();
}

#[test]
fn job_is_found_by_its_name_as_its_user_wrote_it() {
    let place = Place::new("exit 0");
    for name in ["My Job: α", "my-job-2"] {
        assert_eq!(end(place.start(&["run", "-q", "--name", name, "--", "sh", "job.sh"])).0, 0);
        assert_eq!(place.receipt(name)["name"], name);
    }
    let other = place.0.lamp(&["receipt", "MY-JOB-2"]);
    assert!(
        other.code == 101 && other.err.contains("did you mean `my-job-2"),
        "a name of other letters is another: {other:?}"
    );
    let unlike = place.0.lamp(&["receipt", "my job α"]);
    assert_eq!(unlike.code, 101, "{unlike:?}");
    place.nothing_is_left();
}

/// Between the upload of its code and its spec nobody can tell whether somebody is still at it.
#[test]
fn job_that_is_not_submitted_to_the_end_is_not_called_dead() {
    let place = Place::new("exit 0");
    place.0.write("home/.local/state/lamplighter/jobs/half-222222/code/7f.tar.zst", "x");
    let refused = place.0.lamp(&["cancel", "half-222222"]);
    assert!(
        refused.code == 101
            && refused
                .err
                .contains("job `half-222222` is being submitted just now, or never was to the end"),
        "{refused:?}"
    );
    assert!(refused.err.contains("ask again in a moment"), "{refused:?}");
}

#[test]
fn log_is_followed_as_objects_too() {
    let place = Place::new("echo begun; while [ ! -e GO ]; do sleep 0.05; done; echo last");
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "told", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    place.until("told", "running");
    let follow = place.start(&["logs", "-f", "told", "-o", "jsonl"]);
    place.0.write("go", "");
    let (code, out, err) = end(follow);
    assert_eq!(code, 0, "{err}");
    let pieces = String::from_utf8(out).unwrap();
    let log: String = pieces
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["log"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(log, "begun\nlast\n");
    place.nothing_is_left();
}

#[test]
fn daemon_for_a_job_that_is_not_there_says_so() {
    let place = Place::new("exit 0");
    assert_eq!(end(place.start(&["run", "-q", "--name", "digits", "--", "sh", "job.sh"])).0, 0);
    let typo = place.0.lamp(&["daemon", "--job", "digtis-222222", "--until-done"]);
    assert_eq!(
        (typo.code, typo.err.contains("no job `digtis-222222`")),
        (101, true),
        "{}",
        typo.err
    );
    place.0.write(
        "home/.local/state/lamplighter/jobs/newer-222222/spec.json",
        "{\"format\": 99, \"job\": \"newer-222222\"}",
    );
    let newer = place.0.lamp(&["daemon", "--job", "newer-222222", "--until-done"]);
    assert_eq!((newer.code, newer.err.contains("format 99")), (102, true), "{}", newer.err);
}
