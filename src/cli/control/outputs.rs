//! `lamp outputs`: lists or fetches the files that a job kept.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Args as ClapArgs;
use serde_json::json;

use crate::app::find_job;
use crate::app::outputs::{self as stored, Output, OutputState, Transfer};
use crate::app::record_errors;
use crate::app::session::Bytes;
use crate::app::text::counted;
use crate::app::text::local_time;
use crate::app::view::discarded;
use crate::app::view::job_summary::Summary;
use crate::cli::output::printer::shell_word;
use crate::cli::output::progress::{with_bytes, with_progress};
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault, render_table};
use crate::config;
use crate::job::{Discarded, StoredKind};
use crate::jobdir::{JobDir, layout};
use crate::wire::show_bytes;

/// Fetch the files that a job kept
///
/// Files that are here already are skipped. After an interruption, type the same line again.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Where to [default: lamp-outputs/JOB]
    #[arg(long, value_name = "FOLDER", conflicts_with = "list")]
    pub to: Option<PathBuf>,

    /// Only show what there is
    #[arg(short, long)]
    pub list: bool,

    /// The newest checkpoint instead of the outputs
    #[arg(long)]
    pub checkpoints: bool,

    /// Write over files here that are different
    #[arg(long, conflicts_with = "list")]
    pub force: bool,
}

pub struct FetchedOutputs {
    folder: PathBuf,
    files: Vec<Output>,
}

const NAMED_MAX: usize = 10;

/// # Errors
/// Fails when the job is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = find_job::find(&store, args.job.as_deref()).await?;
    tokio::select! {
        done = list_or_fetch(args, context, &dir) => done,
        () = ctrl_c::left() => {
            context.printer.hint("the same line, typed again, goes on: what has come is here, and nothing of it is half a file");
            Ok(ExitCode::CTRL_C)
        }
    }
}

