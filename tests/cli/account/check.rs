//! `lamp check`: every kind of mistake, all of them at once, with its line and what to do.

use serde_json::json;

use crate::sandbox::Sandbox;

/// stdout of `lamp check job.toml` for a job file with these lines after a good command.
pub fn findings(lines: &str) -> (i32, String) {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", format!("command = ['sh', 'train.py']\n{lines}\n"));
    let ended = sandbox.lamp(&["check", "job.toml"]);
    let said = ended.err.replace(
        "whether the script saves and resumes is not looked at here: `lamp rehearse job.toml` interrupts it on this \
         workstation, and tries it\n",
        "",
    );
    assert_eq!(said, "", "findings are data and go to stdout");
    assert!(
        said.len() == ended.err.len() || lines.contains("[checkpoint]"),
        "of a checkpoint alone there is more to try: {lines}"
    );
    (ended.code, ended.out)
}

const KEPT: &str = "kept at its end: what the script writes to $LAMP_OUTPUT_DIR; all else in its workdir goes with the machine\n";

#[test]
fn good_file_has_no_findings() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 0);
    assert_eq!(
        ended.out,
        format!("job.toml: no findings\nships 2 files, 45 B, from [DIR]\n{KEPT}")
    );
    assert_eq!(ended.err, "");
}

#[test]
fn file_that_is_no_text_has_errors_and_is_not_out_of_reach() {
    let sandbox = Sandbox::with_script();
    std::fs::write(sandbox.path().join("job.toml"), [0xff, 0xfe, 0x00]).expect("a file");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).code, 100);
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let (code, out) = findings(
        "comand = 'x'\nbudget = 5\noutputs = ['../up']\n[machine]\ngpus = 'A10G:x'\nmarket = 'sport'\ndisk = 100\n[watch]\nidle = 15\n\
         [limits]\nmax_runtime = '0s'\n[on]\nidle = 'keep'",
    );
    assert_eq!(code, 100);
    assert_eq!(
        out,
        "job.toml:2: error: `comand`: is not a key of this file\n  hint: did you mean `command`?\n\
         job.toml:3: error: `budget`: is not a key of this file\n  hint: did you mean `budget` in `[limits]` or `[tune]`?\n\
         job.toml:4: error: `outputs`: `../up` is not below the workdir\n  hint: outputs are paths or globs relative to the workdir\n\
         job.toml:6: error: `machine.gpus`: `A10G:x` is not a GPU requirement, write \"A10G:1\", \"H100:8\", \"at least 24GiB\", \"2 x 24GiB\" or \"none\"\n\
         job.toml:7: error: `machine.market`: `sport` is not a market, write one of `on-demand`, `spot`, `auto`, did you mean `spot`?\n\
         job.toml:8: error: `machine.disk`: `100` has no unit, write `100MiB` or `100GiB`\n\
         job.toml:10: error: `watch.idle`: `15` has no unit, write `15s` for seconds or `15m` for minutes\n\
         job.toml:12: error: `limits.max_runtime`: is zero: the job would end before it starts\n\
         job.toml:14: error: `on.idle`: `keep` needs a time, write it like \"keep 2h\"\n\
         job.toml: 9 errors\n"
    );
}

