//! `lamp replay idle` as other programs call it: a recording in, one object for each change of
//! verdict out.

use std::fmt::Write as _;

use serde_json::Value;

use crate::sandbox::{Ended, Sandbox};

const FIELDS: [&str; 4] = ["t_seconds", "verdict", "action", "reason"];

/// A row for each GPU every half minute: GPUs 0 and 1 work for half an hour and then rest for an
/// hour, GPU 2 never rests.
fn recorded() -> Sandbox {
    let sandbox = Sandbox::new();
    let mut gpu = "t_seconds,gpu_index,gpu_util_pct\n".to_owned();
    let mut host = "t_seconds,cpu_util_pct,proc_cpu_pct,disk_read_mb_cum,disk_write_mb_cum,net_recv_mb_cum,net_sent_mb_cum\n".to_owned();
    for t in (0..5400).step_by(30) {
        let (util, cpu, main, read) =
            if t < 1800 { (93, 60.0, 40.0, t * 10) } else { (0, 0.1, 0.01, 18_000) };
        let _ = write!(gpu, "{t},0,{util}\n{t},1,{util}\n{t},2,97\n");
        let _ = writeln!(host, "{t},{cpu},{main},{read},0,{read},0");
    }
    sandbox.write("jobs/x.csv", gpu);
    sandbox.write("host/x.csv", host);
    sandbox
}

fn lines(ended: &Ended) -> Vec<Value> {
    assert_eq!((ended.code, &*ended.err), (0, ""), "{ended:?}");
    ended
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn stop(changes: &[Value]) -> Option<f64> {
    changes
        .iter()
        .find(|change| change["action"] == "stop")
        .and_then(|change| change["t_seconds"].as_f64())
}

#[test]
fn idle_end_is_told_as_lines_of_json() {
    let sandbox = recorded();
    let changes = lines(&sandbox.lamp(&[
        "replay",
        "idle",
        "jobs/x.csv",
        "--host",
        "host/x.csv",
        "--gpus",
        "0,1",
        "-o",
        "jsonl",
    ]));
    for change in &changes {
        assert!(FIELDS.iter().all(|field| !change[field].is_null()), "{change}");
        assert!(
            ["busy", "idle", "stalled", "unknown", "starting"]
                .iter()
                .any(|word| change["verdict"] == *word),
            "{change}"
        );
        assert!(
            ["none", "notify", "restart", "stop"].iter().any(|word| change["action"] == *word),
            "{change}"
        );
        assert!(change["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{change}");
    }
    assert_eq!(changes[0]["t_seconds"], 0.0);
    let times: Vec<f64> =
        changes.iter().filter_map(|change| change["t_seconds"].as_f64()).collect();
    assert!(times.is_sorted() && times.len() == changes.len(), "{times:?}");
    assert!(changes.iter().any(|change| change["verdict"] == "busy"), "{changes:?}");
    // Five quiet minutes after the last busy row.
    let at = stop(&changes).expect("it would have been stopped");
    assert!((2070.0..=2130.0).contains(&at), "{at}");
    assert_eq!(changes.last().expect("some")["verdict"], "idle");
}

#[test]
fn idle_replay_counts_only_the_gpus_that_are_named() {
    let sandbox = recorded();
    let all = ["replay", "idle", "jobs/x.csv", "--host", "host/x.csv", "-o", "jsonl"];
    assert_eq!(stop(&lines(&sandbox.lamp(&all))), None, "GPU 2 works");
    let alone = ["replay", "idle", "jobs/x.csv", "--gpus", "0,1", "-o", "jsonl"];
    assert_eq!(
        stop(&lines(&sandbox.lamp(&alone))),
        None,
        "nothing is known of the processor, and unknown is never idle"
    );
    let (code, document) = sandbox.json(&[
        "replay",
        "idle",
        "jobs/x.csv",
        "--host",
        "host/x.csv",
        "--gpus",
        "0,1",
        "-o",
        "json",
    ]);
    assert_eq!(
        (code, &document["samples"], &document["last"]["verdict"]),
        (0, &180.into(), &"idle".into())
    );
}

#[test]
fn bad_recording_is_refused_with_its_line() {
    let sandbox = recorded();
    sandbox.write("torn.csv", "t_seconds,gpu_index,gpu_util_pct\n0,0,5\n30,0,much\n");
    sandbox.write("back.csv", "t_seconds,gpu_index,gpu_util_pct\n30,0,5\n0,0,5\n");
    sandbox.write("empty.csv", "t_seconds,gpu_index,gpu_util_pct\n");
    sandbox.write("other.csv", "a,b\n1,2\n");
    let replay = |file: &str, more: &[&str]| {
        sandbox.lamp(&[&["replay", "idle", file], more, &["-o", "jsonl"]].concat())
    };
    for (file, more, code, said) in [
        ("torn.csv", &[][..], 100, "`torn.csv`, line 3"),
        ("back.csv", &[], 100, "`back.csv`, line 3"),
        ("empty.csv", &[], 100, "`empty.csv` holds no samples"),
        ("other.csv", &[], 100, "t_seconds"),
        ("jobs/x.csv", &["--host", "other.csv"], 100, "t_seconds"),
        ("none.csv", &[], 101, "`none.csv` could not be read"),
        ("jobs/x.csv", &["--gpus", "first"], 2, "first"),
    ] {
        let ended = replay(file, more);
        assert_eq!((ended.code, &*ended.out), (code, ""), "{file}: {ended:?}");
        assert!(ended.err.contains(said), "{file}: {}", ended.err);
    }
}
