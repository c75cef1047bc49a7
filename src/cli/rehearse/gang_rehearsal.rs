//! `lamp rehearse` of a gang: takes a machine away, and proves that all saved, that it
//! formed again, and that it went on.
//!
//! ```text
//!   all ranks work ── notice to one rank ── checkpoint complete? then cut its power
//!     ── epoch 2 with all ranks ── a later step, or a new checkpoint ── checklist
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::evidence::{RehearsalCheck, bad, good, secs};
use super::rehearsed_job::clear_stored;
use super::report::proved_by;
use super::resume_watch::FIRST_STEP_WITHIN;
use crate::app::gang::ask_ranks::ask_ranks;
use crate::app::gang::gang_jobs::all_ranks;
use crate::app::launch::gang_start::GangStart;
use crate::app::launch::packed_job;
use crate::app::launch::submission::Submission;
use crate::app::{drive, record_errors};
use crate::cli::run::run;
use crate::cli::shell::terminal::Terminal;
use crate::cli::shell::{ctrl_c, job_root};
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::Controller;
use crate::job::other_members;
use crate::job::{CheckpointNo, Formation, JobId, Receipt, ResolvedSpec, Wish};
use crate::jobdir::{GangDir, JobDir, JobDirError};
use crate::market::Span;
use crate::wire::Workstation;

const LOOK_EVERY: Duration = Duration::from_millis(300);

/// A gang on one workstation is together in seconds, after the setup of each rank.
const FORMED_WITHIN: Duration = Duration::from_secs(600);

/// The taken machine is cut, seen as gone, replaced, and its setup runs again.
const AGAIN_WITHIN: Duration = Duration::from_secs(600);

/// A script that reports no step is interrupted this long after its ranks came together.
const WORKS_WITHIN: Duration = Duration::from_secs(60);

/// A cancelled rank ends within its grace and the power-off.
const ENDED_WITHIN: Duration = Duration::from_secs(180);

/// How one machine is interrupted.
#[derive(Clone, Copy, Debug)]
pub struct GangCut {
    pub interrupt_after: Span,
    pub notice: Span,
    /// The job runs to its end afterwards.
    pub to_end: bool,
    /// The rank that loses its machine; `None`: the last one.
    pub rank: Option<u32>,
}

/// The job, its checklist, and its receipt if it has ended.
pub struct GangRehearsed {
    pub job: JobId,
    pub checks: Vec<RehearsalCheck>,
    pub receipt: Option<Receipt>,
}

/// Whether the checklist proves that the gang goes on without one of its machines.
pub fn proved(checks: &[RehearsalCheck]) -> bool {
    proved_by(checks, &["formed", "formed_again", "resumed", "went_on"])
}

/// # Errors
/// Fails when the job root is unreachable, or a rank cannot be made.
pub async fn run(
    cut: GangCut,
    context: &Context,
    submission: &Submission,
) -> Result<GangRehearsed, Fault> {
    let workstation = job_root::workstation(context)?;
    let store = job_root::open(context).await?;
    let controller = drive::controller(&workstation, &store)?;
    let terminal = Terminal::new(context, false);
    let session = terminal.session(&store)?;
    let leader = packed_job::make(&session, &controller, submission).await?;
    let spec = leader.spec().await.map_err(|error| record_errors::record_fault(&error))?;
    let spec = spec.filter(|spec| spec.member().is_some()).ok_or_else(|| {
        Fault::new(ExitCode::INTERNAL, format!("job `{}` lost its gang", leader.job()))
    })?;
    let start = GangStart { session: &session, controller: &controller, leader: &leader };
    start.begin_others(&spec).await?;
    let gang = GangDir::new(Arc::clone(leader.store()), leader.job().clone());
    let ranks = spec.member().map(|member| all_ranks(&leader, member)).unwrap_or_default();
    let savers = savers(&spec);
    let rehearsal = GangRehearsal { cut, context, workstation: &workstation, gang, ranks, savers };
    let checks = rehearsal.play(&controller, &leader).await?;
    if !rehearsal.cut.to_end {
        rehearsal.clear().await;
    }
    let receipt = leader.receipt().await.ok().flatten();
    Ok(GangRehearsed { job: leader.job().clone(), checks, receipt })
}

