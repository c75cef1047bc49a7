//! `lamp tune`: begins a tuning of a job file, and its smaller commands.

use std::path::Path;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::drive::engine;
use super::{drive, launch_check, show};
use crate::app::launch::packed_job;
use crate::app::launch::preflight;
use crate::app::launch::submission::Submission;
use crate::app::text::verb;
use crate::app::tune::begin::{TuningAgain, begin, tuning_name, tuning_of};
use crate::app::tune::engine_question::engine_fault;
use crate::app::tune::memory::{KnownTrial, TuneMemory};
use crate::app::{record_errors, stop as app_stop};
use crate::cli::run::run::DetachText;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault, JobArgs};
use crate::job::{RECORD_FORMAT, TuneSpec, TuningEnd, TuningEndedBecause, Wish};
use crate::jobdir::{JobDir, TuningDir};

/// Search the best hyperparameters: many trials of a job file with [tune]
///
/// Ctrl-C detaches; the tuning goes on. The same command again goes on with the same tuning, if the
/// files of the workdir are the same.
#[derive(Clone, Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    pub act: Option<TuneCommand>,

    #[command(flatten)]
    pub job: JobArgs,

    /// Begin it and return at once
    #[arg(short, long)]
    pub detach: bool,

    /// Leave machines at AWS alone although nothing has shown lately that they end by themselves
    #[arg(long)]
    pub unproven: bool,

    /// How a tuning of this name is treated.
    #[arg(skip)]
    pub again: TuningAgain,

    /// The text of a tuning that goes on without this process.
    #[arg(skip)]
    pub detach_text: DetachText,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TuneCommand {
    /// Show a tuning: its trials with the best first
    Status(show::StatusArgs),
    /// List all tunings
    List,
    /// Print the best values and the command line with them
    Best(NameArgs),
    /// Write the trials as a journal of Optuna, for optuna-dashboard
    Export(show::ExportArgs),
    /// Start no more trials, and stop the running ones
    Stop(NameArgs),
    /// End all trials at once, without a checkpoint
    Cancel(NameArgs),
    /// Go on with a tuning that no process drives
    Drive(NameArgs),
    /// Make a Python environment with Optuna in the cache
    Setup,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct NameArgs {
    /// The name of the tuning
    pub name: String,
}

/// # Errors
/// Fails when the job file has errors, the tuning is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    match &args.act {
        None => begin_or_go_on(args, context).await,
        Some(TuneCommand::Status(args)) => show::status(args, context).await,
        Some(TuneCommand::List) => show::list(context).await,
        Some(TuneCommand::Best(args)) => show::best(&args.name, context).await,
        Some(TuneCommand::Export(args)) => show::export(args, context).await,
        Some(TuneCommand::Stop(args)) => end(&args.name, Wish::Stop, context).await,
        Some(TuneCommand::Cancel(args)) => end(&args.name, Wish::Cancel, context).await,
        Some(TuneCommand::Drive(args)) => {
            let store = job_root::open_existing(context).await?;
            drive::drive(context, TuneMemory::open(&store, &args.name).await?).await
        }
        Some(TuneCommand::Setup) => set_up(context).await,
    }
}

async fn begin_or_go_on(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let submission = args.job.prepare(context)?;
    let Some(tune) = submission.loaded.tune.clone() else { return Err(no_table()) };
    preflight::refuse_cloud(submission.loaded.spec.machine.cloud)?;
    let needs_proof = args.detach && !args.unproven;
    if tune.needs_engine() {
        // Before anything is written or billed.
        let checked = engine(context).version().await;
        checked.map_err(|error| engine_fault(&error).meaning("nothing was started or billed"))?;
    }
    let store = job_root::open(context).await?;
    if let Some(earlier) = &tune.resume {
        // Before anything is written: its trials are read again by each driver.
        TuneMemory::open(&store, earlier).await?;
    }
    launch_check::check(context, &submission, &tune, needs_proof).await?;
    let name = make(context, &submission, &tune, args.again).await?;
    let memory = TuneMemory::open(&store, &name).await?;
    if args.detach {
        drive::hand_over(context, &memory)?;
        if args.detach_text == DetachText::Nothing {
            return Ok(ExitCode::SUCCESS);
        }
        if context.is_machine_output() {
            context.printer.json(&json!({ "tuning": name }));
        } else {
            context.printer.line(&name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    drive::drive(context, memory).await
}

fn no_table() -> Fault {
    Fault::new(ExitCode::FINDINGS, "the job file has no [tune]")
        .meaning("nothing was started or billed")
        .hint("add [tune] with `metric` and `goal`, and a [tune.params.NAME] for each parameter")
}

/// Packs the workdir once, and writes the tuning.
async fn make(
    context: &Context,
    submission: &Submission,
    tune: &TuneSpec,
    again: TuningAgain,
) -> Result<String, Fault> {
    let store = job_root::open(context).await?;
    let terminal = Terminal::new(context, false);
    let spec = submission.spec(&context.config.user.owner, context.clock.now());
    let packed = packed_job::pack(&terminal.session(&store)?, submission, spec).await?;
    let here = drive::here(&job_root::workstation(context)?)?;
    let tuning = tuning_of(&packed.spec, tune, here.as_str());
    let dir = TuningDir::new(store, &tuning_name(&packed.spec.spec.name));
    let archive: &Path = &packed.archive().path;
    Ok(begin(&dir, &tuning, Some(archive), again).await?.name)
}

async fn set_up(context: &Context) -> Result<ExitCode, Fault> {
    context.printer.note("fetching Optuna: about 140 MB, half a minute");
    let mut engine = engine(context);
    let folder = engine.set_up().await.map_err(|error| engine_fault(&error))?;
    let version = engine.version().await.map_err(|error| engine_fault(&error))?;
    if context.is_machine_output() {
        context.printer.json(&json!({ "folder": folder, "optuna": version }));
    } else {
        context.printer.line(format!("Optuna {version} in {}", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Records that no more trials start, then asks the running ones to stop or to cancel.
///
/// # Errors
/// Fails when the tuning is missing, or the job root is unreachable.
pub async fn end(name: &str, wish: Wish, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let workstation = job_root::workstation(context)?;
    let memory = TuneMemory::open(&store, name).await?;
    let end = TuningEnd {
        format: RECORD_FORMAT,
        at: context.clock.now(),
        by: workstation.name.clone(),
        because: TuningEndedBecause::UserStopped,
        reason: "the user stopped it".to_owned(),
    };
    let end = memory.dir.put_end(&end).await;
    let end = end.map_err(|error| record_errors::record_fault(&error))?;
    let terminal = Terminal::new(context, false);
    let mut asked = Vec::new();
    for job in memory.running().flat_map(KnownTrial::rank_jobs) {
        let dir = JobDir::new(store.clone(), job);
        let wished = dir.insist_on(wish, &workstation.name, &*context.clock).await;
        wished.map_err(|error| record_errors::wish_fault(&error, dir.job()))?;
        app_stop::see_it_through(&terminal.session(&store)?, &dir, wish);
        asked.push(dir.job().clone());
    }
    if context.is_machine_output() {
        context.printer.json(&json!({ "tuning": name, "reason": end.reason, "asked": asked }));
        return Ok(ExitCode::SUCCESS);
    }
    context.printer.note(format!("no more trials of `{name}` start: {}", end.reason));
    for job in &asked {
        context.printer.note(format!("asked {job} to {}", verb(wish)));
    }
    context.printer.hint(format!("`lamp tune status {name}` shows how it stands"));
    Ok(ExitCode::SUCCESS)
}
