//! `lamp rehearse`: runs the job here, interrupts it on purpose, and proves that it resumes.
//!
//! ```text
//!   run ── notice ── checkpoint complete? then cut the power ── attempt 2 ── checklist
//! ```

use std::collections::HashSet;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::Serialize;

use super::evidence::{Evidence, RehearsalCheck, notice};
use super::gang_rehearsal::{self, GangCut, GangRehearsed};
use super::missing_proof::{is_hopeless, never_rests};
use super::python_environment;
use super::rehearsed_job::{RehearsedJob, clear_stored};
use super::report::{checks, proved, saved};
use super::resume_watch::FIRST_STEP_WITHIN;
use crate::app::drive;
use crate::app::launch::packed_job;
use crate::app::launch::submission::Submission;
use crate::app::record_errors;
use crate::cli::run::run;
use crate::cli::shell::terminal::Terminal;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault, JobArgs, Stream, Style};
use crate::controller::Controller;
use crate::job::{AttemptNo, EndedBecause, GangSpec, MarketChoice, REHEARSAL, Receipt, Wish};
use crate::jobdir::{EventDetail, JobDirError};
use crate::market::{CloudKind, Span};

/// Run a job here, interrupt it on purpose, and prove that it resumes
///
/// Ends with 0 when everything was proved and with 109 (not-proved) when something is missing.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,

    /// Interrupt after this much time of running
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub interrupt_after: Span,

    /// How much notice is given; AWS gives two minutes, and 0s cuts the power without one
    #[arg(long, value_name = "TIME", default_value = "120s")]
    pub notice: Span,

    /// The rank that loses its machine, in a job of several machines [default: the last]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,

    /// Let the job run to its end afterwards, and keep what it stored
    #[arg(long)]
    pub to_end: bool,

    /// Run all of the setup, as a machine does, although an environment is here
    #[arg(long)]
    pub install: bool,
}

#[derive(Serialize)]
struct RehearsalReport<'a> {
    proved: bool,
    job: Option<&'a str>,
    checks: &'a [RehearsalCheck],
    /// The end of the job, with --to-end.
    receipt: Option<&'a Receipt>,
}

/// Without a save, the second attempt only shows whether there was an older checkpoint.
const NOTHING_TO_PROVE_WITHIN: Duration = Duration::from_secs(20);

/// The machine is gone seconds after the last event of the notice.
const CUT_MARGIN: Duration = Duration::from_secs(60);

/// # Errors
/// Fails when the job has errors, cannot ship, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let mut submission = args.job.prepare_unbought(context)?;
    let spec = &mut submission.loaded.spec;
    spec.machine.cloud = CloudKind::Local;
    spec.machine.market = MarketChoice::Spot;
    spec.interruptions.max = spec.interruptions.max.max(1);
    spec.name = format!("{}{REHEARSAL}", spec.name);
    let mut evidence = Evidence {
        checkpoint: spec.checkpoint.clone(),
        notice: args.notice,
        ..Evidence::default()
    };
    if evidence.checkpoint.is_none() {
        let checks = checks(&evidence);
        return Ok(report(context, None, (&checks, proved(&checks)), None));
    }
    refuse_unknown_rank(args.rank, submission.loaded.spec.gang.as_deref())?;
    let is_taken_as_it_is = !args.install && use_what_is_here(context, &mut submission);
    if submission.loaded.spec.gang.is_some() {
        return rehearse_gang(args, context, &submission).await;
    }
    let stage = Rehearsal::build(args, context, &submission).await?;
    let receipt = match stage.play(&mut evidence).await {
        Ok(receipt) => receipt,
        Err(fault) => {
            // The controller ends a job that still runs, and its stored data stays.
            if !args.to_end && stage.job.dir.receipt().await.is_ok_and(|receipt| receipt.is_some())
            {
                stage.clear().await;
            }
            return Err(fault);
        }
    };
    let checks = checks(&evidence);
    // A script that ended by itself may have left results for the user.
    let has_results = evidence.ended_early.is_some()
        || evidence.again.ended.as_ref().is_some_and(|(in_order, _)| *in_order);
    if !args.to_end && !has_results {
        stage.clear().await;
    }
    if is_taken_as_it_is && !proved(&checks) {
        context.printer.hint("`lamp rehearse --install` runs the whole setup, as a machine does, in place of the environment that is here");
    }
    Ok(report(
        context,
        Some(stage.job.dir.job().as_str()),
        (&checks, proved(&checks)),
        receipt.as_ref().filter(|_| args.to_end),
    ))
}

