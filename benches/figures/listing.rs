//! What the verbs that people type most cost: `lamp status` over a thousand jobs, `lamp --help`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::Asked;
use super::machine::{say_spread, used_by_children};
use super::place::Place;

const JOBS: usize = 1000;

pub fn measure(asked: &Asked) {
    let runs = asked.runs.unwrap_or(50);
    let place = Place::new();
    finished_jobs(&place, JOBS);
    let root = format!("file://{}", place.file("root").display());
    let status = |more: &[&str]| {
        let mut words = vec!["--job-root", &root, "status"];
        words.extend(more);
        let mut command = place.command(&asked.lamp);
        command.args(words);
        command
    };
    say("lamp --help", runs, place.command(&asked.lamp).arg("--help"));
    say("lamp run --help", runs, place.command(&asked.lamp).args(["run", "--help"]));
    say("lamp-agent --help", runs, place.command(&asked.agent).arg("--help"));
    say("lamp status, 1000 jobs", runs, &mut status(&[]));
    say("lamp status --all, 1000 jobs", runs, &mut status(&["--all"]));
    say("lamp status -o json, 1000 jobs", runs, &mut status(&["-o", "json"]));
    say("lamp status JOB, 1000 jobs", runs, &mut status(&["digits-bbbbbb"]));
}

fn say(name: &str, runs: usize, command: &mut Command) {
    for _ in 0..3 {
        command.status().expect("the program is built");
    }
    let before = used_by_children();
    let mut millis: Vec<f64> = (0..runs)
        .map(|_| {
            let began = Instant::now();
            command.status().expect("the program is built");
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    let cpu = (used_by_children() - before).as_secs_f64() * 1e3 / runs as f64;
    say_spread(&format!("{name} ({cpu:.1} CPU ms)"), &mut millis);
}

/// Jobs as they lie in a job root a while after they have ended, made of the records that
/// tests/data keeps for ever.
pub fn finished_jobs(place: &Place, count: usize) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1");
    let text = |name: &str| {
        std::fs::read_to_string(data.join(name)).expect("the records of version 1 are kept")
    };
    let record =
        |name: &str| -> Value { serde_json::from_str(&text(name)).expect("records are JSON") };
    let records = ["spec", "plan", "lease", "status", "outcome", "settled", "receipt", "manifest"]
        .map(|name| (name, record(&format!("{name}.json"))));
    let (events, samples) = (text("events.jsonl"), text("samples.jsonl"));
    for number in 0..count {
        let job = format!("digits-{}", letters(number));
        for (name, record) in &records {
            let mut record = record.clone();
            if record.get("job").is_some() {
                record["job"] = job.as_str().into();
            }
            let folder = match *name {
                "spec" | "receipt" => String::new(),
                "manifest" => "checkpoints/000009/".into(),
                _ => "attempts/0002/".into(),
            };
            place.write(&format!("root/jobs/{job}/{folder}{name}.json"), &record);
        }
        for (name, text) in [
            ("events/00000001.jsonl", &events),
            ("samples/00000001.jsonl.zst", &samples),
            ("log/00000001.zst", &samples),
        ] {
            let path = place.file(&format!("root/jobs/{job}/attempts/0002/{name}"));
            std::fs::create_dir_all(path.parent().expect("it lies in our folder"))
                .expect("our folder can be written");
            std::fs::write(path, text).expect("our folder can be written");
        }
    }
}

/// Six letters of a job's id.
fn letters(number: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjkmn";
    (0..6).rev().map(|place| char::from(LETTERS[number / 10_usize.pow(place) % 10])).collect()
}
