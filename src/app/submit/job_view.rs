//! Jobs as the training service named and described them.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;

use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::view::job_summary::Summary;
use crate::app::{Fault, record_errors};
use crate::job::{JobId, JobState};
use crate::jobdir::{self, JobDir};
use crate::wire::Store;

/// One job, by the name that the user gave it.
#[derive(Clone, Debug)]
pub struct JobView {
    /// The name of a submitted job is unique. Other jobs have their id.
    pub job_id: String,
    pub job: JobId,
    pub state: TrainingState,
    pub created: Timestamp,
}

/// The words of the training service for the state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingState {
    Queued,
    Preparing,
    Running,
    Succeeded,
    Failed,
    Cancelling,
    Cancelled,
}

impl TrainingState {
    pub fn word(self) -> &'static str {
        match self {
            TrainingState::Queued => "QUEUED",
            TrainingState::Preparing => "PREPARING",
            TrainingState::Running => "RUNNING",
            TrainingState::Succeeded => "SUCCEEDED",
            TrainingState::Failed => "FAILED",
            TrainingState::Cancelling => "CANCELLING",
            TrainingState::Cancelled => "CANCELLED",
        }
    }

    /// `is_end_asked`: a user has asked for the end, and the job still runs.
    pub fn of(state: JobState, is_end_asked: bool) -> TrainingState {
        match state {
            JobState::Succeeded => TrainingState::Succeeded,
            JobState::Failed => TrainingState::Failed,
            JobState::Stopped | JobState::Cancelled => TrainingState::Cancelled,
            _ if is_end_asked => TrainingState::Cancelling,
            JobState::Submitted | JobState::Interrupted => TrainingState::Queued,
            JobState::Provisioning | JobState::Preparing => TrainingState::Preparing,
            JobState::Running | JobState::Draining | JobState::Held | JobState::Terminating => {
                TrainingState::Running
            }
        }
    }
}

impl JobView {
    fn of(job: &JobId, summary: &Summary) -> JobView {
        JobView {
            job_id: summary.name.clone(),
            job: job.clone(),
            state: TrainingState::of(summary.state, summary.end_asked.is_some()),
            created: summary.started,
        }
    }
}

/// All jobs of the job root, the newest first. Jobs of the same name have their ids.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn list(store: &Store, now: Timestamp) -> Result<Vec<JobView>, Fault> {
    let jobs = jobdir::jobs(store.as_ref())
        .await
        .map_err(|error| record_errors::record_fault(&error.into()))?;
    let read = stream::iter(jobs).map(|job| async move {
        let dir = JobDir::new(Arc::clone(store), job);
        // One unreadable job must not hide the others; `lamp status` says what is wrong with it.
        let summary = Summary::read(&dir, now).await.ok().flatten()?;
        Some(JobView::of(dir.job(), &summary))
    });
    let mut views: Vec<JobView> =
        read.buffer_unordered(READS_IN_FLIGHT).filter_map(std::future::ready).collect().await;
    views.sort_by(|one, other| (other.created, &other.job).cmp(&(one.created, &one.job)));
    let names: Vec<String> = views.iter().map(|view| view.job_id.clone()).collect();
    for view in &mut views {
        if names.iter().filter(|name| **name == view.job_id).count() > 1 {
            view.job_id = view.job.to_string();
        }
    }
    Ok(views)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_words_of_the_training_service() {
        let cases = [
            (JobState::Submitted, false, "QUEUED"),
            (JobState::Provisioning, false, "PREPARING"),
            (JobState::Running, false, "RUNNING"),
            (JobState::Running, true, "CANCELLING"),
            (JobState::Draining, false, "RUNNING"),
            (JobState::Interrupted, false, "QUEUED"),
            (JobState::Succeeded, true, "SUCCEEDED"),
            (JobState::Stopped, false, "CANCELLED"),
            (JobState::Failed, false, "FAILED"),
        ];
        for (state, asked, word) in cases {
            assert_eq!(TrainingState::of(state, asked).word(), word, "{state:?}");
        }
    }
}
