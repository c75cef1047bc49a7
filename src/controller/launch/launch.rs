//! One launch call, and what its answer means: a machine, another place, nothing ever, or that
//! nobody knows.
//!
//! ```text
//!   plan ──> launch, or start a kept machine ─┬─ an id ─────────────────> known
//!                                             ├─ refused ───────────────> noted: the next tick chooses again, or tells
//!                                             ├─ signed by nobody ──────> told, and the same call again
//!                                             ├─ of another request ────> adopted, and told: a fault of ours
//!                                             └─ no answer ─────────────> the same call again
//! ```
//! Records nothing: the plan is the record. Not here: which offer (`policy::purchase::placement`).

use std::time::Duration;

use tracing::{info, warn};

use super::agent_shipping::ShipError;
use crate::controller::act::ActError;
use crate::controller::drive::Controller;
use crate::controller::job_memory::JobMemory;
use crate::instance::MachineRef;
use crate::job::{AttemptNo, JobId, MarketChoice, Plan};
use crate::policy::purchase::refusal_backoff;
use crate::ports::{CloudError, chain};

/// A decision to launch is older than this only where the workstation slept meanwhile, or where
/// everybody took their time: then the job is looked at once more, for a wish that came since.
/// Shorter, and an ordinary choice among offers is made twice.
const DECISION_HOLDS: Duration = Duration::from_secs(60);

impl Controller {
    /// Whether the machine of a plan could fetch and run the agent that it would get, as far as its
    /// image and our credentials say. Sends nothing.
    ///
    /// # Errors
    /// When there is no agent for such machines, it needs a newer C library than the image has, or
    /// nothing that is signed now would last until the machine has booted.
    pub async fn agent_fits(&self, plan: &Plan) -> Result<(), ShipError> {
        match (&plan.launch, &self.shipper) {
            // A kept machine has its agent.
            (Some(launch), Some(shipper)) if plan.starts.is_none() => {
                shipper
                    .fits(plan.offer.arch, launch.image_name.as_deref().unwrap_or(&launch.image))?;
                match shipper.could_fetch(&*self.store, plan.offer.arch, plan.boot).await {
                    // A folder is another finding, told with all else that an account lacks.
                    Err(ShipError::NotReachable(_)) => Ok(()),
                    fetched => fetched,
                }
            }
            _ => Ok(()),
        }
    }

    /// Records nothing: a launch whose answer is lost is repeated with the same plan, and the
    /// machine is the same.
    pub(crate) async fn launch(
        &self,
        job: &JobId,
        memory: &mut JobMemory,
        attempt: AttemptNo,
    ) -> Result<(), ActError> {
        if memory
            .looked
            .is_some_and(|looked| self.clock.mono().saturating_sub(looked) > DECISION_HOLDS)
        {
            info!(%job, "looking once more before the launch: the decision is older than {} s", DECISION_HOLDS.as_secs());
            return Ok(());
        }
        let market =
            memory.spec.as_ref().map_or(MarketChoice::default(), |spec| spec.spec.machine.market);
        let trouble_met = &mut memory.trouble_met;
        let memory = memory.attempts.entry(attempt).or_default();
        let Some(plan) = &memory.plan else { return Ok(()) };
        let cloud = self.cloud(plan.offer.cloud)?;
        let (launched, done) = match &plan.starts {
            None => (cloud.launch(plan).await, "launched"),
            Some(starts) => {
                let machine = MachineRef {
                    cloud: plan.offer.cloud,
                    region: plan.offer.region.clone(),
                    id: starts.instance.clone(),
                };
                (cloud.start(&machine, plan).await.map(|()| machine.id), "started again")
            }
        };
        match launched {
            Ok(instance) => {
                info!(%job, attempt = attempt.number(), instance, "{done}");
                memory.launched(instance, self.clock.mono());
                Ok(())
            }
            Err(error @ CloudError::NoCapacity { refusal, .. })
                if let Some(refusal) = refusal_backoff::of_job(refusal, market) =>
            {
                info!(%job, attempt = attempt.number(), "{error}");
                memory.refused(Some(refusal), error.to_string(), self.clock.mono());
                Ok(())
            }
            // Nobody has refused the machine: the same plan is launched as soon as somebody has
            // signed in again.
            Err(error) if error.is_unsigned() => Err(error.into()),
            Err(
                error @ (CloudError::Invalid { .. }
                | CloudError::Unsupported { .. }
                | CloudError::Denied { .. }
                | CloudError::Relaunches { .. }
                | CloudError::Unstoppable { .. }
                | CloudError::NoCapacity { .. }),
            ) => {
                warn!(%job, attempt = attempt.number(), "cannot launch: {error}");
                memory.refused(None, chain(&error), self.clock.mono());
                Ok(())
            }
            // What bills is the plan's machine, whatever was asked for in the other request; and
            // somebody must hear of it.
            Err(CloudError::Mismatch { machine: Some(instance), what }) => {
                let text = format!(
                    "{instance} was adopted by attempt {}, though another request has launched it: {what}",
                    attempt.number()
                );
                tracing::error!(%job, "{text}; that is a fault of this program: please report it");
                *trouble_met = Some(text);
                memory.launched(instance, self.clock.mono());
                Ok(())
            }
            Err(
                error @ (CloudError::Ambiguous { .. } | CloudError::Mismatch { machine: None, .. }),
            ) => {
                memory.certainty.lost();
                memory.asked(self.clock.mono());
                Err(error.into())
            }
            Err(error @ CloudError::Throttled) => Err(error.into()),
        }
    }
}