async fn rehearse_gang(
    args: &Args,
    context: &Context,
    submission: &Submission,
) -> Result<ExitCode, Fault> {
    let (interrupt_after, notice, to_end) = (args.interrupt_after, args.notice, args.to_end);
    let cut = GangCut { interrupt_after, notice, to_end, rank: args.rank };
    let GangRehearsed { job, checks, receipt } =
        gang_rehearsal::run(cut, context, submission).await?;
    let proved = gang_rehearsal::proved(&checks);
    let receipt = receipt.as_ref().filter(|_| args.to_end);
    Ok(report(context, Some(job.as_str()), (&checks, proved), receipt))
}

/// `gang`: none for a job of one machine.
fn refuse_unknown_rank(rank: Option<u32>, gang: Option<&GangSpec>) -> Result<(), Fault> {
    let Some(rank) = rank else { return Ok(()) };
    let (what, hint) = match gang.map(|gang| gang.nodes.max) {
        Some(ranks) if rank < ranks => return Ok(()),
        Some(ranks) => (
            format!("the job has no rank {rank}"),
            format!("its ranks are 0 to {}", ranks.saturating_sub(1)),
        ),
        None => (
            format!("the job has one machine, and so no rank {rank}"),
            "leave out `--rank`".to_owned(),
        ),
    };
    Err(Fault::new(ExitCode::USAGE, what).meaning("nothing was started").hint(hint))
}

/// Uses the existing environment: another one may take minutes and gigabytes. Returns whether there
/// is one.
fn use_what_is_here(context: &Context, submission: &mut Submission) -> bool {
    let Some(found) =
        python_environment::find(&submission.loaded.workdir, context.environment.python.clone())
    else {
        return false;
    };
    let path = context.environment.path.as_ref().and_then(|path| path.to_str());
    let is_used = python_environment::use_it(&mut submission.loaded.spec, &found, path);
    if is_used {
        context.printer.note(format!("uses the Python environment {} and installs nothing; `--install` does as a machine would", found.display()));
    }
    is_used
}

struct Rehearsal<'a> {
    args: &'a Args,
    controller: Controller,
    job: RehearsedJob<'a>,
}

impl<'a> Rehearsal<'a> {
    async fn build(
        args: &'a Args,
        context: &'a Context,
        submission: &Submission,
    ) -> Result<Self, Fault> {
        let workstation = job_root::workstation(context)?;
        let store = job_root::open(context).await?;
        let controller = drive::controller(&workstation, &store)?;
        let terminal = Terminal::new(context, false);
        let dir = packed_job::make(&terminal.session(&store)?, &controller, submission).await?;
        context.printer.note(format!("job {}; `lamp logs -f {0}` shows its output", dir.job()));
        let log_pattern = submission.loaded.spec.watch.log_pattern.is_some();
        let job = RehearsedJob { context, workstation, dir, log_pattern };
        Ok(Rehearsal { args, controller, job })
    }

