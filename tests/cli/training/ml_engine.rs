//! The lines of the tutorials on `gcloud ml-engine`, with `gcloud` another name of `lamp`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lamp_test_support::skipped;
use serde_json::Value;

use crate::sandbox::{Ended, Sandbox};

const TASK: &str = "\
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument('--job-dir')
parser.add_argument('--train-file')
parser.add_argument('--trainer_arg_1')
args = parser.parse_args()
print('folder', sorted(os.listdir('.')), 'train', args.train_file, args.trainer_arg_1)
print('environment', json.loads(os.environ['TF_CONFIG'])['environment'])
print('url', os.environ.get('LAMP_JOB_DIR_URL'))
os.makedirs(os.path.join(args.job_dir, 'model'), exist_ok=True)
with open(os.path.join(args.job_dir, 'model', 'weights.txt'), 'w') as file:
    file.write('trained')
";

const SETUP: &str = "\
from setuptools import find_packages, setup
setup(name='trainer', version='0.1', packages=find_packages(), install_requires=[])
";

const CONFIG: &str = "\
trainingInput:
  pythonVersion: \"3.5\"
  scaleTier: CUSTOM
  masterType: standard_p100
  workerType: standard_p100
  parameterServerType: large_model
  workerCount: 0
  parameterServerCount: 0
";

/// The commands as the tutorials have them.
const TUTORIAL: &str = r#"
set -eu
gcloud() { "$LAMP" "$@"; }
NOW=$(date +%Y%m%d_%H%M%S)
JOB_NAME="mnist_train_$NOW"
JOB_DIR=gs://BUCKET/CHECKPOINT
REGION=us-east1
BUCKET_NAME=data
gcloud ml-engine local train --job-dir checkpoints --module-name trainer.task --package-path ./trainer -- --train-file gs://$BUCKET_NAME
gcloud ml-engine jobs submit training "plain_$NOW" --job-dir $JOB_DIR --package-path ./trainer --module-name trainer.task --region us-central1 -- --trainer_arg_1 value_1
gcloud ml-engine jobs submit training $JOB_NAME --job-dir $JOB_DIR --runtime-version 1.8 --module-name trainer.task --package-path ./trainer --region $REGION --config trainer/config.yaml -- --train-file gs://$BUCKET_NAME
gcloud ai-platform jobs stream-logs "plain_$NOW"
gcloud ml-engine jobs stream-logs $JOB_NAME
echo "state $(gcloud ml-engine jobs describe $JOB_NAME --format 'value(state)')"
gcloud ml-engine jobs list --verbosity debug
gcloud outputs $JOB_NAME --list
gcloud ml-engine versions create v1 --model mnist --origin $JOB_DIR/model --runtime-version 1.8 --serve-command 'serve {port}'
gcloud ml-engine models list
if gcloud ml-engine versions create v2 --model mnist --origin gs://other/model; then exit 9; fi
if gcloud ml-engine jobs submit training $JOB_NAME --package-path ./trainer --module-name trainer.task; then exit 9; fi
"#;

fn trainer() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("trainer/__init__.py", "");
    sandbox.write("trainer/task.py", TASK);
    sandbox.write("trainer/config.yaml", CONFIG);
    sandbox.write("setup.py", SETUP);
    sandbox
}

/// The folder of a Python that can build a package and make an environment.
fn python_folder() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    usual.into_iter().chain(std::env::split_paths(&path)).find(|folder| {
        let words = ["-c", "import setuptools, venv, ensurepip"];
        let tried = Command::new(folder.join("python3")).args(words).output();
        tried.is_ok_and(|output| output.status.success())
    })
}

/// A script whose `gcloud` is `lamp`.
fn script(sandbox: &Sandbox, name: &str, python: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.arg(name).current_dir(sandbox.path()).env_clear().stdin(Stdio::null());
    shell.env("HOME", sandbox.path().join("home")).env("USER", "alice").env("TZ", "UTC");
    shell.env("LAMP", env!("CARGO_BIN_EXE_lamp"));
    with_python(&mut shell, python);
    shell
}

fn is_offline(ended: &Ended) -> bool {
    let words = ["Could not find a version", "No matching distribution", "invalid command"];
    words.iter().any(|words| ended.out.contains(words))
}

fn with_python(command: &mut Command, folder: &Path) {
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()));
}

