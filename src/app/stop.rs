//! Asks one job to stop or cancel: records the wish, and says what becomes of its work.
//!
//! Not here: which jobs are meant, and the wait for their end (the face).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::find_job;
use super::gang::ask_ranks::{AskedRanks, ask_ranks, is_open};
use super::gang::gang_jobs;
use super::missing_spec::SpecGone;
use super::record_errors;
use super::release_kept;
use super::session::Session;
use super::text::verb;
use super::view::job_summary::Summary;
use super::view::kept_machines;
use super::{ExitCode, Fault};
use crate::job::{CheckpointSpec, CheckpointSummary, GangMember, JobId, Receipt, Wish};
use crate::jobdir::{Event, EventDetail, JobDir, JobDirError};
use crate::market::{Span, UsdPerHour, elapsed};
use crate::policy::Wishes;
use crate::policy::purchase::hard_end::DRAIN_ALLOWANCE;
use crate::wire::StoreHandle;

#[derive(Clone, Copy, Debug)]
pub struct How {
    pub wish: Wish,
    pub wait: bool,
    pub named: Named,
    pub several: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Not at all: it is the one under way.
    No,
    Itself,
    /// By `--all`, and by its name in the question.
    All,
}

pub enum StopAnswer {
    /// There is nothing to wait for; the value is printed for programs.
    Over(ExitCode, Value),
    Stands(PendingStop),
}

pub struct PendingStop {
    pub dir: JobDir,
    pub document: Value,
}

