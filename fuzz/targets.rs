//! What is fuzzed: each function takes any bytes, and must neither panic nor hang nor take what it
//! wrote itself for something else. `cargo fuzz` calls them from `fuzz_targets/`, and
//! `tests/formats/corpus.rs` with what is kept in `corpus/`.
//!
//! They speak to the library only by what is public, and touch no file but in a scratch folder of
//! their own.

#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "each program that includes this calls one of them, or all"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lamplighter::account::sweeper_visit::{Suspects, Visit};
use lamplighter::adapters::aws::imds_documents;
use lamplighter::config::{Environment, Inputs, UserConfig, read_job};
use lamplighter::controller::{Bootstrap, BoxEndpoint};
use lamplighter::instance::{Rates, Status, Tags, owned_by};
use lamplighter::job::{
    Attention, Discarded, Ending, GivenUp, Lease, Manifest, MarketLog, Outcome, Plan, Proof,
    Receipt, Request, ResolvedSpec, Schedule, ScheduleRun, Settled, Waiting,
};
use lamplighter::jobdir::{Event, JobsOver, decode};
use lamplighter::market::{GpuRequirement, PriceRule, Span, Usd, UsdPerHour};
use lamplighter::policy::market::pool_history::Pool;
use lamplighter::wire::simulator::PriceRound;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// By name, for whoever runs them all.
pub const ALL: [(&str, Target); 7] = [
    ("spec", spec),
    ("records", records),
    ("imds", imds),
    ("tags", tags),
    ("user_data", user_data),
    ("series", series),
    ("words", words),
];

/// A file with these bytes, in a folder of this process that is gone with it.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    thread_local! {
        static SCRATCH: tempfile::TempDir = tempfile::tempdir().expect("a scratch folder can be made");
    }
    let path = SCRATCH.with(|scratch| scratch.path().join(name));
    std::fs::write(&path, bytes).expect("the scratch folder can be written");
    path
}

/// A job file, and all that is made of it and said of it.
pub fn spec(bytes: &[u8]) {
    let path = file("job.toml", bytes);
    let (user, environment, flags) =
        (UserConfig::default(), Environment::default(), Default::default());
    let now = jiff::Timestamp::from_second(1_800_000_000).expect("a time");
    let current_dir = path.parent().expect("it is in a folder");
    let inputs = Inputs { flags: &flags, user: &user, environment: &environment, current_dir, now };
    match read_job(Some(&path), &inputs) {
        Ok(loaded) => {
            loaded.findings.iter().for_each(|finding| drop(finding.to_string()));
            again(&loaded.spec);
        }
        Err(error) => drop((error.to_string(), error.hint())),
    }
}

/// What is written reads back as the same; numbers with a fraction to their last place, where
/// `serde_json` rounds.
fn again<T: Serialize + DeserializeOwned>(record: &T) {
    let written = serde_json::to_vec(record).expect("a record can be written");
    let read: T = serde_json::from_slice(&written)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&written)));
    let (before, after): (Value, Value) = (
        serde_json::to_value(record).expect("a record can be written"),
        serde_json::to_value(&read).expect("a record can be written"),
    );
    assert!(is_same(&before, &after), "was {before}, is {after}");
}

fn is_same(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .all(|(key, value)| after.get(key).is_some_and(|there| is_same(value, there)))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(one, other)| is_same(one, other))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) =
                (one.as_f64().unwrap_or(f64::NAN), other.as_f64().unwrap_or(f64::NAN));
            (one - other).abs() <= one.abs() * 1e-12
        }
        _ => before == after,
    }
}

fn record<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    match decode::<T>("key", bytes) {
        Ok(record) => again(&record),
        Err(error) => drop(error.to_string()),
    }
}

/// Every record of the job directory, each by its reader; the bytes are tried as all of them.
pub fn records(bytes: &[u8]) {
    let readers: [fn(&[u8]); 24] = [
        record::<ResolvedSpec>,
        record::<Plan>,
        record::<Lease>,
        record::<Status>,
        record::<Outcome>,
        record::<Settled>,
        record::<Manifest>,
        record::<Receipt>,
        record::<Request>,
        record::<Schedule>,
        record::<ScheduleRun>,
        record::<Attention>,
        record::<Ending>,
        record::<Waiting>,
        record::<MarketLog>,
        record::<Pool>,
        record::<Suspects>,
        record::<Visit>,
        record::<Event>,
        record::<Proof>,
        record::<GivenUp>,
        record::<Discarded>,
        record::<JobsOver>,
        // A line of the recorded samples.
        record::<Rates>,
    ];
    readers.iter().for_each(|read| read(bytes));
}

/// What the metadata service says, true or not.
pub fn imds(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let said = [
        imds_documents::interruption(&text).map(drop),
        imds_documents::rebalance(&text).map(drop),
        imds_documents::maintenance(&text).map(drop),
    ];
    said.into_iter()
        .chain([imds_documents::document(&text).map(drop)])
        .for_each(|said| drop(said.map_err(|error| error.to_string())));
}

/// Tags of a machine: a line each, the key before the first `=`.
pub fn tags(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let map: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    let Ok(tags) = Tags::from_map(&map) else { return };
    assert_eq!(Tags::from_map(&tags.to_map()).as_ref(), Ok(&tags), "what we write we read");
    assert_eq!(owned_by(&map, &tags.owner).as_ref(), Ok(&tags));
    assert!(owned_by(&map, &format!("{}?", tags.owner)).is_err());
}

