//! Does what `policy::reconcile` says, one act at a time. Each act may be lost or repeated without harm.

use sha2::{Digest, Sha256};
use tracing::{debug, info, warn};

use super::bootstrap;
use super::continuation::goes_on_from;
use super::drive::Controller;
use super::market::{Choosing, MarketMemory, NotNow, Outlook, WAIT_LOOK, asks};
use super::memory::{AttemptMemory, JobMemory};
use crate::instance::{MachineRef, Tags};
use crate::job::{AttemptNo, CheckpointNo, JobId, KeptMachine, MarketChoice, Plan, RECORD_FORMAT, Reason, ResolvedSpec, Settled};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Cloud, Market, Offer, Quota, Supply};
use crate::policy::Wishes;
use crate::policy::auto::AutoStep;
use crate::policy::continuation::machine_to_start;
use crate::policy::placement::{self, Ask, NoOffer};
use crate::policy::proof;
use crate::policy::ranking::Ranked;
use crate::policy::reconcile::{Act, history};
use crate::policy::relaunch;
use crate::ports::{CloudError, Created, chain};

use super::observe::Observed;
use super::ready::{Launchable, Unready, launchable};
use super::ship::ShipError;

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

    /// Nobody answered: nothing is known of what was asked.
    pub fn is_silence(&self) -> bool {
        matches!(self, ActError::Cloud(CloudError::Ambiguous { .. } | CloudError::Throttled) | ActError::Record(_))
    }
}

/// After so many tries, which are five minutes, somebody is told that nothing watches a machine from outside.
const GUARD_TRIES_TOLD: u32 = 4;

/// A plan, and what was known when it was made.
#[derive(Clone, Debug)]
pub struct Planned {
    pub plan: Plan,
    /// What is tried next when its machine is not to be had, in order.
    pub fallbacks: Vec<Offer>,
    /// What the planned machine and each of those come to, in the same order.
    pub ranking: Vec<Ranked>,
    pub quotas: Vec<Quota>,
    /// What never became an offer, each with the reason.
    pub refused: Vec<String>,
    /// Regions that are passed over until somebody mends them.
    pub unready: Vec<Unready>,
    /// Why it is of this market, `market = "auto"`; and how the job looks at both.
    pub decided: Option<Reason>,
    pub outlook: Option<Outlook>,
    /// Nothing is launched now: the plan is what is taken when waiting brings nothing cheaper in time.
    pub waits: Option<NotNow>,
}

