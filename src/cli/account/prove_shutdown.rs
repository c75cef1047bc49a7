//! `lamp doctor --prove`: buys the smallest machine, gives it no agent, and watches whether it ends
//! by itself.
//!
//! ```text
//!   trials ──> plans ──> highest cost, confirmed ──> begin ──> drive as a job ──> receipts
//!                                                    └─ Ctrl-C: cancel, drive to the end ─┘
//!   settled, ending ──> shutdown_proof ──> proofs/<account>/<region>.json ──> what was proven
//! ```
//!
//! Each trial is a job (docs/decisions.md, 17). Its intent is recorded before the launch, and its
//! machine has tags and a hard cap. If this process dies, a daemon or `lamp sweep` ends the
//! machine. Not here: what is proven (`policy::account::shutdown_proof`).

use std::pin::{Pin, pin};

use futures::future::{FutureExt as _, join_all};
use jiff::Timestamp;
use serde_json::json;

use super::prove_sweeper;
use crate::account::sweeper;
use crate::app::drive;
use crate::app::launch::account_ready;
use crate::app::launch::first_plan;
use crate::app::launch::preflight;
use crate::app::launch::proof_gate;
use crate::app::record_errors;
use crate::app::text::counted;
use crate::cli::output::printer::{Stream, Style};
use crate::cli::output::progress::with_progress;
use crate::cli::shell::terminal::Terminal;
use crate::cli::shell::{confirm, ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault};
use crate::config::SpanWord;
use crate::controller::{ActError, Controller, DriveError, JobMemory, Planned, SubmitError};
use crate::job::{
    AttemptRecord, JobId, JobOutcome, Proof, RECORD_FORMAT, Receipt, ResolvedSpec, Switch, Trial,
    Tried, Wish,
};
use crate::jobdir::{JobDir, JobDirError, ProofDir};
use crate::market::{CloudKind, Span, Usd};
use crate::policy::account::shutdown_proof;
use crate::policy::account::sweeper_proof::{Expected, is_by_another, stands_in};
use crate::wire::{self, DrivingLock, StoreHandle, Workstation};

#[derive(Clone, Debug, clap::Args)]
pub struct ProofArgs {
    /// Where the proof is made [default: the first of `regions` in [aws] of the configuration, else
    /// AWS_REGION, else the region of the profile]
    #[arg(long, value_name = "REGION", requires = "prove", value_parser = crate::cli::shell::flags::one_name)]
    pub region: Option<String>,

    /// The cheapest of these types is bought [default: the smallest that AWS has]
    #[arg(long, value_name = "TYPE", requires = "prove")]
    pub instance_type: Vec<String>,

    /// Do not ask before a machine is bought
    #[arg(short, long, requires = "prove")]
    pub yes: bool,

    /// How long the machine may live before it is the switch's; a test's
    #[arg(long, hide = true, value_name = "TIME", requires = "prove")]
    pub lease: Option<SpanWord>,

    /// How long the switch has after that; a test's
    #[arg(long, hide = true, value_name = "TIME", requires = "prove")]
    pub within: Option<SpanWord>,
}

struct TrialAttempt {
    trial: Trial,
    within: Span,
    dir: JobDir,
    /// Shows `lamp status` that this process drives the job.
    _driving: Option<DrivingLock>,
}

struct ProofRun<'a> {
    context: &'a Context,
    workstation: Workstation,
    store: StoreHandle,
    controller: Controller,
    account: String,
    region: String,
}

