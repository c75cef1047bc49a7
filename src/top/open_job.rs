//! All records of one job that its screen shows.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::app::analysis::effective_load::EffectiveLoad;
use crate::app::analysis::sample_cache::{AttemptPlot, SampleCache};
use crate::app::analysis::startup_timeline::{StartupFacts, StartupTimeline, startup_timelines};
use crate::app::gang::gang_rows::with_ranks;
use crate::app::log_tail::LogTail;
use crate::app::overview::driven_here::seen_from_here;
use crate::app::overview::gang_view::GangView;
use crate::app::overview::switch_proof::SwitchProofs;
use crate::app::overview::usage_trend::UsageTrends;
use crate::app::text::newest_state;
use crate::app::view::job_summary::Summary;
use crate::app::view::timeline::{self, Explained};
use crate::app::{Fault, record_errors};
use crate::instance::Status;
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, unless_damaged};
use crate::wire::{ClockHandle, StoreHandle, Workstation};

/// Lines of the end of the log.
const LOG_LINES: usize = 1000;

/// New samples come about once a minute.
const SAMPLES_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct OpenJob {
    pub job: String,
    pub at: Timestamp,
    pub summary: Option<Summary>,
    pub explained: Explained,
    /// The plots and the log show this attempt.
    pub attempt: AttemptNo,
    pub plot: Arc<AttemptPlot>,
    pub startups: Vec<StartupTimeline>,
    /// Whether its machine is proven to end alone.
    pub proof: Option<String>,
    /// The newest heartbeat of an unfinished job.
    pub status: Option<Status>,
    pub log: Vec<String>,
    /// `None`: the job has one machine.
    pub gang: Option<GangView>,
}

impl OpenJob {
    /// # Errors
    /// Fails when the job root is unreachable, or there is no such job.
    pub async fn read(
        store: &StoreHandle,
        workstation: &Workstation,
        (samples, trends, proofs): (&SampleCache, &UsageTrends, &SwitchProofs),
        job: &str,
        attempt: Option<u32>,
        clock: &ClockHandle,
    ) -> Result<OpenJob, Fault> {
        let (fault, now) = (|error| record_errors::record_fault(&error), clock.now());
        let id = job.parse().map_err(|_| {
            Fault::new(crate::app::ExitCode::USAGE, format!("`{job}` is not the id of a job"))
        })?;
        let dir = JobDir::new(Arc::clone(store), id);
        let summary = Summary::read(&dir, now).await.map_err(fault)?;
        let explained = timeline::of(&dir, summary.as_ref()).await.map_err(fault)?;
        let summary = match summary {
            Some(summary) => Some(with_ranks(summary, &dir, now).await.map_err(fault)?),
            None => None,
        };
        let summary = summary.map(|summary| seen_from_here(workstation, &mut None, summary));
        let has = |number: &u32| explained.attempts.iter().any(|it| it.attempt.number() == *number);
        let newest = explained.attempts.last().map(|it| it.attempt);
        let attempt =
            attempt.filter(has).map(AttemptNo::new).or(newest).unwrap_or(AttemptNo::FIRST);
        let plot = samples.read(&dir, attempt, now, SAMPLES_EVERY).await.map_err(fault)?;
        let is_open = summary.as_ref().is_some_and(|summary| !summary.state.is_final());
        let status = match newest.filter(|_| is_open) {
            Some(newest) => unless_damaged(dir.status(newest).await).map_err(fault)?,
            None => None,
        };
        let end = LogTail::last(&dir, attempt, LOG_LINES).await.map_err(fault)?;
        let text = String::from_utf8_lossy(&end.bytes);
        let log = text.split_terminator('\n').map(|line| newest_state(line).to_owned()).collect();
        let gang = GangView::read(&dir, trends, store, clock).await.map_err(fault)?;
        Ok(OpenJob {
            gang,
            proof: proofs.text(&explained, store, clock).await,
            job: job.to_owned(),
            at: now,
            startups: startup_timelines(&StartupFacts::of(&explained, status.as_ref()), &[], now),
            summary,
            explained,
            attempt,
            plot,
            status,
            log,
        })
    }

    /// How busy the GPUs are beside the power that they draw.
    pub fn load(&self) -> Option<EffectiveLoad> {
        EffectiveLoad::of(&self.plot.load)
    }

    pub fn gpus(&self) -> u32 {
        let shown = self.explained.attempts.iter().find(|it| it.attempt == self.attempt);
        shown.and_then(|attempt| attempt.plan.as_ref()).map_or(1, |plan| plan.offer.gpus)
    }
}
