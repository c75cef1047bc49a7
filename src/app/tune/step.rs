//! One step of a driver: read the records, decide, act.
//!
//! ```text
//!   refresh ─> stop bad trials early ─> next_trial ─> values ─> record (the lock) ─> job
//! ```
//! The face drives the jobs, and calls the next step.

use std::sync::Arc;

use serde_json::json;

use super::engine_question::{PastTrial, chosen, engine_fault, question};
use super::memory::{KnownTrial, TuneMemory};
use crate::app::record_errors::{record_fault, wish_fault};
use crate::app::{ExitCode, Fault};
use crate::controller::{Controller, applied_id};
use crate::job::{
    Applied, EarlyStop, JobId, ParamValues, RECORD_FORMAT, Reaction, ResolvedSpec, TrialPruned,
    TuneTrial, TunedTrial, TuningEnd, TuningEndedBecause, Wish, seat_leader,
};
use crate::jobdir::JobDir;
use crate::policy::Wishes;
use crate::policy::tune::next_trial::{
    BudgetVerdict, NextTrial, TrialValues, fits_budget, next_trial,
};
use crate::policy::tune::trial_command::spec_of_trial;
use crate::policy::tune::{grid, random};
use crate::wire::{ClockHandle, StoreHandle, TuneEngine};

/// Drives one tuning. Several may drive the same one.
pub struct TuneDriver<'a> {
    pub memory: TuneMemory,
    pub controller: &'a Controller,
    pub clock: &'a ClockHandle,
    pub engine: TuneEngine,
    /// For people: `user@host`.
    pub by: String,
    /// The trials of the tuning that this one learns from.
    pub earlier: Vec<PastTrial>,
}

/// The result of a step.
#[derive(Debug, Default)]
pub struct TuneStep {
    /// Sentences for people.
    pub said: Vec<String>,
    /// The jobs of all running trials: the caller drives them.
    pub running: Vec<JobId>,
    /// All trials have ended, and no other will start.
    pub is_over: bool,
    /// Why no further trial could start now. The next step tries again.
    pub trouble: Option<Fault>,
}

/// Whether a paused trial went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    One,
    /// None is among the best.
    None,
    /// One is, and waits for a place or for the budget.
    Waits,
}

/// The values of a trial, and how they were chosen.
struct TrialChoice {
    params: ParamValues,
    reason: String,
    again_of: Option<u32>,
}