#[test]
fn tutorial_lines_train_and_keep_what_was_saved() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    sandbox.write("tutorial.sh", TUTORIAL);
    let ended = sandbox.end(&mut script(&sandbox, "tutorial.sh", &folder));
    if is_offline(&ended) {
        return skipped("python", "pip cannot fetch `wheel`, which this Python lacks");
    }
    assert_eq!(ended.code, 0, "{ended:?}");
    let line = "INFO\t2";
    let streamed = ended.out.lines().filter(|told| told.starts_with(line));
    let columns: Vec<Vec<&str>> = streamed.map(|told| told.split('\t').collect()).collect();
    assert!(
        columns.iter().any(|told| told[2..] == ["master-replica-0", "", "environment cloud"]),
        "{ended:?}"
    );
    for told in [
        // `local train` runs beside setup.py.
        "train gs://data None\nenvironment cloud\nurl None",
        // The jobs run in an empty folder.
        "folder [] train None value_1",
        "folder [] train gs://data None",
        "url gs://BUCKET/CHECKPOINT",
        "state SUCCEEDED",
        "JOB_ID",
        "job-dir/model/weights.txt",
        "NAME   DEFAULT_VERSION_NAME\nmnist  v1\n",
    ] {
        assert!(ended.out.contains(told), "{told}: {ended:?}");
    }
    for told in [
        "submitted successfully.",
        "runtime version 1.8 with Python 3.5 cannot be had",
        "--verbosity has no meaning here",
        "region us-central1 is us-east-2 at AWS",
        "a job `mnist_train_",
        "no job here had it as `--job-dir`",
    ] {
        assert!(ended.err.contains(told), "{told}: {}", ended.err);
    }
    assert_eq!(sandbox.read("checkpoints/model/weights.txt"), "trained");
    let here = std::fs::read_dir(sandbox.path()).unwrap().flatten();
    let mut names: Vec<String> =
        here.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["checkpoints", "home", "setup.py", "trainer", "tutorial.sh"]);
}

#[test]
fn training_jobs_with_mistakes_are_refused_with_a_way_out() {
    let sandbox = trainer();
    sandbox.write("none/task.py", "");
    sandbox.write("typed.yaml", CONFIG.replace("masterType", "masterTyp"));
    let begin = ["submit", "training", "one", "--module-name", "trainer.task", "--package-path"];
    let cases: [(&[&str], i32, &str); 6] = [
        (&["trainer", "--scale-tier", "basic-tpu"], 100, "standard_v100"),
        (&["trainer", "--scale-tier", "custom"], 100, "trainingInput.masterType"),
        (&["trainer", "--region", "moon"], 100, "us-central1"),
        (&["trainer", "--config", "typed.yaml"], 100, "typed.yaml:4: error"),
        (&["trainer", "--runtime-version", "1.8", "--strict"], 102, "install_requires"),
        (&["trainer", "--worker-count", "2"], 2, "--worker-machine-type"),
    ];
    for (words, code, told) in cases {
        let ended = sandbox.lamp(&[&begin, words].concat());
        assert_eq!(ended.code, code, "{words:?}: {ended:?}");
        assert!(ended.err.contains(told), "{words:?}: {}", ended.err);
    }
    let lone = sandbox
        .end(sandbox.command(&[&begin[..], &["trainer"][..]].concat()).env("PATH", "/nowhere"));
    assert!(lone.code == 101 && lone.err.contains("apt install python3"), "{lone:?}");
    assert!(!sandbox.path().join("home/.local/state/lamplighter/jobs").exists());
}

#[test]
fn package_that_cannot_be_built_says_why() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    sandbox.write("none/task.py", "");
    sandbox.write("setup.py", "import missing_module\n");
    let run = |package: &str| {
        let words =
            ["submit", "training", "one", "--module-name", "x.y", "--package-path", package];
        let mut command = sandbox.command(&words);
        with_python(&mut command, &folder);
        sandbox.end(&mut command)
    };
    let ended = run("none");
    assert!(ended.code == 2 && ended.err.contains("no `__init__.py`"), "{ended:?}");
    let ended = run("trainer");
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(ended.err.contains("No module named 'missing_module'"), "{}", ended.err);
    assert!(!sandbox.path().join("build").exists() && !sandbox.path().join("dist").exists());
}

