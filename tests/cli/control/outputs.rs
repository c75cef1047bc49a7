//! `lamp outputs`: what a job kept comes home, whole, once, and over nothing of the user's.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{end, signal};
use crate::sandbox::{Sandbox, repository};

const JOB: &str = "digits-7f3k2q";
const ROOT: &str = "home/.local/state/lamplighter/jobs/digits-7f3k2q";

/// A job that has kept these.
fn kept(files: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(
        &format!("{ROOT}/spec.json"),
        std::fs::read_to_string(repository().join("tests/data/v1/spec.json")).expect("a record"),
    );
    sandbox.write(
        &format!("{ROOT}/receipt.json"),
        std::fs::read_to_string(repository().join("tests/data/v1/receipt.json")).expect("a record"),
    );
    for (path, text) in files {
        sandbox.write(&format!("{ROOT}/outputs/{path}"), text);
    }
    sandbox
}

/// A file of zeros that takes no room in the job directory.
fn zeros(sandbox: &Sandbox, path: &str, bytes: u64) {
    let path = sandbox.path().join(format!("{ROOT}/outputs/{path}"));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    File::create(path).expect("writable").set_len(bytes).expect("a file with a hole");
}

fn states(document: &Value) -> Vec<(&str, &str)> {
    let files = document["files"].as_array().expect("a list").iter();
    files
        .map(|file| {
            (file["path"].as_str().expect("a path"), file["state"].as_str().expect("a state"))
        })
        .collect()
}

