//! Directories of job files, schedules and caps, through the real binary.

use serde_json::Value;

use crate::place::{Place, end, signal, wait_until};
use crate::plan::plan_aws::{market, root};
use crate::sandbox::Sandbox;

const LONG: &str =
    "command = 'trap \"exit 5\" TERM; while :; do echo x; sleep 0.1; done'\nwatch.idle = 'off'\n";
const SHORT: &str = "command = 'echo done'\nwatch.idle = 'off'\n";

impl Place {
    fn apply(&self, more: &[&str]) -> Value {
        let words: Vec<&str> =
            ["apply", "jobs", "-o", "json"].iter().chain(more).copied().collect();
        let ended = self.0.lamp(&words);
        assert_eq!(ended.code, 0, "{ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    fn schedules(&self) -> Vec<Value> {
        let (code, shown) = self.0.json(&["schedules", "-o", "json"]);
        assert_eq!(code, 0);
        shown["schedules"].as_array().unwrap().clone()
    }

    fn jobs(&self) -> usize {
        let (_, listing) = self.0.json(&["status", "-o", "json"]);
        listing["jobs"].as_array().unwrap().len()
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.path().join(path)).unwrap();
    }
}

/// `file change` of each.
fn says(applied: &Value) -> Vec<String> {
    let changes = applied["changes"].as_array().unwrap();
    changes
        .iter()
        .map(|change| {
            format!("{} {}", change["file"].as_str().unwrap(), change["change"].as_str().unwrap())
        })
        .collect()
}

