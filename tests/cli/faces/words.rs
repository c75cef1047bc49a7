//! Words that people type who know other tools, and the words that they read.

use std::process::{Command, Stdio};

use crate::sandbox::Sandbox;

/// Here a job named `count` has ended after six lines.
fn after_a_job() -> Sandbox {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&[
        "run",
        "--name",
        "count",
        "--",
        "sh",
        "-c",
        "for i in 1 2 3 4 5 6; do echo line $i; done",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    sandbox
}

#[test]
fn other_names_of_verbs_do_the_same() {
    let sandbox = after_a_job();
    let status = sandbox.lamp(&["status"]);
    assert!(status.out.contains("count-"), "{status:?}");
    for word in ["ps", "ls", "list", "queue", "jobs"] {
        assert_eq!(sandbox.lamp(&[word]), status, "{word}");
    }
    assert_eq!(sandbox.lamp(&["version"]), sandbox.lamp(&["--version"]));
    assert_eq!(sandbox.lamp(&["cost"]), sandbox.lamp(&["receipt"]));
    let launched = sandbox.lamp(&["launch", "--", "true"]);
    assert_eq!(launched.code, 0, "{launched:?}");
    for (verb, flag) in
        [("plan", "--gpu"), ("plan", "--gpus"), ("prices", "--gpu"), ("prices", "--gpus")]
    {
        let refused = sandbox.lamp(&[verb, flag, "NOSUCH:0"]);
        assert!(!refused.err.contains("unexpected argument"), "{verb} {flag}: {refused:?}");
    }
    assert_eq!(sandbox.lamp(&["prices", "H100"]), sandbox.lamp(&["prices", "--gpu", "H100"]));
}

#[test]
fn words_that_end_or_start_something_name_the_command() {
    let sandbox = Sandbox::new();
    for (words, told) in [
        (&["down", "llama"][..], "`lamp stop llama`"),
        (&["kill", "llama"], "`lamp cancel llama`"),
        (&["up", "job.toml"], "`lamp run job.toml`"),
        (&["submit", "job.toml"], "`lamp run --detach job.toml`"),
        (&["attach", "llama"], "`lamp logs -f llama`"),
    ] {
        let ended = sandbox.lamp(words);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{words:?}");
        assert!(
            ended.err.contains(told) && !ended.err.contains("similar"),
            "{words:?}: {}",
            ended.err
        );
    }
}

#[test]
fn tail_prints_the_last_lines() {
    let sandbox = after_a_job();
    for flags in [&["-n", "2"][..], &["--tail", "2"], &["--lines", "2"], &["-f", "-n", "2"]] {
        let ended = sandbox.lamp(&[&["logs", "count"], flags].concat());
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (0, "line 5\nline 6\n"),
            "{flags:?}: {ended:?}"
        );
    }
    let (_, document) = sandbox.json(&["logs", "count", "-n", "1", "-o", "json"]);
    assert_eq!(document["pieces"][0]["log"], "line 6\n", "{document}");
    assert_eq!(sandbox.lamp(&["logs", "-n", "99"]).out.lines().count(), 6);
}

