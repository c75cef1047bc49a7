//! `lamp models` and `lamp predict`: the real binary, with a small HTTP server as the model.

use std::fs;
use std::process::Command;

use lamp_test_support::skipped;
use serde_json::Value;

use crate::sandbox::Sandbox;

/// A model server of the standard library: adds the numbers of each instance.
const SERVER: &str = r#"
import http.server, json, os, sys
port, folder = int(sys.argv[1]), sys.argv[2]
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "served.pid"), "w").write(str(os.getpid()))
bias = json.load(open(os.path.join(folder, "bias.json")))
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.answer(200, {})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["instances"][0] == "die":
            os._exit(7)
        if asked["instances"][0] == "refuse":
            return self.answer(400, {"error": "2 features are missing"})
        rows = [{"sum": sum(x) + bias, "class": len(x)} for x in asked["instances"]]
        self.answer(200, {"predictions": rows})
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"#;

fn place() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("serve.py", SERVER);
    sandbox.write("adder/bias.json", "10");
    sandbox.write("sample.json", "[1, 2]\n[3]\n");
    sandbox
}

fn command_line(sandbox: &Sandbox) -> String {
    format!("python3 {}/serve.py {{port}} {{model}}", sandbox.path().display())
}

/// Whether the server that answered last still runs.
fn server_runs(sandbox: &Sandbox) -> bool {
    let pid = fs::read_to_string(sandbox.path().join("served.pid")).expect("a server ran");
    let stat = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim()));
    stat.is_ok_and(|line| line.contains("serve.py"))
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("-c").arg("import http.server").status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        skipped("python3", "there is no python3");
    }
    has
}

#[test]
fn model_lines_of_gcloud_run_and_leave_no_server() {
    if !has_python() {
        return;
    }
    let place = place();
    let line = command_line(&place);
    let lamp = |words: &[&str]| {
        let ended = place.lamp(words);
        assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
        ended
    };
    let made = lamp(&[
        "ml-engine",
        "versions",
        "create",
        "v1",
        "--model",
        "adder",
        "--origin",
        "adder",
        "--runtime-version",
        "1.8",
        "--serve-command",
        &line,
    ]);
    assert!(made.err.contains("Created version [v1] of model [adder]"), "{}", made.err);
    assert!(made.err.contains("--runtime-version 1.8 is kept for people"), "{}", made.err);
    // The version keeps what the folder was.
    place.write("adder/bias.json", "99");
    assert_eq!(
        lamp(&["ml-engine", "models", "list"]).out,
        "NAME   DEFAULT_VERSION_NAME\nadder  v1\n"
    );
    let asked = ["--model", "adder", "--version", "v1", "--json-instances", "sample.json"];
    let table = lamp(&[&["ai-platform", "predict"][..], &asked].concat());
    assert_eq!(table.out, "CLASS  SUM\n2      13\n1      13\n");
    assert!(!server_runs(&place), "the server ended with the answer");
    let json = lamp(&[&["ml-engine", "predict"][..], &asked, &["--format", "json"]].concat());
    let json: Value = serde_json::from_str(&json.out).expect("a document");
    assert_eq!(json["predictions"][0]["sum"], 13);
    let local = lamp(&[
        "local",
        "predict",
        "--model-dir",
        "adder",
        "--json-instances",
        "sample.json",
        "--serve-command",
        &line,
    ]);
    assert!(local.out.contains("102"), "{}", local.out);
    lamp(&["models", "versions", "delete", "v1", "--model", "adder", "--yes"]);
    lamp(&["models", "delete", "adder", "--yes"]);
    assert_eq!(lamp(&["models", "list", "-o", "json"]).out.trim(), "[]");
}

#[test]
fn failing_model_server_is_shown_and_ended() {
    if !has_python() {
        return;
    }
    let place = place();
    let ask = |instance: &str, line: &str| {
        place.write("one.json", instance);
        let words = [
            "local",
            "predict",
            "--model-dir",
            "adder",
            "--json-instances",
            "one.json",
            "--serve-command",
            line,
        ];
        place.lamp(&words)
    };
    let line = command_line(&place);
    let refused = ask("\"refuse\"\n", &line);
    assert!(refused.err.contains("(HTTP 400): 2 features are missing"), "{}", refused.err);
    assert!(!server_runs(&place));
    let died = ask("\"die\"\n", &line);
    assert!(died.err.contains("the server gave no answer"), "{}", died.err);
    let early = ask("[1]\n", "echo no such weights; exit 3 # {port}");
    assert!(
        early.err.contains("exit code 3") && early.err.contains("no such weights"),
        "{}",
        early.err
    );
    assert_eq!((refused.code, died.code, early.code), (100, 106, 106));
}

