//! One tick of a job: observe, decide, act, and again until the job only waits.

use std::sync::Arc;

use tracing::warn;

use super::act_result::{ActEffect, ActError, DriveError, Ticked};
use super::cloud_answers::Answers;
use super::controller::Controller;
use super::job_memory::JobMemory;
use super::launch::gang_launch::Unjoined;
use super::notify::notifier::JobNotifier;
use super::observe::observe;
use crate::job::{JobId, Receipt};
use crate::jobdir::{JobDir, JobDirError, RecordError};
use crate::policy::lifecycle::reconcile::{Act, JobFacts, is_elsewhere, reconcile};
use crate::ports::Clock;

/// Acts in one tick before the next job's turn. A job needs eight without waiting, and two more for
/// each place without capacity. `relaunch` tries twelve in a row before it pauses.
const ACTS_MAX: u32 = 32;

impl Controller {
    /// Observes, decides and acts until the job only waits.
    ///
    /// # Errors
    /// When there is no such job, or a newer version wrote it.
    pub async fn tick(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        answers: Answers,
    ) -> Result<Ticked, DriveError> {
        memory.trouble_met = None;
        let ticked = self.steps(job, memory, answers).await;
        if let Ok(ticked) = &ticked {
            JobNotifier::tell_unguarded(memory);
            self.notifier
                .stand(&JobDir::new(Arc::clone(&self.store), job.clone()), memory, ticked)
                .await;
        }
        ticked
    }

    async fn steps(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        mut answers: Answers,
    ) -> Result<Ticked, DriveError> {
        let mut acts = 0;
        // Settles every refusal that only this process knows: another controller would wait to be
        // sure.
        while acts < ACTS_MAX || memory.knows_a_refusal() {
            acts += 1;
            match self.step(job, memory, &answers).await {
                Ok(Some(TickStep::Final(receipt))) => return Ok(Ticked::Final(receipt)),
                Ok(Some(TickStep::Waiting)) => return Ok(Ticked::Active),
                Ok(Some(TickStep::Alone)) => return Err(DriveError::Alone { job: job.clone() }),
                Ok(Some(TickStep::Elsewhere(why))) => {
                    if memory.elsewhere.as_ref() != Some(&why) {
                        warn!(%job, "left to its own controller: {why}");
                    }
                    memory.elsewhere = Some(why.clone());
                    return Ok(Ticked::Elsewhere(why));
                }
                Ok(Some(TickStep::Changed)) => answers = self.describe(memory.places()).await,
                Ok(Some(TickStep::Recorded)) => {}
                Ok(None) => return Err(DriveError::NoJob { job: job.clone() }),
                Err(ActError::Record(JobDirError::Record(cause @ RecordError::Newer { .. }))) => {
                    return Err(DriveError::Newer { job: job.clone(), cause });
                }
                Err(error) => return Ok(Ticked::Unknown(error)),
            }
        }
        Ok(Ticked::Active)
    }

    /// One look and its acts; `None`: there is no such job.
    async fn step(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        answers: &Answers,
    ) -> Result<Option<TickStep>, ActError> {
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        if let Some(receipt) = dir.receipt().await? {
            self.notifier.tell_end(&dir, memory, &receipt).await;
            return Ok(Some(TickStep::Final(Box::new(receipt))));
        }
        if memory.spec.is_none() {
            memory.spec = dir.spec().await?.map(Arc::new);
        }
        let Some(spec) = memory.spec.clone() else { return Ok(None) };
        if spec.is_alone() {
            return Ok(Some(TickStep::Alone));
        }
        let now = self.clock.mono();
        (memory.looked, memory.described) = (Some(now), answers.asked());
        let mut observed = observe(&dir, memory, answers, now).await?;
        let answer = answers.of_job(
            observed.attempts.iter().map(|attempt| (&*attempt.plan, attempt.settled.is_some())),
        );
        let answer = self.settler.looked_for(&observed, &answer).await.unwrap_or(answer);
        let answer =
            self.settler.date_unshown(&dir, &mut observed, &answer).await.unwrap_or(answer);
        self.settler.look_who_ended(&dir, &mut observed, &answer).await?;
        self.notifier.tell_events(&dir, &spec, memory, &observed).await;
        self.notifier.tell_refusal(&dir, &spec, memory, &observed).await;
        self.notifier.tell_of_sweeper(&dir, &spec, memory).await;
        JobNotifier::tell_lying(memory, &observed);
        if let Some(denied) = observed
            .attempts
            .iter()
            .find(|open| open.settled.is_none())
            .and_then(|open| answers.denied(&open.plan))
        {
            memory.trouble_met = Some(denied.to_owned());
        }
        let facts = JobFacts {
            spec: &spec,
            attempts: &observed.attempts,
            requests: &observed.requests,
            cloud: &answer,
            newest_checkpoint: observed
                .newest_checkpoint
                .or_else(|| spec.inherited().map(|from| from.checkpoint.number)),
            owner: &self.clouds.owner,
            here: self.clouds.here.as_str(),
            now: self.clock.now(),
        };
        // The creator of the newest plan drives the job; before the first plan, the owner in the
        // spec.
        let elsewhere =
            is_elsewhere(&spec, &observed.attempts, &self.clouds.owner, self.clouds.here.as_str());
        if elsewhere.is_none() && self.launcher.leave_ended_gang(&dir, &spec, &observed).await? {
            return Ok(Some(TickStep::Recorded));
        }
        if elsewhere.is_none() {
            match self.launcher.settle_unjoined(&dir, &spec, memory, &observed).await? {
                Unjoined::None => {}
                Unjoined::Recorded => return Ok(Some(TickStep::Recorded)),
                Unjoined::Waits => return Ok(Some(TickStep::Waiting)),
            }
        }
        let mut step = elsewhere.map_or(TickStep::Waiting, TickStep::Elsewhere);
        for act in reconcile(&facts) {
            if let Act::Wait { why, .. } = &act {
                tracing::debug!(%job, "waiting: {why}");
            }
            let done = self.act(&dir, &spec, memory, &observed, &act).await;
            if let Err(error) = &done {
                memory.trouble_met = JobNotifier::trouble(&act, error);
            }
            match done? {
                ActEffect::Changed => step = TickStep::Changed,
                ActEffect::Waiting => {}
                // The record in the store counts, whichever controller wrote it.
                ActEffect::Recorded | ActEffect::Final if !matches!(step, TickStep::Changed) => {
                    step = TickStep::Recorded
                }
                ActEffect::Recorded | ActEffect::Final => {}
            }
        }
        self.notifier.tell_cap(&dir, &spec, memory).await;
        if matches!(step, TickStep::Waiting) {
            self.launcher.look_at_market(&dir, &spec, memory, &observed, &answer).await?;
        }
        Ok(Some(step))
    }
}

enum TickStep {
    Alone,
    Changed,
    /// Only the records changed.
    Recorded,
    Waiting,
    /// Waiting, for another controller.
    Elsewhere(String),
    Final(Box<Receipt>),
}
