//! The receipt: what ran, why it ended, how long, how much. Written once, when all machines are
//! gone.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{
    AttemptNo, CheckpointSummary, EndedBecause, ExitStatus, JobId, JobOutcome, Plan, RECORD_FORMAT,
    Settled,
};
use crate::market::{Market, Region, Usd};

/// `receipt.json`. The field names are an interface: `lamp receipt JOB -o json` prints this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Receipt {
    pub format: u32,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub job: JobId,
    pub name: String,
    pub outcome: JobOutcome,
    /// The workload's exit code as a shell reports it (128 + signal); `null` if it never ran to an
    /// end.
    pub exit_code: Option<i32>,
    /// Why the job ended. It may differ from the last attempt's word: a limit can end a job between
    /// attempts.
    #[serde(default)]
    pub because: Option<EndedBecause>,
    /// The same in one sentence.
    pub reason: String,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub attempts: Vec<ReceiptAttempt>,
    pub total_usd: Usd,
    pub useful_seconds: f64,
    pub idle_seconds: f64,
    /// Complete checkpoints written over all attempts.
    pub checkpoints: u32,
    #[serde(default)]
    pub last_checkpoint: Option<CheckpointSummary>,
    #[serde(default)]
    pub losses: Vec<String>,
    /// The job's leftovers in the cloud when its last machine had ended.
    #[serde(default)]
    pub left: Vec<Leaving>,
    /// Regions that gave no answer about leftovers.
    #[serde(default)]
    #[cfg_attr(feature = "web", schema(value_type = Vec<String>))]
    pub left_unasked: Vec<Region>,
}

/// One thing that a job left in the cloud: a disk, an address, an alarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Leaving {
    /// `volume`, `address`, `spot request`, `alarm`, `snapshot`.
    pub kind: String,
    pub id: String,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub region: Region,
    /// The cloud's description of it.
    pub detail: String,
    /// The cost while it exists.
    pub usd_per_month: Usd,
    pub fate: LeavingFate,
}

/// How the receipt's controller left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeavingFate {
    /// The job's own, and deleted.
    Removed,
    /// It bills on because the user wants it: the disk of a stopped machine.
    Kept,
    /// It is still there: another owner's, or its deletion failed.
    Left,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct ReceiptAttempt {
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    pub instance: Option<String>,
    pub instance_type: String,
    pub zone: String,
    pub market: Market,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub billed_seconds: f64,
    /// The cloud gave no end of billing: this may be some seconds too long. Or the cloud gave no
    /// spot price, and `usd` uses the bid.
    #[serde(default)]
    pub billed_estimated: bool,
    pub usd: Usd,
    pub ended_because: EndedBecause,
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    #[serde(default)]
    pub resumed_from: Option<CheckpointSummary>,
    /// Why it began from this checkpoint and not from a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<String>,
}

/// All that is known of one attempt at the end.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    pub plan: Arc<Plan>,
    pub settled: Arc<Settled>,
}

impl Receipt {
    /// How it ended, for people: `idle` or `setup failed` if the user's command did not fail.
    pub fn told(&self) -> String {
        self.outcome
            .told(self.because.or(self.attempts.last().map(|attempt| attempt.ended_because)))
    }

    /// Whether the cost of an attempt is an estimate: then the total is an upper bound.
    pub fn is_estimated(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.billed_estimated)
    }

    /// Adds up the attempts. `ended`: when the last machine was seen to be gone. `reason`: from the
    /// policy that decided against a further attempt.
    pub fn build(
        job: JobId,
        name: String,
        submitted: Timestamp,
        ended: Timestamp,
        end: (EndedBecause, String),
        records: &[AttemptRecord],
    ) -> Self {
        let (because, reason) = end;
        let outcomes = || records.iter().filter_map(|record| record.settled.outcome.as_ref());
        let exit = records
            .last()
            .and_then(|record| record.settled.outcome.as_ref())
            .and_then(|outcome| outcome.exit);
        Receipt {
            format: RECORD_FORMAT,
            job,
            name,
            outcome: because.job_outcome(),
            because: Some(because),
            exit_code: exit.map(|exit| exit.shell_code()),
            reason,
            started: submitted,
            ended,
            attempts: records.iter().map(ReceiptAttempt::from).collect(),
            total_usd: records.iter().map(|record| record.settled.usd).sum(),
            useful_seconds: outcomes().map(|outcome| outcome.useful.secs_f64()).sum(),
            idle_seconds: outcomes().map(|outcome| outcome.idle.secs_f64()).sum(),
            checkpoints: outcomes().map(|outcome| outcome.checkpoints).sum(),
            last_checkpoint: outcomes()
                .filter_map(|outcome| outcome.last_checkpoint.clone())
                .max_by_key(|summary| summary.number),
            losses: outcomes().flat_map(|outcome| outcome.losses.clone()).collect(),
            left: Vec::new(),
            left_unasked: Vec::new(),
        }
    }
}

impl From<&AttemptRecord> for ReceiptAttempt {
    fn from(record: &AttemptRecord) -> Self {
        let AttemptRecord { plan, settled } = record;
        let outcome = &settled.outcome;
        ReceiptAttempt {
            attempt: plan.attempt,
            instance: settled.instance.clone(),
            instance_type: plan.offer.instance_type.clone(),
            zone: plan.offer.zone.to_string(),
            market: plan.offer.market,
            started: settled.billed_from,
            ended: settled.billed_to,
            billed_seconds: settled.billed.secs_f64(),
            billed_estimated: settled.billed_estimated,
            usd: settled.usd,
            ended_because: settled.because,
            exit: outcome.as_ref().and_then(|outcome| outcome.exit),
            resumed_from: outcome.as_ref().and_then(|outcome| outcome.resumed_from.clone()),
            went_back: outcome.as_ref().and_then(|outcome| outcome.went_back.clone()),
        }
    }
}

/// The text of the "loss" of an output that never existed.
pub fn absence(glob: &str) -> String {
    format!("{ABSENT_BEGIN}{glob}{ABSENT_END}")
}

const ABSENT_BEGIN: &str = "output `";
const ABSENT_END: &str = "` was not there";

/// Whether a "loss" is only an output that never existed: the job ended before making it.
pub fn is_absence(loss: &str) -> bool {
    loss.starts_with(ABSENT_BEGIN) && loss.ends_with(ABSENT_END)
}