async fn list_or_fetch(args: &Args, context: &Context, dir: &JobDir) -> Result<ExitCode, Fault> {
    if args.checkpoints {
        return checkpoint(args, context, dir).await;
    }
    let (listed, gone) =
        tokio::join!(list(context, dir), warn_discarded(context, dir, StoredKind::Outputs));
    let listed = listed?;
    if listed.is_empty() && gone.is_some() && !context.is_machine_output() {
        return Ok(ExitCode::SUCCESS);
    }
    if args.list || listed.is_empty() {
        show_list(context, dir, &listed, gone.as_ref()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let home = bring(context, dir, listed, args.to.as_deref(), args.force).await?;
    if context.is_machine_output() {
        context.printer.json(&document(dir, Some(&home.folder), &home.files, gone.as_ref()));
    } else {
        let here = |output: &&Output| {
            matches!(output.state, OutputState::Fetched | OutputState::AlreadyThere)
        };
        for output in home.files.iter().filter(here) {
            context
                .printer
                .line(config::shown(&home.folder.join(&output.here), &context.current_dir));
        }
        home.tell(context, dir);
    }
    Ok(home.exit_code())
}

/// The newest complete checkpoint. A job that continues another and has none yet uses the one that
/// it began from.
async fn checkpoint(args: &Args, context: &Context, dir: &JobDir) -> Result<ExitCode, Fault> {
    let fault = |error| record_errors::record_fault(&error);
    let spec = dir.spec().await.map_err(fault)?;
    let from = spec
        .as_ref()
        .and_then(|spec| spec.inherited())
        .map(|from| JobDir::new(dir.store().clone(), from.job.clone()));
    let holders = [Some(dir), from.as_ref()].into_iter().flatten();
    let mut newest = None;
    for holder in holders {
        if let Some(manifest) = holder.newest_checkpoint().await.map_err(fault)? {
            newest = Some((holder, manifest));
            break;
        }
    }
    let Some((holder, manifest)) = newest else {
        let gone = warn_discarded(context, dir, StoredKind::Checkpoints).await;
        let what = format!(
            "job `{}` has {} checkpoint",
            dir.job(),
            if gone.is_some() { "no longer a" } else { "saved no" }
        );
        return Err(Fault::new(ExitCode::NOT_FOUND, what)
            .hint("a job saves what its script writes to the folder of [checkpoint], `path`"));
    };
    let folder = spec
        .and_then(|spec| spec.spec.checkpoint)
        .map_or_else(|| "checkpoints".to_owned(), |checkpoint| checkpoint.path);
    let listed = stored::of_checkpoint(holder.job(), &manifest, &folder);
    let step = manifest.step.map(|step| format!(" of step {step}")).unwrap_or_default();
    context.printer.note(format!(
        "checkpoint {}{step} of {}: {}",
        manifest.number.number(),
        holder.job(),
        show_bytes(manifest.bytes())
    ));
    if !manifest.links.is_empty() {
        context.printer.note(format!(
            "{} to folders of it are left out",
            counted(manifest.links.len() as u64, "link")
        ));
    }
    let home = if args.list {
        None
    } else {
        Some(bring(context, dir, listed.clone(), args.to.as_deref(), args.force).await?)
    };
    if context.is_machine_output() {
        let url =
            format!("{}/{}", dir.store().url(), layout::checkpoint(holder.job(), manifest.number));
        let (home, files) =
            home.as_ref().map_or((None, &listed), |home| (Some(&home.folder), &home.files));
        context.printer.json(&json!({ "job": dir.job(), "url": url, "folder": home, "files": files, "checkpoint": manifest.summary() }));
    } else if let Some(home) = &home {
        home.tell(context, dir);
    } else {
        let rows: Vec<Vec<String>> = listed
            .iter()
            .map(|output| vec![show_bytes(output.bytes), output.path.clone()])
            .collect();
        context.printer.line(render_table(&["size", "path"], &rows, &[0]));
        context.printer.hint(format!("`lamp outputs --checkpoints {}` fetches it", dir.job()));
    }
    Ok(home.map_or(ExitCode::SUCCESS, |home| home.exit_code()))
}

/// Fetches all outputs at the end of an attached run. `None`: there are none.
///
/// # Errors
/// Fails when the job root is unreachable, or the disk is full.
pub async fn fetch_all(
    context: &Context,
    dir: &JobDir,
    into: Option<&Path>,
) -> Result<Option<FetchedOutputs>, Fault> {
    let fetched = async {
        match list(context, dir).await? {
            none if none.is_empty() => Ok(None),
            listed => bring(context, dir, listed, into, false).await.map(Some),
        }
    };
    tokio::select! {
        fetched = fetched => fetched,
        () = ctrl_c::left() => Err(Fault::new(ExitCode::CTRL_C, "the fetching was ended by Ctrl-C")),
    }
}

async fn list(context: &Context, dir: &JobDir) -> Result<Vec<Output>, Fault> {
    with_progress(context, || "listing the outputs".to_owned(), stored::list(dir)).await
}

async fn bring(
    context: &Context,
    dir: &JobDir,
    listed: Vec<Output>,
    into: Option<&Path>,
    force: bool,
) -> Result<FetchedOutputs, Fault> {
    let folder = into.map_or_else(
        || context.current_dir.join(stored::FOLDER).join(dir.job().as_str()),
        |into| context.current_dir.join(into),
    );
    let shown = config::shown(&folder, &context.current_dir);
    let (transfer, all) = (Transfer::default(), listed.len() as u64);
    let total = listed.iter().map(|output| output.bytes).sum();
    let told = || {
        let files = transfer.files.load(Ordering::Relaxed);
        let come = transfer.come.load(Ordering::Relaxed);
        (
            format!("fetching {files} of {}", counted(all, "file")),
            Some(Bytes { come, before: 0, total }),
        )
    };
    let fetched = stored::fetch(dir, listed, &folder, &shown, force, &transfer);
    let files = with_bytes(context, told, fetched).await?;
    Ok(FetchedOutputs { folder, files })
}

impl FetchedOutputs {
    fn of(&self, state: OutputState) -> impl Iterator<Item = &Output> {
        self.files.iter().filter(move |output| output.state == state)
    }

    pub fn tell(&self, context: &Context, dir: &JobDir) {
        let printer = &context.printer;
        let folder = config::shown(&self.folder, &context.current_dir);
        let here = self.of(OutputState::Fetched).chain(self.of(OutputState::AlreadyThere));
        let (files, bytes) =
            here.fold((0, 0), |(files, bytes), output| (files + 1, bytes + output.bytes));
        let skipped = match self.of(OutputState::AlreadyThere).count() {
            0 => String::new(),
            all if all == files => "; all of it was here already".to_owned(),
            some => {
                format!("; {some} of them {} here already", if some == 1 { "was" } else { "were" })
            }
        };
        printer.note(format!(
            "outputs: {}, {} in {folder}{skipped}",
            counted(files as u64, "file"),
            show_bytes(bytes)
        ));
        let named = |state| self.of(state).take(NAMED_MAX);
        for output in named(OutputState::Failed) {
            printer.warn(format!(
                "`{}` was not fetched: {}",
                output.path,
                output.error.as_deref().unwrap_or("nobody knows why")
            ));
        }
        for output in named(OutputState::KeptLocal) {
            printer.warn(format!("`{}` is different here and was left as it is", output.here));
        }
        let (failed, kept) =
            (self.of(OutputState::Failed).count(), self.of(OutputState::KeptLocal).count());
        for (count, word) in
            [(failed, "were not fetched"), (kept, "are different here and were left as they are")]
        {
            if count > NAMED_MAX {
                printer.warn(format!("{} more {word}", count - NAMED_MAX));
            }
        }
        let job = dir.job();
        if failed > 0 {
            printer.hint(format!(
                "`lamp outputs {job} --to {}` tries again, and skips what is here",
                shell_word(&folder)
            ));
        }
        if kept > 0 {
            printer.hint(format!("`lamp outputs {job} --to FOLDER` fetches them elsewhere, `--force` writes over what is here"));
        }
    }

    fn exit_code(&self) -> ExitCode {
        if self.of(OutputState::Failed).next().is_some() {
            return ExitCode::UNREACHABLE;
        }
        if self.of(OutputState::KeptLocal).next().is_some() {
            ExitCode::REFUSED
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn document(
    dir: &JobDir,
    folder: Option<&Path>,
    files: &[Output],
    gone: Option<&Discarded>,
) -> serde_json::Value {
    let url = format!("{}/{}", dir.store().url(), layout::outputs(dir.job()));
    json!({ "job": dir.job(), "url": url, "folder": folder, "files": files, "discarded": discarded::for_programs(gone) })
}

async fn show_list(
    context: &Context,
    dir: &JobDir,
    listed: &[Output],
    gone: Option<&Discarded>,
) -> Result<(), Fault> {
    if context.is_machine_output() {
        context.printer.json(&document(dir, None, listed, gone));
        return Ok(());
    }
    if listed.is_empty() {
        context.printer.note(format!("job `{}` has kept no outputs", dir.job()));
        if let Some(hint) = why_none(context, dir).await? {
            context.printer.hint(hint);
        }
        return Ok(());
    }
    let row = |output: &Output| {
        vec![show_bytes(output.bytes), local_time(output.modified), output.path.clone()]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    context.printer.line(render_table(&["size", "kept", "path"], &rows, &[0]));
    let bytes = listed.iter().map(|output| output.bytes).sum();
    let (files, url) = (counted(listed.len() as u64, "file"), dir.store().url());
    context.printer.note(format!(
        "{files}, {} in {url}/{}",
        show_bytes(bytes),
        layout::outputs(dir.job())
    ));
    context.printer.hint(format!("`lamp outputs {}` fetches them", dir.job()));
    Ok(())
}

async fn why_none(context: &Context, dir: &JobDir) -> Result<Option<String>, Fault> {
    let fault = |error| record_errors::record_fault(&error);
    let summary = Summary::read(dir, context.clock.now()).await.map_err(fault)?;
    if summary.as_ref().is_some_and(|summary| summary.alone) {
        return Ok(Some("a run of the agent alone leaves its files where it ran".to_owned()));
    }
    if summary.is_some_and(|summary| !summary.state.is_final()) {
        return Ok(Some("outputs are kept when an attempt ends".to_owned()));
    }
    let named = dir.spec().await.map_err(fault)?.is_some_and(|spec| !spec.spec.outputs.is_empty());
    Ok((!named).then(|| "the job file names none, as in `outputs = [\"model.pt\"]`; what the script writes to $LAMP_OUTPUT_DIR is kept too".into()))
}

/// The line at the end of a receipt. `None`: the outputs are missing or unknown.
pub async fn line_of_receipt(dir: &JobDir) -> Option<String> {
    let kept =
        dir.store().list(&layout::outputs(dir.job())).await.ok().filter(|kept| !kept.is_empty())?;
    let bytes = kept.iter().map(|object| object.bytes).sum();
    Some(format!(
        "outputs: {}, {}; `lamp outputs {}` fetches them",
        counted(kept.len() as u64, "file"),
        show_bytes(bytes),
        dir.job()
    ))
}

/// Warns that the data was discarded, maybe in part. `None`: it was not, or that is unknown.
pub async fn warn_discarded(
    context: &Context,
    dir: &JobDir,
    kind: StoredKind,
) -> Option<Discarded> {
    let (gone, said) = discarded::told(dir, kind).await?;
    context.printer.warn(said);
    Some(gone)
}