    /// Drives the job and plays the interruption. Returns the receipt at the end of the job.
    async fn play(&self, evidence: &mut Evidence) -> Result<Option<Receipt>, Fault> {
        let _driving = self.job.workstation.lock_driving(self.job.dir.job().as_str());
        let drive = self.controller.drive(self.job.dir.job());
        tokio::pin!(drive);
        let played = {
            let fate = self.fate(evidence);
            tokio::pin!(fate);
            tokio::select! {
                biased;
                played = &mut fate => played.map_err(|error| record_errors::record_fault(&error)),
                () = ctrl_c::left() => Err(Fault::new(ExitCode::CTRL_C, "the rehearsal was broken off").meaning("its job was cancelled")),
                // The job is over; `fate` sees that in the records and reports it.
                driven = &mut drive => {
                    driven.map_err(|error| drive::drive_fault(&error))?;
                    fate.await.map_err(|error| record_errors::record_fault(&error))?;
                    return self.job.dir.receipt().await.map_err(|error| record_errors::record_fault(&error));
                }
            }
        };
        let cancelled = if played.is_err() || !self.args.to_end {
            self.wish(Wish::Cancel).await
        } else {
            Ok(())
        };
        let driven = match cancelled {
            Err(error) => Err(record_errors::record_fault(&error)),
            Ok(()) => tokio::select! {
                biased;
                driven = &mut drive => driven.map_err(|error| drive::drive_fault(&error)),
                () = ctrl_c::left() => Err(Fault::new(ExitCode::CTRL_C, "the rehearsal was broken off")),
            },
        };
        if driven.is_err() {
            // This process stops waiting, but the machine must still end.
            run::leave(self.job.context, &self.job.workstation, &self.job.dir)?;
        }
        played?;
        driven.map(Some)
    }

    async fn clear(&self) {
        let job = &self.job;
        clear_stored(job.context, &job.workstation, &job.dir).await;
    }

    async fn fate(&self, evidence: &mut Evidence) -> Result<(), JobDirError> {
        let (first, second) = (AttemptNo::FIRST, AttemptNo::FIRST.next());
        let say = |text: String| self.job.context.printer.note(text);
        if !self.job.runs(first, Duration::MAX, async || Ok(())).await? {
            evidence.first = self.job.dir.events(first).await?;
            evidence.ended_early = Some(self.why_ended().await?);
            return Ok(());
        }
        say(format!("running; interrupting in {}", self.args.interrupt_after));
        if self.ended_within(self.args.interrupt_after.duration()).await? {
            evidence.first = self.job.dir.events(first).await?;
            evidence.ended_early = Some(self.why_ended().await?);
            return Ok(());
        }
        if self.args.notice == Span::ZERO {
            say("the power is cut without a notice".into());
        }
        self.wish(Wish::Interrupt { notice: self.args.notice }).await?;
        if self.args.notice > Span::ZERO {
            say(format!(
                "a notice of {} is served; waiting for a complete checkpoint",
                self.args.notice
            ));
            self.notice_passes(first, evidence).await?;
        }
        self.settled(first, evidence).await?;
        // The work may end by itself between the notice and its end: then nothing is proved or
        // wrong.
        let because = evidence.first_settled.as_ref().map(|settled| settled.because);
        if matches!(because, Some(EndedBecause::Succeeded | EndedBecause::Failed)) {
            evidence.ended_early = Some(self.why_ended().await?);
            return Ok(());
        }
        say("the machine is gone; waiting for the second attempt".into());
        let is_kept =
            evidence.first.iter().any(|event| matches!(event.what, EventDetail::Checkpoint { .. }));
        self.job
            .goes_on(
                second,
                evidence,
                if is_kept { FIRST_STEP_WITHIN } else { NOTHING_TO_PROVE_WITHIN },
            )
            .await
    }

