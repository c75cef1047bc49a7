//! `lamp schedules`: what is scheduled, the next run, the end of the last run, and why it waits.

use std::sync::Arc;

use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::Serialize;

use crate::app::record_errors;
use crate::app::text::local_time;
use crate::app::view::job_summary::Summary;
use crate::cli::run::run;
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault, Give, Stream, render_table_within};
use crate::job::{JobId, JobState, Schedule, ScheduleRun, ScheduleSpec, Waiting};
use crate::jobdir::{self, JobDir, JobDirError, ScheduleDir};
use crate::policy::schedule::calendar::{Calendar, DueVerdict, ScheduleFacts, Spot, judge};
use crate::wire::StoreHandle;

/// Show what is scheduled: the next run, the last one, and what it waits for
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Only this set, or this schedule as SET/NAME
    pub which: Option<String>,
}

#[derive(Serialize)]
struct ScheduleRow {
    set: String,
    name: String,
    file: String,
    owner: String,
    schedule: ScheduleSpec,
    /// When the next run that is not due yet can begin: at its due time, or when its hours begin.
    next: Option<Timestamp>,
    /// A due time that has passed without a decision.
    due: Option<Timestamp>,
    last: Option<LastRun>,
    waiting: Option<Waiting>,
    problem: Option<String>,
}

#[derive(Serialize)]
struct LastRun {
    due: Timestamp,
    decided: Timestamp,
    reason: String,
    /// `null`: the run was skipped.
    job: Option<JobId>,
    state: Option<JobState>,
    exit_code: Option<i32>,
    /// Why it ended, and the exit code that `lamp run` would have. `null`: it runs, or left no
    /// receipt.
    because: Option<String>,
    code: Option<u8>,
}

const READS_IN_FLIGHT: usize = 16;

/// # Errors
/// Fails when the job root is unreachable, or the schedule is missing.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let (set, name) =
        match args.which.as_deref().map(|which| which.split_once('/').unwrap_or((which, ""))) {
            Some((set, name)) => (Some(set), Some(name).filter(|name| !name.is_empty())),
            None => (None, None),
        };
    let dirs = jobdir::schedules(&store, set)
        .await
        .map_err(|error| record_errors::record_fault(&error.into()))?;
    let dirs = dirs.into_iter().filter(|dir| name.is_none_or(|name| dir.name() == name));
    let now = context.clock.now();
    let read = stream::iter(dirs).map(|dir| read(&store, dir, now)).buffered(READS_IN_FLIGHT);
    let shown: Vec<Option<ScheduleRow>> = read
        .try_collect()
        .await
        .map_err(|error: JobDirError| record_errors::record_fault(&error))?;
    let shown: Vec<ScheduleRow> = shown.into_iter().flatten().collect();
    if let (true, Some(which)) = (shown.is_empty(), &args.which) {
        return Err(Fault::new(
            ExitCode::NOT_FOUND,
            format!("no schedule `{which}` in {}", store.url()),
        )
        .hint("`lamp schedules` lists all"));
    }
    if context.is_machine_output() {
        context.printer.json(&serde_json::json!({ "schedules": shown }));
        return Ok(ExitCode::SUCCESS);
    }
    if shown.is_empty() {
        context.printer.note(format!("nothing is scheduled in {}", context.roots.url));
        context
            .printer
            .hint("a job file with a [schedule] table is scheduled by `lamp apply FILE`");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    context.printer.line(table(context.printer.columns(Stream::Out), &rows));
    run::note_daemon(context, true);
    Ok(ExitCode::SUCCESS)
}

fn table(width: Option<usize>, rows: &[Vec<String>]) -> String {
    render_table_within(
        width,
        &["schedule", "next run", "last run", "how it stands", "now"],
        rows,
        &[],
        Give { cut: &[4, 2], go: &[3, 2, 4] },
    )
}

