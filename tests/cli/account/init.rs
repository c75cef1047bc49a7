//! `lamp init`: what it recognises, and that it never writes over anything.

use crate::sandbox::Sandbox;

#[test]
fn script_its_requirements_and_its_checkpoints_are_recognised() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", "signal.signal(signal.SIGUSR1, save)\nfolder = 'checkpoints'\n");
    sandbox.write("requirements.txt", "numpy\n");
    let ended = sandbox.lamp(&["init"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "wrote lamp.toml\n"));
    assert!(ended.err.contains("it runs `train.py`"), "{ended:?}");
    assert!(
        ended.err.contains(
            "next: `lamp check lamp.toml`, `lamp rehearse lamp.toml`, then `lamp run lamp.toml`"
        ),
        "{ended:?}"
    );
    let (code, document) = sandbox.json(&["check", "-o", "json"]);
    assert_eq!((code, &document["warnings"]), (0, &0.into()), "{document}");
    assert_eq!(document["spec"]["checkpoint"]["path"], "checkpoints");
    assert_eq!(document["spec"]["checkpoint"]["signal"], "SIGUSR1");
    assert!(
        document["spec"]["setup"]
            .as_str()
            .is_some_and(|setup| setup.contains("-r requirements.txt")),
        "{document}"
    );
}

/// The variable that the job itself gets.
#[test]
fn script_that_asks_where_to_save_is_recognised() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", "save(os.environ['LAMP_CHECKPOINT_DIR'])\n");
    assert_eq!(sandbox.lamp(&["init"]).code, 0);
    assert_eq!(
        sandbox.json(&["check", "-o", "json"]).1["spec"]["checkpoint"]["path"],
        "checkpoints"
    );
}

#[test]
fn every_starter_passes_its_own_check() {
    for files in [
        &["main.py"][..],
        &["train.sh"],
        &["odd name's.py"],
        &["src/train.py"],
        &["train.py", "pyproject.toml"],
    ] {
        let sandbox = Sandbox::new();
        for file in files {
            sandbox.write(file, "\n");
        }
        assert_eq!(sandbox.lamp(&["init"]).code, 0, "{files:?}");
        let ended = sandbox.lamp(&["check"]);
        assert_eq!(ended.code, 0, "{files:?}: {ended:?}\n{}", sandbox.read("lamp.toml"));
    }
}

#[test]
fn folder_without_a_script_gets_a_command_that_is_refused() {
    for files in [&[][..], &["a.py", "b.py"]] {
        let sandbox = Sandbox::new();
        files.iter().for_each(|file| sandbox.write(file, "\n"));
        let ended = sandbox.lamp(&["init"]);
        assert_eq!((ended.code, &*ended.out), (0, "wrote lamp.toml\n"), "{ended:?}");
        assert!(
            ended.err.contains("the job is refused until your command is in it"),
            "{}",
            ended.err
        );
        let checked = sandbox.lamp(&["check"]);
        assert_eq!(checked.code, 100, "{checked:?}");
        assert!(
            checked.out.contains("error: `command`: is still the placeholder of `lamp init`"),
            "{}",
            checked.out
        );
        assert!(checked.out.contains("lamp.toml: 1 error\n"), "{}", checked.out);
        assert_eq!(sandbox.lamp(&["run"]).code, 100, "what nobody filled in is not a success");
    }
}

#[test]
fn what_a_package_installs_and_what_torchrun_runs_is_recognised() {
    let sandbox = Sandbox::new();
    sandbox
        .write("pyproject.toml", "[project]\nname = 'x'\n[project.scripts]\ntrain-x = 'x:main'\n");
    assert_eq!(sandbox.lamp(&["init"]).code, 0);
    let (code, document) = sandbox.json(&["check", "-o", "json"]);
    assert_eq!(
        (code, &document["spec"]["command"]["args"]),
        (0, &serde_json::json!([".venv/bin/train-x"])),
        "{document}"
    );
    assert!(
        document["spec"]["setup"]
            .as_str()
            .is_some_and(|setup| setup.contains("pip\" install --quiet .")),
        "{document}"
    );

    let sandbox = Sandbox::new();
    sandbox.write("train.py", "dist.init_process_group('nccl')\n");
    assert_eq!(sandbox.lamp(&["init"]).code, 0);
    let (_, document) = sandbox.json(&["check", "-o", "json"]);
    let expected = [
        "python3",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=auto",
        "train.py",
    ];
    assert_eq!(document["spec"]["command"]["args"], serde_json::json!(expected));
}

