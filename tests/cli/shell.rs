//! The shell around the verbs: usage errors, formats, colour, readers that go away, exit codes.

use std::process::Stdio;

use super::sandbox::{Sandbox, heard};

#[test]
fn a_mistake_on_the_command_line_is_exit_code_2_and_says_the_same_as_the_file() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&["check", "--idle", "15"]);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    assert!(
        ended.err.contains("`15` has no unit, write `15s` for seconds or `15m` for minutes"),
        "{ended:?}"
    );
    assert_eq!(sandbox.lamp(&["chekc"]).code, 2);
    assert!(sandbox.lamp(&["chekc"]).err.contains("check"), "a misspelt verb is recognised");
    assert_eq!(sandbox.lamp(&["check", "--spot", "--on-demand"]).code, 2);
}

#[test]
fn with_json_errors_are_json_on_stderr() {
    let sandbox = Sandbox::new();
    for (args, code) in [
        (&["check", "nope.toml", "-o", "json"][..], 101),
        (&["check", "--idle", "15", "-o", "json"], 2),
        (&["init", "nowhere", "-o", "jsonl"], 101),
    ] {
        let ended = sandbox.lamp(args);
        assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{args:?}");
        let document: serde_json::Value =
            serde_json::from_str(&ended.err).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        assert_eq!(document["error"]["code"], code, "{document}");
        assert!(
            document["error"]["what"].as_str().is_some_and(|what| !what.is_empty()),
            "{document}"
        );
    }
}

#[test]
fn colour_is_a_choice_and_meaning_never_rests_on_it() {
    let sandbox = Sandbox::new();
    assert!(!sandbox.lamp(&["check", "nope.toml"]).err.contains('\u{1b}'));
    assert!(sandbox.lamp(&["check", "nope.toml", "--color", "always"]).err.contains('\u{1b}'));
    let ended = sandbox.end(sandbox.command(&["check", "nope.toml"]).env("NO_COLOR", "1"));
    assert!(!ended.err.contains('\u{1b}'));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lamp runs");
    drop(child.stdout.take());
    let ended = heard(child);
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn completions_are_made_for_three_shells() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = sandbox.lamp(&["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(ended.out.contains("check") && ended.out.contains("max-runtime"), "{shell}");
    }
}

#[test]
fn a_job_root_that_is_no_place_is_refused_with_a_hint() {
    let sandbox = Sandbox::with_script();
    let ended = sandbox.lamp(&["check", "--job-root", "gs://bucket", "--", "sh", "train.py"]);
    assert_eq!(ended.code, 100);
    assert_eq!(
        ended.err,
        "error: `gs://bucket` cannot be the job root: it is not a kind of place that is known\n\
         hint: write `--job-root ~/lamp-jobs` or `--job-root s3://bucket/prefix`\n"
    );
}

#[test]
fn help_names_the_verbs_and_goes_to_stdout() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&["--help"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    for verb in ["init", "check", "completions"] {
        assert!(ended.out.contains(&format!("\n  {verb} ")), "{verb} in {}", ended.out);
    }
    let (lines, widest) = (ended.out.lines().count(), ended.out.lines().map(str::len).max());
    assert!(lines <= 50 && widest <= Some(80), "{lines} lines, {widest:?} columns");
    let completions = sandbox.lamp(&["completions", "fish"]).out;
    let verbs = completions.lines().filter_map(|line| {
        line.split_once("__fish_lamp_needs_command\" -f -a \"")?.1.split('"').next()
    });
    let missing: Vec<&str> = verbs
        .filter(|verb| {
            !["ai-platform", "man", "ps", "schema"].contains(verb)
                && !ended.out.contains(&format!("\n  {verb} "))
        })
        .collect();
    assert!(missing.is_empty(), "`lamp --help` does not name {missing:?}");
}