/// The ranks that save: each has the part of the job file that says where.
fn savers(leader: &ResolvedSpec) -> Vec<usize> {
    let others = other_members(leader);
    let specs = std::iter::once(leader).chain(&others).enumerate();
    specs.filter(|(_, spec)| spec.spec.checkpoint.is_some()).map(|(rank, _)| rank).collect()
}

struct GangRehearsal<'a> {
    cut: GangCut,
    context: &'a Context,
    workstation: &'a Workstation,
    gang: GangDir,
    ranks: Vec<JobDir>,
    /// The ranks that save.
    savers: Vec<usize>,
}

impl GangRehearsal<'_> {
    async fn play(
        &self,
        controller: &Controller,
        leader: &JobDir,
    ) -> Result<Vec<RehearsalCheck>, Fault> {
        let _driving = self.workstation.lock_driving(leader.job().as_str());
        let drive = controller.drive(leader.job());
        tokio::pin!(drive);
        let fault = |error: JobDirError| record_errors::record_fault(&error);
        let checks = {
            let fate = self.fate();
            tokio::pin!(fate);
            tokio::select! {
                biased;
                checks = &mut fate => checks.map_err(fault),
                () = ctrl_c::left() => Err(Fault::new(ExitCode::CTRL_C, "the rehearsal was broken off").meaning("its jobs were cancelled")),
                driven = &mut drive => {
                    driven.map_err(|error| drive::drive_fault(&error))?;
                    let what = "the job ended before its interruption was over";
                    let hint = "`lamp logs` shows what it printed; a longer run, or a shorter --interrupt-after, leaves time";
                    return Ok(vec![bad("interrupted", what, hint)]);
                }
            }
        };
        if checks.is_err() || !self.cut.to_end {
            self.cancel_all().await;
        }
        tokio::select! {
            biased;
            driven = &mut drive => driven.map(drop).map_err(|error| drive::drive_fault(&error))?,
            () = ctrl_c::left() => run::leave(self.context, self.workstation, leader)?,
        }
        checks
    }

    /// Removes what the ranks stored, when their jobs have ended.
    async fn clear(&self) {
        let until = self.context.clock.mono() + ENDED_WITHIN;
        for dir in &self.ranks {
            while !matches!(dir.receipt().await, Ok(Some(_))) && self.context.clock.mono() < until {
                self.pause().await;
            }
            clear_stored(self.context, self.workstation, dir).await;
        }
    }

    async fn cancel_all(&self) {
        let by = &self.workstation.name;
        let found = ask_ranks(&self.ranks, Wish::Cancel, by, &self.context.clock).await;
        for (job, error) in &found.failed {
            self.context.printer.warn(format!("{job} could not be cancelled: {error}"));
        }
    }

    async fn wish(&self, dir: &JobDir, wish: Wish) -> Result<(), JobDirError> {
        dir.insist_on(wish, &self.workstation.name, &*self.context.clock).await.map(drop)
    }

    async fn fate(&self) -> Result<Vec<RehearsalCheck>, JobDirError> {
        let mut checks = Vec::new();
        let Some(first) = self.formation_after(0, FORMED_WITHIN).await? else {
            let hint = "`lamp logs --rank N` shows what a rank printed, `lamp explain` its setup";
            checks.push(bad("formed", "the ranks did not come together", hint));
            return Ok(checks);
        };
        let took = first.members.iter().map(|ready| ready.at).min().unwrap_or(first.at);
        checks.push(
            good("formed", format!("{} ranks came together", first.members.len()))
                .took(secs(took, first.at)),
        );
        self.works(&first).await?;
        self.say(format!("all ranks run; interrupting one in {}", self.cut.interrupt_after));
        self.context.clock.sleep(self.cut.interrupt_after.duration()).await;
        let last = first.members.last().map_or(0, |last| last.rank);
        let victim = self.cut.rank.filter(|rank| first.member(*rank).is_some()).unwrap_or(last);
        let dir = &self.ranks[victim as usize];
        let asked = self.context.clock.now();
        let before = self.newest_checkpoints().await?;
        self.wish(dir, Wish::Interrupt { notice: self.cut.notice }).await?;
        if self.cut.notice > Span::ZERO {
            self.say(format!("rank {victim} has a notice of {}", self.cut.notice));
            checks.push(self.all_saved(&before, asked, victim).await?);
            self.wish(dir, Wish::Interrupt { notice: Span::ZERO }).await?;
        }
        self.say(format!("the machine of rank {victim} is cut; waiting for the next epoch"));
        let Some(again) = self.formation_after(first.epoch, AGAIN_WITHIN).await? else {
            let hint =
                "`lamp explain` shows the epochs; `hold` in [gang] says how long the others wait";
            checks.push(bad("formed_again", "the gang did not form again", hint));
            return Ok(checks);
        };
        checks.push(formed_again(&first, &again, victim, asked));
        let saved = self.ranks[0].newest_checkpoint().await?.and_then(|newest| newest.step);
        let (on, step) = self.went_on(&again).await?;
        checks.push(resumed(saved, step));
        checks.push(on);
        Ok(checks)
    }

    /// Waits until rank 0 reports a step: an engine may load its libraries for a minute.
    async fn works(&self, formation: &Formation) -> Result<(), JobDirError> {
        let until = self.context.clock.mono() + WORKS_WITHIN;
        while self.context.clock.mono() < until {
            let step = self.step_after(formation).await?;
            if step.is_some() || self.gang.over(formation.epoch).await?.is_some() {
                return Ok(());
            }
            self.pause().await;
        }
        Ok(())
    }

    /// The first formation after this epoch.
    async fn formation_after(
        &self,
        epoch: u32,
        within: Duration,
    ) -> Result<Option<Formation>, JobDirError> {
        let until = self.context.clock.mono() + within;
        while self.context.clock.mono() < until {
            for later in self.gang.epochs().await?.into_iter().filter(|later| *later > epoch) {
                if let Some(formation) = self.gang.formation(later).await? {
                    return Ok(Some(formation));
                }
            }
            if self.gang.end().await?.is_some() {
                return Ok(None);
            }
            self.pause().await;
        }
        Ok(None)
    }

    /// The newest checkpoint of each rank that saves.
    async fn newest_checkpoints(&self) -> Result<Vec<(usize, Option<CheckpointNo>)>, JobDirError> {
        let mut found = Vec::new();
        for rank in &self.savers {
            found.push((*rank, self.ranks[*rank].checkpoint_numbers().await?.pop()));
        }
        Ok(found)
    }

    /// Whether each rank that saves has a newer complete checkpoint.
    async fn all_saved(
        &self,
        before: &[(usize, Option<CheckpointNo>)],
        asked: Timestamp,
        victim: u32,
    ) -> Result<RehearsalCheck, JobDirError> {
        let until = self.context.clock.mono() + self.cut.notice.duration();
        let mut missing: Vec<usize> = before.iter().map(|(rank, _)| *rank).collect();
        while !missing.is_empty() && self.context.clock.mono() < until {
            let mut left = Vec::new();
            for (rank, newest) in before.iter().filter(|(rank, _)| missing.contains(rank)) {
                let now =
                    self.ranks[*rank].newest_checkpoint().await?.map(|manifest| manifest.number);
                if now.is_none() || now <= *newest {
                    left.push(*rank);
                }
            }
            missing = left;
            self.pause().await;
        }
        let took = secs(asked, self.context.clock.now());
        if missing.is_empty() {
            let text = match before.len() {
                1 if victim == 0 => {
                    "rank 0 saved a complete checkpoint after its notice".to_owned()
                }
                1 => {
                    "rank 0 saved a complete checkpoint after the notice to another rank".to_owned()
                }
                several => format!("all {several} ranks saved a complete checkpoint"),
            };
            return Ok(good("saved", text).took(took));
        }
        let names: Vec<String> = missing.iter().map(usize::to_string).collect();
        Ok(bad(
            "saved",
            format!("no complete checkpoint of rank {} within the notice", names.join(", ")),
            "`signal = \"SIGUSR1\"` in [checkpoint] asks the script to save; `lamp rehearse` of one machine says more",
        ))
    }

    /// A later step or a new checkpoint shows that the next epoch works.
    async fn went_on(
        &self,
        again: &Formation,
    ) -> Result<(RehearsalCheck, Option<f64>), JobDirError> {
        let before = self.newest_checkpoints().await?;
        let until = self.context.clock.mono() + FIRST_STEP_WITHIN;
        let reports = self.reports_steps(again).await?;
        while self.context.clock.mono() < until {
            if let Some(step) = self.step_after(again).await? {
                let took = secs(again.at, self.context.clock.now());
                let check = good("went_on", format!("it went on: step {step}")).took(took);
                return Ok((check, Some(step)));
            }
            let now = self.newest_checkpoints().await?;
            if !reports && now.iter().zip(&before).any(|(now, before)| now.1 > before.1) {
                let took = secs(again.at, self.context.clock.now());
                let check = good("went_on", "it went on: a new checkpoint came".into());
                return Ok((check.took(took), None));
            }
            if let Some(over) = self.gang.over(again.epoch).await? {
                let what = format!("the second epoch is over: {}", over.text);
                let check = bad("went_on", what, "`lamp logs` shows what the ranks printed");
                return Ok((check, None));
            }
            self.pause().await;
        }
        let what = "the second epoch reported neither a step nor a checkpoint";
        let hint = "a script that writes its step to LAMP_PROGRESS shows that it goes on";
        Ok((bad("went_on", what, hint), None))
    }

    /// Whether rank 0 reports steps at all.
    async fn reports_steps(&self, formation: &Formation) -> Result<bool, JobDirError> {
        let Some(first) = formation.member(0) else { return Ok(false) };
        let status = self.ranks[0].status(first.attempt).await?;
        Ok(status.and_then(|status| status.progress).is_some_and(|at| at.step.is_some()))
    }

    /// A step that rank 0 reported in this epoch.
    async fn step_after(&self, formation: &Formation) -> Result<Option<f64>, JobDirError> {
        let Some(first) = formation.member(0) else { return Ok(None) };
        let status = self.ranks[0].status(first.attempt).await?;
        let progress = status.and_then(|status| status.progress);
        let is_new = |at: Option<Timestamp>| at.is_some_and(|at| at > formation.at);
        Ok(progress.filter(|progress| is_new(progress.at)).and_then(|progress| progress.step))
    }

    fn say(&self, text: String) {
        self.context.printer.note(text);
    }

    async fn pause(&self) {
        self.context.clock.sleep(LOOK_EVERY).await;
    }
}

