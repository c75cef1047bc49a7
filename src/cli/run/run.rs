//! `lamp run`: submits a job, drives it, and shows it until it has ended.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::json;

use super::attach::Attached;
use super::{duplicate_name, nested_run};
use crate::app::drive;
use crate::app::find_job;
use crate::app::launch::account_ready;
use crate::app::launch::checkpoint_cadence;
use crate::app::launch::first_plan;
use crate::app::launch::gang_cost::gang_cost;
use crate::app::launch::gang_start::{self, GangStart};
use crate::app::launch::limit_check::OutOfReach;
use crate::app::launch::packed_job;
use crate::app::launch::preflight::{self, PreflightFacts, preflight};
use crate::app::launch::proof_gate;
use crate::app::launch::resumed_upload::ResumedUpload;
use crate::app::launch::run_from::RunFrom;
use crate::app::launch::saved_files;
use crate::app::launch::submission::Submission;
use crate::app::record_errors;
use crate::app::session::Session;
use crate::cli::control::outputs;
use crate::cli::output::log_columns::LogColumns;
use crate::cli::plan::{plan, text};
use crate::cli::shell::ctrl_c::{LeaveSignals, gone_before};
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::status::receipt;
use crate::cli::{Context, ExitCode, Fault, JobArgs};
use crate::controller::{Controller, JobMemory, Planned};
use crate::job::seat_leader;
use crate::job::{Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, proof_keys};
use crate::market::CloudKind;
use crate::wire::{StoreHandle, Workstation};

/// Run a job: a file, or a command after `--`
///
/// Ends with the workload's own exit code. Ctrl-C detaches; the job goes on.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,

    /// Begin from the newest checkpoint of this job, which has ended [without FILE: with its job
    /// file as it is now]
    #[arg(long, value_name = "JOB")]
    pub from: Option<String>,

    /// Submit and return at once
    #[arg(short, long)]
    pub detach: bool,

    /// Leave a machine at AWS alone although nothing has shown lately that it ends by itself
    #[arg(long)]
    pub unproven: bool,

    /// Show the plan and what it can cost; start nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Run one more beside a job of this name that is under way, without a question
    #[arg(long)]
    pub again: bool,

    /// Run although saves of this job took longer than the notice of a spot machine
    #[arg(long)]
    pub late_save: bool,

    /// Where outputs come home to [default: lamp-outputs/JOB]
    #[arg(long, value_name = "FOLDER")]
    pub outputs: Option<PathBuf>,

    /// Whether the job root may have another job of this name.
    #[arg(skip)]
    pub names: NameUse,

    /// The text of a run that returns at once.
    #[arg(skip)]
    pub detach_text: DetachText,

    /// The log in the columns of gcloud; `None`: as it is.
    #[arg(skip)]
    pub log_columns: Option<LogColumns>,
}

/// Whether several jobs may have a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameUse {
    #[default]
    Shared,
    /// The id follows from the name, so a second submit at the same moment finds it taken.
    Once,
}

/// The text that a detached run prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetachText {
    /// The id of the job.
    #[default]
    JobId,
    /// Nothing: the caller has its own words.
    Nothing,
}

