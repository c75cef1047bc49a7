//! Which jobs `lamp discard` means, what is known about them, and why one must stay.
//!
//! Not here: the verdict (`policy::lifecycle::discardable`), and the deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::find_job;
use super::record_errors;
use super::session::Session;
use super::view::kept_machines;
use super::{ExitCode, Fault};
use crate::job::{AttemptNo, JobId, ResolvedSpec, StoredKind};
use crate::jobdir::{self, JobDir, JobDirError, unless_damaged};
use crate::market::{Span, elapsed};
use crate::policy::lifecycle::discardable::{
    Hindrance, StoredFacts, is_gone_on_from, judge_discard,
};
use crate::wire::StoreHandle;

pub struct Wanted {
    pub kinds: BTreeSet<StoredKind>,
    pub named: BTreeSet<JobId>,
    /// Also all our jobs that ended longer ago than this.
    pub older: Option<Span>,
}

pub struct Known {
    pub facts: StoredFacts,
    pub ended: Option<Timestamp>,
    alone: bool,
}

#[derive(Default)]
pub struct Look {
    pub goes: Vec<Known>,
    pub left_out: Vec<(JobId, String)>,
}

pub const NOTHING: &str = "nothing was deleted";

/// `meant`: jobs with a new discard record, and whether they were discarded before it.
///
/// # Errors
/// Fails when a named job must stay, or the job root is unreachable.
pub async fn look(
    session: &Session<'_>,
    wanted: &Wanted,
    meant: &BTreeMap<JobId, bool>,
) -> Result<Look, Fault> {
    let store = session.store;
    let nothing = |fault: Fault| fault.meaning(NOTHING);
    let all = jobdir::jobs(store.as_ref())
        .await
        .map_err(|error| nothing(record_errors::record_fault(&error.into())))?;
    let read = stream::iter(all)
        .map(|job| known(session, job))
        .buffered(find_job::READS_IN_FLIGHT)
        .try_collect();
    let known: Vec<Option<Known>> = read.await.map_err(nothing)?;
    let mut known: Vec<Known> = known.into_iter().flatten().collect();
    for known in &mut known {
        known.facts.is_discarded =
            meant.get(&known.facts.job).copied().unwrap_or(known.facts.is_discarded);
    }
    let (now, me) = (session.clock.now(), &session.workstation.owner);
    let is_old = |known: &&Known| {
        wanted
            .older
            .zip(known.ended)
            .is_some_and(|(age, ended)| elapsed(ended, now) > age.duration())
    };
    // A job without a known owner goes only when it is named.
    let is_ours = |known: &&Known| known.facts.owner.as_ref() == Some(me);
    let old = known.iter().filter(is_old).filter(is_ours).map(|known| known.facts.job.clone());
    let chosen: BTreeSet<JobId> = wanted.named.iter().cloned().chain(old).collect();
    let facts: Vec<StoredFacts> = known.iter().map(|known| known.facts.clone()).collect();
    let verdicts = judge_discard(&chosen, &wanted.kinds, &facts, me);
    let mut look = Look::default();
    for known in known {
        match verdicts.get(&known.facts.job) {
            None => {}
            Some(None) => look.goes.push(known),
            Some(Some(why)) if wanted.named.contains(&known.facts.job) => {
                return Err(refused(store, &known, why));
            }
            Some(Some(why)) => look.left_out.push((known.facts.job, sentence(why))),
        }
    }
    // A named job without a verdict has no readable spec.
    if let Some(job) = wanted.named.iter().find(|job| !verdicts.contains_key(*job)) {
        let what = format!(
            "job `{job}` has no spec that can be read: whether anything needs what it stores is not known"
        );
        return Err(Fault::new(ExitCode::REFUSED, what)
            .meaning(NOTHING)
            .hint(format!("`lamp status {job}` says what is known of it")));
    }
    Ok(look)
}

