//! How earlier jobs of the same name began, or else jobs on the same machine type.
//!
//! Only ended jobs count, because their records never change. Each is read once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::startup_timeline::{StartupFacts, StartupTimeline, startup_timelines};
use crate::app::view::timeline;
use crate::job::JobId;
use crate::jobdir::{JobDir, JobDirError, jobs};
use crate::market::elapsed;
use crate::wire::StoreHandle;

/// Jobs of a median. Older ones ran with other code.
const JOBS_MAX: usize = 5;

/// Unknown jobs that one look reads. Each costs a request; later looks read the others.
const READS_MAX: usize = 20;

/// The time between two lists of all jobs. A list of a bucket costs money.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// The job that is compared.
pub struct ComparedJob<'a> {
    pub id: &'a JobId,
    pub name: &'a str,
    pub instance_type: &'a str,
    pub created: Timestamp,
}

/// The jobs that were read.
#[derive(Default)]
pub struct EarlierStartups {
    /// `None`: it had not ended.
    known: Mutex<BTreeMap<JobId, Option<Arc<EndedJob>>>>,
    /// When the jobs were last listed for this name.
    looked: Mutex<BTreeMap<String, Timestamp>>,
}

struct EndedJob {
    name: String,
    types: Vec<String>,
    started: Timestamp,
    startups: tokio::sync::OnceCell<Vec<StartupTimeline>>,
}

impl EarlierStartups {
    /// The timelines of the newest earlier jobs. A record that cannot be read has none: the page of
    /// another job must not fail.
    pub async fn of(
        &self,
        store: &StoreHandle,
        compared: &ComparedJob<'_>,
        now: Timestamp,
    ) -> Vec<StartupTimeline> {
        if self.is_due(compared.name, now) {
            self.read_new(store, compared.name).await;
        }
        let mut startups = Vec::new();
        for (id, ended) in self.like(compared) {
            let read = || async {
                let explained = timeline::of(&JobDir::new(Arc::clone(store), id), None).await?;
                Ok::<_, JobDirError>(startup_timelines(
                    &StartupFacts::of(&explained, None),
                    &[],
                    now,
                ))
            };
            let found = ended.startups.get_or_try_init(read).await;
            startups.extend(found.into_iter().flatten().cloned());
        }
        startups
    }

    fn is_due(&self, name: &str, now: Timestamp) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = looked.get(name).is_none_or(|at| elapsed(*at, now) >= LOOK_EVERY);
        if is_due {
            looked.insert(name.to_owned(), now);
        }
        is_due
    }

    /// The newest first.
    fn like(&self, compared: &ComparedJob<'_>) -> Vec<(JobId, Arc<EndedJob>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let ended =
            known.iter().filter_map(|(id, one)| Some((id.clone(), Arc::clone(one.as_ref()?))));
        let all: Vec<(JobId, Arc<EndedJob>)> =
            ended.filter(|(id, one)| id != compared.id && one.started < compared.created).collect();
        drop(known);
        let chosen = |fits: &dyn Fn(&EndedJob) -> bool| {
            let mut fitting: Vec<_> = all.iter().filter(|(_, one)| fits(one)).cloned().collect();
            fitting.sort_by_key(|(_, one)| std::cmp::Reverse(one.started));
            fitting.truncate(JOBS_MAX);
            fitting
        };
        let named = chosen(&|one| one.name == compared.name);
        if !named.is_empty() {
            return named;
        }
        chosen(&|one| one.types.iter().any(|kind| kind == compared.instance_type))
    }

    /// An id begins with the name of its job, so that these are read first. Jobs that had not ended
    /// come last.
    async fn read_new(&self, store: &StoreHandle, name: &str) {
        let Ok(ids) = jobs(&**store).await else { return };
        let mut new: Vec<(bool, bool, JobId)> = Vec::new();
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let unread = ids.into_iter().filter(|id| known.get(id).is_none_or(Option::is_none));
            new.extend(
                unread.map(|id| (known.contains_key(&id), !id.as_str().starts_with(name), id)),
            );
        }
        new.sort();
        for (_, _, id) in new.into_iter().take(READS_MAX) {
            let receipt = JobDir::new(Arc::clone(store), id.clone()).receipt().await;
            let ended = receipt.ok().flatten().map(|receipt| {
                Arc::new(EndedJob {
                    name: receipt.name,
                    types: receipt.attempts.into_iter().map(|one| one.instance_type).collect(),
                    started: receipt.started,
                    startups: tokio::sync::OnceCell::new(),
                })
            });
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(id, ended);
        }
    }
}
