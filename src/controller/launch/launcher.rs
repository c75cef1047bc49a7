//! Launches what is planned.
//!
//! ```text
//!   plan ──> launch, or start a kept machine ─┬─ an id ──────────────> the machine is known
//!                                             ├─ refused ────────────> the next tick chooses again
//!                                             ├─ no credentials ─────> the same call again
//!                                             ├─ of another request ─> adopted; a fault
//!                                             └─ no answer ──────────> the same call again
//! ```
//! `plan` makes a plan, `next_attempt` writes it, `submit` makes a job, `first_launch` does all of
//! it in one process. A launch writes no record, because the plan is the record.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::agent_shipping::{ShipError, Shipper};
use super::spending_cap::CapCheck;
use crate::controller::act_result::ActError;
use crate::controller::attempt_memory::AttemptMemory;
use crate::controller::clocks::Clocks;
use crate::controller::clouds::Clouds;
use crate::controller::job_memory::JobMemory;
use crate::controller::settle::alarm_state::Guarding;
use crate::instance::MachineRef;
use crate::job::{AttemptNo, JobId, MarketChoice, Plan};
use crate::policy::lifecycle::reconcile::GuardLeft;
use crate::policy::purchase::refusal_backoff;
use crate::ports::{Clock, CloudError, Store, chain, chain_with_cure};

/// A decision to launch is older than this only after a sleep of the workstation, or after slow
/// answers. Then the job is looked at again, for a later request. A shorter limit repeats ordinary
/// choices among offers.
const DECISION_HOLDS: Duration = Duration::from_secs(60);

/// After this many tries, about five minutes, the user is told that the machine has no alarm.
const GUARD_TRIES_TOLD: u32 = 7;

/// Plans and launches for the jobs of one job root.
pub struct JobLauncher {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: Clouds,
    pub(super) clock: Clocks,
    /// For people: the author of a plan.
    pub(super) name: String,
    /// Brings the agent to a machine; `None`: the machine has it already.
    pub shipper: Option<Shipper>,
    /// The caps over all jobs.
    pub caps: CapCheck,
    /// Jobs plan and launch one at a time: a cap counts earlier launches, and a full zone is not
    /// asked twice.
    pub(super) one_at_a_time: tokio::sync::Mutex<()>,
}

impl JobLauncher {
    pub fn new(store: &Arc<dyn Store>, clouds: &Clouds, clock: &Clocks, name: &str) -> Self {
        let (store, clouds, clock, name) =
            (Arc::clone(store), clouds.clone(), clock.clone(), name.to_owned());
        let caps = CapCheck::new(&store, &clouds.owner, clock.clone());
        let one_at_a_time = tokio::sync::Mutex::default();
        JobLauncher { store, clouds, clock, name, shipper: None, caps, one_at_a_time }
    }

    /// Whether the machine of a plan could fetch and run its agent, as far as its image and the
    /// credentials show. Sends nothing.
    ///
    /// When there is no agent for such machines, it needs a newer C library than the image has, or
    /// the signature would expire before the boot.
    pub async fn agent_fits(&self, plan: &Plan) -> Result<(), ShipError> {
        match (&plan.launch, &self.shipper) {
            // A kept machine has its agent.
            (Some(launch), Some(shipper)) if plan.starts.is_none() => {
                shipper
                    .fits(plan.offer.arch, launch.image_name.as_deref().unwrap_or(&launch.image))?;
                match shipper.could_fetch(&*self.store, plan.offer.arch, plan.boot).await {
                    // A job root in a folder is another finding, and the account check reports it.
                    Err(ShipError::NotReachable(_)) => Ok(()),
                    fetched => fetched,
                }
            }
            _ => Ok(()),
        }
    }

    /// Brings the agent to the job root, if the machines of this plan need it there. The launch
    /// does it too; this call does it earlier, beside another one.
    pub async fn ship_ahead(&self, plan: &Plan) {
        let (Some(_), Some(shipper), None) = (&plan.launch, &self.shipper, &plan.starts) else {
            return;
        };
        if let Err(error) = shipper.bring(&*self.store, plan.offer.arch).await {
            debug!("the agent is not in the job root yet: {error}");
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
        let cloud = self.clouds.get(plan.offer.cloud)?;
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
            // Without credentials nothing is refused: after the next sign-in the same plan is
            // launched.
            Err(error) if error.is_unsigned() => Err(error.into()),
            Err(
                error @ (CloudError::Invalid { .. }
                | CloudError::NoImage { .. }
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
            // The machine that bills is the plan's, although another request made it. The user must
            // hear of it.
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

    /// A failure does not stop the job: the agent, the machine's switch and the lease remain.
    pub(crate) async fn guard(
        &self,
        job: &JobId,
        memory: &mut AttemptMemory,
        machine: &MachineRef,
        armed: bool,
    ) {
        let Some(plan) = memory.plan.clone() else { return };
        // A lost answer may have armed it. Arming twice does no harm.
        memory.watched.guard = GuardLeft::Unknown;
        let done = match self.clouds.get(machine.cloud) {
            Ok(cloud) if armed => cloud.guard(&plan, machine).await,
            Ok(cloud) => cloud.unguard(machine).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => {
                memory.guarding = Guarding::default();
                memory.watched.guard = if armed { GuardLeft::Armed } else { GuardLeft::Off };
                if !armed {
                    info!(%job, %machine, "its measurements do not reach CloudWatch: no alarm waits for them until they do, but for one that rings");
                }
            }
            Err(error) => {
                if armed && matches!(error, CloudError::Denied { .. }) {
                    memory.guarding.denied = Some(chain_with_cure(&error));
                }
                let tries = memory.guarding.failed(self.clock.mono());
                let error = chain(&error);
                // The first heartbeat takes its time.
                if tries == GUARD_TRIES_TOLD {
                    warn!(%job, %machine, "{error}")
                } else {
                    debug!(%job, %machine, tries, "{error}")
                }
            }
        }
    }
}