/// Which plan is wanted.
struct Sought<'a> {
    attempt: AttemptNo,
    resume_from: Option<CheckpointNo>,
    reason: &'a str,
    /// To be looked at, also where nothing is to be launched now.
    shown: bool,
}

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
                if self.is_held_back(memory) {
                    return Ok(Done::Waiting);
                }
                self.check_clock().await?;
                let _one_at_a_time = self.launching.lock().await;
                let planned = self.plan(dir, memory, spec, observed, (*attempt, *resume_from, reason)).await;
                let mut plan = match planned {
                    Err(ActError::NotNow(NotNow { reason, until })) => {
                        self.wait_for(dir, memory, reason, until, WAIT_LOOK).await;
                        return Ok(Done::Waiting);
                    }
                    planned => planned?,
                };
                if self.hold_back(dir, memory, &plan).await? {
                    return Ok(Done::Waiting);
                }
                self.write_user_data(spec, &mut plan).await?;
                let created = dir.create_plan(&plan).await?;
                info!(%job, attempt = attempt.number(), ?created, "{reason}");
                // Somebody else's plan is as good: the next look finds it. Ours needs no look: nobody has launched it yet,
                // and if somebody has since, its token makes it the same machine.
                if created == Created::New {
                    memory.attempts.entry(*attempt).or_default().planned(plan);
                    self.launch(job, memory, *attempt).await?;
                }
            }
            Act::Launch { attempt } => self.launch(job, memory, *attempt).await?,
            Act::RaiseKillAt { machine, kill_at } => {
                info!(%job, %machine, %kill_at, "raising the hard cap");
                self.cloud(machine.cloud)?.raise_kill_at(machine, *kill_at).await?;
            }
            Act::Terminate { machine, ends, why } => {
                warn!(%job, %machine, "terminating: {why}");
                if let Some(attempt) = ends {
                    self.intend_to_end(dir, memory, observed, *attempt, why).await?;
                }
                self.cloud(machine.cloud)?.terminate(machine).await?;
                return Ok(Done::Waiting);
            }
            Act::Stop { machine, ends, why } => return self.stop(dir, memory, observed, machine, (*ends, why)).await,
            Act::Guard { attempt, machine } => {
                self.guard(job, memory.attempts.entry(*attempt).or_default(), machine).await;
                return Ok(Done::Waiting);
            }
            Act::Interrupt { attempt, machine, notice, request } => {
                self.cloud(machine.cloud)?.interrupt(machine, *notice).await?;
                memory.attempts.entry(*attempt).or_default().watched.interrupt_served = *request;
            }
            Act::Settle(settled) => {
                let created = dir.create_settled(settled).await?;
                info!(%job, attempt = settled.attempt.number(), because = %settled.because, usd = %settled.usd, ?created, "settled");
                if created == Created::New {
                    memory.attempts.entry(settled.attempt).or_default().settled = Some((**settled).clone());
                }
                self.release(memory, settled).await;
                return Ok(Done::Recorded);
            }
            Act::WriteReceipt(receipt) => {
                // Once: a store that is down meanwhile must not make it a question at every tick.
                let leavings = match memory.leavings.take() {
                    Some(known) => known,
                    None => {
                        let leavings = self.leave_nothing(job, observed).await;
                        self.learn_from_end(memory, observed).await;
                        leavings
                    }
                };
                let receipt = leavings.on(receipt);
                memory.leavings = Some(leavings);
                let created = dir.create_receipt(&receipt).await?;
                info!(%job, outcome = %receipt.outcome, total = %receipt.total_usd, ?created, "{}", receipt.reason);
                return Ok(Done::Final);
            }
            Act::Wait { .. } => return Ok(Done::Waiting),
        }
        Ok(Done::Changed)
    }

    /// The job goes on without it: the agent, the switch on the machine and the lease are there too.
    async fn guard(&self, job: &JobId, memory: &mut AttemptMemory, machine: &MachineRef) {
        let Some(plan) = memory.plan.clone() else { return };
        let guarded = match self.cloud(machine.cloud) {
            Ok(cloud) => cloud.guard(&plan, machine).await,
            Err(error) => Err(error),
        };
        match guarded {
            Ok(()) => memory.watched.guarded = true,
            Err(error) => {
                let tries = memory.guard_failed(self.clock.mono());
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

    /// The plan that the first attempt of a job would have now, for looking at.
    ///
    /// # Errors
    /// When the cloud does not answer or no offer fits.
    pub async fn first_plan(&self, spec: &ResolvedSpec) -> Result<Planned, ActError> {
        let nothing = Observed { attempts: Vec::new(), requests: Vec::new(), newest_checkpoint: None };
        let resume_from = spec.inherited().map(|from| from.checkpoint.number);
        let sought = Sought { attempt: AttemptNo::FIRST, resume_from, reason: "the job was submitted", shown: true };
        self.planned(spec, &nothing, &mut MarketMemory::default(), sought).await
    }

    /// Whether the cloud would let us launch a plan. Launches nothing.
    ///
    /// # Errors
    /// When it would not, or does not answer.
    pub async fn permitted(&self, plan: &Plan) -> Result<(), ActError> {
        Ok(self.cloud(plan.offer.cloud)?.permitted(plan).await?)
    }

    async fn plan(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        spec: &ResolvedSpec,
        observed: &Observed,
        (attempt, resume_from, reason): (AttemptNo, Option<CheckpointNo>, &str),
    ) -> Result<Plan, ActError> {
        let planned = self.planned(spec, observed, memory.market(), Sought { attempt, resume_from, reason, shown: false }).await;
        let decided = match &planned {
            Ok(planned) => planned.decided.as_ref(),
            Err(ActError::NotNow(waits)) => Some(&waits.reason),
            Err(_) => None,
        };
        if let Some(reason) = decided {
            self.log_market(dir, memory.market(), reason).await;
        }
        Ok(planned?.plan)
    }

    /// The whole of what the launch call needs, so that it can be repeated byte for byte.
    async fn planned(
        &self,
        spec: &ResolvedSpec,
        observed: &Observed,
        market: &mut MarketMemory,
        Sought { attempt, resume_from, reason, shown }: Sought<'_>,
    ) -> Result<Planned, ActError> {
        let cloud = self.cloud(spec.spec.machine.cloud)?;
        let mut supply = if spec.spec.machine.cloud == Cloud::Local || spec.spec.machine.market == MarketChoice::OnDemand {
            cloud.supply(&spec.spec.machine).await?
        } else {
            // What is asked in parallel costs a launch no time.
            let (supply, pools) = tokio::join!(cloud.supply(&spec.spec.machine), self.read_pools(market));
            pools?;
            supply?
        };
        let (wishes, history) = (Wishes::of(&observed.requests), history(&observed.attempts));
        let kept = machine_to_start(spec.continues.as_ref(), &history);
        if let Some(kept) = kept {
            only(&mut supply, kept);
        }
        let budget_left = relaunch::budget_left(&spec.spec, &history, &wishes);
        let now = self.clock.now();
        let overheads = self.overheads(spec, market, &supply, &history, wishes.more_time).await?;
        let (mut decided, mut outlook, mut prefers, mut waits) = (None, None, None, None);
        let (more_time, nothing) = (wishes.more_time, Supply::default());
        let asked = Ask { spec: &spec.spec, supply: &nothing, history: &history, budget_left, more_time, overheads: &overheads, prefers: None, now };
        if asks(spec) && kept.is_none() {
            let (verdict, seen) = market.choose(&Choosing { spec, ask: Ask { supply: &supply, ..asked }, history: &history });
            match verdict.step {
                AutoStep::Take(chosen) => prefers = Some(chosen),
                AutoStep::Wait => {
                    let not_now = NotNow { reason: verdict.reason.clone(), until: verdict.until };
                    if !shown {
                        return Err(ActError::NotNow(not_now));
                    }
                    (waits, prefers) = (Some(not_now), Some(Market::OnDemand));
                }
                AutoStep::Stay | AutoStep::Move(_) => {}
            }
            (decided, outlook) = (Some(verdict.reason), seen);
        }
        let found = match kept {
            Some(kept) => {
                let placed = placement::place(&Ask { supply: &supply, prefers, ..asked })?;
                Launchable { placed, launch: kept.launch.clone(), unready: Vec::new() }
            }
            None => launchable(&**cloud, &Ask { prefers, ..asked }, &mut supply).await?,
        };
        let Launchable { placed, launch, unready } = found;
        let limits = &spec.spec.limits;
        let boot = spec.trial.map_or(limits.boot, |trial| proof::boot_tag(&trial, limits.boot));
        let tags = Tags { owner: self.owner.clone(), job: spec.job.clone(), attempt, lease: limits.lease, boot, kill_at: placed.kill_at };
        let mut reasons = vec![reason.to_owned()];
        reasons.extend(placed.reasons);
        reasons.extend(decided.as_ref().map(|reason| reason.text.clone()));
        reasons.extend(supply.notes);
        reasons.extend(spec.continues.as_ref().map(|continues| goes_on_from(continues, kept)));
        let client_token = kept.map_or_else(|| self.client_token(spec, attempt), |kept| kept.client_token.clone());
        let plan = Plan {
            format: RECORD_FORMAT,
            job: spec.job.clone(),
            attempt,
            created: now,
            controller: self.name.clone(),
            offer: placed.offer,
            reasons,
            rejected: placed.rejected,
            bid: placed.bid,
            launch,
            most_usd: placed.most_usd,
            client_token,
            kill_at: placed.kill_at,
            lease: limits.lease,
            boot: limits.boot,
            resume_from,
            launch_by: None,
            starts: spec.continues.as_ref().zip(kept).map(|(continues, kept)| continues.starts(kept)),
            tags: tags.to_map(),
        };
        Ok(Planned {
            plan,
            fallbacks: placed.fallbacks,
            ranking: placed.ranking,
            quotas: supply.quotas,
            refused: supply.refused,
            unready,
            decided,
            outlook,
            waits,
        })
    }

    /// The script of the machine's first boot, and the agent that it fetches; where the plan says how to launch.
    pub(super) async fn write_user_data(&self, spec: &ResolvedSpec, plan: &mut Plan) -> Result<(), ActError> {
        if let (Some(trial), Some(launch)) = (&spec.trial, &mut plan.launch) {
            launch.user_data = bootstrap::of_trial(trial, plan.boot);
            return Ok(());
        }
        let (Some(launch), Some(shipper)) = (&mut plan.launch, &self.shipper) else { return Ok(()) };
        // A kept machine has its agent, and boots with the units that it has.
        if plan.starts.is_some() {
            return Ok(());
        }
        let image = launch.image_name.as_deref().unwrap_or(&launch.image);
        let first = shipper.user_data(&*self.store, plan.offer.arch, &plan.offer.region, image, plan.boot).await?;
        (launch.user_data, plan.launch_by) = (first.user_data, Some(first.launch_by));
        Ok(())
    }

    /// The same for every controller of this job root, and for nothing else: even two plans would be one machine.
    fn client_token(&self, spec: &ResolvedSpec, attempt: AttemptNo) -> String {
        let text = format!("{}\n{}\n{}\n{}\n{attempt}", self.owner, self.store.url(), spec.job, spec.created);
        format!("lamp-{}", hex::encode(&Sha256::digest(text.as_bytes())[..16]))
    }
}

/// Of all that is on offer, the machine that is kept: at today's price, where it is still sold.
fn only(supply: &mut Supply, kept: &KeptMachine) {
    supply.offers.retain(|offer| offer.is_same_pool(&kept.offer));
    if supply.offers.is_empty() {
        supply.offers.push(kept.offer.clone());
    }
    supply.offers.truncate(1);
    supply.refused.clear();
}