#[test]
fn local_train_gives_each_role_its_task_and_exits_as_the_chief() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    sandbox.write(
        "trainer/role.py",
        "import json, os, time\nconfig = json.loads(os.environ['TF_CONFIG'])\ntask = config['task']\nopen(f\"{task['type']}-{task['index']}\", 'w').write(json.dumps(config['cluster']))\nif task['type'] != 'chief':\n    time.sleep(600)\nwhile len([name for name in os.listdir('.') if '-' in name]) < 4:\n    time.sleep(0.05)\nraise SystemExit(7)\n",
    );
    let words = "local train --distributed --module-name trainer.role --package-path trainer --worker-count 1 --parameter-server-count 1 --evaluator-count 1";
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = sandbox.command(&words);
    with_python(&mut command, &folder);
    let ended = sandbox.end(&mut command);
    assert_eq!(ended.code, 7, "{ended:?}");
    let cluster = sandbox.read("evaluator-0");
    assert_eq!(cluster, sandbox.read("worker-0"));
    assert!(cluster.contains("localhost:27182") && !cluster.contains("evaluator"), "{cluster}");
}

/// Reports as `cloudml-hypertune` writes: each value is a text.
const TUNED: &str = "\
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument('--job-dir')
parser.add_argument('--offset', type=int)
parser.add_argument('--depth', type=int)
args = parser.parse_args()
trial = json.loads(os.environ['TF_CONFIG'])['task']['trial']
print('trial', trial, 'depth', args.depth, 'url', os.environ['LAMP_JOB_DIR_URL'])
report = {'timestamp': 1.0, 'trial': trial, 'loss': str(abs(args.depth - args.offset)),
          'global_step': '7', 'checkpoint_path': ''}
os.makedirs(os.path.dirname(os.environ['CLOUD_ML_HP_METRIC_FILE']), exist_ok=True)
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:
    file.write(json.dumps(report) + '\\n')
";

const SEARCH: &str = "\
trainingInput:
  hyperparameters:
    goal: MINIMIZE
    hyperparameterMetricTag: loss
    maxTrials: 3
    maxParallelTrials: 3
    algorithm: GRID_SEARCH
    params:
    - parameterName: depth
      type: INTEGER
      minValue: 1
      maxValue: 3
      scaleType: UNIT_LINEAR_SCALE
";

const SEARCH_LINES: &str = r#"
set -eu
gcloud() { "$LAMP" "$@"; }
submit() { gcloud ml-engine jobs submit training My_Search --job-dir gs://bucket/run --package-path trainer --module-name trainer.tuned --region us-east1 --config hptuning.yaml -- --offset 2; }
submit
gcloud ml-engine jobs stream-logs My_Search
gcloud ml-engine jobs list
gcloud ml-engine jobs describe My_Search --format json > described.json
if submit; then exit 9; fi
"#;

#[test]
fn hyperparameters_of_the_config_search_and_are_described() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    sandbox.write("trainer/tuned.py", TUNED);
    sandbox.write("hptuning.yaml", SEARCH);
    sandbox.write("search.sh", SEARCH_LINES);
    let ended = sandbox.end(&mut script(&sandbox, "search.sh", &folder));
    if is_offline(&ended) {
        return skipped("python", "pip cannot fetch `wheel`, which this Python lacks");
    }
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("Job [My_Search] submitted successfully."), "{}", ended.err);
    assert!(ended.err.contains("a job `My_Search` exists"), "{}", ended.err);
    for depth in 1..=3 {
        let streamed =
            format!("\t{depth}\ttrial {depth} depth {depth} url gs://bucket/run/{depth}");
        assert!(ended.out.contains(&streamed), "{streamed}: {}", ended.out);
    }
    let jobs: Vec<&str> = ended.out.lines().filter(|line| line.contains("SUCCEEDED")).collect();
    assert!(jobs.len() == 1 && jobs[0].starts_with("My_Search"), "{}", ended.out);
    let described: Value = serde_json::from_str(&sandbox.read("described.json")).unwrap();
    assert_eq!(described["state"], "SUCCEEDED", "{described:#}");
    assert_eq!(described["trainingInput"]["hyperparameters"]["algorithm"], "GRID_SEARCH");
    let output = &described["trainingOutput"];
    assert_eq!(output["completedTrialCount"], "3");
    assert_eq!(output["isHyperparameterTuningJob"], true);
    let best = &output["trials"][0];
    assert_eq!(best["hyperparameters"]["depth"], "2");
    assert_eq!(
        best["finalMetric"],
        serde_json::json!({ "trainingStep": "7", "objectiveValue": 0.0 })
    );
    assert_eq!((&best["trialId"], &best["state"]), (&"2".into(), &"SUCCEEDED".into()));
}

