//! Reads the facts of one job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use super::attempt_memory::AttemptMemory;
use super::cloud_answers::Answers;
use super::job_memory::JobMemory;
use crate::job::{AttemptNo, CheckpointNo, Plan, Request};
use crate::jobdir::{EventDetail, JobDir, JobDirError, JobNews, layout, unless_damaged};
use crate::policy::lifecycle::reconcile::{AttemptFacts, CheckpointSummaries};
use crate::ports::chain;

/// After this many looks without a spec the job is gone. One look may be an old answer.
const GONE_LOOKS: u32 = 3;

/// The facts from the store, without the cloud.
pub struct Observed {
    pub attempts: Vec<AttemptFacts>,
    pub requests: Vec<Request>,
    pub newest_checkpoint: Option<CheckpointNo>,
}

/// Reads what may have changed since the last look; `now` is on the steady clock.
///
/// # Errors
/// When the store does not answer, or cannot read a record that a decision needs.
pub async fn observe(
    dir: &JobDir,
    memory: &mut JobMemory,
    answers: &Answers,
    now: Duration,
) -> Result<Observed, JobDirError> {
    // Parallel: each answer of a bucket takes a tenth of a second.
    let (numbers, requests) =
        tokio::try_join!(dir.attempts(), requests(dir, &mut memory.requests))?;
    for number in &numbers {
        memory.attempts.entry(*number).or_default();
    }
    let numbers: BTreeSet<AttemptNo> = numbers.into_iter().collect();
    // Settled attempts are not read again: a job that waits for capacity has hundreds.
    let open = memory
        .attempts
        .iter_mut()
        .filter(|(number, memory)| numbers.contains(number) && !memory.is_settled());
    let observed = open.map(|(number, memory)| observe_attempt(dir, *number, memory, answers, now));
    let mut journals: BTreeMap<AttemptNo, CheckpointSummaries> =
        try_join_all(observed).await?.into_iter().collect();
    let wished_for = memory.wished_for(now);
    let known = memory.attempts.iter().filter(|(number, _)| numbers.contains(number));
    let attempts: Vec<AttemptFacts> = known
        .filter_map(|(number, memory)| {
            let mut facts =
                memory.facts(memory.plan.clone()?, journals.remove(number).unwrap_or_default());
            facts.watched.wished_for = wished_for;
            facts.watched.settled_for = settled_for(memory, now);
            Some(facts)
        })
        .collect();
    let between = attempts.iter().all(|attempt| attempt.settled.is_some());
    // Needed for a new plan, and for a machine that cannot be stopped.
    let is_asked_for = between || attempts.iter().any(|attempt| attempt.watched.unstoppable);
    let newest_checkpoint = if is_asked_for {
        dir.newest_checkpoint().await?.map(|manifest| manifest.number)
    } else {
        None
    };
    Ok(Observed { attempts, requests, newest_checkpoint })
}

/// Without reading: the last records, with the heartbeats in the news.
pub fn recall(
    memory: &mut JobMemory,
    news: Option<&JobNews>,
    answers: &Answers,
    now: Duration,
) -> Observed {
    let wished_for = memory.wished_for(now);
    let known = memory.attempts.iter_mut().filter_map(|(number, memory)| {
        let plan = memory.plan.clone()?;
        if memory.settled.is_none() {
            memory.heard_in_news(news.and_then(|news| news.beat(*number)), now);
            if let Some(views) = answers.known(&plan) {
                memory.shown(
                    views
                        .iter()
                        .copied()
                        .find(|view| view.client_token.as_deref() == Some(&plan.client_token)),
                    now,
                );
            }
        }
        let mut facts = memory.facts(plan, CheckpointSummaries::default());
        facts.watched.wished_for = wished_for;
        facts.watched.settled_for = settled_for(memory, now);
        Some(facts)
    });
    Observed {
        attempts: known.collect(),
        requests: memory.requests.values().cloned().collect(),
        newest_checkpoint: None,
    }
}

/// The plan of a job's last attempt.
///
/// # Errors
/// When the store does not answer.
pub async fn last_plan(dir: &JobDir) -> Result<Option<Plan>, JobDirError> {
    let Some(last) = dir.attempts().await?.last().copied() else { return Ok(None) };
    dir.plan(last).await
}

/// Whether the job still has its spec. A user may have deleted an ended job while this process
/// slept or the store was down. Then nothing is bought or recorded for it.
///
/// # Errors
/// When the store does not answer.
pub async fn is_still_there(dir: &JobDir, memory: &mut JobMemory) -> Result<bool, JobDirError> {
    if dir.spec().await?.is_some() {
        memory.looks_without = 0;
        return Ok(true);
    }
    memory.looks_without += 1;
    if memory.looks_without == 1 {
        tracing::warn!(job = %dir.job(), "its records are gone: nothing is launched or written for it");
    }
    if memory.looks_without >= GONE_LOOKS {
        // The next look finds no job.
        memory.spec = None;
    }
    Ok(false)
}

