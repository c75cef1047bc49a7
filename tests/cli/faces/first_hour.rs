//! Slips of the first hour: what was typed is answered with a line that works when it is pasted.

use std::process::{Command, Stdio};

use crate::faces::terminal::Terminal;
use crate::place::Place;
use crate::sandbox::Sandbox;

#[test]
fn init_of_a_file_names_the_line_for_its_folder() {
    let sandbox = Sandbox::with_script();
    sandbox.write("my job/main.py", "print(1)\n");
    for (file, told) in [
        ("train.py", "`lamp init --script train.py`"),
        ("my job/main.py", "`lamp init 'my job' --script main.py`"),
    ] {
        let ended = sandbox.lamp(&["init", file]);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains("is a file") && ended.err.contains(told), "{ended:?}");
    }
    let ended = sandbox.lamp(&["init", "my job"]);
    assert!(ended.err.contains("`lamp run 'my job/lamp.toml'`"), "{ended:?}");
}

#[test]
fn script_outside_the_workdir_is_refused_as_such() {
    let sandbox = Sandbox::with_script();
    sandbox.write("sub/job.toml", "command = [\"python3\", \"../train.py\"]\n");
    sandbox.write("sub/text.toml", "command = \"python3 ../train.py\"\n");
    for file in ["sub/job.toml", "sub/text.toml"] {
        let ended = sandbox.lamp(&["check", file]);
        assert!(
            ended.out.contains("`../train.py` is outside the workdir")
                && !ended.out.contains("add `!PATH`"),
            "{ended:?}"
        );
    }
}

#[test]
fn command_as_text_is_checked_like_a_list() {
    let sandbox = Sandbox::with_script();
    let check = |command: &str| {
        sandbox.write("job.toml", format!("command = '''{command}'''\n"));
        let ended = sandbox.lamp(&["check", "job.toml"]);
        ended.out + &ended.err
    };
    assert!(check("python3 trian.py --x 1").contains("did you mean `train.py`?"));
    assert!(check("no-such-program --x").contains("`no-such-program` is not on this machine"));
    assert!(
        check("OMP_NUM_THREADS=1 python3 trian.py | tee log")
            .contains("`trian.py` is not in the workdir")
    );
    let fine = [
        "python3 train.py --x 1",
        "cd sub && python3 trian.py",
        "$PYTHON trian.py",
        "for i in 1 2; do echo; done",
        "python3 \"trian.py\"",
        "exit 3",
        "python3 <<E\nprint(1)\nE",
    ];
    for command in fine {
        assert!(check(command).contains("no findings"), "{command}: {}", check(command));
    }
}

#[test]
fn folder_that_cannot_be_written_is_named_and_not_the_job_root() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&[
        "run",
        "--name",
        "one",
        "--detach",
        "--",
        "sh",
        "-c",
        "echo x > $LAMP_OUTPUT_DIR/x",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(sandbox.lamp(&["logs", "-f", "one"]).code, 0);
    // A file stands where the folder belongs: that holds for root too.
    sandbox.write("lamp-outputs", "a file");
    let ended = sandbox.lamp(&["outputs", "one"]);
    assert_eq!(ended.code, 102, "{ended:?}");
    assert!(
        ended.err.contains("cannot write into `lamp-outputs/one")
            && ended.err.contains("--to FOLDER"),
        "{ended:?}"
    );
    assert!(!ended.err.contains("download"), "{ended:?}");
    assert_eq!(sandbox.lamp(&["outputs", "one", "--to", "other"]).code, 0);
}

#[test]
fn stop_of_a_schedule_says_that_it_is_one() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "set/nightly.toml",
        "name = \"nightly\"\ncommand = [\"true\"]\n[schedule]\ncron = \"0 3 * * *\"\n",
    );
    assert_eq!(sandbox.lamp(&["apply", "set", "-y"]).code, 0);
    for name in ["nightly", "set/nightly"] {
        let ended = sandbox.lamp(&["stop", name]);
        assert!(
            ended.err.contains("`set/nightly` is a schedule")
                && ended.err.contains("`lamp schedules`"),
            "{ended:?}"
        );
    }
}

#[test]
fn status_begins_a_line_of_its_own_where_the_log_goes_too() {
    let sandbox = Sandbox::new();
    let script = "\"$LAMP\" run --name half -- sh -c 'printf unfinished; sleep 1' 2>&1";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .current_dir(sandbox.path())
        .env("LAMP", env!("CARGO_BIN_EXE_lamp"))
        .env("HOME", sandbox.path().join("home"));
    let output = shell.stdin(Stdio::null()).output().expect("sh runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("unfinished\n"), "{text}");
}

#[test]
fn plan_says_what_comes_on_top_of_the_budget() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&["plan", "--budget", "8", "--usd-per-hour", "60", "--", "true"]);
    assert!(
        ended.out.contains("at most $13.00: its budget, and five minutes to save and to power off"),
        "{ended:?}"
    );
}

/// Enter was pressed twice, or the same file in a second terminal.
#[test]
fn second_run_of_a_name_is_asked_about_on_a_terminal() {
    if !Terminal::is_there() {
        return lamp_test_support::skipped("script", "no `script`, which makes a terminal");
    }
    let place = Place::new("while [ ! -e go ]; do sleep 0.1; done");
    place.0.write("lamp.toml", "name = 'twice'\ncommand = ['sh', 'job.sh']\n");
    let first = place.0.lamp(&["run", "-d"]);
    assert_eq!(first.code, 0, "{first:?}");
    let mut terminal = Terminal::of(&place, &["run", "-d"]);
    terminal.until("run one more? [y/N]");
    terminal.types("\n");
    assert_eq!(terminal.end(), Some(102), "{}", terminal.screen());
    assert!(
        terminal.screen().contains("`lamp run --again` runs one more without a question"),
        "{}",
        terminal.screen()
    );
    assert_eq!(crate::control::start::jobs(&place).len(), 1);
    let again = Terminal::of(&place, &["run", "-d", "--again"]).end();
    assert_eq!((again, crate::control::start::jobs(&place).len()), (Some(0), 2));
    let quiet = Terminal::of(&place, &["run", "-d", "-q"]).end();
    assert_eq!(
        (quiet, crate::control::start::jobs(&place).len()),
        (Some(0), 3),
        "--quiet asks no question"
    );
    assert_eq!(place.0.lamp(&["cancel", "--all", "--yes"]).code, 0);
    place.nothing_is_left();
}
