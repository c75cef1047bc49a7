//! A workstation with six jobs: two work, one is quiet, one is stalled, one waits for capacity, one
//! has ended. A seventh machine bills without a job. The records are those that agents write, and
//! the last look at the clouds is the one that an open page keeps.

use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::place::Place;

const OWNER: &str = "me";
const REGION: &str = "us-east-1";
const HOUR: f64 = 1.006;

/// A job that is under way, as its agent reports it.
struct UnderWay {
    job: &'static str,
    verdict: &'static str,
    policy: &'static str,
    text: &'static str,
    numbers: Value,
    step: f64,
    /// The utilisation and the power of its GPU, minute by minute.
    gpu: fn(f64) -> (f64, f64),
    hours: i64,
}

fn wave(minute: f64) -> f64 {
    (minute * 0.9).sin() * 4.0 + (minute * 0.23).cos() * 3.0
}

const UNDER_WAY: [fn() -> UnderWay; 4] = [
    || UnderWay {
        job: "llama-ft-7f3k2q",
        verdict: "busy",
        policy: "idle",
        text: "working: GPU 93 %",
        numbers: json!({ "gpu_percent": 93.0, "quiet_secs": 0.0, "window_secs": 900.0 }),
        step: 430.0,
        gpu: |minute| (91.0 + wave(minute), 236.0 + wave(minute) * 3.0),
        hours: 3,
    },
    || UnderWay {
        job: "whisper-5hq2wz",
        verdict: "busy",
        policy: "idle",
        text: "working: GPU 99 %",
        numbers: json!({ "gpu_percent": 99.0, "quiet_secs": 0.0, "window_secs": 900.0 }),
        step: 120.0,
        gpu: |minute| (99.0, 90.0 + wave(minute)),
        hours: 5,
    },
    || UnderWay {
        job: "bert-eval-3m8xkt",
        verdict: "busy",
        policy: "idle",
        text: "quiet for 12m of 15m: GPU 0 %, CPU 1 % of a core",
        numbers: json!({ "gpu_percent": 0.0, "quiet_secs": 720.0, "window_secs": 900.0 }),
        step: 900.0,
        gpu: |minute| if minute < 48.0 { (85.0 + wave(minute), 205.0) } else { (0.0, 31.0) },
        hours: 6,
    },
    || UnderWay {
        job: "resnet-k4t9vd",
        verdict: "stalled",
        policy: "stall",
        text: "stalled: no step, log line or checkpoint for 21m, 20m was enough: stacks recorded",
        numbers: json!({ "silent_secs": 1260.0, "window_secs": 1200.0 }),
        step: 77.0,
        gpu: |minute| if minute < 39.0 { (88.0 + wave(minute), 228.0) } else { (100.0, 78.0) },
        hours: 8,
    },
];

pub(crate) const WAITS: &str = "vit-9c2r5n";
/// The machine without a job.
pub(crate) const STRAY: &str = "i-0123456789abcdef0";
pub(crate) const ENDED: &str = "digits-2q7hxs";

pub(crate) struct SixJobs {
    pub(crate) place: Place,
}