#[test]
fn mistake_of_each_kind_has_its_own_sentence() {
    for (lines, expected) in [
        ("outputs = 'model.pt'", "`outputs`: is string \"model.pt\", expected a list"),
        ("machine = 'aws'", "`machine`: is string \"aws\", expected a table"),
        ("[machine]\ncloud = 'gcp'", "`gcp` is not a cloud, write one of `local`, `aws`"),
        ("[machine]\nmax_price = 'cheap'", "`cheap` is not a price, write 0.65"),
        ("[machine]\nusd_per_hour = -1", "is less than nothing"),
        (
            "[machine]\ncloud = 'aws'\ndisk = '900TiB'",
            "`machine.disk`: is more than 65536 GiB: no disk is so large",
        ),
        ("[limits]\nbudget = 'five'", "`five` is not an amount of dollars"),
        ("[limits]\nlease = '90s'", "is `1m 30s`: it may be from 2m to 1d"),
        ("[limits]\nboot = '2h'", "is `2h`: it may be from 2m to 1h"),
        ("[limits]\nbudget = 0", "is not more than zero"),
        ("[limits]\ndeadline = 'tomorrow'", "`tomorrow` is not a date and time"),
        ("[limits]\ndeadline = '2001-01-01T00:00:00Z'", "`2001-01-01T00:00:00Z` is in the past"),
        (
            "[watch]\nstall = true",
            "is boolean `true`, expected a length of time with its unit, like \"15m\", or \"off\"",
        ),
        ("[watch]\nidle_io = 'fast'", "`fast` is not a rate"),
        ("[watch]\nidle_io = '5'", "`5` has no unit, write `5kB/s` or `5MB/s`"),
        ("[watch]\ndone_marker = ' '", "`watch.done_marker`: is empty"),
        ("[retries]\nexit_codes = [75, 999]", "`999` is no exit code of a failure"),
        ("[checkpoint]\npath = './'", "is the workdir itself"),
        ("workdir = 'nowhere'\n[watch]\nlog_pattern = '('", "is not a regular expression"),
        ("Outputs = []\noutputs = ['../up']", "`../up` is not below the workdir"),
        ("[watch]\nidle_gpu_percent = 101", "is not a percentage"),
        ("[watch]\ngpus = 'some'", "`some` is not \"workload\", \"all\" or a list of GPU indices"),
        ("[watch]\nlog_pattern = '('", "is not a regular expression"),
        ("[checkpoint]\ninterval = '1m'", "`checkpoint.path`: is missing"),
        ("[checkpoint]\npath = '/tmp/x'", "is not below the workdir"),
        ("[checkpoint]\npath = 'train.py'", "`train.py` is a file"),
        ("[checkpoint]\npath = 'c'\nsignal = 'USR1'", "`USR1` is not one of SIGUSR1"),
        ("[retries]\nmax = -1", "`retries.max`: is `-1`, expected a whole number from 0 on"),
        (
            "[interruptions]\nmax = 'often'",
            "`often` is not a whole number from 0 on, or \"unlimited\"",
        ),
        ("[on]\nfailure = 'explode'", "`explode` is not something to do"),
        ("workdir = 'nowhere'", "`[DIR]/nowhere` is not there"),
        ("workdir = 'train.py'", "`[DIR]/train.py` is not a folder"),
        ("env = { 'A=B' = 1 }", "is not a name that an environment variable can have"),
    ] {
        let (code, out) = findings(lines);
        assert_eq!(code, 100, "{lines}\n{out}");
        assert!(out.contains(expected), "{lines}\n  expected: {expected}\n  got: {out}");
    }
}

#[test]
fn what_is_doubtful_is_a_warning_and_not_an_error() {
    for (lines, expected) in [
        ("env.LAMP_JOB = 'x'", "is set by the agent"),
        ("[machine]\nmarket = 'spot'", "without `[checkpoint]` an interruption loses all work"),
        (
            "[machine]\ninstance_types = ['g5.xlarge']",
            "`machine.instance_types`: changes nothing with `cloud = \"local\"`",
        ),
        ("[machine]\nregions = ['us-east-1']", "`machine.regions`: changes nothing"),
        ("[machine]\nimage = 'ami-0123456789abcdef0'", "`machine.image`: changes nothing"),
        ("[machine]\ndisk = '50GiB'", "`machine.disk`: changes nothing"),
        ("[machine]\nmax_price = 0.5", "`machine.max_price`: changes nothing"),
        ("[limits]\nlease = '10m'", "`limits.lease`: changes nothing"),
        ("[watch]\nalarm = 'off'", "`watch.alarm`: changes nothing"),
        (
            "[limits]\nbudget = 5\n[machine]\ncloud = 'aws'\nmax_price = 0.1",
            "`machine.max_price`: changes nothing with `market = \"on-demand\"`",
        ),
        (
            "[limits]\nbudget = 5\n[machine]\ncloud = 'aws'\nusd_per_hour = 0.1",
            "`machine.usd_per_hour`: changes nothing",
        ),
        ("[machine]\ngpus = 'H100:64'", "`machine.gpus`: is `H100:64`, but this machine shows"),
    ] {
        let (code, out) = findings(lines);
        assert_eq!(code, 0, "{lines}\n{out}");
        assert!(out.contains(expected), "{lines}\n{out}");
    }
}

