//! Old records with the reader of today, and today's writer over the records of tomorrow.

use std::sync::Arc;

use lamplighter::account::sweeper_visit::{Suspects, Visit};
use lamplighter::adapters::store::open;
use lamplighter::instance::{Rates, Status};
use lamplighter::job::{
    Attention, Discarded, Ending, GivenUp, Lease, Manifest, MarketLog, Outcome, Plan, Proof,
    Receipt, Request, ResolvedSpec, Schedule, ScheduleRun, Settled, Waiting, Wish,
};
use lamplighter::jobdir::{
    Event, EventDetail, JobDir, JobDirError, JobsOver, RecordError, decode, layout,
};
use lamplighter::policy::market::pool_history::Pool;
use lamplighter::ports::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::text;

/// Everything that stands in `old` stands in `new`, with the same value; `new` may have more.
fn missing(old: &Value, new: &Value, path: &str) -> Vec<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let absent = |key: &String| vec![format!("{path}.{key} is not there")];
            old.iter()
                .flat_map(|(key, value)| {
                    new.get(key).map_or_else(
                        || absent(key),
                        |there| missing(value, there, &format!("{path}.{key}")),
                    )
                })
                .collect()
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => old
            .iter()
            .zip(new)
            .enumerate()
            .flat_map(|(at, (old, new))| missing(old, new, &format!("{path}[{at}]")))
            .collect(),
        _ if old == new => Vec::new(),
        _ => vec![format!("{path}: was {old}, is {new}")],
    }
}

/// Nothing of the old record is lost, and nothing is written today that the newest kept record does
/// not have: a new field has to be kept (in the folder of the version that is not released yet) and
/// then stands in docs/job-directory.md too.
fn same(old: &Value, new: &Value, name: &str) {
    let lost = missing(old, new, name);
    assert!(lost.is_empty(), "read, but not all of it:\n{}", lost.join("\n"));
    let added = missing(new, old, name);
    assert!(added.is_empty(), "written today, but not kept in tests/data:\n{}", added.join("\n"));
}

fn reads<T: DeserializeOwned + Serialize>(name: &str) -> T {
    let text = text(&format!("tests/data/v1/{name}"));
    let record: T =
        decode(name, text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    same(&serde_json::from_str(&text).unwrap(), &serde_json::to_value(&record).unwrap(), name);
    record
}

#[test]
fn every_record_of_format_1_is_read_whole() {
    reads::<ResolvedSpec>("spec.json");
    reads::<Plan>("plan.json");
    reads::<Request>("request.json");
    reads::<Lease>("lease.json");
    reads::<Ending>("ending.json");
    reads::<Status>("status.json");
    reads::<Outcome>("outcome.json");
    reads::<Settled>("settled.json");
    reads::<Manifest>("manifest.json");
    reads::<Receipt>("receipt.json");
    reads::<Schedule>("schedule.json");
    reads::<ScheduleRun>("schedule-run.json");
    reads::<Attention>("attention.json");
    reads::<GivenUp>("given-up.json");
    reads::<Discarded>("discarded.json");
    reads::<Waiting>("waiting.json");
    reads::<MarketLog>("market.json");
    reads::<Pool>("pool.json");
    reads::<Suspects>("suspects.json");
    reads::<Visit>("visit.json");
    reads::<Proof>("proof.json");
    reads::<JobsOver>("jobs-over.json");
}

#[test]
fn every_wish_of_format_1_is_read() {
    let words: Value = serde_json::from_str(&text("tests/data/v1/request-words.json")).unwrap();
    for word in words.as_array().unwrap() {
        let wish: Wish =
            serde_json::from_value(word.clone()).unwrap_or_else(|error| panic!("{word}: {error}"));
        assert_eq!(&serde_json::to_value(wish).unwrap(), word);
    }
}

fn lines<T: DeserializeOwned + Serialize>(name: &str) -> Vec<T> {
    let line = |line: &str| {
        let item: T =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
        same(&serde_json::from_str(line).unwrap(), &serde_json::to_value(&item).unwrap(), name);
        item
    };
    text(&format!("tests/data/v1/{name}")).lines().map(line).collect()
}

#[test]
fn events_and_samples_of_format_1_are_read_whole() {
    let events = lines::<Event>("events.jsonl");
    assert!(
        events.iter().all(|event| event.what != EventDetail::Unknown),
        "an event of version 0.1.0 is no longer known"
    );
    assert_eq!(events.len(), 13);
    let samples = lines::<Rates>("samples.jsonl");
    assert!(samples[1].gpu_percent.is_unknown());
}

#[test]
fn event_of_a_later_version_reads_as_unknown() {
    let event: Event = serde_json::from_str(
        r#"{"seq": 1, "at": "2026-11-20T21:01:00Z", "kind": "levitated", "height_m": 2}"#,
    )
    .unwrap();
    assert_eq!(event.what, EventDetail::Unknown);
}

fn folder() -> (tempfile::TempDir, Arc<dyn Store>, JobDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = open::open(folder.path().to_str().unwrap()).unwrap();
    let job = JobDir::new(store.clone(), "digits-7f3k2q".parse().unwrap());
    (folder, store, job)
}

/// The record as the version after this one might write it.
fn newer(name: &str) -> bytes::Bytes {
    let mut value: Value = serde_json::from_str(&text(&format!("tests/data/v1/{name}"))).unwrap();
    value["format"] = 2.into();
    value["levitates"] = true.into();
    serde_json::to_vec(&value).unwrap().into()
}

fn refused<T: std::fmt::Debug>(result: Result<T, JobDirError>) {
    match result {
        Err(JobDirError::Record(RecordError::Newer { found: 2, .. })) => {}
        other => panic!("a newer record must be refused as such, got {other:?}"),
    }
}

#[tokio::test]
async fn job_of_a_newer_version_is_refused_and_not_overwritten() {
    let (_folder, store, dir) = folder();
    let job = dir.job().clone();
    let plan: Plan = reads("plan.json");
    let (attempt, lease): (_, Lease) = (plan.attempt, reads("lease.json"));
    for (key, name) in [
        (layout::spec(&job), "spec.json"),
        (layout::plan(&job, attempt), "plan.json"),
        (layout::lease(&job, attempt), "lease.json"),
        (layout::outcome(&job, attempt), "outcome.json"),
        (layout::receipt(&job), "receipt.json"),
    ] {
        store.put(&key, newer(name)).await.unwrap();
    }
    refused(dir.spec().await);
    refused(dir.plan(attempt).await);
    refused(dir.outcome(attempt).await);
    refused(dir.receipt().await);
    refused(dir.take_lease(attempt, &lease).await);
    for key in [layout::spec(&job), layout::plan(&job, attempt), layout::lease(&job, attempt)] {
        let there: Value =
            serde_json::from_slice(&store.get(&key).await.unwrap().unwrap()).unwrap();
        assert_eq!(there["format"], 2, "{key} was overwritten");
    }
}

#[tokio::test]
async fn heartbeat_never_overwrites_a_newer_one() {
    let (_folder, store, dir) = folder();
    let attempt = reads::<Plan>("plan.json").attempt;
    let key = layout::status(dir.job(), attempt);
    store.put(&key, newer("status.json")).await.unwrap();
    refused(dir.status(attempt).await);
    refused(dir.put_status(attempt, &reads("status.json"), false).await);
    let there: Value = serde_json::from_slice(&store.get(&key).await.unwrap().unwrap()).unwrap();
    assert_eq!(there["format"], 2, "the heartbeat of a newer agent was overwritten");
}