/// # Errors
/// Fails when something is missing, the user declines, no machine is available, or Ctrl-C was
/// pressed.
pub async fn run(args: &ProofArgs, context: &Context) -> Result<ExitCode, Fault> {
    preflight::refuse_cloud(CloudKind::Aws)?;
    let workstation = job_root::workstation(context)?;
    let account = proof_gate::account(&workstation).await?;
    let home = workstation.aws_regions(&[]).await.into_iter().next().unwrap_or_default();
    let store = job_root::open(context).await?;
    let controller = drive::controller(&workstation, &store)?;
    let region = args.region.clone().unwrap_or(home);
    // A wrong clock stops every launch, and the user waits: check it first.
    controller.check_clock().await.map_err(|error| clock_fault(&error))?;
    let desk = ProofRun { context, workstation, store, controller, account, region };
    let sweeper = desk.sweeper().await;
    let planned = desk.plans(args, &sweeper).await?;
    let most: Usd = planned.iter().filter_map(|(.., planned)| planned.plan.most_whichever()).sum();
    for (trial, _, planned) in &planned {
        let offer = &planned.plan.offer;
        context.printer.note(format!(
            "{}: {} in {}, {}, no agent, a lease of {}; at most {}",
            trial.switch,
            offer.instance_type,
            offer.zone,
            offer.price,
            trial.lease,
            planned.plan.most_whichever().unwrap_or_default()
        ));
    }
    let what = format!(
        "this buys {} in {}, which cost at most {most}",
        counted(planned.len() as u64, "machine"),
        desk.region
    );
    confirm::confirm(context, &what, args.yes, "nothing was started or billed")?;
    // A Ctrl-C during the launches takes effect after them, and ends them.
    let mut left = pin!(ctrl_c::left());
    let _not_yet = left.as_mut().now_or_never();
    let (attempts, memories) = desk.begin(planned).await?;
    desk.watch(&attempts, memories, left).await?;
    desk.conclude(&attempts, sweeper).await
}