#[test]
fn check_reports_errors_of_the_file_and_the_workdir_together() {
    let sandbox = Sandbox::with_script();
    sandbox.write(".env", "API_KEY=abcdef123\n");
    sandbox.write("job.toml", "nmae = 'x'\ncommand = ['sh', 'train.py']\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100);
    assert!(
        ended.out.contains("`nmae`: is not a key")
            && ended.out.contains(".env:1: error: looks like"),
        "{ended:?}"
    );
    assert!(ended.out.contains("2 errors"), "{ended:?}");
    // Where the folder itself is not what was meant, each of its files would be a finding.
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[checkpont]\npath = 'x'\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert!(
        ended.out.contains("did you mean `checkpoint`?") && ended.out.contains("1 error"),
        "{ended:?}"
    );
}

#[test]
fn user_configuration_a_job_does_not_use_is_no_finding() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n");
    sandbox.write("config.toml", "[machine]\nregions = ['us-east-1']\n");
    let ended = sandbox.end(
        sandbox
            .command(&["check", "job.toml"])
            .env("LAMP_CONFIG", sandbox.path().join("config.toml")),
    );
    assert!(ended.out.starts_with("job.toml: no findings"), "{ended:?}");
}

#[test]
fn unexecutable_script_and_command_without_dashes_get_a_hint() {
    let sandbox = Sandbox::with_script();
    sandbox.write("run.sh", "#!/bin/sh\n");
    sandbox.write("job.toml", "command = ['./run.sh']\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100);
    assert!(
        ended.out.contains("`./run.sh` may not be executed")
            && ended.out.contains("chmod +x ./run.sh"),
        "{ended:?}"
    );
    let ended = sandbox.lamp(&["run", "python3", "train.py"]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.err.contains("a command stands after two dashes: `lamp run -- python3 train.py`"),
        "{ended:?}"
    );
}

#[test]
fn outputs_that_came_home_are_no_finding() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp-outputs/job-222222/model.pt", "weights");
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (0, format!("job.toml: no findings\nships 2 files, 45 B, from [DIR]\n{KEPT}").as_str()),
        "{ended:?}"
    );
}

#[test]
fn broken_syntax_names_its_line() {
    let (code, out) = findings("[machine\ngpus = 1");
    assert_eq!(code, 100);
    assert!(out.starts_with("job.toml:2: error: not valid TOML: "), "{out}");
}

#[test]
fn command_that_cannot_start_is_found() {
    let sandbox = Sandbox::with_script();
    for (command, expected) in [
        ("['no-such-program-here']", "`no-such-program-here` is not on this machine"),
        ("['./nope']", "`./nope` is not in the workdir"),
        ("['python3', 'missing.py']", "`missing.py` is not in the workdir `[DIR]`"),
        ("['python3 train.py']", "is one word with blanks in it"),
        ("[]", "`command`: is empty"),
        ("''", "`command`: is empty"),
        (
            "3",
            "is `3`, expected a command, like [\"python\", \"train.py\"], or a string for the shell",
        ),
    ] {
        sandbox.write("job.toml", format!("command = {command}\n"));
        let ended = sandbox.lamp(&["check", "job.toml"]);
        assert_eq!(ended.code, 100, "{command}: {ended:?}");
        assert!(
            ended.out.contains(expected),
            "{command}\n  expected: {expected}\n  got: {}",
            ended.out
        );
    }
    sandbox.write("job.toml", "setup = 'pip install x'\ncommand = ['no-such-program-here']\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.out.contains("job.toml:2: warning: `command`: `no-such-program-here` is not on this machine; `setup` has to bring it"),
        "{ended:?}"
    );
}

#[test]
fn script_that_an_ignore_file_keeps_at_home_is_found() {
    let sandbox = Sandbox::with_script();
    sandbox.write(".gitignore", "*.py\n");
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100);
    assert!(ended.out.contains("`train.py` is in the workdir but does not ship"), "{ended:?}");
    sandbox.write(".lampignore", "!train.py\n");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).code, 0);
}

#[test]
fn missing_file_says_what_to_do() {
    let sandbox = Sandbox::new();
    let ended = sandbox.lamp(&["check", "nope.toml"]);
    assert_eq!(ended.code, 101);
    assert_eq!(ended.out, "");
    assert_eq!(
        ended.err,
        "error: no job file `nope.toml`\nhint: `lamp init` writes one, and `lamp run -- python train.py` needs none\n"
    );
}

