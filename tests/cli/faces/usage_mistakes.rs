//! What people type and where they stand when they do: each is answered in words, with an exit
//! code, and soon.

use std::fs::{File, Permissions, create_dir};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::account::check::findings;
use crate::sandbox::{Sandbox, heard};

/// A success that nobody can read is none.
#[test]
fn unwritable_output_is_a_failure_and_a_closed_pipe_is_none() {
    let sandbox = Sandbox::with_script();
    for words in [
        &["schema", "job"][..],
        &["--help"],
        &["check", "--", "sh", "train.py"],
        &["status", "--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output =
            heard(sandbox.command(words).stdout(full).stderr(Stdio::piped()).spawn().unwrap());
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(103), "{words:?}: {err}");
        assert!(
            err.contains("error: the output cannot be written: no storage space"),
            "{words:?}: {err}"
        );
    }
    let mut closed = sandbox
        .command(&["schema", "job"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(closed.stdout.take());
    let output = heard(closed);
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true));
}

#[test]
fn job_root_in_the_workdir_does_not_ship() {
    let sandbox = Sandbox::with_script();
    for file in ["jobs/jobs/a-222222/code/x.tar.zst", "jobs/jobs/a-222222/spec.json"] {
        sandbox.write(file, "x".repeat(1000));
    }
    let (code, checked) =
        sandbox.json(&["--job-root", "./jobs", "check", "-o", "json", "--", "sh", "train.py"]);
    assert_eq!((code, &checked["workdir"]["files"]), (0, &1.into()), "{checked}");
    let said = |checked: &serde_json::Value| {
        checked["findings"].to_string().matches("jobs are kept there").count()
    };
    assert_eq!(said(&checked), 1, "{checked}");
    // Elsewhere a folder of that name is as good as any other.
    let (_, checked) =
        sandbox.json(&["--job-root", "./elsewhere", "check", "-o", "json", "--", "sh", "train.py"]);
    assert_eq!((&checked["workdir"]["files"], said(&checked)), (&3.into(), 0), "{checked}");
    // The workdir is the job root itself.
    let (_, checked) =
        sandbox.json(&["--job-root", ".", "check", "-o", "json", "--", "sh", "train.py"]);
    assert_eq!((&checked["workdir"]["files"], said(&checked)), (&1.into(), 1), "{checked}");
}

/// The one that is told hides no other.
#[test]
fn unreadable_file_in_the_workdir_is_a_finding_beside_others() {
    let sandbox = Sandbox::with_script();
    sandbox.write("ok.toml", "command = ['sh', 'train.py']\nwatch.idle_cpu_percent = -1\n");
    sandbox.write("closed.bin", "x");
    create_dir(sandbox.path().join("shut")).unwrap();
    let mode = |name: &str, mode: u32| {
        std::fs::set_permissions(sandbox.path().join(name), Permissions::from_mode(mode)).unwrap()
    };
    mode("closed.bin", 0);
    mode("shut", 0);
    mode(".", 0o755);
    let mut command = sandbox.command(&["check", "ok.toml"]);
    // Nothing is closed to root.
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let ended = sandbox.end(&mut command);
    mode("shut", 0o755);
    assert_eq!(ended.code, 100, "{ended:?}");
    for told in [
        "`closed.bin` cannot be read: permission denied",
        "`shut` cannot be read: permission denied",
        "idle_cpu_percent",
        ".lampignore",
    ] {
        assert!(ended.out.contains(told), "{told} in {}", ended.out);
    }
}

