//! Carries out `lamp apply`: stops jobs, makes jobs, and keeps schedules in the job root.

use std::sync::Arc;

use super::ready_file::{ReadyFile, Scheduled};
use crate::app::drive;
use crate::app::gang::ask_ranks::ask_ranks;
use crate::app::gang::gang_jobs::{all_ranks, member_of};
use crate::app::launch::first_plan;
use crate::app::launch::gang_start::GangStart;
use crate::app::launch::packed_job;
use crate::app::launch::resumed_upload::ResumedUpload;
use crate::app::record_errors;
use crate::cli::output::progress::with_progress;
use crate::cli::run::attach::Attached;
use crate::cli::run::run;
use crate::cli::run::run::LaunchedJob;
use crate::cli::shell::ctrl_c::LeaveSignals;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Controller, JobMemory, applied_id};
use crate::job::seat_leader;
use crate::job::{Applied, JobId, Receipt, ResolvedSpec, Schedule, Wish};
use crate::jobdir::{JobDir, JobDirError, ScheduleDir};
use crate::policy::schedule::apply_diff::{Applies, FileChange, JobFact};
use crate::wire::{StoreHandle, Workstation};

pub struct Made {
    pub file: String,
    pub kind: Applies,
    pub name: String,
    pub refused: Option<Receipt>,
}

/// Stops first, then makes. After a failure, the next call finds what was done.
///
/// # Errors
/// Fails when the job root or the cloud refuses.
pub async fn carry_out(
    context: &Context,
    store: &StoreHandle,
    controller: &Controller,
    planned: &[FileChange],
    ready: &[ReadyFile],
    jobs: &[JobFact],
    kept: &[(ScheduleDir, Schedule)],
) -> Result<Vec<Made>, Fault> {
    let mut left = LeaveSignals::listen();
    for change in planned {
        if change.unschedules {
            unschedule(context, &change.file, kept).await?;
        }
        for job in &change.stops {
            stop(context, store, controller, job, change.makes().then_some(&mut left)).await?;
        }
    }
    let mut made = Vec::new();
    for change in planned.iter().filter(|change| change.makes()) {
        let Some(ready) = ready.iter().find(|ready| ready.applied.file == change.file) else {
            continue;
        };
        let (name, refused) = match &ready.scheduled {
            Some(scheduled) => (left.or_give_up(broken_off, keep(context, scheduled)).await?, None),
            None => make_job(context, store, controller, ready, jobs, &mut left).await?,
        };
        made.push(Made { file: change.file.clone(), kind: change.kind, name, refused });
    }
    Ok(made)
}

async fn unschedule(
    context: &Context,
    file: &str,
    kept: &[(ScheduleDir, Schedule)],
) -> Result<(), Fault> {
    for (dir, record) in kept.iter().filter(|(_, record)| record.applied.file == file) {
        let ended = Schedule { removed: Some(context.clock.now()), ..record.clone() };
        dir.put_record(&ended, &*context.clock).await.map_err(|error| schedule_fault(&error))?;
        context.printer.note(format!("{file}: its schedule has ended"));
    }
    Ok(())
}

/// Asks the job to stop. With `wait` it waits until the machine is gone, or the user leaves.
async fn stop(
    context: &Context,
    store: &StoreHandle,
    controller: &Controller,
    job: &JobId,
    wait: Option<&mut LeaveSignals>,
) -> Result<(), Fault> {
    let workstation = job_root::workstation(context)?;
    let dir = JobDir::new(Arc::clone(store), job.clone());
    dir.insist_on(Wish::Stop, &workstation.name, &*context.clock)
        .await
        .map_err(|error| record_errors::wish_fault(&error, job))?;
    stop_other_ranks(context, &workstation, &dir).await?;
    context.printer.note(format!("asked {job} to stop"));
    let waits = wait.is_some();
    if let Some(left) = wait
        && Attached::new(context, &dir)
            .without_log()
            .follow_and_drive_on(controller, JobMemory::default(), left)
            .await?
            .is_some()
    {
        return Ok(());
    }
    drive::hand_over(&workstation, job)?;
    if waits { Err(broken_off()) } else { Ok(()) }
}

async fn stop_other_ranks(
    context: &Context,
    workstation: &Workstation,
    leader: &JobDir,
) -> Result<(), Fault> {
    let Ok(Some(member)) = member_of(leader).await else { return Ok(()) };
    let mut others = all_ranks(leader, &member);
    others.retain(|other| other.job() != leader.job());
    let found = ask_ranks(&others, Wish::Stop, &workstation.name, &context.clock).await;
    if let Some((job, error)) = found.failed.first() {
        return Err(record_errors::wish_fault(error, job));
    }
    found.asked.iter().try_for_each(|other| drive::hand_over(workstation, other.job()).map(drop))
}

fn broken_off() -> Fault {
    Fault::new(ExitCode::CTRL_C, "left before all was made")
        .hint("run it again: it goes on where it was")
}

