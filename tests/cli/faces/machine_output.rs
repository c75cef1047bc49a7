//! `-o json` of every verb: what comes on stdout is one JSON document, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use lamplighter::cli::Cli;
use serde_json::{Value, json};

use crate::place::{Place, end};
use crate::sandbox::{Sandbox, repository};
use lamp_test_support::skipped;

/// Each verb with words that can be run here; a verb that is not in this list fails the test.
const VERBS: [(&str, &[&str]); 40] = [
    ("agent", &["agent"]),
    ("apply", &["apply", "--dry-run", "jobs"]),
    ("cancel", &["cancel", "walks"]),
    ("check", &["check"]),
    ("completions", &["completions", "bash"]),
    ("costs", &["costs"]),
    ("daemon", &["daemon", "--job", "JOB", "--until-done"]),
    ("discard", &["discard", "JOB", "--dry-run"]),
    ("doctor", &["doctor"]),
    ("explain", &["explain", "walks"]),
    ("extend", &["extend", "walks", "1h"]),
    ("iam", &["iam", "box", "--job-root", "s3://bucket/prefix"]),
    ("import", &["import", "sky.yaml", "--to", "imported.toml"]),
    ("init", &["init", "fresh.toml"]),
    ("local", &["local", "train", "--module-name", "none", "--package-path", "nowhere"]),
    ("logs", &["logs", "walks"]),
    ("man", &["man", "--out", "pages"]),
    ("ml-engine", &["ml-engine", "jobs", "list"]),
    ("models", &["models", "list"]),
    ("notify", &["notify"]),
    ("outputs", &["outputs", "walks"]),
    ("plan", &["plan"]),
    ("predict", &["predict", "--model", "none", "--json-instances", "sky.yaml"]),
    ("prices", &["prices"]),
    ("receipt", &["receipt", "walks"]),
    ("rehearse", &["rehearse", "--dry-run"]),
    ("replay", &["replay", "idle", "nothing.csv"]),
    ("run", &["run"]),
    ("schedules", &["schedules"]),
    ("schema", &["schema", "job"]),
    ("share", &["share", "JOB", "shared.html"]),
    (
        "simulate",
        &[
            "simulate",
            "--quick",
            "--work",
            "1h",
            "--runs",
            "10",
            "--spot-price",
            "1",
            "--on-demand-price",
            "3",
        ],
    ),
    ("ssh", &["ssh", "walks"]),
    ("start", &["start", "walks"]),
    ("status", &["status"]),
    ("stop", &["stop", "walks"]),
    ("submit", &["submit", "training", "one", "--module-name", "x"]),
    ("sweep", &["sweep", "--dry-run"]),
    ("top", &["top"]),
    ("tune", &["tune", "list"]),
];

/// Verbs whose stdout is not a result of ours, which only some builds have, or which serve until
/// Ctrl-C (tests/web reads the link that `web` prints).
const LEFT_OUT: [&str; 4] = ["agent", "mcp", "uninit", "web"];

