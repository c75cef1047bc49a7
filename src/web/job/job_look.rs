//! One look at the records of a job, which all open pages of this job share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::app::analysis::earlier_startups::{ComparedJob, EarlierStartups};
use crate::app::analysis::lost_money::{LostMoney, lost_money};
use crate::app::analysis::startup_timeline::{StartupFacts, StartupTimeline, startup_timelines};
use crate::app::gang::gang_rows::with_ranks;
use crate::app::overview::driven_here::seen_from_here;
use crate::app::overview::gang_view::GangView;
use crate::app::overview::switch_proof::SwitchProofs;
use crate::app::overview::usage_trend::UsageTrends;
use crate::app::view::job_summary::Summary;
use crate::app::view::next_end::Countdown;
use crate::app::view::timeline::{self, Explained};
use crate::app::{Fault, find_job, record_errors};
use crate::instance::Status;
use crate::job::{Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, unless_damaged};
use crate::wire::{ClockHandle, StoreHandle, Workstation};

/// Jobs whose last look is kept.
const JOBS_MAX: usize = 32;

/// All records of a job that its page shows, but for its samples and its log.
pub struct JobLook {
    pub dir: JobDir,
    pub summary: Option<Summary>,
    pub explained: Explained,
    pub receipt: Option<Receipt>,
    pub spec: Option<ResolvedSpec>,
    pub startups: Vec<StartupTimeline>,
    pub lost: LostMoney,
    /// Whether its machine is proven to end alone.
    pub proof: Option<String>,
    /// `None`: the job has one machine.
    pub gang: Option<GangView>,
    /// The newest heartbeat of a job that has not ended.
    pub status: Option<Status>,
    pub at: Timestamp,
    /// The same by the monotonic clock: the wall clock may jump.
    read: Duration,
}

/// Where the records are.
#[derive(Clone, Copy)]
pub struct LookSource<'a> {
    pub store: &'a StoreHandle,
    pub workstation: &'a Workstation,
    pub clock: &'a ClockHandle,
    pub trends: &'a UsageTrends,
}

impl JobLook {
    /// # Errors
    /// When there is no such job, or its records cannot be read.
    pub async fn read(
        source: LookSource<'_>,
        job: &str,
        (earlier, proofs): (&EarlierStartups, &SwitchProofs),
    ) -> Result<JobLook, Fault> {
        let dir = find_job::find(source.store, Some(job)).await?;
        let (now, read) = (source.clock.now(), source.clock.mono());
        let fault = |error| record_errors::record_fault(&error);
        let (summary, receipt) = Summary::with_receipt(&dir, now).await.map_err(fault)?;
        let explained = timeline::of(&dir, summary.as_ref()).await.map_err(fault)?;
        let spec = dir.spec().await.map_err(fault)?;
        let status = match explained.attempts.last().filter(|_| receipt.is_none()) {
            Some(last) => unless_damaged(dir.status(last.attempt).await).map_err(fault)?,
            None => None,
        };
        let summary = match summary {
            Some(summary) => Some(with_ranks(summary, &dir, now).await.map_err(fault)?),
            None => None,
        };
        let summary = summary.map(|summary| seen_from_here(source.workstation, &mut None, summary));
        let plan = explained.attempts.last().and_then(|attempt| attempt.plan.as_ref());
        let earlier = match spec.as_ref().zip(plan) {
            Some((spec, plan)) => {
                let compared = ComparedJob {
                    id: dir.job(),
                    name: summary.as_ref().map_or("", |summary| &summary.name),
                    instance_type: &plan.offer.instance_type,
                    created: spec.created,
                };
                earlier.of(source.store, &compared, now).await
            }
            None => Vec::new(),
        };
        let gang = GangView::read(&dir, source.trends, source.store, source.clock);
        let gang = gang.await.map_err(fault)?;
        Ok(JobLook {
            gang,
            proof: proofs.text(&explained, source.store, source.clock).await,
            lost: lost_money(&explained.attempts, status.as_ref()),
            startups: startup_timelines(
                &StartupFacts::of(&explained, status.as_ref()),
                &earlier,
                now,
            ),
            dir,
            summary,
            explained,
            receipt,
            spec,
            status,
            at: now,
            read,
        })
    }

    /// Each end of the job, the nearest first.
    pub fn ends(&self) -> &[Countdown] {
        self.summary.as_ref().map_or(&[], |summary| &summary.ends)
    }
}

/// The last look at each job.
#[derive(Default)]
pub struct JobLooks {
    kept: Mutex<BTreeMap<String, Arc<KeptLook>>>,
    earlier: EarlierStartups,
    proofs: SwitchProofs,
}

type KeptLook = tokio::sync::Mutex<Option<Arc<JobLook>>>;

impl JobLooks {
    /// A look that is as old as `age` at most. Pages that ask at once wait for one read.
    ///
    /// # Errors
    /// As [`JobLook::read`].
    pub async fn of(
        &self,
        source: LookSource<'_>,
        job: &str,
        age: Duration,
    ) -> Result<Arc<JobLook>, Fault> {
        let now = source.clock.mono();
        let kept = self.kept(job);
        let mut kept = kept.lock().await;
        let is_new = |look: &Arc<JobLook>| look.read > now || now - look.read < age;
        if let Some(look) = kept.as_ref().filter(|look| is_new(look)) {
            return Ok(Arc::clone(look));
        }
        let look = Arc::new(JobLook::read(source, job, (&self.earlier, &self.proofs)).await?);
        *kept = Some(Arc::clone(&look));
        Ok(look)
    }

    fn kept(&self, job: &str) -> Arc<KeptLook> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= JOBS_MAX && !all.contains_key(job) {
            all.clear();
        }
        Arc::clone(all.entry(job.to_owned()).or_default())
    }
}
