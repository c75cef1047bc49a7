//! Does the acts of `policy::lifecycle::reconcile`, one at a time. Each may be lost or repeated
//! without harm.

use std::time::Duration;

use tracing::info;

use super::act_result::{ActEffect, ActError};
use super::controller::Controller;
use super::job_memory::JobMemory;
use super::observe::Observed;
use super::retry_delay::Throttle;
use crate::job::{Reason, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::policy::lifecycle::reconcile::Act;
use crate::ports::{Clock, CloudError, PowerOff};

/// The acts that a throttled call delays together; `None`: it calls no cloud, or has its own delay.
fn throttled_kind(act: &Act) -> Option<&'static str> {
    match act {
        Act::CreatePlan { .. } | Act::Launch { .. } => Some("launch"),
        Act::Terminate { .. } => Some("terminate"),
        Act::Stop { .. } => Some("stop"),
        Act::RaiseKillAt { .. } => Some("raise"),
        Act::Interrupt { .. } => Some("interrupt"),
        Act::Guard { .. } | Act::Settle(_) | Act::WriteReceipt(_) | Act::Wait { .. } => None,
    }
}

impl Controller {
    /// Does an act, unless a throttled call delays it. Otherwise a job would repeat its calls every
    /// two seconds, and a thousand jobs would prolong the throttling.
    pub(super) async fn act(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        act: &Act,
    ) -> Result<ActEffect, ActError> {
        if let Act::Wait { until: Some(until), why } = act
            && observed.attempts.iter().any(|attempt| attempt.settled.is_none())
        {
            let reason = Reason::new(self.clock.now(), "reconcile", "wait", why.clone());
            self.launcher.wait_for(dir, memory, reason, Some(*until), Duration::ZERO).await;
        }
        let Some(kind) = throttled_kind(act) else {
            return self.act_now(dir, spec, memory, observed, act).await;
        };
        let before = memory.throttle.filter(|throttle| throttle.kind == kind);
        if before.is_some_and(|throttle| throttle.delays(self.clock.mono())) {
            return Ok(ActEffect::Waiting);
        }
        let done = self.act_now(dir, spec, memory, observed, act).await;
        let launch_waits = match &done {
            Err(ActError::Cloud(CloudError::Throttled)) => {
                let who = format!("{} {}", self.name, dir.job());
                memory.throttle = Some(Throttle::after(kind, before, &who, self.clock.mono()));
                Some((
                    "throttled",
                    "the cloud, which takes no more calls of this account just now and is asked again within a minute",
                ))
            }
            Ok(_) if before.is_some() => {
                memory.throttle = None;
                memory
                    .was_launched()
                    .then_some(("launched", "the first word of its machine, which was launched"))
            }
            _ => None,
        };
        if let Some((verdict, text)) = launch_waits
            && kind == "launch"
        {
            let reason = Reason::new(self.clock.now(), "pace", verdict, text);
            self.launcher.wait_for(dir, memory, reason, None, Duration::ZERO).await;
        }
        done
    }

    async fn act_now(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        act: &Act,
    ) -> Result<ActEffect, ActError> {
        let job = dir.job();
        match act {
            Act::CreatePlan { attempt, resume_from, reason } => {
                let wanted = (*attempt, *resume_from, reason.as_str());
                self.launcher.create_plan(dir, spec, memory, observed, wanted).await
            }
            Act::Launch { attempt } => {
                // Another controller may have recorded its refusal since our look.
                if dir.settled(*attempt).await?.is_none() {
                    self.launcher.launch(job, memory, *attempt).await?;
                }
                Ok(ActEffect::Changed)
            }
            Act::RaiseKillAt { machine, kill_at } => {
                info!(%job, %machine, %kill_at, "raising the hard cap");
                self.clouds.get(machine.cloud)?.raise_kill_at(machine, *kill_at).await?;
                Ok(ActEffect::Changed)
            }
            Act::Terminate { machine, ends, why } => {
                let how = (machine, PowerOff::Terminate);
                self.settler.power_off(dir, memory, observed, how, (*ends, why)).await
            }
            Act::Stop { machine, ends, why } => {
                let how = (machine, PowerOff::Stop);
                self.settler.power_off(dir, memory, observed, how, (*ends, why)).await
            }
            Act::Guard { attempt, machine, armed } => {
                let attempt = memory.attempts.entry(*attempt).or_default();
                self.launcher.guard(job, attempt, machine, *armed).await;
                Ok(ActEffect::Waiting)
            }
            Act::Interrupt { attempt, machine, notice, request } => {
                self.clouds.get(machine.cloud)?.interrupt(machine, *notice).await?;
                memory.attempts.entry(*attempt).or_default().watched.interrupt_served = *request;
                Ok(ActEffect::Changed)
            }
            Act::Settle(settled) => self.settler.settle(dir, memory, observed, settled).await,
            Act::WriteReceipt(receipt) => {
                self.settler.write_receipt(dir, memory, observed, receipt).await
            }
            Act::Wait { .. } => Ok(ActEffect::Waiting),
        }
    }
}
