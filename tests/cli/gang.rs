//! Several machines as one job, through the real binary: ranks that meet at the address that they
//! are given.

#![expect(clippy::disallowed_methods, reason = "a test waits for conditions and starts programs")]

use std::path::Path;

use serde_json::Value;

use crate::place::{Place, end};

/// Ranks that meet at MASTER_ADDR with the standard library alone, and count steps together.
const RANKS: &str = include_str!("ranks.py");

fn place(steps: u32, gang: &str, more: &str) -> Place {
    let place = Place::new("");
    place.0.write("ranks.py", RANKS);
    place.0.write(
        "lamp.toml",
        format!(
            "name = \"g\"\ncommand = [\"python3\", \"ranks.py\", \"{steps}\"]\n{more}\n{gang}\n\
             [checkpoint]\npath = \"ckpt\"\nsignal = \"SIGUSR1\"\ninterval = \"1s\"\n"
        ),
    );
    place
}

fn epochs(place: &Place, file: &str) -> Vec<Value> {
    let jobs = place.0.path().join("home/.local/state/lamplighter/jobs");
    let leader = std::fs::read_dir(&jobs)
        .expect("jobs")
        .flatten()
        .map(|entry| entry.path().join("gang"))
        .find(|gang| gang.is_dir())
        .expect("rank 0 has the epochs");
    let mut folders: Vec<_> = std::fs::read_dir(leader).expect("epochs").flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    let read = |folder: &Path| std::fs::read(folder.join(file)).ok();
    let records = folders.iter().filter_map(|folder| read(&folder.path()));
    records.map(|bytes| serde_json::from_slice(&bytes).expect("a record")).collect()
}

#[test]
fn ranks_meet_work_and_end_together() {
    let place = place(5, "[gang]\nengine = \"env\"", "nodes = 3");
    let (code, out, err) = end(place.start(&["run"]));
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("rank 0 finished at step 5"), "{out}");
    for rank in ["rank 0: succeeded", "rank 1: succeeded", "rank 2: succeeded"] {
        assert!(err.contains(rank), "{err}");
    }
    let logs = place.0.lamp(&["logs", "--rank", "2", "g"]);
    assert!(logs.out.contains("rank 2 finished at step 5"), "{}", logs.out);
    let wrong = place.0.lamp(&["logs", "--rank", "3", "g"]);
    assert!(wrong.err.contains("has no rank 3"), "{}", wrong.err);
    let formations = epochs(&place, "formation.json");
    assert_eq!(formations.len(), 1, "{formations:?}");
    let members = formations[0]["members"].as_array().expect("members");
    let ports: std::collections::BTreeSet<u64> =
        members.iter().filter_map(|member| member["port"].as_u64()).collect();
    assert_eq!(ports.len(), 3, "each rank has a port of its own: {members:?}");
    place.nothing_is_left();
}

/// The first rank that fails ends the epoch on all, and gives its exit code to the job. No port of
/// the failed epoch is used again.
#[test]
fn failed_rank_ends_its_gang_or_is_tried_again() {
    let failing = "[gang]\nengine = \"env\"\n[env]\nFAIL_AT = \"1:3\"";
    let gang = place(6, failing, "nodes = 2");
    let (code, _, err) = end(gang.start(&["run"]));
    assert_eq!(code, 9, "{err}");
    assert!(err.contains("over: rank 1 failed: exit code 9"), "{err}");
    gang.nothing_is_left();
    let gang = place(6, failing, "nodes = 2");
    let (code, _, err) = end(gang.start(&["run", "--retries", "1"]));
    assert_eq!(code, 0, "{err}");
    let ports: Vec<u64> = epochs(&gang, "formation.json")
        .iter()
        .filter_map(|formed| formed["members"][0]["port"].as_u64())
        .collect();
    assert!(ports.len() == 2 && ports[0] != ports[1], "{ports:?}");
    gang.nothing_is_left();
}

#[test]
fn missing_rank_ends_the_gang_with_its_name() {
    let setup = "setup = \"case $LAMP_JOB in *-r1-*) exit 3;; esac\"\nnodes = 2";
    let place = place(6, "[gang]\nengine = \"env\"", setup);
    let (code, _, err) = end(place.start(&["run"]));
    assert_ne!(code, 0, "{err}");
    assert!(err.contains("rank 1 does not come back: its job has ended: setup failed"), "{err}");
    place.nothing_is_left();
}

#[test]
fn rehearsal_takes_a_rank_away_and_proves_that_the_gang_goes_on() {
    let place = place(5000, "[gang]\nengine = \"env\"", "nodes = 2");
    let (code, report) = place.0.json(&["rehearse", "--interrupt-after", "2s", "-o", "json"]);
    assert_eq!((code, report["proved"].as_bool()), (0, Some(true)), "{report:#}");
    let names: Vec<&str> = report["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .filter_map(|check| check["name"].as_str())
        .collect();
    assert_eq!(names, ["formed", "saved", "formed_again", "resumed", "went_on"]);
    place.nothing_is_left();
}

#[test]
fn what_is_not_built_is_refused_in_words() {
    let cases = [
        ("nodes = \"4..2\"", "", "is not a number of machines"),
        ("nodes = 2", "[gang]\nengine = \"mpi\"", "`mpi` is not built yet"),
        ("nodes = 2", "[gang.worker]\ncount = 2", "is given beside the roles"),
        ("nodes = 99", "[gang]\nengine = \"env\"", "is more than 64"),
        (
            "nodes = 2",
            "[machine]\ncloud = \"aws\"\nmarket = \"spot\"",
            "can only be `on-demand` for several machines",
        ),
    ];
    for (more, gang, said) in cases {
        let place = place(1, gang, more);
        let ended = place.0.lamp(&["check"]);
        let all = format!("{}{}", ended.out, ended.err);
        assert!(ended.code != 0 && all.contains(said), "{more} {gang}: {all}");
    }
}
