//! Jobs as the training service named and described them. A tuning is one job there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::search_view::{SearchOutput, find_tuning, search_input, state_of};
use super::training_state::TrainingState;
use crate::app::find_job::READS_IN_FLIGHT;
use crate::app::gang::gang_rows::{fold_gangs, with_ranks};
use crate::app::tune::memory::TuneMemory;
use crate::app::tune::view::TuneView;
use crate::app::view::job_summary::Summary;
use crate::app::{ExitCode, Fault, find_job, record_errors};
use crate::job::{ClusterJob, GangRole, JOB_DIR_URL, JobId, JobState, ResolvedSpec, Spec};
use crate::jobdir::{self, JobDir};
use crate::market::{Span, Usd};
use crate::wire::StoreHandle;

/// One job, by the name that the user gave it.
#[derive(Clone, Debug)]
pub struct JobView {
    /// The name of a submitted job is unique. Other jobs have their id.
    pub job_id: String,
    pub here: ViewedThing,
    pub state: TrainingState,
    pub created: Timestamp,
    /// Read only for a single job.
    pub details: Option<JobDetails>,
}

/// The job or tuning that a view is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViewedThing {
    Job(JobId),
    Tuning(String),
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
    /// Machines of each role beside the first one, if there are several.
    pub workers: u32,
    pub servers: u32,
    /// The trials of a tuning.
    pub search: Option<SearchOutput>,
}

impl JobView {
    fn of(job: &JobId, summary: &Summary) -> JobView {
        JobView {
            job_id: summary.name.clone(),
            here: ViewedThing::Job(job.clone()),
            state: TrainingState::of(summary.state, summary.end_asked.is_some()),
            created: summary.started,
            details: None,
        }
    }

    fn of_tuning(memory: &TuneMemory, view: &TuneView) -> JobView {
        JobView {
            job_id: memory.tuning.spec.name.clone(),
            here: ViewedThing::Tuning(memory.tuning.name.clone()),
            state: state_of(view),
            created: memory.tuning.created,
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
            put("trainingOutput", Some(details.training_output()));
        }
        match &self.here {
            ViewedThing::Job(job) => put("lampJob", Some(json!(job))),
            ViewedThing::Tuning(name) => put("lampTuning", Some(json!(name))),
        };
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
        // As in the service's own documents, a count is a text.
        let count = |count: u32| (count > 0).then(|| json!(count.to_string()));
        put("workerCount", count(self.workers));
        put("parameterServerCount", count(self.servers));
        put("jobDir", self.job_dir.as_ref().map(|url| json!(url)));
        put("region", self.region.as_ref().map(|region| json!(region)));
        let secs = self.run_max.map(|most| format!("{}s", most.duration().as_secs()));
        put("scheduling", secs.map(|secs| json!({ "maxRunningTime": secs })));
        put("hyperparameters", self.search.as_ref().map(|search| search.input.clone()));
        Value::Object(input)
    }

    fn training_output(&self) -> Value {
        let mut output = self.search.as_ref().map_or_else(|| json!({}), SearchOutput::document);
        output["usd"] = json!(self.usd);
        output
    }

    fn of_tuning(memory: &TuneMemory, view: &TuneView) -> JobDetails {
        let spec = &memory.tuning.spec;
        let ends = memory.trials.values().map(|known| known.end.as_ref().map(|end| end.ended));
        let is_over = view.is_over();
        let error = memory.end.as_ref().map(|end| end.reason.clone());
        JobDetails {
            started: memory.trials.values().map(|known| known.trial.decided).min(),
            ended: ends.flatten().max().filter(|_| is_over),
            error: error.filter(|_| state_of(view) == TrainingState::Failed),
            usd: view.usd,
            labels: spec.tags.clone(),
            program: program_of(spec),
            job_dir: spec.env.get(JOB_DIR_URL).cloned(),
            run_max: spec.limits.max_runtime,
            region: spec.machine.regions.first().cloned(),
            workers: role_count(spec, GangRole::Worker),
            servers: role_count(spec, GangRole::Ps),
            search: Some(SearchOutput::of(memory, view, search_input(&memory.tuning.tune))),
        }
    }

