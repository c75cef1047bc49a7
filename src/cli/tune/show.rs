//! `lamp tune status`, `list`, `best` and `export`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::json;

use super::drive::engine;
use super::{plots, table};
use crate::app::record_errors;
use crate::app::tune::engine_question::{self, engine_fault};
use crate::app::tune::memory::TuneMemory;
use crate::app::tune::view::TuneView;
use crate::cli::output::printer::shell_word;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Stream, render_table_within};
use crate::jobdir;

#[derive(Clone, Debug, ClapArgs)]
pub struct StatusArgs {
    /// The name of the tuning [default: the only one]
    pub name: Option<String>,

    /// Draw values, curves, parameters and costs of the trials
    #[arg(long)]
    pub plot: bool,

    /// Ask Optuna how much each parameter matters
    #[arg(long)]
    pub importance: bool,
}

/// # Errors
/// Fails when the tuning is missing, or the job root is unreachable.
pub async fn status(args: &StatusArgs, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => only_one(context, &store).await?,
    };
    let memory = TuneMemory::open(&store, &name).await?;
    let workstation = job_root::workstation(context)?;
    let view = TuneView::read_here(&memory, &workstation, context.clock.now()).await?;
    let importance = if args.importance { Some(importance(context, &memory).await?) } else { None };
    if context.is_machine_output() {
        let mut document = serde_json::to_value(&view).unwrap_or_default();
        if let Some(importance) = importance {
            document["importance"] = importance;
        }
        context.printer.json(&document);
        return Ok(ExitCode::SUCCESS);
    }
    table::print(context, &view);
    if let Some(importance) = importance {
        context.printer.line(table::importance(&importance));
    }
    if args.plot {
        plots::all(&view).into_iter().for_each(|plot| context.printer.line(plot));
    }
    Ok(ExitCode::SUCCESS)
}

async fn only_one(context: &Context, store: &crate::wire::StoreHandle) -> Result<String, Fault> {
    let all = jobdir::tunings(store).await;
    let all = all.map_err(|error| record_errors::record_fault(&error.into()))?;
    match all.as_slice() {
        [only] => Ok(only.name().to_owned()),
        [] => Err(Fault::new(ExitCode::NOT_FOUND, format!("no tuning in {}", context.roots.url))
            .hint("`lamp tune JOB.toml` begins one")),
        _ => Err(Fault::new(ExitCode::USAGE, "several tunings are there, and none was named")
            .hint("`lamp tune list` lists them")),
    }
}

async fn importance(context: &Context, memory: &TuneMemory) -> Result<serde_json::Value, Fault> {
    let answer = engine_question::importance(memory, &mut engine(context)).await;
    answer.map_err(|error| engine_fault(&error).meaning("nothing was changed"))
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ExportArgs {
    /// The name of the tuning
    pub name: String,
    /// A new file, a journal of Optuna
    pub file: PathBuf,
}

/// # Errors
/// Fails when the tuning or Optuna is missing, or the file exists.
pub async fn export(args: &ExportArgs, context: &Context) -> Result<ExitCode, Fault> {
    let file = context.current_dir.join(&args.file);
    if file.exists() {
        // A journal grows at its end, so another study would stand in the same file.
        return Err(Fault::new(ExitCode::REFUSED, format!("`{}` exists", args.file.display()))
            .meaning("nothing was written")
            .hint("name a new file"));
    }
    let store = job_root::open_existing(context).await?;
    let memory = TuneMemory::open(&store, &args.name).await?;
    let written = engine_question::export(&memory, &mut engine(context), &file).await;
    written.map_err(|error| engine_fault(&error).meaning("nothing was written"))?;
    if context.is_machine_output() {
        context.printer.json(&json!({ "tuning": args.name, "file": file }));
    } else {
        context.printer.line(args.file.display());
    }
    context
        .printer
        .hint(format!("`optuna-dashboard {}` shows it", shell_word(&file.to_string_lossy())));
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Fails when the job root does not answer.
pub async fn list(context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let all = jobdir::tunings(&store).await;
    let all = all.map_err(|error| record_errors::record_fault(&error.into()))?;
    let workstation = job_root::workstation(context)?;
    let mut views = Vec::new();
    for dir in all {
        match TuneMemory::open(&store, dir.name()).await {
            Ok(memory) => {
                let now = context.clock.now();
                views.push(TuneView::read_here(&memory, &workstation, now).await?);
            }
            Err(fault) => context.printer.warn(format!("left out: {}", fault.sentence())),
        }
    }
    if context.is_machine_output() {
        let views = views.into_iter().map(|mut view| {
            view.trials.clear();
            view
        });
        context.printer.json(&json!({ "tunings": views.collect::<Vec<_>>() }));
        return Ok(ExitCode::SUCCESS);
    }
    if views.is_empty() {
        context.printer.note(format!("no tuning in {}", context.roots.url));
        context.printer.hint("`lamp tune JOB.toml` begins one");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = views.iter().map(table::summary_row).collect();
    let columns = context.printer.columns(Stream::Out);
    let head = ["tuning", "state", "trials", "best", "cost"];
    context.printer.line(render_table_within(columns, &head, &rows, &[2, 4], table::GIVE));
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Fails when the tuning is missing, or has no complete trial.
pub async fn best(name: &str, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let memory = TuneMemory::open(&store, name).await?;
    let view = TuneView::read(&memory, context.clock.now()).await?;
    let Some(best) = &view.best else {
        return Err(Fault::new(ExitCode::NOT_FOUND, format!("no trial of `{name}` is complete"))
            .hint(format!("`lamp tune status {name}` shows its trials")));
    };
    if context.is_machine_output() {
        context.printer.json(best);
    } else {
        context.printer.note(format!("trial {}, {} {}", best.number, view.metric, best.value));
        context.printer.line(&best.command);
    }
    Ok(ExitCode::SUCCESS)
}