/// By the job files of its folder; and whoever would have started one hears that nothing bills.
#[test]
fn mistyped_file_or_folder_says_which_was_meant() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp.toml", "command = ['sh', 'train.py']\n");
    sandbox.write("jobs/a.toml", "command = ['sh', 'train.py']\n");
    sandbox.write("pyproject.toml", "");
    let said = "error: no job file `lampp.toml`\nnothing was started or billed\nhint: did you mean `lamp.toml`?\n";
    for verb in ["run", "plan"] {
        let ended = sandbox.lamp(&[verb, "lampp.toml"]);
        assert_eq!((ended.code, ended.err.as_str()), (101, said), "{verb}");
    }
    assert_eq!(
        sandbox.lamp(&["check", "lampp.toml"]).err,
        said.replace("nothing was started or billed\n", "")
    );
    let other = sandbox.lamp(&["run", "digits.toml"]);
    assert!(other.err.ends_with("hint: beside it there is `lamp.toml`\n"), "{other:?}");
    for (typed, hint) in [
        ("nodir", "hint: `lamp apply` takes a folder"),
        ("job", "hint: did you mean `jobs`? `lamp apply` takes a folder"),
    ] {
        let ended = sandbox.lamp(&["apply", typed]);
        let said =
            format!("error: no folder `{typed}`\nnothing was changed: what runs goes on\n{hint}");
        assert!(ended.code == 101 && ended.err.starts_with(&said), "{ended:?}");
    }
    let file = sandbox.lamp(&["apply", "lampp.toml"]);
    assert!(
        file.code == 101
            && file.err.contains("no job file `lampp.toml`")
            && file.err.contains("did you mean `lamp.toml`?"),
        "{file:?}"
    );
}

#[test]
fn bare_check_takes_lamp_toml() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp.toml", "command = ['sh', 'train.py']\n");
    assert_eq!(sandbox.lamp(&["check"]).out.lines().next(), Some("lamp.toml: no findings"));
}

#[test]
fn check_json_holds_the_whole_spec_and_the_origin_of_each_value() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\n[limits]\nbudget = '$5'\n");
    sandbox.write(
        "home/.config/lamplighter/config.toml",
        "[limits]\nmax_runtime = '1h'\nbudget = 9\n",
    );
    let (code, document) = sandbox.json(&["check", "job.toml", "-o", "json", "--idle", "30m"]);
    assert_eq!(code, 0);
    assert_eq!(document["ok"], true);
    assert_eq!(document["file"], "job.toml");
    assert_eq!(document["spec"]["name"], "job");
    assert_eq!(
        document["spec"]["limits"],
        json!({"max_runtime": "1h", "budget": 5.0, "deadline": null, "setup": "1h", "lease": "30m", "boot": "15m", "work": null})
    );
    assert_eq!(document["spec"]["watch"]["idle"]["window"], "30m");
    let origin = |path: &str| document["origins"][path].as_str().unwrap_or_default().to_owned();
    assert_eq!(origin("limits.budget"), "file");
    assert_eq!(origin("limits.max_runtime"), "user config");
    assert_eq!(origin("watch.idle"), "flag");
    assert_eq!(origin("machine.market"), "default");
}

#[test]
fn json_findings_have_a_path_a_line_and_a_hint() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = 'true'\nidel = 1\n[watch]\nidle = 3\n");
    let (code, document) = sandbox.json(&["check", "job.toml", "-o", "json"]);
    assert_eq!(code, 100);
    assert_eq!(document["errors"], 2);
    assert_eq!(document["findings"][1]["path"], "watch.idle");
    assert_eq!(document["findings"][1]["line"], 4);
    assert_eq!(document["findings"][0]["severity"], "error");
    // What could not be read is null, and every field is there.
    sandbox.write("job.toml", "command = 'x\n");
    let (code, document) = sandbox.json(&["check", "job.toml", "-o", "json"]);
    let fields =
        ["file", "ok", "errors", "warnings", "findings", "workdir", "spec", "origins", "schedule"];
    assert!(code == 100 && fields.iter().all(|field| document.get(field).is_some()), "{document}");
}

