//! What is refused, with a clear error and a hint, before anything is touched.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::bench::{Bench, Finish as _};
use crate::jobs::{assert_code, text};

/// Runs a job file that cannot run; gives its findings.
fn findings(bench: &Bench) -> Vec<Value> {
    let out = bench.lamp(&["run", "job.toml", "-o", "json"]).finish();
    assert_code(&out, 100);
    let error: Value = serde_json::from_slice(&out.stderr)
        .unwrap_or_else(|_| panic!("one JSON object: {}", text(&out.stderr)));
    assert!(!bench.root().exists(), "nothing was submitted");
    error["error"]["findings"].as_array().expect("findings are listed").clone()
}

#[test]
fn every_mistake_of_a_job_file_is_told_at_once() {
    let bench = Bench::new();
    bench.write(
        "job.toml",
        "comand = 'true'\ncommand = ['python3', 'nowhere.py']\n[watch]\nidle = 5\nstal = '5m'\n",
    );
    let found = findings(&bench);
    let said = |word: &str| {
        assert!(
            found.iter().any(|finding| finding.to_string().contains(word)),
            "`{word}` is not said: {found:#?}"
        )
    };
    said("did you mean `command`");
    said("did you mean `stall`");
    said("watch.idle");
    said("unit");
    assert!(
        found.iter().all(|finding| finding["line"].is_u64() || finding["severity"] == "warning"),
        "{found:#?}"
    );
}

#[test]
fn what_is_not_there_is_said() {
    let bench = Bench::new();
    let out = bench.lamp(&["run", "nowhere.toml"]).finish();
    assert!(matches!(out.status.code(), Some(100 | 101)), "{out:?}");
    assert!(
        text(&out.stderr).contains("nowhere.toml") && text(&out.stderr).contains("hint:"),
        "{}",
        text(&out.stderr)
    );

    bench.write("w/readme", "x");
    bench.write("job.toml", "workdir = 'w'\ncommand = ['no-such-program-here']\n");
    assert!(
        findings(&bench).iter().any(|finding| finding.to_string().contains("no-such-program-here"))
    );
    bench.write("job.toml", "workdir = 'not-here'\ncommand = 'true'\n");
    assert!(findings(&bench).iter().any(|finding| finding.to_string().contains("not-here")));
}

#[test]
fn secret_ships_only_when_it_is_acknowledged() {
    let bench = Bench::new();
    bench.shell("grep -c ghp_ notes.txt", "");
    // Put together here, so that no scanner of this repository finds it.
    bench.write(
        "w/notes.txt",
        &format!("first line\ntoken = {}{}\n", "ghp_", "k3Jd8sLq0ZpXvB7nMw2RtY5uHc9EaF1gT6iO"),
    );
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 102);
    let said = text(&out.stderr);
    assert!(said.contains("notes.txt:2"), "{said}");
    assert!(
        said.contains("--allow-secret notes.txt:") && !said.contains("k3Jd8sLq0"),
        "the rule is named, the secret is not: {said}"
    );
    assert!(!bench.root().exists(), "nothing was submitted");

    let allow = said
        .split("--allow-secret ")
        .skip(1)
        .filter_map(|rest| rest.split(['`', ' ', '\n']).next())
        .find(|word| word.starts_with("notes.txt:"));
    let out = bench.lamp(&["run", "job.toml", "--allow-secret", allow.unwrap()]).finish();
    assert_code(&out, 0);
    assert_eq!(text(&out.stdout), "1\n");
}

#[test]
fn job_root_that_cannot_be_written_is_told_and_nothing_starts() {
    let bench = Bench::new();
    bench.shell("touch $E2E_BENCH/ran", "");
    bench.write("a-file", "");
    let out =
        bench.lamp(&["run", "job.toml"]).env("LAMP_JOB_ROOT", bench.file("a-file/root")).finish();
    assert_code(&out, 103);
    let said = text(&out.stderr);
    assert!(said.contains("a-file") && said.contains("hint:"), "{said}");
    assert!(!bench.file("ran").exists());

    let out =
        bench.lamp(&["run", "job.toml"]).env("XDG_STATE_HOME", bench.file("a-file/state")).finish();
    assert_code(&out, 103);
    let said = text(&out.stderr);
    assert!(said.contains("a-file/state") && said.contains("hint:"), "{said}");
    assert!(bench.only_job().is_none(), "nothing was submitted");
    assert!(!bench.file("ran").exists());
}

/// Every file of the job root with its bytes.
fn picture(bench: &Bench) -> BTreeMap<PathBuf, Vec<u8>> {
    bench
        .find("jobs-root", "")
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn job_of_a_newer_version_is_left_alone() {
    let bench = Bench::new();
    bench.trainer("STEPS = 1", "");
    assert_code(&bench.lamp(&["run", "job.toml"]).finish(), 0);
    let job = bench.only_job().unwrap();
    let spec = bench.root().join("jobs").join(&job).join("spec.json");
    let newer =
        std::fs::read_to_string(&spec).unwrap().replacen("\"format\": 1", "\"format\": 99", 1);
    std::fs::write(&spec, newer).unwrap();
    // Without a receipt it is a job that somebody still has to drive.
    std::fs::remove_file(spec.with_file_name("receipt.json")).unwrap();
    let before = picture(&bench);
    for words in [
        vec!["status", &job],
        vec!["extend", &job, "1h"],
        vec!["daemon", "--job", &job, "--until-done"],
    ] {
        let out = bench.lamp(&words).finish();
        let said = text(&out.stderr);
        assert_code(&out, 102);
        assert!(said.contains("format 99") && said.contains("hint:"), "{words:?}: {said}");
    }
    assert_eq!(picture(&bench), before, "nothing was touched");
    // To end it, its id is enough.
    assert_code(&bench.lamp(&["stop", &job]).finish(), 0);

    // And it does not stand in the way of the others.
    let out = bench.lamp(&["run", "job.toml"]).finish();
    assert_code(&out, 0);
    let listed = bench.lamp(&["status"]).finish();
    assert_code(&listed, 0);
    assert!(text(&listed.stdout).contains("succeeded"), "{}", text(&listed.stdout));
    assert!(text(&listed.stderr).contains("left out: job `"), "{}", text(&listed.stderr));
}