/// # Errors
/// Fails when it has ended and keeps nothing, the user declines, or the job root is unreachable.
pub async fn ask(session: &Session<'_>, dir: JobDir, how: How) -> Result<StopAnswer, Fault> {
    let How { wish, wait, named, several } = how;
    let workstation = session.workstation;
    let fault = |error| record_errors::record_fault(&error);
    if let Some(ended) = dir.receipt().await.map_err(fault)? {
        if named != Named::No
            && let Some(answer) = ask_ranks_of_ended(session, &dir, how).await?
        {
            return Ok(answer);
        }
        match named {
            Named::Itself => {}
            // A kept disk is deleted only when the user names its job.
            Named::No => return Err(none_under_way(session.store, &dir, &ended).await),
            // It ended between the list and its turn. `--all` does not release what it keeps.
            Named::All => {
                session.note(format!(
                    "{} has ended by itself meanwhile: {}",
                    dir.job(),
                    ended.told()
                ));
                return Ok(StopAnswer::Over(
                    ExitCode::SUCCESS,
                    json!({ "job": dir.job(), "request": null, "wish": wish }),
                ));
            }
        }
        let (code, document) = release_kept::run(session, &dir, &ended, wish).await?;
        return Ok(StopAnswer::Over(code, document));
    }
    if let Some((code, document)) = end_without_spec(session, &dir, wish, wait).await? {
        return Ok(StopAnswer::Over(code, document));
    }
    // A wish needs only the id. A job with a damaged spec may run and bill.
    let (spec, unread) = match dir.spec().await {
        Err(JobDirError::Record(error)) => (None, Some(error)),
        _ => (Some(find_job::spec_under_way(&dir).await?), None),
    };
    let checkpoint = spec.and_then(|spec| spec.checkpoint);
    let now = session.clock.now();
    let requests = dir.requests().await.map_err(fault)?;
    // A cancel wins, and a later stop changes nothing.
    let cancelled =
        Wishes::of(&requests).end.filter(|end| end.cancel && wish == Wish::Stop).map(|end| end.at);
    let before = requests.into_iter().rev().find(|request| request.wish == wish);
    // Unreadable records must not prevent the end of a job.
    let owner = if before.is_none() { find_job::owner_of(&dir).await.ok().flatten() } else { None };
    session.confirm_owner(dir.job(), owner)?;
    if (wish == Wish::Cancel || checkpoint.is_none()) && named == Named::No && before.is_none() {
        // A job that the user did not name needs a question before it loses work.
        let how = if wish == Wish::Cancel {
            "ends it at once, without a checkpoint"
        } else {
            "ends it, and it saves no checkpoint"
        };
        let what = format!("job `{}` is the one that is under way: this {how}", dir.job());
        session.confirm(&what, "nothing more was asked of it")?;
    }
    let again = before.is_some();
    let request = match before {
        Some(request) => request,
        None => dir
            .insist_on(wish, &workstation.name, &**session.clock)
            .await
            .map_err(|error| record_errors::wish_fault(&error, dir.job()))?,
    };
    ask_other_ranks(session, &dir, wish).await;
    let document = json!({ "job": dir.job(), "request": request.number, "wish": wish });
    if let Some(error) = unread {
        session.warn(format!(
            "{error}: this version can neither relaunch the job nor write its receipt"
        ));
        session.note(format!(
            "asked {} to {}; its agent reads that while it runs",
            dir.job(),
            verb(wish)
        ));
        session.hint("`lamp sweep` names its machine, if that runs on");
        let code = if wait { ExitCode::UNREACHABLE } else { ExitCode::SUCCESS };
        return Ok(StopAnswer::Over(code, document));
    }
    // The driver starts before anything is printed. With one job, `--wait` drives it here.
    if !wait || several {
        see_it_through(session, &dir, wish);
    }
    if wait && !several {
        return Ok(StopAnswer::Stands(PendingStop { dir, document }));
    }
    let known = if checkpoint.is_some() { newest_events(&dir).await.ok() } else { None };
    let has_begun = known.as_ref().is_none_or(|(begun, _)| *begun);
    let events = known.map(|(_, events)| events).unwrap_or_default();
    let has_one = events.iter().any(|event| {
        matches!(event.what, EventDetail::Checkpoint { .. } | EventDetail::Resumed { .. })
    });
    let cancelled = cancelled.map(|at| {
        format!(
            "it was asked to cancel {} ago, and that stands: it saves nothing more",
            elapsed_since(at, now)
        )
    });
    let cancelled = cancelled.or_else(|| {
        (!has_begun).then(|| "its work has not begun, so there is nothing to keep".to_owned())
    });
    let saves = checkpoint.as_ref().is_some_and(|spec| spec.signal.is_some())
        && wish == Wish::Stop
        && cancelled.is_none();
    let saved = cancelled.unwrap_or_else(|| match (wish, &checkpoint) {
        (Wish::Stop, Some(checkpoint)) => what_is_kept(checkpoint, &events),
        (Wish::Stop, None) => "it has no [checkpoint], so only what `outputs` names and what is in $LAMP_OUTPUT_DIR is kept".to_owned(),
        (_, Some(_)) => "it does not save a checkpoint; the earlier ones are kept".to_owned(),
        (_, None) => "it does not save a checkpoint".to_owned(),
    });
    let verb = verb(wish);
    session.note(match again {
        true => format!(
            "{} was asked to {verb} {} ago, and once is enough; {saved}",
            dir.job(),
            elapsed_since(request.at, now)
        ),
        false => format!("asked {} to {verb}; {saved}", dir.job()),
    });
    if !wait {
        session.hint(format!(
            "`lamp status {0}` shows when it is over, `lamp {verb} --wait {0}` waits for it",
            dir.job()
        ));
        if has_one || saves {
            session.hint(how_to_go_on(dir.job()));
        }
    }
    Ok(StopAnswer::Stands(PendingStop { dir, document }))
}

/// Asks the other ranks of a gang for the same. A rank that cannot be asked ends by itself: it
/// finds that the gang cannot be complete.
async fn ask_other_ranks(session: &Session<'_>, dir: &JobDir, wish: Wish) {
    if let Ok(Some(member)) = gang_jobs::member_of(dir).await {
        ask_members(session, dir, &member, wish).await;
    }
}

