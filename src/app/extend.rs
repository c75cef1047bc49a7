//! Gives a job more time or money, or allows a more expensive machine.

use jiff::Timestamp;
use serde::Serialize;

use super::session::Session;
use super::stop::let_it_be_driven;
use super::text::local_time;
use super::view::job_summary::Summary;
use super::{ExitCode, Fault, find_job, record_errors};
use crate::instance::Status;
use crate::job::{AlarmRule, JobId, JobState, Plan, Reaction, Request, Spec, Wish};
use crate::jobdir::JobDir;
use crate::market::{CloudKind, FallbackCost, Span, Usd, UsdPerHour, elapsed};
use crate::policy::{EndWish, Wishes};

#[derive(Clone, Copy, Debug, Default)]
pub struct More {
    pub time: Option<Span>,
    pub budget: Option<Usd>,
    pub fallback_cost: Option<FallbackCost>,
    /// Not ended as idle or stalled for so long. It goes with nothing else.
    pub keep: Option<Span>,
}

/// The time that the views offer. A look at a job takes less; a longer time costs more than a
/// person means.
pub const KEEP: Span = Span::from_secs(3600);

/// What was recorded. The field names are an interface.
#[derive(Debug, Serialize)]
pub struct Extended {
    pub job: JobId,
    pub request: u32,
    pub wish: Wish,
    pub limits: Raised,
    /// The highest cost of the attempts so far. Null: unlimited.
    pub most_usd: Option<Usd>,
    /// The highest cost of the whole job. Null: unlimited.
    pub most_job_usd: Option<Usd>,
}

#[derive(Debug, Serialize)]
pub struct Raised {
    pub before: Limits,
    pub after: Limits,
}

/// # Errors
/// Fails when nothing was asked for, the job is missing, over or cancelled, or the job root does
/// not answer.
pub async fn extend(session: &Session<'_>, job: &str, more: More) -> Result<Extended, Fault> {
    if let Some(time) = more.keep {
        return keep(session, job, time).await;
    }
    more_of_a_limit(session, job, more).await
}

