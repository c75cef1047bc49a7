//! Pausing successive halving: trials stop at a rung with their checkpoint, and go on from it when
//! they are among the best there.
//!
//! ```text
//!   runs ─ at a rung, not among the best ─> paused-<k> ─> its job stops ─> paused
//!   paused ─ among the best by now ─> resumed-<k> (the lock) ─> a job from its checkpoint ─> runs
//! ```

use std::sync::Arc;

use super::step::{Resumed, TuneDriver, TuneStep, stop_ranks};
use crate::app::record_errors::record_fault;
use crate::app::{ExitCode, Fault};
use crate::job::{
    Continues, EarlyStop, RECORD_FORMAT, ResolvedSpec, TrialFate, TrialPaused, TrialResumed,
};
use crate::jobdir::JobDir;
use crate::market::Usd;
use crate::policy::tune::halving::{RungStanding, RungTrial, standing};
use crate::policy::tune::next_trial::{BudgetVerdict, fits_budget};

impl TuneDriver<'_> {
    fn standing_of(&self, number: u32) -> Option<RungStanding> {
        let trials = self.memory.trials.values();
        let trials: Vec<RungTrial<'_>> = trials
            .map(|known| RungTrial {
                number: known.trial.number,
                points: &known.series.points,
                is_complete: known.end.as_ref().is_some_and(|end| end.fate == TrialFate::Complete),
            })
            .collect();
        standing(self.memory.tuning.tune.goal, number, &trials)
    }

    /// Stops the running trials that are not among the best at a new rung. The reason is recorded
    /// before the job is asked.
    pub(super) async fn pause_some(&mut self) -> Result<Vec<String>, Fault> {
        let mut said = Vec::new();
        let running: Vec<u32> = self.memory.running().map(|known| known.trial.number).collect();
        for number in running {
            let Some(stands) = self.standing_of(number) else { continue };
            let Some(known) = self.memory.trials.get_mut(&number) else { continue };
            if stands.rung <= known.passed || known.is_pruned {
                continue;
            }
            if stands.goes_on() {
                known.passed = stands.rung;
                continue;
            }
            known.is_pruned = true;
            said.push(self.pause(number, stands).await?);
        }
        Ok(said)
    }

    async fn pause(&self, number: u32, stands: RungStanding) -> Result<String, Fault> {
        let known = &self.memory.trials[&number];
        let reason =
            format!("paused at step {}, at place {} of {}", stands.rung, stands.place, stands.of);
        let record = TrialPaused {
            format: RECORD_FORMAT,
            number,
            pause: known.next_pause(),
            at: self.clock.now(),
            by: self.by.clone(),
            reason: reason.clone(),
        };
        self.memory.dir.pause(&record).await.map_err(|error| record_fault(&error))?;
        stop_ranks(&self.memory.store, known, &self.by, self.clock).await?;
        Ok(format!("trial {number} is {reason}"))
    }

    /// Lets the best of the paused trials go on, before a new one starts.
    pub(super) async fn resume_one(&mut self, step: &mut TuneStep) -> Result<Resumed, Fault> {
        let tune = &self.memory.tuning.tune;
        if tune.early_stop != EarlyStop::PausingAsha {
            return Ok(Resumed::None);
        }
        let paused = self.memory.trials.values().filter(|known| known.paused.is_some());
        let promoted = paused
            .filter_map(|known| Some((known.trial.number, self.standing_of(known.trial.number)?)))
            .filter(|(_, stands)| stands.goes_on());
        // The highest rung first, as it is the nearest to an end.
        let best = promoted.max_by(|(_, one), (_, other)| {
            one.rung.total_cmp(&other.rung).then(other.place.cmp(&one.place))
        });
        let Some((number, stands)) = best else { return Ok(Resumed::None) };
        if self.memory.running().count() >= tune.parallel as usize {
            return Ok(Resumed::Waits);
        }
        self.resume(number, stands, step).await
    }

    async fn resume(
        &mut self,
        number: u32,
        stands: RungStanding,
        step: &mut TuneStep,
    ) -> Result<Resumed, Fault> {
        let pause = self.memory.trials[&number].next_pause();
        let Some(job) = self.next_job(number, pause).await? else { return Ok(Resumed::None) };
        let most_usd = self.most_of(&job).await?;
        match fits_budget(&self.memory.tuning.tune, &self.memory.stands(), most_usd) {
            BudgetVerdict::Fits => {}
            BudgetVerdict::Waits => return Ok(Resumed::Waits),
            // A new trial would not fit either, and then the tuning ends.
            BudgetVerdict::Exhausted { .. } => return Ok(Resumed::None),
        }
        let from = job.inherited().and_then(|from| from.checkpoint.step);
        let from = from.map_or("its start".to_owned(), |step| format!("step {step}"));
        let reason = format!(
            "goes on from {from}, at place {} of {} at step {}",
            stands.place, stands.of, stands.rung
        );
        let record = TrialResumed {
            format: RECORD_FORMAT,
            number,
            pause,
            at: self.clock.now(),
            by: self.by.clone(),
            reason: reason.clone(),
            passed: stands.rung,
            most_usd,
            job: Box::new(job),
        };
        self.memory.dir.resume(&record).await.map_err(|error| record_fault(&error))?;
        step.said.push(format!("trial {number} {reason}"));
        self.memory.refresh().await?;
        // Another driver may end the trial with the tuning at this moment: the next step knows.
        if self.memory.end.is_none() {
            self.mend().await?;
        }
        Ok(Resumed::One)
    }

    /// The job that goes on from the checkpoint of a paused trial; `None`: its own budget is spent.
    async fn next_job(&self, number: u32, pause: u32) -> Result<Option<ResolvedSpec>, Fault> {
        let known = &self.memory.trials[&number];
        let dir = JobDir::new(Arc::clone(&self.memory.store), known.job().clone());
        let kept = self.controller.kept(&dir).await.map_err(|error| {
            Fault::from_error(ExitCode::UNREACHABLE, &error)
                .meaning("no further trial is started; running ones go on")
        })?;
        let Some(kept) = kept else { return Ok(None) };
        let mut job = known.spec().clone();
        if kept.budget_left.is_some_and(|left| left <= Usd::ZERO) {
            return Ok(None);
        }
        job.spec.limits.budget = kept.budget_left;
        job.job = self.id_of(&job.spec.name, &format!("{number}-{pause}"));
        job.created = self.clock.now();
        job.continues = Some(Continues { machine: None, ..kept.continues });
        Ok(Some(job))
    }
}
