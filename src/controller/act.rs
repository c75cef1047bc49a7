//! Does the acts of `policy::lifecycle::reconcile`, one at a time. Each may be lost or repeated
//! without harm.

use std::time::Duration;

use jiff::Timestamp;
use tracing::{debug, info, warn};

use super::attempt_memory::AttemptMemory;
use super::drive::Controller;
use super::job_memory::JobMemory;
use super::launch::agent_shipping::ShipError;
use super::launch::launchable::Unready;
use super::launch::market_memory::{NotNow, WAIT_LOOK};
use super::launch::spending_cap::HeldBack;
use super::observe::Observed;
use super::settle::alarm_state::Guarding;
use crate::instance::MachineRef;
use crate::job::{AttemptNo, CheckpointNo, JobId, Reason, Receipt, ResolvedSpec, Settled};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::elapsed;
use crate::policy::billing::settlement::has_lain;
use crate::policy::lifecycle::reconcile::{Act, GuardLeft, history};
use crate::policy::lifecycle::relaunch;
use crate::policy::purchase::fallback_limit::TooDear;
use crate::policy::purchase::placement::NoOffer;
use crate::ports::{CloudError, Created, PowerOff, chain, chain_with_cure};

/// Why an act was not done. The next tick tries again.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Record(#[from] JobDirError),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    NoOffer(#[from] NoOffer),
    #[error(transparent)]
    Ship(#[from] ShipError),
    /// The rule for `market = "auto"` wants no machine now.
    #[error("no machine now; it waits for {}", .0.reason.text)]
    NotNow(NotNow),
    /// A machine's hard end is counted from its plan, so the clock must be right.
    #[error("{what}: nothing is launched until one of them is right")]
    ClockOff { what: String },
    /// The cloud can only terminate this machine, and its disk holds the only copy of the work.
    #[error("{0}")]
    Unstoppable(String),
    /// Every suitable place waits for a person; `none`: the other places do not fit now.
    #[error("{}", Unready::sentence(.none.as_ref(), .unready))]
    NotReady { none: Option<NoOffer>, unready: Vec<Unready> },
}

impl ActError {
    /// The credentials or permissions do not suffice.
    pub fn is_denial(&self) -> bool {
        matches!(self, ActError::Cloud(CloudError::Denied { .. }))
    }

    /// The cloud refused, and would refuse again.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            ActError::Cloud(
                CloudError::Denied { .. }
                    | CloudError::Invalid { .. }
                    | CloudError::Unsupported { .. }
            )
        )
    }

    /// The cloud's reason why the job can never work.
    pub fn never_works(&self) -> Option<&str> {
        match self {
            ActError::Cloud(CloudError::Invalid { what }) => Some(what),
            _ => None,
        }
    }

    /// The call had no answer: its effect is unknown.
    pub fn is_silence(&self) -> bool {
        matches!(
            self,
            ActError::Cloud(CloudError::Ambiguous { .. } | CloudError::Throttled)
                | ActError::Record(_)
        )
    }
}

/// After this many tries, about five minutes, the user is told that the machine has no alarm.
const GUARD_TRIES_TOLD: u32 = 7;

/// An older plan is made again before it is written, for example after a sleep: the machine's hard
/// end is counted from it.
const FRESH: Duration = Duration::from_secs(60);

/// After this many looks without a spec the job is gone. One look may be an old answer.
const GONE_LOOKS: u32 = 3;

/// The effect of one act.
pub enum Done {
    /// Something changed: look again at once.
    Changed,
    /// Only a record was written: the cloud's last answer still holds.
    Recorded,
    /// The next tick continues.
    Waiting,
    /// The receipt is written.
    Final,
}