async fn more_of_a_limit(session: &Session<'_>, job: &str, more: More) -> Result<Extended, Fault> {
    let More { time: _, budget, fallback_cost, keep: _ } = more;
    if more.time.is_none() && budget.is_none() && fallback_cost.is_none() {
        return Err(Fault::new(ExitCode::USAGE, "nothing to extend by")
            .hint(format!("`lamp extend {job} 2h`, or --budget 5, --fallback-cost 3, --keep 1h")));
    }
    // A shorter limit would end the job at an unforeseen moment: `lamp stop` is for that.
    if more.time.is_some_and(|time| time == Span::ZERO)
        || budget.is_some_and(|budget| budget <= Usd::ZERO)
    {
        return Err(Fault::new(
            ExitCode::USAGE,
            "a limit can only be raised: the time and the budget must be more than zero",
        )
        .hint(format!("`lamp stop {}` ends it", job)));
    }
    let dir = find_job::find_under_way(session.store, Some(job)).await?;
    let fault = |error| record_errors::record_fault(&error);
    let spec = find_job::must_be_under_way(&dir).await?;
    match Wishes::of(&dir.requests().await.map_err(fault)?).end {
        Some(end) if end.cancel => return Err(ends_anyway(&dir, &spec, &end, session.clock.now())),
        Some(end) => session.note(format!(
            "{} was asked to stop by {}, and ends all the same: what is added is for its last save",
            dir.job(),
            end.by
        )),
        None => {}
    }
    let missing = if more.time.is_some() && !is_timed(&spec) && !is_held(&dir, session).await? {
        Some("no limit of its time")
    } else if budget.is_some() && spec.limits.budget.is_none() {
        Some("no budget")
    } else {
        fallback_cost.and_then(|cost| allowed_already(&spec, cost))
    };
    if let Some(missing) = missing {
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` has {missing}: there is nothing to raise", dir.job()),
        )
        .meaning("nothing was changed")
        .hint(raised_by(&spec, dir.job())));
    }
    let workstation = session.workstation;
    let theirs = confirm_other_owner(session, &dir).await?;
    let wish = Wish::Extend { time: more.time, budget, fallback_cost };
    let request = dir
        .insist_on(wish, &workstation.name, &**session.clock)
        .await
        .map_err(|error| record_errors::wish_fault(&error, dir.job()))?;
    // The machine's own switches go by the cap in its tags, and only a controller raises that.
    if theirs.is_none() && !workstation.is_driven(dir.job().as_str()) {
        let_it_be_driven(
            session,
            &dir,
            &format!("`lamp daemon --job {} --until-done` does", dir.job()),
        );
    }
    let requests = dir.requests().await.map_err(fault)?;
    let all_before: Vec<Request> =
        requests.iter().filter(|other| other.number < request.number).cloned().collect();
    let (before, after) = (Limits::of(&spec, &all_before), Limits::of(&spec, &requests));
    // The same figure as in `lamp status`.
    let stands = Summary::read(&dir, session.clock.now()).await.map_err(fault)?;
    let (most_usd, most_job_usd) =
        stands.map_or((None, None), |stands| (stands.most_usd, stands.most_job_usd));
    if let Some(time) = more.time {
        session.note(format!("{} may have {time} more", dir.job()));
    }
    if let (Some(more), Some(was), Some(is)) = (budget, before.budget, after.budget) {
        session.note(format!("{}: adds {more} to the budget of {was}: {is} now", dir.job()));
    }
    let most = match (most_usd.map(Usd::rounded_up), most_job_usd.map(Usd::rounded_up)) {
        (Some(most), Some(job)) if job > most => Some(format!(
            "with the machines that it has had it costs at most {most} now, and at most {job} with all that may follow"
        )),
        (_, Some(job)) => Some(format!("it costs at most {job} now")),
        (Some(most), None) => Some(format!(
            "with the machines that it has had it costs at most {most} now, unless it is interrupted"
        )),
        (None, None) => None,
    };
    let told: Vec<String> = before.changes(&after).into_iter().chain(most).collect();
    if !told.is_empty() {
        session.note(told.join("; "));
    }
    Ok(Extended {
        job: dir.job().clone(),
        request: request.number,
        wish,
        limits: Raised { before, after },
        most_usd,
        most_job_usd,
    })
}

/// The other owner of the machine, after the question whether that owner shall pay more.
async fn confirm_other_owner(session: &Session<'_>, dir: &JobDir) -> Result<Option<String>, Fault> {
    let workstation = session.workstation;
    let theirs = find_job::owner_of(dir).await?.filter(|owner| *owner != workstation.owner);
    if let Some(theirs) = &theirs {
        let what = format!(
            "the machine of `{}` is of the owner `{theirs}`, who pays for it, and you are `{}`",
            dir.job(),
            workstation.owner
        );
        session.confirm(&what, "nothing was changed")?;
    }
    Ok(theirs)
}

/// Says what more time or money would do to the job and to its bill.
///
/// # Errors
/// Fails when the job has ended, or the job root is unreachable.
pub async fn foretell_more(dir: &JobDir, more: &More, now: Timestamp) -> Result<String, Fault> {
    find_job::must_be_under_way(dir).await?;
    let summary =
        Summary::read(dir, now).await.map_err(|error| record_errors::record_fault(&error))?;
    let hour = summary.and_then(|summary| summary.usd_per_hour);
    let cost = |time: Span| match hour {
        None => "what the machine costs is unknown".to_owned(),
        Some(hour) if hour > UsdPerHour::ZERO => {
            let most = hour.cost_of(time.duration()).rounded_up();
            format!("the machine costs {hour}: at most {most} for {time} more")
        }
        Some(_) => "the machine costs nothing".to_owned(),
    };
    Ok(match (more.time, more.budget) {
        (Some(time), _) => format!("the job may run {time} longer; {}", cost(time)),
        (None, Some(usd)) => format!("the job may spend {usd} more"),
        (None, None) => {
            let hour = cost(Span::from_secs(3600));
            format!("the job may run longer, or spend more; {hour}")
        }
    })
}

/// Says what a keep would do to the job and to its bill.
///
/// # Errors
/// Fails when the job has ended, or its records cannot be read.
pub async fn foretell_keep(dir: &JobDir, time: Span, now: Timestamp) -> Result<String, Fault> {
    find_job::must_be_under_way(dir).await?;
    let fault = |error| record_errors::record_fault(&error);
    let summary = Summary::read(dir, now).await.map_err(fault)?;
    let hour = summary.as_ref().and_then(|summary| summary.usd_per_hour);
    let is_held = summary.as_ref().is_some_and(|summary| summary.held.is_some());
    let unkept = match summary.as_ref().and_then(watched_plan) {
        Some(plan) => {
            let status = dir.status(plan.attempt).await.map_err(fault)?;
            why_unkept(plan.launch.as_ref().and_then(|launch| launch.alarm), status.as_ref())
        }
        None => None,
    };
    let end = summary.and_then(|summary| summary.plan?.kill_at).filter(|_| !is_held);
    // A job that reaches its limit bills no longer.
    let billed = end.map_or(time.duration(), |end| time.duration().min(elapsed(now, end)));
    let bill = match hour {
        None => "what the machine costs is unknown".to_owned(),
        Some(hour) if hour > UsdPerHour::ZERO => {
            let most = hour.cost_of(billed).rounded_up();
            format!("the machine costs {hour}: at most {most} for this time")
        }
        Some(_) => "the machine costs nothing".to_owned(),
    };
    // The job itself is over, and only its machine stays.
    if is_held {
        return Ok(format!("its machine is held {time} longer; {bill}"));
    }
    if let Some(why) = unkept {
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` cannot be kept: {why}", dir.job()),
        )
        .meaning("nothing was changed: it may still be ended as idle or stalled")
        .hint(format!("`lamp status {}` shows when that would be", dir.job())));
    }
    let end = end.map_or(String::new(), |end| format!(", at {} at the latest", local_time(end)));
    Ok(format!(
        "for {time} the job is not ended as idle or stalled; its limits still end it{end}; {bill}"
    ))
}

