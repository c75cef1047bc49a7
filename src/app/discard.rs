//! Deletes the stored data of ended jobs. Their records and receipts stay.
//!
//! ```text
//!   all jobs ──> which may go ──> sizes ──> the question ──> allowed? ──> discarded.json of each
//!            ──> looked at again: a job may continue one ──> deleted
//! ```
//!
//! `lamp start` looks for `discarded.json` just before it writes the new spec. `lamp discard` looks
//! for such a spec after it wrote its record. If both look at the same moment, neither sees the
//! other. Then the agent finds its checkpoint discarded and does not begin.
//!
//! Not here: whether a job may go (`policy::lifecycle::discardable`), or which objects are records
//! (`jobdir::stored_data`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::discard_selection::{Known, Look, NOTHING, Wanted, look};
use super::find_job::READS_IN_FLIGHT;
use super::session::Session;
use super::{Fault, drive, record_errors};
use crate::job::{Discarded, JobId, JobOutcome, RECORD_FORMAT, StoredKind};
use crate::jobdir::{JobDir, JobDirError};
use crate::policy::lifecycle::discardable::is_gone_on_from;
use crate::wire::{ObjectMeta, StoreError, StoreHandle};

/// A job with what goes of it.
pub struct Going {
    pub dir: JobDir,
    pub ended: Option<Timestamp>,
    /// No job could continue it before.
    was_discarded: bool,
    /// `lamp start` could continue it until now.
    pub strands: bool,
    pub objects: Vec<(StoredKind, ObjectMeta)>,
    /// The kinds that the record names: only those that existed.
    kinds: BTreeSet<StoredKind>,
}

/// Which jobs go, and which are left out.
///
/// # Errors
/// Fails when a named job must stay, the clock is wrong, or the job root is unreachable.
pub async fn select(session: &Session<'_>, wanted: &Wanted) -> Result<Look, Fault> {
    if wanted.older.is_some() {
        // With a clock that is a month ahead, everything is old.
        let controller = drive::controller(session.workstation, session.store)?;
        drive::refuse_wrong_clock(controller.check_clock().await)
            .map_err(|fault| fault.meaning(NOTHING))?;
    }
    look(session, wanted, &BTreeMap::new()).await
}

/// What the chosen jobs store.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn sizes(
    session: &Session<'_>,
    goes: Vec<Known>,
    wanted: &Wanted,
) -> Result<Vec<Going>, Fault> {
    let found: Vec<Option<Going>> = stream::iter(goes)
        .map(|known| stored(session.store, known, &wanted.kinds))
        .buffered(READS_IN_FLIGHT)
        .try_collect()
        .await?;
    Ok(found.into_iter().flatten().collect())
}

/// `None`: there is nothing to delete or to record.
async fn stored(
    store: &StoreHandle,
    known: Known,
    wanted: &BTreeSet<StoredKind>,
) -> Result<Option<Going>, Fault> {
    let Known { facts, ended, .. } = known;
    let dir = JobDir::new(Arc::clone(store), facts.job);
    let (stored, before) = tokio::try_join!(dir.stored(), dir.discarded())
        .map_err(|error| record_errors::record_fault(&error).meaning(NOTHING))?;
    let objects: Vec<_> = stored.into_iter().filter(|(kind, _)| wanted.contains(kind)).collect();
    let mut kinds: BTreeSet<StoredKind> = objects.iter().map(|(kind, _)| *kind).collect();
    let strands = is_gone_on_from(&kinds)
        && facts.outcome != Some(JobOutcome::Succeeded)
        && !facts.is_discarded;
    // Until it saves a checkpoint it continues from another job's, which the same call may delete.
    if facts.from.is_some() && wanted.contains(&StoredKind::Checkpoints) {
        kinds.insert(StoredKind::Checkpoints);
    }
    let is_told = before.is_some_and(|before| kinds.is_subset(&before.kinds));
    let has_nothing = objects.is_empty() && (kinds.is_empty() || is_told);
    Ok((!has_nothing).then_some(Going {
        dir,
        ended,
        was_discarded: facts.is_discarded,
        strands,
        objects,
        kinds,
    }))
}

/// Bytes.
pub fn size(going: &Going) -> u64 {
    going.objects.iter().map(|(_, object)| object.bytes).sum()
}

/// Objects and bytes.
pub fn total(going: &[Going]) -> (u64, u64) {
    going.iter().fold((0, 0), |(objects, bytes), going| {
        (objects + going.objects.len() as u64, bytes + size(going))
    })
}

/// Records what is about to go, also for a job without stored data: it may continue from another.
/// Then looks again, since the user may have taken long to answer.
pub async fn record_intent(
    session: &Session<'_>,
    wanted: &Wanted,
    going: &[Going],
) -> Result<(), Fault> {
    let store = session.store;
    let nothing = |error: &JobDirError| unwritten(store, error).meaning(NOTHING);
    if let Some(first) = going.first() {
        first.dir.try_to_delete().await.map_err(|error| nothing(&error))?;
    }
    let by = session.workstation.name.clone();
    let intent =
        |kinds| Discarded { format: RECORD_FORMAT, at: session.clock.now(), by: by.clone(), kinds };
    let put = stream::iter(going).map(|going| {
        let meant = going.dir.mean_to_discard(intent(going.kinds.clone()));
        async move { Ok((going, meant.await?)) }
    });
    let put: Vec<(&Going, Option<Discarded>)> =
        put.buffered(READS_IN_FLIGHT).try_collect().await.map_err(|error| nothing(&error))?;
    let named = put.iter().map(|(going, _)| going.dir.job().clone()).collect();
    let meant: BTreeMap<JobId, bool> =
        put.iter().map(|(going, _)| (going.dir.job().clone(), going.was_discarded)).collect();
    let again =
        look(session, &Wanted { kinds: wanted.kinds.clone(), named, older: None }, &meant).await;
    if let Err(fault) = again {
        // Nothing was deleted, so the records say so again.
        for (going, before) in put {
            let record = before.unwrap_or_else(|| intent(BTreeSet::new()));
            going.dir.put_discarded(&record).await.map_err(|error| nothing(&error))?;
        }
        return Err(fault);
    }
    Ok(())
}

/// Deletes the objects; `gone` counts them.
///
/// # Errors
/// Fails when the store refuses, or does not answer: what is left stays, and a repeat goes on.
pub async fn delete(session: &Session<'_>, going: &[Going], gone: &AtomicU64) -> Result<(), Fault> {
    for going in going {
        going
            .dir
            .delete_stored(&going.objects, gone)
            .await
            .map_err(|error| unwritten(session.store, &error))?;
    }
    Ok(())
}

fn unwritten(store: &StoreHandle, error: &JobDirError) -> Fault {
    let is_denied =
        matches!(error, JobDirError::Store(StoreError::Denied { .. })) && !store.is_folder();
    let fault = record_errors::record_fault(error);
    match is_denied {
        true => fault.hint("the rights of every day delete no job: it takes those of `lamp iam setup` beside them (`s3:DeleteObject`)"),
        false => fault,
    }
}
