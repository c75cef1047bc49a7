//! Drives a tuning: its steps, and the jobs of its trials beside them.
//!
//! ```text
//!   step ─> running jobs ─> one drive each ─┬─ a job has ended ─> step
//!                                           └─ the pause is over ─> step (early stopping)
//! ```

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::table;
use crate::app::drive as app_drive;
use crate::app::launch::proof_gate;
use crate::app::session::Session;
use crate::app::tune::memory::{KnownTrial, TuneMemory};
use crate::app::tune::step::{TuneDriver, TuneStep};
use crate::app::tune::view::TuneView;
use crate::cli::shell::ctrl_c::LeaveSignals;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::Controller;
use crate::job::{JobId, Tuning, TuningEndedBecause};
use crate::market::{CloudKind, Zone};
use crate::wire::{TuneEngine, Workstation};

/// Between two looks at running trials in a folder: an agent reports every five seconds.
const LOOK_HOME: Duration = Duration::from_secs(2);

/// The same for a bucket, where looks cost money.
const LOOK_AWAY: Duration = Duration::from_secs(15);

/// Drives a tuning to its end, or until the user leaves.
///
/// # Errors
/// Fails when the job root does not answer, Optuna refuses, or it belongs to another workstation.
pub async fn drive(context: &Context, memory: TuneMemory) -> Result<ExitCode, Fault> {
    refuse_elsewhere(context, &memory)?;
    let workstation = job_root::workstation(context)?;
    let store = memory.store.clone();
    let controller = app_drive::controller(&workstation, &store)?;
    let name = memory.tuning.name.clone();
    // Held until this process ends.
    let _driving = workstation.lock_tuning(&name);
    let mut driver = TuneDriver {
        memory,
        controller: &controller,
        clock: &context.clock,
        engine: engine(context),
        by: workstation.name.clone(),
        earlier: Vec::new(),
    };
    driver.learn().await?;
    context.printer.note(format!("tuning {name}; Ctrl-C detaches, the tuning goes on"));
    let mut left = LeaveSignals::listen();
    let ended = tokio::select! {
        ended = steps(context, &mut driver) => Some(ended),
        () = left.heard() => None,
    };
    match ended {
        Some(Ok(())) => finish(context, &driver.memory).await,
        Some(Err(fault)) => {
            // The trials go on, and their machines must end.
            leave_jobs(context, &driver.memory)?;
            Err(fault)
        }
        None => {
            hand_over(context, &driver.memory)?;
            let terminal = Terminal::new(context, false);
            warn_unproven(&terminal.session(&store)?, &driver.memory).await;
            Ok(ExitCode::CTRL_C)
        }
    }
}

/// Whether this workstation may drive a tuning.
///
/// # Errors
/// When the state folder, which has the name of this workstation, cannot be used.
pub(super) fn runs_here(workstation: &Workstation, tuning: &Tuning) -> Result<bool, Fault> {
    let Some(theirs) = &tuning.here else { return Ok(true) };
    Ok(here(workstation)?.as_str() == theirs)
}

/// The name of this workstation.
///
/// # Errors
/// When the state folder cannot be used.
pub(super) fn here(workstation: &Workstation) -> Result<Zone, Fault> {
    workstation.here().map_err(|error| {
        Fault::new(ExitCode::UNREACHABLE, "cannot write in the state folder").because(&error)
    })
}

/// A local tuning runs on the workstation that began it: the same code and the same Python.
fn refuse_elsewhere(context: &Context, memory: &TuneMemory) -> Result<(), Fault> {
    let Some(theirs) = &memory.tuning.here else { return Ok(()) };
    if runs_here(&job_root::workstation(context)?, &memory.tuning)? {
        return Ok(());
    }
    let name = &memory.tuning.name;
    Err(Fault::new(ExitCode::REFUSED, format!("tuning `{name}` runs on workstation `{theirs}`"))
        .meaning("nothing was changed")
        .hint(format!("`lamp tune drive {name}` goes on with it there")))
}