#[test]
fn what_every_verb_prints_for_machines_is_json() {
    let place = Place::new("echo one; echo two");
    place.0.write("lamp.toml", "name = 'walks'\ncommand = ['sh', 'job.sh']\n");
    place.0.write("jobs/other.toml", "command = ['sh', 'job.sh']\nworkdir = '..'\n");
    place.0.write("sky.yaml", "run: sh job.sh\nports: 1\n");
    let (code, out, err) = end(place.start(&["run", "-o", "json"]));
    let receipt: Value =
        serde_json::from_slice(&out).unwrap_or_else(|error| panic!("run: {error}: {err}"));
    let job = receipt["job"].as_str().expect("a receipt has its job").to_owned();
    assert_eq!(code, 0);
    let page = Page::read(&place.0);
    let mut undescribed = BTreeSet::new();
    for verb in Cli::command()
        .get_subcommands()
        .map(clap::Command::get_name)
        .filter(|verb| !LEFT_OUT.contains(verb))
    {
        let (_, words) = VERBS
            .iter()
            .find(|(name, _)| *name == verb)
            .unwrap_or_else(|| panic!("`lamp {verb}` is not walked: add it to VERBS"));
        let words: Vec<&str> = words
            .iter()
            .map(|word| if *word == "JOB" { job.as_str() } else { word })
            .chain(["-o", "json"])
            .collect();
        let mut command = place.0.command(&words);
        let ended = place.0.end(command.env("AWS_EC2_METADATA_DISABLED", "true"));
        let is_document = ended.out.is_empty() || serde_json::from_str::<Value>(&ended.out).is_ok();
        assert!(is_document, "lamp {words:?}: {}", ended.out);
        if let Ok(document) = serde_json::from_str(&ended.out) {
            undescribed.extend(
                keys(&document)
                    .into_iter()
                    .filter(|key| !page.describes(verb, key))
                    .map(|key| format!("lamp {verb}: {key}")),
            );
        }
        // What failed says so on stderr, in the last line, as an object too; what succeeded has
        // printed its result.
        let faulty = ended.err.lines().last().is_some_and(|line| {
            serde_json::from_str::<Value>(line).is_ok_and(|line| line["error"].is_object())
        });
        assert!(
            !ended.out.is_empty() || faulty || verb == "daemon",
            "lamp {words:?}: {} {}",
            ended.code,
            ended.err
        );
    }
    assert!(undescribed.is_empty(), "docs/cli-json.md does not name {undescribed:#?}");
    place.nothing_is_left();
}

/// docs/cli-json.md, by its sections, and the schemas that `lamp schema` prints, by verb.
struct Page {
    text: String,
    schemas: BTreeMap<String, Value>,
}

impl Page {
    fn read(sandbox: &Sandbox) -> Self {
        let text = std::fs::read_to_string(repository().join("docs/cli-json.md"));
        let schemas = ["costs", "explain", "plan", "receipt", "status", "top"]
            .map(|verb| (verb.to_owned(), sandbox.json(&["schema", verb]).1));
        Page { text: text.expect("it ships"), schemas: schemas.into() }
    }

    /// Whether the schema of the verb or a section about it names the key. A schema and an IAM
    /// policy are somebody else's documents.
    fn describes(&self, verb: &str, key: &str) -> bool {
        // What `lamp run` prints at its end is the receipt.
        let printed = if verb == "run" { "receipt" } else { verb };
        if self.schemas.get(printed).is_some_and(|schema| has_property(schema, key)) {
            return true;
        }
        if ["schema", "iam"].contains(&verb) {
            return true;
        }
        let about = |heading: &str| {
            heading.split(',').any(|one| {
                one.trim()
                    .strip_prefix("lamp ")
                    .is_some_and(|rest| rest.split(' ').next() == Some(verb))
            })
        };
        let sections =
            self.text.split("\n## ").filter(|section| section.lines().next().is_some_and(about));
        sections.into_iter().any(|section| {
            section.contains(&format!("`{key}`")) || section.contains(&format!("\"{key}\""))
        })
    }
}

fn has_property(schema: &Value, key: &str) -> bool {
    let is_here = schema["properties"].get(key).is_some();
    is_here
        || match schema {
            Value::Object(parts) => parts.values().any(|part| has_property(part, key)),
            Value::Array(parts) => parts.iter().any(|part| has_property(part, key)),
            _ => false,
        }
}

/// The keys of a document, and of the objects in its lists.
fn keys(document: &Value) -> BTreeSet<String> {
    let own = document.as_object().into_iter().flatten();
    let below = own
        .clone()
        .filter_map(|(_, value)| value.as_array())
        .flatten()
        .filter_map(Value::as_object)
        .flatten();
    own.chain(below).map(|(key, _)| key.clone()).collect()
}

