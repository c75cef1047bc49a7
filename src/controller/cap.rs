//! What all jobs of the owner cost, asked of the job root before each launch, where the user has set a cap.
//!
//! From that look to the plan, which the next look counts, the processes of a workstation take turns: the drivers of a folder of jobs
//! all wait for the same machine to end. Controllers of two workstations do not see each other in that second: then a cap may be
//! passed by one machine of each. What must never live here: whether a machine may be launched (`policy::cap`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use tracing::{debug, info, warn};

use super::drive::Controller;
use super::memory::JobMemory;
use crate::instance::OWNER_TAG;
use crate::job::{JobId, Plan, RECORD_FORMAT, Reason, Waiting};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::market::UsdPerHour;
use crate::policy::cap::{self, Caps, DAY, Spell, Spending};
use crate::ports::{Turn, Turns, chain};

/// Between two looks at whether a cap still holds. Machines end in minutes; shorter reads every job of the root for nothing.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// Jobs that are read at once.
const READS_IN_FLIGHT: usize = 16;

/// Nobody's turn takes so long but that of a process that hangs, or of a job root that does not answer; then the cap is looked at again
/// at the next tick.
const TURN_MAX: Duration = Duration::from_secs(30);

/// Who may launch just now: one of the jobs that this controller drives, and one of the processes of this workstation.
#[derive(Default)]
pub struct Launching {
    pub here: tokio::sync::Mutex<()>,
    turns: Option<Arc<dyn Turns>>,
}

/// Of jobs that have ended nothing changes any more: they are read once.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    ended: BTreeMap<JobId, Vec<Spell>>,
    /// Those that ended longer ago than a day, as far as the job root says; read once, for nothing is ever taken out.
    over: Option<BTreeSet<JobId>>,
    /// The same, found out since.
    found: BTreeSet<JobId>,
}

/// What was read of one job.
enum Account {
    /// It ended longer ago than a day: nothing of it counts, and nothing ever will.
    Over,
    Ended(Vec<Spell>),
    Open(Vec<Spell>),
}

/// A launch that a cap holds back.
#[derive(Clone, Debug)]
pub struct HeldBack {
    /// On the steady clock.
    pub until: Duration,
    pub said: String,
}

impl Controller {
    /// Checks these before each launch.
    #[must_use]
    pub fn capped(mut self, caps: Caps) -> Self {
        self.caps = caps;
        self
    }

    /// Takes turns with these before a launch that a cap may hold back.
    #[must_use]
    pub fn taking_turns(mut self, turns: Arc<dyn Turns>) -> Self {
        self.launching.turns = Some(turns);
        self
    }

    /// `None`: it is another process's turn.
    pub(super) async fn turn_to_launch(&self, plan: &Plan) -> Option<Option<Turn>> {
        match &self.launching.turns {
            Some(turns) if self.is_capped(plan) => turns.take(TURN_MAX).await.map(Some),
            _ => Some(None),
        }
    }

    fn is_capped(&self, plan: &Plan) -> bool {
        !self.caps.are_none() && plan.offer.hourly_at_most(plan.bid) > UsdPerHour::ZERO
    }

