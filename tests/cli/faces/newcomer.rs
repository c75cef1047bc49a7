//! What people type first, and what they mean by it: each mistake is answered with a line that
//! works.

use crate::place::{Place, end};
use crate::sandbox::Sandbox;

#[test]
fn script_or_folder_in_place_of_a_job_file_gets_a_working_hint() {
    let sandbox = Sandbox::with_script();
    for verb in ["run", "check", "plan", "rehearse"] {
        let ended = sandbox.lamp(&[verb, "train.py"]);
        assert_eq!(ended.code, 100, "{ended:?}");
        assert!(
            ended.err.starts_with("error: `train.py` is a script, not a job file\n"),
            "{verb}: {}",
            ended.err
        );
        assert!(
            ended.err.contains("hint: `lamp run -- python3 train.py` runs it"),
            "{}",
            ended.err
        );
    }
    for folder in [".", &sandbox.path().display().to_string()] {
        let ended = sandbox.lamp(&["check", folder]);
        assert_eq!((ended.code, &*ended.out), (100, ""));
        let expected = "error: `.` is a folder, not a job file\nhint: `lamp init .` writes a job file into it\n";
        assert_eq!(ended.err, expected, "{folder}");
    }
    sandbox.write("sub/lamp.toml", "command = 'true'\n");
    let ended = sandbox.lamp(&["run", "sub"]);
    assert!(
        ended
            .err
            .contains("its job file is `sub/lamp.toml`: name that, as in `lamp run sub/lamp.toml`"),
        "{}",
        ended.err
    );
    assert_eq!(sandbox.lamp(&["run", "nope.py"]).code, 101, "what is not there is not there");
}

#[test]
fn status_without_jobs_says_how_to_make_one() {
    let sandbox = Sandbox::new();
    for (verb, code) in [("status", 0), ("receipt", 101), ("logs", 101)] {
        let ended = sandbox.lamp(&[verb]);
        assert_eq!(ended.code, code);
        assert!(
            ended.err.contains("no jobs in")
                && ended.err.contains("hint: `lamp init` writes a job file"),
            "{verb}: {}",
            ended.err
        );
    }
    assert_eq!(
        sandbox.json(&["status", "-o", "json"]).1,
        serde_json::json!({"caps": null, "jobs": [], "left_out": []})
    );
}

#[test]
fn it_is_said_whether_the_job_file_of_the_folder_was_used() {
    let place = Place::new("exit 0");
    place.0.write("lamp.toml", "name = 'mine'\ncommand = ['sh', 'job.sh']\n");
    let said = |words: &[&str]| {
        let ended = place.0.lamp(&[&["run", "--dry-run"], words].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.err
    };
    assert!(said(&[]).starts_with("the job is `lamp.toml`\n"));
    assert!(said(&["--", "true"]).starts_with(
        "the job is the command line alone, without `lamp.toml`; `lamp run lamp.toml -- ...`"
    ));
    let named = said(&["lamp.toml", "--", "true"]);
    assert!(!named.contains("the job is"), "who names the file knows: {named}");
}

#[test]
fn live_line_has_no_verdict_on_what_is_over() {
    let place = Place::new("exit 0");
    let (code, _, err) = end(place.start(&["run", "--", "sh", "job.sh"]));
    assert_eq!(code, 0, "{err}");
    for line in err.lines().filter(|line| line.starts_with("job-")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            words[1] == "running" || !["starting", "succeeded", "busy"].contains(&words[2]),
            "{line}"
        );
    }
    assert!(err.contains("packed 1 file of this folder"), "{err}");
    place.nothing_is_left();
}

#[test]
fn run_says_at_most_six_lines_before_the_output() {
    let place = Place::new("echo ready");
    let limits = ["run", "--max-runtime", "1h", "--budget", "1", "--", "sh", "job.sh"];
    let (code, _, err) = end(place.start(&limits));
    let before = err.lines().take_while(|line| !line.contains("; Ctrl-C detaches")).count() + 1;
    assert!(code == 0 && before <= 6, "{before} lines: {err}");
    place.nothing_is_left();
}

