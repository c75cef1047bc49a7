//! The figures that benches/README.md states, measured on the real programs.
//!
//! `cargo run --release --example figures -- PART [--agent PATH] [--lamp PATH] [--runs N] [--secs N]`,
//! with one of the parts below. The programs are those beside this one unless others are named.
//! Prints tables and the load of the machine; asserts nothing, since a busy machine would fail it
//! for no reason. An example and not a bench, because a bench would be built with another panic
//! strategy, and all dependencies with it a second time.
//!
//! Not here: a limit that fails a test.

#![allow(
    clippy::disallowed_methods,
    reason = "measures the real thing: starts programs, reads clocks and /proc"
)]

mod bids;
mod ending;
mod faces;
mod fleet;
mod listing;
mod logs;
mod machine;
mod place;
mod programs_at_rest;
mod upload;
mod zones;

use std::path::PathBuf;

const HELP: &str = "\
figures PART [--agent PATH] [--lamp PATH] [--runs N] [--secs N] [--driver real]

  ending    workload exit -> power-off action, and notice -> signal
  rest      the agent at 1 Hz with eight scripted GPUs: memory, processor time, wakes; `--driver real`: with the GPUs
            of this machine
  daemon    `lamp daemon` at rest over 1000 finished jobs
  faces     the page over 1000 jobs and a week of samples, open pages, `lamp top`
  listing   `lamp status` over 1000 finished jobs, `lamp --help`
  logs      the way of the output from the workload to the disk
  fleet     one daemon over up to 10,000 machines: calls, processor time, memory
  bids      the bids of `auto` over recorded spot prices: --data FOLDER
  zones     the market rule over several zones, on recorded capacity and prices: --data FOLDER
  upload    2 GB to a bucket beside s5cmd and `aws s3 sync`: --sink PATH (benches/sink), --server PATH (s3s-fs) or both,
            --s5cmd PATH --aws PATH
";

/// What was asked for.
pub struct Asked {
    pub agent: PathBuf,
    pub lamp: PathBuf,
    pub runs: Option<usize>,
    pub secs: Option<u64>,
    /// The NVIDIA driver of this machine instead of the scripted one.
    pub real_driver: bool,
    pub server: Option<PathBuf>,
    pub sink: Option<PathBuf>,
    pub s5cmd: PathBuf,
    pub aws: PathBuf,
    pub data: PathBuf,
}

fn main() {
    let mut words = std::env::args().skip(1);
    let Some(part) = words.next() else { return print!("{HELP}") };
    // What this program starts of itself.
    match part.as_str() {
        "flood" => return logs::flood(&words.collect::<Vec<_>>()),
        "fleet-one" => return fleet::one(&words.collect::<Vec<_>>()),
        "upload-one" => return upload::one(&words.collect::<Vec<_>>()),
        _ => {}
    }
    let beside = std::env::current_exe().expect("we know our own path");
    let profile = beside
        .parent()
        .and_then(|examples| examples.parent())
        .expect("it lies in target/PROFILE/examples")
        .to_owned();
    let mut asked = Asked {
        agent: profile.join("lamp-agent"),
        lamp: profile.join("lamp"),
        runs: None,
        secs: None,
        real_driver: false,
        server: None,
        sink: None,
        s5cmd: "s5cmd".into(),
        aws: "aws".into(),
        data: "data/spot_capacity".into(),
    };
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word.as_str() {
            "--agent" => asked.agent = std::path::absolute(value).expect("a path"),
            "--lamp" => asked.lamp = std::path::absolute(value).expect("a path"),
            "--runs" => asked.runs = value.parse().ok(),
            "--server" => asked.server = Some(value.into()),
            "--sink" => asked.sink = Some(value.into()),
            "--s5cmd" => asked.s5cmd = value.into(),
            "--aws" => asked.aws = value.into(),
            "--data" => asked.data = value.into(),
            "--secs" => asked.secs = value.parse().ok(),
            "--driver" if value == "real" => asked.real_driver = true,
            _ => return print!("{HELP}"),
        }
    }
    machine::say_where();
    match part.as_str() {
        "ending" => ending::measure(&asked),
        "rest" => programs_at_rest::agents(&asked),
        "daemon" => programs_at_rest::daemon(&asked),
        "faces" => faces::measure(&asked),
        "listing" => listing::measure(&asked),
        "logs" => logs::measure(&asked),
        "fleet" => fleet::measure(),
        "upload" if asked.server.is_none() && asked.sink.is_none() => print!("{HELP}"),
        "upload" => upload::measure(&asked),
        "zones" => zones::measure(&asked),
        "bids" => bids::measure(&asked),
        _ => print!("{HELP}"),
    }
    machine::say_load("after");
}
