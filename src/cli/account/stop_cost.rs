//! What the end of a swept machine costs: what it has billed, and the newest checkpoint that its job goes on from.
//!
//! ```text
//!   orphans ──> their jobs ──> newest manifest of each ──> a line before the question, a field for programs
//! ```
//! Who is asked whether a machine may end should see what is lost with it. What must never live here: whether it is an orphan
//! (`policy::lifecycle::orphan`), or a reason to leave one alight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::sweep::is_orphan;
use super::unknown_job_machines;
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Found, Judged};
use crate::instance::InstanceView;
use crate::job::{CheckpointSummary, JobId};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Market, Span, elapsed};
use crate::wire::Store;

/// An orphan bills: a job root that is down holds its end up no longer than this.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// Jobs whose checkpoints are read at once.
const READS_IN_FLIGHT: usize = 16;

/// What a job saved last; in words, why nobody knows.
type Newest = Result<Option<CheckpointSummary>, String>;

/// Of the orphans whose job is in this job root.
#[derive(Debug, Default)]
pub struct AtStake(BTreeMap<JobId, Newest>);

impl AtStake {
    pub async fn of(context: &Context, store: &Store, found: &Found) -> Self {
        let jobs: BTreeSet<JobId> = found.machines.iter().filter(|judged| is_orphan(judged)).map(|judged| judged.view.tags.job.clone()).collect();
        let read = jobs.iter().map(|job| async move { newest(store, job).await.map(|newest| (job.clone(), newest)) });
        let read = stream::iter(read).buffer_unordered(READS_IN_FLIGHT).filter_map(std::future::ready).collect();
        tokio::select! {
            read = read => AtStake(read),
            () = context.clock.sleep(LOOK_MAX) => {
                let silent = format!("the job root did not answer within {} s", LOOK_MAX.as_secs());
                AtStake(jobs.iter().map(|job| (job.clone(), Err(silent.clone()))).collect())
            }
        }
    }

    /// For people, under the table.
    pub fn line(&self, judged: &Judged, now: Timestamp) -> Option<String> {
        let job = &judged.view.tags.job;
        let saved = match self.0.get(job)? {
            Ok(Some(newest)) => {
                let step = newest.step.map(|step| format!(" (step {step})")).unwrap_or_default();
                let age = Span::from_secs(elapsed(newest.created, now).as_secs());
                format!("the newest checkpoint of `{job}` is {}{step}, {age} old", newest.number.number())
            }
            Ok(None) => format!("`{job}` has saved no checkpoint"),
            Err(why) => format!("what `{job}` has saved is unknown: {why}"),
        };
        Some(format!("{}: {}{saved}", judged.view.id, cost(&judged.view, now)))
    }

    /// For programs; `null`: there is none, its job is not in this job root, or nobody knows.
    pub fn figure(&self, judged: &Judged) -> Value {
        let newest = self.0.get(&judged.view.tags.job).and_then(|newest| newest.as_ref().ok()?.as_ref()).filter(|_| is_orphan(judged));
        newest.map_or(Value::Null, |newest| json!({ "number": newest.number, "step": newest.step, "created": newest.created }))
    }
}

/// `None`: the job is not in this job root.
async fn newest(store: &Store, job: &JobId) -> Option<Newest> {
    let dir = JobDir::new(Arc::clone(store), job.clone());
    let words = |error: JobDirError| Fault::from_error(ExitCode::UNREACHABLE, &error).sentence();
    match dir.newest_checkpoint().await {
        Ok(Some(manifest)) => Some(Ok(Some(manifest.summary()))),
        // A record of a job that cannot be read is one.
        Ok(None) => dir.spec().await.map_or(true, |spec| spec.is_some()).then_some(Ok(None)),
        Err(error) => Some(Err(words(error))),
    }
}

fn cost(view: &InstanceView, now: Timestamp) -> String {
    let at_most = if view.market == Market::Spot { "less than " } else { "" };
    unknown_job_machines::so_far(view, now).map(|usd| format!("{at_most}{usd} so far; ")).unwrap_or_default()
}