/// A rank that runs on after rank 0, whose job this is, has ended.
pub async fn rank_at_work(dir: &JobDir) -> Option<JobDir> {
    let member = gang_jobs::member_of(dir).await.ok().flatten()?;
    if member.rank != 0 {
        return None;
    }
    for rank in gang_jobs::all_ranks(dir, &member) {
        if is_open(&rank).await {
            return Some(rank);
        }
    }
    None
}

/// Rank 0 has ended, and stands for the others. `None`: none of them runs.
async fn ask_ranks_of_ended(
    session: &Session<'_>,
    dir: &JobDir,
    how: How,
) -> Result<Option<StopAnswer>, Fault> {
    let member = gang_jobs::member_of(dir).await.ok().flatten();
    let Some(member) = member else { return Ok(None) };
    let Some(running) = rank_at_work(dir).await else { return Ok(None) };
    session.confirm_owner(running.job(), find_job::owner_of(&running).await.ok().flatten())?;
    session.note(format!("rank 0, {}, has ended", dir.job()));
    let found = ask_members(session, dir, &member, how.wish).await;
    let document = json!({ "job": dir.job(), "request": null, "wish": how.wish });
    Ok(Some(match found.asked.into_iter().next() {
        Some(asked) if how.wait && found.failed.is_empty() => {
            StopAnswer::Stands(PendingStop { dir: asked, document })
        }
        _ if found.failed.is_empty() => StopAnswer::Over(ExitCode::SUCCESS, document),
        _ => StopAnswer::Over(ExitCode::UNREACHABLE, document),
    }))
}

async fn ask_members(
    session: &Session<'_>,
    dir: &JobDir,
    member: &GangMember,
    wish: Wish,
) -> AskedRanks {
    let mut others = gang_jobs::all_ranks(dir, member);
    others.retain(|other| other.job() != dir.job());
    let found = ask_ranks(&others, wish, &session.workstation.name, session.clock).await;
    for (job, error) in &found.failed {
        session.warn(format!("{job} could not be asked and still bills: {error}"));
    }
    found.asked.iter().for_each(|other| see_it_through(session, other, wish));
    let asked = found.asked.len();
    if asked > 0 {
        let ranks = member.seats.len();
        session.note(format!("asked the other {asked} of its {ranks} ranks to {}", verb(wish)));
    }
    found
}

/// The error when the newest job has ended and the user named none.
async fn none_under_way(store: &StoreHandle, dir: &JobDir, ended: &Receipt) -> Fault {
    let fault = Fault::new(ExitCode::REFUSED, format!("no job is under way in {}", store.url()))
        .meaning(format!(
            "nothing was changed; the newest, `{}`, has ended: {}",
            dir.job(),
            ended.told()
        ));
    match kept_machines::kept_of(dir, ended).await {
        Ok(kept) if !kept.is_empty() => fault.hint(kept_machines::hint(dir.job().as_str())),
        _ => fault.hint("`lamp status --all` lists the jobs that have ended"),
    }
}

pub fn how_to_go_on(job: &JobId) -> String {
    format!("`lamp start {job}` goes on from its last complete checkpoint")
}

/// The process that began the job may be gone. Its machine must still end, and its receipt be
/// written.
pub fn see_it_through(session: &Session<'_>, dir: &JobDir, wish: Wish) {
    if !session.workstation.is_driven_anew(dir.job().as_str()) {
        let_it_be_driven(session, dir, &format!("`lamp {} --wait {}` does", verb(wish), dir.job()));
    }
}

/// Starts a driver where no daemon runs. `otherwise` says what to do if none can be started.
pub fn let_it_be_driven(session: &Session<'_>, dir: &JobDir, otherwise: &str) {
    let workstation = session.workstation;
    let job = dir.job().as_str();
    if workstation.daemon_runs() {
        return;
    }
    // A driver may launch machines, so it needs a configuration without errors.
    let why = match session.is_misread {
        true => "the configuration has errors".to_owned(),
        false => match workstation.start_driver(job) {
            Ok(_) => return,
            Err(error) => error.to_string(),
        },
    };
    if !workstation.is_driven(job) {
        session
            .warn(format!("no process could be started that sees it through ({why}); {otherwise}"));
    }
}

