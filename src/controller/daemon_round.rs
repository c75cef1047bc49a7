//! One tick of a daemon over all jobs of a root: which jobs to read, and which rest.
//!
//! ```text
//!   news/, one listing ─┬─ new, or not at rest ─────────────────────> read and driven (tick.rs)
//!                       └─ no news, judged by memory ─┬─ it waits ──> it rests
//!                                                     └─ otherwise ─> read and driven
//!   a few of the resting jobs, in turn ─────────────────────────────> read and driven
//! ```
//! Calls grow with pages of names and with changes, not with machines. The controller always reads
//! a job before it acts, so a late listing only delays a step. In a folder, or with few open jobs,
//! every job is read at each tick. `act` does the work on a job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, FuturesUnordered, StreamExt};
use tracing::{debug, warn};

use super::act_result::{DriveError, Ticked};
use super::cloud_answers::Answers;
use super::controller::Controller;
use super::job_memory::JobMemory;
use super::launch::gang_launch::awaits_agent;
use super::observe::recall;
use super::root_memory::{RootMemory, UNASKED, version};
use crate::job::{JobId, Receipt};
use crate::jobdir::{self, JobDir, JobNews};
use crate::policy::lifecycle::reconcile::{Act, CloudAnswer, JobFacts, is_elsewhere, reconcile};
use crate::ports::{Clock, StoreError, chain};

/// Between two listings of all job names. It finds jobs without news: an older `lamp` wrote them,
/// or their submission was cut off. More often costs ten calls each time for ten thousand finished
/// jobs.
const NAMES_AGAIN: Duration = Duration::from_secs(5 * 60);

/// First looks at jobs in flight: a starting daemon reads one record of each finished job.
const FIRST_LOOKS_IN_FLIGHT: usize = 16;

/// Jobs read and driven at once. A starting daemon reads all: seven answers of a tenth of a second
/// each. With fewer, ten thousand jobs take most of an hour. With more, the cloud throttles the
/// calls for alarms. A few jobs run one after the other.
const TICKS_IN_FLIGHT: usize = 32;

/// Counts of unfinished jobs.
#[derive(Default)]
pub(crate) struct OpenJobs {
    pub ours: usize,
    pub elsewhere: usize,
}

impl Controller {
    /// One tick for every unfinished job. Calls `alive` for each.
    pub(crate) async fn round(
        &self,
        only: &[JobId],
        root: &mut RootMemory,
        alive: &mut impl FnMut(),
    ) -> Result<OpenJobs, StoreError> {
        let by_news = only.is_empty() && jobdir::has_news(self.store.as_ref());
        let news = if by_news { jobdir::news(self.store.as_ref()).await? } else { BTreeMap::new() };
        let open = self.open_jobs(only, root, &news, alive).await?;
        root.memories.retain(|job, _| open.contains(job));
        let mut left = OpenJobs::default();
        if open.is_empty() {
            return Ok(left);
        }
        let unasked = if by_news { root.unasked(&open, &news) } else { BTreeSet::new() };
        let places = root.memories.values().flat_map(|memory| memory.places()).collect();
        let answers = self.describe(places).await;
        self.settler.look_at_hosts(root.memories.values_mut().map(AsMut::as_mut)).await;
        let at_once = if by_news && open.len() > UNASKED { TICKS_IN_FLIGHT } else { 1 };
        let (mut open, mut ticks) = (open.into_iter(), FuturesUnordered::new());
        loop {
            while ticks.len() < at_once
                && let Some(job) = open.next()
            {
                // A slow store takes its time for each of a hundred jobs, and the loop must still
                // report.
                alive();
                let mut memory = root.memories.remove(&job).unwrap_or_default();
                let version = version(&news, &job);
                // A user waits for a job that was asked to stop.
                let rests = by_news
                    && memory.read_at_news == Some(version)
                    && !unasked.contains(&job)
                    && memory.wished_at.is_none();
                match if rests { self.rest(&mut memory, news.get(&job), &answers) } else { None } {
                    Some(ticked) => count(job, memory, Ok(ticked), version, root, &mut left),
                    None => ticks.push(self.turn(job, memory, version, answers.clone())),
                }
            }
            let Some((job, memory, version, ticked)) = ticks.next().await else { break };
            alive();
            count(job, memory, ticked, version, root, &mut left);
        }
        Ok(left)
    }

    /// Reads and drives one job.
    async fn turn(
        &self,
        job: JobId,
        mut memory: Box<JobMemory>,
        version: u64,
        answers: Answers,
    ) -> (JobId, Box<JobMemory>, u64, Result<Ticked, DriveError>) {
        memory.read_at_news = None;
        let ticked = self.tick(&job, &mut memory, answers).await;
        (job, memory, version, ticked)
    }

    /// The jobs that may need an act.
    async fn open_jobs(
        &self,
        only: &[JobId],
        root: &mut RootMemory,
        news: &BTreeMap<JobId, JobNews>,
        alive: &mut impl FnMut(),
    ) -> Result<BTreeSet<JobId>, StoreError> {
        if !only.is_empty() {
            return Ok(only
                .iter()
                .filter(|job| !root.finished.contains_key(job))
                .cloned()
                .collect());
        }
        if !jobdir::has_news(self.store.as_ref()) {
            let names = jobdir::jobs(self.store.as_ref()).await?;
            return Ok(names.into_iter().filter(|job| !root.finished.contains_key(job)).collect());
        }
        let now = self.clock.mono();
        if root.named_at.is_none_or(|named| now >= named + NAMES_AGAIN) {
            let names = jobdir::jobs(self.store.as_ref()).await?;
            root.named_at = Some(now);
            root.unannounced = names
                .into_iter()
                .filter(|job| !root.finished.contains_key(job) && !news.contains_key(job))
                .collect();
            self.pass_over_finished(root, alive).await;
        }
        self.clear_finished(root, news).await;
        let known = news.keys().chain(&root.unannounced).chain(root.memories.keys());
        Ok(known.filter(|job| !root.finished.contains_key(job)).cloned().collect())
    }