    /// What all jobs of this owner cost now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn spending(&self) -> Result<Spending, JobDirError> {
        let now = self.clock.now();
        let mut ledger = self.ledger().clone();
        let (jobs, over) = tokio::join!(jobdir::jobs(self.store.as_ref()), self.over(ledger.over.take()));
        let counts = |job: &JobId| !over.contains(job) && !ledger.found.contains(job);
        let read = stream::iter(jobs?.into_iter().filter(counts)).map(|job| {
            let known = ledger.ended.get(&job).cloned();
            async move {
                match known {
                    Some(spells) => Ok((job, Account::Ended(spells))),
                    None => self.account(&job, now).await.map(|account| (job, account)),
                }
            }
        });
        let read: Vec<(JobId, Account)> = read.buffered(READS_IN_FLIGHT).try_collect().await?;
        let (mut all, mut ended, mut found) = (Vec::new(), BTreeMap::new(), ledger.found);
        for (job, account) in read {
            match account {
                Account::Over => drop(found.insert(job)),
                Account::Open(spells) => all.extend(spells),
                Account::Ended(spells) => {
                    all.extend(spells.iter().copied());
                    ended.insert(job, spells);
                }
            }
        }
        *self.ledger() = Ledger { ended, over: Some(over), found };
        Ok(cap::spending(&all, now))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics while holding it: it is only cloned and replaced")
    }

    /// What is known already, or what the job root says. What it does not say is read job by job.
    async fn over(&self, known: Option<BTreeSet<JobId>>) -> BTreeSet<JobId> {
        if let Some(known) = known {
            return known;
        }
        jobdir::jobs_over(self.store.as_ref()).await.unwrap_or_else(|error| {
            debug!("every job is read: {}", chain(&error));
            BTreeSet::new()
        })
    }

    /// Leaves word of the jobs of which nothing counts any more, for the next process: ten thousand of them are a minute of
    /// reading before its launch. Only who launches writes; a few are sooner read than written.
    pub(super) async fn tell_jobs_over(&self) {
        let mut all = {
            let ledger = self.ledger();
            if ledger.found.len() < READS_IN_FLIGHT {
                return;
            }
            ledger.over.iter().flatten().chain(&ledger.found).cloned().collect::<BTreeSet<JobId>>()
        };
        match jobdir::jobs_over(self.store.as_ref()).await {
            // Another process may have found others meanwhile.
            Ok(known) => all.extend(known),
            // A newer version's is not read, and not written over either.
            Err(error) => return debug!("what is known of jobs that are over stays as it is: {}", chain(&error)),
        }
        match jobdir::put_jobs_over(self.store.as_ref(), all.clone()).await {
            Ok(()) => {
                let mut ledger = self.ledger();
                (ledger.over, ledger.found) = (Some(all), BTreeSet::new());
            }
            Err(error) => debug!("they are read again by the next process: {}", chain(&error)),
        }
    }

    /// The attempts of one job, and whether anything of it may change.
    async fn account(&self, job: &JobId, now: Timestamp) -> Result<Account, JobDirError> {
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        let receipt = jobdir::unless_damaged(dir.receipt().await)?;
        let day_ago = now.saturating_sub(DAY).unwrap_or(Timestamp::MIN);
        if receipt.as_ref().is_some_and(|receipt| receipt.ended < day_ago) {
            return Ok(Account::Over);
        }
        let mut spells = Vec::new();
        for number in dir.attempts().await? {
            // A record that nobody can read must not stop every other job.
            let Some(plan) = jobdir::unless_damaged(dir.plan(number).await)? else { continue };
            if plan.tags.get(OWNER_TAG).is_some_and(|owner| *owner != self.owner) {
                continue;
            }
            let settled = jobdir::unless_damaged(dir.settled(number).await)?;
            let from = settled.as_ref().and_then(|settled| settled.billed_from).unwrap_or(plan.created);
            let ended = settled.map(|settled| (settled.billed_to.unwrap_or(from), settled.usd));
            let (hourly, at_most) = (plan.offer.hourly(), plan.offer.hourly_at_most(plan.bid));
            spells.push(Spell { hourly, at_most, from, ended });
        }
        Ok(if receipt.is_some() { Account::Ended(spells) } else { Account::Open(spells) })
    }

    /// Why this plan may not be launched now; `None`: it may.
    ///
    /// # Errors
    /// When the store does not answer: what is not known is not spent.
    pub async fn cap_on(&self, plan: &Plan) -> Result<Option<Reason>, JobDirError> {
        if !self.is_capped(plan) {
            return Ok(None);
        }
        Ok(cap::judge(&self.caps, &self.spending().await?, plan.offer.hourly_at_most(plan.bid), self.clock.now()))
    }

    /// Why this plan could not even be launched if nothing else ran and nothing had been spent; `None`: it could.
    pub fn cap_forbids(&self, plan: &Plan) -> Option<Reason> {
        cap::never(&self.caps, plan.offer.hourly_at_most(plan.bid), self.clock.now())
    }

    /// Whether a launch that a cap held back need not be tried yet.
    pub(super) fn is_held_back(&self, memory: &JobMemory) -> bool {
        memory.held_back.as_ref().is_some_and(|held| self.clock.mono() < held.until)
    }

    /// Whether a cap holds this plan back; then it is recorded why.
    pub(super) async fn hold_back(&self, dir: &JobDir, memory: &mut JobMemory, plan: &Plan) -> Result<bool, JobDirError> {
        let reason = self.cap_on(plan).await?;
        self.tell_jobs_over().await;
        let held = reason.is_some();
        match reason {
            Some(reason) => self.wait_for(dir, memory, reason, None, LOOK).await,
            None => memory.held_back = None,
        }
        Ok(held)
    }

    /// Records why a job waits, once for each sentence.
    pub(super) async fn wait_for(&self, dir: &JobDir, memory: &mut JobMemory, reason: Reason, until: Option<Timestamp>, look: Duration) {
        let said = memory.held_back.take().map(|held| held.said);
        if said.as_ref() != Some(&reason.text) {
            info!(job = %dir.job(), "not launched: {}", reason.text);
            let waiting =
                Waiting { format: RECORD_FORMAT, at: reason.at, by: self.name.clone(), why: reason.text.clone(), until, due: None, seen: None };
            if let Err(error) = dir.put_waiting(&waiting).await {
                warn!(job = %dir.job(), "cannot record why it waits: {}", chain(&error));
            }
        }
        memory.held_back = Some(HeldBack { until: self.clock.mono() + look, said: reason.text });
    }
}