#[test]
fn job_that_is_not_understood_is_listed_with_a_word() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.local/state/lamplighter/jobs/newer-222222/spec.json", "{\"format\": 99}");
    let (code, document) = sandbox.json(&["status", "-o", "json"]);
    assert_eq!(
        (code, &document["jobs"], &document["left_out"][0]["job"]),
        (0, &serde_json::json!([]), &"newer-222222".into())
    );
    assert!(
        document["left_out"][0]["why"].as_str().is_some_and(|why| why.contains("format 99")),
        "{document}"
    );
}

/// A rehearsal is over when it has said its word, and what a job had not made yet was not lost.
#[test]
fn rehearsal_that_is_over_does_not_stand_among_the_jobs() {
    let sandbox = Sandbox::new();
    let receipt = |job: &str, name: &str| {
        let mut record: serde_json::Value =
            serde_json::from_str(include_str!("../../data/v1/receipt.json")).expect("a record");
        (record["job"], record["name"], record["losses"]) =
            (job.into(), name.into(), serde_json::json!(["output `results/*` was not there"]));
        sandbox.write(
            &format!("home/.local/state/lamplighter/jobs/{job}/receipt.json"),
            record.to_string(),
        );
    };
    receipt("proj-rehearsal-822mn5", "proj-rehearsal");
    let alone = sandbox.lamp(&["status"]);
    assert_eq!((alone.code, &*alone.out), (0, ""), "{alone:?}");
    assert!(
        alone.err.contains("nothing runs; ended: 1 job; `lamp status --all` shows them"),
        "{alone:?}"
    );
    receipt("proj-7f3k2q", "proj");
    let jobs = sandbox.lamp(&["status"]);
    assert!(jobs.out.contains("proj-7f3k2q") && !jobs.out.contains("rehearsal"), "{}", jobs.out);
    assert!(sandbox.lamp(&["status", "--all"]).out.contains("proj-rehearsal-822mn5"));
    let said = sandbox.lamp(&["receipt", "proj-rehearsal"]).out;
    assert!(
        said.contains("  output `results/*` was not there") && !said.contains("lost"),
        "{said}"
    );
}

#[test]
fn missing_checkpoint_path_is_one_error() {
    let sandbox = Sandbox::with_script();
    for path in ["", "path = ''\n"] {
        sandbox.write(
            "job.toml",
            format!("command = ['sh', 'train.py']\n[checkpoint]\n{path}interval = '1m'\n"),
        );
        let ended = sandbox.lamp(&["check", "job.toml"]);
        assert!(
            ended.out.contains("`checkpoint.path`: is missing")
                && ended.out.ends_with("job.toml: 1 error\n"),
            "{}",
            ended.out
        );
    }
}

#[test]
fn cloud_that_this_build_cannot_drive_is_a_finding() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[machine]\ncloud = 'aws'\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    let found =
        ended.out.contains("`machine.cloud`: is `aws`, and this `lamp` was built without it");
    assert_eq!(found, cfg!(not(feature = "aws")), "{}", ended.out);
}

/// `lamp run -- $COMMAND` with nothing in it must not run another job for its whole length; and the
/// value of a flag that nobody knows is no command.
#[test]
fn what_was_mistyped_runs_nothing_else() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp.toml", "command = ['sh', 'train.py']\n");
    for words in [
        &["run", "--"][..],
        &["check", "lamp.toml", "--"],
        &["plan", "--"],
        &["run", "--name", "x", "--"],
    ] {
        let ended = sandbox.lamp(words);
        assert_eq!(
            (ended.code, ended.err.contains("nothing stands after `--`")),
            (2, true),
            "{words:?}: {ended:?}"
        );
    }
    let ended = sandbox.lamp(&["run", "--budgt", "5", "retry.toml"]);
    assert!(
        ended.code == 2 && ended.err.contains("--budget") && !ended.err.contains("two dashes"),
        "{ended:?}"
    );
    for (words, about) in
        [(&["help"][..], "Usage: lamp "), (&["help", "receipt"], "Usage: lamp receipt")]
    {
        let ended = sandbox.lamp(words);
        assert!(ended.code == 0 && ended.out.contains(about), "{words:?}: {ended:?}");
    }
}