impl SixJobs {
    pub(crate) fn new() -> SixJobs {
        let six = SixJobs { place: Place::new("true") };
        for make in UNDER_WAY {
            six.under_way(&make());
        }
        six.waits();
        six.ended();
        six.look();
        six.beat();
        six
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.place.0.command(words);
        command.env("LAMP_OWNER", OWNER).env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    /// The look that the last open page has kept.
    fn look(&self) {
        let state = "home/.local/state/lamplighter";
        let root = format!("file://{}", self.place.0.path().join(state).display());
        let key = format!("{root} of {OWNER} None None");
        let name = &hex::encode(Sha256::digest(key.as_bytes()))[..12];
        let machine = json!({ "id": STRAY, "instance_type": "g5.xlarge", "region": REGION, "kind": "stray",
            "job": "old-sweep-8d4wpz", "why": "its job is not in this job root", "launched": ago(26 * 60),
            "usd_per_hour": HOUR, "ends": in_minutes(30 * 60) });
        let look = json!({ "at": Timestamp::now(), "machines": [machine], "unknown": [], "has_aws": true });
        self.place.0.write(&format!("{state}/cloud-look-{name}.json"), look.to_string());
    }

    /// This job runs on spot, and not on demand.
    pub(crate) fn on_spot(&self, job: &str) {
        self.put(job, "attempts/0001/plan.json", &plan(job, "spot", 3));
    }

    /// The agents of the jobs report again: a silent agent would be another story.
    pub(crate) fn beat(&self) {
        for make in UNDER_WAY {
            let one = make();
            self.put(one.job, "attempts/0001/status.json", &self.status(&one));
        }
    }

    fn put(&self, job: &str, record: &str, value: &Value) {
        self.write(job, record, value.to_string().as_bytes());
    }

    fn write(&self, job: &str, record: &str, bytes: &[u8]) {
        let path = format!("home/.local/state/lamplighter/jobs/{job}/{record}");
        self.place.0.write(&path, bytes);
    }

    fn under_way(&self, one: &UnderWay) {
        let (began, machine) = (ago(62), machine(one.job));
        self.put(one.job, "spec.json", &spec(one.job, "on-demand"));
        self.put(one.job, "attempts/0001/plan.json", &plan(one.job, "on-demand", one.hours));
        let lease = json!({ "format": 1, "instance": machine, "nonce": "b2c7", "taken": began });
        self.put(one.job, "attempts/0001/lease.json", &lease);
        self.events(one, &machine);
        self.samples(one);
        let log: String =
            (0..40).map(|at| format!("step {}  loss 0.{}\n", at * 10, 90 - at)).collect();
        let packed = zstd::encode_all(log.as_bytes(), 3).expect("packed");
        self.write(one.job, "attempts/0001/log/00000001.zst", &packed);
    }

    fn events(&self, one: &UnderWay, machine: &str) {
        let saved = json!({ "number": 1, "attempt": 1, "created": ago(20), "step": 300.0, "bytes": 5_420_309 });
        let works = json!({ "at": ago(59), "policy": "idle", "verdict": "busy", "text": "working: GPU 90 %" });
        let newest = json!({ "at": ago(1), "policy": one.policy, "verdict": one.verdict, "text": one.text, "numbers": one.numbers });
        let events = [
            (
                61,
                json!({ "kind": "agent", "version": "0.1.0", "instance": machine, "reattached": false }),
            ),
            (61, json!({ "kind": "phase", "phase": "preparing" })),
            (60, json!({ "kind": "phase", "phase": "running" })),
            (
                60,
                json!({ "kind": "workload_started", "start": 1, "pid": 4242, "command": "python train.py" }),
            ),
            (59, json!({ "kind": "verdict", "reason": works })),
            (
                20,
                json!({ "kind": "checkpoint", "checkpoint": saved, "save_secs": 0.4, "upload_secs": 1.2, "asked_by": null }),
            ),
            (1, json!({ "kind": "verdict", "reason": newest })),
        ];
        let lines: Vec<String> = events
            .iter()
            .enumerate()
            .map(|(at, (minutes, event))| {
                let mut event = event.clone();
                event["seq"] = (at + 1).into();
                event["at"] = json!(ago(*minutes));
                event.to_string()
            })
            .collect();
        self.write(one.job, "attempts/0001/events/00000001.jsonl", lines.join("\n").as_bytes());
    }

    /// An hour of samples, in batches of five minutes.
    fn samples(&self, one: &UnderWay) {
        let rows: Vec<String> = (0..360).map(|at| sample(one, f64::from(at) * 10.0)).collect();
        for (at, rows) in rows.chunks(30).enumerate() {
            let packed = zstd::encode_all(rows.join("\n").as_bytes(), 3).expect("packed");
            let record = format!("attempts/0001/samples/{:08}.jsonl.zst", at + 1);
            self.write(one.job, &record, &packed);
        }
    }

    fn status(&self, one: &UnderWay) -> Value {
        let (now, (busy, watts)) = (Timestamp::now(), (one.gpu)(60.0));
        let saved = json!({ "number": 1, "attempt": 1, "created": ago(20), "step": 300.0, "bytes": 5_420_309 });
        json!({
            "format": 1, "instance": machine(one.job), "sequence": 17, "at": now,
            "phase": "running", "started": ago(61), "verdict": one.verdict,
            "reason": { "at": now, "policy": one.policy, "verdict": one.verdict, "text": one.text, "numbers": one.numbers },
            "progress": { "step": one.step, "total": 1000.0, "loss": 0.31, "message": null, "at": now, "secs_per_step": 6.0,
                "secs_per_step_low": 5.4, "secs_per_step_high": 7.2 },
            "gpus": [{ "index": 0, "name": "NVIDIA A10G", "util_percent": busy, "memory_used_mib": 18_000,
                "memory_total_mib": 23_028, "power_watts": watts, "power_limit_watts": 300.0, "clock_mhz": 1710.0,
                "temperature_celsius": 61.0 }],
            "cpu_percent": 143.0, "memory_bytes": 2_147_483_648u64, "useful": "40m", "idle": "12m",
            "last_checkpoint": saved, "checkpoints": 1, "working_since": ago(59), "saved": "38m", "starts": 1,
        })
    }

    /// Its spot machine was taken, and there is no other yet.
    fn waits(&self) {
        self.put(WAITS, "spec.json", &spec(WAITS, "spot"));
        self.put(WAITS, "attempts/0001/plan.json", &plan(WAITS, "spot", 4));
        let settled = json!({ "format": 1, "attempt": 1, "instance": "i-0aaaabbbbccccdddd", "because": "interrupted",
            "billed_from": ago(60), "billed_to": ago(30), "billed": "1800s", "usd": 0.226, "refusal": null,
            "cloud_reason": "Server.SpotInstanceTermination", "outcome": null });
        self.put(WAITS, "attempts/0001/settled.json", &settled);
        let waiting = json!({ "format": 1, "at": ago(1), "by": "alice@lab", "until": in_minutes(45),
            "why": "a cheaper machine: g5.xlarge spot costs $0.98/h now, and $0.60/h is allowed" });
        self.put(WAITS, "waiting.json", &waiting);
    }

    fn ended(&self) {
        self.put(ENDED, "spec.json", &spec(ENDED, "on-demand"));
        let attempt = json!({ "attempt": 1, "instance": "i-0eeeeffff00001111", "instance_type": "g5.xlarge",
            "zone": "us-east-1a", "market": "on-demand", "started": ago(180), "ended": ago(90), "billed_seconds": 5400.0,
            "usd": 1.509, "ended_because": "succeeded", "exit": { "code": 0, "signal": null, "oom": false }, "resumed_from": null });
        let receipt = json!({ "format": 1, "job": ENDED, "name": "digits", "outcome": "succeeded", "exit_code": 0,
            "because": "succeeded", "reason": "the workload ended with exit code 0", "started": ago(181), "ended": ago(90),
            "attempts": [attempt], "total_usd": 1.509, "useful_seconds": 5200.0, "idle_seconds": 60.0, "checkpoints": 6,
            "last_checkpoint": null, "losses": [], "left": [], "left_unasked": [] });
        self.put(ENDED, "receipt.json", &receipt);
    }
}

fn ago(minutes: i64) -> Timestamp {
    in_minutes(-minutes)
}

fn in_minutes(minutes: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_mins(minutes)
}

fn machine(job: &str) -> String {
    format!("i-0{}", &hex::encode(job)[..16])
}

fn name(job: &str) -> &str {
    job.rsplit_once('-').map_or(job, |(name, _)| name)
}

fn spec(job: &str, market: &str) -> Value {
    json!({ "format": 1, "job": job, "created": ago(63), "written_by": "0.1.0", "owner": OWNER, "spec": {
        "name": name(job), "command": { "args": ["python", "train.py"] },
        "machine": { "cloud": "aws", "gpus": "A10G:1", "market": market },
        "watch": { "idle": { "window": "15m" }, "stall": { "window": "20m" } },
        "checkpoint": { "path": "checkpoints", "interval": "10m", "signal": "SIGUSR1", "grace": "90s" },
        "limits": { "max_runtime": "12h", "budget": 20.0 },
    } })
}

fn plan(job: &str, market: &str, hours: i64) -> Value {
    let price = if market == "spot" { 0.452 } else { HOUR };
    json!({ "format": 1, "job": job, "attempt": 1, "created": ago(62), "controller": "alice@lab 4242",
        "offer": { "cloud": "aws", "region": REGION, "zone": "us-east-1a", "instance_type": "g5.xlarge", "gpus": 1,
            "gpu_model": "A10G", "market": market, "price": price, "gpu_memory_mib": 22_888, "vcpus": 4,
            "arch": "x86_64", "extras": 0.0, "on_demand": HOUR },
        "reasons": ["the cheapest offer that fits"], "most_usd": 5.0, "most_any_usd": 5.0, "most_job_usd": 20.0,
        "client_token": format!("lamp-{job}"), "kill_at": in_minutes(hours * 60), "lease": "30m", "boot": "15m",
        "tags": {} })
}

fn sample(one: &UnderWay, secs: f64) -> String {
    let (busy, watts) = (one.gpu)(secs / 60.0);
    let at = ago(60) + SignedDuration::from_secs(secs as i64);
    json!({ "t_secs": secs + 10.0, "interval_secs": 10.0, "gpu_percent": busy, "gpu_memory_percent": busy * 0.4,
        "gpu_memory_used_mib": 18_000.0, "gpu_power_watts": watts, "gpu_power_limit_watts": 300.0,
        "gpu_clock_mhz": 1710.0, "gpu_temperature_celsius": 40.0 + watts / 10.0, "cpu_percent": 140.0 + wave(secs),
        "machine_cpu_percent": 35.0, "machine_memory_percent": 41.0, "memory_bytes": 2.1e9,
        "disk_bytes_per_sec": 1.2e6, "disk_free_bytes": 6.1e10, "net_bytes_per_sec": 4.0e5, "step": one.step, "at": at })
    .to_string()
}
