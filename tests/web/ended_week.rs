//! A week of ended jobs, for the page of costs: on demand and spot, idle money, an interruption.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::place::Place;

const OWNER: &str = "me";

/// An attempt of an ended job on a g5.xlarge.
struct Attempt {
    job: &'static str,
    number: u32,
    market: &'static str,
    because: &'static str,
    /// Hours ago.
    began: i64,
    billed: &'static str,
    secs: i64,
    useful: &'static str,
    idle: &'static str,
    saved: &'static str,
}

const ON_DEMAND: f64 = 1.006;
const SPOT: f64 = 0.452;

#[rustfmt::skip]
const ATTEMPTS: [Attempt; 6] = [
    Attempt { job: "llama-ft-7f3k2q", number: 1, market: "spot", because: "interrupted", began: 120, billed: "5h",
        secs: 18_000, useful: "4h 50m", idle: "0s", saved: "4h 10m" },
    Attempt { job: "llama-ft-7f3k2q", number: 2, market: "spot", because: "succeeded", began: 114, billed: "6h",
        secs: 21_600, useful: "5h 55m", idle: "0s", saved: "5h 50m" },
    Attempt { job: "whisper-5hq2wz", number: 1, market: "spot", because: "succeeded", began: 92, billed: "9h",
        secs: 32_400, useful: "8h 50m", idle: "0s", saved: "8h 50m" },
    Attempt { job: "bert-eval-3m8xkt", number: 1, market: "on-demand", because: "idle", began: 70, billed: "3h",
        secs: 10_800, useful: "2h 40m", idle: "15m", saved: "2h 40m" },
    Attempt { job: "resnet-k4t9vd", number: 1, market: "on-demand", because: "stalled", began: 46, billed: "4h",
        secs: 14_400, useful: "3h 30m", idle: "0s", saved: "3h 20m" },
    Attempt { job: "vit-9c2r5n", number: 1, market: "spot", because: "succeeded", began: 22, billed: "7h",
        secs: 25_200, useful: "6h 50m", idle: "0s", saved: "6h 50m" },
];

impl Attempt {
    fn from(&self) -> Timestamp {
        Timestamp::now() - SignedDuration::from_hours(self.began)
    }

    fn to(&self) -> Timestamp {
        self.from() + SignedDuration::from_secs(self.secs)
    }

    fn usd(&self) -> f64 {
        let hour = if self.market == "spot" { SPOT } else { ON_DEMAND };
        (hour * self.secs as f64 / 3600.0 * 1e6).round() / 1e6
    }

    fn instance(&self) -> String {
        format!("i-0{}{:04}", &hex::encode(self.job)[..12], self.number)
    }

    fn plan(&self) -> Value {
        let price = if self.market == "spot" { SPOT } else { ON_DEMAND };
        json!({ "format": 1, "job": self.job, "attempt": self.number, "created": self.from(), "controller": "alice@lab 4242",
            "offer": { "cloud": "aws", "region": "us-east-1", "zone": "us-east-1a", "instance_type": "g5.xlarge", "gpus": 1,
                "gpu_model": "A10G", "market": self.market, "price": price, "on_demand": ON_DEMAND },
            "reasons": ["the cheapest offer that fits"], "most_usd": 12.0, "most_any_usd": 12.0, "most_job_usd": 20.0,
            "client_token": format!("lamp-{}-{}", self.job, self.number), "kill_at": self.to(), "lease": "30m", "boot": "15m",
            "tags": { "lamplighter:owner": OWNER } })
    }

    fn settled(&self) -> Value {
        let outcome = json!({ "format": 1, "job": self.job, "attempt": self.number, "instance": self.instance(),
            "started": self.from(), "ended": self.to(), "because": self.because, "reasons": [], "useful": self.useful,
            "idle": self.idle, "saved": self.saved });
        json!({ "format": 1, "attempt": self.number, "instance": self.instance(), "because": self.because,
            "billed_from": self.from(), "billed_to": self.to(), "billed": self.billed, "usd": self.usd(),
            "outcome": outcome })
    }

    fn row(&self) -> Value {
        json!({ "attempt": self.number, "instance": self.instance(), "instance_type": "g5.xlarge", "zone": "us-east-1a",
            "market": self.market, "started": self.from(), "ended": self.to(), "billed_seconds": self.secs as f64,
            "usd": self.usd(), "ended_because": self.because, "exit": null, "resumed_from": null })
    }
}

/// Writes the records of these jobs.
pub(crate) fn written(place: &Place) {
    let root = "home/.local/state/lamplighter/jobs";
    for one in &ATTEMPTS {
        let folder = format!("{root}/{}/attempts/{:04}", one.job, one.number);
        place.0.write(&format!("{folder}/plan.json"), one.plan().to_string());
        place.0.write(&format!("{folder}/settled.json"), one.settled().to_string());
    }
    let mut jobs: Vec<&str> = ATTEMPTS.iter().map(|one| one.job).collect();
    jobs.dedup();
    for job in jobs {
        let mine: Vec<&Attempt> = ATTEMPTS.iter().filter(|one| one.job == job).collect();
        let (first, last) = (mine[0], mine[mine.len() - 1]);
        let outcome = if last.because == "succeeded" { "succeeded" } else { "stopped" };
        let name = job.rsplit_once('-').map_or(job, |(name, _)| name);
        let receipt = json!({ "format": 1, "job": job, "name": name, "outcome": outcome, "exit_code": null,
            "because": last.because, "reason": last.because, "started": first.from(), "ended": last.to(),
            "attempts": mine.iter().map(|one| one.row()).collect::<Vec<_>>(),
            "total_usd": mine.iter().map(|one| one.usd()).sum::<f64>(), "useful_seconds": 1.0, "idle_seconds": 0.0,
            "checkpoints": 6, "last_checkpoint": null, "losses": [], "left": [], "left_unasked": [] });
        place.0.write(&format!("{root}/{job}/receipt.json"), receipt.to_string());
    }
}