/// The stock scripts of `tests/frameworks`: what is found in each without a run.
#[test]
fn folder_of_each_frameworks_stock_script_is_found() {
    let scripts = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frameworks");
    for (name, path, program) in [
        ("hf_trainer", "results", "train.py"),
        ("lightning_fit", "lightning_logs", "train.py"),
        ("accelerate_launch", "output/checkpoints", "accelerate.commands.launch"),
        ("torchrun_ddp", "checkpoints", "torch.distributed.run"),
        ("keras_backup", "backup", "train.py"),
        ("xgboost_checkpoint", "checkpoints", "train.py"),
        ("sklearn_joblib", "models", "train.py"),
        ("ultralytics_yolo", "runs", "train.py"),
        ("deepspeed_layout", "ds_checkpoints", "train.py"),
        ("orbax_manager", "checkpoints", "train.py"),
        ("wandb_tensorboard", "exp/run1", "train.py"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write(
            "train.py",
            std::fs::read_to_string(scripts.join(name).join("train.py")).expect("a script of ours"),
        );
        assert_eq!(sandbox.lamp(&["init"]).code, 0, "{name}");
        let (code, document) = sandbox.json(&["check", "-o", "json"]);
        assert_eq!((code, &document["warnings"]), (0, &0.into()), "{name}: {document}");
        assert_eq!(document["spec"]["checkpoint"]["path"], path, "{name}");
        assert!(
            document["spec"]["command"]["args"].to_string().contains(program),
            "{name}: {}",
            document["spec"]["command"]
        );
    }
}

/// A guess is said to be one, in the file and to the person.
#[test]
fn what_is_not_certain_is_said_in_a_comment() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", "import torch\nparser.add_argument('--data', required=True)\ntorch.save(a, f'out/ckpt_{e}.pt')\n");
    let ended = sandbox.lamp(&["init"]);
    assert!(
        ended.code == 0 && ended.err.contains("not certain: no line was found that loads it again"),
        "{ended:?}"
    );
    let file = sandbox.read("lamp.toml");
    assert!(
        file.contains("# Not certain: no line was found")
            && file.contains("may need them here: --data"),
        "{file}"
    );
}

#[test]
fn job_file_that_is_there_stays_as_it_is() {
    let sandbox = Sandbox::with_script();
    sandbox.write("lamp.toml", "# mine\n");
    let ended = sandbox.lamp(&["init"]);
    assert_eq!(ended.code, 102);
    let said = "error: `lamp.toml` is already there\nnothing was written\nhint: `lamp check lamp.toml` says what is wrong with it; \
                once it is deleted or has another name (`mv lamp.toml old-lamp.toml`), `lamp init` writes a new one\n";
    assert_eq!(ended.err, said);
    assert_eq!(sandbox.read("lamp.toml"), "# mine\n");
    // What the hint says, works.
    std::fs::rename(sandbox.path().join("lamp.toml"), sandbox.path().join("old-lamp.toml"))
        .expect("it is there");
    assert_eq!(
        (sandbox.lamp(&["init"]).code, sandbox.read("old-lamp.toml").as_str()),
        (0, "# mine\n")
    );
}

#[test]
fn json_says_what_was_found() {
    let sandbox = Sandbox::with_script();
    let (code, document) = sandbox.json(&["init", "-o", "json", "--script", "train.py"]);
    assert_eq!(code, 0);
    assert_eq!(document["file"], "lamp.toml");
    assert_eq!(document["found"]["script"], "train.py");
    let ended = sandbox.lamp(&["init", "nowhere"]);
    assert!(
        ended.code == 101 && ended.err.contains("\nhint: `mkdir -p nowhere` makes it; "),
        "{ended:?}"
    );
    assert_eq!(sandbox.lamp(&["init", "--script", "nope.py"]).code, 101);
}

/// A flag that all verbs have made `aws` the name of a folder.
#[test]
fn flag_between_init_and_aws_changes_nothing() {
    let sandbox = Sandbox::new();
    for words in [["init", "-q", "aws", "--help"], ["-q", "init", "aws", "--help"]] {
        let ended = sandbox.lamp(&words);
        assert!(ended.code == 0 && ended.out.contains("--region"), "{words:?}: {ended:?}");
    }
    sandbox.write("project/train.py", "");
    assert_eq!(sandbox.lamp(&["init", "-q", "project"]).code, 0);
}