/// The plan of the machine that runs the job now.
fn watched_plan(summary: &Summary) -> Option<&Plan> {
    let is_watched =
        matches!(summary.state, JobState::Preparing | JobState::Running | JobState::Draining);
    summary.plan.as_ref().filter(|_| is_watched)
}

/// Why a request to keep the job would change nothing. A machine without a heartbeat gets the
/// present agent, which obeys.
fn why_unkept(alarm: Option<AlarmRule>, status: Option<&Status>) -> Option<String> {
    if status.is_some_and(|status| !status.keeps) {
        return Some("the agent on its machine is of an older version, which ignores this".into());
    }
    match alarm {
        Some(rule @ AlarmRule::Cpu { .. }) => {
            Some(format!("the alarm of CloudWatch on its machine (`{rule}`) ends it all the same"))
        }
        _ => None,
    }
}

/// A machine that is held after its end stays longer instead.
async fn keep(session: &Session<'_>, job: &str, time: Span) -> Result<Extended, Fault> {
    let dir = find_job::find_under_way(session.store, Some(job)).await?;
    if is_held(&dir, session).await? {
        return more_of_a_limit(session, job, More { time: Some(time), ..More::default() }).await;
    }
    if time == Span::ZERO {
        return Err(Fault::new(ExitCode::USAGE, "the time to keep it must be more than zero")
            .meaning("nothing was changed")
            .hint(format!("`lamp extend {job} --keep 1h`")));
    }
    let fault = |error| record_errors::record_fault(&error);
    let spec = find_job::must_be_under_way(&dir).await?;
    let before = dir.requests().await.map_err(fault)?;
    if let Some(end) = Wishes::of(&before).end {
        return Err(Fault::new(
            ExitCode::REFUSED,
            format!("job `{}` was asked to end by {}", dir.job(), end.by),
        )
        .meaning("it ends as it was asked to, and nothing was changed")
        .hint(format!("`lamp start {}` goes on once it has ended", dir.job())));
    }
    confirm_other_owner(session, &dir).await?;
    let now = session.clock.now();
    let told = foretell_keep(&dir, time, now).await?;
    let wish = Wish::Keep { time };
    let request = dir
        .insist_on(wish, &session.workstation.name, &**session.clock)
        .await
        .map_err(|error| record_errors::wish_fault(&error, dir.job()))?;
    session.note(format!("{}: {told}", dir.job()));
    let stands = Summary::read(&dir, now).await.map_err(fault)?;
    let (most_usd, most_job_usd) =
        stands.map_or((None, None), |stands| (stands.most_usd, stands.most_job_usd));
    Ok(Extended {
        job: dir.job().clone(),
        request: request.number,
        wish,
        limits: Raised { before: Limits::of(&spec, &before), after: Limits::of(&spec, &before) },
        most_usd,
        most_job_usd,
    })
}

fn raised_by(spec: &Spec, job: &JobId) -> String {
    let time = is_timed(spec).then(|| format!("`lamp extend {job} 2h` adds to its time"));
    let money =
        spec.limits.budget.map(|_| format!("`lamp extend {job} --budget 5` adds to its budget"));
    let ways: Vec<String> = [time, money, Some(format!("`lamp status {job}` shows how it stands"))]
        .into_iter()
        .flatten()
        .collect();
    ways.join("; ")
}