impl Controller {
    pub(super) async fn act(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        act: &Act,
    ) -> Result<Done, ActError> {
        let job = dir.job();
        match act {
            Act::CreatePlan { attempt, resume_from, reason } => {
                return self
                    .create_plan(dir, spec, memory, observed, (*attempt, *resume_from, reason))
                    .await;
            }
            Act::Launch { attempt } => {
                // Another controller may have recorded its refusal since our look.
                if dir.settled(*attempt).await?.is_some() {
                    return Ok(Done::Changed);
                }
                self.launch(job, memory, *attempt).await?;
            }
            Act::RaiseKillAt { machine, kill_at } => {
                info!(%job, %machine, %kill_at, "raising the hard cap");
                self.cloud(machine.cloud)?.raise_kill_at(machine, *kill_at).await?;
            }
            Act::Terminate { machine, ends, why } => {
                return self
                    .put_out(dir, memory, observed, (machine, PowerOff::Terminate), (*ends, why))
                    .await;
            }
            Act::Stop { machine, ends, why } => {
                return self
                    .put_out(dir, memory, observed, (machine, PowerOff::Stop), (*ends, why))
                    .await;
            }
            Act::Guard { attempt, machine, armed } => {
                self.guard(job, memory.attempts.entry(*attempt).or_default(), machine, *armed)
                    .await;
                return Ok(Done::Waiting);
            }
            Act::Interrupt { attempt, machine, notice, request } => {
                self.cloud(machine.cloud)?.interrupt(machine, *notice).await?;
                memory.attempts.entry(*attempt).or_default().watched.interrupt_served = *request;
            }
            Act::Settle(settled) => {
                // A clock that is a day ahead makes a new plan look too old, while another
                // controller starts its machine.
                if has_lain(settled) {
                    self.must_know_the_time().await?;
                }
                let settled = self.by_prices(observed, settled).await;
                let created = dir.create_settled(&settled).await?;
                info!(%job, attempt = settled.attempt.number(), because = %settled.because, usd = %settled.usd, ?created, "settled");
                if created == Created::New {
                    let attempt = memory.attempts.entry(settled.attempt).or_default();
                    (attempt.settled, attempt.settled_since) =
                        (Some(settled.clone().into()), Some(self.clock.mono()));
                }
                self.release(memory, &settled).await;
                return Ok(Done::Recorded);
            }
            Act::WriteReceipt(receipt) => {
                return self.write_receipt(dir, memory, observed, receipt).await;
            }
            Act::Wait { .. } => return Ok(Done::Waiting),
        }
        Ok(Done::Changed)
    }

    /// Plans an attempt, and launches it if this controller created the plan.
    async fn create_plan(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        (attempt, resume_from, reason): (AttemptNo, Option<CheckpointNo>, &str),
    ) -> Result<Done, ActError> {
        if self.is_held_back(memory) {
            return Ok(Done::Waiting);
        }
        self.must_know_the_time().await?;
        let _one_at_a_time = self.launching.here.lock().await;
        let mut made_anew = false;
        let (plan, turn) = loop {
            let planned =
                self.plan(dir, memory, spec, observed, (attempt, resume_from, reason)).await;
            let mut plan = match planned {
                Err(ActError::NotNow(NotNow { reason, until })) => {
                    self.wait_for(dir, memory, reason, until, WAIT_LOOK).await;
                    return Ok(Done::Waiting);
                }
                Err(ActError::NoOffer(NoOffer { because, too_dear: Some(dear), .. })) => {
                    self.wait_for_a_word(dir, spec, memory, observed, &because, &dear).await;
                    return Ok(Done::Waiting);
                }
                Err(ActError::NoOffer(none)) => match relaunch::scarcity(
                    &spec.spec,
                    &history(&observed.attempts),
                    self.clock.now(),
                ) {
                    Some((waits, again)) if again > self.clock.now() => {
                        self.wait_for_capacity(dir, memory, waits, again);
                        return Ok(Done::Waiting);
                    }
                    _ => return Err(none.into()),
                },
                planned => planned?,
            };
            // A clock change during planning gives a wrong hard end. A clock that was just checked
            // is not checked again.
            self.must_know_the_time().await?;
            let Some(turn) = self.turn_to_launch(&plan).await else { return Ok(Done::Waiting) };
            if self.hold_back(dir, memory, &plan, &turn.caps).await? {
                return Ok(Done::Waiting);
            }
            self.write_user_data(spec, &mut plan).await?;
            // Once only: a slow line must not make it plan for ever.
            if made_anew || elapsed(plan.created, self.clock.now()) <= FRESH {
                break (plan, turn);
            }
            made_anew = true;
        };
        if !self.is_still_there(dir, memory).await? {
            return Ok(Done::Waiting);
        }
        // Measured on the steady clock from before the write: the workstation may sleep before the
        // answer.
        let making = self.clock.mono();
        // Counted before the write, because the answer may be lost.
        self.ledger.planned(&plan);
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
        Ok(Done::Changed)
    }

