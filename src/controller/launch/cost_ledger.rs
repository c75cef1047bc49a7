//! The costs of one owner's jobs in one job root, from their records. `spending_cap` compares the
//! sums with a cap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use tracing::debug;

use crate::instance::OWNER_TAG;
use crate::job::{JobId, Plan};
use crate::jobdir::{self, JobDir, JobDirError};
use crate::policy::purchase::spending_cap::{AttemptCost, DAY};
use crate::ports::{Store, chain};

/// Jobs that are read in parallel.
const READS_IN_FLIGHT: usize = 16;

/// The ledger of one job root.
pub struct Ledger {
    store: Arc<dyn Store>,
    owner: String,
    cache: Mutex<LedgerCache>,
}

/// The attempts of all jobs. Ended jobs never change, so they are read once.
#[derive(Clone, Debug, Default)]
struct LedgerCache {
    ended: BTreeMap<JobId, Vec<AttemptCost>>,
    /// The attempts of open jobs at the last read, with later plans; `None`: they were never read.
    open: Option<Vec<AttemptCost>>,
    /// Jobs that ended more than a day ago, from the list in the job root. It is read once, because
    /// entries are never removed.
    over: Option<BTreeSet<JobId>>,
    /// The same, found since that read.
    found: BTreeSet<JobId>,
}

/// The attempts of one job.
enum JobCosts {
    /// It ended more than a day ago: its attempts never count again.
    Over,
    Ended(Vec<AttemptCost>),
    Open(Vec<AttemptCost>),
}

impl Ledger {
    pub fn new(store: Arc<dyn Store>, owner: &str) -> Ledger {
        Ledger { store, owner: owner.to_owned(), cache: Mutex::default() }
    }

    pub fn url(&self) -> String {
        self.store.url()
    }

    /// Every attempt that counts now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn read(&self, now: Timestamp) -> Result<Vec<AttemptCost>, JobDirError> {
        let mut kept = self.cache().clone();
        let (jobs, over) =
            tokio::join!(jobdir::jobs(self.store.as_ref()), self.over(kept.over.take()));
        let counts = |job: &JobId| !over.contains(job) && !kept.found.contains(job);
        let read = stream::iter(jobs?.into_iter().filter(counts)).map(|job| {
            let known = kept.ended.get(&job).cloned();
            async move {
                match known {
                    Some(spells) => Ok((job, JobCosts::Ended(spells))),
                    None => self.account(&job, now).await.map(|account| (job, account)),
                }
            }
        });
        let read: Vec<(JobId, JobCosts)> = read.buffered(READS_IN_FLIGHT).try_collect().await?;
        let (mut open, mut ended, mut found) = (Vec::new(), BTreeMap::new(), kept.found);
        for (job, account) in read {
            match account {
                JobCosts::Over => drop(found.insert(job)),
                JobCosts::Open(spells) => open.extend(spells),
                JobCosts::Ended(spells) => drop(ended.insert(job, spells)),
            }
        }
        let kept = LedgerCache { ended, open: Some(open), over: Some(over), found };
        let all = kept.spells().expect("just read");
        *self.cache() = kept;
        Ok(all)
    }

    /// The attempts at the last read, with later plans: at least all that this process launched.
    /// `None`: there was no read.
    pub fn last_known(&self) -> Option<Vec<AttemptCost>> {
        self.cache().spells()
    }

    /// Adds a plan that was written since the last read.
    pub fn planned(&self, plan: &Plan) {
        if let Some(open) = &mut self.cache().open {
            open.push(spell(plan));
        }
    }

    fn cache(&self) -> MutexGuard<'_, LedgerCache> {
        self.cache.lock().expect("the holder only copies, replaces or adds to it")
    }

    /// The known list, or the one in the job root. Jobs that are missing in it are read one by one.
    async fn over(&self, known: Option<BTreeSet<JobId>>) -> BTreeSet<JobId> {
        if let Some(known) = known {
            return known;
        }
        jobdir::jobs_over(self.store.as_ref()).await.unwrap_or_else(|error| {
            debug!("every job is read: {}", chain(&error));
            BTreeSet::new()
        })
    }

    /// Lists the jobs that no longer count for the next process: reading ten thousand jobs takes a
    /// minute before its launch. Only a process that launches writes the list. A few jobs are
    /// faster to read than to list.
    pub async fn tell_jobs_over(&self) {
        let mut all = {
            let kept = self.cache();
            if kept.found.len() < READS_IN_FLIGHT {
                return;
            }
            kept.over.iter().flatten().chain(&kept.found).cloned().collect::<BTreeSet<JobId>>()
        };
        match jobdir::jobs_over(self.store.as_ref()).await {
            // Another process may have found more.
            Ok(known) => all.extend(known),
            // A newer version's list is left as it is.
            Err(error) => {
                return debug!(
                    "what is known of jobs that are over stays as it is: {}",
                    chain(&error)
                );
            }
        }
        match jobdir::put_jobs_over(self.store.as_ref(), all.clone()).await {
            Ok(()) => {
                let mut kept = self.cache();
                (kept.over, kept.found) = (Some(all), BTreeSet::new());
            }
            Err(error) => debug!("they are read again by the next process: {}", chain(&error)),
        }
    }

    /// The attempts of one job, and whether they may still change.
    async fn account(&self, job: &JobId, now: Timestamp) -> Result<JobCosts, JobDirError> {
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        let receipt = jobdir::unless_damaged(dir.receipt().await)?;
        let day_ago = now.saturating_sub(DAY).unwrap_or(Timestamp::MIN);
        if receipt.as_ref().is_some_and(|receipt| receipt.ended < day_ago) {
            return Ok(JobCosts::Over);
        }
        let mut spells = Vec::new();
        for number in dir.attempts().await? {
            // An unreadable record must not stop every other job.
            let Some(plan) = jobdir::unless_damaged(dir.plan(number).await)? else { continue };
            if plan.tags.get(OWNER_TAG).is_some_and(|owner| *owner != self.owner) {
                continue;
            }
            let settled = jobdir::unless_damaged(dir.settled(number).await)?;
            let from =
                settled.as_ref().and_then(|settled| settled.billed_from).unwrap_or(plan.created);
            let ended = settled.map(|settled| (settled.billed_to.unwrap_or(from), settled.usd));
            spells.push(AttemptCost { from, ended, ..spell(&plan) });
        }
        Ok(if receipt.is_some() { JobCosts::Ended(spells) } else { JobCosts::Open(spells) })
    }
}

impl LedgerCache {
    fn spells(&self) -> Option<Vec<AttemptCost>> {
        let open = self.open.as_ref()?;
        Some(self.ended.values().flatten().chain(open).copied().collect())
    }
}

/// Until more is known of its machine.
fn spell(plan: &Plan) -> AttemptCost {
    AttemptCost {
        hourly: plan.offer.hourly(),
        at_most: plan.offer.hourly_at_most(plan.bid),
        from: plan.created,
        ended: None,
    }
}
