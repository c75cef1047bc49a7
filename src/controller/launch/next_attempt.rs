//! The next attempt of a job: its plan is made, recorded and launched.
//!
//! ```text
//!   plan ──> caps, and the turn among jobs and processes ──> user data ──> plan.json ──> launch
//! ```

use std::time::Duration;

use tracing::info;

use super::launcher::JobLauncher;
use super::waiting::WAIT_LOOK;
use crate::controller::act_result::{ActEffect, ActError, NotNow};
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::{Observed, is_still_there};
use crate::job::{AttemptNo, CheckpointNo, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::market::{CloudKind, elapsed};
use crate::policy::gang::rank_launch::{RankPurchase, rank_purchase};
use crate::policy::lifecycle::reconcile::history;
use crate::policy::lifecycle::relaunch;
use crate::policy::purchase::placement::NoOffer;
use crate::ports::{Clock, Created};

/// An older plan is made again before it is written, for example after a sleep: the machine's hard
/// end is counted from it.
const FRESH: Duration = Duration::from_secs(60);

impl JobLauncher {
    /// Plans an attempt, and launches it if this controller created the plan.
    pub(crate) async fn create_plan(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        (attempt, resume_from, reason): (AttemptNo, Option<CheckpointNo>, &str),
    ) -> Result<ActEffect, ActError> {
        if memory.is_held_back(self.clock.mono()) {
            return Ok(ActEffect::Waiting);
        }
        let mut zone = None;
        if let Some(member) = spec.member().filter(|_| spec.spec.machine.cloud != CloudKind::Local)
        {
            if self.is_gang_over(member).await? {
                return self.end_rank(dir, memory).await;
            }
            match rank_purchase(&spec.spec, &history(&observed.attempts)) {
                RankPurchase::Joins => return self.join_launch(dir, member, memory).await,
                RankPurchase::Follows => {
                    let Some(found) = self.leader_zone(dir, member, memory).await? else {
                        return Ok(ActEffect::Waiting);
                    };
                    zone = Some(found);
                }
                RankPurchase::Alone | RankPurchase::Leads(_) => {}
            }
        }
        self.clock.must_be_right().await?;
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let mut made_anew = false;
        let (plan, turn) = loop {
            let planned = self
                .plan(dir, memory, spec, observed, (attempt, resume_from, reason), zone.as_ref())
                .await;
            let mut plan = match planned {
                Err(ActError::NotNow(NotNow { reason, until })) => {
                    self.wait_for(dir, memory, reason, until, WAIT_LOOK).await;
                    return Ok(ActEffect::Waiting);
                }
                Err(ActError::NoOffer(NoOffer { because, too_dear: Some(dear), .. })) => {
                    self.wait_for_permission(dir, spec, memory, observed, &because, &dear).await;
                    return Ok(ActEffect::Waiting);
                }
                Err(ActError::NoOffer(none)) => match relaunch::scarcity(
                    &spec.spec,
                    &history(&observed.attempts),
                    self.clock.now(),
                ) {
                    Some((waits, again)) if again > self.clock.now() => {
                        self.wait_for_capacity(dir, memory, waits, again);
                        return Ok(ActEffect::Waiting);
                    }
                    _ => return Err(none.into()),
                },
                planned => planned?,
            };
            // A clock change during planning gives a wrong hard end. A clock that was just checked
            // is not checked again.
            self.clock.must_be_right().await?;
            let Some(turn) = self.caps.turn_to_launch(&plan).await else {
                return Ok(ActEffect::Waiting);
            };
            if self.hold_back(dir, memory, &plan, &turn.caps).await? {
                return Ok(ActEffect::Waiting);
            }
            self.write_user_data(spec, &mut plan).await?;
            // Once only: a slow line must not make it plan for ever.
            if made_anew || elapsed(plan.created, self.clock.now()) <= FRESH {
                break (plan, turn);
            }
            made_anew = true;
        };
        if !is_still_there(dir, memory).await? {
            return Ok(ActEffect::Waiting);
        }
        // Measured on the steady clock from before the write: the workstation may sleep before the
        // answer.
        let making = self.clock.mono();
        // Counted before the write, because the answer may be lost.
        self.caps.planned(&plan);
        let created = dir.create_plan(&plan).await?;
        drop(turn);
        info!(job = %dir.job(), attempt = attempt.number(), ?created, "{reason}");
        // Our own plan needs no new look: a second launch with its token gives the same machine.
        // Another controller's plan is found by the next look. It may also have ended the job since
        // our look, so the receipt is checked.
        if created == Created::New {
            memory.attempts.entry(attempt).or_default().planned(plan, making);
            if dir.receipt().await?.is_none() {
                self.launch(dir.job(), memory, attempt).await?;
            }
        }
        Ok(ActEffect::Changed)
    }
}