/// A trial is a gang of a master and a worker, and the master reports. It ends last, because the
/// job ends with it.
#[test]
fn search_with_workers_runs_a_gang_for_each_trial() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    let said = sandbox.path().join("said");
    std::fs::create_dir(&said).unwrap();
    let meets = format!(
        "import pathlib, time\n\
         mark, role = pathlib.Path('{}', trial), json.loads(os.environ['TF_CONFIG'])['task']['type']\n\
         print('role', role, flush=True)\n\
         while role != 'worker' and not mark.exists():\n    time.sleep(0.1)\n\
         report =",
        said.display()
    );
    let tuned = TUNED
        .replace("report =", &meets)
        .replace("str(abs", "'-1' if role == 'worker' else str(abs")
        + "if role == 'worker': mark.touch()\n";
    sandbox.write("trainer/tuned.py", tuned);
    let workers = "trainingInput:\n  scaleTier: CUSTOM\n  masterType: n1-standard-4\n  \
                   workerType: n1-standard-4\n  workerCount: 1\n";
    let search =
        SEARCH.replace("maxTrials: 3", "maxTrials: 2").replace("maxValue: 3", "maxValue: 2");
    sandbox.write("hptuning.yaml", search.replace("trainingInput:\n", workers));
    sandbox.write("search.sh", SEARCH_LINES.replace("\nif submit; then exit 9; fi", ""));
    let ended = sandbox.end(&mut script(&sandbox, "search.sh", &folder));
    if is_offline(&ended) {
        return skipped("python", "pip cannot fetch `wheel`, which this Python lacks");
    }
    assert_eq!(ended.code, 0, "{ended:?}");
    for trial in 1..=2 {
        for task in ["master-replica-0", "worker-replica-0"] {
            let streamed = format!("{task}\t{trial}\ttrial {trial} depth {trial} ");
            assert!(ended.out.contains(&streamed), "{streamed}: {}", ended.out);
        }
    }
    let jobs = ended.out.lines().filter(|line| line.contains("SUCCEEDED")).count();
    assert_eq!(jobs, 1, "trials and ranks are not listed: {}", ended.out);
    let described: Value = serde_json::from_str(&sandbox.read("described.json")).unwrap();
    let best = &described["trainingOutput"]["trials"][0];
    assert_eq!(best["finalMetric"]["objectiveValue"], 0.0, "{described:#}");
}

/// The columns of gcloud, and its exit code: 1 unless the job has succeeded.
const STREAMED: &str = r#"
set -eu
gcloud() { "$LAMP" "$@"; }
submit() { name=$1; module=$2; shift 2; gcloud ml-engine jobs submit training $name --stream-logs --job-dir gs://bucket/run --package-path trainer --module-name $module "$@"; }
submit plain trainer.task
submit search trainer.tuned --config hptuning.yaml -- --offset 2
if submit fails trainer.none; then exit 9; else echo "code $?"; fi
"#;

#[test]
fn submit_with_stream_logs_prints_the_columns_of_gcloud() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    sandbox.write("trainer/tuned.py", TUNED);
    sandbox.write("hptuning.yaml", SEARCH);
    sandbox.write("streamed.sh", STREAMED);
    let ended = sandbox.end(&mut script(&sandbox, "streamed.sh", &folder));
    if is_offline(&ended) {
        return skipped("python", "pip cannot fetch `wheel`, which this Python lacks");
    }
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<Vec<&str>> = ended.out.lines().map(|line| line.split('\t').collect()).collect();
    let has = |trial: &str, message: &str| {
        lines.iter().any(|columns| {
            columns.len() == 5
                && columns[0] == "INFO"
                && columns[2..] == ["master-replica-0", trial, message]
        })
    };
    assert!(has("", "environment cloud"), "{}", ended.out);
    for depth in 1..=3 {
        let message = format!("trial {depth} depth {depth} url gs://bucket/run/{depth}");
        assert!(has(&depth.to_string(), &message), "{message}: {}", ended.out);
    }
    assert!(ended.out.ends_with("code 1\n"), "{}", ended.out);
}

