//! `lamp start`: continues an ended job on its kept machine, or from its checkpoint.
//!
//! ```text
//!   what is kept ──> the next job's spec ──> plan ──> code, spec, start ──> as `lamp run`
//! ```
//!
//! The continuation is a job of its own (docs/decisions.md, 13). Not here: whether a machine can be
//! started (`policy::lifecycle::continuation`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::json;

use super::attach::Attached;
use super::start_code::{self, CodeArgs};
use super::{nested_run, run};
use crate::app::drive;
use crate::app::find_job;
use crate::app::gang::gang_jobs::leader_of;
use crate::app::launch::account_ready;
use crate::app::launch::continuation::{self, LimitsAsked};
use crate::app::launch::first_plan;
use crate::app::launch::gang_cost::gang_cost;
use crate::app::launch::gang_start::{self, GangStart};
use crate::app::launch::packed_job;
use crate::app::launch::preflight::{self, PreflightFacts, preflight};
use crate::app::launch::proof_gate;
use crate::app::launch::submission::Submission;
use crate::app::record_errors;
use crate::app::session::Session;
use crate::app::view::discarded;
use crate::cli::apply::caps_view;
use crate::cli::plan::text;
use crate::cli::shell::ctrl_c::{LeaveSignals, gone_before};
use crate::cli::shell::deadline_arg::DeadlineArg;
use crate::cli::shell::job_root;
use crate::cli::shell::terminal::Terminal;
use crate::cli::{Context, ExitCode, Fault};
use crate::config::{Dollars, SpanWord};
use crate::controller::{Controller, JobMemory, Planned, SubmitError, continuation_of};
use crate::job::{ResolvedSpec, StoredKind};
use crate::jobdir::JobDir;

/// Go on with a job that has ended: on the machine that was stopped and kept, or from its
/// checkpoint
///
/// It becomes a job of its own, with what is left of the budget. To type it twice starts one job.
/// It runs the code of before, or with --code the folder as it is now. If the folder has changed
/// and neither is given, it asks.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// The most that it may cost from now on, in dollars [default: what is left of its budget]
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub budget: Option<Dollars>,

    /// The longest one attempt may run, like `12h` [default: as before]
    #[arg(long, value_name = "TIME")]
    pub max_runtime: Option<SpanWord>,

    /// When it must have ended: a moment, or like `30h` from now [default: as before]
    #[arg(long, value_name = "MOMENT")]
    pub deadline: Option<DeadlineArg>,

    #[command(flatten)]
    pub code: CodeArgs,

    /// Start it and return at once
    #[arg(short, long)]
    pub detach: bool,

    /// Leave a machine at AWS alone although nothing has shown lately that it ends by itself
    #[arg(long)]
    pub unproven: bool,

    /// Show the plan and what it can cost; start nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Where outputs come home to [default: lamp-outputs/JOB]
    #[arg(long, value_name = "FOLDER")]
    pub outputs: Option<PathBuf>,
}