#[test]
fn log_is_one_document_or_one_object_a_line() {
    let place = Place::new("echo one; echo two");
    assert_eq!(end(place.start(&["run", "-q", "--name", "told", "--", "sh", "job.sh"])).0, 0);
    let (_, whole) = place.0.json(&["logs", "told", "-o", "json"]);
    let text = |pieces: &[Value]| {
        pieces.iter().map(|piece| piece["log"].as_str().unwrap().to_owned()).collect::<String>()
    };
    assert_eq!(text(whole["pieces"].as_array().unwrap()), "one\ntwo\n");
    for words in [&["logs", "told", "-o", "jsonl"][..], &["logs", "-f", "told", "-o", "json"]] {
        let lines: Vec<Value> = place
            .0
            .lamp(words)
            .out
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object a line"))
            .collect();
        assert_eq!(text(&lines), "one\ntwo\n", "{words:?}");
    }
    let (code, completions) = place.0.json(&["completions", "bash", "-o", "json"]);
    assert!(
        code == 0
            && completions["shell"] == "bash"
            && completions["script"].as_str().unwrap().contains("lamp"),
        "{completions}"
    );
    place.nothing_is_left();
}

/// Judges documents by their schemas with Python's `jsonschema`; prints the number of each error.
const JUDGE: &str = "import json, sys
from jsonschema import Draft202012Validator as Judge
for schema, value in json.load(sys.stdin):
    Judge.check_schema(schema)
    errors = list(Judge(schema).iter_errors(value))
    print(len(errors), *[str(error.message)[:200] for error in errors])
";

/// A Python with `jsonschema`: moto needs it, so it is in the same place.
fn python_with_jsonschema() -> Option<PathBuf> {
    let moto = std::env::var_os("LAMP_TEST_MOTO").map(PathBuf::from);
    let beside = moto.and_then(|moto| Some(moto.parent()?.join("python")));
    let known = [beside, Some("python3".into())].into_iter().flatten().find(|python| {
        let asked = Command::new(python).args(["-c", "import jsonschema"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    });
    if known.is_none() {
        skipped("moto", "no Python here has the package jsonschema");
    }
    known
}

#[test]
fn printed_values_fit_the_schemas_that_lamp_schema_prints() {
    let Some(python) = python_with_jsonschema() else { return };
    let place = Place::new("echo one");
    place.0.write("lamp.toml", "name = 'fits'\ncommand = ['sh', 'job.sh']\n[tags]\nteam = 'ml'\n");
    assert_eq!(end(place.start(&["run", "-q"])).0, 0);
    let listed = place.0.json(&["schema", "-o", "json"]).1;
    let names: Vec<&str> = listed["schemas"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .filter(|name| !["job", "config"].contains(name))
        .collect();
    assert_eq!(names, ["status", "top", "costs", "plan", "explain", "receipt"]);
    let mut pairs = Vec::new();
    for name in &names {
        let schema = place.0.json(&["schema", name]).1;
        let value = place.0.json(&[name, "-o", "json"]).1;
        // Without its first key, it is another document.
        let mut broken = value.clone();
        let required = schema["required"][0].as_str().expect("a field that is always there");
        broken.as_object_mut().expect("an object").remove(required);
        pairs.extend([json!([schema, value]), json!([schema, broken])]);
    }
    let mut judge = Command::new(python)
        .args(["-c", JUDGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was asked before");
    let text = serde_json::to_vec(&pairs).expect("JSON");
    judge.stdin.take().expect("it is piped").write_all(&text).expect("it reads");
    let said = judge.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), pairs.len(), "{said}");
    for (at, line) in lines.iter().enumerate() {
        let (name, is_whole) = (names[at / 2], at % 2 == 0);
        assert_eq!(line.starts_with("0"), is_whole, "{name}: {line}");
    }
    let costs = place.0.json(&["costs", "--by", "tag:team", "-o", "json"]).1;
    assert_eq!((&costs["by"], &costs["groups"][0]["key"]), (&json!("tag:team"), &json!("ml")));
    assert_eq!(costs["rows"][0]["tags"], json!({ "team": "ml" }));
    let csv = place.0.lamp(&["costs", "--focus"]).out;
    assert!(csv.contains(r#"""team"":""ml"""#), "{csv}");
    place.nothing_is_left();
}