/// `None`: the schedule was removed.
async fn read(
    store: &StoreHandle,
    dir: ScheduleDir,
    now: Timestamp,
) -> Result<Option<ScheduleRow>, JobDirError> {
    let Some(record) = dir.record().await?.filter(|record| record.removed.is_none()) else {
        return Ok(None);
    };
    let newest = dir.newest_run().await?;
    let last = match &newest {
        Some(run) => Some(last_run(store, run, now).await?),
        None => None,
    };
    let running = newest.as_ref().and_then(ScheduleRun::newest_job).cloned();
    let running = match running {
        Some(job) => Some(job.clone()).filter(|_| {
            last.as_ref().is_none_or(|last| last.state.is_none_or(|state| !state.is_final()))
        }),
        None => None,
    };
    let (next, due, problem) = match Calendar::of(&record.schedule) {
        Ok(calendar) => {
            let (next, due) = times(&record, &calendar, newest.as_ref(), running.as_ref(), now);
            (next, due, None)
        }
        Err(error) => (None, None, Some(error.to_string())),
    };
    // A wait recorded before the last decision is over.
    let waiting = jobdir::unless_damaged(dir.waiting().await)?;
    let waiting = waiting.filter(|waiting| {
        due.is_some() && newest.as_ref().is_none_or(|run| run.decided < waiting.at)
    });
    let Schedule { applied, schedule, .. } = record;
    let (set, name) = (dir.set().to_owned(), dir.name().to_owned());
    Ok(Some(ScheduleRow {
        set,
        name,
        file: applied.file,
        owner: applied.owner,
        schedule,
        next,
        due,
        last,
        waiting,
        problem,
    }))
}

fn times(
    record: &Schedule,
    calendar: &Calendar,
    newest: Option<&ScheduleRun>,
    running: Option<&JobId>,
    now: Timestamp,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let decided = newest.map(|run| run.due);
    let facts = ScheduleFacts {
        spec: &record.schedule,
        calendar,
        since: record.since,
        decided,
        running,
        seen: decided,
        spot: &Spot::NotAsked,
        now,
    };
    match judge(&facts) {
        DueVerdict::Rest { next } => (next.map(|due| calendar.begins(due)), None),
        DueVerdict::Run { due, .. }
        | DueVerdict::Skip { due, .. }
        | DueVerdict::Wait { due, .. }
        | DueVerdict::AskPrice { due } => (calendar.begins_after(now), Some(due)),
    }
}

async fn last_run(
    store: &StoreHandle,
    run: &ScheduleRun,
    now: Timestamp,
) -> Result<LastRun, JobDirError> {
    let job = run.job.as_ref().map(|spec| spec.job.clone());
    let dir = job.as_ref().map(|job| JobDir::new(Arc::clone(store), job.clone()));
    let (summary, receipt) = match &dir {
        Some(dir) => (Summary::read(dir, now).await?, jobdir::unless_damaged(dir.receipt().await)?),
        None => (None, None),
    };
    Ok(LastRun {
        due: run.due,
        decided: run.decided,
        reason: run.reason.clone(),
        job,
        state: summary.as_ref().map(|summary| summary.state),
        exit_code: summary.and_then(|summary| summary.exit_code),
        because: receipt.as_ref().map(|receipt| receipt.reason.clone()),
        code: receipt.as_ref().map(|receipt| ExitCode::of_receipt(receipt).number()),
    })
}

fn row(shown: &ScheduleRow) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let now = match (&shown.problem, &shown.waiting, shown.due) {
        (Some(problem), ..) => format!("cannot run: {problem}"),
        (None, Some(waiting), _) => format!("waits: {}", waiting.why),
        (None, None, Some(due)) => format!("due since {}", local_time(due)),
        (None, None, None) => "-".into(),
    };
    let ended = shown.last.as_ref().map(|last| match (&last.job, last.state) {
        (None, _) => format!("left out: {}", last.reason),
        (Some(job), Some(state @ (JobState::Failed | JobState::Ended)))
            if last.because.is_some() =>
        {
            format!("{state} ({job}): {}", last.because.as_deref().unwrap_or_default())
        }
        (Some(job), Some(state)) => format!("{state} ({job})"),
        (Some(job), None) => format!("being made ({job})"),
    });
    vec![
        format!("{}/{}", shown.set, shown.name),
        or_dash(shown.next.map(local_time)),
        or_dash(shown.last.as_ref().map(|last| local_time(last.due))),
        or_dash(ended),
        now,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::wrap::columns;

    #[test]
    fn terminal_of_80_columns_holds_the_schedules() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        let rows = [
            row([
                "experiments/nightly-llama",
                "2026-11-22 02:00:00",
                "2026-11-21 02:00:00",
                "succeeded",
                "waits for spot under $0.40/h in us-east-1, now $0.52/h",
            ]),
            row(["experiments/weekly", "2026-11-23 02:00:00", "-", "-", "-"]),
        ];
        let text = table(Some(80), &rows);
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(
            text.contains("experiments/nightly-llama") && text.contains("2026-11-22 02:00:00"),
            "{text}"
        );
    }
}