#[test]
fn mistakes_of_a_search_are_refused_with_their_lines() {
    let sandbox = trainer();
    sandbox.write("typed.yaml", SEARCH.replace("maxValue", "maxValu"));
    sandbox
        .write("log.yaml", SEARCH.replace("minValue: 1", "minValue: 0").replace("LINEAR", "LOG"));
    sandbox.write("none.yaml", SEARCH.replace("type: INTEGER", "type: WHOLE"));
    sandbox.write("gone.yaml", format!("{SEARCH}    resumePreviousJobId: never_was\n"));
    for (file, code, told) in [
        (
            "typed.yaml",
            100,
            "typed.yaml:12: error: `trainingInput.hyperparameters.params[0].maxValu`",
        ),
        ("log.yaml", 100, "trainingInput.hyperparameters.params[0].scaleType"),
        ("none.yaml", 100, "DOUBLE, INTEGER, CATEGORICAL, DISCRETE"),
        ("gone.yaml", 101, "no tuning `never-was`"),
    ] {
        let mut command = sandbox.command(&[
            "submit",
            "training",
            "one",
            "--module-name",
            "trainer.task",
            "--package-path",
            "trainer",
            "--config",
            file,
        ]);
        if let Some(folder) = python_folder() {
            with_python(&mut command, &folder);
        } else if file == "gone.yaml" {
            continue;
        }
        let ended = sandbox.end(&mut command);
        assert_eq!(ended.code, code, "{file}: {ended:?}");
        assert!(ended.err.contains(told), "{file}: {}", ended.err);
    }
    assert!(!sandbox.path().join("home/.local/state/lamplighter/jobs").exists());
}

#[test]
fn name_submitted_twice_at_one_moment_is_one_job() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    let words = "submit training same --module-name trainer.task --package-path trainer";
    let words: Vec<&str> = words.split(' ').collect();
    let start = || {
        let mut command = sandbox.command(&words);
        with_python(&mut command, &folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start(), start()];
    let mut codes: Vec<Option<i32>> = both
        .into_iter()
        .map(|child| child.wait_with_output().expect("lamp ends").status.code())
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(102)]);
    let jobs = sandbox.path().join("home/.local/state/lamplighter/jobs");
    assert_eq!(std::fs::read_dir(jobs).unwrap().count(), 1);
    assert_eq!(sandbox.lamp(&["ml-engine", "jobs", "cancel", "same", "--quiet"]).code, 0);
}

const WORKERS: &str = "\
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m_gpu
  workerType: complex_model_m_gpu
  parameterServerType: large_model
  workerCount: 9
  parameterServerCount: 3
";

/// Each role says who it is, and ends: the chief after all others, because the job ends with it.
const ROLES: &str = "\
import argparse, json, os, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument('--job-dir')
parser.add_argument('--user_arg_1')
args = parser.parse_args()
config = json.loads(os.environ['TF_CONFIG'])
sizes = {role: len(places) for role, places in sorted(config['cluster'].items())}
print(config['task']['type'], config['task']['index'], sizes, args.user_arg_1, flush=True)
cluster = json.dumps(config['cluster'], sort_keys=True)
print('cluster', cluster, flush=True)
assert config['job'] == {'job_name': 'trainer.role', 'args': ['--user_arg_1', 'value_1']}, config
said = pathlib.Path('FOLDER')
(said / f\"{config['task']['type']}-{config['task']['index']}\").write_text(cluster)
while config['task']['type'] == 'chief' and len(list(said.iterdir())) < sum(sizes.values()):
    time.sleep(0.1)
";

#[test]
fn second_tutorial_trains_with_workers_and_parameter_servers() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    let said = sandbox.path().join("said");
    std::fs::create_dir(&said).unwrap();
    sandbox.write("trainer/role.py", ROLES.replace("FOLDER", &said.display().to_string()));
    sandbox.write("config.yaml", WORKERS);
    let submit = |more: &str| {
        let words = format!(
            "ml-engine jobs submit training second --package-path trainer --module-name trainer.role --job-dir gs://bucket/run --region us-central1 --config config.yaml {more} -- --user_arg_1 value_1"
        );
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut command = sandbox.command(&words);
        with_python(&mut command, &folder);
        sandbox.end(&mut command)
    };
    let planned = submit("--dry-run");
    assert_eq!(planned.code, 0, "{planned:?}");
    assert!(planned.out.contains("13 machines work as one job"), "{planned:?}");
    let ended = submit("--stream-logs");
    if is_offline(&ended) {
        return skipped("python", "pip cannot fetch `wheel`, which this Python lacks");
    }
    assert_eq!(ended.code, 0, "{ended:?}");
    let chief = "chief 0 {'chief': 1, 'ps': 3, 'worker': 9} value_1";
    assert!(ended.out.contains(chief), "{}", ended.out);
    let clusters: Vec<String> = std::fs::read_dir(&said)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert_eq!(clusters.len(), 13);
    assert!(clusters.iter().all(|cluster| *cluster == clusters[0]), "{clusters:#?}");
    let cluster: Value = serde_json::from_str(&clusters[0]).unwrap();
    let places = cluster.as_object().unwrap().values().filter_map(Value::as_array).flatten();
    let places: BTreeSet<&str> = places.filter_map(Value::as_str).collect();
    assert_eq!(places.len(), 13, "each role has an address of its own: {cluster:#}");
    // Each of the thirteen has a receipt of its own.
    let receipt = sandbox.lamp(&["receipt", "second"]);
    assert_eq!(receipt.out.matches(": succeeded, 1 attempt").count(), 13, "{receipt:?}");
    let stream = |more: &[&str]| {
        sandbox.lamp(&[&["ml-engine", "jobs", "stream-logs", "second"][..], more].concat())
    };
    let all = stream(&[]).out;
    for (task, said) in [("master-replica-0", "chief 0"), ("worker-replica-8", "worker 8")] {
        let is_said = |line: &str| line.contains(task) && line.contains(said);
        assert!(all.lines().any(is_said), "{task}: {all}");
    }
    let one = stream(&["--task-name", "ps-replica-2"]).out;
    assert!(one.contains("ps 2 ") && !one.contains("chief 0"), "{one}");
    let wrong = stream(&["--task-name", "ps-replica-3"]);
    assert!(wrong.code != 0 && wrong.err.contains("has no task `ps-replica-3`"), "{wrong:?}");
    // The service knew one job, and not its machines.
    let listed = sandbox.lamp(&["ml-engine", "jobs", "list"]).out;
    assert_eq!(listed.matches("second").count(), 1, "{listed}");
    let described = sandbox.lamp(&["ml-engine", "jobs", "describe", "second"]).out;
    for line in ["pythonModule: trainer.role", "workerCount: \"9\"", "parameterServerCount: \"3\""]
    {
        assert!(described.contains(line), "{line}: {described}");
    }
}

