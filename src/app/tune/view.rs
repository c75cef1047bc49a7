//! A tuning as every face shows it: its trials with the best first, their cost, and what is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::memory::{KnownTrial, TuneMemory};
use crate::app::Fault;
use crate::app::gang::gang_rows::with_ranks;
use crate::app::record_errors::record_fault;
use crate::app::view::job_summary::Summary;
use crate::job::{JobId, MetricPoint, ParamValues, TrialFate, TuneGoal, Tuning, TuningEnd};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Usd, elapsed};
use crate::policy::tune::next_trial::{committed, wanted_trials};
use crate::wire::Workstation;

/// The field names are an interface (docs/cli-json.md).
#[derive(Clone, Debug, Serialize)]
pub struct TuneView {
    pub tuning: String,
    pub owner: String,
    pub created: Timestamp,
    pub goal: TuneGoal,
    pub metric: String,
    pub algorithm: &'static str,
    pub early_stop: &'static str,
    pub parallel: u32,
    /// How many trials count in the end.
    pub wanted: u32,
    pub counts: TrialCounts,
    /// The cost of the trials so far.
    pub usd: Usd,
    /// The most that the ended and the running ones can cost; null: unlimited.
    pub most_usd: Option<Usd>,
    pub budget: Option<Usd>,
    /// The cost of all trials, by the mean of the ended ones; null: none has ended.
    pub expected_usd: Option<Usd>,
    /// When the last trial will end, by the same mean; null: none has ended, or it is over.
    pub expected_end: Option<Timestamp>,
    /// Why no more trials start; null: more may start.
    pub ended: Option<TuningEnd>,
    /// Whether a process here drives it. Null: it is over, or another workstation may drive it.
    pub driven_here: Option<bool>,
    /// The best complete trial.
    pub best: Option<BestTrial>,
    /// The best first, then those without a value by number.
    pub trials: Vec<TrialRow>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct TrialCounts {
    pub running: u32,
    /// They wait until they are among the best.
    pub paused: u32,
    pub complete: u32,
    pub pruned: u32,
    pub failed: u32,
    pub interrupted: u32,
    pub stopped: u32,
}

impl TrialCounts {
    /// The trials that ended and are not tried again.
    pub fn ended(&self) -> u32 {
        self.complete + self.pruned + self.failed + self.stopped
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct BestTrial {
    pub number: u32,
    pub value: f64,
    pub params: ParamValues,
    /// The command line with its values.
    pub command: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct TrialRow {
    pub number: u32,
    /// Its job by now; of a gang, the job of rank 0.
    pub job: JobId,
    /// How many machines it has.
    pub machines: u32,
    /// `running`, `paused`, `complete`, `pruned`, `failed`, `interrupted` or `stopped`.
    pub state: &'static str,
    pub value: Option<f64>,
    pub step: Option<f64>,
    pub params: ParamValues,
    pub usd: Usd,
    pub seconds: f64,
    pub reason: String,
    pub points: Vec<MetricPoint>,
}

impl TrialRow {
    /// Whether it has its final value.
    pub fn is_done(&self) -> bool {
        self.state == "complete" && self.value.is_some()
    }
}

impl TuneView {
    /// # Errors
    /// Fails when the job root does not answer.
    pub async fn read(memory: &TuneMemory, now: Timestamp) -> Result<Self, Fault> {
        let mut rows = Vec::new();
        for known in memory.trials.values() {
            rows.push(row(memory, known, now).await?);
        }
        let tune = &memory.tuning.tune;
        rows.sort_by(|one, other| order(tune.goal, one, other));
        let counts = counts(&rows);
        let wanted = wanted_trials(tune);
        let outlook = TuneOutlook::of(&rows, wanted, tune.parallel);
        Ok(TuneView {
            tuning: memory.tuning.name.clone(),
            owner: memory.tuning.owner.clone(),
            created: memory.tuning.created,
            goal: tune.goal,
            metric: tune.metric.clone(),
            algorithm: tune.algorithm.word(),
            early_stop: tune.early_stop.word(),
            parallel: tune.parallel,
            wanted,
            usd: rows.iter().map(|row| row.usd).sum(),
            most_usd: committed(&memory.stands()),
            budget: tune.budget,
            expected_usd: outlook.as_ref().filter(|_| memory.end.is_none()).map(|all| all.usd),
            expected_end: outlook.filter(|_| memory.end.is_none()).and_then(|all| {
                now.checked_add(std::time::Duration::from_secs_f64(all.seconds_left)).ok()
            }),
            ended: memory.end.clone(),
            driven_here: None,
            best: memory.best().and_then(best),
            counts,
            trials: rows,
        })
    }

    /// As [`Self::read`], and whether a process of this workstation drives it. A tuning without a
    /// driver has no expected end.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_here(
        memory: &TuneMemory,
        workstation: &Workstation,
        now: Timestamp,
    ) -> Result<Self, Fault> {
        Ok(TuneView::read(memory, now).await?.seen_from_here(workstation, &memory.tuning))
    }

    fn seen_from_here(mut self, workstation: &Workstation, tuning: &Tuning) -> TuneView {
        if self.owner == workstation.owner && !self.is_over() {
            let is_driven = workstation.is_tuned(&self.tuning);
            // Any workstation may drive a tuning at AWS.
            let theirs = tuning.here.as_deref();
            let is_here = workstation.here().is_ok_and(|here| theirs == Some(here.as_str()));
            self.driven_here = (is_driven || is_here).then_some(is_driven);
        }
        if self.is_undriven() {
            self.expected_end = None;
        }
        self
    }

    /// It waits for `lamp tune drive`.
    pub fn is_undriven(&self) -> bool {
        self.driven_here == Some(false)
    }

    /// Whether all trials have ended, and no other will start.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() && self.counts.running + self.counts.paused == 0
    }

    /// Best value after each trial that counts, in the order of their numbers.
    pub fn best_so_far(&self) -> Vec<(u32, f64, f64)> {
        let mut values: BTreeMap<u32, f64> = BTreeMap::new();
        for row in self.trials.iter().filter(|row| row.state == TrialFate::Complete.word()) {
            values.extend(row.value.map(|value| (row.number, value)));
        }
        let mut best: Option<f64> = None;
        values
            .into_iter()
            .map(|(number, value)| {
                let is_better = best.is_none_or(|best| self.goal.prefers(value, best));
                let so_far = if is_better { value } else { best.unwrap_or(value) };
                best = Some(so_far);
                (number, value, so_far)
            })
            .collect()
    }
}

const PAUSED: &str = "paused";

/// The rest of a tuning, by the mean of the ended trials.
struct TuneOutlook {
    usd: Usd,
    seconds_left: f64,
}

impl TuneOutlook {
    fn of(rows: &[TrialRow], wanted: u32, parallel: u32) -> Option<Self> {
        let is_open = |row: &&TrialRow| ["running", PAUSED].contains(&row.state);
        let ended: Vec<&TrialRow> = rows.iter().filter(|row| !is_open(row)).collect();
        if ended.is_empty() {
            return None;
        }
        let count = ended.len() as f64;
        let spent: Usd = ended.iter().map(|row| row.usd).sum();
        let counted = ended.iter().filter(|row| row.state != "interrupted").count();
        let left = (wanted as usize).saturating_sub(counted) as f64;
        let seconds = ended.iter().map(|row| row.seconds).sum::<f64>() / count;
        Some(TuneOutlook {
            usd: spent + Usd::from_micros((spent.micros() as f64 * left / count) as i64),
            seconds_left: (left / f64::from(parallel.max(1))).ceil() * seconds,
        })
    }
}

async fn row(memory: &TuneMemory, known: &KnownTrial, now: Timestamp) -> Result<TrialRow, Fault> {
    let trial = &known.trial;
    let (state, usd, until, reason) = match &known.end {
        Some(end) => (end.fate.word(), end.usd, end.ended, end.reason.clone()),
        None => match &known.paused {
            Some(paused) => (PAUSED, known.usd_before, paused.at, paused.reason.clone()),
            None => {
                let job = JobDir::new(Arc::clone(&memory.store), known.job().clone());
                let usd = usd_so_far(&job, now).await.map_err(|error| record_fault(&error))?;
                ("running", known.usd_before + usd, now, trial.reason.clone())
            }
        },
    };
    Ok(TrialRow {
        number: trial.number,
        job: known.job().clone(),
        machines: known.rank_jobs().len() as u32,
        state,
        value: known.value(),
        step: known.series.last.map(|last| last.step),
        params: trial.params.clone(),
        usd,
        seconds: elapsed(trial.decided, until).as_secs_f64(),
        reason,
        points: known.series.points.clone(),
    })
}

/// The cost of a running trial, with all its ranks.
async fn usd_so_far(job: &JobDir, now: Timestamp) -> Result<Usd, JobDirError> {
    match Summary::read(job, now).await? {
        Some(summary) => Ok(with_ranks(summary, job, now).await?.usd),
        None => Ok(Usd::ZERO),
    }
}

/// Complete ones with the best first, then running ones, then the others.
fn order(goal: TuneGoal, one: &TrialRow, other: &TrialRow) -> std::cmp::Ordering {
    let rank = |row: &TrialRow| match row.state {
        "complete" => 0,
        "running" => 1,
        _ => 2,
    };
    let by_value = match (one.value, other.value) {
        (Some(one), Some(other)) if goal == TuneGoal::Minimize => one.total_cmp(&other),
        (Some(one), Some(other)) => other.total_cmp(&one),
        (one, other) => other.is_some().cmp(&one.is_some()),
    };
    rank(one).cmp(&rank(other)).then(by_value).then(one.number.cmp(&other.number))
}

fn counts(rows: &[TrialRow]) -> TrialCounts {
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count() as u32;
    TrialCounts {
        running: count("running"),
        paused: count(PAUSED),
        complete: count("complete"),
        pruned: count("pruned"),
        failed: count("failed"),
        interrupted: count("interrupted"),
        stopped: count("stopped"),
    }
}

fn best(known: &KnownTrial) -> Option<BestTrial> {
    Some(BestTrial {
        number: known.trial.number,
        value: known.value()?,
        params: known.trial.params.clone(),
        command: known.trial.job.spec.command.display(),
    })
}
