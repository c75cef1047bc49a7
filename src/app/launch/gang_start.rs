//! Submits and launches the other ranks of a gang, after rank 0.
//!
//! Each rank is a job with its own plan and machine. On AWS one call of rank 0 launches all
//! machines, and the process of each rank finds its own. If a job cannot be made, all are asked to
//! end: an incomplete gang does no work.

use super::{account_ready, first_plan, packed_job};
use crate::app::gang::ask_ranks::ask_ranks;
use crate::app::gang::gang_jobs::{all_ranks, member_of};
use crate::app::gang::gang_report::GangReport;
use crate::app::session::Session;
use crate::app::{ExitCode, Fault, drive, record_errors};
use crate::controller::Controller;
use crate::job::other_members;
use crate::job::{GangMember, JobId, ResolvedSpec, Wish};
use crate::jobdir::JobDir;
use crate::policy::gang::rank_launch::{RankPurchase, rank_purchase};
use std::time::Duration;

/// After rank 0 has its receipt, the others follow within their power-off and `tail`.
const RECEIPTS_WITHIN: Duration = Duration::from_secs(180);
const RECEIPT_LOOK: Duration = Duration::from_millis(300);

/// The job of rank 0 with what it needs to begin the others.
pub struct GangStart<'a> {
    pub session: &'a Session<'a>,
    pub controller: &'a Controller,
    pub leader: &'a JobDir,
}

impl GangStart<'_> {
    /// Makes and launches the other ranks of this job, and lets a process drive each. A job of one
    /// machine has none.
    ///
    /// # Errors
    /// Fails when a rank cannot be made or driven; all ranks are asked to end then.
    pub async fn begin_others(&self, spec: &ResolvedSpec) -> Result<(), Fault> {
        let Some(member) = spec.member() else { return Ok(()) };
        let others = other_members(spec);
        let count = others.len() + 1;
        for mut other in others {
            let begun = async {
                self.continue_rank(&mut other).await?;
                self.begin_one(&other).await
            };
            if let Err(fault) = begun.await {
                self.end_all(member).await;
                let what = format!("the gang of {count} machines cannot be complete");
                return Err(Fault::new(fault.code, what)
                    .meaning(format!("{}; its ranks were asked to end", fault.sentence()))
                    .hint(format!("`lamp status {}` shows when they have", self.leader.job())));
            }
        }
        self.session.note(format!(
            "{count} machines work as one: `lamp logs --rank 1 {0}` shows another rank, `lamp stop {0}` ends all",
            self.leader.job()
        ));
        Ok(())
    }

    /// A rank of a gang that goes on begins from the checkpoint of the same rank, if each saves its
    /// own. Else all begin from the one of rank 0.
    async fn continue_rank(&self, other: &mut ResolvedSpec) -> Result<(), Fault> {
        let saves_own = other.spec.checkpoint.is_some();
        let rank = other.member().map_or(0, |member| member.rank);
        let Some(continues) = &mut other.continues else { return Ok(()) };
        let leader = JobDir::new(self.session.store.clone(), continues.job.clone());
        let member =
            member_of(&leader).await.map_err(|error| record_errors::record_fault(&error))?;
        let before =
            member.and_then(|member| all_ranks(&leader, &member).into_iter().nth(rank as usize));
        (continues.machine, continues.checkpoint) = (None, None);
        let Some(before) = before else {
            return if saves_own { Err(no_part(leader.job(), rank)) } else { Ok(()) };
        };
        continues.job = before.job().clone();
        if saves_own {
            let kept = self.controller.kept(&before).await;
            let kept = kept.map_err(|error| first_plan::fault(&error))?;
            let own = kept.and_then(|kept| kept.continues.checkpoint);
            continues.checkpoint = Some(own.ok_or_else(|| no_part(before.job(), rank))?);
        }
        Ok(())
    }

    async fn begin_one(&self, member: &ResolvedSpec) -> Result<(), Fault> {
        let dir = JobDir::new(self.session.store.clone(), member.job.clone());
        // An earlier call may have been cut off.
        if matches!(dir.spec().await, Ok(Some(_))) {
            return drive::hand_over(self.session.workstation, &member.job).map(drop);
        }
        let purchase = rank_purchase(&member.spec, &[]);
        if matches!(purchase, RankPurchase::Joins | RankPurchase::Follows) {
            self.carry_code(member).await?;
            let made = self.controller.make(&dir, member).await;
            made.map_err(|error| packed_job::submit_fault(&error))?;
            return drive::hand_over(self.session.workstation, &member.job).map(drop);
        }
        let session = self.session;
        let (planned, lacks) = account_ready::planned(session, self.controller, member).await;
        let planned = account_ready::plan_or_refusal(session, planned, &lacks, member)?;
        self.carry_code(member).await?;
        let (_, begun) = self
            .controller
            .begin(&dir, member, planned)
            .await
            .map_err(|error| packed_job::submit_fault(&error))?;
        if let Err(error) = begun {
            self.session.warn(format!("{} is not launched yet: {error}", member.job));
        }
        drive::hand_over(self.session.workstation, &member.job).map(drop)
    }

    async fn carry_code(&self, member: &ResolvedSpec) -> Result<(), Fault> {
        let scratch = packed_job::scratch(self.session.workstation, &member.job)?;
        let carried = self.controller.carry_code(self.leader, member, &scratch.0).await;
        carried.map_err(|error| packed_job::submit_fault(&error))
    }

    async fn end_all(&self, member: &GangMember) {
        let ranks = all_ranks(self.leader, member);
        let by = &self.session.workstation.name;
        let found = ask_ranks(&ranks, Wish::Cancel, by, self.session.clock).await;
        for (job, error) in &found.failed {
            self.session.warn(format!("{job} could not be asked to end: {error}"));
        }
        for dir in &found.asked {
            if let Err(fault) = drive::hand_over(self.session.workstation, dir.job()) {
                self.session.warn(fault.what.clone());
            }
        }
    }
}

