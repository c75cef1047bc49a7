//! `lamp discard`: deletes the stored data of ended jobs. Their records and receipts stay.
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

use crate::app::drive;
use crate::app::find_job;
use crate::app::record_errors;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::discard_selection::{Known, NOTHING, READS_IN_FLIGHT, Wanted, look};
use super::download::with_progress;
use crate::app::text::counted;
use crate::app::text::local_time;
use crate::cli::shell::confirm::confirm;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::config::SpanWord;
use crate::job::{Discarded, JobId, JobOutcome, RECORD_FORMAT, StoredKind};
use crate::jobdir::{JobDir, JobDirError};
use crate::policy::lifecycle::discardable::is_gone_on_from;
use crate::wire::{ObjectMeta, Store, StoreError, show_bytes};

/// Delete what ended jobs have stored: checkpoints, outputs, logs, code. Their receipts and records
/// stay
///
/// What a job stores bills for as long as it is kept; nothing else deletes it. `lamp status`,
/// `lamp receipt` and `lamp explain` tell of the job as before, and `lamp start` goes on with it no
/// more.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Jobs: an id, the beginning of one, or a name that one job has
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,

    /// Also all jobs of yours that ended longer ago than this, like `30d`; those that are still
    /// needed are left out, and said
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub older: Option<SpanWord>,

    /// Only these, separated by commas: `checkpoints`, `outputs`, `logs`, `code` [default: all]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub only: Vec<StoredKind>,

    /// Show what would go; delete nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask; where nobody can be asked, it must be said
    #[arg(short, long)]
    pub yes: bool,
}

struct Going {
    dir: JobDir,
    ended: Option<Timestamp>,
    /// No job could continue it before.
    was_discarded: bool,
    /// `lamp start` could continue it until now.
    strands: bool,
    objects: Vec<(StoredKind, ObjectMeta)>,
    /// The kinds that the record names: only those that existed.
    kinds: BTreeSet<StoredKind>,
}