    /// Finds finished jobs among those never looked at, many at once.
    async fn pass_over_finished(&self, root: &mut RootMemory, alive: &mut impl FnMut()) {
        let unseen: Vec<JobDir> = root
            .unannounced
            .iter()
            .filter(|job| !root.memories.contains_key(job))
            .map(|job| JobDir::new(self.store.clone(), job.clone()))
            .collect();
        let mut looks =
            stream::iter(unseen).map(receipt_of).buffer_unordered(FIRST_LOOKS_IN_FLIGHT);
        while let Some((job, receipt)) = looks.next().await {
            alive();
            if let Some(receipt) = receipt {
                root.finish(job, Box::new(receipt));
            }
        }
        root.unannounced.retain(|job| !root.finished.contains_key(job));
    }

    /// Deletes the news of finished jobs, late ones too.
    async fn clear_finished(&self, root: &mut RootMemory, news: &BTreeMap<JobId, JobNews>) {
        let over = news
            .keys()
            .filter(|job| root.finished.get(job) == Some(&true))
            .take(if root.keeps_news { 0 } else { UNASKED });
        for job in over {
            match JobDir::new(self.store.clone(), job.clone()).clear_news().await {
                Ok(()) => {}
                Err(error @ StoreError::Denied { .. }) => {
                    root.keeps_news = true;
                    return warn!(
                        "the news of jobs that are over stay in the job root: {}",
                        chain(&error)
                    );
                }
                Err(error) => return debug!(%job, "its news are removed later: {}", chain(&error)),
            }
        }
    }

    /// The result of a tick if the records have not changed; `None`: the job needs a read first.
    fn rest(
        &self,
        memory: &mut JobMemory,
        news: Option<&JobNews>,
        answers: &Answers,
    ) -> Option<Ticked> {
        if self.launcher.market_is_due(memory) {
            return None;
        }
        let observed = recall(memory, news, answers, self.clock.mono());
        if awaits_agent(memory.spec.as_ref()?, &observed) {
            return None;
        }
        let elsewhere = is_elsewhere(
            memory.spec.as_ref()?,
            &observed.attempts,
            &self.clouds.owner,
            self.clouds.here.as_str(),
        );
        let answer = answers.of_job(
            observed.attempts.iter().map(|attempt| (&*attempt.plan, attempt.settled.is_some())),
        );
        if let (CloudAnswer::Known(views), Some(open), None) = (
            &answer,
            observed.attempts.iter().find(|attempt| attempt.settled.is_none()),
            &elsewhere,
        ) && !views
            .iter()
            .any(|view| view.client_token.as_deref() == Some(&open.plan.client_token))
        {
            // Only a tick can find out whether it is gone.
            return None;
        }
        let facts = JobFacts {
            spec: memory.spec.as_ref()?,
            attempts: &observed.attempts,
            requests: &observed.requests,
            cloud: &answer,
            newest_checkpoint: None,
            owner: &self.clouds.owner,
            here: self.clouds.here.as_str(),
            now: self.clock.now(),
        };
        let idle = |act: &Act| {
            matches!(act, Act::Wait { .. })
                || (matches!(act, Act::CreatePlan { .. }) && memory.is_held_back(self.clock.mono()))
        };
        reconcile(&facts)
            .iter()
            .all(idle)
            .then(|| elsewhere.map_or(Ticked::Active, Ticked::Elsewhere))
    }
}

async fn receipt_of(dir: JobDir) -> (JobId, Option<Receipt>) {
    (dir.job().clone(), dir.receipt().await.ok().flatten())
}

/// Notes the result of one job's tick.
fn count(
    job: JobId,
    mut memory: Box<JobMemory>,
    ticked: Result<Ticked, DriveError>,
    version: u64,
    root: &mut RootMemory,
    left: &mut OpenJobs,
) {
    match ticked {
        Ok(Ticked::Active) => {
            memory.trouble = None;
            memory.lighten();
            memory.read_at_news = Some(version);
            left.ours += 1;
        }
        Ok(Ticked::Elsewhere(_)) => {
            memory.trouble = None;
            memory.read_at_news = Some(version);
            left.elsewhere += 1;
        }
        Ok(Ticked::Final(receipt)) => root.finish(job.clone(), receipt),
        Ok(Ticked::Unknown(error)) => {
            // Logged once, not every two seconds of an outage.
            if memory.trouble.replace(error.to_string()) != Some(error.to_string()) {
                warn!(%job, "trying again: {error}");
            }
            left.ours += 1;
        }
        // A folder without a spec: being submitted, or its submission was cut off.
        Err(DriveError::NoJob { .. }) => return,
        Err(DriveError::Alone { .. }) => drop(root.finished.insert(job.clone(), false)),
        Err(error) => {
            warn!(%job, "left alone: {error}: {}", std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default());
            root.finished.insert(job.clone(), false);
        }
    }
    root.memories.insert(job, memory);
}
