//! `lamp stop` and `lamp cancel` of several jobs at once, and of all.

use std::sync::Arc;

use lamplighter::cli::each_under_way;
use lamplighter::job::JobId;
use lamplighter::jobdir::layout;
use lamplighter::ports::Store;
use serde_json::Value;

use crate::place::{Place, end};
use crate::sandbox::repository;
use lamp_test_support::counting_store::CountingStore;
use lamp_test_support::faulty_store::FaultyStore;
use lamp_test_support::virtual_clock::simulate;

const WAITS: &str = "while [ ! -e GO ]; do sleep 0.1; done";

fn begin(place: &Place, names: &[&str]) -> Vec<String> {
    for name in names {
        assert_eq!(
            place
                .0
                .lamp(&["run", "-d", "--name", name, "--idle", "off", "--", "sh", "job.sh"])
                .code,
            0
        );
    }
    names
        .iter()
        .map(|name| place.until(name, "running")["job"].as_str().expect("a job").to_owned())
        .collect()
}

/// A word that means nothing keeps nothing else running: that bills.
#[test]
fn stop_of_several_jobs_ends_each_despite_a_missing_one() {
    let place = Place::new(WAITS);
    let jobs = begin(&place, &["one", "two", "three"]);
    let asked = place.0.lamp(&["stop", "one", "nobody", &jobs[1], "one"]);
    assert!(asked.code == 101 && asked.err.contains("no job `nobody`"), "{asked:?}");
    for job in &jobs[..2] {
        assert_eq!(
            asked.err.matches(&format!("asked {job} to stop; ")).count(),
            1,
            "each once: {asked:?}"
        );
    }
    for name in ["one", "two"] {
        place.until(name, "stopped");
    }
    assert!(place.status("three")["end_asked"].is_null());
    // Programs are told of each, and of what went wrong, too.
    let mixed = place.0.lamp(&["cancel", "one", "three", "three", "nobody", "-o", "json"]);
    assert_eq!(mixed.code, 101, "{mixed:?}");
    let out: Value = serde_json::from_str(&mixed.out).expect("a document");
    assert_eq!(out["jobs"].as_array().expect("jobs").len(), 1, "{out}");
    assert_eq!(
        (&out["jobs"][0]["job"], &out["jobs"][0]["wish"]),
        (&jobs[2].clone().into(), &"cancel".into())
    );
    let err: Value =
        serde_json::from_str(mixed.err.lines().last().expect("a fault")).expect("an object");
    assert!(
        err["error"]["what"].as_str().is_some_and(|what| what.contains("no job `nobody`")),
        "{err}"
    );
    assert!(
        err["error"]["others"][0]["what"]
            .as_str()
            .is_some_and(|what| what.contains(&jobs[0]) && what.contains("has ended")),
        "{err}"
    );
    let told = place.0.lamp(&["cancel", "one", "nobody"]);
    assert!(
        told.code == 101
            && told.err.contains("has ended: stopped\n")
            && told.err.contains("error: no job `nobody`"),
        "people too: {told:?}"
    );
    place.until("three", "cancelled");
    place.nothing_is_left();
}

/// Of thousands of jobs in a bucket a list is several calls.
#[test]
fn which_jobs_there_are_is_asked_once_for_all_words() {
    simulate(async |clock| {
        let store = FaultyStore::new(clock.clone());
        let spec = std::fs::read(repository().join("tests/data/v1/spec.json")).expect("a record");
        for job in ["one-222222", "two-222222", "three-222222"] {
            let job: JobId = job.parse().expect("an id");
            store.put(&layout::spec(&job), spec.clone().into()).await.expect("written");
        }
        let counting = CountingStore::new(store.clone());
        let (root, words) = (
            counting.clone() as Arc<dyn Store>,
            ["one", "three-222222", " ", "nobody", "tw"].map(str::to_owned),
        );
        let found = each_under_way(&root, &words).await.expect("it answers");
        let said = found.iter().map(|found| {
            found.as_ref().map_or_else(|fault| fault.what.as_str(), |dir| dir.job().as_str())
        });
        let said: Vec<&str> = said.collect();
        let wanted = [
            "one-222222",
            "three-222222",
            "the name of the job is empty",
            "no job `nobody` in s3://bucket/root",
            "two-222222",
        ];
        assert_eq!(said, wanted);
        // And once which schedules there are: one of them may have the name that no job has.
        assert_eq!(counting.take().get(&("list", "jobs/".to_owned())), Some(&2));
    });
}