impl TuneDriver<'_> {
    /// Reads the earlier tuning that `resume` names.
    ///
    /// # Errors
    /// Fails when it is missing, or the job root is unreachable.
    pub async fn learn(&mut self) -> Result<(), Fault> {
        let Some(name) = self.memory.tuning.tune.resume.clone() else { return Ok(()) };
        let earlier = TuneMemory::open(&self.memory.store, &name).await?;
        self.earlier = earlier.trials.values().filter_map(PastTrial::of_earlier).collect();
        Ok(())
    }

    /// # Errors
    /// Fails when the job root does not answer, or Optuna refuses. The next step tries again.
    pub async fn step(&mut self) -> Result<TuneStep, Fault> {
        let mut step = TuneStep::default();
        let before = self.ended();
        self.memory.refresh().await?;
        step.said.extend(self.news(&before));
        let told = self.ended();
        self.mend().await?;
        let early_stop = self.memory.tuning.tune.early_stop;
        if early_stop.needs_engine() {
            step.said.extend(self.stop_early().await?);
        }
        if early_stop == EarlyStop::PausingAsha {
            step.said.extend(self.pause_some().await?);
        }
        while self.memory.end.is_none() {
            let moved = match self.resume_one(&mut step).await {
                Ok(Resumed::None) => self.advance(&mut step).await,
                Ok(Resumed::One) => Ok(true),
                Ok(Resumed::Waits) => Ok(false),
                Err(fault) => Err(fault),
            };
            match moved {
                Ok(true) => {}
                Ok(false) => break,
                // The sentences so far are told all the same.
                Err(fault) if fault.code == ExitCode::UNREACHABLE => {
                    step.trouble = Some(fault);
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        if let Err(fault) = self.release_machines(&mut step).await {
            step.trouble = Some(fault);
        }
        // While trials were started, others may have ended.
        step.said.extend(self.news(&told));
        step.running = self.memory.running().flat_map(KnownTrial::rank_jobs).collect();
        step.is_over = self.memory.is_over();
        Ok(step)
    }

    fn ended(&self) -> Vec<u32> {
        let ended = self.memory.trials.values().filter(|known| known.end.is_some());
        ended.map(|known| known.trial.number).collect()
    }

    /// A sentence for each trial that has ended since.
    fn news(&self, before: &[u32]) -> Vec<String> {
        let best = self.memory.best().map(|known| known.trial.number);
        let metric = &self.memory.tuning.tune.metric;
        let told = |known: &KnownTrial| {
            let end = known.end.as_ref()?;
            let number = end.number;
            let value = end.value.map_or(String::new(), |value| format!(", {metric} {value}"));
            let is_best = if best == Some(number) { ", the best so far" } else { "" };
            let why = match end.fate {
                crate::job::TrialFate::Complete => String::new(),
                _ => format!(": {}", end.reason),
            };
            Some(format!("trial {number} {}{value}{is_best}, {}{why}", end.fate.word(), end.usd))
        };
        let ended = self.memory.trials.values().filter(|known| known.end.is_some());
        ended.filter(|known| !before.contains(&known.trial.number)).filter_map(told).collect()
    }

    /// Writes the ends of trials, and makes the jobs that a killed driver had decided.
    pub(super) async fn mend(&mut self) -> Result<(), Fault> {
        let dir = self.memory.dir.clone();
        let end = self.memory.end.as_ref();
        let is_stopped = end.is_some_and(|end| end.because == TuningEndedBecause::UserStopped);
        for known in self.memory.trials.values_mut() {
            if let Some(end) = known.end.as_ref().filter(|_| !known.is_end_kept) {
                let kept = dir.end_trial(end).await.map_err(|error| record_fault(&error))?;
                (known.end, known.is_end_kept) = (Some(kept), true);
            }
            if known.end.is_none() && !known.is_made {
                if is_stopped {
                    // The user's stop may have come before this trial was there.
                    stop_ranks(&self.memory.store, known, &self.by, self.clock).await?;
                }
                dir.make_jobs(known.spec()).await.map_err(|error| record_fault(&error))?;
            }
            known.is_made = true;
        }
        Ok(())
    }

    /// Starts one trial, or ends the tuning. Whether there may be more to do.
    async fn advance(&mut self, step: &mut TuneStep) -> Result<bool, Fault> {
        let stands = self.memory.stands();
        let (number, values) = match next_trial(&self.memory.tuning.tune, &stands) {
            NextTrial::Start { number, values } => (number, values),
            NextTrial::Wait => return Ok(false),
            NextTrial::End { because, reason } => {
                self.end(because, reason, step).await?;
                return Ok(false);
            }
        };
        let TrialChoice { params, reason, again_of } = self.choose(number, values).await?;
        let mut job = self.job_of(number, &params);
        let most_usd = self.most_of(&job).await?;
        match fits_budget(&self.memory.tuning.tune, &stands, most_usd) {
            BudgetVerdict::Fits => {}
            BudgetVerdict::Waits => return Ok(false),
            BudgetVerdict::Exhausted { reason } => {
                self.end(TuningEndedBecause::Budget, reason, step).await?;
                return Ok(false);
            }
        }
        // The figure above is of a new machine: the stopped one may not start.
        job.continues = self.machine_to_reuse().await?;
        let trial = TuneTrial {
            format: RECORD_FORMAT,
            number,
            decided: self.clock.now(),
            by: self.by.clone(),
            params,
            reason,
            again_of,
            most_usd,
            job: Box::new(job),
        };
        let decided = self.memory.dir.decide(&trial).await.map_err(|error| record_fault(&error))?;
        if decided.job.created == trial.job.created && decided.by == trial.by {
            step.said.push(format!("trial {number}: {}", in_words(&decided.params)));
        }
        // Another driver may have decided it. Its job is made either way.
        self.memory.refresh().await?;
        self.mend().await?;
        Ok(true)
    }

    async fn end(
        &mut self,
        because: TuningEndedBecause,
        reason: String,
        step: &mut TuneStep,
    ) -> Result<(), Fault> {
        let (at, by) = (self.clock.now(), self.by.clone());
        let end = TuningEnd { format: RECORD_FORMAT, at, by, because, reason };
        let end = self.memory.dir.put_end(&end).await.map_err(|error| record_fault(&error))?;
        step.said.push(format!("no more trials: {}", end.reason));
        self.memory.end = Some(end);
        Ok(())
    }

    async fn choose(&mut self, number: u32, values: TrialValues) -> Result<TrialChoice, Fault> {
        let tuning = &self.memory.tuning;
        let params = &tuning.tune.params;
        let choice = |params, reason: String| TrialChoice { params, reason, again_of: None };
        match values {
            TrialValues::Grid(index) => {
                let found = grid::combination(params, index);
                let reason = format!("combination {} of the grid", index + 1);
                found.map(|params| choice(params, reason)).ok_or_else(no_combination)
            }
            TrialValues::Random => {
                let found = random::values(params, tuning.seed, number);
                Ok(choice(found, "drawn at random".to_owned()))
            }
            TrialValues::Again(of) => {
                let params = self.memory.trials[&of].trial.params.clone();
                let reason = format!("again, because trial {of} was interrupted");
                Ok(TrialChoice { params, reason, again_of: Some(of) })
            }
            TrialValues::Engine => {
                let params = self.ask_engine(number).await?;
                let reason =
                    format!("chosen by {} of Optuna", self.memory.tuning.tune.algorithm.word());
                Ok(choice(params, reason))
            }
        }
    }

    async fn ask_engine(&mut self, number: u32) -> Result<ParamValues, Fault> {
        let mut asked = question(&self.memory, "ask", self.past());
        // Two trials that start together must differ.
        asked["seed"] = json!(self.memory.tuning.seed.wrapping_add(u64::from(number)));
        let answer = self.engine.answer(&asked).await.map_err(|error| engine_fault(&error))?;
        chosen(&self.memory, &answer).ok_or_else(|| {
            Fault::new(ExitCode::INTERNAL, "Optuna answered without a value for each parameter")
                .meaning("no further trial is started; running ones go on")
        })
    }

    fn past(&self) -> Vec<PastTrial> {
        let mut past: Vec<PastTrial> =
            self.earlier.iter().map(|trial| PastTrial { value: trial.value.clone() }).collect();
        for known in self.memory.trials.values() {
            past.push(PastTrial::of(known));
        }
        past
    }

    /// Stops the running trials that do badly. The reason is recorded before the job is asked.
    async fn stop_early(&mut self) -> Result<Vec<String>, Fault> {
        let mut said = Vec::new();
        let running: Vec<u32> = self
            .memory
            .running()
            .filter(|known| !known.is_pruned && known.series.reports > known.judged)
            .map(|known| known.trial.number)
            .collect();
        for number in running {
            let mut asked = question(&self.memory, "prune", self.past());
            asked["number"] = json!(number);
            let answer = self.engine.answer(&asked).await.map_err(|error| engine_fault(&error))?;
            let stops = answer["prune"].as_bool().unwrap_or_default();
            if let Some(known) = self.memory.trials.get_mut(&number) {
                (known.judged, known.is_pruned) = (known.series.reports, stops);
            }
            if stops {
                said.push(self.prune(number).await?);
            }
        }
        Ok(said)
    }

    async fn prune(&self, number: u32) -> Result<String, Fault> {
        let known = &self.memory.trials[&number];
        let tune = &self.memory.tuning.tune;
        let stands = known.series.last.map_or(String::new(), |last| {
            let value = last.value.map_or("not a number".to_owned(), |value| value.to_string());
            format!(" with {} {value} at step {}", tune.metric, last.step)
        });
        let reason = format!("stopped early by {}{stands}", tune.early_stop.word());
        let (at, by) = (self.clock.now(), self.by.clone());
        let record = TrialPruned { format: RECORD_FORMAT, number, at, by, reason: reason.clone() };
        self.memory.dir.prune(&record).await.map_err(|error| record_fault(&error))?;
        stop_ranks(&self.memory.store, known, &self.by, self.clock).await?;
        Ok(format!("trial {number} is {reason}"))
    }

    /// The job of a trial. Every driver gives it the same id.
    fn job_of(&self, number: u32, params: &ParamValues) -> ResolvedSpec {
        let tuning = &self.memory.tuning;
        let tuned = TunedTrial {
            tuning: tuning.name.clone(),
            number,
            metric: tuning.tune.metric.clone(),
            params: params.clone(),
        };
        let mut spec = spec_of_trial(&tuning.spec, &tuned);
        if tuning.tune.reuse {
            spec.on.success = Reaction::Stop;
        }
        let mut job = ResolvedSpec {
            format: RECORD_FORMAT,
            job: self.id_of(&spec.name, &number.to_string()),
            created: self.clock.now(),
            written_by: tuning.written_by.clone(),
            spec,
            code: tuning.code.clone(),
            origins: tuning.origins.clone(),
            applied: None,
            owner: Some(tuning.owner.clone()),
            continues: None,
            trial: None,
            tuned: Some(tuned),
        };
        seat_leader(&mut job);
        job
    }

    /// The id of a job of this tuning: always the same.
    pub(super) fn id_of(&self, job_name: &str, key: &str) -> JobId {
        let tuning = &self.memory.tuning;
        let origin = Applied {
            set: tuning.name.clone(),
            file: format!("tuning of {}", tuning.created),
            sha256: String::new(),
            owner: tuning.owner.clone(),
            due: None,
        };
        applied_id(&self.memory.store.url(), job_name, &origin, key)
    }
}

/// Asks the jobs of a trial to stop, once, rank 0 first.
pub(super) async fn stop_ranks(
    store: &StoreHandle,
    known: &KnownTrial,
    by: &str,
    clock: &ClockHandle,
) -> Result<(), Fault> {
    for job in known.rank_jobs() {
        stop_unless_asked(&JobDir::new(Arc::clone(store), job), by, clock).await?;
    }
    Ok(())
}

async fn stop_unless_asked(job: &JobDir, by: &str, clock: &ClockHandle) -> Result<(), Fault> {
    let requests = job.requests().await.map_err(|error| record_fault(&error))?;
    if Wishes::of(&requests).end.is_some() {
        return Ok(());
    }
    let asked = job.insist_on(Wish::Stop, by, &**clock).await;
    asked.map(drop).map_err(|error| wish_fault(&error, job.job()))
}

fn no_combination() -> Fault {
    Fault::new(ExitCode::INTERNAL, "the grid has no such combination")
        .meaning("no further trial is started")
}

/// `lr=0.01 units=64`.
pub fn in_words(params: &ParamValues) -> String {
    let words: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}
