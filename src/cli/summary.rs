//! One job in one look, from its records alone: what `status` shows and `-o json` promises (docs/cli-json.md).

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::instance::{GpuStatus, Status};
use crate::job::{AttemptNo, JobState, Plan, Progress, Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Usd, UsdPerHour};
use crate::policy::reconcile::{AttemptFacts, Journal, Watched, job_state};

/// The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub job: String,
    pub name: String,
    pub state: JobState,
    pub attempt: Option<u32>,
    pub instance: Option<String>,
    /// `busy`, `idle`, `stalled`, `unknown` or `starting`; null when no agent watches.
    pub verdict: Option<String>,
    /// What the job has cost so far; of a machine that runs, up to now.
    pub usd: Usd,
    /// The most that the attempts so far can cost; null when nothing bounds it.
    pub most_usd: Option<Usd>,
    pub usd_per_hour: Option<UsdPerHour>,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    pub progress: Option<Progress>,
    pub cpu_percent: Option<f64>,
    pub gpus: Vec<GpuStatus>,
    pub checkpoints: u32,
    /// Seconds since the agent was last heard of, by this workstation's clock.
    pub heartbeat_seconds: Option<f64>,
    /// Why it ended, once it has.
    pub reason: Option<String>,
    pub exit_code: Option<i32>,
    /// What a person should look at.
    pub attention: Vec<String>,
    /// Of the last attempt of a job that has not ended: whose it is.
    #[serde(skip)]
    pub plan: Option<Plan>,
}

impl Summary {
    /// Reads one job; `None`: it has no spec. A finished job is one read.
    ///
    /// # Errors
    /// When the store does not answer or a record is not understood.
    pub async fn read(dir: &JobDir, now: Timestamp) -> Result<Option<Summary>, JobDirError> {
        if let Some(receipt) = dir.receipt().await? {
            return Ok(Some(Summary::of_receipt(receipt)));
        }
        let Some(spec) = dir.spec().await? else { return Ok(None) };
        let mut attempts = Vec::new();
        for number in dir.attempts().await? {
            attempts.extend(attempt(dir, number).await?);
        }
        Ok(Some(Summary::of_records(&spec, &attempts, now)))
    }

    fn of_receipt(receipt: Receipt) -> Summary {
        let last = receipt.attempts.last();
        Summary {
            job: receipt.job.to_string(),
            name: receipt.name,
            state: receipt.outcome.into(),
            attempt: last.map(|attempt| attempt.attempt.number()),
            instance: last.and_then(|attempt| attempt.instance.clone()),
            verdict: None,
            usd: receipt.total_usd,
            most_usd: Some(receipt.total_usd),
            usd_per_hour: None,
            started: receipt.started,
            ended: Some(receipt.ended),
            progress: None,
            cpu_percent: None,
            gpus: Vec::new(),
            checkpoints: receipt.checkpoints,
            heartbeat_seconds: None,
            reason: Some(receipt.reason),
            exit_code: receipt.exit_code,
            attention: receipt.losses,
            plan: None,
        }
    }

    fn of_records(spec: &ResolvedSpec, attempts: &[AttemptFacts], now: Timestamp) -> Summary {
        let last = attempts.last();
        let status = last.and_then(|attempt| attempt.status.as_ref());
        let since = |from: Timestamp| Duration::try_from(now.duration_since(from)).unwrap_or_default();
        let cost = |attempt: &AttemptFacts| match &attempt.settled {
            Some(settled) => settled.usd,
            None => attempt.plan.offer.price.cost_of(since(attempt.plan.created)),
        };
        let most = |attempt: &AttemptFacts| attempt.settled.as_ref().map_or(attempt.plan.most_usd, |settled| Some(settled.usd));
        let instance = |attempt: &AttemptFacts| {
            let settled = attempt.settled.as_ref().and_then(|settled| settled.instance.clone());
            settled.or_else(|| attempt.lease.as_ref().map(|lease| lease.instance.clone()))
        };
        Summary {
            job: spec.job.to_string(),
            name: spec.spec.name.clone(),
            state: job_state(None, last),
            attempt: last.map(|attempt| attempt.plan.attempt.number()),
            instance: last.and_then(instance),
            verdict: status.map(|status| status.verdict.clone()),
            usd: attempts.iter().map(cost).sum(),
            most_usd: attempts.iter().map(most).try_fold(Usd::ZERO, |sum, most| Some(sum + most?)),
            usd_per_hour: last.map(|attempt| attempt.plan.offer.price),
            started: spec.created,
            ended: None,
            progress: status.and_then(|status| status.progress.clone()),
            cpu_percent: status.and_then(|status| status.cpu_percent),
            gpus: status.map(|status| status.gpus.clone()).unwrap_or_default(),
            checkpoints: checkpoints(attempts),
            heartbeat_seconds: status.map(|status| since(status.at).as_secs_f64()),
            reason: status.and_then(|status| status.reason.as_ref()).map(|reason| reason.text.clone()),
            exit_code: None,
            attention: status.map(|status| status.attention.clone()).unwrap_or_default(),
            plan: last.map(|attempt| attempt.plan.clone()),
        }
    }
}

/// One attempt's records, without what only a controller watches.
async fn attempt(dir: &JobDir, number: AttemptNo) -> Result<Option<AttemptFacts>, JobDirError> {
    let Some(plan) = dir.plan(number).await? else { return Ok(None) };
    let settled = dir.settled(number).await?;
    let mut facts =
        AttemptFacts { plan, lease: None, status: None, outcome: None, settled, journal: Journal::default(), watched: Watched::default() };
    if facts.settled.is_none() {
        facts.status = dir.status(number).await?;
        facts.lease = dir.lease(number).await?;
        facts.outcome = dir.outcome(number).await?;
    }
    Ok(Some(facts))
}

fn checkpoints(attempts: &[AttemptFacts]) -> u32 {
    let of = |attempt: &AttemptFacts| {
        let settled = attempt.settled.as_ref().and_then(|settled| settled.outcome.as_ref()).map(|outcome| outcome.checkpoints);
        settled.or(attempt.status.as_ref().map(|status: &Status| status.checkpoints)).unwrap_or(0)
    };
    attempts.iter().map(of).sum()
}