/// The job's id, and its receipt if its launch was refused for good.
async fn make_job(
    context: &Context,
    store: &StoreHandle,
    controller: &Controller,
    ready: &ReadyFile,
    jobs: &[JobFact],
    left: &mut LeaveSignals,
) -> Result<(String, Option<Receipt>), Fault> {
    let applied = &ready.applied;
    let workstation = job_root::workstation(context)?;
    // Two calls at once get the same id. A file that returns to an earlier text gets a new one.
    let before = jobs.iter().filter(|job| job.applied.file == applied.file).count();
    let job = applied_id(
        &store.url(),
        &ready.submission.loaded.spec.name,
        applied,
        &format!("{}\n{before}", applied.sha256),
    );
    let here = JobDir::new(Arc::clone(store), job.clone());
    let is_old = jobs.iter().any(|old| old.job == job);
    let terminal = Terminal::new(context, false);
    let session = terminal.session(store)?;
    let others = GangStart { session: &session, controller, leader: &here };
    if !is_old && let Ok(Some(made)) = here.spec().await {
        others.begin_others(&made).await?;
        return there_already(context, &workstation, applied, &here);
    }
    let mut spec = ResolvedSpec {
        job,
        applied: Some(applied.clone()),
        owner: None,
        ..ready.submission.spec(&context.config.user.owner, context.clock.now())
    };
    seat_leader(&mut spec);
    let planned =
        left.or_give_up(broken_off, async { Ok(controller.first_plan(&spec).await) }).await?;
    let dir = match planned {
        Ok(planned) => {
            let launched = run::launch(
                &session,
                controller,
                &ready.submission,
                spec,
                ResumedUpload::default(),
                planned,
                left,
            )
            .await;
            let LaunchedJob { dir, spec, memory, .. } = match launched {
                Ok(launched) => launched,
                // Earlier files may have been applied.
                Err(fault) if fault.code == ExitCode::CTRL_C => return Err(broken_off()),
                Err(_) if !is_old && is_there(&here).await => {
                    return there_already(context, &workstation, applied, &here);
                }
                Err(fault) => return Err(fault),
            };
            if let Some(receipt) = run::refused_for_good(&dir, &memory).await {
                context.printer.warn(format!(
                    "{}: job {} has ended: {}",
                    applied.file,
                    dir.job(),
                    receipt.reason
                ));
                run::hinted(context, &dir, &receipt).await;
                return Ok((dir.job().to_string(), Some(receipt)));
            }
            others.begin_others(&spec).await?;
            dir
        }
        // A job that cannot launch now waits, as after any launch without an offer.
        Err(error) => {
            // An incomplete gang does no work.
            if spec.member().is_some() {
                return Err(first_plan::fault(&error).meaning("nothing was started or billed"));
            }
            context
                .printer
                .warn(format!("{}: not launched yet, and tried again: {error}", applied.file));
            let packed = packed_job::pack(&session, &ready.submission, spec).await?;
            left.or_give_up(broken_off, packed.shown(&session, packed.upload(controller))).await?;
            let (made, _) = left.undisturbed(&session, controller.make(&here, &packed.spec)).await;
            match made.ok_or_else(broken_off)? {
                Ok(()) => here,
                Err(_) if !is_old && is_there(&here).await => {
                    return there_already(context, &workstation, applied, &here);
                }
                Err(error) => return Err(packed_job::submit_fault(&error)),
            }
        }
    };
    let driver = drive::hand_over(&workstation, dir.job())?;
    context.printer.note(format!("{}: job {}; {driver}", applied.file, dir.job()));
    Ok((dir.job().to_string(), None))
}

async fn is_there(dir: &JobDir) -> bool {
    matches!(dir.spec().await, Ok(Some(_)))
}

/// Another call made the job under the same id, or this one lost the reply. Two drivers do no harm.
fn there_already(
    context: &Context,
    workstation: &Workstation,
    applied: &Applied,
    dir: &JobDir,
) -> Result<(String, Option<Receipt>), Fault> {
    let job = dir.job();
    let driver = drive::hand_over(workstation, job)?;
    context.printer.note(format!("{}: job {job} is there already; {driver}", applied.file));
    context.printer.hint(format!("`lamp status {job}` shows how it stands"));
    Ok((job.to_string(), None))
}

fn schedule_fault(error: &JobDirError) -> Fault {
    let fault = record_errors::record_fault(error);
    if matches!(error, JobDirError::Unsure(_)) {
        fault.hint("`lamp schedules` shows what is kept; to run it again does no harm")
    } else {
        fault
    }
}

async fn keep(context: &Context, scheduled: &Scheduled) -> Result<String, Fault> {
    let Scheduled { dir, new, packed, .. } = scheduled;
    let fault = |error: JobDirError| record_errors::record_fault(&error);
    if let Some(code) = &new.code {
        let sending = dir.put_code(&code.sha256, &packed.archive().path);
        with_progress(context, || "sending the code".to_owned(), sending).await.map_err(fault)?;
    }
    dir.put_record(new, &*context.clock).await.map_err(|error| schedule_fault(&error))?;
    context.printer.note(format!("{}: schedule `{}/{}`", new.applied.file, dir.set(), dir.name()));
    Ok(format!("{}/{}", dir.set(), dir.name()))
}