impl ProofRun<'_> {
    async fn plans(
        &self,
        args: &ProofArgs,
        sweeper: &Expected,
    ) -> Result<Vec<(Trial, ResolvedSpec, Planned)>, Fault> {
        let mut switches = vec![Switch::DeadlineUnit];
        let daemon = self.workstation.daemon_runs();
        if daemon || sweeper.is_tried() {
            switches.push(Switch::Sweep);
        }
        prove_sweeper::tell(self.context, sweeper, daemon);
        let types = if args.instance_type.is_empty() {
            shutdown_proof::TYPES.map(str::to_owned).to_vec()
        } else {
            args.instance_type.clone()
        };
        let mut plans = Vec::new();
        for switch in switches {
            let trial = Trial {
                switch,
                lease: args.lease.as_ref().map_or(shutdown_proof::LEASE, |lease| lease.0),
            };
            let within =
                args.within.as_ref().map_or(shutdown_proof::within(switch), |within| within.0);
            let spec = self.spec(trial, within, &types);
            let terminal = Terminal::new(self.context, false);
            let session = terminal.session(&self.store)?;
            let (planned, lacks) = account_ready::planned(&session, &self.controller, &spec).await;
            account_ready::refuse(&lacks, &spec)?;
            let planned = planned?;
            if let Some(reason) = first_plan::held_back(&self.controller, &planned).await? {
                return Err(Fault::new(
                    ExitCode::REFUSED,
                    format!("the proof would wait for {reason}"),
                )
                .meaning("nothing was started or billed"));
            }
            plans.push((trial, spec, planned));
        }
        Ok(plans)
    }

    fn spec(&self, trial: Trial, within: Span, types: &[String]) -> ResolvedSpec {
        let created = self.context.clock.now();
        let spec = shutdown_proof::spec(&trial, within, created, &self.region, types);
        ResolvedSpec {
            format: RECORD_FORMAT,
            job: JobId::from_name(&spec.name, wire::random_letters()),
            created,
            written_by: format!("lamp {}", env!("CARGO_PKG_VERSION")),
            spec,
            code: None,
            origins: Default::default(),
            applied: None,
            owner: Some(self.context.config.user.owner.clone()),
            continues: None,
            trial: Some(trial),
            tuned: None,
        }
    }

    async fn sweeper(&self) -> Expected {
        prove_sweeper::look(self.context, &self.workstation, &self.store).await
    }

    /// Records each intent before its launch. If one fails, the earlier trials are ended.
    async fn begin(
        &self,
        planned: Vec<(Trial, ResolvedSpec, Planned)>,
    ) -> Result<(Vec<TrialAttempt>, Vec<JobMemory>), Fault> {
        let (mut attempts, mut memories) = (Vec::new(), Vec::new());
        for (trial, spec, planned) in planned {
            let dir = JobDir::new(self.store.clone(), spec.job.clone());
            let _driving = self.workstation.lock_driving(spec.job.as_str());
            let within = Span::from_duration(
                spec.spec.limits.boot.duration().saturating_sub(trial.lease.duration()),
            );
            match self.controller.begin(&dir, &spec, planned).await {
                Ok((memory, begun)) => {
                    attempts.push(TrialAttempt { trial, within, dir, _driving });
                    match begun {
                        Err(error @ ActError::ClockOff { .. }) => {
                            self.end(&attempts).await;
                            return Err(clock_fault(&error));
                        }
                        Err(error) => self
                            .context
                            .printer
                            .warn(format!("not launched yet, trying again: {error}")),
                        Ok(()) => {}
                    }
                    memories.push(memory);
                }
                Err(error) => {
                    let mut fault = crate::app::launch::packed_job::submit_fault(&error);
                    // It may exist all the same, and another controller would launch it.
                    if matches!(error, SubmitError::Unsure { .. }) {
                        self.context.printer.warn(format!("{}: cancelling it", fault.sentence()));
                        attempts.push(TrialAttempt { trial, within, dir: dir.clone(), _driving });
                    }
                    self.end(&attempts).await;
                    if let Ok(Some(_)) = dir.receipt().await {
                        fault = fault.meaning("it was, and it has been cancelled: nothing of it runs or bills, and the proof failed");
                    }
                    return Err(fault);
                }
            }
        }
        Ok((attempts, memories))
    }

    /// Drives every job to its receipt. Ctrl-C ends the machines first.
    async fn watch(
        &self,
        attempts: &[TrialAttempt],
        memories: Vec<JobMemory>,
        left: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Fault> {
        let jobs: Vec<String> =
            attempts.iter().map(|attempt| attempt.dir.job().to_string()).collect();
        let patience = attempts
            .iter()
            .map(|attempt| attempt.trial.lease.duration() + attempt.within.duration())
            .max()
            .unwrap_or_default();
        let until = crate::app::text::local_time(
            self.context.clock.now().saturating_add(patience).unwrap_or(Timestamp::MAX),
        );
        self.context.printer.note(format!(
            "watching {}: what still runs at {until} is ended then; Ctrl-C ends it now",
            jobs.join(" and ")
        ));
        let driven = attempts
            .iter()
            .zip(memories)
            .map(|(attempt, memory)| self.controller.drive_on(attempt.dir.job(), memory));
        let mut drive = pin!(join_all(driven));
        let told =
            || format!("waiting for the end of {}", counted(attempts.len() as u64, "machine"));
        let watched = tokio::select! {
            biased;
            driven = with_progress(self.context, told, &mut drive) => Some(driven),
            () = left => None,
        };
        if let Some(driven) = watched {
            return self.all_driven(driven, attempts);
        }
        self.context
            .printer
            .note("ending the machines; Ctrl-C again leaves that to a process in the background");
        self.cancel(attempts).await;
        let ended = tokio::select! {
            biased;
            _ = &mut drive => true,
            () = ctrl_c::left() => false,
        };
        if !ended {
            self.leave(attempts);
        }
        let meaning = if ended {
            "its machines have ended"
        } else {
            "another process ends its machines; `lamp sweep` shows whether any is left"
        };
        Err(Fault::new(ExitCode::CTRL_C, "the proof was broken off")
            .meaning(format!("{meaning}, and nothing was proven")))
    }

    /// A job whose records are gone cannot be driven, but its machine must still end.
    fn all_driven(
        &self,
        driven: Vec<Result<Receipt, DriveError>>,
        attempts: &[TrialAttempt],
    ) -> Result<(), Fault> {
        match driven.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) => {
                self.leave(attempts);
                Err(drive::drive_fault(&error)
                    .hint("`lamp sweep` shows whether a machine is left, and ends it"))
            }
        }
    }

    async fn cancel(&self, attempts: &[TrialAttempt]) {
        for attempt in attempts {
            let wish = attempt
                .dir
                .insist_on(Wish::Cancel, &self.workstation.name, &*self.context.clock)
                .await;
            if let Err(error) = wish {
                // Its limits and its hard cap end it.
                self.context.printer.warn(format!(
                    "{} could not be cancelled, and ends later: {error}",
                    attempt.dir.job()
                ));
            }
        }
    }

    async fn end(&self, attempts: &[TrialAttempt]) {
        self.cancel(attempts).await;
        let drive =
            join_all(attempts.iter().map(|attempt| self.controller.drive(attempt.dir.job())));
        tokio::select! {
            _ = drive => {}
            () = ctrl_c::left() => self.leave(attempts),
        }
    }

    fn leave(&self, attempts: &[TrialAttempt]) {
        for attempt in attempts {
            if let Err(fault) = drive::hand_over(&self.workstation, attempt.dir.job()) {
                self.context.printer.warn(fault.sentence());
            }
        }
    }

    async fn conclude(
        &self,
        attempts: &[TrialAttempt],
        sweeper: Expected,
    ) -> Result<ExitCode, Fault> {
        let mut trials = Vec::new();
        for attempt in attempts {
            match self.tried(attempt).await.map_err(|error| record_errors::record_fault(&error))? {
                Ok(tried)
                    if is_by_another(&tried, &sweeper::name(&self.context.config.user.owner)) =>
                {
                    trials.push(stands_in(tried, &sweeper, &self.sweeper().await));
                }
                Ok(tried) => trials.push(tried),
                Err(fault) => return Err(fault),
            }
        }
        let proof = Proof {
            format: RECORD_FORMAT,
            at: self.context.clock.now(),
            account: self.account.clone(),
            region: self.region.clone(),
            by: self.workstation.name.clone(),
            written_by: format!("lamp {}", env!("CARGO_PKG_VERSION")),
            passed: trials.iter().all(|tried| tried.proven),
            trials,
            sweeper_unknown: if let Expected::Unknown(why) = sweeper { Some(why) } else { None },
        };
        let kept = ProofDir::new(self.store.clone(), &self.account).put(&proof).await;
        show(self.context, &proof);
        kept.map_err(|error| {
            record_errors::record_fault(&error)
                .meaning("the machines have ended, and what they have proven is not recorded")
        })?;
        Ok(if proof.passed { ExitCode::SUCCESS } else { ExitCode::NOT_PROVED })
    }

    async fn tried(
        &self,
        TrialAttempt { trial, within, dir, .. }: &TrialAttempt,
    ) -> Result<Result<Tried, Fault>, JobDirError> {
        let receipt = dir.receipt().await?;
        if let Some(receipt) =
            receipt.as_ref().filter(|receipt| receipt.outcome == JobOutcome::Cancelled)
        {
            let what = format!("{} was cancelled: {}", dir.job(), receipt.reason);
            return Ok(Err(Fault::new(ExitCode::STOPPED, what)
                .meaning("its machine has ended, and nothing was proven")));
        }
        // Earlier attempts found no machine.
        if let Some(number) = dir.attempts().await?.into_iter().next_back()
            && let (Some(plan), Some(settled)) =
                (dir.plan(number).await?, dir.settled(number).await?)
            && let ending = dir.ending(number).await?
            && let Some(tried) = shutdown_proof::judge(
                trial,
                *within,
                &AttemptRecord { plan: plan.into(), settled: settled.into() },
                ending.as_ref(),
            )
        {
            return Ok(Ok(tried));
        }
        let why = receipt.map_or_else(|| "no word of it".to_owned(), |receipt| receipt.reason);
        Ok(Err(Fault::new(
            ExitCode::LAUNCH_FAILED,
            format!("no machine was to be had for the {} trial: {why}", trial.switch),
        )
        .meaning("nothing bills, and the proof failed")
        .hint("`--instance-type` names another type, `--region` another region")))
    }
}