fn made(applied: &Value, file: &str) -> String {
    let change = applied["changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|change| change["file"] == file)
        .unwrap();
    change["made"]
        .as_str()
        .unwrap_or_else(|| panic!("nothing was made of {file}: {applied}"))
        .to_owned()
}

#[test]
fn directory_applied_again_makes_no_job_and_spares_foreign_jobs() {
    let place = Place::new("while :; do echo x; sleep 0.1; done");
    // Somebody's own job, of the same name as one of the files.
    let own =
        place.0.lamp(&["run", "--detach", "--name", "long", "--idle", "off", "--", "sh", "job.sh"]);
    let own = own.out.trim();
    place.until(own, "running");
    place.0.write("jobs/short.toml", SHORT);
    place.0.write("jobs/long.toml", LONG);
    place.0.write("jobs/notes.txt", "not a job");
    let planned = place.apply(&["--dry-run"]);
    assert_eq!(says(&planned), ["long.toml create", "short.toml create"]);
    assert_eq!(place.jobs(), 1, "a dry run makes nothing");

    let first = place.apply(&[]);
    let (long, short) = (made(&first, "long.toml"), made(&first, "short.toml"));
    place.until(&short, "succeeded");
    place.until(&long, "running");
    let again = place.apply(&[]);
    assert_eq!(says(&again), ["long.toml unchanged", "short.toml unchanged"]);
    assert_eq!(place.jobs(), 3, "what has ended is not run again");

    // A comment, or another order of the keys, asks for nothing else: no second machine is bought
    // for it.
    place.0.write("jobs/long.toml", format!("# for ever\n\n{LONG}"));
    assert_eq!(says(&place.apply(&[])), ["long.toml unchanged", "short.toml unchanged"]);

    // Other words are another job; the old one runs on, unless it is to be replaced.
    place.0.write("jobs/long.toml", format!("{LONG}env.A = 1\n"));
    let refused = place.0.lamp(&["apply", "jobs", "--replace"]);
    assert_eq!(refused.code, 102, "{refused:?}");
    assert!(refused.err.contains("this stops 1 job"), "{refused:?}");
    place.until(&long, "running");
    let replaced = place.apply(&["--replace", "--yes"]);
    let newer = made(&replaced, "long.toml");
    assert_ne!(newer, long);
    assert_eq!(
        place.receipt(&long)["outcome"],
        "stopped",
        "it has ended before the new one was made"
    );
    place.until(&newer, "running");

    // What is gone runs on until somebody prunes.
    place.remove("jobs/long.toml");
    assert_eq!(says(&place.apply(&[])), ["short.toml unchanged", "long.toml gone"]);
    place.until(&newer, "running");
    let pruned = place.apply(&["--prune", "-y"]);
    assert_eq!(pruned["changes"][1]["stops"][0], newer.as_str());
    place.until(&newer, "stopped");
    assert_eq!(says(&place.apply(&["--prune", "-y"])), ["short.toml unchanged"]);

    // It comes back, and says what it said: its job was stopped, and nothing runs it again unasked.
    place.0.write("jobs/long.toml", format!("{LONG}env.A = 1\n"));
    let back = place.0.lamp(&["apply", "jobs", "--dry-run"]);
    let is_told = back
        .out
        .contains("its job was stopped; `lamp apply jobs/long.toml --again` makes it again");
    assert!(
        back.code == 0 && is_told && back.out.matches("makes it again").count() == 1,
        "{back:?}"
    );
    // As it was told: of this set, so that the next call sees it, and never twice.
    let again = place.0.lamp(&["apply", "jobs/long.toml", "--again", "-o", "json"]);
    let third = made(
        &serde_json::from_str(&again.out).unwrap_or_else(|error| panic!("{error}: {again:?}")),
        "long.toml",
    );
    place.until(&third, "running");
    assert_eq!(says(&place.apply(&["--again"])), ["long.toml unchanged", "short.toml unchanged"]);
    assert_eq!(place.0.lamp(&["stop", &third]).code, 0);
    let ends = place.0.lamp(&["apply", "jobs", "--again", "--dry-run"]);
    let line = ends.out.lines().find(|line| line.starts_with("long.toml")).unwrap_or_default();
    let has_ended = line.split_whitespace().nth(2) == Some("again");
    assert!(
        has_ended
            || line.contains(
                "its job ends, as a user asked; after that `lamp apply jobs/long.toml --again`"
            ),
        "{ends:?}"
    );
    place.until(&third, "stopped");

    place.until(own, "running");
    assert_eq!(place.0.lamp(&["stop", "--wait", own]).code, 0);
    place.nothing_is_left();
}

/// One of them makes the job; to none of the others it is said that nothing runs.
#[test]
fn of_calls_at_once_one_makes_the_job_and_the_others_say_so() {
    let place = Place::new("");
    place.0.write("jobs/one.toml", LONG);
    let calls: Vec<_> = (0..4).map(|_| place.start(&["apply", "jobs"])).collect();
    for (code, _, err) in calls.into_iter().map(end) {
        let said = ["one.toml: job one-", "nothing to do"].iter().any(|words| err.contains(words));
        assert!(code == 0 && said && !err.contains("or billed"), "{code}: {err}");
    }
    assert_eq!(place.jobs(), 1);
    place.until("one", "running");
    assert_eq!(place.0.lamp(&["stop", "--wait", "one"]).code, 0);
    place.nothing_is_left();
}

/// A call left the old job of a changed file running: the next names it, and `--replace` still
/// reaches it.
#[test]
fn older_job_of_an_unchanged_file_is_stopped_by_replace() {
    let place = Place::new("");
    place.0.write("jobs/once.toml", LONG);
    let old = made(&place.apply(&[]), "once.toml");
    place.until(&old, "running");
    place.0.write("jobs/once.toml", format!("{LONG}env.A = 1\n"));
    let new = made(&place.apply(&[]), "once.toml");
    place.until(&new, "running");
    let told = place.0.lamp(&["apply", "jobs"]);
    let is_told = told.out.contains(&format!("leaves {old} running"))
        && told.err.contains("`--replace` stops the older jobs of a file");
    assert!(told.code == 0 && is_told, "{told:?}");
    assert_eq!(place.apply(&[])["changes"][0]["leaves"][0], old.as_str());
    let replaced = place.apply(&["--replace", "--yes"]);
    assert_eq!(
        (says(&replaced), &replaced["changes"][0]["stops"][0]),
        (vec!["once.toml unchanged".to_owned()], &Value::from(old.as_str()))
    );
    place.until(&old, "stopped");
    assert_eq!(place.status(&new)["state"], "running");
    assert_eq!(place.0.lamp(&["stop", "--wait", &new]).code, 0);
    place.nothing_is_left();
}

/// Its work is done by another job, which is not of the set.
#[test]
fn what_somebody_went_on_with_is_not_made_again() {
    let place = Place::new("");
    let saves = "command = 'mkdir -p ckpt; echo 1 > ckpt/state; while [ ! -e GO ]; do sleep 0.1; done'\nwatch.idle = 'off'\n\
                 checkpoint.path = 'ckpt'\ncheckpoint.interval = '1s'\n";
    place.0.write(
        "jobs/saves.toml",
        saves.replace("GO", &place.0.path().join("go").to_string_lossy()),
    );
    let first = made(&place.apply(&[]), "saves.toml");
    place.until(&first, "running");
    wait_until("it has saved", || {
        (place.status(&first)["checkpoints"].as_u64() > Some(0)).then_some(())
    });
    assert_eq!(place.0.lamp(&["stop", "--wait", &first]).code, 0);
    let told = place.0.lamp(&["apply", "jobs", "--dry-run"]);
    assert!(
        told.out
            .contains("its job was stopped; `lamp apply jobs/saves.toml --again` makes it again"),
        "{told:?}"
    );

    let next = place.0.lamp(&["start", &first, "--detach", "-q"]);
    assert_eq!(next.code, 0, "{next:?}");
    let next = next.out.trim().to_owned();
    let told = place.0.lamp(&["apply", "jobs", "--again"]);
    assert!(
        told.out.contains(&format!("its job goes on as {next}"))
            && told.err.contains("nothing to do"),
        "{told:?}"
    );
    place.0.write("go", "");
    place.until(&next, "succeeded");
    let told = place.0.lamp(&["apply", "jobs", "--again"]);
    assert!(!told.out.contains("its job") && told.err.contains("nothing to do"), "{told:?}");
    place.nothing_is_left();
}

#[test]
fn one_file_with_a_mistake_and_nothing_is_done() {
    let place = Place::new("");
    place.0.write("jobs/a.toml", SHORT);
    place.0.write("jobs/b.toml", "comand = 'x'\n");
    place.0.write("jobs/c.toml", "command = 'true'\n[schedule]\ncron = '0 25 * * *'\n");
    let ended = place.0.lamp(&["apply", "jobs"]);
    assert_eq!(ended.code, 100, "{ended:?}");
    for part in ["did you mean `command`?", "schedule.cron", "2 of 3 files cannot be applied"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    // A program reads one document, with all of it.
    let told = place.0.lamp(&["apply", "jobs", "-o", "json"]);
    let document: Value =
        serde_json::from_str(&told.err).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    let files: Vec<&Value> = std::iter::once(&document["error"])
        .chain(document["error"]["others"].as_array().unwrap())
        .map(|fault| &fault["file"])
        .collect();
    assert_eq!((told.code, told.out.as_str(), files.len()), (100, "", 2), "{told:?}");
    assert!(files.iter().all(|file| file.is_string()) && files[0] != files[1], "{document:#}");
    assert_eq!(place.jobs(), 0);
    assert_eq!(place.0.lamp(&["apply", "nowhere"]).code, 101);
}

#[test]
fn schedule_is_kept_shown_changed_and_ended() {
    let place = Place::new("");
    let nightly = |cron: &str| {
        format!("command = ['sh', 'do.sh']\n[schedule]\ncron = '{cron}'\ntimezone = 'UTC'\n")
    };
    place.0.write("jobs/do.sh", "echo one\n");
    place.0.write("jobs/nightly.toml", nightly("0 22 1 1 *"));
    let ended = place.0.lamp(&["apply", "jobs"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("no daemon runs here"), "{}", ended.err);
    let shown = place.schedules();
    assert_eq!(
        (shown[0]["set"].as_str(), shown[0]["name"].as_str()),
        (Some("jobs"), Some("nightly"))
    );
    assert!(shown[0]["next"].as_str().unwrap().ends_with("-01-01T22:00:00Z"), "{shown:?}");
    assert_eq!(shown[0]["last"], Value::Null);
    assert_eq!(says(&place.apply(&[])), ["nightly.toml unchanged"]);
    let since = || place.0.read("home/.local/state/lamplighter/schedules/jobs/nightly.json");
    let since = || serde_json::from_str::<Value>(&since()).unwrap()["since"].clone();

    // Another script, and then another time.
    let before = since();
    place.0.write("jobs/do.sh", "echo two\n");
    let shown = place.0.lamp(&["apply", "jobs", "--dry-run"]);
    assert!(shown.out.contains("another file in its workdir, the same words"), "{shown:?}");
    assert_eq!(says(&place.apply(&[])), ["nightly.toml changed"]);
    assert_eq!(since(), before, "another script makes nothing due again");
    place.0.write("jobs/nightly.toml", nightly("0 23 1 1 *"));
    let shown = place.0.lamp(&["apply", "jobs", "--dry-run"]);
    assert!(shown.out.contains("changed") && !shown.out.contains("workdir"), "{shown:?}");
    assert_eq!(says(&place.apply(&[])), ["nightly.toml changed"]);
    assert_ne!(since(), before);
    assert!(place.schedules()[0]["next"].as_str().unwrap().ends_with("-01-01T23:00:00Z"));

    // Run by hand it is a job like any other, and the schedule is as it was.
    let run = place.0.lamp(&["run", "jobs/nightly.toml"]);
    assert_eq!((run.code, run.out.as_str()), (0, "two\n"), "{run:?}");
    assert!(run.err.contains("this runs it once, now"), "{}", run.err);
    assert_eq!(place.schedules()[0]["last"], Value::Null);

    place.remove("jobs/nightly.toml");
    assert_eq!(says(&place.apply(&[])), ["nightly.toml gone"]);
    assert_eq!(
        place.0.lamp(&["apply", "jobs", "--prune"]).code,
        102,
        "it asks before it ends a schedule"
    );
    assert_eq!(place.schedules().len(), 1);
    assert_eq!(place.apply(&["--prune", "--yes"])["changes"][0]["unschedules"], true);
    assert_eq!(place.schedules().len(), 0);
    assert_eq!(place.0.lamp(&["schedules", "jobs/nightly"]).code, 101);
    place.nothing_is_left();
}

#[test]
fn cap_over_all_jobs_holds_a_launch_back_and_status_says_why() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.05; done");
    place.0.write(
        "home/.config/lamplighter/config.toml",
        "[caps]\nusd_per_hour = 1\nusd_per_day = 20\n",
    );
    let words = ["run", "--detach", "--usd-per-hour", "0.8", "--idle", "off", "--", "sh", "job.sh"];
    let first = place.0.lamp(&words).out.trim().to_owned();
    place.until(&first, "running");
    let why =
        "the cap of $1.00 an hour: 1 machine runs at $0.80/h, and this one costs up to $0.80/h";
    let plan = place.0.lamp(&["plan", "--usd-per-hour", "0.8", "--", "sh", "job.sh"]);
    assert!(
        plan.out.contains(&format!("it would wait for {why}"))
            && plan.out.contains("of your caps: $0.80 of $1.00 an hour"),
        "{plan:?}"
    );
    let fits = place.0.lamp(&["plan", "--usd-per-hour", "0.2", "--", "sh", "job.sh"]);
    assert!(!fits.out.contains("would wait"), "{fits:?}");
    let second = place.0.lamp(&words);
    assert!(second.err.contains(&format!("it waits for {why}")), "{second:?}");
    let second = second.out.trim();
    wait_until("it says why it waits", || (place.status(second)["waiting"] == why).then_some(()));
    assert_eq!(place.status(second)["state"], "submitted");
    let (_, listing) = place.0.json(&["status", "-o", "json"]);
    assert_eq!(
        (listing["caps"]["machines"].as_u64(), listing["caps"]["usd_per_hour_now"].as_f64()),
        (Some(1), Some(0.8))
    );
    assert!(place.0.lamp(&["explain", second]).out.contains(why));
    place.0.write("go", "");
    place.until(&first, "succeeded");
    let ended = place.until(second, "succeeded");
    assert_eq!(ended["waiting"], Value::Null);
    place.nothing_is_left();
}

#[test]
fn job_can_be_stopped_while_the_configuration_has_errors() {
    let place = Place::new("sleep 1000");
    let job = place
        .0
        .lamp(&["run", "--detach", "--idle", "off", "--", "sh", "job.sh"])
        .out
        .trim()
        .to_owned();
    place.until(&job, "running");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nper_day = 20\n");
    let status = place.0.lamp(&["status", &job]);
    assert!(status.code == 0 && status.out.contains("running"), "{status:?}");
    for part in ["config.toml:2: error: `caps.per_day`", "mend them before the next launch"] {
        assert!(status.err.contains(part), "{part}: {}", status.err);
    }
    assert_eq!(
        place.0.lamp(&["run", "--detach", "--", "sh", "job.sh"]).code,
        100,
        "what launches is held to its caps"
    );
    let doctor = place.0.lamp(&["doctor"]);
    assert!(doctor.code == 100 && doctor.out.contains("config.toml has errors"), "{doctor:?}");
    for looks in [&["prices", "--gpu", "A10G"][..], &["schedules"], &["sweep", "--dry-run"]] {
        let looked = place.0.lamp(looks);
        assert!(
            looked.code != 100 && looked.err.contains("the configuration has errors"),
            "{looked:?}"
        );
    }
    let more = place.0.lamp(&["extend", &job, "1h"]);
    assert!(
        more.code == 102 && more.err.contains("there is nothing to raise"),
        "it is read, and has no limit: {more:?}"
    );
    let stopped = place.0.lamp(&["stop", &job, "--wait", "-o", "json"]);
    let receipt: Value =
        serde_json::from_str(&stopped.out).unwrap_or_else(|error| panic!("{error}: {stopped:?}"));
    assert_eq!(receipt["outcome"], "stopped", "{stopped:?}");
    place.0.write("home/.config/lamplighter/config.toml", "");
    place.nothing_is_left();
}

/// Each alone would fit: the second is told before anything is made.
#[test]
fn dry_run_says_what_the_caps_would_hold_back() {
    let place = Place::new("exit 0");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 1\n");
    for file in ["a", "b"] {
        place.0.write(&format!("jobs/{file}.toml"), format!("{SHORT}machine.usd_per_hour = 0.8\n"));
    }
    let planned = place.apply(&["--dry-run"]);
    let why =
        "the cap of $1.00 an hour: 1 machine runs at $0.80/h, and this one costs up to $0.80/h";
    assert_eq!(
        (&planned["changes"][0]["waits_for"], &planned["changes"][1]["waits_for"]),
        (&Value::Null, &why.into()),
        "{planned}"
    );
    assert_eq!(planned["caps"]["usd_per_hour"], 1.0);
    let told = place.0.lamp(&["apply", "jobs", "--dry-run"]);
    assert!(told.err.contains("of your caps: $0.00 of $1.00 an hour"), "{told:?}");
    assert!(told.err.contains(&format!("b.toml: its machine would wait for {why}")), "{told:?}");
}

#[test]
fn daemon_runs_what_is_scheduled_when_it_is_due() {
    let place = Place::new("");
    let daemon = place.start(&["daemon"]);
    place.0.write("jobs/do.sh", "echo \"$LAMP_JOB\" >> \"$1\"\n");
    let log = place.0.path().join("ran");
    let file = |schedule: &str| {
        format!(
            "command = ['sh', 'do.sh', '{}']\nwatch.idle = 'off'\n[schedule]\n{schedule}\n",
            log.display()
        )
    };
    place.0.write("jobs/once.toml", file(""));
    place.0.write("jobs/minutely.toml", file("cron = '* * * * *'"));
    let applied = place.apply(&[]);
    assert_eq!(says(&applied), ["minutely.toml create", "once.toml create"]);
    let last = wait_until("both have run", || {
        let shown = place.schedules();
        let last = |name: &str| {
            shown.iter().find(|schedule| schedule["name"] == name).unwrap()["last"].clone()
        };
        let (once, minutely) = (last("once"), last("minutely"));
        (once["state"] == "succeeded" && minutely["state"] == "succeeded")
            .then_some((once, minutely))
    });
    let due = last.1["due"].as_str().unwrap();
    assert!(due.ends_with(":00Z"), "on the minute: {due}");
    assert_eq!((&last.0["reason"], &last.0["exit_code"]), (&"it was applied".into(), &0.into()));
    // Its jobs are jobs like any other, and know where they come from.
    let job = last.0["job"].as_str().unwrap();
    let spec: Value = serde_json::from_str(
        &place.0.read(&format!("home/.local/state/lamplighter/jobs/{job}/spec.json")),
    )
    .unwrap();
    assert_eq!(
        (&spec["applied"]["set"], &spec["applied"]["file"]),
        (&"jobs".into(), &"once.toml".into())
    );
    assert!(place.0.read("ran").contains(job));
    assert_eq!(
        place.apply(&["--dry-run"])["changes"][1]["change"],
        "unchanged",
        "what it made is not what the file asks for again"
    );
    signal(daemon.id(), "TERM");
    assert_eq!(end(daemon).0, 0);
    let ran = place.0.read("ran");
    assert_eq!(ran.lines().filter(|line| line.starts_with("once-")).count(), 1, "{ran}");
}

#[test]
fn launch_above_the_whole_cap_is_refused_before_a_job_is_made() {
    let place = Place::new("exit 0");
    place.0.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 0.3\n");
    let words = ["--usd-per-hour", "0.47", "--", "sh", "job.sh"];
    let ended = place.0.lamp(&[&["run", "--detach"], &words[..]].concat());
    assert_eq!((ended.code, ended.out.as_str()), (102, ""), "{ended:?}");
    let why = "it would wait for ever for the cap of $0.30 an hour: no machine runs, and this one costs up to $0.47/h, more than the cap allows";
    assert!(
        ended.err.contains(why) && ended.err.contains("hint: a higher cap in [caps]"),
        "{}",
        ended.err
    );
    assert!(place.0.lamp(&["status"]).err.contains("no jobs in"), "none was made");
    let plan = place.0.lamp(&[&["plan"], &words[..]].concat());
    assert!(plan.code == 102 && plan.err.contains(why), "as `run` would end: {plan:?}");
}

/// A spot machine counts at its bid, whoever would launch it: $0.38 an hour now with its disk and
/// address, and up to $0.43.
#[test]
fn cap_below_the_spot_bid_holds_back_apply_plan_and_run_alike() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    sandbox.write("home/.config/lamplighter/config.toml", "[caps]\nusd_per_hour = 0.4\n");
    let machine = "[machine]\ncloud = 'aws'\nmarket = 'spot'\ngpus = 'A10G'\ninstance_types = ['g5.xlarge']\n";
    sandbox.write(
        "jobs/a.toml",
        format!(
            "command = 'true'\ncheckpoint.path = 'saved'\n{machine}[limits]\nmax_runtime = '24h'\n"
        ),
    );
    let lamp = |words: &[&str]| {
        sandbox.end(sandbox.command(words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)))
    };
    let why = "the cap of $0.40 an hour: no machine runs, and this one costs up to $0.43/h";
    let applied = lamp(&["apply", "jobs", "--dry-run", "-o", "json"]);
    let found: Value =
        serde_json::from_str(&applied.out).unwrap_or_else(|error| panic!("{error}: {applied:?}"));
    assert!(
        found["changes"][0]["waits_for"].as_str().is_some_and(|waits| waits.starts_with(why)),
        "{found}"
    );
    for verb in ["plan", "run"] {
        let ended = lamp(&[verb, "jobs/a.toml"]);
        assert!(ended.code == 102 && ended.err.contains(why), "{verb}: {ended:?}");
    }
}