/// The words of a launch, a line each: whatever they are, the script holds them and nothing is run
/// of them.
pub fn user_data(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let mut word = || lines.next().unwrap_or_default();
    let (job_root, region, agent_url, endpoint) = (word(), word(), word(), word());
    let sum = "0123456789abcdef".repeat(4);
    let box_endpoint = Some(endpoint).filter(|endpoint| !endpoint.is_empty()).map(BoxEndpoint::All);
    let job_root_region = Some(region).filter(|region| !region.is_empty());
    let bootstrap = Bootstrap {
        job_root,
        job_root_region,
        region,
        agent_url,
        agent_sha256: &sum,
        box_endpoint,
        boot: Span::from_secs(900),
    };
    let Ok(script) = bootstrap.user_data() else { return };
    let rest = script.strip_prefix("#!/bin/sh\n").expect("its first line");
    let mut rest = rest.trim_start_matches('#').split_once('\n').map_or("", |(_, rest)| rest);
    // Words, each by itself, until the program begins.
    let mut said = BTreeMap::new();
    while let Some((name, after)) = rest.split_once("='").filter(|(name, _)| {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    }) {
        let (value, after) = assigned(&rest[rest.len() - after.len() - 1..]);
        said.insert(name, value);
        rest = after;
    }
    let word = |name: &str| {
        said.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", said.keys())).as_str()
    };
    assert_eq!(
        (word("agent_url"), word("agent_sha256"), word("boot_secs")),
        (agent_url, sum.as_str(), "900")
    );
    let env = word("agent_env");
    let mut env = env.lines().map(unquoted);
    let said = |(name, word): (&str, &str)| (name.to_owned(), word.to_owned());
    let words = [
        ("LAMP_JOB_ROOT", Some(job_root)),
        ("LAMP_JOB_ROOT_REGION", job_root_region),
        ("AWS_REGION", Some(region)),
    ];
    let endpoint = ("AWS_ENDPOINT_URL", box_endpoint.map(BoxEndpoint::url));
    let told =
        words.into_iter().chain([endpoint]).filter_map(|(name, word)| Some(said((name, word?))));
    assert!(env.by_ref().eq(told));
}

/// What stands in the script up to the end of this line as a POSIX shell reads it: within single
/// quotes nothing means anything, and `'\''` is one of them.
fn assigned(mut rest: &str) -> (String, &str) {
    let mut value = String::new();
    loop {
        if let Some(after) = rest.strip_prefix('\n') {
            return (value, after);
        } else if let Some(after) = rest.strip_prefix("\\'") {
            value.push('\'');
            rest = after;
        } else {
            let quoted = rest
                .strip_prefix('\'')
                .unwrap_or_else(|| panic!("it goes on after its quotes: {rest:?}"));
            let (inside, after) = quoted.split_once('\'').expect("a quote is closed");
            value.push_str(inside);
            rest = after;
        }
    }
}

/// `NAME="..."` as systemd reads an `EnvironmentFile`.
fn unquoted(line: &str) -> (String, String) {
    let (name, quoted) = line.split_once("=\"").expect("a quoted value");
    let mut chars = quoted.strip_suffix('"').expect("a quote is closed").chars();
    let mut value = String::new();
    while let Some(one) = chars.next() {
        assert!(one != '"', "the quote is closed early: {line}");
        value.push(if one == '\\' { chars.next().expect("something is escaped") } else { one });
    }
    (name.into(), value)
}

/// A recording: of a machine, as `lamp replay` reads it; of capacity and of prices, as
/// `lamp simulate` does.
pub fn series(bytes: &[u8]) {
    let path = file("series", bytes);
    match lamplighter::wire::read_series(std::slice::from_ref(&path), None, None) {
        Ok(series) => series.iter().for_each(again::<Rates>),
        Err(error) => drop(error.to_string()),
    }
    match lamplighter::wire::read_capacity(&path) {
        Ok(trace) => assert!(!trace.tick.is_zero() && !trace.there.is_empty(), "{trace:?}"),
        Err(error) => drop(error.to_string()),
    }
    match lamplighter::wire::read_prices(&path) {
        // A world goes round in it: it must come to its end.
        Ok((course, made)) => assert!(
            PriceRound::of(&course, made).is_none_or(|round| !round.length().is_zero()),
            "{course:?}"
        ),
        Err(error) => drop(error.to_string()),
    }
}

/// Words that people write: times, money, GPUs, prices.
pub fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (first, second) = text.split_once('\n').unwrap_or((&text, "1h"));
    let (money, time) = (first.parse::<Usd>(), second.parse::<Span>());
    if let Ok(span) = &time {
        // A record is exact; what is shown names the two largest units, and never more than there
        // is.
        again(span);
        let shown: Span =
            span.to_string().parse().unwrap_or_else(|error| panic!("{second}: `{span}`: {error}"));
        assert!(shown <= *span, "{second}: `{span}`");
    }
    if let (Ok(money), Ok(time)) = (&money, &time) {
        let price = UsdPerHour::new(*money);
        drop((
            price.cost_of(time.duration()),
            price.time_for(*money),
            price.cost_of(Duration::MAX),
            money.to_string(),
        ));
        again(money);
    }
    drop((
        first.parse::<GpuRequirement>().map_err(|error| error.to_string()),
        first.parse::<PriceRule>().map_err(|error| error.to_string()),
    ));
    drop((
        first.parse::<lamplighter::job::JobId>().is_ok(),
        first.parse::<lamplighter::job::ImageChoice>().map_err(|error| error.to_string()),
    ));
    drop(first.parse::<lamplighter::job::AlarmRule>().map_err(|error| error.to_string()));
}
