//! The cost of ending a swept machine: its bill so far, and the newest checkpoint of its job.
//!
//! ```text
//!   orphans ──> their jobs ──> newest manifests ──> a line above the question, a JSON field
//! ```
//!
//! It never keeps an orphan running. Not here: whether a machine is an orphan
//! (`policy::lifecycle::orphan`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app::overview::found_machine::{is_orphan, so_far};
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Judged, SweepFindings};
use crate::instance::InstanceView;
use crate::job::{CheckpointSummary, JobId};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Market, Span, elapsed};
use crate::wire::StoreHandle;

/// An orphan bills, so a silent job root delays its end at most this long.
const LOOK_MAX: Duration = Duration::from_secs(20);

const READS_IN_FLIGHT: usize = 16;

/// A job's newest checkpoint, or why it is unknown.
type NewestCheckpoint = Result<Option<CheckpointSummary>, String>;

/// For the orphans whose job is in this job root.
#[derive(Debug, Default)]
pub struct AtStake(BTreeMap<JobId, NewestCheckpoint>);

impl AtStake {
    pub async fn of(context: &Context, store: &StoreHandle, found: &SweepFindings) -> Self {
        let jobs: BTreeSet<JobId> = found
            .machines
            .iter()
            .filter(|judged| is_orphan(judged))
            .map(|judged| judged.view.tags.job.clone())
            .collect();
        let read = jobs
            .iter()
            .map(|job| async move { newest(store, job).await.map(|newest| (job.clone(), newest)) });
        let read = stream::iter(read)
            .buffer_unordered(READS_IN_FLIGHT)
            .filter_map(std::future::ready)
            .collect();
        tokio::select! {
            read = read => AtStake(read),
            () = context.clock.sleep(LOOK_MAX) => {
                let silent = format!("the job root did not answer within {} s", LOOK_MAX.as_secs());
                AtStake(jobs.iter().map(|job| (job.clone(), Err(silent.clone()))).collect())
            }
        }
    }

    pub fn line(&self, judged: &Judged, now: Timestamp) -> Option<String> {
        let job = &judged.view.tags.job;
        let saved = match self.0.get(job)? {
            Ok(Some(newest)) => {
                let step = newest.step.map(|step| format!(" (step {step})")).unwrap_or_default();
                let age = Span::from_secs(elapsed(newest.created, now).as_secs());
                format!(
                    "the newest checkpoint of `{job}` is {}{step}, {age} old",
                    newest.number.number()
                )
            }
            Ok(None) => format!("`{job}` has saved no checkpoint"),
            Err(why) => format!("what `{job}` has saved is unknown: {why}"),
        };
        Some(format!("{}: {}{saved}", judged.view.id, cost(&judged.view, now)))
    }

    /// For programs. `null`: the newest checkpoint is missing or unknown.
    pub fn figure(&self, judged: &Judged) -> Value {
        let newest = self
            .0
            .get(&judged.view.tags.job)
            .and_then(|newest| newest.as_ref().ok()?.as_ref())
            .filter(|_| is_orphan(judged));
        newest.map_or(Value::Null, |newest| json!({ "number": newest.number, "step": newest.step, "created": newest.created }))
    }
}

/// `None`: the job is not in this job root.
async fn newest(store: &StoreHandle, job: &JobId) -> Option<NewestCheckpoint> {
    let dir = JobDir::new(Arc::clone(store), job.clone());
    let words = |error: JobDirError| Fault::from_error(ExitCode::UNREACHABLE, &error).sentence();
    match dir.newest_checkpoint().await {
        Ok(Some(manifest)) => Some(Ok(Some(manifest.summary()))),
        // A job with an unreadable spec is still a job.
        Ok(None) => dir.spec().await.map_or(true, |spec| spec.is_some()).then_some(Ok(None)),
        Err(error) => Some(Err(words(error))),
    }
}

fn cost(view: &InstanceView, now: Timestamp) -> String {
    let at_most = if view.market == Market::Spot { "less than " } else { "" };
    so_far(view, now).map(|usd| format!("{at_most}{usd} so far; ")).unwrap_or_default()
}