#[test]
fn flags_make_a_job_and_words_after_the_dashes_are_its_command() {
    let sandbox = Sandbox::with_script();
    let args = [
        "check",
        "-o",
        "json",
        "-n",
        "first",
        "--spot",
        "--max-price",
        "0.65",
        "--env",
        "SEED=1",
        "--",
        "sh",
        "train.py",
        "--idle",
        "-o",
        "x",
    ];
    let (code, document) = sandbox.json(&args);
    assert_eq!(code, 0, "{document}");
    assert_eq!(
        document["spec"]["command"],
        json!({"args": ["sh", "train.py", "--idle", "-o", "x"]})
    );
    assert_eq!(document["spec"]["machine"]["market"], "spot");
    assert_eq!(document["spec"]["env"], json!({"SEED": "1"}));
    assert_eq!(document["origins"]["machine.max_price"], "flag");
    let (_, unnamed) = sandbox.json(&["check", "-o", "json", "--", "sh", "train.py"]);
    assert_eq!(unnamed["spec"]["name"], "train");
}

#[test]
fn same_job_in_json_is_the_same_spec() {
    let sandbox = Sandbox::with_script();
    sandbox.write("job.toml", "command = ['sh', 'train.py']\nwatch.idle = '30m'\nmachine.gpus = 'A10G:1'\nlimits.budget = 5\n");
    sandbox.write("job.json", r#"{"command": ["sh", "train.py"], "watch": {"idle": "30m"}, "machine": {"gpus": "A10G:1"}, "limits": {"budget": 5}}"#);
    assert_eq!(
        sandbox.json(&["check", "job.toml", "-o", "json"]).1["spec"],
        sandbox.json(&["check", "job.json", "-o", "json"]).1["spec"]
    );
}

#[test]
fn check_with_errors_in_the_user_configuration_reports_them() {
    let sandbox = Sandbox::with_script();
    sandbox.write("home/.config/lamplighter/config.toml", "ownr = 'me'\n[limits]\nbudget = 'x'\n");
    let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
    assert_eq!(ended.code, 100);
    assert!(
        ended.err.contains(
            "config.toml:1: error: `ownr`: is not a key of this file\n  hint: did you mean `owner`?"
        ),
        "{ended:?}"
    );
    assert!(ended.err.contains("config.toml:3: error: `limits.budget`"), "{ended:?}");
    assert!(
        ended.err.contains("`[DIR]/home/.config/lamplighter/config.toml` has 2 errors"),
        "{ended:?}"
    );
}

#[test]
fn too_large_a_workdir_names_its_largest_files() {
    let sandbox = Sandbox::with_script();
    for (name, kib) in [("big.bin", 200), ("small.bin", 1), ("data/middle.bin", 90)] {
        sandbox.write(name, vec![0_u8; kib * 1024]);
    }
    sandbox.write("job.toml", "command = ['sh', 'train.py']\nworkdir_max = '100KiB'\n");
    let ended = sandbox.lamp(&["check", "job.toml"]);
    assert_eq!(ended.code, 100);
    let expected = "holds 291.1 KiB in 5 files, more than 100.0 KiB; the largest are big.bin (200.0 KiB), data/middle.bin (90.0 KiB), small.bin (1.0 KiB)";
    assert!(ended.out.contains(expected), "{ended:?}");
    sandbox.write(".lampignore", "*.bin\n");
    assert_eq!(sandbox.lamp(&["check", "job.toml"]).code, 0);
}

#[test]
fn script_that_is_not_there_is_found_before_anything_runs() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp.toml", "command = ['python3', 'trian.py']\n");
    sandbox.write("train.py", "");
    let missing = sandbox.lamp(&["check"]);
    assert_eq!(
        (missing.code, missing.out.contains("`trian.py` is not in the workdir")),
        (100, true),
        "{}",
        missing.out
    );
    assert!(missing.out.contains("did you mean `train.py`?"), "{}", missing.out);
    sandbox
        .write("lamp.toml", "command = ['python3', 'trian.py']\nsetup = 'cp train.py trian.py'\n");
    let brought = sandbox.lamp(&["check"]);
    assert_eq!(
        (brought.code, brought.out.contains("`setup` has to bring it")),
        (0, true),
        "{}",
        brought.out
    );
    sandbox.write("lamp.toml", "command = ['python3', 'train.py']\n");
    sandbox.write(".lampignore", "train.py\n");
    let ignored = sandbox.lamp(&["check"]);
    assert_eq!(
        (ignored.code, ignored.out.contains("is in the workdir but does not ship")),
        (100, true),
        "{}",
        ignored.out
    );
    assert!(ignored.out.contains("an ignore file"), "{}", ignored.out);
    sandbox.write("lamp.toml", "command = ['tools/bin/train']\n");
    sandbox.write("tools/bin/train", "");
    sandbox.write(".lampignore", "tools\n");
    let no_environment = sandbox.lamp(&["check"]);
    assert!(
        no_environment.out.contains("an ignore file keeps it at home"),
        "{}",
        no_environment.out
    );
    sandbox.write(
        "lamp.toml",
        "command = ['.venv/bin/python', 'tools/bin/train']\nsetup = 'python3 -m venv .venv'\n",
    );
    sandbox.write(".venv/bin/python", "");
    let script = sandbox.lamp(&["check"]);
    assert!(
        script.out.contains("`tools/bin/train` is in the workdir but does not ship"),
        "{}",
        script.out
    );
    sandbox.write("env/pyvenv.cfg", "");
    sandbox.write("env/bin/python", "");
    let warns = |setup: &str| {
        sandbox.write("lamp.toml", format!("command = ['true']\nsetup = '{setup}'\n"));
        sandbox.lamp(&["check"]).out.contains("`env` does not ship")
    };
    assert_eq!((warns("python3 -m venv venv"), warns("python3 -m venv env")), (true, false));
}