#[test]
fn watch_of_one_job_ends_with_the_job() {
    let sandbox = after_a_job();
    let ended = sandbox.lamp(&["status", "count", "--watch"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("succeeded") && !ended.out.contains('\u{1b}'), "{ended:?}");
}

#[test]
fn completions_name_the_jobs() {
    let sandbox = after_a_job();
    let jobs = sandbox.lamp(&["completions", "--jobs"]).out;
    assert!(jobs.starts_with("count-") && jobs.lines().count() == 1, "{jobs}");
    assert!(
        sandbox.lamp(&["completions", "zsh"]).out.contains(":_lamp_jobs'"),
        "zsh asks for jobs"
    );
    assert!(
        sandbox.lamp(&["completions", "fish"]).out.contains("lamp completions --jobs"),
        "fish asks for jobs"
    );
    let asks = "source <(\"$LAMP\" completions bash); lamp() { \"$LAMP\" \"$@\"; }; COMP_WORDS=(lamp logs c); COMP_CWORD=2; \
                _lamp_jobs lamp c logs; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", asks])
        .current_dir(sandbox.path())
        .env("LAMP", env!("CARGO_BIN_EXE_lamp"))
        .env("HOME", sandbox.path().join("home"));
    let output = bash.stdin(Stdio::null()).output().expect("bash runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        jobs,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn state_says_what_ended_a_job_whose_script_did_not_fail() {
    let sandbox = Sandbox::new();
    let setup = sandbox.lamp(&["run", "--name", "broken", "--setup", "false", "--", "true"]);
    assert!(setup.err.contains(": setup failed\n"), "{setup:?}");
    assert!(sandbox.lamp(&["status"]).out.contains("  setup failed "), "the table says it");
    let (_, listing) = sandbox.json(&["status", "-o", "json"]);
    assert_eq!(
        (&listing["jobs"][0]["state"], &listing["jobs"][0]["because"]),
        (&"failed".into(), &"setup_failed".into()),
        "{listing}"
    );
    let failed = sandbox.lamp(&["run", "--name", "own", "--", "false"]);
    assert!(failed.err.contains(": failed\n"), "{failed:?}");
}

#[test]
fn outputs_come_home_without_a_folder_of_their_own() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&[
        "run",
        "--name",
        "one",
        "--keep",
        "runs/**",
        "--",
        "sh",
        "-c",
        "echo m > $LAMP_OUTPUT_DIR/m.txt; mkdir runs; echo r > runs/r",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, listing) = sandbox.json(&["status", "one", "-o", "json"]);
    let home = format!("lamp-outputs/{}", listing["jobs"][0]["job"].as_str().expect("an id"));
    assert_eq!(
        (sandbox.read(&format!("{home}/m.txt")), sandbox.read(&format!("{home}/runs/r"))),
        ("m\n".into(), "r\n".into())
    );
    // Two folders of one name keep their places.
    let both =
        "mkdir runs $LAMP_OUTPUT_DIR/runs; echo r > runs/r; echo o > $LAMP_OUTPUT_DIR/runs/r";
    let ended = sandbox.lamp(&[
        "run",
        "--name",
        "two",
        "--outputs",
        "both",
        "--keep",
        "runs/**",
        "--",
        "sh",
        "-c",
        both,
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(
        (sandbox.read("both/runs/r"), sandbox.read("both/lamp-output/runs/r")),
        ("r\n".into(), "o\n".into())
    );
}

#[test]
fn explain_names_the_checkpoint_as_the_script_does() {
    let sandbox = Sandbox::new();
    let saves = "echo weights > $LAMP_CHECKPOINT_DIR/model-5.pt";
    let ended =
        sandbox.lamp(&["run", "--name", "saves", "--checkpoint", "ckpt", "--", "sh", "-c", saves]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let explained = sandbox.lamp(&["explain", "saves"]);
    assert!(explained.out.contains("checkpoint 1, `model-5.pt`: saved in"), "{explained:?}");
}

#[test]
fn large_workdir_is_told_before_it_is_packed() {
    let sandbox = Sandbox::new();
    sandbox.write("job.toml", "command = \"true\"\n");
    std::fs::File::create(sandbox.path().join("data.bin"))
        .and_then(|file| file.set_len(300 << 20))
        .expect("a sparse file");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert!(
        ended.out.contains("ships 300.0 MiB in 2 files")
            && ended.out.contains("data.bin (300.0 MiB)"),
        "{ended:?}"
    );
}

#[test]
fn receipt_tells_all_moments_in_local_time() {
    let sandbox = Sandbox::new();
    let mut long =
        sandbox.command(&["run", "--name", "long", "--max-runtime", "2s", "--", "sleep", "60"]);
    let ended = sandbox.end(long.env("TZ", "Asia/Tokyo"));
    assert_eq!(ended.code, 124, "{ended:?}");
    let receipt = ended.err.split("receipt of").nth(1).expect("a receipt");
    assert!(
        receipt.contains(": max runtime")
            && receipt.contains("was reached at")
            && !receipt.contains('Z'),
        "{receipt}"
    );
    assert_eq!(receipt.matches(" JST").count(), 3, "{receipt}");
}