#[test]
fn bad_models_and_instances_are_named() {
    let place = place();
    let fails = |words: &[&str]| {
        let ended = place.lamp(words);
        assert_ne!(ended.code, 0, "{words:?}");
        ended.err
    };
    let create = ["models", "versions", "create", "v1", "--model", "adder", "--origin"];
    let unknown = fails(&[&create[..], &["adder"]].concat());
    assert!(unknown.contains("`bias.json`") && unknown.contains("saved_model.pb"), "{unknown}");
    let missing = fails(&[&create[..], &["nowhere"]].concat());
    assert!(missing.contains("there is no folder"), "{missing}");
    let custom = ["--serve-command", "serve {port}"];
    let made = place.lamp(&[&create[..], &["adder"], &custom].concat());
    assert_eq!(made.code, 0, "{}", made.err);
    let twice = fails(&[&create[..], &["adder"], &custom].concat());
    assert!(twice.contains("version `v1` of model `adder` exists already"), "{twice}");
    let predict = ["predict", "--json-instances", "sample.json", "--model"];
    let meant = fails(&[&predict[..], &["addr"]].concat());
    assert!(meant.contains("did you mean `adder`?"), "{meant}");
    place.write("sample.json", "[1]\n[2\n");
    let line = fails(&[&predict[..], &["adder"]].concat());
    assert!(line.contains("`sample.json`: line 2 is not JSON"), "{line}");
    place.write("sample.json", "[1]\n\n");
    let empty = fails(&[&predict[..], &["adder"]].concat());
    assert!(empty.contains("line 2 is empty"), "{empty}");
    place.write("pickled/model.pkl", "x");
    place.write("sample.json", "[1]\n");
    let python = ["--python", "./no-python"];
    let local = ["local", "predict", "--json-instances", "sample.json", "--model-dir", "pickled"];
    let python = fails(&[&local[..], &python].concat());
    assert!(python.contains("--python PATH"), "{python}");
    let full = fails(&["models", "delete", "adder", "--yes"]);
    assert!(full.contains("model `adder` has versions: v1"), "{full}");
}

/// The model of the tutorials: a SavedModel with a named input and two outputs; and one of Keras.
const TENSORFLOW: &str = "\
import os
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import keras, numpy, tensorflow as tf
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, activation='softmax')])
model.layers[0].set_weights([numpy.array([[9., 0, 0], [0, 9, 0]]), numpy.zeros(3)])
@tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name='image')])
def serve(image):
    probabilities = model(image)
    return {'class': tf.argmax(probabilities, 1), 'probabilities': probabilities}
tf.saved_model.save(model, 'saved', signatures={'serving_default': serve})
os.makedirs('keras')
model.save('keras/model.keras')
";

#[test]
fn models_of_tensorflow_and_keras_predict_by_mlflow() {
    let folder = std::env::var_os("LAMP_TEST_MLFLOW").unwrap_or_default();
    let python = std::path::PathBuf::from(folder).join("bin/python");
    let has_both = Command::new(&python).args(["-c", "import mlflow, tensorflow"]).output();
    if !has_both.is_ok_and(|output| output.status.success()) {
        return skipped("mlflow", "LAMP_TEST_MLFLOW names no environment with TensorFlow");
    }
    let sandbox = Sandbox::new();
    sandbox.write("model.py", TENSORFLOW);
    let mut made = Command::new(&python);
    made.arg("model.py").current_dir(sandbox.path());
    assert!(made.output().expect("a Python").status.success());
    sandbox.write("rows.json", "[1, 0]\n[0, 1]\n");
    sandbox.write("named.json", "{\"image\": [1, 0]}\n{\"image\": [0, 1]}\n");
    let python = python.display().to_string();
    let ask = |model: &str, instances: &str| {
        let words = ["local", "predict", "--model-dir", model, "--json-instances", instances];
        let ended = sandbox.lamp(&[&words[..], &["--python", &python]].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.out
    };
    for instances in ["rows.json", "named.json"] {
        let table = ask("saved", instances);
        let classes: Vec<&str> =
            table.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(classes, ["CLASS", "0", "1"], "{table}");
        assert!(table.contains("PROBABILITIES"), "{table}");
    }
    assert!(ask("keras", "rows.json").starts_with("[[0.99"), "a row for each instance");
}
