//! `lamp discard`: deletes the stored data of ended jobs. Their records and receipts stay.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use crate::app::discard::{self, Going, size, total};
use crate::app::discard_selection::{NOTHING, Wanted};
use crate::app::find_job;
use crate::app::session::Session;
use crate::app::text::{counted, local_time};
use crate::cli::output::progress::with_progress;
use crate::cli::shell::terminal::Terminal;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::config::SpanWord;
use crate::job::StoredKind;
use crate::wire::show_bytes;

/// Delete what ended jobs have stored: checkpoints, outputs, logs, code. Their receipts and records
/// stay
///
/// Stored data of a job bills until it is discarded; nothing else deletes it. `lamp status`,
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

    /// Do not ask; without a terminal, it must be given
    #[arg(short, long)]
    pub yes: bool,
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
    let terminal = Terminal::new(context, args.yes);
    let session = terminal.session(&store)?;
    let seen = with_progress(
        context,
        || "reading the jobs".to_owned(),
        discard::select(&session, &wanted),
    )
    .await?;
    for (job, why) in &seen.left_out {
        context.printer.note(format!("{job} is left as it is: {why}"));
    }
    let left_out: Vec<Value> =
        seen.left_out.iter().map(|(job, why)| json!({ "job": job, "why": why })).collect();
    let sizes = discard::sizes(&session, seen.goes, &wanted);
    let going = with_progress(context, || "looking at what is stored".to_owned(), sizes).await?;
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
    session.confirm(&question, NOTHING)?;
    discard::record_intent(&session, &wanted, &going).await?;
    delete(context, &session, &going, objects).await?;
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

/// With its progress; Ctrl-C leaves what is not deleted yet.
async fn delete(
    context: &Context,
    session: &Session<'_>,
    going: &[Going],
    objects: u64,
) -> Result<(), Fault> {
    let gone = AtomicU64::new(0);
    let count = || format!("{} of {}", gone.load(Ordering::Relaxed), counted(objects, "object"));
    let so_far = || format!("{} are gone; the same line, typed again, goes on", count());
    let work = discard::delete(session, going, &gone);
    tokio::select! {
        done = with_progress(context, || format!("deleting: {}", count()), work) => done.map_err(|fault| fault.meaning(so_far())),
        () = ctrl_c::left() => Err(Fault::new(ExitCode::CTRL_C, "left before the end").meaning(so_far())),
    }
}