    fn of(summary: &Summary, spec: &Spec) -> JobDetails {
        let is_at_work = !matches!(
            summary.state,
            JobState::Submitted | JobState::Provisioning | JobState::Preparing
        );
        let is_failed = matches!(summary.state, JobState::Failed | JobState::Ended);
        JobDetails {
            started: is_at_work.then_some(summary.started),
            ended: summary.ended,
            error: summary.reason.clone().filter(|_| is_failed),
            usd: summary.usd,
            labels: spec.tags.clone(),
            program: program_of(spec),
            job_dir: spec.env.get(JOB_DIR_URL).cloned(),
            run_max: spec.limits.max_runtime,
            region: spec.machine.regions.first().cloned(),
            workers: role_count(spec, GangRole::Worker),
            servers: role_count(spec, GangRole::Ps),
            search: None,
        }
    }
}

fn role_count(spec: &Spec, role: GangRole) -> u32 {
    let roles = spec.gang.iter().flat_map(|gang| &gang.roles);
    roles.filter(|one| one.role == role).map(|one| one.count).sum()
}

fn program_of(spec: &Spec) -> Option<ClusterJob> {
    let config: Value = serde_json::from_str(spec.env.get("TF_CONFIG")?).ok()?;
    serde_json::from_value(config.get("job")?.clone()).ok()
}

/// One job or tuning with its details.
///
/// # Errors
/// Fails when there is none, or the job root is unreachable.
pub async fn read(store: &StoreHandle, name: &str, now: Timestamp) -> Result<JobView, Fault> {
    if let Some(memory) = find_tuning(store, name).await? {
        let view = TuneView::read(&memory, now).await?;
        let details = Some(JobDetails::of_tuning(&memory, &view));
        return Ok(JobView { details, ..JobView::of_tuning(&memory, &view) });
    }
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
    let summary = with_ranks(summary, &dir, now).await.map_err(fault)?;
    let details = Some(JobDetails::of(&summary, &spec.spec));
    Ok(JobView { details, ..JobView::of(dir.job(), &summary) })
}

/// The tunings of the job root, and the jobs of their trials.
async fn list_tunings(
    store: &StoreHandle,
    now: Timestamp,
) -> Result<(Vec<JobView>, BTreeSet<JobId>), Fault> {
    let dirs = jobdir::tunings(store).await;
    let dirs = dirs.map_err(|error| record_errors::record_fault(&error.into()))?;
    let (mut views, mut trials) = (Vec::new(), BTreeSet::new());
    for dir in dirs {
        // As with jobs, one unreadable tuning must not hide the others.
        let Ok(memory) = TuneMemory::open(store, dir.name()).await else { continue };
        let Ok(view) = TuneView::read(&memory, now).await else { continue };
        let jobs = memory.trials.values().flat_map(|known| &known.jobs);
        trials.extend(jobs.flat_map(ResolvedSpec::rank_jobs));
        views.push(JobView::of_tuning(&memory, &view));
    }
    Ok((views, trials))
}

/// All jobs of the job root, the newest first. Jobs of the same name have their ids. The trials of
/// a tuning, and the ranks of a gang, are no jobs of their own here.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn list(store: &StoreHandle, now: Timestamp) -> Result<Vec<JobView>, Fault> {
    let jobs = jobdir::jobs(store.as_ref())
        .await
        .map_err(|error| record_errors::record_fault(&error.into()))?;
    let (tunings, trials) = list_tunings(store, now).await?;
    let jobs = jobs.into_iter().filter(|job| !trials.contains(job));
    let read = stream::iter(jobs).map(|job| async move {
        let dir = JobDir::new(Arc::clone(store), job);
        // One unreadable job must not hide the others; `lamp status` says what is wrong with it.
        Summary::read(&dir, now).await.ok().flatten()
    });
    let summaries: Vec<Summary> =
        read.buffer_unordered(READS_IN_FLIGHT).filter_map(std::future::ready).collect().await;
    let rows = fold_gangs(summaries, now);
    let rows = rows.iter().filter_map(|row| Some(JobView::of(&row.job.parse().ok()?, row)));
    let mut views: Vec<JobView> = rows.chain(tunings).collect();
    views.sort_by(|one, other| (other.created, &other.here).cmp(&(one.created, &one.here)));
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for view in &views {
        *named.entry(view.job_id.clone()).or_default() += 1;
    }
    for view in &mut views {
        if let (ViewedThing::Job(job), 2..) = (&view.here, named[&view.job_id]) {
            view.job_id = job.to_string();
        }
    }
    Ok(views)
}