fn formed_again(
    first: &Formation,
    again: &Formation,
    victim: u32,
    asked: Timestamp,
) -> RehearsalCheck {
    let attempt = |formation: &Formation| formation.member(victim).map(|member| member.attempt);
    let ranks = again.members.len();
    if ranks == first.members.len() && attempt(again) <= attempt(first) {
        return bad(
            "formed_again",
            format!("the gang formed again, and rank {victim} is on the same machine"),
            "the machine was not taken away: `lamp explain` shows what became of it",
        );
    }
    good(
        "formed_again",
        format!("the gang formed again with {ranks} of {} ranks", first.members.len()),
    )
    .took(secs(asked, again.at))
}

/// Whether the second epoch began from the checkpoint. `saved`: its step; `step`: the first one
/// that came.
fn resumed(saved: Option<f64>, step: Option<f64>) -> RehearsalCheck {
    match (saved, step) {
        (Some(saved), Some(step)) if step < saved => bad(
            "resumed",
            format!("rank 0 was at step {step} again, and its checkpoint is of step {saved}"),
            "the script must load the newest file in LAMP_CHECKPOINT_DIR when it starts",
        ),
        (Some(saved), Some(_)) => {
            good("resumed", format!("it began from the checkpoint of step {saved}"))
        }
        (None, _) => bad(
            "resumed",
            "no checkpoint was complete, so the second epoch began from the start",
            "a shorter `interval` in [checkpoint] keeps one earlier; --interrupt-after waits longer",
        ),
        _ => bad(
            "resumed",
            "no step shows where the second epoch began",
            "a script that writes its step to LAMP_PROGRESS shows that it resumes",
        ),
    }
}