/// How long this controller has known that it is settled.
fn settled_for(memory: &AttemptMemory, now: Duration) -> Duration {
    memory.settled_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
}

/// One attempt, with its journal if that says how it ended. Its plan may not be written yet.
async fn observe_attempt(
    dir: &JobDir,
    number: AttemptNo,
    memory: &mut AttemptMemory,
    answers: &Answers,
    now: Duration,
) -> Result<(AttemptNo, CheckpointSummaries), JobDirError> {
    let (plan, settled) = tokio::try_join!(
        unless_known(&memory.plan, dir.plan(number)),
        unless_known(&memory.settled, dir.settled(number))
    )?;
    memory.plan = memory.plan.take().or(plan.map(Arc::new));
    memory.settled = memory.settled.take().or(settled.map(Arc::new));
    memory.settled_since = memory.settled_since.or(memory.settled.as_ref().map(|_| now));
    let Some(plan) = memory.plan.clone() else {
        return Ok((number, CheckpointSummaries::default()));
    };
    let mut journal = CheckpointSummaries::default();
    if memory.settled.is_none() {
        let key = layout::status(dir.job(), number);
        let head = async { dir.store().head(&key).await.map_err(JobDirError::from) };
        let damaged = &mut memory.watched.damaged;
        let lease = async {
            or_damaged(unless_known(&memory.lease, dir.lease(number)).await, &mut damaged.lease)
        };
        let outcome = async {
            or_damaged(
                unless_known(&memory.outcome, dir.outcome(number)).await,
                &mut damaged.outcome,
            )
        };
        let (lease, outcome, status, beat) =
            tokio::try_join!(lease, outcome, dir.status(number), head)?;
        memory.lease = memory.lease.take().or(lease);
        memory.outcome = memory.outcome.take().or(outcome);
        memory.status = status;
        memory.heard(beat.map(|meta| meta.modified), now);
        if let Some(views) = answers.known(&plan) {
            let view = views
                .iter()
                .copied()
                .find(|view| view.client_token.as_deref() == Some(&plan.client_token));
            memory.shown(view, now);
            let begun = memory.lease.is_some() || memory.watched.damaged.lease;
            if view.is_none_or(|view| view.state.is_terminated())
                && memory.outcome.is_none()
                && begun
            {
                journal = read_journal(dir, number, &mut memory.journal).await?;
            }
        }
    }
    Ok((number, journal))
}

/// Reads a record again while it is damaged, and notes that it exists. Logged once.
fn or_damaged<T>(
    read: Result<Option<T>, JobDirError>,
    damaged: &mut bool,
) -> Result<Option<T>, JobDirError> {
    let is_damage = read.as_ref().err().filter(|error| error.is_damage());
    if let Some(error) = is_damage
        && !*damaged
    {
        tracing::warn!("{}; the job goes on without it", chain(error));
    }
    *damaged = is_damage.is_some();
    unless_damaged(read)
}

/// The checkpoints in the journal; reads it again only if it has grown.
async fn read_journal(
    dir: &JobDir,
    number: AttemptNo,
    known: &mut Option<(usize, CheckpointSummaries)>,
) -> Result<CheckpointSummaries, JobDirError> {
    let batches = dir.event_batches(number).await?;
    let pieces = batches.len();
    if let Some((_, journal)) = known.as_ref().filter(|(read, _)| *read == pieces) {
        return Ok(journal.clone());
    }
    let mut journal = CheckpointSummaries::default();
    for event in dir.events_in(batches).await? {
        match event.what {
            EventDetail::Resumed { checkpoint, went_back } => {
                (journal.resumed_from, journal.went_back) = (Some(checkpoint), went_back)
            }
            EventDetail::Checkpoint { checkpoint, .. } => {
                journal.checkpoints += 1;
                journal.last_checkpoint = Some(checkpoint);
            }
            _ => {}
        }
    }
    *known = Some((pieces, journal.clone()));
    Ok(journal)
}

/// Reads a constant record once; `None`: known already, or missing.
async fn unless_known<K, T>(
    known: &Option<K>,
    read: impl Future<Output = Result<Option<T>, JobDirError>>,
) -> Result<Option<T>, JobDirError> {
    if known.is_some() { Ok(None) } else { read.await }
}

/// All wishes; each is read once.
async fn requests(
    dir: &JobDir,
    memory: &mut BTreeMap<u32, Request>,
) -> Result<Vec<Request>, JobDirError> {
    let names = dir.store().children(&layout::requests(dir.job())).await?;
    let known = names.iter().filter(|name| name.ends_with(".json")).count();
    if known != memory.len() {
        *memory =
            dir.requests().await?.into_iter().map(|request| (request.number, request)).collect();
    }
    Ok(memory.values().cloned().collect())
}
