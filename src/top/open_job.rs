//! All records of one job that its screen shows.

use std::sync::Arc;

use jiff::Timestamp;

use crate::app::log_tail::LogTail;
use crate::app::overview::driven_here::seen_from_here;
use crate::app::text::newest_state;
use crate::app::view::job_summary::Summary;
use crate::app::view::plot_data::PlotData;
use crate::app::view::timeline::{self, Explained};
use crate::app::{Fault, record_errors};
use crate::job::AttemptNo;
use crate::jobdir::JobDir;
use crate::wire::{Store, Workstation};

/// Lines of the end of the log.
const LOG_LINES: usize = 200;

/// The widest terminal in use has fewer columns.
const POINTS: usize = 400;

#[derive(Debug)]
pub struct OpenJob {
    pub job: String,
    pub at: Timestamp,
    pub summary: Option<Summary>,
    pub explained: Explained,
    /// The plots and the log show this attempt.
    pub attempt: AttemptNo,
    pub plots: PlotData,
    pub log: Vec<String>,
}

impl OpenJob {
    /// # Errors
    /// Fails when the job root is unreachable, or there is no such job.
    pub async fn read(
        store: &Store,
        workstation: &Workstation,
        job: &str,
        attempt: Option<u32>,
        now: Timestamp,
    ) -> Result<OpenJob, Fault> {
        let fault = |error| record_errors::record_fault(&error);
        let id = job.parse().map_err(|_| {
            Fault::new(crate::app::ExitCode::USAGE, format!("`{job}` is not the id of a job"))
        })?;
        let dir = JobDir::new(Arc::clone(store), id);
        let summary = Summary::read(&dir, now).await.map_err(fault)?;
        let explained = timeline::of(&dir, summary.as_ref()).await.map_err(fault)?;
        let summary = summary.map(|summary| seen_from_here(workstation, &mut None, summary));
        let has = |number: &u32| explained.attempts.iter().any(|it| it.attempt.number() == *number);
        let newest = explained.attempts.last().map(|it| it.attempt);
        let attempt =
            attempt.filter(has).map(AttemptNo::new).or(newest).unwrap_or(AttemptNo::FIRST);
        let plots = PlotData::read(&dir, attempt, POINTS).await.map_err(fault)?;
        let (bytes, _) = LogTail::last(&dir, attempt, LOG_LINES).await.map_err(fault)?;
        let text = String::from_utf8_lossy(&bytes);
        let log = text.split_terminator('\n').map(|line| newest_state(line).to_owned()).collect();
        Ok(OpenJob { job: job.to_owned(), at: now, summary, explained, attempt, plots, log })
    }
}