/// # Errors
/// Fails when the job is missing, still runs, keeps nothing, has a spent limit, or the job root is
/// unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let terminal = Terminal::new(context, false);
    let session = terminal.session(&store)?;
    // A rank goes on with its whole gang.
    let dir = leader_of(find_job::find(&store, args.job.as_deref()).await?).await;
    let workstation = job_root::workstation(context)?;
    let controller = drive::controller(&workstation, &store)?;
    continuation::settle_what_was_stopped(&session, &controller, &dir).await?;
    let kept = controller
        .kept(&dir)
        .await
        .map_err(|error| first_plan::fault(&error).meaning("nothing was started or billed"))?;
    let Some(kept) = kept else { return Err(continuation::not_ended(&dir).await) };
    let from =
        kept.continues.checkpoint.as_ref().map(|from| JobDir::new(store.clone(), from.job.clone()));
    let next = JobDir::new(store.clone(), continuation_of(dir.job(), &kept.spec.spec.name));
    if next.spec().await.map_err(|error| record_errors::record_fault(&error))?.is_some() {
        return goes_on_already(args, context, &session, &controller, &dir, &next).await;
    }
    discarded::refuse_start(&dir, from.as_ref(), StoredKind::Checkpoints).await?;
    let asked = LimitsAsked {
        budget: args.budget.as_ref().map(|dollars| dollars.0),
        max_runtime: args.max_runtime.as_ref().map(|time| time.0),
        deadline: args.deadline.map(|until| until.moment(context.clock.now()).0),
    };
    let mut spec = continuation::spec_of(&session, &kept, next.job(), asked)?;
    let now = start_code::choose(&args.code, args.dry_run, context, &workstation, &kept)?;
    match &now {
        Some(now) => start_code::take_in(&mut spec, now),
        None => discarded::refuse_start(&dir, None, StoredKind::Code).await?,
    }
    start_code::take_command(&mut spec, &args.code.command);
    preflight::refuse_cloud(spec.spec.machine.cloud)?;
    let ((planned, lacks), clock) = tokio::join!(
        account_ready::planned(&session, &controller, &spec),
        controller.check_clock()
    );
    // A kept machine has its network, permissions and agent. A new one is bought as by `lamp run`.
    let buys = planned
        .as_ref()
        .map_or(spec.continues.as_ref().is_none_or(|from| from.machine.is_none()), |planned| {
            planned.plan.starts.is_none()
        });
    let lacks = if buys { lacks } else { Vec::new() };
    let planned = account_ready::plan_or_refusal(&session, planned, &lacks, &spec)?;
    let is_asked = args.detach && !args.dry_run;
    let (proofs, regions) =
        if is_asked && proof_gate::is_asked(spec.spec.machine.cloud, args.unproven) {
            tokio::join!(
                async { Some(proof_gate::look(&workstation, &store).await) },
                proof_gate::regions(&workstation, &spec.spec.machine, &planned.plan)
            )
        } else {
            (None, BTreeSet::new())
        };
    let proofs = proofs.transpose()?;
    let facts = PreflightFacts {
        account: Some((&spec, &lacks)),
        clock: clock.err(),
        saves: None,
        planned: Some(&planned),
        proofs: proofs.as_ref().map(|proofs| (proofs, &regions)),
    };
    let findings = preflight(&controller, facts, context.clock.now()).await;
    if args.dry_run {
        let refused = preflight::refuse(&findings).err();
        return show(context, &session, &controller, &spec, &planned, refused).await;
    }
    preflight::refuse_before_the_plan(&findings)?;
    account_ready::warn_unready(&session, &planned.unready);
    text::before_a_continuation(&planned).into_iter().for_each(|line| context.printer.note(line));
    preflight::refuse(&findings)?;
    proofs.iter().for_each(|proofs| proofs.tell_what_was_not_tried(&session, &regions));
    if let Some(reason) = first_plan::held_back(&controller, &planned).await? {
        context.printer.warn(format!("it waits for {reason}"));
    }
    if args.detach {
        nested_run::warn_detached(context, &workstation, spec.spec.machine.cloud);
    }
    let mut left = LeaveSignals::listen();
    let spec = bring_code(&session, &controller, &dir, spec, now.as_ref(), &mut left).await?;
    // If it is discarded after this, the agent finds it gone and does not begin.
    discarded::refuse_start(&dir, from.as_ref(), StoredKind::Checkpoints).await?;
    let (begun, has_left) =
        left.undisturbed(&session, controller.begin(&next, &spec, planned)).await;
    let memory = match begun.unwrap_or_else(|| Ok((JobMemory::default(), Ok(())))) {
        // A second Ctrl-C may have stopped it before the first record was written.
        Ok(_) if has_left && matches!(next.spec().await, Ok(None)) => return Err(gone_before()),
        Ok((memory, begun)) => {
            if let Err(error) = begun {
                context.printer.warn(format!("not started yet, trying again: {error}"));
            }
            memory
        }
        // Another call started it at the same moment.
        Err(SubmitError::Exists(_)) => JobMemory::default(),
        Err(error) => return Err(packed_job::submit_fault(&error)),
    };
    context.printer.note(format!("{} goes on as {}", dir.job(), next.job()));
    let start = GangStart { session: &session, controller: &controller, leader: &next };
    start.begin_others(&spec).await?;
    if has_left && !memory.was_refused_for_good() {
        return run::detach(context, &workstation, &next).map(|_| ExitCode::CTRL_C);
    }
    stand_beside(args, context, &session, &controller, &next, memory, &mut left).await
}

/// Sends the folder as it is now, or the code of the job before.
async fn bring_code(
    session: &Session<'_>,
    controller: &Controller,
    from: &JobDir,
    mut spec: ResolvedSpec,
    now: Option<&Submission>,
    left: &mut LeaveSignals,
) -> Result<ResolvedSpec, Fault> {
    if let Some(submission) = now {
        spec.continues.iter_mut().for_each(|continues| continues.new_code = true);
        let packed = packed_job::pack(session, submission, spec).await?;
        left.or_give_up(gone_before, packed.shown(session, packed.upload(controller))).await?;
        return Ok(packed.spec);
    }
    let scratch = packed_job::scratch(session.workstation, &spec.job)?;
    let carried = async {
        controller
            .carry_code(from, &spec, &scratch.0)
            .await
            .map_err(|error| packed_job::submit_fault(&error))
    };
    left.or_give_up(
        gone_before,
        session.with_progress(|| "bringing the code over".to_owned(), carried),
    )
    .await?;
    Ok(spec)
}