fn no_part(job: &JobId, rank: u32) -> Fault {
    let what =
        format!("job `{job}` keeps no checkpoint of rank {rank}, and each rank saves its own");
    Fault::new(ExitCode::REFUSED, what).hint("`lamp run FILE` runs the job from its start")
}

/// Waits for the receipts of all ranks, and shows the gang. A job of one machine has none.
///
/// `code`: the exit code of rank 0. A rank that failed before its work began
/// gives its own instead.
pub async fn tell_end(session: &Session<'_>, leader: &JobDir, code: ExitCode) -> ExitCode {
    let Ok(Some(member)) = member_of(leader).await else { return code };
    let ranks = all_ranks(leader, &member);
    let all_over = async {
        for dir in &ranks {
            while !matches!(dir.receipt().await, Ok(Some(_))) {
                session.clock.sleep(RECEIPT_LOOK).await;
            }
        }
    };
    let waited = session
        .with_progress(|| "the other ranks end".to_owned(), async {
            tokio::select! {
                () = all_over => true,
                () = session.clock.sleep(RECEIPTS_WITHIN) => false,
            }
        })
        .await;
    if !waited {
        session.warn(format!(
            "a rank of {} has no receipt yet, and may bill: `lamp status` shows which",
            leader.job()
        ));
    }
    let report = GangReport::with_output(leader, session.clock.now()).await;
    let Ok(Some(report)) = report else { return code };
    report.lines().into_iter().for_each(|line| session.note(line));
    let failed = report.failed_rank.and_then(|rank| ranks.get(rank as usize));
    match failed {
        Some(dir) if code != ExitCode::SUCCESS => unprepared(dir).await.unwrap_or(code),
        _ => code,
    }
}

async fn unprepared(rank: &JobDir) -> Option<ExitCode> {
    let code = ExitCode::of_receipt(&rank.receipt().await.ok()??);
    matches!(code, ExitCode::PREPARE_FAILED | ExitCode::LAUNCH_FAILED).then_some(code)
}
