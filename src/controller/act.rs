//! Does what `policy::lifecycle::reconcile` says, one act at a time. Each act may be lost or repeated without harm.

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
use crate::ports::{CloudError, Created, NoCredentials, PowerOff, chain};

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
    /// A machine's end is counted from its plan.
    #[error("{what}: nothing is launched until one of them is right")]
    ClockOff { what: String },
    /// A machine whose disk was to stay can only be ended with it, and what that holds is nowhere else.
    #[error("{0}")]
    Unstoppable(String),
    /// Every place that would do waits for a person; `none`: some others do not fit now.
    #[error("{}", Unready::sentence(.none.as_ref(), .unready))]
    NotReady { none: Option<NoOffer>, unready: Vec<Unready> },
}

impl ActError {
    /// The cloud or the store knows us not, or does not let us.
    pub fn is_denial(&self) -> bool {
        matches!(self, ActError::Cloud(CloudError::Denied { .. }))
    }

    /// The cloud has said no, and would say it again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ActError::Cloud(CloudError::Denied { .. } | CloudError::Invalid { .. } | CloudError::Unsupported { .. }))
    }

    /// What can never work of the job, in the cloud's words.
    pub fn never_works(&self) -> Option<&str> {
        match self {
            ActError::Cloud(CloudError::Invalid { what }) => Some(what),
            _ => None,
        }
    }

    /// Nobody answered: nothing is known of what was asked.
    pub fn is_silence(&self) -> bool {
        matches!(self, ActError::Cloud(CloudError::Ambiguous { .. } | CloudError::Throttled) | ActError::Record(_))
    }
}

/// After so many tries, which are five minutes, somebody is told that nothing watches a machine from outside.
const GUARD_TRIES_TOLD: u32 = 7;

/// A plan that is older before it is written is made again, as after a sleep: its machine's hard end is counted from it.
const FRESH: Duration = Duration::from_secs(60);

/// After so many looks without a spec there is no job. One may be an old answer.
const GONE_LOOKS: u32 = 3;