/// The folder of a Python environment with MLflow and scikit-learn, if there is one.
fn mlflow() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("LAMP_TEST_MLFLOW")?);
    let mut python = Command::new(folder.join("bin/python"));
    let has_both = python.args(["-c", "import mlflow, sklearn"]).output();
    has_both.is_ok_and(|output| output.status.success()).then_some(folder)
}

/// A model that `local train` writes where the tutorial has it.
const CLASSIFIER: &str = "\
import argparse, os
import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
parser = argparse.ArgumentParser()
parser.add_argument('--job-dir')
parser.add_argument('--train-file')
args = parser.parse_args()
data = load_iris()
model = LogisticRegression(max_iter=500).fit(data.data, data.target)
os.makedirs(os.path.join(args.job_dir, 'model'))
joblib.dump(model, os.path.join(args.job_dir, 'model', 'model.joblib'))
";

/// Lines 3 and 5 to 8 as the tutorials have them.
const PREDICTION: &str = r#"
set -eu
gcloud() { "$LAMP" "$@"; }
BUCKET_NAME=data
MODEL_NAME=mnist
MODEL_BINARIES=checkpoints/model
gcloud ml-engine local train --job-dir checkpoints --module-name trainer.task --package-path ./trainer -- --train-file gs://$BUCKET_NAME
gcloud ml-engine local predict --model-dir checkpoints/model --json-instances sample.json --verbosity debug
gcloud ml-engine versions create v1 --model $MODEL_NAME --origin $MODEL_BINARIES --runtime-version 1.8
gcloud ml-engine models list
gcloud ml-engine predict --model $MODEL_NAME --version v1 --json-instances sample.json
"#;

#[test]
fn trained_model_is_deployed_and_predicts_by_mlflow() {
    let Some(environment) = mlflow() else {
        return skipped("mlflow", "LAMP_TEST_MLFLOW names no environment with mlflow and sklearn");
    };
    let sandbox = trainer();
    sandbox.write("trainer/task.py", CLASSIFIER);
    sandbox.write("sample.json", "[5.1, 3.5, 1.4, 0.2]\n[6.7, 3.0, 5.2, 2.3]\n");
    sandbox.write("predict.sh", PREDICTION);
    let mut shell = script(&sandbox, "predict.sh", &environment.join("bin"));
    let ended = sandbox.end(shell.env("VIRTUAL_ENV", &environment));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("NAME   DEFAULT_VERSION_NAME\nmnist  v1\n"), "{}", ended.out);
    assert_eq!(ended.out.matches("[0, 2]").count(), 2, "both ask the same model: {}", ended.out);
}
