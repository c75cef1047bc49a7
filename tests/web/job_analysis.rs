//! Tests the analysis on a job's page: bands, ends, starts, another idle window.

use lamp_test_support::fake_nvml::FakeNvml;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::pages::Served;
use crate::place::{Place, wait_until};

fn run(place: &Place, more: &[&str]) -> String {
    let words = ["run", "-d", "-q", "--usd-per-hour", "2", "--name", "trains"];
    let command = ["--max-runtime", "1h", "--", "sh", "job.sh"];
    place.0.lamp(&[&words[..], more, &command].concat()).out.trim().to_owned()
}

#[test]
fn job_page_counts_down_to_each_end_and_shows_how_it_began() {
    let place = Place::new("echo one; while [ ! -e GO ]; do sleep 0.1; done");
    let job = run(&place, &["--budget", "50"]);
    place.until(&job, "running");
    let page = Served::of(&place);
    let path = format!("/job/{job}");
    let text = page.get(&path).text;
    for word in ["Ends, the nearest first", "Run time", "Hard cap", "Budget, at the rate of now"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let place_of = |word: &str| text.find(word).expect("it is there");
    assert!(place_of("<dt>Run time") < place_of("<dt>Hard cap"), "{text}");
    // It has no [checkpoint], so it cannot be asked to save.
    assert!(!text.contains("/act/save"), "{text}");
    let refused = page.get(&format!("{path}/act/save"));
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.text.contains("has no [checkpoint]"), "{}", refused.text);
    place.0.write("go", "");
    place.until(&job, "succeeded");
    let text = page.get(&path).text;
    assert!(!text.contains("Ends, the nearest first"), "an ended job has no end to come: {text}");
    assert!(text.contains("Start of each attempt") && text.contains("phase-fetch"), "{text}");
}

