//! Records and browsers that are wrong: torn, newer, missing, many, slow, gone.

use std::io::Write as _;
use std::net::TcpStream;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::pages::Served;
use crate::place::{Place, wait_until};

const ROOT: &str = "home/.local/state/lamplighter/jobs";

/// A record of version 1 for this job.
fn record(name: &str, job: &str) -> Value {
    let file = format!("{}/tests/data/v1/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).expect("the records of version 1 are kept");
    let mut record: Value = serde_json::from_str(&text).expect("a record");
    if record.get("job").is_some() {
        record["job"] = job.into();
    }
    record
}

/// A job whose agent reported just now.
fn runs(place: &Place, job: &str) {
    let mut status = record("status", job);
    status["at"] = jiff::Timestamp::now().to_string().into();
    place.0.write(&format!("{ROOT}/{job}/spec.json"), record("spec", job).to_string());
    for (name, record) in
        [("plan", record("plan", job)), ("lease", record("lease", job)), ("status", status)]
    {
        let file = format!("{ROOT}/{job}/attempts/0002/{name}.json");
        place.0.write(&file, record.to_string());
    }
}

fn sample(place: &Place, job: &str, number: u32, rows: &[u8]) {
    place.0.write(&format!("{ROOT}/{job}/attempts/0002/samples/{number:08}.jsonl.zst"), rows);
}

fn packed(rows: &[Value]) -> Vec<u8> {
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    zstd::bulk::compress(lines.as_bytes(), 3).expect("it packs")
}

#[test]
fn wrong_records_and_samples_hide_nothing_else() {
    let place = Place::new("true");
    let receipt = record("receipt", "good-222222").to_string();
    place.0.write(&format!("{ROOT}/good-222222/receipt.json"), &receipt);
    place.0.write(&format!("{ROOT}/torn-222222/receipt.json"), &receipt[..receipt.len() / 2]);
    place.0.write(&format!("{ROOT}/later-222222/receipt.json"), r#"{"format":99}"#);
    runs(&place, "bare-222222");
    runs(&place, "runs-222222");
    let rows: Vec<Value> =
        (0..60).map(|secs| json!({ "t_secs": secs, "gpu_percent": 50 + secs % 7 })).collect();
    sample(&place, "runs-222222", 1, &packed(&rows));
    sample(&place, "runs-222222", 2, b"not zstd");
    // A newer version measures what this one does not know, and writes a value in another way.
    let newer = json!({ "t_secs": 61, "gpu_percent": 70, "numa": [{ "sm_percent": 1 }] });
    let changed = json!({ "t_secs": 62, "gpu_percent": [1, 2] });
    sample(&place, "runs-222222", 3, &packed(&[newer, changed]));
    let page = Served::of(&place);
    let text = page.get("/").text;
    for job in ["good-222222", "torn-222222", "later-222222", "bare-222222", "runs-222222"] {
        assert!(text.contains(job), "{job} in {text}");
    }
    assert_eq!(text.matches("left out: ").count(), 2, "{text}");
    let plot = page.get("/job/runs-222222/plot.json");
    let plot: Value = serde_json::from_str(&plot.text).expect("numbers");
    assert_eq!((&plot["samples"], &plot["series"][0]["values"][60]), (&json!(61), &json!(70.0)));
    let bare = page.get("/job/bare-222222");
    assert_eq!(bare.status, StatusCode::OK);
    assert!(bare.text.contains("There are no samples of this attempt yet."), "{}", bare.text);
    for wrong in ["torn-222222", "later-222222"] {
        let answer = page.get(&format!("/job/{wrong}"));
        assert_ne!(answer.status, StatusCode::OK, "{wrong}: {}", answer.text);
        assert!(answer.text.contains("role=\"alert\""), "{wrong}: {}", answer.text);
    }
}

/// The index in the cache folder takes the place of the records, and is never needed.
#[test]
fn ended_jobs_are_read_once_and_a_wrong_index_is_read_anew() {
    let place = Place::new("true");
    let file = |job: &str| format!("{ROOT}/{job}/receipt.json");
    for job in ["one-222222", "two-222222"] {
        place.0.write(&file(job), record("receipt", job).to_string());
    }
    let shown = || {
        let text = Served::of(&place).get("/").text;
        (text.matches("data-job=").count(), text.matches("left out: ").count())
    };
    assert_eq!(shown(), (2, 0));
    place.0.write(&file("two-222222"), "{ torn");
    assert_eq!(shown(), (2, 0), "its receipt was read before");
    let cache = place.0.path().join("home/.cache/lamplighter");
    let index = std::fs::read_dir(&cache).expect("a cache").next().expect("a file").expect("it");
    std::fs::write(index.path(), "{ torn\n").expect("written");
    assert_eq!(shown(), (1, 1), "the records are the truth");
    std::fs::remove_dir_all(&cache).expect("it may be deleted");
    place.0.write(&file("two-222222"), record("receipt", "two-222222").to_string());
    assert_eq!(shown(), (2, 0));
}

#[test]
fn slow_and_vanished_browsers_hold_nobody_up() {
    let place = Place::new("true");
    runs(&place, "runs-222222");
    let page = Served::of(&place);
    let address = page.root.trim_start_matches("http://").to_owned();
    let ask = |rest: &str| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        let token = page.token();
        let asked = format!(
            "GET /live HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{rest}"
        );
        stream.write_all(asked.as_bytes()).expect("it reads");
        stream
    };
    // Half a request, an open page that reads nothing, and a page that is closed at once.
    let held: Vec<TcpStream> = (0..20).flat_map(|_| [ask(""), ask("\r\n")]).collect();
    (0..20).for_each(|_| drop(ask("\r\n")));
    assert_eq!(page.get("/").status, StatusCode::OK);
    assert!(page.get("/job/runs-222222").text.contains("runs-222222"));
    drop(held);
    assert_eq!(page.get("/").status, StatusCode::OK);
}

#[test]
fn page_of_ten_thousand_jobs_is_short_and_finds_each() {
    let place = Place::new("true");
    let receipt = record("receipt", "many-222222").to_string();
    let letters = |number: usize| -> String {
        (0..6).rev().map(|at| char::from(b"bcdfghjkmn"[number / 10_usize.pow(at) % 10])).collect()
    };
    for number in 0..10_000 {
        let job = format!("many-{}", letters(number));
        place.0.write(&format!("{ROOT}/{job}/receipt.json"), receipt.replace("many-222222", &job));
    }
    let page = Served::of(&place);
    let text = wait_until("all are read", || {
        let text = page.get("/").text;
        text.contains("more jobs").then_some(text)
    });
    assert!(text.contains("9,980 more jobs") || text.contains("9980 more jobs"), "{text}");
    assert!(text.len() < 200_000, "{} bytes", text.len());
    let last = format!("many-{}", letters(9_999));
    assert!(page.get(&format!("/?q={last}")).text.contains(&last));
}