/// Whoever opens a pipe waits for whoever writes to it.
#[test]
fn pipe_is_no_job_file() {
    let sandbox = Sandbox::with_script();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        sandbox.path().join("pipe.toml"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let ended = sandbox.lamp(&["check", "pipe.toml"]);
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(ended.err.starts_with("error: `pipe.toml` is no file"), "{ended:?}");
}

/// What bills is ended from anywhere.
#[test]
fn command_in_a_deleted_folder_works_unless_it_needs_the_folder() {
    let sandbox = Sandbox::with_script();
    let from_nowhere = |words: &[&str]| {
        let lamp = env!("CARGO_BIN_EXE_lamp");
        let script =
            format!("mkdir -p gone && cd gone && rmdir ../gone && exec {lamp} {}", words.join(" "));
        sandbox.end(
            std::process::Command::new("/bin/sh")
                .args(["-c", &script])
                .current_dir(sandbox.path())
                .env_clear()
                .envs(
                    sandbox
                        .command(&[])
                        .get_envs()
                        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
                ),
        )
    };
    assert_eq!(sandbox.lamp(&["run", "--", "true"]).code, 0);
    for words in [
        &["status"][..],
        &["logs"],
        &["receipt"],
        &["explain"],
        &["stop", "true"],
        &["cancel", "true"],
        &["extend", "true", "1h"],
    ] {
        let ended = from_nowhere(words);
        assert!(!ended.err.contains("current folder") && ended.code != 103, "{words:?}: {ended:?}");
    }
    assert!(!from_nowhere(&["doctor"]).err.contains("current folder"));
    let ended = from_nowhere(&["run", "--", "true"]);
    assert_eq!(ended.code, 103, "{ended:?}");
    assert!(
        ended.err.contains("error: the current folder is gone")
            && ended.err.contains("hint: cd somewhere else"),
        "{ended:?}"
    );
}

#[test]
fn usage_error_for_machines_names_what_is_missing() {
    let ended = Sandbox::new().lamp(&["-o", "json", "completions"]);
    let error: serde_json::Value = serde_json::from_str(&ended.err).unwrap();
    assert_eq!((ended.code, &error["error"]["code"]), (2, &2.into()), "{ended:?}");
    assert!(error["error"]["what"].as_str().unwrap().contains("<SHELL>"), "{error}");
}

#[test]
fn region_or_type_that_is_not_one_name_is_refused_offline() {
    let sandbox = Sandbox::with_script();
    for [flag, value] in [
        ["--region", ""],
        ["--region", "us-east-1,us-west-2"],
        ["--instance-type", "a b"],
        ["--instance-type", "a,b"],
    ] {
        for words in [
            &["plan", "--cloud", "aws", "--budget", "5", flag, value, "--", "true"][..],
            &["prices", flag, value],
        ] {
            let ended = sandbox.lamp(words);
            assert!(
                ended.code == 2 && ended.err.contains("the flag may be repeated"),
                "{words:?}: {ended:?}"
            );
        }
    }
    sandbox.write(
        "lamp.toml",
        "command = 'true'\n[machine]\ncloud = 'aws'\nregions = ['us-east-1,us-west-2']\ninstance_types = ['']\n[limits]\nbudget = 5\n",
    );
    let ended = sandbox.lamp(&["check"]);
    assert_eq!(
        (ended.code, ended.out.matches("one name an element").count()),
        (100, 2),
        "{ended:?}"
    );
}

/// Beside the names of all machines that are sold elsewhere the one that matters is not seen.
#[test]
fn region_that_nobody_knows_sells_nothing_in_one_line() {
    let sandbox = Sandbox::with_script();
    let ended = sandbox.end(
        sandbox
            .command(&["prices", "--region", "us-east-9"])
            .env("AWS_EC2_METADATA_DISABLED", "true"),
    );
    assert_eq!(ended.code, 103, "{ended:?}");
    assert!(ended.err.contains("error: nothing is sold in us-east-9\nhint: `us-east-9` is no region that this version knows"), "{ended:?}");
}

#[test]
fn work_of_more_than_a_year_is_refused_in_words() {
    let ended = Sandbox::with_script().lamp(&[
        "simulate",
        "--work",
        "520w",
        "--spot-price",
        "0.4",
        "--on-demand-price",
        "1.2",
        "--",
        "sh",
        "train.py",
    ]);
    assert!(ended.code == 100 && ended.err.contains("`limits.work`: is more than"), "{ended:?}");
}

#[test]
fn what_setup_names_and_the_workdir_does_not_hold_is_told() {
    for (setup, missing) in [
        ("'pip install -r reqirements.txt'", "reqirements.txt"),
        ("'sh ./setup.sh && sh later.sh'", "./setup.sh"),
        ("['python3 -m venv .venv', '.venv/bin/pip install -q -r dev.txt']", "dev.txt"),
        ("'python3 -m venv .v && .v/bin/python -m pip install -r x.txt'", "x.txt"),
        ("'pip install --requirement=y.txt'", "y.txt"),
        ("'python prepare.py --all'", "prepare.py"),
        ("'. ./env.sh'", "./env.sh"),
        ("'./build.sh'", "./build.sh"),
    ] {
        let (code, out) = findings(&format!("setup = {setup}"));
        assert!(
            code == 0
                && out.contains(&format!(
                    "job.toml:2: warning: `setup`: `{missing}` is not in the workdir"
                )),
            "{out}"
        );
    }
    // What is there, what the command itself brings, and what only a shell can say.
    for setup in [
        "'sh train.py'",
        "'pip install torch'",
        "'pip install -r $LIST'",
        "'sh /opt/x.sh'",
        "'rm -r build'",
        "'./.venv/bin/pip install x'",
        "'python3 -m pip install x'",
        "'python -c \"print(1)\"'",
        "'apt-get install -y bash git'",
        "['git clone URL repo', 'pip install -r repo/req.txt']",
        "['curl -o get.sh URL', 'sh get.sh']",
        "['sh -c \"pip install x\"']",
    ] {
        let (_, out) = findings(&format!("setup = {setup}"));
        assert!(!out.contains("`setup`:"), "{setup}: {out}");
    }
}

#[test]
fn mistake_that_was_typed_is_not_told_of_a_line_of_the_file() {
    let sandbox = Sandbox::with_script();
    sandbox
        .write("job.toml", "command = ['sh', 'train.py']\n[limits]\nbudget = 5\nlease = '90s'\n");
    let typed = sandbox.lamp(&["check", "job.toml", "--budget", "0"]).out;
    assert!(
        typed.contains("the command line: error: `limits.budget`: is not more than zero"),
        "{typed}"
    );
    assert!(typed.contains("job.toml:4: error: `limits.lease`: is `1m 30s`"), "{typed}");
    let (_, found) = sandbox.json(&["-o", "json", "check", "job.toml", "--budget", "0"]);
    let of = |path: &str| {
        found["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["path"] == path)
            .unwrap_or_else(|| panic!("{found}"))
    };
    assert_eq!(
        (&of("limits.budget")["file"], &of("limits.budget")["line"]),
        (&"the command line".into(), &serde_json::Value::Null)
    );
    assert_eq!((of("limits.lease").get("file"), &of("limits.lease")["line"]), (None, &4.into()));
}

#[test]
fn mistake_of_the_configuration_is_told_of_its_own_line() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[limits]\nlease = '90s'\n");
    sandbox.write("home/.config/lamplighter/config.toml", "owner = 'me'\n[limits]\nbudget = 0\n");
    let out = sandbox.lamp(&["check", "job.toml"]).out;
    assert!(
        out.contains(
            ".config/lamplighter/config.toml:3: error: `limits.budget`: is not more than zero"
        ),
        "{out}"
    );
    assert!(out.contains("job.toml:3: error: `limits.lease`: is `1m 30s`"), "{out}");
    let doctor = sandbox.lamp(&["doctor"]).out;
    assert!(
        doctor.contains("config.toml:3 lets no job run: `limits.budget`: is not more than zero"),
        "{doctor}"
    );
}

/// Not by the parser's words, which take it for a flag.
#[test]
fn amount_below_nothing_is_told_as_that() {
    let sandbox = Sandbox::with_script();
    for (flag, path) in [("--budget", "limits.budget"), ("--usd-per-hour", "machine.usd_per_hour")]
    {
        let ended = sandbox.lamp(&["check", flag, "-3", "--", "sh", "train.py"]);
        let said = format!("{}{}", ended.out, ended.err);
        assert!(said.contains(path) || said.contains(flag), "{said}");
        assert!(!said.contains("unexpected argument") && !said.contains("tip:"), "{said}");
    }
    let extended = sandbox.lamp(&["extend", "digits", "--budget", "-3"]);
    assert!(!extended.err.contains("unexpected argument"), "{extended:?}");
}

/// No price is needed for that.
#[test]
fn max_runtime_shorter_than_the_work_is_found_offline() {
    let of = |lines: &str| {
        findings(&format!(
            "[machine]\ncloud = 'aws'\ngpus = 'A10G:1'\n[checkpoint]\npath = 'c'\n{lines}"
        ))
    };
    let (code, out) = of("[limits]\nwork = '20h'\nmax_runtime = '3h'\n");
    let said = "`limits.work`: `limits.max_runtime` is too short: 20h of work and a start of 12m take 17h 1";
    assert!(
        code == 0 && out.contains(said) && out.contains("hint: `--max-runtime 21h` is enough"),
        "{out}"
    );
    let (_, out) = of(
        "[limits]\nwork = '20h'\ndeadline = '2999-01-01T00:00:00Z'\nmax_runtime = '30h'\nbudget = '$2'\n",
    );
    assert!(!out.contains("`limits.work`"), "{out}");
    let (_, out) = of(
        "[limits]\nwork = '20h'\nmax_runtime = '12h'\n[machine.speed]\nH100 = 4.0\nA10G = 1.0\n",
    );
    assert!(!out.contains("`limits.work`"), "a machine that is four times as fast does it: {out}");
}

/// A file does not say it, and to find out on a machine costs money.
#[test]
fn check_says_that_resuming_is_untried_and_names_rehearse() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[checkpoint]\npath = 'ckpt'\n");
    let checked = sandbox.lamp(&["check", "job.toml"]).err;
    assert!(
        checked.contains("resumes is not looked at here: `lamp rehearse job.toml` interrupts it"),
        "{checked}"
    );
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[checkpoint]\npath = './'\n");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).err, "", "an error comes first");
}