/// # Errors
/// Fails when a job is missing or still needed, the user declines, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    if args.jobs.is_empty() && args.older.is_none() {
        return Err(Fault::new(ExitCode::USAGE, "no job is named")
            .meaning(NOTHING)
            .hint("`lamp discard JOB`, or `lamp discard --older 30d` for all that ended longer ago; `--dry-run` shows what would go"));
    }
    let store = job_root::open_existing(context).await?;
    let kinds: BTreeSet<StoredKind> = if args.only.is_empty() {
        StoredKind::ALL.into()
    } else {
        args.only.iter().copied().collect()
    };
    let mut wanted =
        Wanted { kinds, named: BTreeSet::new(), older: args.older.as_ref().map(|older| older.0) };
    for text in &args.jobs {
        wanted.named.insert(find_job::find_only(&store, text).await?.job().clone());
    }
    if wanted.older.is_some() {
        // With a clock that is a month ahead, everything is old.
        let controller = drive::controller(&job_root::workstation(context)?, &store)?;
        drive::refuse_wrong_clock(controller.check_clock().await)
            .map_err(|fault| fault.meaning(NOTHING))?;
    }
    let seen = look(context, &store, &wanted, &BTreeMap::new()).await?;
    for (job, why) in &seen.left_out {
        context.printer.note(format!("{job} is left as it is: {why}"));
    }
    let left_out: Vec<Value> =
        seen.left_out.iter().map(|(job, why)| json!({ "job": job, "why": why })).collect();
    let listing = stream::iter(seen.goes)
        .map(|known| stored(&store, known, &wanted.kinds))
        .buffered(READS_IN_FLIGHT)
        .try_collect();
    let found: Vec<Option<Going>> =
        with_progress(context, || "looking at what is stored".to_owned(), listing).await?;
    let going: Vec<Going> = found.into_iter().flatten().collect();
    let (objects, bytes) = total(&going);
    let with_something = || going.iter().filter(|going| !going.objects.is_empty());
    let tell_programs = |done: bool| {
        if !context.is_machine_output() {
            return;
        }
        let row = |going: &Going| json!({ "job": going.dir.job(), "ended": going.ended, "objects": going.objects.len(), "bytes": size(going) });
        let rows: Vec<Value> = with_something().map(row).collect();
        context.printer.json(&json!({ "jobs": rows, "left_out": left_out, "kinds": wanted.kinds, "objects": objects, "bytes": bytes, "done": done }));
    };
    if objects == 0 {
        tell_programs(!args.dry_run);
        context.printer.note("there is nothing to delete");
        return Ok(ExitCode::SUCCESS);
    }
    if !context.is_machine_output() {
        show(context, with_something());
    }
    match going.iter().filter(|going| going.strands).count() as u64 {
        0 => {}
        some => context.printer.note(format!(
            "`lamp start` goes on with {} of these no more, once this is gone",
            counted(some, "job")
        )),
    }
    if args.dry_run {
        tell_programs(false);
        context.printer.note(NOTHING);
        return Ok(ExitCode::SUCCESS);
    }
    let what = wanted.kinds.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ");
    let of = counted(with_something().count() as u64, "job");
    let question = format!(
        "{}, {} of {of} ({what}) will be gone for ever, and their receipts stay",
        counted(objects, "object"),
        show_bytes(bytes)
    );
    confirm(context, &question, args.yes, NOTHING)?;
    mean(context, &store, &wanted, &going).await?;
    delete(context, &going, objects).await?;
    tell_programs(true);
    context.printer.note(format!(
        "deleted {}, {} of {of}",
        counted(objects, "object"),
        show_bytes(bytes)
    ));
    if !store.is_folder() {
        context.printer.note(
            "a bucket of `lamp init aws` keeps what was deleted for 30 days more, and bills for it",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// `None`: there is nothing to delete or to record.
async fn stored(
    store: &Store,
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

fn size(going: &Going) -> u64 {
    going.objects.iter().map(|(_, object)| object.bytes).sum()
}

fn total(going: &[Going]) -> (u64, u64) {
    going.iter().fold((0, 0), |(objects, bytes), going| {
        (objects + going.objects.len() as u64, bytes + size(going))
    })
}

fn show<'a>(context: &Context, going: impl Iterator<Item = &'a Going>) {
    let row = |going: &Going| {
        let of = |wanted| {
            going
                .objects
                .iter()
                .filter(|(kind, _)| *kind == wanted)
                .map(|(_, object)| object.bytes)
                .sum()
        };
        let ended = going.ended.map_or_else(|| "-".to_owned(), local_time);
        let kinds = StoredKind::ALL.map(|kind| show_bytes(of(kind)));
        [vec![going.dir.job().to_string(), ended], kinds.to_vec(), vec![show_bytes(size(going))]]
            .concat()
    };
    let rows: Vec<Vec<String>> = going.map(row).collect();
    context.printer.line(render_table(
        &["job", "ended", "checkpoints", "outputs", "logs", "code", "together"],
        &rows,
        &[2, 3, 4, 5, 6],
    ));
}

/// Records what is about to go, also for a job without stored data: it may continue from another.
/// Then looks again, since the user may have taken long to answer.
async fn mean(
    context: &Context,
    store: &Store,
    wanted: &Wanted,
    going: &[Going],
) -> Result<(), Fault> {
    let nothing = |error: &JobDirError| unwritten(store, error).meaning(NOTHING);
    if let Some(first) = going.first() {
        first.dir.try_to_delete().await.map_err(|error| nothing(&error))?;
    }
    let by = job_root::workstation(context)?.name;
    let intent =
        |kinds| Discarded { format: RECORD_FORMAT, at: context.clock.now(), by: by.clone(), kinds };
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
        look(context, store, &Wanted { kinds: wanted.kinds.clone(), named, older: None }, &meant)
            .await;
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

async fn delete(context: &Context, going: &[Going], objects: u64) -> Result<(), Fault> {
    let gone = AtomicU64::new(0);
    let work = async {
        for going in going {
            going
                .dir
                .delete_stored(&going.objects, &gone)
                .await
                .map_err(|error| (going.dir.store(), error))?;
        }
        Ok(())
    };
    let told =
        || format!("deleting: {} of {}", gone.load(Ordering::Relaxed), counted(objects, "object"));
    let so_far = || {
        format!(
            "{} of {} are gone; the same line, typed again, goes on",
            gone.load(Ordering::Relaxed),
            counted(objects, "object")
        )
    };
    tokio::select! {
        done = with_progress(context, told, work) => done.map_err(|(store, error): (&Store, JobDirError)| unwritten(store, &error).meaning(so_far())),
        () = ctrl_c::left() => Err(Fault::new(ExitCode::CTRL_C, "left before the end").meaning(so_far())),
    }
}

fn unwritten(store: &Store, error: &JobDirError) -> Fault {
    let is_denied =
        matches!(error, JobDirError::Store(StoreError::Denied { .. })) && !store.is_folder();
    let fault = record_errors::record_fault(error);
    match is_denied {
        true => fault.hint("the rights of every day delete no job: it takes those of `lamp iam setup` beside them (`s3:DeleteObject`)"),
        false => fault,
    }
}