#[test]
fn several_jobs_are_waited_for_and_their_receipts_are_shown() {
    let place = Place::new(WAITS);
    let jobs = begin(&place, &["one", "two"]);
    let (code, document) = place.0.json(&["stop", "--wait", "one", "two", "-o", "json"]);
    assert_eq!(code, 0, "{document}");
    let ended = document["jobs"].as_array().expect("receipts");
    let said: Vec<(&str, &str)> = ended
        .iter()
        .map(|receipt| {
            (receipt["job"].as_str().expect("a job"), receipt["outcome"].as_str().expect("an end"))
        })
        .collect();
    assert_eq!(said, [(jobs[0].as_str(), "stopped"), (&jobs[1], "stopped")]);
    place.nothing_is_left();
}

/// Nobody's job but one's own, and none unasked.
#[test]
fn stop_all_asks_first_and_ends_only_the_jobs_of_the_user() {
    let place = Place::new(WAITS);
    let none = place.0.lamp(&["stop", "--all", "--yes"]);
    assert!(none.code == 101, "{none:?}");
    let jobs = begin(&place, &["one", "two"]);
    let mut theirs =
        place.0.command(&["run", "-d", "--name", "theirs", "--idle", "off", "--", "sh", "job.sh"]);
    assert_eq!(place.0.end(theirs.env("LAMP_OWNER", "somebody-else")).code, 0);
    place.until("theirs", "running");
    let unasked = place.0.lamp(&["cancel", "--all"]);
    assert!(unasked.code == 102 && unasked.err.contains("this call cannot ask"), "{unasked:?}");
    assert!(
        jobs.iter().all(|job| unasked.err.contains(job))
            && unasked.err.contains("; 1 job of another owner left alone"),
        "{unasked:?}"
    );
    assert!(
        unasked.err.contains("2 jobs are under way")
            && unasked.err.contains("nothing was asked of any of them"),
        "{unasked:?}"
    );
    let with_a_name = place.0.lamp(&["cancel", "--all", "one", "--yes"]);
    assert_eq!(with_a_name.code, 2, "who names a job does not mean all: {with_a_name:?}");
    assert!(["one", "two", "theirs"].iter().all(|name| place.status(name)["end_asked"].is_null()));
    let (code, document) = place.0.json(&["cancel", "--all", "--yes", "-o", "json"]);
    assert!(
        code == 0 && document["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2),
        "{document}"
    );
    for name in ["one", "two"] {
        place.until(name, "cancelled");
    }
    assert!(place.status("theirs")["end_asked"].is_null());
    let waits = place.start(&["stop", "--wait", "--yes", "theirs"]);
    assert_eq!(end(waits).0, 0);
    // Nobody says of a job that cannot be read that it has ended.
    place.0.write("home/.local/state/lamplighter/jobs/torn-222222/spec.json", "{");
    let torn = place.0.lamp(&["stop", "--all", "--yes"]);
    assert!(torn.code != 0 && torn.code != 101 && torn.err.contains("torn-222222"), "{torn:?}");
    std::fs::remove_dir_all(place.0.path().join("home/.local/state/lamplighter/jobs/torn-222222"))
        .expect("it was there");
    let bare = place.0.lamp(&["cancel"]);
    assert!(
        bare.code == 102
            && bare.err.contains("error: no job is under way in ")
            && bare.err.contains("has ended: stopped"),
        "{bare:?}"
    );
    let nothing = place.0.lamp(&["stop", "--all", "--yes"]);
    assert!(
        nothing.code == 101 && nothing.err.contains("no job of yours is under way in "),
        "{nothing:?}"
    );
    place.nothing_is_left();
}
