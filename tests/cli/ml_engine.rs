//! The lines of the tutorials on `gcloud ml-engine`, with `gcloud` another name of `lamp`.

use std::path::PathBuf;
use std::process::Command;

use lamp_test_support::skipped;

use super::sandbox::Sandbox;

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

fn with_python(command: &mut Command, folder: &std::path::Path) {
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()));
}

#[test]
fn tutorial_lines_train_and_keep_what_was_saved() {
    let Some(folder) = python_folder() else {
        return skipped("python", "there is no Python with setuptools, venv and ensurepip");
    };
    let sandbox = trainer();
    sandbox.write("tutorial.sh", TUTORIAL);
    let mut shell = Command::new("sh");
    shell.arg("tutorial.sh").current_dir(sandbox.path()).env_clear();
    shell.env("HOME", sandbox.path().join("home")).env("USER", "alice").env("TZ", "UTC");
    shell.env("LAMP", env!("CARGO_BIN_EXE_lamp"));
    with_python(&mut shell, &folder);
    let ended = sandbox.end(&mut shell);
    let is_offline = ["Could not find a version", "No matching distribution", "invalid command"]
        .iter()
        .any(|words| ended.out.contains(words));
    if is_offline {
        return skipped("python", "pip cannot fetch `wheel`, which this Python lacks");
    }
    assert_eq!(ended.code, 0, "{ended:?}");
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
    ] {
        assert!(ended.out.contains(told), "{told}: {ended:?}");
    }
    for told in [
        "submitted successfully.",
        "runtime version 1.8 with Python 3.5 cannot be had",
        "--verbosity has no meaning here",
        "region us-central1 is us-east-2 at AWS",
        "a job `mnist_train_",
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
    sandbox.write("gang.yaml", CONFIG.replace("workerCount: 0", "workerCount: 9"));
    sandbox.write("typed.yaml", CONFIG.replace("masterType", "masterTyp"));
    let begin = ["submit", "training", "one", "--module-name", "trainer.task", "--package-path"];
    let cases: [(&[&str], i32, &str); 7] = [
        (&["trainer", "--scale-tier", "basic-tpu"], 100, "standard_v100"),
        (&["trainer", "--scale-tier", "custom"], 100, "trainingInput.masterType"),
        (&["trainer", "--region", "moon"], 100, "us-central1"),
        (&["trainer", "--config", "typed.yaml"], 100, "typed.yaml:4: error"),
        (&["trainer", "--config", "gang.yaml", "--cloud", "aws"], 100, "several machines"),
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
fn local_train_gives_each_role_its_task_and_the_primary_its_code() {
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
