//! The first launch of a job, by the process that makes it: there is nothing to look at yet.
//!
//! ```text
//!   code, agent  (at once)  ──>  plan  ──>  spec.json, plan.json  (at once)  ──>  launch
//! ```
//! A look at a new job finds no receipt, no attempt, no wish and no checkpoint, and each of those
//! answers takes a tenth of a second from a bucket. Whatever goes wrong after the spec is there is
//! found by the next look, like everything else; a plan without a spec is no job, and is never
//! launched.

use std::sync::Arc;
use std::time::Duration;

use super::market_memory::{NotNow, WAIT_LOOK};
use super::plan::Planned;
use super::submit::SubmitError;
use crate::controller::act::ActError;
use crate::controller::drive::Controller;
use crate::controller::job_memory::JobMemory;
use crate::job::{AttemptNo, JobId, Plan, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::market::elapsed;
use crate::ports::Created;

/// A plan that is older is made again: its prices may have moved, and the machine's last moment is
/// counted from it. A large workdir takes minutes to upload.
const FRESH: Duration = Duration::from_secs(30);

/// Nobody finds, ends and settles a job within so long of its making. Longer, and it may have its
/// receipt before its launch; shorter, and each launch over a slow line waits for one more answer.
const UNSEEN: Duration = Duration::from_secs(5);

impl Controller {
    /// Brings the agent to the job root, if the machines of this plan need it there. The launch
    /// does it too; this is only for doing it beside something else.
    pub async fn ship_ahead(&self, plan: &Plan) {
        let (Some(_), Some(shipper), None) = (&plan.launch, &self.shipper, &plan.starts) else {
            return;
        };
        if let Err(error) = shipper.bring(&*self.store, plan.offer.arch).await {
            tracing::debug!("the agent is not in the job root yet: {error}");
        }
    }

    async fn refresh(&self, spec: &ResolvedSpec, plan: &mut Plan) -> Result<(), ActError> {
        if elapsed(plan.created, self.clock.now()) > FRESH {
            let planned = self.first_plan(spec).await?;
            if let Some(waits) = planned.waits {
                return Err(ActError::NotNow(waits));
            }
            *plan = planned.plan;
        }
        self.write_user_data(spec, plan).await
    }

    /// Makes the job, whose code is there already, and launches its first attempt by the plan that
    /// [`Controller::first_plan`] made of this spec a moment ago. Gives what a drive of the job
    /// then need not read again, and whether the launch was asked for; if not, a drive tries again.
    ///
    /// # Errors
    /// [`SubmitError::Unsure`] when nobody has answered whether a job was made; with any other none
    /// was, by this.
    pub async fn begin(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        planned: Planned,
    ) -> Result<(JobMemory, Result<(), ActError>), SubmitError> {
        let mut memory = JobMemory { spec: Some(Arc::new(spec.clone())), ..JobMemory::default() };
        let Planned { mut plan, decided, waits, .. } = planned;
        // A lid may be closed at each step from here to the launch.
        memory.looked = Some(self.clock.mono());
        let refreshed = match waits {
            Some(waits) => Err(ActError::NotNow(waits)),
            // Neither waits for the other: each answer of a bucket takes its time.
            None => match tokio::join!(self.check_clock(), self.refresh(spec, &mut plan)) {
                (Ok(()), refreshed) => refreshed,
                (wrong, _) => wrong,
            },
        };
        match refreshed {
            Ok(()) => {}
            // It exists, and a drive looks again and again whether its moment has come.
            Err(ActError::NotNow(NotNow { reason, until })) => {
                self.make(dir, spec).await?;
                self.log_market(dir, memory.market(), &reason).await;
                self.wait_for(dir, &mut memory, reason, until, WAIT_LOOK).await;
                return Ok((memory, Ok(())));
            }
            Err(error) => {
                self.make(dir, spec).await?;
                return Ok((memory, Err(error)));
            }
        }
        // What a cap over all jobs holds back, or may, is made all the same, and a drive launches
        // it.
        let Some(turn) = self.turn_to_launch(&plan).await else {
            self.make(dir, spec).await?;
            return Ok((memory, Ok(())));
        };
        match self.cap_of(&turn.caps, &plan).await {
            Ok(None) => {}
            Ok(Some(reason)) => {
                self.make(dir, spec).await?;
                self.wait_for(dir, &mut memory, reason, None, super::spending_cap::LOOK).await;
                return Ok((memory, Ok(())));
            }
            Err(error) => {
                self.make(dir, spec).await?;
                return Ok((memory, Err(error.into())));
            }
        }
        let making = self.clock.mono();
        let (made, planned) = tokio::join!(self.make(dir, spec), dir.create_plan(&plan));
        drop(turn);
        made?;
        let begun = match planned {
            Ok(Created::New) => {
                memory.attempts.entry(AttemptNo::FIRST).or_default().planned(plan, making);
                // Somebody may have ended it since it was there, where the plan took its time; a
                // drive finds that.
                let is_long = self.clock.mono().saturating_sub(making) > UNSEEN;
                match if is_long { dir.receipt().await } else { Ok(None) } {
                    Ok(None) => self.launch(&spec.job, &mut memory, AttemptNo::FIRST).await,
                    Ok(Some(_)) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            // Somebody else drives it already.
            Ok(Created::Exists) => Ok(()),
            Err(error) => Err(error.into()),
        };
        // First: that nobody else has launched the plan is sure for less than a minute, and a
        // bucket may take its time.
        if memory.attempts.values().any(|attempt| attempt.watched.refused.is_some()) {
            self.next_after_refusal(&spec.job, &mut memory).await;
        }
        if let Some(reason) = &decided {
            self.log_market(dir, memory.market(), reason).await;
        }
        self.ledger.tell_jobs_over().await;
        Ok((memory, begun))
    }

    /// A refusal is settled by the one who made the plan: nobody else can know that nothing was
    /// launched by it before, and a driver that comes after this process would wait five minutes to
    /// be sure. What goes wrong here a drive finds too.
    async fn next_after_refusal(&self, job: &JobId, memory: &mut JobMemory) {
        let answers = self.describe(memory.places()).await;
        if let Err(error) = self.tick(job, memory, answers).await {
            tracing::debug!(%job, "{error}");
        }
    }
}