/// # Errors
/// Fails when the job has errors, cannot ship, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let from = match &args.from {
        Some(job) => {
            let store = job_root::open_existing(context).await?;
            let terminal = Terminal::new(context, false);
            Some(RunFrom::find(&terminal.session(&store)?, job).await?)
        }
        None => None,
    };
    let submission = match &from {
        Some(from) => {
            let file = from.job_file(job_root::workstation_of(context)?);
            let file = args.job.file.clone().or(file);
            JobArgs { file, ..args.job.clone() }.prepare(context)?
        }
        None => args.job.prepare(context)?,
    };
    if args.dry_run {
        if let Some(from) = &from {
            from.give(&mut submission.spec(&context.config.user.owner, context.clock.now()))?;
            from.sentence().into_iter().for_each(|sentence| context.printer.note(sentence));
        }
        let code = plan::show(context, &submission, None).await?;
        let machine = &submission.loaded.spec.machine;
        // If AWS cannot be reached, the proof cannot be checked.
        if args.detach
            && code != ExitCode::UNREACHABLE
            && proof_gate::is_asked(machine.cloud, args.unproven)
        {
            let store = job_root::open(context).await?;
            let terminal = Terminal::new(context, false);
            proof_gate::warn_beforehand(&terminal.session(&store)?, machine).await;
        }
        return Ok(code);
    }
    if submission.loaded.schedule.is_some() {
        context.printer.note(
            "it has a [schedule]: this runs it once, now; `lamp apply FILE` hands it to the daemon",
        );
    }
    let workstation = job_root::workstation(context)?;
    preflight::refuse_cloud(submission.loaded.spec.machine.cloud)?;
    let store = job_root::open(context).await?;
    let terminal = Terminal::new(context, false);
    let session = terminal.session(&store)?;
    // Before the job exists: a job that cannot be driven from here must not be left behind.
    let controller = drive::controller(&workstation, &store)?;
    let mut spec = submission.spec(&context.config.user.owner, context.clock.now());
    let upload = ResumedUpload::take(&session, &submission, &mut spec).await;
    if args.names == NameUse::Once {
        spec.job = find_job::id_of_only(&store, &spec.spec.name);
    }
    // The id may be another by now.
    seat_leader(&mut spec);
    if let Some(from) = &from {
        from.give(&mut spec)?;
    }
    let is_asked = proof_gate::is_asked(spec.spec.machine.cloud, args.unproven);
    let proofs = async {
        if is_asked && args.detach {
            Some(proof_gate::look(&workstation, &store).await)
        } else {
            None
        }
    };
    let reached = reach_root(context, &store, spec.spec.machine.cloud);
    // In parallel, so that these checks do not delay the launch.
    let others = duplicate_name::others(context, &store, &spec.spec.name, args.again);
    let planned = account_ready::planned(&session, &controller, &spec);
    let (reached, measured, proofs, (planned, lacks), clock, others) = tokio::join!(
        reached,
        checkpoint_cadence::measured(&store, &spec),
        proofs,
        planned,
        controller.check_clock(),
        others
    );
    reached?;
    let planned = account_ready::plan_or_refusal(&session, planned, &lacks, &spec)?;
    let regions = if is_asked {
        proof_gate::regions(&workstation, &spec.spec.machine, &planned.plan).await
    } else {
        BTreeSet::new()
    };
    let proofs = proofs.transpose()?;
    let facts = PreflightFacts {
        account: Some((&spec, &lacks)),
        clock: clock.err(),
        saves: measured.filter(|_| !args.late_save),
        planned: Some(&planned),
        proofs: proofs.as_ref().map(|proofs| (proofs, &regions)),
    };
    let findings = preflight(&controller, facts, context.clock.now()).await;
    preflight::refuse_before_the_plan(&findings)?;
    let out_of_reach = OutOfReach::of(&planned, &spec, context.clock.now());
    out_of_reach.iter().for_each(|out_of_reach| text::warn_out_of_reach(context, out_of_reach));
    account_ready::warn_unready(&session, &planned.unready);
    let lines = match &from {
        Some(_) => text::before_a_continuation(&planned),
        None => text::before_a_run(&planned),
    };
    lines.into_iter().for_each(|line| context.printer.note(line));
    let gang_cost = gang_cost(&session, &controller, &spec, &planned).await?;
    if let Some(cost) = gang_cost {
        context.printer.note(cost.sentence);
        cost.lack.map_or(Ok(()), Err)?;
    }
    context.printer.note(saved_files::line(&spec.spec));
    preflight::refuse(&findings)?;
    proofs.iter().for_each(|proofs| proofs.tell_what_was_not_tried(&session, &regions));
    if let Some(reason) = first_plan::held_back(&controller, &planned).await? {
        context.printer.warn(format!("it waits for {reason}"));
    }
    duplicate_name::ask(context, &others)?;
    if args.detach {
        nested_run::warn_detached(context, &workstation, spec.spec.machine.cloud);
    }
    let mut left = LeaveSignals::listen();
    let LaunchedJob { dir, spec, memory, has_left } =
        launch(&session, &controller, &submission, spec, upload, planned, &mut left).await?;
    let start = GangStart { session: &session, controller: &controller, leader: &dir };
    start.begin_others(&spec).await?;
    let has_left = has_left
        || !args.again
            && !left.unless_heard(duplicate_name::say(context, &store, dir.job(), &others)).await;
    if args.detach || has_left {
        if let Some(receipt) = refused_for_good(&dir, &memory).await {
            return end(context, &dir, &receipt, args.outputs.as_deref()).await;
        }
        if args.detach_text == DetachText::Nothing && !has_left {
            return drive::hand_over(&workstation, dir.job()).map(|_| ExitCode::SUCCESS);
        }
        return detach(context, &workstation, &dir)
            .map(|code| if has_left { ExitCode::CTRL_C } else { code });
    }
    context.printer.note(format!("job {}; Ctrl-C detaches, the job goes on", dir.job()));
    let mut attached = Attached::new(context, &dir);
    if let Some(columns) = args.log_columns.clone() {
        attached = attached.in_columns(columns);
    }
    match stand_beside(attached, &workstation, &controller, memory, &mut left).await? {
        Some(receipt) => {
            let code = end(context, &dir, &receipt, args.outputs.as_deref()).await?;
            Ok(gang_start::tell_end(&session, &dir, code).await)
        }
        None => {
            if is_asked {
                proof_gate::warn(&session, &regions).await;
            }
            Ok(ExitCode::CTRL_C)
        }
    }
}