#[test]
fn field_of_cron_that_is_out_of_range_is_named_with_its_range() {
    let (code, out) = findings("[schedule]\ncron = '0 25 * * *'");
    assert!(code == 100 && out.contains("`schedule.cron`: `0 25 * * *` is `25` in its second field, the hour, which is from 0 to 23"), "{out}");
}

/// The plan of a job for this workstation is shown, and a name that nobody uses is told.
#[test]
fn plan_for_this_workstation_warns_of_a_gpu_that_nobody_knows() {
    let sandbox = Sandbox::with_script();
    let ended = sandbox.lamp(&["plan", "--gpus", "H1000", "--", "python3", "train.py"]);
    assert!(
        ended.code == 0
            && ended.err.contains("`H1000` is the name of no GPU")
            && ended.err.contains("did you mean H100?"),
        "{ended:?}"
    );
}

/// The daemon lets what is due outside of its hours wait for them, so that is the time to name.
#[test]
fn schedule_never_due_in_its_hours_warns_and_shows_its_next_run() {
    let sandbox = Sandbox::new();
    let schedule =
        "schedule = { cron = '0 12 * * *', timezone = 'UTC', only_between = ['22:00', '06:00'] }\n";
    sandbox.write("lamp.toml", format!("command = 'true'\nmachine.cloud = 'local'\n{schedule}"));
    let checked = sandbox.lamp(&["check"]);
    assert!(
        checked.code == 0
            && checked.out.contains("`schedule.only_between`: is never when `cron` is due"),
        "{checked:?}"
    );
    let plan = sandbox.lamp(&["plan"]);
    assert!(
        plan.out.contains("the next run would be at") && plan.out.contains(" 22:00:00 UTC"),
        "{plan:?}"
    );
    assert_eq!(sandbox.lamp(&["apply", "lamp.toml"]).code, 0);
    let shown = sandbox.lamp(&["schedules"]);
    assert!(shown.out.contains(" 22:00:00 UTC") && !shown.out.contains(" 12:00:00"), "{shown:?}");
}

/// The agent would find nothing by it, and the result of the run would go with the machine.
#[test]
fn pattern_of_outputs_that_is_not_well_formed_is_an_error() {
    let (code, out) = findings("outputs = ['model_[0-9].pt', '*.{pt,json}', '[a']");
    assert_eq!((code, out.matches("is no pattern").count()), (100, 1), "{out}");
    assert!(
        out.contains("`outputs`: `[a` is no pattern: unclosed character class")
            && out.contains("a backslash before"),
        "{out}"
    );
}
