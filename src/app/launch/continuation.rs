//! `lamp start`: the spec of the job that goes on with what an ended job keeps.
//!
//! `policy::lifecycle::continuation` says whether a machine can be started. Not here: which code it
//! runs (`cli::run::start_code`).

use std::time::Duration;

use jiff::Timestamp;

use crate::app::session::Session;
use crate::app::{ExitCode, Fault, drive, find_job, record_errors};
use crate::controller::{Controller, Kept, Ticked};
use crate::job::{JobId, JobOutcome, RECORD_FORMAT, ResolvedSpec, seat_leader};
use crate::jobdir::JobDir;
use crate::market::{Span, Usd};

/// One or two looks settle a machine that was stopped by hand. If the cloud is slow, the user asks
/// again.
const SETTLE_LOOKS: u32 = 10;
const SETTLE_LOOK_EVERY: Duration = Duration::from_millis(200);

/// The limits that the user gives it from now on.
pub struct LimitsAsked {
    /// It is for the whole gang.
    pub budget: Option<Usd>,
    pub max_runtime: Option<Span>,
    pub deadline: Option<Timestamp>,
}

/// A machine that was stopped without a controller has no receipt yet. If its job still runs, this
/// look does only what its driver does too.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn settle_what_was_stopped(
    session: &Session<'_>,
    controller: &Controller,
    dir: &JobDir,
) -> Result<(), Fault> {
    let fault = |error| record_errors::record_fault(&error);
    if dir.receipt().await.map_err(fault)?.is_some()
        || dir.spec().await.map_err(fault)?.is_none_or(|spec| spec.is_alone())
    {
        return Ok(());
    }
    for _ in 0..SETTLE_LOOKS {
        if !controller.is_stopped(dir).await.map_err(fault)? {
            return Ok(());
        }
        if let Ticked::Final(_) =
            controller.look(dir.job()).await.map_err(|error| drive::drive_fault(&error))?
        {
            return Ok(());
        }
        session.clock.sleep(SETTLE_LOOK_EVERY).await;
    }
    Ok(())
}

/// Why a job that has not ended cannot go on.
pub async fn not_ended(dir: &JobDir) -> Fault {
    match find_job::must_be_under_way(dir).await {
        Ok(_) => Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` is under way: there is nothing to start", dir.job()),
        )
        .meaning("nothing was changed")
        .hint(format!(
            "`lamp logs -f {0}` follows it, `lamp status {0}` shows how it stands",
            dir.job()
        )),
        Err(fault) => fault,
    }
}

/// The spec of the continuation: the old one, with what is left of its limits.
///
/// # Errors
/// Fails when nothing is kept, or a limit is spent.
pub fn spec_of(
    session: &Session<'_>,
    kept: &Kept,
    next: &JobId,
    asked: LimitsAsked,
) -> Result<ResolvedSpec, Fault> {
    refuse_nothing_kept(kept)?;
    let mut spec = kept.spec.spec.clone();
    let mut origins = kept.spec.origins.clone();
    let job = &kept.spec.job;
    let refuse = |what: String, hint: String| {
        Err(Fault::new(ExitCode::REFUSED, what).meaning("nothing was started or billed").hint(hint))
    };
    let mut flag =
        |key: &str, given: bool| given.then(|| origins.insert(key.to_owned(), "flag".to_owned()));
    flag("limits.budget", asked.budget.is_some());
    flag("limits.max_runtime", asked.max_runtime.is_some());
    flag("limits.deadline", asked.deadline.is_some());
    // The rest of the budget is of rank 0 alone. A flag is for the whole gang.
    let ranks = spec.gang.as_ref().map_or(1, |gang| gang.seats().len());
    let budget = asked.budget.map(|usd| usd.divided_by(i64::try_from(ranks).unwrap_or(i64::MAX)));
    spec.limits.budget = budget.or(kept.budget_left);
    if spec.limits.budget.is_some_and(|left| left <= Usd::ZERO) {
        return refuse(
            format!("the budget of job `{job}` is spent"),
            format!("`lamp start {job} --budget 5` gives it five dollars more"),
        );
    }
    spec.limits.max_runtime = asked.max_runtime.or(spec.limits.max_runtime);
    spec.limits.deadline = asked.deadline.or(kept.deadline);
    if spec.limits.deadline.is_some_and(|deadline| deadline <= session.clock.now()) {
        return refuse(
            format!("the deadline of job `{job}` has passed"),
            format!("`lamp start {job} --deadline MOMENT` gives it another"),
        );
    }
    let mut next = ResolvedSpec {
        format: RECORD_FORMAT,
        job: next.clone(),
        created: session.clock.now(),
        written_by: format!("lamp {}", env!("CARGO_PKG_VERSION")),
        spec,
        code: kept.spec.code.clone(),
        origins,
        applied: None,
        owner: Some(session.workstation.owner.clone()),
        continues: Some(kept.continues.clone()),
        trial: None,
        tuned: None,
    };
    seat_leader(&mut next);
    Ok(next)
}

fn refuse_nothing_kept(kept: &Kept) -> Result<(), Fault> {
    let (job, continues) = (&kept.spec.job, &kept.continues);
    let refused =
        |what: String| Fault::new(ExitCode::REFUSED, what).meaning("nothing was started or billed");
    if let Some(instance) = &kept.stopping {
        return Err(refused(format!("the machine of job `{job}`, {instance}, is stopping"))
            .hint(format!("`lamp start {job}` in a minute, when it stands still")));
    }
    let again = "`lamp run FILE` runs the job from its start";
    if continues.machine.is_none() && kept.receipt.outcome == JobOutcome::Succeeded {
        return Err(refused(format!(
            "job `{job}` has succeeded, and its machine is gone: there is nothing to go on with"
        ))
        .hint(match continues.checkpoint {
            Some(_) => format!("{again}, `lamp run --from {job} FILE` from its last checkpoint"),
            None => again.to_owned(),
        }));
    }
    if continues.machine.is_none() && continues.checkpoint.is_none() {
        let gone = kept
            .elsewhere
            .as_ref()
            .map_or("its machine is gone with its disk".to_owned(), Clone::clone);
        return Err(refused(format!("nothing is kept of job `{job}`: {gone}, and it saved no checkpoint"))
            .hint(format!("{again}; with [checkpoint], or `failure = \"stop\"` and the like in `[on]`, it can be started again")));
    }
    Ok(())
}