fn clock_fault(error: &ActError) -> Fault {
    Fault::from_error(ExitCode::REFUSED, error)
        .meaning("no machine is left, and the proof failed")
        .hint("set this workstation's clock; `lamp doctor` shows how far off it is")
}

fn show(context: &Context, proof: &Proof) {
    let until = shutdown_proof::good_until(proof);
    if context.is_machine_output() {
        let mut value = json!(proof);
        value["good_until"] = json!(proof.passed.then_some(until));
        context.printer.json(&value);
        return;
    }
    let printer = &context.printer;
    for tried in &proof.trials {
        let (word, style) =
            if tried.proven { ("proven", Style::Good) } else { ("FAILED", Style::Bad) };
        let Tried { instance, instance_type, zone, after_lease, lease, within, .. } = tried;
        printer.prose(
            8,
            format!(
                "{}  {}: {instance} ({instance_type} in {zone}) had ended {after_lease} after its lease of {lease}, and {within} is the most: {}",
                printer.paint(Stream::Out, style, word),
                tried.switch,
                tried.said
            ),
        );
    }
    if proof.passed {
        let until = until.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d");
        printer.note(format!(
            "machines of account {} in {} end by themselves; the proof is good until {until}",
            proof.account, proof.region
        ));
    } else {
        printer
            .warn("NOT PROVEN: a machine without a driver may bill on here; until a proof passes, `lamp run --detach` is refused in this region");
        printer.hint("`lamp doctor` looks at the sweeper and the role; `lamp receipt` says how each machine has ended");
    }
    if let Some(less) = shutdown_proof::not_tried(proof, &context.config.user.owner) {
        printer.note(less);
    }
}