#[test]
fn what_a_job_kept_comes_home_once() {
    let sandbox = kept(&[("model.pt", "weights"), ("metrics/a.json", "{}")]);
    let listed = sandbox.lamp(&["outputs", "--list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.contains("metrics/a.json") && listed.out.contains("7 B"), "{}", listed.out);
    assert!(
        listed.err.contains(&format!("2 files, 9 B in file://[DIR]/{ROOT}/outputs/")),
        "{}",
        listed.err
    );
    assert!(!sandbox.path().join("lamp-outputs").exists(), "a list fetches nothing");

    let fetched = sandbox.lamp(&["outputs", "digits"]);
    let paths = format!("lamp-outputs/{JOB}/metrics/a.json\nlamp-outputs/{JOB}/model.pt\n");
    assert_eq!((fetched.code, &*fetched.out), (0, &*paths));
    assert_eq!(fetched.err, format!("outputs: 2 files, 9 B in lamp-outputs/{JOB}\n"));
    assert_eq!(sandbox.read(&format!("lamp-outputs/{JOB}/model.pt")), "weights");

    let again = sandbox.lamp(&["outputs", "digits"]);
    assert_eq!((again.code, &*again.out), (0, &*paths), "where they are is said either way");
    assert!(again.err.ends_with("; all of it was here already\n"), "{}", again.err);

    // What was interrupted goes on with what is missing.
    std::fs::remove_file(sandbox.path().join(format!("lamp-outputs/{JOB}/model.pt")))
        .expect("it was fetched");
    let (code, document) = sandbox.json(&["outputs", "-o", "json"]);
    assert_eq!(
        (code, states(&document)),
        (0, vec![("metrics/a.json", "already_there"), ("model.pt", "fetched")])
    );
    assert_eq!(document["job"], JOB);
    assert!(document["folder"].as_str().is_some_and(|folder| folder.ends_with(JOB)), "{document}");
    let receipt = sandbox.lamp(&["receipt"]);
    assert!(
        receipt
            .out
            .ends_with(&format!("outputs: 2 files, 9 B; `lamp outputs {JOB}` fetches them\n")),
        "{}",
        receipt.out
    );
}

#[test]
fn what_is_different_here_is_left_unless_it_is_forced() {
    let sandbox = kept(&[("a", "one"), ("b", "two"), ("c", "three"), ("same", "same")]);
    sandbox.write("mine/a", "mine");
    sandbox.write("mine/b", "TWO");
    sandbox.write("mine/same", "same");
    let fetched = sandbox.lamp(&["outputs", "--to", "mine"]);
    assert_eq!(fetched.code, 102, "{fetched:?}");
    assert_eq!(fetched.out, "mine/c\nmine/same\n");
    assert!(
        fetched.err.contains("`a` is different here and was left as it is")
            && fetched.err.contains("`b` is different"),
        "{}",
        fetched.err
    );
    assert!(fetched.err.contains("`--force` writes over what is here"), "{}", fetched.err);
    assert_eq!(
        ["a", "b", "c"].map(|name| sandbox.read(&format!("mine/{name}"))),
        ["mine", "TWO", "three"]
    );
    assert_eq!(
        std::fs::read_dir(sandbox.path().join("mine")).expect("a folder").count(),
        4,
        "what was only compared is gone"
    );

    let (code, document) = sandbox.json(&["outputs", "--to", "mine", "--force", "-o", "json"]);
    let expected =
        vec![("a", "fetched"), ("b", "fetched"), ("c", "already_there"), ("same", "fetched")];
    assert_eq!((code, states(&document)), (0, expected));
    assert_eq!(sandbox.read("mine/b"), "two");
}

#[test]
fn one_file_that_cannot_come_does_not_stop_the_others() {
    let sandbox = kept(&[("a", "one"), ("b/c", "two"), ("d", "three")]);
    sandbox.write("mine/b", "a file where a folder should be");
    sandbox.write("mine/d/e", "a folder where a file should be");
    let fetched = sandbox.lamp(&["outputs", "--to", "mine"]);
    assert_eq!((fetched.code, &*fetched.out), (103, "mine/a\n"), "{}", fetched.err);
    assert!(
        fetched.err.contains("`b/c` was not fetched")
            && fetched.err.contains("`d` was not fetched"),
        "{}",
        fetched.err
    );
    assert!(
        fetched.err.contains(&format!("`lamp outputs {JOB} --to mine` tries again")),
        "{}",
        fetched.err
    );
}

#[test]
fn disk_without_room_is_said_before_anything_comes() {
    let sandbox = kept(&[("a", "one")]);
    // More than any disk of a machine that runs tests, less than a file may be.
    zeros(&sandbox, "huge", 8 << 40);
    let fetched = sandbox.lamp(&["outputs"]);
    assert_eq!(fetched.code, 103, "{fetched:?}");
    assert!(
        fetched.err.contains("the outputs need 8.0 TiB, and")
            && fetched.err.contains("--to FOLDER"),
        "{}",
        fetched.err
    );
    assert!(!sandbox.path().join("lamp-outputs").exists());
}

#[test]
fn ctrl_c_leaves_no_half_file() {
    let sandbox = kept(&[]);
    zeros(&sandbox, "big", 1 << 30);
    let fetching = sandbox
        .command(&["outputs", "--to", "mine"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let names = || {
        std::fs::read_dir(sandbox.path().join("mine"))
            .map(|entries| entries.count())
            .unwrap_or_default()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while names() == 0 {
        assert!(Instant::now() < until, "it never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(fetching.id(), "INT");
    let (code, out, err) = end(fetching);
    assert_eq!((code, out.len()), (130, 0), "{err}");
    assert!(err.contains("the same line, typed again, goes on"), "{err}");
    assert_eq!(names(), 0, "nothing of it is left");
}

#[test]
fn outputs_of_job_without_any_say_why() {
    let sandbox = kept(&[]);
    let none = sandbox.lamp(&["outputs"]);
    assert_eq!((none.code, &*none.out), (0, ""));
    assert!(none.err.starts_with(&format!("job `{JOB}` has kept no outputs\n")), "{}", none.err);
    let (code, document) = sandbox.json(&["outputs", "-o", "json"]);
    assert_eq!((code, &document["files"]), (0, &json!([])));
    std::fs::remove_file(sandbox.path().join(format!("{ROOT}/receipt.json")))
        .expect("it was written");
    assert!(sandbox.lamp(&["outputs"]).err.contains("outputs are kept when an attempt ends"));
    assert_eq!(sandbox.lamp(&["outputs", "nobody"]).code, 101);
}

#[test]
fn verb_that_only_looks_makes_no_job_root() {
    let sandbox = Sandbox::new();
    for verb in ["status", "receipt", "explain", "logs", "outputs", "stop"] {
        sandbox.lamp(&[verb]);
        assert!(!sandbox.path().join("home").exists(), "{verb}");
    }
}

/// Saves beside itself what nothing keeps, and a checkpoint.
const LEAVES: &str = r#"import json, os, time
class torch:
    def save(what, f): open(f, "w").write(what)
os.makedirs("output", exist_ok=True)
for n in range(2): torch.save("x", f"output/model_{n}.pt")
torch.save("x", "model_final.bin")
folder = os.environ["LAMP_CHECKPOINT_DIR"]
torch.save("seven", folder + "/n.new"); os.rename(folder + "/n.new", folder + "/n.pt")
open(os.environ["LAMP_PROGRESS"], "a").write(json.dumps({"checkpoint": "n.pt", "step": 7}) + "\n")
time.sleep(1)
"#;

#[test]
fn unkept_files_are_named_and_outputs_fetches_a_checkpoint() {
    let place = crate::place::Place::new("");
    place.0.write("train.py", LEAVES);
    place.0.write(".lampignore", "home\n");
    place.0.write(
        "lamp.toml",
        "name = 'leaves'\ncommand = ['python3', 'train.py']\n[checkpoint]\npath = 'ck'\n",
    );
    let check = place.0.lamp(&["check"]);
    assert!(
        check.code == 0
            && check.out.contains(
                "the script saves `output/model_*.pt`, `model_final.bin`, which nothing keeps"
            ),
        "{check:?}"
    );
    assert!(check.out.contains("kept at its end: what the script writes to $LAMP_OUTPUT_DIR, the newest checkpoint of `ck`"), "{check:?}");
    let ran = place.0.lamp(&["run"]);
    let line = r#"`outputs = ["model_final.bin", "output/**"]` in the job file keeps them"#;
    assert!(
        ran.code == 0
            && ran.err.contains("kept at its end: ")
            && ran.err.replace("\n  ", " ").contains(line),
        "{ran:?}"
    );
    let fetched = place.0.lamp(&["outputs", "--checkpoints", "--to", "back"]);
    assert!(
        fetched.code == 0 && fetched.err.contains("checkpoint 1 of step 7 of leaves-"),
        "{fetched:?}"
    );
    assert_eq!(place.0.read("back/ck/n.pt"), "seven");
    place.0.write(
        "lamp.toml",
        place.0.read("lamp.toml").replace(
            "[checkpoint]",
            "outputs = [\"model_final.bin\", \"output/**\"]\n[checkpoint]",
        ),
    );
    let kept = place.0.lamp(&["check"]);
    assert!(kept.out.contains("no findings"), "{kept:?}");
    let none = place.0.lamp(&["run", "-q", "--name", "none", "--", "true"]);
    assert_eq!(none.code, 0, "{none:?}");
    let refused = place.0.lamp(&["outputs", "--checkpoints", "none"]);
    assert!(refused.code == 101 && refused.err.contains("has saved no checkpoint"), "{refused:?}");
}
