//! What all jobs of the owner cost, asked of the job root before each launch, where the user has set a cap.
//!
//! Two controllers that launch in the same second do not see each other: then a cap may be passed by one machine. What must
//! never live here: whether a machine may be launched (`policy::cap`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use tracing::{info, warn};

use super::drive::Controller;
use super::memory::JobMemory;
use crate::instance::OWNER_TAG;
use crate::job::{JobId, Plan, RECORD_FORMAT, Reason, Waiting};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::market::UsdPerHour;
use crate::policy::cap::{self, Caps, DAY, Spell, Spending};
use crate::ports::chain;

/// Between two looks at whether a cap still holds. Machines end in minutes; shorter reads every job of the root for nothing.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// Jobs that are read at once.
const READS_IN_FLIGHT: usize = 16;

/// Of jobs that have ended nothing changes any more: they are read once.
pub type Ledger = BTreeMap<JobId, Vec<Spell>>;

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

    /// What all jobs of this owner cost now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn spending(&self) -> Result<Spending, JobDirError> {
        let now = self.clock.now();
        let ledger = self.ledger.lock().expect("nobody panics while holding it: it is only cloned and replaced").clone();
        let jobs = jobdir::jobs(self.store.as_ref()).await?;
        let read = stream::iter(jobs).map(|job| {
            let known = ledger.get(&job).cloned();
            async move {
                match known {
                    Some(spells) => Ok((job, spells, true)),
                    None => self.spells(&job, now).await.map(|(spells, ended)| (job, spells, ended)),
                }
            }
        });
        let read: Vec<(JobId, Vec<Spell>, bool)> = read.buffered(READS_IN_FLIGHT).try_collect().await?;
        let all: Vec<Spell> = read.iter().flat_map(|(_, spells, _)| spells.iter().copied()).collect();
        let ended = read.into_iter().filter(|(_, _, ended)| *ended).map(|(job, spells, _)| (job, spells)).collect();
        *self.ledger.lock().expect("nobody panics while holding it: it is only cloned and replaced") = ended;
        Ok(cap::spending(&all, now))
    }

    /// The attempts of one job, and whether nothing of it changes any more.
    async fn spells(&self, job: &JobId, now: Timestamp) -> Result<(Vec<Spell>, bool), JobDirError> {
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        let receipt = jobdir::unless_damaged(dir.receipt().await)?;
        let day_ago = now.saturating_sub(DAY).unwrap_or(Timestamp::MIN);
        if receipt.as_ref().is_some_and(|receipt| receipt.ended < day_ago) {
            return Ok((Vec::new(), true));
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
            spells.push(Spell { hourly: plan.offer.hourly(), from, ended });
        }
        Ok((spells, receipt.is_some()))
    }

    /// Why this plan may not be launched now; `None`: it may.
    ///
    /// # Errors
    /// When the store does not answer: what is not known is not spent.
    pub async fn cap_on(&self, plan: &Plan) -> Result<Option<Reason>, JobDirError> {
        if self.caps.are_none() || dearest(plan) <= UsdPerHour::ZERO {
            return Ok(None);
        }
        Ok(cap::judge(&self.caps, &self.spending().await?, dearest(plan), self.clock.now()))
    }

    /// Why this plan could not even be launched if nothing else ran and nothing had been spent; `None`: it could.
    pub fn cap_forbids(&self, plan: &Plan) -> Option<Reason> {
        cap::never(&self.caps, dearest(plan), self.clock.now())
    }

    /// Whether a launch that a cap held back need not be tried yet.
    pub(super) fn is_held_back(&self, memory: &JobMemory) -> bool {
        memory.held_back.as_ref().is_some_and(|held| self.clock.mono() < held.until)
    }

    /// Whether a cap holds this plan back; then it is recorded why.
    pub(super) async fn hold_back(&self, dir: &JobDir, memory: &mut JobMemory, plan: &Plan) -> Result<bool, JobDirError> {
        let reason = self.cap_on(plan).await?;
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
            let waiting = Waiting { format: RECORD_FORMAT, at: reason.at, by: self.name.clone(), why: reason.text.clone(), until };
            if let Err(error) = dir.put_waiting(&waiting).await {
                warn!(job = %dir.job(), "cannot record why it waits: {}", chain(&error));
            }
        }
        memory.held_back = Some(HeldBack { until: self.clock.mono() + look, said: reason.text });
    }
}

/// A spot price may rise to the bid.
fn dearest(plan: &Plan) -> UsdPerHour {
    let price = plan.bid.map_or(plan.offer.price, |bid| bid.max(plan.offer.price));
    UsdPerHour::new(price.per_hour() + plan.offer.extras.per_hour())
}
