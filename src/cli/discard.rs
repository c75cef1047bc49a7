//! `lamp discard`: what ended jobs have stored is deleted; their records and receipts stay.
//!
//! ```text
//!   all jobs ──> which are meant ──> what is in the way ──> sizes ──> the question ──> looked at again ──> deleted
//! ```
//! What must never live here: whether a job may go (`policy::discard`), or which objects are records (`jobdir::stored`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::confirm::confirm;
use super::fetch::with_progress;
use super::status::local_time;
use super::table::counted;
use super::{Context, ExitCode, Fault, job_root, kept, render_table, signals};
use crate::config::SpanWord;
use crate::job::{AttemptNo, Discarded, JobId, RECORD_FORMAT, ResolvedSpec, StoredKind};
use crate::jobdir::{self, JobDir, JobDirError, unless_damaged};
use crate::market::elapsed;
use crate::policy::discard::{Hindrance, StoredFacts, is_gone_on_from, judge_discard};
use crate::wire::{ObjectMeta, Store, StoreError, show_bytes};

/// Delete what ended jobs have stored: checkpoints, outputs, logs, code. Their receipts and records stay
///
/// What a job stores bills for as long as it is kept; nothing else deletes it. `lamp status`, `lamp receipt` and `lamp explain`
/// tell of the job as before, and `lamp start` goes on with it no more.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Jobs: an id, the beginning of one, or a name that one job has
    #[arg(value_name = "JOB", required_unless_present = "older")]
    pub jobs: Vec<String>,

    /// Also all jobs of yours that ended longer ago than this, like `30d`; those that are still needed are left out, and said
    #[arg(long, value_name = "TIME")]
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

/// Jobs that are read at once.
const READS_IN_FLIGHT: usize = 32;

/// A job, and when it ended.
struct Known {
    facts: StoredFacts,
    ended: Option<Timestamp>,
    alone: bool,
}

/// A job whose data goes.
struct Going {
    dir: JobDir,
    ended: Option<Timestamp>,
    before: Option<Discarded>,
    objects: Vec<(StoredKind, ObjectMeta)>,
}

/// # Errors
/// There is no such job, one of the named is still needed, nobody said yes, or the job root does not answer.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let kinds: BTreeSet<StoredKind> = if args.only.is_empty() { StoredKind::ALL.into() } else { args.only.iter().copied().collect() };
    let mut named = BTreeSet::new();
    for text in &args.jobs {
        named.insert(job_root::find_only(&store, text).await?.job().clone());
    }
    let judged = look(args, context, &store, &kinds, &named).await?;
    let left_out: Vec<Value> = judged.left_out.iter().map(|(job, why)| json!({ "job": job, "why": why })).collect();
    for (job, why) in &judged.left_out {
        context.printer.note(format!("{job} is left as it is: {why}"));
    }
    let listing = stream::iter(judged.goes).map(|known| stored(&store, known, &kinds)).buffered(READS_IN_FLIGHT).try_collect();
    let found: Vec<Going> = with_progress(context, || "looking at what is stored".to_owned(), listing).await?;
    // A deletion that was cut off half-way is in the record; what it has left is seen here.
    let going: Vec<Going> = found.into_iter().filter(|going| !going.objects.is_empty()).collect();
    let (objects, bytes) = total(&going);
    let document = |done: bool| {
        let rows: Vec<Value> = going
            .iter()
            .map(|going| json!({ "job": going.dir.job(), "ended": going.ended, "objects": going.objects.len(), "bytes": size(going) }))
            .collect();
        json!({ "jobs": rows, "left_out": left_out, "kinds": kinds, "objects": objects, "bytes": bytes, "done": done })
    };
    if going.is_empty() {
        if context.is_machine_output() {
            context.printer.json(&document(true));
        }
        context.printer.note("there is nothing to delete");
        return Ok(ExitCode::SUCCESS);
    }
    if !context.is_machine_output() {
        show(context, &going);
    }
    if args.dry_run {
        if context.is_machine_output() {
            context.printer.json(&document(false));
        }
        context.printer.note("nothing was deleted");
        return Ok(ExitCode::SUCCESS);
    }
    let what = kinds.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ");
    let of = counted(going.len() as u64, "job");
    let question = format!("{}, {} of {of} ({what}) will be gone for ever, and their receipts stay", counted(objects, "object"), show_bytes(bytes));
    confirm(context, &question, args.yes, "nothing was deleted")?;
    if !args.yes {
        // Whoever was asked may have taken their time, and somebody else gone on with one of them.
        let chosen: BTreeSet<JobId> = going.iter().map(|going| going.dir.job().clone()).collect();
        look(args, context, &store, &kinds, &chosen).await?;
    }
    delete(context, &kinds, &going, objects).await?;
    if context.is_machine_output() {
        context.printer.json(&document(true));
    }
    context.printer.note(format!("deleted {}, {} of {of}", counted(objects, "object"), show_bytes(bytes)));
    if !store.is_folder() {
        context.printer.note("a bucket of `lamp init aws` keeps what was deleted for 30 days more, and bills for it");
    }
    Ok(ExitCode::SUCCESS)
}

