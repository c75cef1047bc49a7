//! `lamp import`: files of other tools become job files that pass `lamp check`.

use serde_json::Value;

use lamp_test_support::skipped;

use crate::sandbox::Sandbox;

const SKY: &str = "\
name: Fine Tune
workdir: trainer
num_nodes: 2
resources:
  infra: gcp/us-central1
  accelerators: {A100: 8, V100: 8}
  use_spot: true
  disk_size: 256
  ports: 8080
  autostop: 10
envs:
  EPOCHS: 3
  HF_TOKEN: hf_not_to_be_copied
  BUCKET:
file_mounts:
  /data: s3://my-data
setup: |
  pip install -r requirements.txt
run: |
  set -e
  echo \"it's $SKYPILOT_NUM_GPUS_PER_NODE on $SKYPILOT_NODE_RANK\"
  python train.py --epochs $EPOCHS
";

const DSTACK: &str = "\
type: task
name: qlora
python: '3.12'
env:
  - HF_TOKEN
  - MODEL=llama
commands:
  - pip install -r requirements.txt
  - python train.py
resources:
  gpu: nvidia:24GB..:2
  disk: 150GB..
spot_policy: spot
max_price: 1.5
max_duration: 3h
ports: [6006]
nodes: 2
";

const ML_ENGINE: &str = "\
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m_v100
  workerType: standard
  workerCount: 4
  region: us-central1
  pythonModule: trainer.task
  args: ['--epochs', '10']
  scheduling:
    maxRunningTime: 7200s
  hyperparameters:
    goal: MAXIMIZE
    params:
    - parameterName: lr
      type: DOUBLE
      minValue: 0.0001
      maxValue: 0.1
";

fn notes(document: &Value) -> Vec<(u64, String)> {
    let notes = document["notes"].as_array().expect("a list").iter();
    let of = |note: &Value| {
        (note["line"].as_u64().unwrap_or(0), note["key"].as_str().unwrap_or_default().to_owned())
    };
    notes.map(of).collect()
}

