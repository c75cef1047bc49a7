//! The first launch of a job, by the process that makes the job, without a look at it.
//!
//! ```text
//!   code, agent  (at once)  ──>  plan  ──>  spec.json, plan.json  (at once)  ──>  launch
//! ```
//! A look at a new job would find no receipt, attempt, request or checkpoint. From a bucket each of
//! these answers takes a tenth of a second. After the spec is written, the next look finds every
//! failure. Without its spec, a plan is never launched.

use std::sync::Arc;
use std::time::Duration;

use super::launcher::JobLauncher;
use super::plan::Planned;
use super::spending_cap::{self, MayLaunch};
use super::submit::SubmitError;
use super::waiting::WAIT_LOOK;
use crate::controller::act_result::{ActError, NotNow};
use crate::controller::job_memory::JobMemory;
use crate::job::{AttemptNo, Plan, Reason, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::market::elapsed;
use crate::ports::{Clock, Created};

/// An older plan is made again: prices may have moved, and the hard end is counted from the plan. A
/// large workdir takes minutes to upload.
const FRESH: Duration = Duration::from_secs(30);

/// A new job runs for at least so long before a user or a controller can end it. After a longer
/// limit the job may have its receipt before its launch. With a shorter one, a launch over a slow
/// line waits for one more answer.
const UNSEEN: Duration = Duration::from_secs(5);

/// The result of a first launch.
pub(crate) struct FirstLaunch {
    pub memory: JobMemory,
    pub result: Result<(), ActError>,
    /// The launch was tried; otherwise the job waits.
    pub was_planned: bool,
    /// Why the plan has its market.
    pub decided: Option<Reason>,
}

/// Whether a first plan may be launched.
enum FirstTurn {
    Now(MayLaunch),
    /// After an error, or in another process's turn. A drive tries again.
    Later(Result<(), ActError>),
    /// It waits for a price.
    Market(NotNow),
    /// It waits for a cap over all jobs.
    Cap(Reason),
}

impl JobLauncher {
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

    /// Makes the job, whose code is in the job root already, and launches its first attempt.
    /// `planned` is a moment old. Whether or not the launch succeeds, a drive continues from the
    /// memory.
    ///
    /// # Errors
    /// [`SubmitError::Unsure`] when the job may have been made; with any other error it was not.
    pub(crate) async fn begin(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        planned: Planned,
    ) -> Result<FirstLaunch, SubmitError> {
        let mut memory = JobMemory { spec: Some(Arc::new(spec.clone())), ..JobMemory::default() };
        let Planned { mut plan, decided, waits, .. } = planned;
        // The laptop may sleep at each step from here to the launch.
        memory.looked = Some(self.clock.mono());
        let turn = match self.first_turn(spec, &mut plan, waits).await {
            FirstTurn::Now(turn) => turn,
            FirstTurn::Later(result) => {
                self.make(dir, spec).await?;
                return Ok(FirstLaunch { memory, result, was_planned: false, decided });
            }
            FirstTurn::Market(NotNow { reason, until }) => {
                self.make(dir, spec).await?;
                self.log_market(dir, memory.market(), &reason).await;
                self.wait_for(dir, &mut memory, reason, until, WAIT_LOOK).await;
                return Ok(FirstLaunch { memory, result: Ok(()), was_planned: false, decided });
            }
            FirstTurn::Cap(reason) => {
                self.make(dir, spec).await?;
                self.wait_for(dir, &mut memory, reason, None, spending_cap::LOOK).await;
                return Ok(FirstLaunch { memory, result: Ok(()), was_planned: false, decided });
            }
        };
        let making = self.clock.mono();
        let (made, planned) = tokio::join!(self.make(dir, spec), dir.create_plan(&plan));
        drop(turn);
        made?;
        let result = match planned {
            Ok(Created::New) => {
                memory.attempts.entry(AttemptNo::FIRST).or_default().planned(plan, making);
                // After a slow write the user may have ended the job; a drive finds that.
                let is_long = self.clock.mono().saturating_sub(making) > UNSEEN;
                match if is_long { dir.receipt().await } else { Ok(None) } {
                    Ok(None) => self.launch(&spec.job, &mut memory, AttemptNo::FIRST).await,
                    Ok(Some(_)) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            // Another controller drives the job already.
            Ok(Created::Exists) => Ok(()),
            Err(error) => Err(error.into()),
        };
        Ok(FirstLaunch { memory, result, was_planned: true, decided })
    }

    /// Whether the plan may be launched now. An old plan is made again.
    async fn first_turn(
        &self,
        spec: &ResolvedSpec,
        plan: &mut Plan,
        waits: Option<NotNow>,
    ) -> FirstTurn {
        let refreshed = match waits {
            Some(waits) => Err(ActError::NotNow(waits)),
            // Both at once: each answer of a bucket takes its time.
            None => match tokio::join!(self.clock.check(), self.refresh(spec, plan)) {
                (Ok(()), refreshed) => refreshed,
                (wrong, _) => wrong,
            },
        };
        match refreshed {
            Ok(()) => {}
            Err(ActError::NotNow(waits)) => return FirstTurn::Market(waits),
            Err(error) => return FirstTurn::Later(Err(error)),
        }
        let Some(turn) = self.caps.turn_to_launch(plan).await else {
            return FirstTurn::Later(Ok(()));
        };
        match self.caps.cap_of(&turn.caps, plan).await {
            Ok(None) => FirstTurn::Now(turn),
            Ok(Some(reason)) => FirstTurn::Cap(reason),
            Err(error) => FirstTurn::Later(Err(error.into())),
        }
    }

    /// Records the choice of the market, and the jobs that no longer count for the caps.
    pub(crate) async fn record_first(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        decided: Option<&Reason>,
    ) {
        if let Some(reason) = decided {
            self.log_market(dir, memory.market(), reason).await;
        }
        self.caps.tell_jobs_over().await;
    }
}
