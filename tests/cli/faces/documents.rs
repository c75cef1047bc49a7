//! Documents that repeat what the program knows: schemas, the reference of keys, the list of exit
//! codes, the examples.
//!
//! `LAMP_UPDATE=1 cargo test --test cli` rewrites the generated ones.

#![expect(
    clippy::disallowed_methods,
    reason = "a test reads and rewrites the documents of the repository"
)]

use std::fmt::Write;
use std::path::Path;

use lamplighter::cli::ExitCode;
use lamplighter::config::{Environment, Inputs, JobFile, Loaded, UserConfig, read_job};
use lamplighter::job::{Finding, Severity};
use serde_json::Value;

use crate::sandbox::{Sandbox, repository};

fn must_be(path: &str, expected: &str) {
    let file = repository().join(path);
    if std::env::var_os("LAMP_UPDATE").is_some() {
        std::fs::write(&file, expected).expect("the repository is writable");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "`{path}` is not what the program says; `LAMP_UPDATE=1 cargo test --test cli documents` writes it anew"
    );
}

fn schema(of: &str) -> Value {
    let (code, schema) = Sandbox::new().json(&["schema", of]);
    assert_eq!(code, 0);
    schema
}

#[test]
fn schemas_are_those_of_the_program() {
    for (of, path) in [("job", "config/schema/job.json"), ("config", "config/schema/config.json")] {
        let ended = Sandbox::new().lamp(&["schema", of]);
        assert_eq!(ended.code, 0);
        must_be(path, &ended.out);
    }
}

const BEGIN: &str = "<!-- keys: generated from the schema -->\n";
const END: &str = "<!-- end of keys -->\n";

#[test]
fn reference_of_keys_is_the_schemas() {
    let path = "docs/job-file.md";
    let text = std::fs::read_to_string(repository().join(path)).expect("the reference is there");
    let (before, rest) = text.split_once(BEGIN).expect("the reference has a place for the keys");
    let (_, after) = rest.split_once(END).expect("the place for the keys has an end");
    let mut keys = String::new();
    let job = schema("job");
    section("", &job, &mut keys);
    for (name, table) in job["properties"].as_object().expect("a job file is a table") {
        if table["type"] == "object" && table.get("properties").is_some() {
            section(name, table, &mut keys);
        }
    }
    must_be(path, &format!("{before}{BEGIN}{keys}{END}{after}"));
}

fn section(name: &str, table: &Value, text: &mut String) {
    if name.is_empty() {
        text.push_str("\n### At the top\n");
    } else {
        writeln!(text, "\n### `[{name}]`\n\n{}", described(table))
            .expect("a String takes everything");
    }
    text.push_str("\n| Key | Meaning | Default | Example |\n|---|---|---|---|\n");
    for (key, about) in table["properties"].as_object().expect("a section is a table") {
        let is_table = about["type"] == "object" && about.get("properties").is_some();
        if is_table || key.starts_with('$') {
            continue;
        }
        let default = about.get("default").map(as_toml).unwrap_or_default();
        let examples = about["examples"]
            .as_array()
            .map(|all| all.iter().map(as_toml).collect::<Vec<_>>().join(", "))
            .unwrap_or_default();
        writeln!(text, "| `{key}` | {} | {default} | {examples} |", described(about))
            .expect("a String takes everything");
    }
}

