//! Messages that new users missed: a machine that runs on, the end of a kept machine, and a command
//! that changed nothing.

use serde_json::Value;

use crate::place::{Place, Words, end, signal, wait_until};
use crate::sandbox::{Sandbox, soon};

const WAITS: &str = "trap 'exit 5' TERM; while :; do sleep 0.1; done";

/// Other jobs of the account may bill.
#[test]
fn no_fault_of_apply_says_that_nothing_bills() {
    let place = Place::new("");
    place.0.write("jobs/a.toml", "comand = 'x'\n");
    place.0.write("jobs/b.toml", "name = ['x'\n");
    for format in ["text", "json"] {
        let ended = place.0.lamp(&["apply", "jobs", "-o", format]);
        assert!(ended.code == 100 && !ended.err.contains("or billed"), "{ended:?}");
        assert_eq!(
            ended.err.matches("nothing was changed: what runs goes on").count(),
            2,
            "{ended:?}"
        );
    }
}

/// Its records were deleted; its agent has the spec in memory, and reads wishes.
#[test]
fn job_whose_spec_is_gone_may_run_and_is_ended_by_stop() {
    let place = Place::new(WAITS);
    assert_eq!(
        place
            .0
            .lamp(&["run", "-q", "--detach", "--name", "vv", "--idle", "off", "--", "sh", "job.sh"])
            .code,
        0
    );
    let job = place.until("vv", "running")["job"].as_str().unwrap().to_owned();
    let records = place.0.path().join("home/.local/state/lamplighter/jobs").join(&job);
    std::fs::remove_file(records.join("spec.json")).unwrap();
    let listed = place.0.lamp(&["status"]);
    let said = format!("the spec of job `{job}` is gone, and its machine last reported at ");
    assert!(
        listed.err.contains(&said)
            && listed.err.contains("may run and bill")
            && listed.err.contains("`lamp stop"),
        "{listed:?}"
    );
    assert!(!listed.err.contains("no jobs in"), "{listed:?}");
    let (_, document) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(document["left_out"][0]["job"], job.as_str(), "{document}");
    let extended = place.0.lamp(&["extend", "vv", "1h"]);
    assert!(
        extended.code == 101
            && extended.err.contains(&said)
            && !extended.err.contains("nothing of it runs"),
        "{extended:?}"
    );
    let stopped = place.0.lamp(&["stop", "vv"]);
    assert!(
        stopped.code == 0
            && stopped.err.contains("asked vv-")
            && stopped.err.contains("may run and bill"),
        "{stopped:?}"
    );
    wait_until("its agent has ended it", || {
        records.join("attempts/0001/outcome.json").exists().then_some(())
    });
    let again = place.0.lamp(&["stop", "vv"]);
    assert!(again.code == 101 && again.err.contains("that attempt is over"), "{again:?}");
    place.nothing_is_left();
}

#[test]
fn held_machine_says_until_when_and_where_its_work_is() {
    let place = Place::new("exit 3");
    place.0.write("lamp.toml", "name = 'held'\ncommand = ['sh', 'job.sh']\n[on]\nfailure = 'keep 5m'\n[machine]\nusd_per_hour = 36\n");
    assert_eq!(place.0.lamp(&["run", "-q", "--detach"]).code, 0);
    place.until("held", "held");
    let status = wait_until("its hold is told", || {
        Some(place.status("held")).filter(|status| status["held"]["until"].is_string())
    });
    let folder = status["held"]["folder"].as_str().unwrap_or_else(|| panic!("{status}"));
    let folder = &folder.replace("[DIR]", &place.0.path().display().to_string());
    assert!(
        std::path::Path::new(folder).join("job.sh").is_file()
            && status["held"]["usd"].as_f64().unwrap() > 2.0,
        "{status}"
    );
    let shown = |words: &[&str]| {
        let ended = place.0.lamp(words);
        format!("{}{}", ended.out, ended.err)
            .replace("[DIR]", &place.0.path().display().to_string())
    };
    let one = shown(&["status", "held"]);
    assert!(
        one.contains("held        until ")
            && one.contains(" from now; its work is in ")
            && one.contains(folder),
        "{one}"
    );
    let explained = shown(&["explain", "held"]);
    assert!(
        explained.contains("its machine is held until ") && explained.contains(folder),
        "{explained}"
    );
    assert!(shown(&["ssh", "held"]).contains(&format!("its work is here, in {folder}")));
    let mut follow = place.start(&["logs", "-f", "held"]);
    // Before the stop: a machine that is gone is held no more.
    let words = Words::of(follow.stderr.take());
    words.until(" until ");
    assert_eq!(place.0.lamp(&["stop", "--wait", "held"]).code, 0);
    assert_eq!(end(follow).0, 0);
    place.nothing_is_left();
}