struct Look {
    goes: Vec<Known>,
    left_out: Vec<(JobId, String)>,
}

/// Which of the jobs go, with all that is known by now. A job that was named and may not go refuses the whole call.
async fn look(args: &Args, context: &Context, store: &Store, kinds: &BTreeSet<StoredKind>, named: &BTreeSet<JobId>) -> Result<Look, Fault> {
    let nothing = |fault: Fault| fault.meaning("nothing was deleted");
    let all = jobdir::jobs(store.as_ref()).await.map_err(|error| nothing(job_root::record_fault(&error.into())))?;
    let read = stream::iter(all).map(|job| known(context, store, job)).buffered(READS_IN_FLIGHT).try_collect();
    let known: Vec<Option<Known>> = with_progress(context, || "reading the jobs".to_owned(), read).await.map_err(nothing)?;
    let known: Vec<Known> = known.into_iter().flatten().collect();
    let now = context.clock.now();
    let is_old = |known: &&Known| args.older.as_ref().zip(known.ended).is_some_and(|(age, ended)| elapsed(ended, now) > age.0.duration());
    let is_ours = |known: &&Known| known.facts.owner.as_ref().is_none_or(|owner| *owner == context.user.owner);
    let old = known.iter().filter(is_old).filter(is_ours).map(|known| known.facts.job.clone());
    let chosen: BTreeSet<JobId> = named.iter().cloned().chain(old).collect();
    let facts: Vec<StoredFacts> = known.iter().map(|known| known.facts.clone()).collect();
    let verdicts = judge_discard(&chosen, kinds, &facts, &context.user.owner);
    let (mut goes, mut left_out) = (Vec::new(), Vec::new());
    for known in known {
        match verdicts.get(&known.facts.job) {
            None => {}
            Some(None) => goes.push(known),
            Some(Some(why)) if named.contains(&known.facts.job) => return Err(refused(&known, why)),
            Some(Some(why)) => left_out.push((known.facts.job, sentence(why))),
        }
    }
    // What is named and has no words is no job that ended.
    if let Some(job) = named.iter().find(|job| !verdicts.contains_key(*job)) {
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{job}` has no spec that can be read: whether anything needs what it stores is not known"),
        )
        .meaning("nothing was deleted")
        .hint(format!("`lamp status {job}` says what is known of it")));
    }
    Ok(Look { goes, left_out })
}

/// `None`: no job, or one whose words nobody can read, so that nobody can launch it either.
async fn known(context: &Context, store: &Store, job: JobId) -> Result<Option<Known>, Fault> {
    let dir = JobDir::new(Arc::clone(store), job);
    let fault = |error: JobDirError| job_root::record_fault(&error);
    let Some(spec) = unless_damaged(dir.spec().await).map_err(fault)? else { return Ok(None) };
    let receipt = dir.receipt().await.map_err(fault)?;
    let gone = dir.discarded().await.map_err(fault)?;
    let keeps = match &receipt {
        Some(receipt) => !kept::kept_of(&dir, receipt).await.map_err(fault)?.is_empty(),
        None => false,
    };
    let alone = spec.is_alone();
    let (outcome, ended) = match &receipt {
        Some(receipt) => (Some(receipt.outcome), Some(receipt.ended)),
        None if alone => dir.outcome(AttemptNo::FIRST).await.map_err(fault)?.map(|outcome| (outcome.because.job_outcome(), outcome.ended)).unzip(),
        None => (None, None),
    };
    let facts = StoredFacts {
        owner: if alone { Some(context.user.owner.clone()) } else { owner(&dir, &spec).await? },
        job: dir.job().clone(),
        outcome,
        keeps_machine: keeps,
        from: spec.inherited().map(|from| from.job.clone()),
        is_discarded: gone.is_some_and(|gone| is_gone_on_from(&gone.kinds)),
    };
    Ok(Some(Known { facts, ended, alone }))
}

/// The newest specs say it, which saves the reading of a plan.
async fn owner(dir: &JobDir, spec: &ResolvedSpec) -> Result<Option<String>, Fault> {
    match spec.owner() {
        Some(owner) => Ok(Some(owner.to_owned())),
        None => job_root::owner_of(dir).await,
    }
}

async fn stored(store: &Store, known: Known, kinds: &BTreeSet<StoredKind>) -> Result<Going, Fault> {
    let dir = JobDir::new(Arc::clone(store), known.facts.job);
    let fault = |error: JobDirError| job_root::record_fault(&error).meaning("nothing was deleted");
    let (before, stored) = tokio::try_join!(dir.discarded(), dir.stored()).map_err(fault)?;
    let objects = stored.into_iter().filter(|(kind, _)| kinds.contains(kind)).collect();
    Ok(Going { dir, ended: known.ended, before, objects })
}

fn size(going: &Going) -> u64 {
    going.objects.iter().map(|(_, object)| object.bytes).sum()
}

fn total(going: &[Going]) -> (u64, u64) {
    going.iter().fold((0, 0), |(objects, bytes), going| (objects + going.objects.len() as u64, bytes + size(going)))
}

fn show(context: &Context, going: &[Going]) {
    let of =
        |going: &Going, wanted: StoredKind| going.objects.iter().filter(|(kind, _)| *kind == wanted).map(|(_, object)| object.bytes).sum::<u64>();
    let rows: Vec<Vec<String>> = going
        .iter()
        .map(|going| {
            let ended = going.ended.map_or_else(|| "-".to_owned(), local_time);
            let kinds = StoredKind::ALL.map(|kind| show_bytes(of(going, kind)));
            [vec![going.dir.job().to_string(), ended], kinds.to_vec(), vec![show_bytes(size(going))]].concat()
        })
        .collect();
    context.printer.line(render_table(&["job", "ended", "checkpoints", "outputs", "logs", "code", "together"], &rows, &[2, 3, 4, 5, 6]));
}

async fn delete(context: &Context, kinds: &BTreeSet<StoredKind>, going: &[Going], objects: u64) -> Result<(), Fault> {
    let gone = AtomicU64::new(0);
    let by = job_root::workstation(context)?.name;
    let work = async {
        for going in going {
            let before = going.before.iter().flat_map(|before| &before.kinds).copied();
            let all = kinds.iter().copied().chain(before).collect();
            let intent = Discarded { format: RECORD_FORMAT, at: context.clock.now(), by: by.clone(), kinds: all };
            going.dir.discard(&intent, &going.objects, &gone).await?;
        }
        Ok(())
    };
    let told = || format!("deleting: {} of {}", gone.load(Ordering::Relaxed), counted(objects, "object"));
    let so_far = || match gone.load(Ordering::Relaxed) {
        0 => "nothing was deleted, as far as the job root has answered".to_owned(),
        some => format!("{some} of {} are gone", counted(objects, "object")),
    };
    let done: Result<(), JobDirError> = tokio::select! {
        done = with_progress(context, told, work) => done,
        () = signals::left() => return Err(Fault::new(ExitCode::CTRL_C, "left before the end").meaning(so_far()).hint(AGAIN)),
    };
    done.map_err(|error| {
        let fault = job_root::record_fault(&error).meaning(so_far());
        fault.hint(if is_denied(&error) { RIGHTS } else { AGAIN })
    })
}

const AGAIN: &str = "the same line, typed again, goes on where this one stopped";
const RIGHTS: &str = "the rights of every day delete no job: those of `lamp iam setup` do (`s3:ListBucket`, `s3:DeleteObject`)";

fn is_denied(error: &JobDirError) -> bool {
    matches!(error, JobDirError::Store(StoreError::Denied { .. }))
}

fn refused(known: &Known, why: &Hindrance) -> Fault {
    let job = &known.facts.job;
    let what = match why {
        Hindrance::UnderWay => format!("job `{job}` has not ended"),
        Hindrance::Theirs { owner } => format!("job `{job}` is of the owner `{owner}`"),
        Hindrance::KeepsMachine => format!("job `{job}` keeps a machine, which goes on from what it has stored"),
        Hindrance::NeededBy(by) => format!("job `{by}` began from a checkpoint of `{job}`, and may go on from it again"),
    };
    let hint = match why {
        Hindrance::UnderWay if known.alone => "its agent has not written how it ended".to_owned(),
        Hindrance::UnderWay => format!("`lamp stop {job}` ends it, `lamp cancel {job}` ends it without a checkpoint"),
        Hindrance::Theirs { owner } => format!("whoever is `{owner}` discards it; LAMP_OWNER, or `owner` in the configuration, says who you are"),
        Hindrance::KeepsMachine => format!("`lamp cancel {job}` gives the machine up with its disk"),
        Hindrance::NeededBy(by) => {
            format!("`lamp discard {job} {by}` discards both, once that one has ended; one that has succeeded needs nothing more")
        }
    };
    Fault::new(ExitCode::REFUSED, what).meaning("nothing was deleted").hint(hint)
}

fn sentence(why: &Hindrance) -> String {
    match why {
        Hindrance::UnderWay => "it has not ended".to_owned(),
        Hindrance::Theirs { owner } => format!("it is of the owner `{owner}`"),
        Hindrance::KeepsMachine => "it keeps a machine, which goes on from it".to_owned(),
        Hindrance::NeededBy(by) => format!("{by} began from its checkpoint, and may go on from it again"),
    }
}

/// What a verb says where what it looks for was discarded; `None`: it was not.
pub async fn what_was_discarded(dir: &JobDir, kind: StoredKind) -> Option<String> {
    let gone = dir.discarded().await.ok().flatten().filter(|gone| gone.kinds.contains(&kind))?;
    Some(gone_sentence(&gone, kind.word()))
}

fn gone_sentence(gone: &Discarded, what: &str) -> String {
    format!("its {what} {} discarded at {} by {}", if what == "code" { "was" } else { "were" }, local_time(gone.at), gone.by)
}

/// # Errors
/// What the job would go on from was discarded.
pub async fn refuse_start(dir: &JobDir) -> Result<(), Fault> {
    let gone = dir.discarded().await.map_err(|error| job_root::record_fault(&error))?;
    let Some(gone) = gone.filter(|gone| is_gone_on_from(&gone.kinds)) else { return Ok(()) };
    let kind = if gone.kinds.contains(&StoredKind::Checkpoints) { StoredKind::Checkpoints } else { StoredKind::Code };
    Err(Fault::new(ExitCode::REFUSED, format!("job `{}` cannot go on: {}", dir.job(), gone_sentence(&gone, kind.word())))
        .meaning("nothing was started, and nothing bills")
        .hint("`lamp run FILE` runs the job from its start"))
}

/// For the end of a receipt; `None`: all is there that it stored.
pub async fn line_of_receipt(dir: &JobDir) -> Option<String> {
    let gone = dir.discarded().await.ok().flatten()?;
    let kinds: Vec<&str> = gone.kinds.iter().map(|kind| kind.word()).collect();
    Some(format!("discarded at {} by {}: {}", local_time(gone.at), gone.by, kinds.join(", ")))
}