fn elapsed_since(at: Timestamp, now: Timestamp) -> Span {
    Span::from_secs(elapsed(at, now).as_secs())
}

/// Whether the work has begun or continues another job's, and the events of the last attempt.
async fn newest_events(dir: &JobDir) -> Result<(bool, Vec<Event>), JobDirError> {
    let goes_on = dir.spec().await?.is_some_and(|spec| spec.inherited().is_some());
    let attempts = dir.attempts().await?;
    let events = match attempts.last() {
        Some(attempt) => dir.events(*attempt).await?,
        None => Vec::new(),
    };
    Ok((
        goes_on
            || attempts.len() > 1
            || events.iter().any(|event| matches!(event.what, EventDetail::WorkloadStarted { .. })),
        events,
    ))
}

/// What a stop or a cancel would do to the job and to its bill, before it is asked for.
///
/// # Errors
/// Fails when the job has ended, or the job root is unreachable.
pub async fn foretell(dir: &JobDir, wish: Wish, now: Timestamp) -> Result<String, Fault> {
    if let Some(running) = rank_at_work(dir).await
        && running.job() != dir.job()
    {
        return Ok(format!(
            "the other ranks are asked to {}: {} still bills",
            verb(wish),
            running.job()
        ));
    }
    let spec = find_job::must_be_under_way(dir).await?;
    let fault = |error| record_errors::record_fault(&error);
    let work = match (wish, &spec.checkpoint) {
        (Wish::Stop, Some(checkpoint)) => {
            let (_, events) = newest_events(dir).await.map_err(fault)?;
            what_is_kept(checkpoint, &events)
        }
        (Wish::Stop, None) => {
            "it saves no checkpoint: only its outputs are kept, and `lamp start` begins anew"
                .to_owned()
        }
        (_, Some(_)) => {
            "it ends at once, and work since its last complete checkpoint is lost".to_owned()
        }
        (_, None) => "it ends at once, and its work is lost but for what is stored".to_owned(),
    };
    let summary = Summary::read(dir, now).await.map_err(fault)?;
    let bill = summary.map(|summary| {
        let hour = summary.usd_per_hour.filter(|hour| *hour > UsdPerHour::ZERO);
        hour.map_or("the machine costs nothing".to_owned(), |hour| {
            let most = hour.cost_of(DRAIN_ALLOWANCE).rounded_up();
            format!(
                "the machine costs {hour} until it is gone: about {most} at most for its last {}, after {} so far",
                Span::from_secs(DRAIN_ALLOWANCE.as_secs()),
                summary.usd
            )
        })
    });
    Ok(bill.map_or_else(|| work.clone(), |bill| format!("{work}; {bill}")))
}

fn what_is_kept(spec: &CheckpointSpec, events: &[Event]) -> String {
    let mut last: Option<&CheckpointSummary> = None;
    let mut restless = false;
    for event in events {
        match &event.what {
            EventDetail::Checkpoint { checkpoint, .. }
            | EventDetail::Resumed { checkpoint, .. } => {
                (last, restless) = (Some(checkpoint), false)
            }
            detail if detail.is_restless_folder() => restless = true,
            _ => {}
        }
    }
    if restless {
        let stands = match last {
            Some(checkpoint) => {
                format!("checkpoint {} is the newest that is complete", checkpoint.number.number())
            }
            None => "no checkpoint is complete".to_owned(),
        };
        return format!(
            "{stands}, and what its script has saved since is lost unless its folder comes to rest (`{}` never did)",
            spec.path
        );
    }
    match &spec.signal {
        Some(signal) => format!(
            "it is asked for a checkpoint first, by {signal}, and its checkpoints and outputs are kept"
        ),
        None => format!("what is complete in `{}` is kept, and its outputs", spec.path),
    }
}

