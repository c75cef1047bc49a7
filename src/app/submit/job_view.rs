//! Jobs as the training service named and described them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::view::job_summary::Summary;
use crate::app::{ExitCode, Fault, find_job, record_errors};
use crate::job::{ClusterJob, JOB_DIR_URL, JobId, JobState, Spec};
use crate::jobdir::{self, JobDir};
use crate::market::{Span, Usd};
use crate::wire::Store;

/// One job, by the name that the user gave it.
#[derive(Clone, Debug)]
pub struct JobView {
    /// The name of a submitted job is unique. Other jobs have their id.
    pub job_id: String,
    pub job: JobId,
    pub state: TrainingState,
    pub created: Timestamp,
    /// Read only for a single job.
    pub details: Option<JobDetails>,
}

/// The details that a description has beside the state.
#[derive(Clone, Debug)]
pub struct JobDetails {
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub error: Option<String>,
    pub usd: Usd,
    pub labels: BTreeMap<String, String>,
    /// Module and arguments of a submitted job.
    pub program: Option<ClusterJob>,
    pub job_dir: Option<String>,
    pub run_max: Option<Span>,
    pub region: Option<String>,
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
            details: None,
        }
    }

    /// In the words of the training service. Unknown fields are left out.
    pub fn document(&self) -> Value {
        let mut document = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            value.map(|value| document.insert(key.to_owned(), value));
        };
        put("jobId", Some(json!(self.job_id)));
        put("state", Some(json!(self.state.word())));
        put("createTime", Some(json!(self.created)));
        if let Some(details) = &self.details {
            put("startTime", details.started.map(|at| json!(at)));
            put("endTime", details.ended.map(|at| json!(at)));
            put("errorMessage", details.error.as_ref().map(|text| json!(text)));
            put("labels", (!details.labels.is_empty()).then(|| json!(details.labels)));
            put("trainingInput", Some(details.training_input()));
            put("trainingOutput", Some(json!({ "usd": details.usd })));
        }
        put("lampJob", Some(json!(self.job)));
        Value::Object(document)
    }
}

impl JobDetails {
    fn training_input(&self) -> Value {
        let mut input = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            value.map(|value| input.insert(key.to_owned(), value));
        };
        let program = self.program.as_ref();
        put("pythonModule", program.map(|program| json!(program.job_name)));
        put("args", program.map(|program| json!(program.args)));
        put("jobDir", self.job_dir.as_ref().map(|url| json!(url)));
        put("region", self.region.as_ref().map(|region| json!(region)));
        let secs = self.run_max.map(|most| format!("{}s", most.duration().as_secs()));
        put("scheduling", secs.map(|secs| json!({ "maxRunningTime": secs })));
        Value::Object(input)
    }

    fn of(summary: &Summary, spec: &Spec) -> JobDetails {
        let program = spec
            .env
            .get("TF_CONFIG")
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            .and_then(|config| serde_json::from_value(config.get("job")?.clone()).ok());
        let is_at_work = !matches!(
            summary.state,
            JobState::Submitted | JobState::Provisioning | JobState::Preparing
        );
        let is_failed = summary.state == JobState::Failed;
        JobDetails {
            started: is_at_work.then_some(summary.started),
            ended: summary.ended,
            error: summary.reason.clone().filter(|_| is_failed),
            usd: summary.usd,
            labels: spec.tags.clone(),
            program,
            job_dir: spec.env.get(JOB_DIR_URL).cloned(),
            run_max: spec.limits.max_runtime,
            region: spec.machine.regions.first().cloned(),
        }
    }
}

/// One job with its details.
///
/// # Errors
/// Fails when there is none, or the job root is unreachable.
pub async fn read(store: &Store, name: &str, now: Timestamp) -> Result<JobView, Fault> {
    let dir = find_job::find(store, Some(name)).await?;
    let fault = |error| record_errors::record_fault(&error);
    let summary = Summary::read(&dir, now).await.map_err(fault)?;
    let spec = dir.spec().await.map_err(fault)?;
    let (Some(summary), Some(spec)) = (summary, spec) else {
        let what = format!("job `{}` was never made to the end", dir.job());
        return Err(Fault::new(ExitCode::NOT_FOUND, what)
            .meaning("nothing of it runs or bills")
            .hint("`lamp status` lists the jobs"));
    };
    let details = Some(JobDetails::of(&summary, &spec.spec));
    Ok(JobView { details, ..JobView::of(dir.job(), &summary) })
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
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for view in &views {
        *named.entry(view.job_id.clone()).or_default() += 1;
    }
    for view in &mut views {
        if named[&view.job_id] > 1 {
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