#[test]
fn kept_folder_of_a_local_job_is_shown_with_start_and_cancel() {
    let place = Place::new("exit 3");
    place
        .0
        .write("lamp.toml", "name = 'kept'\ncommand = ['sh', 'job.sh']\n[on]\nfailure = 'stop'\n");
    let (code, _, err) = end(place.start(&["run"]));
    let receipt = place.receipt("kept");
    let job = receipt["job"].as_str().unwrap();
    let hint = format!("`lamp start {job}` goes on with it, `lamp cancel {job}` gives it up");
    assert!(
        code == 3
            && err.contains("  kept: the folder ")
            && err.contains(&hint)
            && !err.contains(" a month"),
        "{err}"
    );
    assert_eq!(
        (&receipt["left"][0]["fate"], &receipt["left"][0]["kind"]),
        (&Value::from("kept"), &Value::from("folder")),
        "{receipt}"
    );
    for words in [&["receipt", "kept"][..], &["status", "kept"]] {
        let shown = place.0.lamp(words);
        assert!(
            shown.code == 0 && shown.err.contains(&hint) && shown.out.contains("folder"),
            "{shown:?}"
        );
    }
    let listed = place.0.lamp(&["status"]);
    assert!(
        listed.err.contains(&format!("{job} keeps folder ")) && !listed.err.contains("$0.00"),
        "{listed:?}"
    );
    assert_eq!(place.0.lamp(&["cancel", "kept", "--yes"]).code, 0);
    assert!(!place.0.lamp(&["status"]).err.contains(" keeps "));
    assert!(!place.0.lamp(&["receipt", "kept"]).err.contains("gives it up"));
    place.nothing_is_left();
}

#[test]
fn all_that_is_wrong_with_a_schedule_is_told_at_once() {
    let sandbox = Sandbox::with_script();
    sandbox.write("a.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = ['26:00', '06:00']\n");
    sandbox.write("b.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = '22-06'\n");
    sandbox.write("c.toml", "command = 'true'\n[schedule]\ntimezone = 'Mars/Olympus'\ncron = '0 25 * * *'\nonly_between = ['22:00']\n");
    for (file, said) in [
        ("a.toml", "`26:00` is not a time of day"),
        ("b.toml", "expected two times of day"),
        ("c.toml", "is two times of day, and 1 stand there"),
    ] {
        let ended = sandbox.lamp(&["check", file]);
        assert!(ended.out.contains(said), "{ended:?}");
        for key in ["`schedule.timezone`", "`schedule.cron`", "`schedule.only_between`"] {
            assert_eq!(ended.out.matches(key).count(), 1, "{key}: {ended:?}");
        }
    }
}

