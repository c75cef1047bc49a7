//! `lamp tune` with `early_stop = "pausing-asha"`: trials stop at a rung and go on from there.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{Place, end};
use crate::sandbox::PATIENCE;

/// The score is x. Trial 1 ends at once, and its score grows at the rung of step 4. Another trial
/// waits at the rung of step 1 until it is judged, and goes on from its checkpoint to its end.
const SCRIPT: &str = r#"x=${1#--x=}
n=0; [ ! -e "$LAMP_CHECKPOINT_DIR/state" ] || n=$(cat "$LAMP_CHECKPOINT_DIR/state")
echo "trial $LAMP_TRIAL begins at $n"
begun=$n
mkdir -p "$LAMP_CHECKPOINT_DIR"
while [ $n -lt 5 ]; do
    n=$((n + 1)); score=$x
    [ $x != 1 ] || [ $n -lt 4 ] || score=9
    echo $n > "$LAMP_CHECKPOINT_DIR/state.new"
    mv "$LAMP_CHECKPOINT_DIR/state.new" "$LAMP_CHECKPOINT_DIR/state"
    echo "{\"checkpoint\": \"state\", \"step\": $n, \"score\": $score}" >> "$LAMP_PROGRESS"
    [ $x = 1 ] || [ $begun != 0 ] || sleep 200
done
"#;

const JOB: &str = "name = 'walks'\ncommand = ['sh', 'job.sh']\n\
    [machine]\nusd_per_hour = 3.6\n[limits]\nmax_runtime = '5m'\n\
    [checkpoint]\npath = 'ckpt'\ninterval = '1s'\n\
    [tune]\nmetric = 'score'\nearly_stop = 'pausing-asha'\n\
    [tune.params.x]\ntype = 'int'\nmin = 1\nmax = 8\n";

fn status(place: &Place) -> Value {
    let (code, value) = place.0.json(&["tune", "status", "walks", "-o", "json"]);
    assert_eq!(code, 0, "{value}");
    value
}

/// Two of eight trials pass a rung. The second was paused, and wins in the end.
#[test]
fn paused_trial_goes_on_from_its_checkpoint_and_wins() {
    let place = Place::new(SCRIPT);
    place.0.write("job.toml", JOB);
    let mut first = place.start(&["tune", "job.toml"]);
    let until = Instant::now() + PATIENCE;
    let is_paused = || {
        let shown = place.0.lamp(&["tune", "status", "walks", "-o", "json"]);
        serde_json::from_str::<Value>(&shown.out).is_ok_and(|view| view["counts"]["paused"] == 2)
    };
    while !is_paused() {
        assert!(Instant::now() < until, "two trials are never paused");
        std::thread::sleep(Duration::from_millis(200));
    }
    // SIGKILL: the next driver knows what is paused.
    first.kill().unwrap();
    first.wait().unwrap();
    let (code, _, err) = end(place.start(&["tune", "drive", "walks"]));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("trial 2 goes on from step 1, at place 2 of 8 at step 1"), "{err}");
    let view = status(&place);
    let counts = &view["counts"];
    assert_eq!(
        (&counts["complete"], &counts["pruned"], &counts["paused"], &counts["running"]),
        (&json!(2), &json!(6), &json!(0), &json!(0)),
        "{view:#}"
    );
    assert_eq!((&view["best"]["number"], &view["best"]["value"]), (&json!(2), &json!(2.0)));
    let best = &view["trials"][0];
    let log = place.0.lamp(&["logs", best["job"].as_str().expect("a job")]).out;
    assert!(log.contains("trial 2 begins at 1"), "{log}");
    // The trial has the money of both its jobs.
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let receipts: Vec<Value> = std::fs::read_dir(jobs)
        .expect("the job root is there")
        .map(|job| place.receipt(&job.expect("a folder").file_name().to_string_lossy()))
        .collect();
    assert_eq!(receipts.len(), 9);
    let of = |name: Option<&str>| -> f64 {
        let counts = |receipt: &&Value| name.is_none_or(|name| receipt["name"] == name);
        let usd = receipts.iter().filter(counts).filter_map(|one| one["total_usd"].as_f64());
        usd.sum()
    };
    for (told, sum) in [(&view["usd"], of(None)), (&best["usd"], of(Some("walks-2")))] {
        let told = told.as_f64().expect("money");
        assert!((told - sum).abs() < 1e-6 && sum > 0.0, "{told} told, {sum} on the receipts");
    }
    place.nothing_is_left();
}

#[test]
fn pausing_needs_a_checkpoint_and_no_optuna() {
    let place = Place::new(SCRIPT);
    place.0.write("job.toml", JOB.replace("[checkpoint]\npath = 'ckpt'\ninterval = '1s'\n", ""));
    let refused = place.0.lamp(&["tune", "job.toml"]);
    assert!(
        refused.code == 100 && refused.err.contains("a paused trial has no checkpoint"),
        "{}",
        refused.err
    );
}

/// A driver decided a trial while the user stopped the tuning: its job was made, and ran.
#[test]
fn trial_decided_as_the_user_stopped_is_never_run() {
    let place = Place::new("echo ran >> RAN\nsleep 200\n");
    let ran = place.0.path().join("ran").display().to_string();
    let script = place.0.read("job.sh").replace("RAN", &ran);
    place.0.write("job.sh", script);
    place.0.write("job.toml", JOB);
    let mut driver = place.start(&["tune", "job.toml"]);
    let until = Instant::now() + PATIENCE;
    while !place.0.path().join("ran").exists() {
        assert!(Instant::now() < until, "the first trial never runs");
        std::thread::sleep(Duration::from_millis(50));
    }
    driver.kill().unwrap();
    driver.wait().unwrap();
    let folder = "home/.local/state/lamplighter/tunings/walks";
    let mut trial: Value =
        serde_json::from_str(&place.0.read(&format!("{folder}/trials/00001.json"))).unwrap();
    trial["number"] = json!(2);
    trial["job"]["job"] = json!("walks-2-222222");
    trial["job"]["spec"]["name"] = json!("walks-2");
    place.0.write(&format!("{folder}/trials/00002.json"), trial.to_string());
    let stop = json!({ "format": 1, "at": trial["decided"], "by": "me", "because": "user_stopped",
        "reason": "the user stopped it" });
    place.0.write(&format!("{folder}/ended.json"), stop.to_string());
    let (code, _, err) = end(place.start(&["tune", "drive", "walks"]));
    assert_eq!(code, 108, "{err}");
    assert_eq!(status(&place)["counts"]["stopped"], 2);
    assert_eq!(place.0.read("ran"), "ran\n", "the second trial has not run");
}