/// What one act did.
pub enum Done {
    /// Something changed: look again at once.
    Changed,
    /// A record was written, and nothing at the cloud has changed: what it said holds.
    Recorded,
    /// Nothing more to do until the next tick.
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
                return self.create_plan(dir, spec, memory, observed, (*attempt, *resume_from, reason)).await;
            }
            Act::Launch { attempt } => {
                // Whoever drives this job too may have written down since our look that it was refused.
                if dir.settled(*attempt).await?.is_some() {
                    return Ok(Done::Changed);
                }
                self.launch(job, memory, *attempt).await?;
            }
            Act::RaiseKillAt { machine, kill_at } => {
                info!(%job, %machine, %kill_at, "raising the hard cap");
                self.cloud(machine.cloud)?.raise_kill_at(machine, *kill_at).await?;
            }
            Act::Terminate { machine, ends, why } => return self.put_out(dir, memory, observed, (machine, PowerOff::Terminate), (*ends, why)).await,
            Act::Stop { machine, ends, why } => return self.put_out(dir, memory, observed, (machine, PowerOff::Stop), (*ends, why)).await,
            Act::Guard { attempt, machine, armed } => {
                self.guard(job, memory.attempts.entry(*attempt).or_default(), machine, *armed).await;
                return Ok(Done::Waiting);
            }
            Act::Interrupt { attempt, machine, notice, request } => {
                self.cloud(machine.cloud)?.interrupt(machine, *notice).await?;
                memory.attempts.entry(*attempt).or_default().watched.interrupt_served = *request;
            }
            Act::Settle(settled) => {
                // By a clock here that is a day ahead a plan of just now has lain too long, while another starts its machine (seed 50024327
                // of 24 h).
                if has_lain(settled) {
                    self.must_know_the_time().await?;
                }
                let settled = self.by_prices(observed, settled).await;
                let created = dir.create_settled(&settled).await?;
                info!(%job, attempt = settled.attempt.number(), because = %settled.because, usd = %settled.usd, ?created, "settled");
                if created == Created::New {
                    let attempt = memory.attempts.entry(settled.attempt).or_default();
                    (attempt.settled, attempt.settled_since) = (Some(settled.clone().into()), Some(self.clock.mono()));
                }
                self.release(memory, &settled).await;
                return Ok(Done::Recorded);
            }
            Act::WriteReceipt(receipt) => return self.write_receipt(dir, memory, observed, receipt).await,
            Act::Wait { .. } => return Ok(Done::Waiting),
        }
        Ok(Done::Changed)
    }

    /// Plans an attempt, and launches it where the plan is ours.
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
            let planned = self.plan(dir, memory, spec, observed, (attempt, resume_from, reason)).await;
            let mut plan = match planned {
                Err(ActError::NotNow(NotNow { reason, until })) => {
                    self.wait_for(dir, memory, reason, until, WAIT_LOOK).await;
                    return Ok(Done::Waiting);
                }
                Err(ActError::NoOffer(NoOffer { because, too_dear: Some(dear), .. })) => {
                    self.wait_for_a_word(dir, spec, memory, observed, &because, &dear).await;
                    return Ok(Done::Waiting);
                }
                Err(ActError::NoOffer(none)) => match relaunch::scarcity(&spec.spec, &history(&observed.attempts), self.clock.now()) {
                    Some((waits, again)) if again > self.clock.now() => {
                        self.wait_for_capacity(dir, memory, waits, again);
                        return Ok(Done::Waiting);
                    }
                    _ => return Err(none.into()),
                },
                planned => planned?,
            };
            // A clock that was set while it was planned has dated its hard end. One that was not is not asked for again.
            self.must_know_the_time().await?;
            let Some(turn) = self.turn_to_launch(&plan).await else { return Ok(Done::Waiting) };
            if self.hold_back(dir, memory, &plan, &turn.caps).await? {
                return Ok(Done::Waiting);
            }
            self.write_user_data(spec, &mut plan).await?;
            // Once: a line that is always slow must not plan for ever.
            if made_anew || elapsed(plan.created, self.clock.now()) <= FRESH {
                break (plan, turn);
            }
            made_anew = true;
        };
        if !self.is_still_there(dir, memory).await? {
            return Ok(Done::Waiting);
        }
        // By the steady clock from before the write: a workstation may sleep over its answer.
        let making = self.clock.mono();
        // Counted before it is there: an answer may be lost.
        self.ledger.planned(&plan);
        let created = dir.create_plan(&plan).await?;
        drop(turn);
        info!(job = %dir.job(), attempt = attempt.number(), ?created, "{reason}");
        // Somebody else's plan is as good: the next look finds it. Ours needs no look: nobody has launched it yet,
        // and if somebody has since, its token makes it the same machine.
        // Another one may have ended the job since our look: its list of attempts came before this plan (seed 8000394 of 24 h).
        if created == Created::New {
            memory.attempts.entry(attempt).or_default().planned(plan, making);
            if dir.receipt().await?.is_none() {
                self.launch(dir.job(), memory, attempt).await?;
            }
        }
        Ok(Done::Changed)
    }

    /// Whether the job still has its spec. Somebody may have ended the job, read its receipt and deleted its records while this process
    /// stood still, or while the store was away: then nothing is bought for it, and no record of it is made again.
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

    /// Writes the end of the job, with what it leaves.
    async fn write_receipt(&self, dir: &JobDir, memory: &mut JobMemory, observed: &Observed, receipt: &Receipt) -> Result<Done, ActError> {
        if !self.is_still_there(dir, memory).await? {
            return Ok(Done::Waiting);
        }
        // A list of attempts may be late, and another controller launch what no receipt would name.
        let next = observed.attempts.last().map_or(AttemptNo::FIRST, |last| last.plan.attempt.next());
        if dir.plan(next).await?.is_some() {
            return Ok(Done::Waiting);
        }
        // Once: a store that is down meanwhile must not make it a question at every tick.
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

    /// Every place has refused lately. The records say which, and when they are asked again: nothing more is written.
    fn wait_for_capacity(&self, dir: &JobDir, memory: &mut JobMemory, waits: String, again: Timestamp) {
        let wait = elapsed(self.clock.now(), again).min(WAIT_LOOK);
        // A launch that was planned since has cleared it.
        if memory.held_back.is_none() {
            info!(job = %dir.job(), "waits for {waits}");
        }
        memory.held_back = Some(HeldBack { until: self.clock.mono() + wait, said: waits });
    }

    /// All that may be bought is not to be had, and what is to be had is dearer than anybody was told.
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
        let none = relaunch::found_none(&history).or_else(|| because.first().cloned()).map(|none| format!("{none}; ")).unwrap_or_default();
        let (dearer, enough) = (dear.sentence(), dear.enough());
        let text = format!("a machine within its `fallback_cost`: {none}{dearer}; `lamp extend {} --fallback-cost {enough}` allows it", dir.job());
        let again = relaunch::scarcity(&spec.spec, &history, now).map(|(_, again)| elapsed(now, again)).filter(|wait| *wait > Duration::ZERO);
        let look = again.map_or(WAIT_LOOK, |again| again.min(WAIT_LOOK));
        self.wait_for(dir, memory, Reason::new(now, "placement", "wait", text), None, look).await;
    }

    /// The job goes on without it: the agent, the switch on the machine and the lease are there too.
    async fn guard(&self, job: &JobId, memory: &mut AttemptMemory, machine: &MachineRef, armed: bool) {
        let Some(plan) = memory.plan.clone() else { return };
        // An answer that is lost may have done it: it is armed once more than needed, and never once too little.
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
                    memory.guarding.denied = Some(NoCredentials::with_cure(&error));
                }
                let tries = memory.guarding.failed(self.clock.mono());
                let error = chain(&error);
                // A first heartbeat takes its time.
                if tries == GUARD_TRIES_TOLD { warn!(%job, %machine, "{error}") } else { debug!(%job, %machine, tries, "{error}") }
            }
        }
    }

    /// What was kept of a machine only to settle it may go. Nothing depends on it.
    async fn release(&self, memory: &JobMemory, settled: &Settled) {
        let plan = memory.attempts.get(&settled.attempt).and_then(|attempt| attempt.plan.as_ref());
        let (Some(plan), Some(id)) = (plan, &settled.instance) else { return };
        let machine = MachineRef { cloud: plan.offer.cloud, region: plan.offer.region.clone(), id: id.clone() };
        let released = match self.cloud(machine.cloud) {
            Ok(cloud) => cloud.release(&machine).await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            warn!(%machine, "cannot clear what is left of the machine: {error}");
        }
    }
}