#[test]
fn plot_bands_marks_and_idle_replay_come_from_stored_samples() {
    let place = Place::new("echo one; while [ ! -e GO ]; do sleep 0.1; done");
    let job = run(&place, &["--idle", "10m"]);
    place.until(&job, "running");
    let page = Served::of(&place);
    // The first sample has no rate yet. Usage comes from the second.
    wait_until("its usage is measured", || {
        page.get(&format!("/job/{job}")).text.contains("<dt>Usage</dt>").then_some(())
    });
    place.0.write("go", "");
    place.until(&job, "succeeded");
    let data: Value =
        serde_json::from_str(&page.get(&format!("/job/{job}/plot.json")).text).expect("JSON");
    let list = |name: &str| data[name].as_array().cloned().unwrap_or_default();
    let marks = list("marks");
    assert!(marks.iter().any(|mark| mark["word"] == "started"), "{data}");
    assert!(marks.iter().any(|mark| mark["word"] == "settled"), "{data}");
    assert_eq!(data["startup"]["attempt"], 1, "{data}");
    let phases = data["startup"]["phases"].as_array().expect("a list");
    let phases: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(phases[..4], ["plan", "launch", "boot", "agent"], "{data}");
    assert_eq!(data["ends"].as_array().map(Vec::len), Some(0), "it has ended: {data}");
    let bands = list("bands");
    let known = ["starting", "busy", "idle", "stalled", "unknown"];
    assert!(!bands.is_empty(), "{data}");
    for band in &bands {
        assert!(known.contains(&band["kind"].as_str().expect("a word")), "{band}");
        assert!(band["from_secs"].as_f64() < band["to_secs"].as_f64(), "{band}");
        assert!(band["to_secs"].as_f64() <= data["end_secs"].as_f64(), "it is drawn: {data}");
    }
    let names: Vec<Value> = list("series").iter().map(|series| series["name"].clone()).collect();
    let directions = ["net_received_bytes_per_sec", "net_sent_bytes_per_sec", "net_bytes_per_sec"];
    for name in ["machine_memory_percent", "disk_free_bytes"].into_iter().chain(directions) {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    let text = page.get(&format!("/job/{job}")).text;
    assert!(text.contains("Network, in") && text.contains("Network, out"), "{text}");
    assert!(
        !text.contains("data-series=\"net_bytes_per_sec\""),
        "both directions have a plot: {text}"
    );
    assert!(
        text.contains("class=\"limit\"") && text.contains("out of memory: the kernel"),
        "{text}"
    );
    assert!(text.contains("class=\"band ") && text.contains("id=\"hatch\""), "{text}");
    let asked = |idle: &str| page.get(&format!("/job/{job}?idle={idle}")).text;
    let replayed = asked("10m");
    assert!(
        replayed.contains("id=\"idle-answer\"") && replayed.contains("would not have ended it"),
        "{replayed}"
    );
    assert!(replayed.contains("This job has"), "{replayed}");
    let wrong = asked("%3Cb%3E");
    assert!(wrong.contains("is no time") && !wrong.contains("<b>"), "{wrong}");
}

#[test]
fn each_gpu_has_a_row_a_line_and_its_processes() {
    let place = Place::new("while [ ! -e GO ]; do sleep 0.1; done");
    let gpus = FakeNvml::in_dir(&place.0.path());
    let all = "gpu * util 100\ngpu * power 150\ngpu * power-limit 300\ngpu * memory 15156/23028";
    let each = "gpu 0 temperature 61\ngpu 1 temperature 84\ngpu 1 ecc 2\ngpu 1 remapped 3,0,0,0";
    gpus.play(&format!("gpus 2\n{all}\n{each}\ngpu 0 pids {}\n", std::process::id()));
    let words =
        ["run", "-d", "-q", "--max-runtime", "1h", "--name", "trains", "--", "sh", "job.sh"];
    let started = place.0.command(&words).env("LAMP_NVML_LIBRARY", gpus.library()).output();
    let job = String::from_utf8(started.expect("it starts").stdout).expect("an id");
    let job = job.trim();
    place.until(job, "running");
    let page = Served::of(&place);
    let path = format!("/job/{job}");
    let text = wait_until("its GPUs are heard", || {
        let text = page.get(&path).text;
        text.contains("150 W, 50 % of 300 W").then_some(text)
    });
    for words in [
        "84 °C",
        "14.8 GiB of 22.5 GiB",
        "2 uncorrected memory errors",
        "no errors",
        "3 memory rows replaced",
        "Driver 550.54.15, CUDA up to 12.4",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(text.contains("Processes on GPU 0: ") && text.contains("not this job"), "{text}");
    place.0.write("go", "");
    place.until(job, "succeeded");
    let data: Value =
        serde_json::from_str(&page.get(&format!("{path}/plot.json")).text).expect("JSON");
    let heat = data["gpus"]["plots"].as_array().expect("plots").last().expect("a plot");
    assert_eq!(heat["name"], "temperature_celsius", "{data}");
    assert_eq!(
        (&heat["lines"][0]["values"][0], &heat["lines"][1]["gpu"]),
        (&json!(61.0), &json!(1))
    );
    let text = page.get(&path).text;
    assert!(text.contains("Temperature of each GPU") && text.contains("class=\"gpu-1\""), "{text}");
    let csv = page.get(&format!("{path}/gpus.csv")).text;
    let mut lines = csv.lines();
    assert!(
        lines.next().expect("a heading").ends_with(",power_watts,clock_mhz,temperature_celsius")
    );
    assert!(lines.next().expect("a row").contains(",0,100,15156,150,,61"), "{csv}");
    assert!(page.get(&format!("{path}/gpus")).text.contains("14.8 GiB"));
    let printed = place.0.lamp(&["explain", job, "--samples", "gpus", "-o", "csv"]).out;
    assert_eq!(printed.trim_end(), csv.trim_end());
    let table = place.0.lamp(&["explain", job, "--samples", "gpus"]).out;
    assert!(table.contains("TEMPERATURE_CELSIUS") && table.contains("14.8 GiB"), "{table}");
}