/// Imports a file, and returns what it says and the spec that `lamp check` reads.
fn imported(sandbox: &Sandbox, file: &str, text: &str) -> (Value, Value) {
    sandbox.write(file, text);
    let (code, said) = sandbox.json(&["import", file, "--to", "new.toml", "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    let (code, checked) = sandbox.json(&["check", "new.toml", "-o", "json"]);
    assert_eq!(
        (code, &checked["ok"]),
        (0, &Value::Bool(true)),
        "{checked}\n{}",
        sandbox.read("new.toml")
    );
    (said, checked["spec"].clone())
}

#[test]
fn task_of_skypilot_becomes_a_job_that_passes() {
    let sandbox = Sandbox::new();
    sandbox.write("trainer/train.py", "print('step 1')\n");
    let (said, spec) = imported(&sandbox, "task.yaml", SKY);
    assert_eq!(said["from"], "sky");
    assert_eq!(spec["machine"]["gpus"], "A100:8", "{spec}");
    assert_eq!(
        (&spec["machine"]["market"], &spec["machine"]["disk_gib"]),
        (&"spot".into(), &256.into())
    );
    assert_eq!(spec["env"]["EPOCHS"], "3");
    assert_eq!(spec["env"]["SKYPILOT_NUM_GPUS_PER_NODE"], "8");
    let notes = notes(&said);
    for expected in [
        (5, "resources.cloud"),
        (9, "resources.ports"),
        (13, "HF_TOKEN"),
        (14, "BUCKET"),
        (15, "file_mounts"),
    ] {
        assert!(
            notes.iter().any(|(line, key)| (*line, key.as_str()) == expected),
            "{expected:?} in {notes:?}"
        );
    }
    let text = sandbox.read("new.toml");
    // Each rank gets the variables of its place, so none of one machine is written.
    assert!(text.contains("\nnodes = 2\n") && text.contains("engine = \"env\""), "{text}");
    assert!(!text.contains("\nSKYPILOT_NODE_RANK"), "{text}");
    assert!(!text.contains("hf_not_to_be_copied") && text.contains("it's $SKYPILOT"), "{text}");
    assert!(text.contains("# HF_TOKEN = \"env\"") && text.contains("Decide: how long"), "{text}");
}

#[test]
fn task_of_dstack_becomes_a_job_that_passes() {
    let sandbox = Sandbox::with_script();
    let (said, spec) = imported(&sandbox, "qlora.dstack.yml", DSTACK);
    assert_eq!((&said["from"], &spec["name"]), (&"dstack".into(), &"qlora".into()));
    assert_eq!(spec["machine"]["gpus"], "2 x 24GiB");
    assert_eq!(spec["limits"]["max_runtime"], "3h");
    assert_eq!(spec["machine"]["max_price"], "1.5", "{spec}");
    assert!(notes(&said).contains(&(16, "ports".to_owned())), "{said}");
    assert!(sandbox.read("new.toml").contains("\nnodes = 2\n"), "{}", sandbox.read("new.toml"));
}

#[test]
fn job_of_ml_engine_becomes_a_job_that_passes() {
    let sandbox = Sandbox::with_script();
    let (said, spec) = imported(&sandbox, "config.yaml", ML_ENGINE);
    assert_eq!((&said["from"], &spec["machine"]["gpus"]), (&"mlengine".into(), &"V100:4".into()));
    assert_eq!(
        spec["command"]["args"],
        serde_json::json!(["python3", "-m", "trainer.task", "--epochs", "10"])
    );
    assert_eq!(spec["limits"]["max_runtime"], "2h");
    let key = "trainingInput.hyperparameters.lr";
    assert!(notes(&said).iter().any(|(line, name)| (*line, name.as_str()) == (14, key)), "{said}");
}

/// `LAMP_TEST_IMPORT` names a folder with real files of each tool, in `sky`, `dstack` and `ml`.
/// `lamp check` is right about a few: their command leaves a container in the background.
#[test]
fn real_files_of_each_tool_become_jobs_that_pass() {
    let Some(folder) = std::env::var_os("LAMP_TEST_IMPORT").map(std::path::PathBuf::from) else {
        return skipped("data", "LAMP_TEST_IMPORT names no folder of files");
    };
    for tool in ["sky", "dstack", "ml"] {
        let files = std::fs::read_dir(folder.join(tool)).expect("a folder of the tool").flatten();
        let passed: Vec<bool> = files.map(|file| passes(&file.path())).collect();
        assert!(passed.len() >= 20, "{tool}: only {} files", passed.len());
        let wrong = passed.iter().filter(|passed| !**passed).count();
        assert!(wrong * 20 <= passed.len(), "{tool}: {wrong} of {} do not pass", passed.len());
    }
}

/// Whether `lamp check` passes the job file. The import itself must succeed.
fn passes(file: &std::path::Path) -> bool {
    let sandbox = Sandbox::new();
    let is_dstack = file.to_string_lossy().ends_with("dstack.yml");
    let name = if is_dstack { "job.dstack.yml" } else { "job.yaml" };
    sandbox.write(name, std::fs::read(file).expect("a file"));
    let imported = sandbox.lamp(&["import", name, "--to", "new.toml"]);
    assert_eq!(imported.code, 0, "{}: {}", file.display(), imported.err);
    sandbox.lamp(&["check", "new.toml"]).code == 0
}

#[test]
fn nothing_is_overwritten_and_other_files_are_refused() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp.toml", "name = 'mine'\n");
    sandbox.write("task.yaml", SKY);
    let ended = sandbox.lamp(&["import", "task.yaml"]);
    assert_eq!(ended.code, 102, "{ended:?}");
    assert_eq!(sandbox.read("lamp.toml"), "name = 'mine'\n");
    sandbox.write("pod.yaml", "apiVersion: v1\nkind: Pod\n");
    sandbox.write("fleet.dstack.yml", "type: fleet\nname: f\n");
    sandbox.write("broken.yaml", "run: [1\n");
    for (file, what) in [
        ("pod.yaml", "no job of SkyPilot"),
        ("fleet.dstack.yml", "a fleet"),
        ("broken.yaml", "no YAML"),
    ] {
        let ended = sandbox.lamp(&["import", file, "--to", "new.toml"]);
        assert!(
            ended.code == 100 && ended.err.contains(what) && ended.err.contains("hint:"),
            "{ended:?}"
        );
        assert!(!sandbox.path().join("new.toml").exists(), "{file}");
    }
    assert_eq!(sandbox.lamp(&["import", "gone.yaml"]).code, 101);
}

#[test]
fn file_of_another_tool_is_refused_by_its_name() {
    let sandbox = Sandbox::new();
    sandbox.write("task.yaml", DSTACK);
    let ended = sandbox.lamp(&["import", "task.yaml", "--from", "sky"]);
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(ended.err.contains("the file is for dstack, not for SkyPilot"), "{ended:?}");
    assert!(ended.err.contains("`lamp import task.yaml --from dstack`"), "{ended:?}");
    assert!(!sandbox.path().join("lamp.toml").exists(), "nothing is written");
    sandbox.write("other.yaml", "kind: Pod\n");
    let other = sandbox.lamp(&["import", "other.yaml", "--from", "mlengine"]);
    assert_eq!(other.code, 100, "{other:?}");
    assert!(other.err.contains("no job of ML Engine is in the file"), "{other:?}");
    assert_eq!(sandbox.lamp(&["import", "task.yaml", "--from", "dstack"]).code, 0);
}