/// Checks the bucket of a local job, which else would fail only after packing.
async fn reach_root(context: &Context, store: &StoreHandle, cloud: CloudKind) -> Result<(), Fault> {
    if cloud != CloudKind::Local || store.is_folder() {
        return Ok(());
    }
    let (root, from) = (&context.roots.url, context.roots.origin);
    let keys = proof_keys(&**store).await.map(drop);
    keys.map_err(|error| record_errors::unreached(root, from, &error))
}

pub async fn refused_for_good(dir: &JobDir, memory: &JobMemory) -> Option<Receipt> {
    if memory.was_refused_for_good() { dir.receipt().await.ok().flatten() } else { None }
}

pub struct LaunchedJob {
    pub dir: JobDir,
    /// As it was written.
    pub spec: ResolvedSpec,
    pub memory: JobMemory,
    pub has_left: bool,
}

/// Makes a job and launches it by this plan before this process may end, so that the laptop can be
/// closed.
///
/// # Errors
/// Fails when the workdir cannot be packed, the job root refuses, or the user left before the job
/// was made.
pub async fn launch(
    session: &Session<'_>,
    controller: &Controller,
    submission: &Submission,
    spec: ResolvedSpec,
    mut upload: ResumedUpload,
    planned: Planned,
    left: &mut LeaveSignals,
) -> Result<LaunchedJob, Fault> {
    let packed = packed_job::pack(session, submission, spec).await?;
    let (job, code) = (&packed.spec.job, packed.code());
    upload.sends(session, job, code);
    let clear = async {
        if let Some(stale) = upload.stale(job, code) {
            // If the delete fails, the object stays and costs storage.
            let _gone = session.store.delete(&stale).await;
        }
    };
    let sending = async {
        tokio::join!(packed.upload(controller), controller.ship_ahead(&planned.plan), clear).0
    };
    let sent = left.or_give_up(gone_before, packed.shown(session, sending)).await;
    sent.map_err(|fault| upload.cut_off(session, fault))?;
    upload.sent();
    let dir = JobDir::new(session.store.clone(), packed.spec.job.clone());
    let begin = session.with_progress(
        || "making and launching it".to_owned(),
        controller.begin(&dir, &packed.spec, planned),
    );
    let (begun, has_left) = left.undisturbed(session, begin).await;
    let (memory, begun) = match begun {
        Some(begun) => begun.map_err(|error| packed_job::submit_fault(&error))?,
        // A second Ctrl-C may have stopped it before the first record was written.
        None if matches!(dir.spec().await, Ok(None)) => return Err(gone_before()),
        None => (JobMemory::default(), Ok(())),
    };
    if let Err(error) = begun {
        session.warn(format!("not launched yet, trying again: {error}"));
    }
    Ok(LaunchedJob { dir, spec: packed.spec, memory, has_left })
}

