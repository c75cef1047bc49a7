//! `lamp stop` and `lamp extend` of a job that runs: what is refused, and what is said.

use super::place::Place;

const WAITS: &str = "trap 'exit 5' TERM; while :; do sleep 0.1; done";

#[test]
fn only_a_limit_that_is_there_can_be_raised() {
    let place = Place::new(WAITS);
    assert_eq!(place.0.lamp(&["run", "-d", "--name", "free", "--idle", "off", "--", "sh", "job.sh"]).code, 0);
    place.until("free", "running");
    for nothing in [&["free", "0s"][..], &["free", "--budget=-5"], &["free", "--budget", "0"]] {
        let refused = place.0.lamp(&[&["extend"], nothing].concat());
        assert_eq!((refused.code, refused.err.contains("hint: ")), (2, true), "{nothing:?}: {}", refused.err);
    }
    for (what, missing) in [(&["free", "2h"][..], "no limit of its time"), (&["free", "--budget", "5"], "no budget")] {
        let refused = place.0.lamp(&[&["extend"], what].concat());
        assert_eq!((refused.code, refused.err.contains(missing)), (102, true), "{what:?}: {}", refused.err);
    }
    let (_, explained) = place.0.json(&["explain", "free", "-o", "json"]);
    assert_eq!(explained["requests"].as_array().map(Vec::len), Some(0), "{explained}");
    let stopped = place.0.lamp(&["stop", "free"]);
    assert!(stopped.code == 0 && stopped.err.contains("it has no [checkpoint]") && !stopped.err.contains("saves a checkpoint"), "{}", stopped.err);
    place.until("free", "stopped");
    place.nothing_is_left();
}