/// `lamp stop` and `lamp cancel` of a job whose spec is gone: its agent still reads requests.
/// `None`: it has a spec or no attempt.
///
/// # Errors
/// Fails when its attempt is over, the user declines to end another owner's machine, or the job
/// root is unreachable.
async fn end_without_spec(
    session: &Session<'_>,
    dir: &JobDir,
    wish: Wish,
    wait: bool,
) -> Result<Option<(ExitCode, Value)>, Fault> {
    let fault = |error| record_errors::record_fault(&error);
    if !matches!(dir.spec().await, Ok(None)) {
        return Ok(None);
    }
    let Some(gone) = SpecGone::of(dir).await.map_err(fault)? else { return Ok(None) };
    if !gone.may_run() {
        return Err(gone.fault(dir));
    }
    let workstation = session.workstation;
    session.confirm_owner(dir.job(), find_job::owner_of(dir).await.ok().flatten())?;
    let verb = verb(wish);
    let before =
        dir.requests().await.map_err(fault)?.into_iter().rev().find(|request| request.wish == wish);
    let request = match before {
        Some(request) => request,
        None => {
            dir.add_request(wish, &workstation.name, session.clock.now()).await.map_err(fault)?
        }
    };
    session.warn(format!("{}: {}", gone.what(dir), gone.meaning()));
    session.note(format!("asked {} to {verb}; its agent reads that while it runs", dir.job()));
    session.hint(format!("`lamp stop {}` again says whether it is over; if its machine runs on, `lamp sweep` names it, and how to end it", dir.job()));
    // No controller settles it, so its end cannot be confirmed.
    let code = if wait { ExitCode::UNREACHABLE } else { ExitCode::SUCCESS };
    Ok(Some((code, json!({ "job": dir.job(), "request": request.number, "wish": wish }))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AttemptNo, CheckpointNo, NEVER_RESTS};
    use crate::market::Span;

    #[test]
    fn restless_folder_promises_no_checkpoint() {
        let spec = |signal: Option<&str>| CheckpointSpec {
            path: "ckpt".into(),
            interval: Span::from_secs(600),
            signal: signal.map(str::to_owned),
            grace: Span::from_secs(30),
        };
        let event = |what| Event { seq: 1, at: jiff::Timestamp::UNIX_EPOCH, what };
        let never = event(EventDetail::Attention { text: NEVER_RESTS.into() });
        let checkpoint = CheckpointSummary {
            number: CheckpointNo::new(4),
            attempt: AttemptNo::FIRST,
            created: jiff::Timestamp::UNIX_EPOCH,
            step: None,
            bytes: 1,
            name: None,
        };
        let kept = event(EventDetail::Checkpoint {
            checkpoint,
            save_secs: 1.0,
            upload_secs: 1.0,
            asked_by: None,
        });
        assert_eq!(
            what_is_kept(&spec(None), &[]),
            "what is complete in `ckpt` is kept, and its outputs"
        );
        assert_eq!(
            what_is_kept(&spec(Some("SIGUSR1")), &[]),
            "it is asked for a checkpoint first, by SIGUSR1, and its checkpoints and outputs are kept"
        );
        let lost = what_is_kept(&spec(None), std::slice::from_ref(&never));
        assert!(
            lost.starts_with(
                "no checkpoint is complete, and what its script has saved since is lost"
            ),
            "{lost}"
        );
        let older = what_is_kept(&spec(Some("SIGUSR1")), &[kept.clone(), never.clone()]);
        assert!(older.starts_with("checkpoint 4 is the newest that is complete"), "{older}");
        assert_eq!(
            what_is_kept(&spec(None), &[never, kept]),
            "what is complete in `ckpt` is kept, and its outputs"
        );
    }
}