async fn steps(context: &Context, driver: &mut TuneDriver<'_>) -> Result<(), Fault> {
    let pause = if driver.memory.store.is_folder() { LOOK_HOME } else { LOOK_AWAY };
    let controller: &Controller = driver.controller;
    let (mut driving, mut driven) = (FuturesUnordered::new(), BTreeSet::new());
    let mut trouble = String::new();
    loop {
        let stepped = {
            // A plan takes seconds at AWS. The running jobs are driven meanwhile.
            let mut step = pin!(driver.step());
            loop {
                tokio::select! {
                    stepped = &mut step => break stepped,
                    Some(undriven) = driving.next() => say_undriven(context, undriven),
                }
            }
        };
        let step = match stepped {
            Ok(step) => step,
            Err(fault) if fault.code == ExitCode::UNREACHABLE => {
                TuneStep { trouble: Some(fault), ..TuneStep::default() }
            }
            Err(fault) => return Err(fault),
        };
        step.said.into_iter().for_each(|sentence| context.printer.note(sentence));
        if step.is_over {
            return Ok(());
        }
        for job in step.running {
            if driven.insert(job.clone()) {
                driving.push(drive_one(controller, job));
            }
        }
        let text = step.trouble.map(|fault| fault.sentence()).unwrap_or_default();
        if !text.is_empty() && text != trouble {
            context.printer.warn(format!("trying again: {text}"));
        }
        trouble = text;
        tokio::select! {
            Some(undriven) = driving.next() => say_undriven(context, undriven),
            () = context.clock.sleep(pause) => {}
        }
    }
}

/// Drives a job to its end. A sentence if it cannot.
async fn drive_one(controller: &Controller, job: JobId) -> Option<String> {
    let error = controller.drive(&job).await.err()?;
    Some(format!("job {job} is not driven: {error}"))
}

fn say_undriven(context: &Context, undriven: Option<String>) {
    undriven.into_iter().for_each(|sentence| context.printer.warn(sentence));
}

/// Starts a process that goes on with the tuning.
///
/// # Errors
/// Fails when it cannot be started.
pub fn hand_over(context: &Context, memory: &TuneMemory) -> Result<(), Fault> {
    let name = &memory.tuning.name;
    let workstation = job_root::workstation(context)?;
    if workstation.daemon_runs() {
        context.printer.note(format!("detached; `lamp daemon` drives tuning {name}"));
        return Ok(());
    }
    let log = workstation.start_tuner(name).map_err(|error| {
        Fault::new(ExitCode::INTERNAL, format!("no process could be started for tuning `{name}`"))
            .because(&error)
            .meaning("running trials go on, and no further one starts")
            .hint(format!("`lamp tune drive {name}` goes on with it"))
    })?;
    context.printer.note(format!("detached; the tuning goes on (its words: {})", log.display()));
    context
        .printer
        .hint(format!("`lamp tune status {name}` shows it, `lamp tune stop {name}` ends it"));
    Ok(())
}

/// Nothing may have shown that machines at AWS end by themselves.
async fn warn_unproven(session: &Session<'_>, memory: &TuneMemory) {
    let machine = &memory.tuning.spec.machine;
    if machine.cloud != CloudKind::Local {
        let regions = session.workstation.aws_regions(&machine.regions).await;
        proof_gate::warn(session, &regions.into_iter().collect()).await;
    }
}

fn leave_jobs(context: &Context, memory: &TuneMemory) -> Result<(), Fault> {
    let workstation = job_root::workstation(context)?;
    for job in memory.running().flat_map(KnownTrial::rank_jobs) {
        app_drive::hand_over(&workstation, &job)?;
    }
    Ok(())
}

async fn finish(context: &Context, memory: &TuneMemory) -> Result<ExitCode, Fault> {
    let view = TuneView::read(memory, context.clock.now()).await?;
    if context.is_machine_output() {
        context.printer.json(&view);
    } else {
        table::print(context, &view);
    }
    Ok(exit_code(&view))
}

/// The exit code of a tuning that is over.
fn exit_code(view: &TuneView) -> ExitCode {
    match view.ended.as_ref().map(|end| end.because) {
        Some(TuningEndedBecause::Done) if view.best.is_some() => ExitCode::SUCCESS,
        Some(TuningEndedBecause::UserStopped) => ExitCode::STOPPED,
        Some(TuningEndedBecause::Interrupted) => ExitCode::LOST,
        _ => ExitCode::LIMIT,
    }
}

/// The process that asks Optuna, with the environment in the user's cache. It starts at the first
/// question.
pub fn engine(context: &Context) -> TuneEngine {
    TuneEngine::new(context.environment.cache_dir().as_deref())
}