/// Drives the job and shows it. `None`: the user detached, and another process drives it.
pub async fn stand_beside(
    mut attached: Attached<'_>,
    workstation: &Workstation,
    controller: &Controller,
    memory: JobMemory,
    left: &mut LeaveSignals,
) -> Result<Option<Receipt>, Fault> {
    let ended = attached.follow_and_drive_on(controller, memory, left).await;
    let (context, dir) = attached.shown();
    match &ended {
        Ok(Some(_)) => {}
        Ok(None) => leave(context, workstation, dir)?,
        // An error of the display need not stop the job: its machine runs and must be ended.
        Err(_) => leave(context, workstation, dir)
            .unwrap_or_else(|fault| context.printer.warn(&fault.what)),
    }
    ended
}

/// Hands the job to the daemon, or to a new process.
pub fn leave(context: &Context, workstation: &Workstation, dir: &JobDir) -> Result<(), Fault> {
    let job = dir.job();
    let driver = drive::hand_over(workstation, job)?;
    context.printer.note(format!(
        "detached; job {job} goes on, and {driver}{}",
        nested_run::until(context, workstation)
    ));
    context.printer.hint(format!("`lamp logs -f {job}` follows it, `lamp stop {job}` ends it, `lamp receipt {job}` shows what it cost"));
    context.printer.hint(format!("`lamp outputs {job}` fetches what it keeps, when it has ended"));
    Ok(())
}

pub fn note_daemon(context: &Context, scheduled: bool) {
    let runs = job_root::workstation(context).is_ok_and(|workstation| workstation.daemon_runs());
    if scheduled && !runs {
        context.printer.warn("no daemon runs here, and schedules are run by one");
        context.printer.hint("`lamp daemon` in the foreground, or the user unit lamp-controller.service; `lamp schedules` shows what is due");
    }
}

pub fn detach(
    context: &Context,
    workstation: &Workstation,
    dir: &JobDir,
) -> Result<ExitCode, Fault> {
    leave(context, workstation, dir)?;
    if context.is_machine_output() {
        context.printer.json(&json!({ "job": dir.job() }));
    } else {
        context.printer.line(dir.job());
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn end(
    context: &Context,
    dir: &JobDir,
    ended: &Receipt,
    into: Option<&std::path::Path>,
) -> Result<ExitCode, Fault> {
    // The job has ended either way, and its outputs are safe in the job root.
    match outputs::fetch_all(context, dir, into).await {
        Ok(home) => home.iter().for_each(|home| home.tell(context, dir)),
        Err(fault) => {
            context.printer.warn(format!("the outputs stay in the job root: {}", fault.sentence()));
            context.printer.hint(
                fault
                    .hint
                    .clone()
                    .unwrap_or_else(|| format!("`lamp outputs {}` fetches them", dir.job())),
            );
        }
    }
    if context.is_machine_output() {
        context.printer.json(ended);
    } else {
        receipt::note(context, ended);
    }
    Ok(hinted(context, dir, ended).await)
}

/// The exit code of an ended job, with a hint if its launch was refused.
pub async fn hinted(context: &Context, dir: &JobDir, ended: &Receipt) -> ExitCode {
    let code = ExitCode::of_receipt(ended);
    if code == ExitCode::LAUNCH_FAILED
        && dir
            .spec()
            .await
            .ok()
            .flatten()
            .is_some_and(|spec| spec.spec.machine.cloud == CloudKind::Aws)
    {
        context.printer.hint("`lamp doctor` says what AWS refuses or lacks; `lamp iam controller` prints the policy that a launch needs");
    }
    code
}
