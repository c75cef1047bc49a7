//! A line of the tutorials on a booted machine: the package is built here and installed there, and
//! what the module writes below `--job-dir` comes back.

use std::process::Command;

use super::desk::Desk;
use super::journey::bill_agrees;
use super::machines::Ec2;
use crate::bench::Finish as _;
use crate::jobs::text;
use lamp_test_support::ec2::State;
use lamp_test_support::skipped;

const TASK: &str = "\
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument('--job-dir')
parser.add_argument('--train-file')
args = parser.parse_args()
print('trains on', args.train_file, flush=True)
os.makedirs(os.path.join(args.job_dir, 'model'))
with open(os.path.join(args.job_dir, 'model', 'weights.txt'), 'w') as file:
    file.write('trained')
";

const SETUP: &str = "\
from setuptools import find_packages, setup
setup(name='trainer', version='0.1', packages=find_packages(), install_requires=[])
";

/// The machine has this workstation's `/usr`, and reaches no index of packages.
fn has_python() -> bool {
    let words = ["-c", "import setuptools, ensurepip, pip, venv, wheel"];
    let tried = Command::new("/usr/bin/python3").args(words).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn submitted_training_runs_and_its_receipt_is_the_bill() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    if !has_python() {
        return skipped("python", "/usr/bin/python3 lacks pip, venv, setuptools or wheel");
    }
    desk.ec2.on_demand("m6i.xlarge", 0.192);
    for folder in ["trainer/__init__.py", "trainer/task.py", "setup.py", "trainer/config.yaml"] {
        let content = match folder {
            "trainer/task.py" => TASK,
            "setup.py" => SETUP,
            "trainer/config.yaml" => {
                "trainingInput:\n  scaleTier: CUSTOM\n  masterType: standard\n  workerCount: 0\n"
            }
            _ => "",
        };
        desk.bench.write(folder, content);
    }
    let line = "ml-engine jobs submit training mnist_1 --job-dir gs://bucket/run --runtime-version 1.8 \
                --module-name trainer.task --package-path ./trainer --region us-east1 \
                --config trainer/config.yaml --cloud aws --unproven --stream-logs -- --train-file gs://data";
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = desk.lamp(&words);
    command.env("PATH", "/usr/bin:/bin");
    let ended = command.finish();
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{out}\n{err}");
    assert!(out.contains("trains on gs://data"), "{out}\n{err}");
    let seen = desk.launched(&[]);
    assert_eq!((seen.kind.as_str(), desk.ec2.instances().len()), ("m6i.xlarge", 1));
    desk.ec2.until(&seen.id, State::Terminated);
    let job = &desk.jobs()[0];
    let receipt = desk.receipt(job);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    bill_agrees(&desk, &receipt, &[&seen]);
    let listed = text(&desk.must(&["ml-engine", "jobs", "list"]).stdout);
    assert!(listed.contains("mnist_1") && listed.contains("SUCCEEDED"), "{listed}");
    let outputs = text(&desk.must(&["outputs", job, "--list"]).stdout);
    assert!(outputs.contains("model/weights.txt"), "{outputs}");
}