async fn stand_beside(
    args: &Args,
    context: &Context,
    session: &Session<'_>,
    controller: &Controller,
    next: &JobDir,
    memory: JobMemory,
    left: &mut LeaveSignals,
) -> Result<ExitCode, Fault> {
    if args.detach {
        if let Some(receipt) = run::refused_for_good(next, &memory).await {
            return run::end(context, next, &receipt, args.outputs.as_deref()).await;
        }
        return run::detach(context, session.workstation, next);
    }
    context.printer.note(format!("job {}; Ctrl-C detaches, the job goes on", next.job()));
    let attached = Attached::new(context, next);
    match run::stand_beside(attached, session.workstation, controller, memory, left).await? {
        Some(receipt) => {
            let code = run::end(context, next, &receipt, args.outputs.as_deref()).await?;
            Ok(gang_start::tell_end(session, next, code).await)
        }
        None => Ok(ExitCode::CTRL_C),
    }
}

/// It was started before, by another call or by one that was cut off.
async fn goes_on_already(
    args: &Args,
    context: &Context,
    session: &Session<'_>,
    controller: &Controller,
    dir: &JobDir,
    next: &JobDir,
) -> Result<ExitCode, Fault> {
    if let Some(ended) =
        next.receipt().await.map_err(|error| record_errors::record_fault(&error))?
    {
        let what = format!(
            "job `{}` went on as `{}`, which has ended: {}",
            dir.job(),
            next.job(),
            ended.told()
        );
        return Err(Fault::new(ExitCode::REFUSED, what)
            .meaning("nothing was started or billed")
            .hint(match discarded::is_stranded(next).await {
                true => discarded::FROM_ITS_START.to_owned(),
                false => format!("`lamp start {}` goes on from there", next.job()),
            }));
    }
    if args.code.changes_something() {
        let what = format!(
            "job `{}` goes on as `{}` already, with the code and the command that it had then",
            dir.job(),
            next.job()
        );
        return Err(Fault::new(ExitCode::REFUSED, what).meaning("nothing was changed").hint(
            format!(
                "`lamp stop {0}` ends that one, and then `lamp start {0} --code` goes on from it",
                next.job()
            ),
        ));
    }
    context.printer.note(format!("{} goes on as job {} already", dir.job(), next.job()));
    if args.dry_run {
        if context.is_machine_output() {
            context.printer.json(&json!({ "job": next.job(), "continues": dir.job() }));
        }
        return Ok(ExitCode::SUCCESS);
    }
    // The call before may have been cut off between two ranks.
    let spec = next.spec().await.map_err(|error| record_errors::record_fault(&error))?;
    if let Some(spec) = spec {
        let start = GangStart { session, controller, leader: next };
        start.begin_others(&spec).await?;
    }
    stand_beside(
        args,
        context,
        session,
        controller,
        next,
        JobMemory::default(),
        &mut LeaveSignals::listen(),
    )
    .await
}

async fn show(
    context: &Context,
    session: &Session<'_>,
    controller: &Controller,
    spec: &ResolvedSpec,
    found: &Planned,
    refused: Option<Fault>,
) -> Result<ExitCode, Fault> {
    let caps = caps_view::shown(context, session.store).await?;
    let waits_for = first_plan::held_back(controller, found).await?;
    let gang = gang_cost(session, controller, spec, found).await?;
    let planned = &found.plan;
    // As the start itself would end.
    let code = refused.as_ref().map_or(ExitCode::SUCCESS, |refused| refused.code);
    if let Some(refused) = &refused {
        context.printer.warn(format!("it would be refused: {}", refused.sentence()));
        refused.hint.iter().for_each(|hint| context.printer.hint(hint));
    }
    if context.is_machine_output() {
        let continues = spec.continues.as_ref();
        context.printer.json(&json!({
            "job": spec.job, "continues": continues.map(|from| &from.job), "checkpoint": continues.and_then(|from| from.checkpoint.as_ref()),
            "instance": planned.starts.as_ref().map(|starts| &starts.instance), "limits": spec.spec.limits, "offer": planned.offer,
            "reasons": planned.reasons, "most_usd": planned.most_whichever(), "most_usd_offer": planned.most_usd, "most_job_usd": found.most_job.usd,
            "kill_at": planned.kill_at, "caps": caps, "waits_for": waits_for, "unready": found.unready,
            "refusal": refused.map(|refused| refused.sentence()), "gang": gang,
        }));
        return Ok(code);
    }
    // First: the lines below are of one rank.
    gang.iter().for_each(|cost| context.printer.line(&cost.sentence));
    text::before_a_continuation(found).into_iter().for_each(|line| context.printer.line(line));
    account_ready::warn_unready(session, &found.unready);
    caps.iter().for_each(|caps| context.printer.line(caps.text()));
    if let Some(reason) = waits_for.filter(|_| refused.is_none()) {
        context.printer.line(format!("it would wait for {reason}"));
    }
    context.printer.note("nothing was started");
    Ok(code)
}