/// A cancelled job ends whatever its limits are.
fn ends_anyway(dir: &JobDir, spec: &Spec, end: &EndWish, now: Timestamp) -> Fault {
    let ago = Span::from_secs(elapsed(end.at, now).as_secs());
    let hint = match spec.checkpoint {
        Some(_) => {
            format!("`lamp start {}` goes on from its last checkpoint once it has ended", dir.job())
        }
        None => format!("`lamp status {}` shows when it has ended", dir.job()),
    };
    Fault::new(
        ExitCode::REFUSED,
        format!(
            "job `{}` was asked to cancel by {} {ago} ago: more time or money changes nothing",
            dir.job(),
            end.by
        ),
    )
    .meaning("it ends as it was asked to")
    .hint(hint)
}

/// The limits of a job, with what was added.
#[derive(Debug, Serialize)]
pub struct Limits {
    max_runtime: Option<Span>,
    deadline: Option<Timestamp>,
    budget: Option<Usd>,
    fallback_cost: FallbackCost,
}

impl Limits {
    fn of(spec: &Spec, requests: &[Request]) -> Self {
        let (limits, wishes) = (&spec.limits, Wishes::of(requests));
        let more = wishes.more_time.duration();
        Limits {
            max_runtime: limits
                .max_runtime
                .map(|time| Span::from_duration(time.duration().saturating_add(more))),
            deadline: limits
                .deadline
                .map(|deadline| deadline.saturating_add(more).unwrap_or(Timestamp::MAX)),
            budget: limits.budget.map(|budget| budget + wishes.more_budget),
            fallback_cost: spec.machine.fallback_cost.widened(wishes.fallback_cost),
        }
    }

    /// `its run time is 14h instead of 12h`
    fn changes(&self, after: &Limits) -> Vec<String> {
        let said = |what: &str, before: Option<String>, after: Option<String>| {
            let (before, after) = (before?, after?);
            (before != after).then(|| format!("{what} is {after} instead of {before}"))
        };
        let text = |span: &Option<Span>| span.map(|span| span.to_string());
        let moment = |at: &Option<Timestamp>| at.map(local_time);
        let dearer = |limits: &Limits| {
            Some(match limits.fallback_cost {
                FallbackCost::Times(times) => format!("up to {times} times as dear"),
                FallbackCost::Any => "whatever fits".to_owned(),
            })
        };
        let all = [
            said("its run time", text(&self.max_runtime), text(&after.max_runtime)),
            said("its deadline", moment(&self.deadline), moment(&after.deadline)),
            said("what it may buy when the cheapest is not to be had", dearer(self), dearer(after)),
        ];
        all.into_iter().flatten().collect()
    }
}

fn allowed_already(spec: &Spec, wished: FallbackCost) -> Option<&'static str> {
    match spec.machine.cloud {
        CloudKind::Local => Some("one machine, which is this workstation"),
        CloudKind::Aws => (spec.machine.fallback_cost.or_wider(wished)
            == spec.machine.fallback_cost)
            .then_some("no narrower `fallback_cost`"),
    }
}

/// Whether more time changes anything: a limit in the job file, or how long the machine is kept.
fn is_timed(spec: &Spec) -> bool {
    let (on, limits) = (&spec.on, &spec.limits);
    let keeps = [on.success, on.failure, on.idle, on.stall]
        .iter()
        .any(|reaction| matches!(reaction, Reaction::Keep(_)));
    limits.max_runtime.is_some() || limits.deadline.is_some() || keeps
}

/// Whether its machine is kept after the end now, also for a user who works there.
async fn is_held(dir: &JobDir, session: &Session<'_>) -> Result<bool, Fault> {
    let summary = Summary::read(dir, session.clock.now())
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
    Ok(summary.is_some_and(|summary| summary.held.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_is_refused_where_agent_or_alarm_would_ignore_it() {
        let status = |more: &str| -> Status {
            let text = format!(
                r#"{{"format": 1, "instance": "i-1", "sequence": 1, "at": "2026-01-01T00:00:00Z", "phase": "running",
                "started": "2026-01-01T00:00:00Z", "verdict": "busy", "useful": "1s", "idle": "0s"{more}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let (old, new) = (status(""), status(r#", "keeps": true"#));
        let alarm = |text: &str| Some(text.parse::<AlarmRule>().unwrap());
        for (rule, status, refused) in [
            (None, Some(&new), None),
            (alarm("heartbeat for 15m"), Some(&new), None),
            (None, None, None),
            (None, Some(&old), Some("older version")),
            (alarm("cpu<=0.3 for 5m"), Some(&new), Some("`cpu<=0.3 for 5m`")),
        ] {
            let why = why_unkept(rule, status);
            assert_eq!(why.is_some(), refused.is_some(), "{rule:?}: {why:?}");
            assert!(why.is_none_or(|why| why.contains(refused.unwrap())), "{rule:?}");
        }
    }
}