fn described(about: &Value) -> String {
    about["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

fn as_toml(value: &Value) -> String {
    let text = match value {
        Value::Object(map) => format!(
            "{{ {} }}",
            map.iter()
                .map(|(name, value)| format!("{name} = {value}"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        other => other.to_string(),
    };
    format!("`{}`", text.replace(',', ", ").replace(",  ", ", ").replace('|', "\\|"))
}

/// Every `(table, key, schema)` of the job file.
fn keys() -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    let job = schema("job");
    for (name, about) in job["properties"].as_object().expect("a job file is a table") {
        match about.get("properties").and_then(Value::as_object) {
            Some(keys) => all
                .extend(keys.iter().map(|(key, about)| (name.clone(), key.clone(), about.clone()))),
            None => all.push((String::new(), name.clone(), about.clone())),
        }
    }
    all
}

/// Keys of `[gang]` that say how many machines there are, as `nodes` does.
const ROLES: [&str; 4] = ["chief", "worker", "ps", "evaluator"];

/// A job with one key set, as JSON.
fn job_with(table: &str, key: &str, value: &Value) -> String {
    let mut job = serde_json::json!({"command": ["sh", "train.py"]});
    if table == "checkpoint" {
        job["checkpoint"] = serde_json::json!({"path": "c"});
    }
    if table == "tune" {
        job["tune"] = serde_json::json!({"params": {"x": {"min": 0, "max": 1}}});
        job["limits"] = serde_json::json!({"max_runtime": "1h"});
    }
    if table == "gang" && !ROLES.contains(&key) {
        job["nodes"] = 2.into();
    }
    if key == "only_while_spot_under" {
        job["machine"] = serde_json::json!({"market": "spot"});
    }
    if table == "machine" && key == "cloud" && value == "aws" {
        job["limits"] = serde_json::json!({"budget": 5});
    }
    let place = if table.is_empty() { &mut job } else { &mut job[table] };
    place[key] = value.clone();
    job.to_string()
}

/// The job as `lamp check` reads it, without a process for each of two hundred files.
fn read(sandbox: &Sandbox, text: String) -> Loaded {
    sandbox.write("job.json", text);
    let (flags, user) = (JobFile::default(), UserConfig::default());
    let environment = Environment { path: Some("/usr/bin:/bin".into()), ..Environment::default() };
    let current_dir = sandbox.path();
    let now = jiff::Timestamp::UNIX_EPOCH;
    let (flags, user, environment) = (&flags, &user, &environment);
    let inputs = Inputs { flags, user, environment, current_dir: &current_dir, now };
    read_job(Some(Path::new("job.json")), &inputs).expect("it can be read")
}

fn errors(job: &Loaded) -> Vec<&Finding> {
    job.findings.iter().filter(|finding| finding.severity == Severity::Error).collect()
}

#[test]
fn documented_default_is_what_happens_without_the_key() {
    let sandbox = Sandbox::with_script();
    let spec = |text: String| {
        let job = read(&sandbox, text);
        assert!(errors(&job).is_empty(), "{:?}", errors(&job));
        (job.spec, job.schedule, job.tune)
    };
    let mut compared = 0;
    for (table, key, about) in keys() {
        let Some(default) = about.get("default") else { continue };
        let without = match table.as_str() {
            "checkpoint" => job_with("checkpoint", "path", &"c".into()),
            "gang" => job_with("", "nodes", &2.into()),
            "schedule" => job_with("", "schedule", &serde_json::json!({})),
            "tune" => job_with("tune", "params", &serde_json::json!({"x": {"min": 0, "max": 1}})),
            _ => job_with("", "name", &"job".into()),
        };
        let with = job_with(&table, &key, default);
        assert_eq!(spec(with), spec(without), "{table}.{key} = {default}");
        compared += 1;
    }
    assert!(compared > 20, "only {compared} defaults were found");
}

#[test]
fn every_documented_example_is_accepted() {
    let sandbox = Sandbox::with_script();
    let mut tried = 0;
    for (table, key, about) in keys() {
        for example in about["examples"].as_array().into_iter().flatten() {
            let is_of_another_folder = key == "workdir" || key == "command";
            let job = read(&sandbox, job_with(&table, &key, example));
            // This environment lacks the secrets of an example.
            let is_missing =
                |found: &&Finding| found.message.contains("the environment of `lamp` has no");
            let errors: Vec<_> =
                errors(&job).into_iter().filter(|found| !is_missing(found)).collect();
            assert!(
                errors.is_empty() || is_of_another_folder,
                "{table}.{key} = {example}: {errors:?}"
            );
            tried += 1;
        }
    }
    assert!(tried > 30, "only {tried} examples were found");
}

#[test]
fn exit_codes_are_documented_and_none_besides() {
    let text = std::fs::read_to_string(repository().join("docs/exit-codes.md"))
        .expect("the list is there");
    let rows: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let number = cells.next()?.trim().to_owned();
            number.parse::<u8>().ok()?;
            Some((number, cells.next()?.trim_matches('`').to_owned()))
        })
        .collect();
    let known: Vec<_> = ExitCode::ALL
        .iter()
        .map(|(code, name)| (code.number().to_string(), (*name).to_owned()))
        .collect();
    assert_eq!(rows, known);
}

#[test]
fn shipped_configuration_is_commented_defaults() {
    let text = std::fs::read_to_string(repository().join("config/lamp.toml")).expect("it ships");
    let sandbox = Sandbox::with_script();
    // Once as it is, and once with every setting switched on: both must be understood.
    let on: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    assert_ne!(text.trim_end(), on, "the file has settings behind `#: `");
    for text in [text.as_str(), &on] {
        sandbox.write("home/.config/lamplighter/config.toml", text);
        let ended = sandbox.lamp(&["check", "--", "sh", "train.py"]);
        assert_eq!(ended.err, "", "{text}");
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    for key in schema("config")["properties"]
        .as_object()
        .expect("it is a table")
        .keys()
        .filter(|key| !key.starts_with('$'))
    {
        assert!(text.contains(key.as_str()), "`{key}` is not explained in config/lamp.toml");
    }
}

#[test]
fn example_jobs_have_no_errors() {
    let folder = repository().join("config/jobs");
    let mut seen = 0;
    for entry in folder.read_dir().expect("the examples are there") {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let ended = Sandbox::new().lamp(&["check", &path.display().to_string()]);
            assert_eq!(ended.code, 0, "{}: {ended:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no example was found");
}