    /// Waits until the notice ends, a checkpoint is complete, or none can become complete.
    async fn notice_passes(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<(), JobDirError> {
        let saved = self.saved(attempt, evidence).await?;
        let hopeless = !saved
            && never_rests(&evidence.first)
            && self.job.dir.settled(attempt).await?.is_none();
        self.job.context.printer.note(match (saved, hopeless) {
            (true, _) => "the checkpoint is complete; the power is cut",
            (false, true) => "no checkpoint will be complete; the power is cut",
            (false, false) => "no checkpoint was complete in time",
        });
        if saved || hopeless {
            self.wish(Wish::Interrupt { notice: Span::ZERO }).await
        } else {
            Ok(())
        }
    }

    async fn ended_within(&self, time: Duration) -> Result<bool, JobDirError> {
        let until = self.job.context.clock.mono() + time;
        while self.job.context.clock.mono() < until {
            if self.job.over(AttemptNo::FIRST).await? {
                return Ok(true);
            }
            self.job.pause().await;
        }
        self.job.over(AttemptNo::FIRST).await
    }

    /// Waits for a complete checkpoint after the notice, or for the notice's time. Prints the
    /// agent's messages.
    async fn saved(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<bool, JobDirError> {
        let mut said = HashSet::new();
        let until = self.job.context.clock.mono() + self.args.notice.duration() + CUT_MARGIN;
        while self.job.context.clock.mono() < until {
            evidence.first = self.job.dir.events(attempt).await?;
            self.last_step(attempt, evidence).await?;
            if notice(&evidence.first)
                .is_some_and(|notice| saved(&evidence.first, &notice).is_some())
            {
                return Ok(true);
            }
            for event in &evidence.first {
                if let EventDetail::Attention { text } = &event.what
                    && said.insert(text.clone())
                {
                    self.job.context.printer.note(text);
                }
            }
            if self.job.dir.settled(attempt).await?.is_some()
                || is_hopeless(&evidence.first, self.job.context.clock.now())
            {
                return Ok(false);
            }
            self.job.pause().await;
        }
        Ok(false)
    }

    async fn settled(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<(), JobDirError> {
        let until = self.job.context.clock.mono() + self.args.notice.duration() + CUT_MARGIN;
        while self.job.context.clock.mono() < until {
            if let Some(settled) = self.job.dir.settled(attempt).await? {
                let step = settled
                    .outcome
                    .as_ref()
                    .and_then(|outcome| outcome.progress.as_ref())
                    .and_then(|progress| progress.step);
                evidence.last_step = evidence.last_step.or(step);
                evidence.first_settled = Some(settled);
                break;
            }
            self.last_step(attempt, evidence).await?;
            self.job.pause().await;
        }
        evidence.first = self.job.dir.events(attempt).await?;
        Ok(())
    }

    async fn last_step(
        &self,
        attempt: AttemptNo,
        evidence: &mut Evidence,
    ) -> Result<(), JobDirError> {
        evidence.last_step =
            self.job.steps(attempt).await?.map(|(_, last)| last).or(evidence.last_step);
        Ok(())
    }

    async fn why_ended(&self) -> Result<String, JobDirError> {
        let outcome = self.job.dir.outcome(AttemptNo::FIRST).await?;
        let said =
            outcome.and_then(|outcome| outcome.reasons.last().map(|reason| reason.text.clone()));
        let settled =
            self.job.dir.settled(AttemptNo::FIRST).await?.and_then(|settled| settled.cloud_reason);
        Ok(said.or(settled).unwrap_or_else(|| "no reason was left".into()))
    }

    async fn wish(&self, wish: Wish) -> Result<(), JobDirError> {
        self.job
            .dir
            .insist_on(wish, &self.job.workstation.name, &*self.job.context.clock)
            .await
            .map(drop)
    }
}

fn report(
    context: &Context,
    job: Option<&str>,
    (checks, proved): (&[RehearsalCheck], bool),
    receipt: Option<&Receipt>,
) -> ExitCode {
    let printer = &context.printer;
    if context.is_machine_output() {
        printer.json(&RehearsalReport { proved, job, checks, receipt });
    } else {
        for check in checks {
            let (style, word) =
                if check.passed { (Style::Good, "ok  ") } else { (Style::Bad, "FAIL") };
            printer.prose(5, format!("{} {}", printer.paint(Stream::Out, style, word), check.text));
            if let Some(hint) = &check.hint {
                printer.prose(
                    11,
                    format!("     {} {hint}", printer.paint(Stream::Out, Style::Hint, "hint:")),
                );
            }
        }
        let verdict = if proved {
            "proved: an interruption costs this job no more than is said above"
        } else {
            "not proved"
        };
        printer.prose(0, verdict);
        if let Some(receipt) = receipt {
            crate::cli::status::receipt::note(context, receipt);
        }
    }
    if proved { ExitCode::SUCCESS } else { ExitCode::NOT_PROVED }
}