/// The rule waits longer at first than a short window says.
#[test]
fn idle_window_that_somebody_asks_for_is_told_as_it_is_held() {
    let sandbox = Sandbox::with_script();
    let said = |verb: &str, idle: &[&str]| {
        let ended = sandbox
            .lamp(&[&[verb], idle, &["--max-runtime", "1h", "--", "sh", "train.py"]].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.err
    };
    for verb in ["check", "plan"] {
        let short = said(verb, &["--idle", "30s"]);
        assert!(short.contains("`idle = \"30s\"` holds once the work has gone on for 1m 30s; before that it takes up to 2m of silence"), "{short}");
        assert!(said(verb, &["--idle", "15m"]).contains("up to 30m of silence"));
        for unsaid in [&[][..], &["--idle", "off"]] {
            assert!(!said(verb, unsaid).contains("of silence"), "{verb} {unsaid:?}");
        }
    }
}

#[test]
fn job_name_unfit_for_an_id_warns_and_an_empty_one_is_refused() {
    let sandbox = Sandbox::with_script();
    let check = |name: &str| sandbox.lamp(&["check", "--name", name, "--", "sh", "train.py"]);
    let odd = check("Bad Name/../x");
    assert!(
        odd.code == 0
            && odd.out.contains(
                "warning: `name`: the id of each of its jobs begins with `bad-name----x-`"
            ),
        "{odd:?}"
    );
    for plain in ["digits", "My Job", "train_v2.1"] {
        assert!(!check(plain).out.contains("`name`"), "{plain}");
    }
    for empty in ["", " "] {
        let refused = check(empty);
        assert!(
            refused.code == 100 && refused.out.contains("error: `name`: is empty"),
            "{refused:?}"
        );
    }
    // What is taken all the same is not told to whoever wants to hear of nothing but faults.
    let quiet = sandbox.lamp(&["run", "-q", "--name", "Bad Name/../x", "--", "true"]);
    assert_eq!((quiet.code, quiet.err.contains("warning")), (0, false), "{quiet:?}");
}

#[test]
fn silent_job_has_an_empty_log_and_no_stop_hint_once_it_ends() {
    let place = Place::new("trap '' TERM; while [ ! -e GO ]; do sleep 0.05; done");
    assert_eq!(
        place.0.lamp(&["run", "-d", "--name", "mute", "--idle", "off", "--", "sh", "job.sh"]).code,
        0
    );
    place.until("mute", "running");
    let log = place.0.lamp(&["logs", "mute"]);
    assert!(
        log.code == 0
            && log.out.is_empty()
            && log.err.contains("mute-")
            && log.err.contains("has printed nothing yet"),
        "{log:?}"
    );
    assert!(place.0.lamp(&["status", "mute"]).err.contains("`lamp stop mute-"));
    let stopped = place.0.lamp(&["stop", "mute"]);
    assert!(stopped.err.contains("shows when it is over"), "{stopped:?}");
    let ends = place.0.lamp(&["status", "mute"]);
    assert!(
        !ends.err.contains("`lamp stop")
            && ends.err.contains("`lamp cancel mute-")
            && ends.err.contains("ends it sooner"),
        "{ends:?}"
    );
    place.0.write("go", "");
    wait_until("it has ended", || place.status("mute")["ended"].is_string().then_some(()));
    assert!(place.0.lamp(&["logs", "mute"]).err.contains("has printed nothing\n"));
    place.nothing_is_left();
}

#[test]
fn daemon_takes_a_name_and_says_what_it_does() {
    let place = Place::new("exit 0");
    place.0.write("jobs/soon.toml", "command = 'true'\nwatch.idle = 'off'\n[schedule]\n");
    assert_eq!(place.0.lamp(&["apply", "jobs"]).code, 0);
    let (daemon, words) = place.driving(&["daemon"]);
    for told in ["run: ", "launched", "settled", "outcome=succeeded"] {
        let line = words.until(told);
        assert!(line.contains(" INFO "), "{line}");
    }
    let (_, listing) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(listing["jobs"][0]["state"], "succeeded", "{listing}");
    signal(daemon.id(), "INT");
    assert_eq!(end(daemon).0, 0);
    assert_eq!(place.0.lamp(&["run", "-d", "--name", "My Job", "--", "sh", "job.sh"]).code, 0);
    let (code, _, err) = end(place.start(&["daemon", "--job", "My Job", "--until-done"]));
    assert_eq!(code, 0, "{err}");
    place.until("My Job", "succeeded");
    place.nothing_is_left();
}

/// What is looked for after a launch is no reason to wait for a job root that has fallen silent.
#[test]
#[cfg(feature = "aws")]
fn ctrl_c_after_a_launch_waits_for_no_look_at_other_jobs() {
    use lamp_test_support::ec2::{FalseEc2, Fault, Options};
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let place = Place::new("touch GO; sleep 1000");
    place.0.write(
        "home/.config/lamplighter/config.toml",
        format!("job_root = 's3://{}/root'\n", ec2.bucket("jobs")),
    );
    ec2.fault(
        Fault::slow("GET /jobs-*", std::time::Duration::from_secs(3600))
            .when("prefix", "root/jobs/")
            .always(),
    );
    let mut command = place.0.command(&["run", "--idle", "off", "--", "sh", "job.sh"]);
    let piped = std::process::Stdio::piped;
    let run = command
        .envs(ec2.env())
        .stdout(piped())
        .stderr(piped())
        .spawn()
        .expect("lamp was built for this test");
    wait_until("it runs", || place.0.path().join("go").exists().then_some(()));
    let began = std::time::Instant::now();
    signal(run.id(), "INT");
    let (code, _, err) = end(run);
    assert!(code == 130 && err.contains("detached; job job-"), "{code}: {err}");
    assert!(
        began.elapsed() < std::time::Duration::from_secs(60),
        "a silent bucket is given up after two minutes"
    );
}

/// Nobody answers a plan here, and somebody leaves meanwhile.
#[test]
#[cfg(feature = "aws")]
fn ctrl_c_before_a_job_is_made_says_that_nothing_was_started() {
    let sandbox = Sandbox::with_script();
    sandbox.write("jobs/a.toml", "command = 'true'\nmachine.cloud = 'aws'\nlimits.budget = 20\n");
    for (words, said) in [
        (
            &["run", "--cloud", "aws", "--budget", "20", "--", "true"][..],
            "left before the job was made\nnothing was started",
        ),
        (&["apply", "jobs"], "left before anything was done\nnothing was changed"),
    ] {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", silent.local_addr().expect("it has one"));
        let mut command = sandbox.command(words);
        command
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x");
        let lamp = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("lamp was built for this test");
        let asked = silent.try_clone().expect("a handle");
        let _held = soon(move || asked.accept()).expect("it asks").expect("a connection");
        signal(lamp.id(), "INT");
        let (code, _, err) = end(lamp);
        assert!(code == 130 && err.contains(said), "{words:?}: {code}: {err}");
    }
}