/// `None`: no job, or one with an unreadable spec, which cannot be launched.
async fn known(session: &Session<'_>, job: JobId) -> Result<Option<Known>, Fault> {
    let dir = JobDir::new(Arc::clone(session.store), job);
    let fault = |error: JobDirError| record_errors::record_fault(&error);
    // A record of a newer version may be a job that continues another. Then nothing goes.
    if let Err(error) = dir.spec().await
        && (matches!(error, JobDirError::Store(_)) || error.is_damage())
        && let Some(why) = record_errors::one_job_only(&dir, &error)
    {
        session.warn(format!("left out: {why}"));
        return Ok(None);
    }
    let Some(spec) = unless_damaged(dir.spec().await).map_err(fault)? else { return Ok(None) };
    // An unreadable receipt counts as none: the job may be under way.
    let receipt = unless_damaged(dir.receipt().await).map_err(fault)?;
    let gone = dir.discarded().await.map_err(fault)?;
    let keeps_machine = match &receipt {
        Some(receipt) => match kept_machines::kept_of(&dir, receipt).await {
            Err(error) if error.is_damage() => true,
            kept => !kept.map_err(fault)?.is_empty(),
        },
        None => false,
    };
    let alone = spec.is_alone();
    let (outcome, ended) = match &receipt {
        Some(receipt) => (Some(receipt.outcome), Some(receipt.ended)),
        None if alone => {
            let outcome = unless_damaged(dir.outcome(AttemptNo::FIRST).await).map_err(fault)?;
            outcome.map(|outcome| (outcome.because.job_outcome(), outcome.ended)).unzip()
        }
        None => (None, None),
    };
    let facts = StoredFacts {
        owner: if alone {
            Some(session.workstation.owner.clone())
        } else {
            owner(&dir, &spec).await?
        },
        job: dir.job().clone(),
        outcome,
        keeps_machine,
        from: spec.inherited().map(|from| from.job.clone()),
        is_discarded: gone.is_some_and(|gone| is_gone_on_from(&gone.kinds)),
    };
    Ok(Some(Known { facts, ended, alone }))
}

/// Newer specs have the owner, which saves reading a plan.
async fn owner(dir: &JobDir, spec: &ResolvedSpec) -> Result<Option<String>, Fault> {
    match spec.owner() {
        Some(owner) => Ok(Some(owner.to_owned())),
        None => find_job::owner_of(dir).await,
    }
}

fn refused(store: &StoreHandle, known: &Known, why: &Hindrance) -> Fault {
    let job = &known.facts.job;
    let what = match why {
        Hindrance::UnderWay => format!("job `{job}` has not ended"),
        Hindrance::Theirs { owner } => format!("job `{job}` is of the owner `{owner}`"),
        Hindrance::KeepsMachine => {
            format!("job `{job}` keeps a machine, which goes on from what it has stored")
        }
        Hindrance::NeededBy(by) => {
            format!("job `{by}` began from a checkpoint of `{job}`, and may go on from it again")
        }
    };
    let hint = match why {
        Hindrance::UnderWay if known.alone => {
            let folder = format!("{}/{}", store.url(), jobdir::layout::job(job));
            format!(
                "its agent has not written how it ended; where that is gone for good, {folder} is all that there is of the run, and may be deleted"
            )
        }
        Hindrance::UnderWay => {
            format!("`lamp stop {job}` ends it, `lamp cancel {job}` ends it without a checkpoint")
        }
        Hindrance::Theirs { owner } => format!(
            "whoever is `{owner}` discards it; LAMP_OWNER, or `owner` in the configuration, says who you are"
        ),
        Hindrance::KeepsMachine => {
            format!("`lamp cancel {job}` gives the machine up with its disk")
        }
        Hindrance::NeededBy(by) => {
            format!(
                "`lamp discard {job} {by}` discards both, once that one has ended; one that has succeeded needs nothing more"
            )
        }
    };
    Fault::new(ExitCode::REFUSED, what).meaning(NOTHING).hint(hint)
}

fn sentence(why: &Hindrance) -> String {
    match why {
        Hindrance::UnderWay => "it has not ended".to_owned(),
        Hindrance::Theirs { owner } => format!("it is of the owner `{owner}`"),
        Hindrance::KeepsMachine => "it keeps a machine, which goes on from it".to_owned(),
        Hindrance::NeededBy(by) => {
            format!("{by} began from its checkpoint, and may go on from it again")
        }
    }
}
