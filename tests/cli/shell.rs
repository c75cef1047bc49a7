//! The shell around the verbs: usage errors, formats, colour, readers that go away, exit codes.

use std::process::Stdio;

use lamp_test_support::skipped;

use crate::sandbox::{Sandbox, heard, repository};

#[test]
fn command_line_mistake_exits_with_2_and_the_job_file_message() {
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
fn reader_that_goes_away_is_no_error() {
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

/// A terminal of zsh, because zsh completes only in one. It says when its line editor reads: a tab
/// that comes sooner is a letter. The end of the list has a mark.
const ZSH: &str = r#"zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; autoload -U compinit; compinit -u; source ./lamp.zsh; compdef _lamp lamp; setopt no_beep'
zpty -w shell 'zstyle ":completion:*" list-prompt ""; zstyle ":completion:*" insert-tab false'
zpty -w shell 'zle-line-init() { print is-""ready }; zle -N zle-line-init'
zpty -r shell said '*is-ready*'
zpty -n -w shell $'LINE\t\t'
zpty -w shell $'\x15echo is-""over'
zpty -r shell said '*is-over*'
print -r -- $said
"#;

/// The offers of a shell after these words, by its own script.
fn offered(sandbox: &Sandbox, shell: &str, words: &str) -> String {
    let script = sandbox.lamp(&["completions", shell]).out;
    sandbox.write(&format!("lamp.{shell}"), script);
    let asked = match shell {
        "bash" => format!(
            "source ./lamp.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _lamp_jobs lamp \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        ),
        "fish" => format!("source ./lamp.fish; complete -C '{words}'"),
        _ => ZSH.replace("LINE", words),
    };
    let lamp = std::path::Path::new(env!("CARGO_BIN_EXE_lamp"));
    let folder = lamp.parent().expect("a folder").display().to_string();
    let mut command = std::process::Command::new(shell);
    let no_settings = match shell {
        "bash" => "--norc",
        "fish" => "--no-config",
        _ => "-f",
    };
    let output = command
        .args([no_settings, "-c", &asked])
        .env("PATH", format!("{folder}:/usr/local/bin:/usr/bin:/bin"))
        .env("HOME", sandbox.path().join("home"))
        .env("TERM", "dumb")
        .current_dir(sandbox.path())
        .output()
        .expect("the shell is here");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn real_shells_complete_verbs_and_job_ids() {
    let sandbox = Sandbox::new();
    let receipt = repository().join("tests/data/v1/receipt.json");
    let receipt = std::fs::read_to_string(receipt).expect("the records of version 1 are kept");
    let job = "home/.local/state/lamplighter/jobs/digits-222222/receipt.json";
    sandbox.write(job, receipt);
    for shell in ["bash", "zsh", "fish"] {
        let is_here = std::process::Command::new(shell).arg("--version").output().is_ok();
        if !is_here {
            skipped("shells", format!("{shell} is needed"));
            continue;
        }
        let verbs = offered(&sandbox, shell, "lamp rec");
        assert!(verbs.contains("receipt"), "{shell}: {verbs:?}");
        let jobs = offered(&sandbox, shell, "lamp receipt dig");
        assert!(jobs.contains("digits-222222"), "{shell}: {jobs:?}");
    }
}

#[test]
fn job_root_that_is_no_place_is_refused_with_a_hint() {
    let sandbox = Sandbox::with_script();
    let ended = sandbox.lamp(&["check", "--job-root", "gs://bucket", "--", "sh", "train.py"]);
    assert_eq!(ended.code, 100);
    assert_eq!(
        ended.err,
        "error: `gs://bucket` cannot be the job root: it is not a kind of place that is known\n\
         hint: write `--job-root ~/lamp-jobs` or `--job-root s3://bucket/prefix`\n"
    );
}

/// Whether the paragraph of less used commands names this one.
fn is_named_in(help: &str, verb: &str) -> bool {
    let also = help.split_once("Also: ").and_then(|(_, rest)| rest.split_once("Options: "));
    also.is_some_and(|(also, _)| also.split([',', ' ', '\n']).any(|word| word == verb))
}

#[test]
fn help_names_the_verbs_and_goes_to_stdout() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&["--help"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    for verb in ["init", "check", "receipt"] {
        assert!(ended.out.contains(&format!("\n  {verb} ")), "{verb} in {}", ended.out);
    }
    let (lines, widest) = (ended.out.lines().count(), ended.out.lines().map(str::len).max());
    assert!(lines <= 40 && widest <= Some(80), "{lines} lines, {widest:?} columns");
    let purposes = ended.out.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let chars: Vec<(&str, usize)> =
        purposes.map(|(verb, purpose)| (verb, purpose.trim().chars().count())).collect();
    assert!(chars.len() > 20 && chars.iter().all(|(_, chars)| *chars <= 60), "{chars:?}");
    let completions = sandbox.lamp(&["completions", "fish"]).out;
    let verbs = completions.lines().filter_map(|line| {
        line.split_once("__fish_lamp_needs_command\" -f -a \"")?.1.split('"').next()
    });
    let missing: Vec<&str> = verbs
        .filter(|verb| {
            !["ai-platform", "man", "ps", "schema"].contains(verb)
                && !ended.out.contains(&format!("\n  {verb} "))
                && !is_named_in(&ended.out, verb)
        })
        .collect();
    assert!(missing.is_empty(), "`lamp --help` does not name {missing:?}");
}
