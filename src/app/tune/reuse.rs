//! The machines of ended trials: the next trial begins on one, or it is given up.
//!
//! ```text
//!   trial n ends well ─> its machine is stopped ─> the record of trial m names it (the lock)
//!     ─> the job of m starts it, as `lamp start` does ─> the job of n keeps nothing more
//!   no trial will begin on it ─> it is terminated, before the tuning is over
//! ```
//! The decisions are in `policy::tune::reuse`.

use std::sync::Arc;

use super::step::{TuneDriver, TuneStep};
use crate::app::record_errors::record_fault;
use crate::app::view::kept_machines::kept_of;
use crate::app::{ExitCode, Fault};
use crate::controller::ActError;
use crate::instance::InstanceView;
use crate::job::Continues;
use crate::jobdir::JobDir;
use crate::policy::tune::next_trial::trials_to_start;
use crate::policy::tune::reuse::{
    KeptStand, ReuseTrial, free_machines, spare_machines, stand_of, was_taken,
};

impl TuneDriver<'_> {
    /// The machine that the next trial begins on; `None`: a new one.
    pub(super) async fn machine_to_reuse(&self) -> Result<Option<Continues>, Fault> {
        if !self.memory.tuning.tune.reuse {
            return Ok(None);
        }
        for number in free_machines(&self.memory.reuse_trials()) {
            let dir = self.job_dir(number);
            let found = self.controller.reusable(&dir).await;
            if let Some(from) = found.map_err(|error| unanswered(&error))? {
                return Ok(Some(from));
            }
        }
        Ok(None)
    }

    /// Gives up the machines that no trial will begin on, and notes those that others have.
    pub(super) async fn release_machines(&mut self, step: &mut TuneStep) -> Result<(), Fault> {
        if !self.memory.tuning.tune.reuse {
            return Ok(());
        }
        self.note_moved_machines().await?;
        let trials = self.memory.reuse_trials();
        let to_start = match self.memory.end {
            Some(_) => 0,
            None => trials_to_start(&self.memory.tuning.tune, &self.memory.stands()),
        };
        let spare = spare_machines(&trials, to_start);
        for trial in trials.iter().filter(|trial| trial.keeps) {
            let is_over = match stand_of(trial.number, &trials) {
                KeptStand::Taken => false,
                KeptStand::Free => spare.contains(&trial.number),
                // Its job may have another one, which did not start.
                KeptStand::HandedOn => true,
            };
            if is_over && self.give_up(trial, &trials, step).await? {
                self.note_nothing_kept(trial.number).await?;
            }
        }
        Ok(())
    }

    /// A start names the job that tries it, also if it is refused: the machine is that job's then.
    async fn note_moved_machines(&mut self) -> Result<(), Fault> {
        let trials = self.memory.reuse_trials();
        for number in free_machines(&trials) {
            let is_moved = was_taken(number, &trials) && self.machine_of(number).await?.is_none();
            if is_moved {
                self.note_nothing_kept(number).await?;
            }
        }
        Ok(())
    }

    async fn note_nothing_kept(&mut self, number: u32) -> Result<(), Fault> {
        let noted = self.controller.hand_on(&self.job_dir(number)).await;
        noted.map_err(|error| record_fault(&error))?;
        if let Some(known) = self.memory.trials.get_mut(&number) {
            known.machine.keeps = Some(false);
        }
        Ok(())
    }

    /// The machine that carries the name of this ended trial's job.
    async fn machine_of(&self, number: u32) -> Result<Option<InstanceView>, Fault> {
        let found = self.controller.kept_machine(&self.job_dir(number)).await;
        found.map_err(|error| unanswered(&error))
    }

    /// Whether its job has no machine any more. Else the next step looks again.
    async fn give_up(
        &self,
        trial: &ReuseTrial,
        trials: &[ReuseTrial],
        step: &mut TuneStep,
    ) -> Result<bool, Fault> {
        let dir = self.job_dir(trial.number);
        let mut has_ended = trial.took.is_some() || was_taken(trial.number, trials);
        while let Some(view) = self.machine_of(trial.number).await? {
            let gave = self.controller.give_up(&dir, &view.machine()).await;
            if !gave.map_err(|error| unanswered(&error))?.is_gone {
                return Ok(false);
            }
            step.said.push(format!("{} of trial {} is given up", view.id, trial.number));
            has_ended = true;
        }
        let receipt = dir.receipt().await.map_err(|error| record_fault(&error))?;
        match receipt.filter(|_| !has_ended) {
            // The user has ended it or goes on with it, or EC2 does not show it now.
            Some(receipt) => {
                let kept = kept_of(&dir, &receipt).await.map_err(|error| record_fault(&error))?;
                let seen = self.controller.see_gone(&dir, &receipt).await;
                Ok(kept.is_empty() || seen.map_err(|error| unanswered(&error))?)
            }
            None => Ok(has_ended),
        }
    }

    fn job_dir(&self, number: u32) -> JobDir {
        let known = &self.memory.trials[&number];
        JobDir::new(Arc::clone(&self.memory.store), known.job().clone())
    }
}

fn unanswered(error: &ActError) -> Fault {
    Fault::from_error(ExitCode::UNREACHABLE, error)
        .meaning("a stopped machine of an ended trial is still there")
}