    /// Whether the job still has its spec. A user may have deleted an ended job while this process
    /// slept or the store was down. Then nothing is bought or recorded for it.
    async fn is_still_there(&self, dir: &JobDir, memory: &mut JobMemory) -> Result<bool, ActError> {
        if dir.spec().await?.is_some() {
            memory.looks_without = 0;
            return Ok(true);
        }
        memory.looks_without += 1;
        if memory.looks_without == 1 {
            warn!(job = %dir.job(), "its records are gone: nothing is launched or written for it");
        }
        if memory.looks_without >= GONE_LOOKS {
            // The next look finds no job.
            memory.spec = None;
        }
        Ok(false)
    }

    /// Writes the receipt, with the job's leftovers.
    async fn write_receipt(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        observed: &Observed,
        receipt: &Receipt,
    ) -> Result<Done, ActError> {
        if !self.is_still_there(dir, memory).await? {
            return Ok(Done::Waiting);
        }
        // The list of attempts may be late: another controller may have planned one more.
        let next =
            observed.attempts.last().map_or(AttemptNo::FIRST, |last| last.plan.attempt.next());
        if dir.plan(next).await?.is_some() {
            return Ok(Done::Waiting);
        }
        // Asked once: during an outage of the store it must not be asked at every tick.
        let leavings = match memory.leavings.take() {
            Some(known) => known,
            None => {
                let leavings = self.leave_nothing(dir.job(), observed).await;
                self.learn_from_end(memory, observed).await;
                leavings
            }
        };
        let receipt = leavings.on(receipt);
        memory.leavings = Some(leavings);
        if dir.plan(next).await?.is_some() {
            return Ok(Done::Waiting);
        }
        let created = dir.create_receipt(&receipt).await?;
        info!(job = %dir.job(), outcome = %receipt.outcome, total = %receipt.total_usd, ?created, "{}", receipt.reason);
        self.clouds.values().for_each(|cloud| cloud.settled(dir.job()));
        Ok(Done::Final)
    }

    /// Every place has refused lately. The records say which and when to ask again, so nothing more
    /// is written.
    fn wait_for_capacity(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        waits: String,
        again: Timestamp,
    ) {
        let wait = elapsed(self.clock.now(), again).min(WAIT_LOOK);
        // A launch that was planned since then has cleared it.
        if memory.held_back.is_none() {
            info!(job = %dir.job(), "waits for {waits}");
        }
        memory.held_back = Some(HeldBack { until: self.clock.mono() + wait, said: waits });
    }

    /// No machine within the limits is free, and the free ones cost more than the user was told.
    async fn wait_for_a_word(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        because: &[String],
        dear: &TooDear,
    ) {
        let (history, now) = (history(&observed.attempts), self.clock.now());
        let none = relaunch::found_none(&history)
            .or_else(|| because.first().cloned())
            .map(|none| format!("{none}; "))
            .unwrap_or_default();
        let (dearer, enough) = (dear.sentence(), dear.enough());
        let text = format!(
            "a machine within its `fallback_cost`: {none}{dearer}; `lamp extend {} --fallback-cost {enough}` allows it",
            dir.job()
        );
        let again = relaunch::scarcity(&spec.spec, &history, now)
            .map(|(_, again)| elapsed(now, again))
            .filter(|wait| *wait > Duration::ZERO);
        let look = again.map_or(WAIT_LOOK, |again| again.min(WAIT_LOOK));
        self.wait_for(dir, memory, Reason::new(now, "placement", "wait", text), None, look).await;
    }

    /// A failure does not stop the job: the agent, the machine's switch and the lease remain.
    async fn guard(
        &self,
        job: &JobId,
        memory: &mut AttemptMemory,
        machine: &MachineRef,
        armed: bool,
    ) {
        let Some(plan) = memory.plan.clone() else { return };
        // A lost answer may have armed it. Arming twice does no harm.
        memory.watched.guard = GuardLeft::Unknown;
        let done = match self.cloud(machine.cloud) {
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

    /// Deletes what was kept of a machine only to settle it. A failure does no harm.
    async fn release(&self, memory: &JobMemory, settled: &Settled) {
        let plan = memory.attempts.get(&settled.attempt).and_then(|attempt| attempt.plan.as_ref());
        let (Some(plan), Some(id)) = (plan, &settled.instance) else { return };
        let machine = MachineRef {
            cloud: plan.offer.cloud,
            region: plan.offer.region.clone(),
            id: id.clone(),
        };
        let released = match self.cloud(machine.cloud) {
            Ok(cloud) => cloud.release(&machine).await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            warn!(%machine, "cannot clear what is left of the machine: {error}");
        }
    }
}
