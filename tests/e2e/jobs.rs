//! Jobs of the tests: a training script, job files around it, and what is read back of a job.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::bench::{Bench, Finish as _, wait_until};

/// The script; its own words say how it is told what to do.
const TRAINER: &str = include_str!("trainer.py");

/// Saves when asked, and its checkpoints are uploaded at once.
pub const SAVES: &str =
    "[checkpoint]\npath = 'ckpt'\ninterval = '1s'\nsignal = 'SIGUSR1'\ngrace = '5s'\n";

/// An hour costs so much in the tests that a second is a cent.
pub const USD_PER_HOUR: f64 = 36.0;

impl Bench {
    /// A job file around the trainer; `env` tells the trainer what to do, `more` are tables of the
    /// job file.
    pub fn trainer(&self, env: &str, more: &str) -> PathBuf {
        self.write("w/train.py", TRAINER);
        self.job("command = ['python3', 'train.py']", &format!("env = {{ {env} }}\n"), more)
    }

    /// A job file around a line of shell.
    pub fn shell(&self, script: &str, more: &str) -> PathBuf {
        self.write("w/job.sh", script);
        self.job("command = ['sh', 'job.sh']", "", more)
    }

    fn job(&self, command: &str, keys: &str, more: &str) -> PathBuf {
        let machine = if more.contains("[machine]") {
            String::new()
        } else {
            format!("[machine]\nusd_per_hour = {USD_PER_HOUR}\n")
        };
        self.write(
            "job.toml",
            &format!("name = 'toy'\nworkdir = 'w'\n{command}\n{keys}{machine}{more}"),
        )
    }

    /// `lamp` in this folder, with a job root of its own.
    pub fn lamp(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_lamp"));
        command.env("LAMP_JOB_ROOT", self.root()).args(words);
        command
    }

    /// The job root.
    pub fn root(&self) -> PathBuf {
        self.file("jobs-root")
    }

    /// What a verb says with `-o json`, and that it succeeds.
    pub fn ask(&self, words: &[&str]) -> Value {
        let out = self.lamp(words).args(["-o", "json"]).finish();
        assert!(out.status.success(), "lamp {words:?}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).expect("-o json is JSON")
    }

    /// Submits and returns; a process of its own drives the job.
    pub fn submit(&self) -> String {
        let out = self.lamp(&["run", "--detach", "job.toml"]).finish();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout).trim().to_owned()
    }

    /// The only job.
    pub fn only_job(&self) -> Option<String> {
        let mut jobs = std::fs::read_dir(self.root().join("jobs")).ok()?.flatten();
        let job = jobs.next()?.file_name().to_string_lossy().into_owned();
        assert!(jobs.next().is_none(), "one job only");
        Some(job)
    }

    /// A record of the only job: `receipt.json`, `attempts/0001/status.json`.
    pub fn record(&self, name: &str) -> Option<Value> {
        let path = self.root().join("jobs").join(self.only_job()?).join(name);
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Waits for the receipt of the only job.
    pub fn receipt(&self) -> Value {
        wait_until("the job has a receipt", || self.record("receipt.json"))
    }

    /// Waits until the workload of an attempt has said that it stands at a step beyond this.
    pub fn trains(&self, attempt: u32, beyond: f64) {
        let status = format!("attempts/{attempt:04}/status.json");
        wait_until("the workload steps", || {
            let step = self.record(&status)?["progress"]["step"].as_f64()?;
            (step > beyond).then_some(())
        });
    }

    /// The events of an attempt, and that none is missing.
    pub fn events(&self, attempt: u32) -> Vec<Value> {
        let Some(job) = self.only_job() else { return Vec::new() };
        let pieces =
            self.find(&format!("jobs-root/jobs/{job}/attempts/{attempt:04}/events"), ".jsonl");
        let texts =
            pieces.iter().map(|piece| std::fs::read_to_string(piece).expect("events are text"));
        let events: Vec<Value> =
            texts.flat_map(|text| text.lines().map(parsed).collect::<Vec<_>>()).collect();
        for (index, event) in events.iter().enumerate() {
            assert_eq!(
                event["seq"].as_u64(),
                Some(index as u64 + 1),
                "events are numbered without a gap: {events:#?}"
            );
        }
        events
    }

    /// The events of one kind.
    pub fn events_of(&self, attempt: u32, kind: &str) -> Vec<Value> {
        let mut events = self.events(attempt);
        events.retain(|event| event["kind"] == kind);
        events
    }

    /// Every begin of the trainer: attempt, pid, the step that it began from.
    pub fn begins(&self) -> Vec<(u32, u32, u32)> {
        let text = std::fs::read_to_string(self.file("begins")).unwrap_or_default();
        let line = |line: &str| {
            let numbers: Vec<u32> =
                line.split(' ').filter_map(|number| number.parse().ok()).collect();
            (numbers.len() == 3).then(|| (numbers[0], numbers[1], numbers[2]))
        };
        text.lines().filter_map(line).collect()
    }

    /// Lets a trainer that waits for it come to its end.
    pub fn go(&self) {
        self.write("go", "");
    }

    /// That no two workloads ever ran at once, and that none runs now.
    pub fn never_twice(&self) {
        assert!(!self.file("twice").exists(), "two workloads ran at once");
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect("an event is one line of JSON")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// That a program ended with this code, with its words if it did not.
pub fn assert_code(out: &Output, code: i32) {
    assert_eq!(
        out.status.code(),
        Some(code),
        "stderr: {}\nstdout: {}",
        text(&out.stderr),
        text(&out.stdout)
    );
}

/// That a receipt adds up: money over attempts, time within what was billed, the bill from the
/// price.
pub fn adds_up(receipt: &Value) {
    let attempts = receipt["attempts"].as_array().expect("a receipt lists its attempts");
    let micro = |usd: &Value| (usd.as_f64().expect("money is a number") * 1e6).round();
    let sum = |field: &str| {
        attempts.iter().map(|attempt| attempt[field].as_f64().unwrap_or(0.0)).sum::<f64>()
    };
    assert_eq!(
        attempts.iter().map(|attempt| micro(&attempt["usd"])).sum::<f64>(),
        micro(&receipt["total_usd"]),
        "{receipt:#}"
    );
    let worked =
        receipt["useful_seconds"].as_f64().unwrap() + receipt["idle_seconds"].as_f64().unwrap();
    assert!(worked <= sum("billed_seconds") + 0.5, "more worked than billed: {receipt:#}");
    let by_price = sum("billed_seconds") * USD_PER_HOUR / 3600.0;
    assert!(
        (by_price - sum("usd")).abs() < 1e-3,
        "{by_price} by the price, {} on the bill: {receipt:#}",
        sum("usd")
    );
}
