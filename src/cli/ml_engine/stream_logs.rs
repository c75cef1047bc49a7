//! `lamp ml-engine jobs stream-logs`: the log of a job, of all its tasks, or of all trials of a
//! tuning, in the columns of gcloud.

use std::collections::BTreeMap;

use clap::Args as ClapArgs;

use crate::app::drive;
use crate::app::find_job;
use crate::app::gang::gang_jobs::{all_ranks, member_of};
use crate::app::log_tail::LogTail;
use crate::app::record_errors::record_fault;
use crate::app::submit::search_view::find_tuning;
use crate::app::tune::memory::TuneMemory;
use crate::cli::control::rank_logs::{GangEndWatch, RankLog, drive_beside, pause};
use crate::cli::output::log_columns::LogColumns;
use crate::cli::run::attach::{Attached, look_every};
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::{GangRole, JobId, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::StoreHandle;

/// The service named the only task of a job so.
pub const TASK: &str = "master-replica-0";

#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its name or its id
    pub job: String,
    /// Only this task, such as `worker-replica-1`
    #[arg(long, value_name = "TASK")]
    pub task_name: Option<String>,
    /// Accepted without effect: a new line is printed at once
    #[arg(long, value_name = "SECONDS")]
    pub polling_interval: Option<u32>,
    /// Accepted without effect: each line is one line
    #[arg(long)]
    pub allow_multiline_logs: bool,
}

/// # Errors
/// Fails when the job or the task is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    say_unused(args, context);
    let store = job_root::open_existing(context).await?;
    if let Some(memory) = find_tuning(&store, &args.job).await? {
        if args.task_name.is_some() {
            context.printer.note("--task-name has no meaning for a search: all tasks are shown");
        }
        return stream_trials(context, memory).await;
    }
    let dir = find_job::find(&store, Some(&args.job)).await?;
    let member = member_of(&dir).await.map_err(|error| record_fault(&error))?;
    let member = member.filter(|member| member.rank == 0 && member.seats.len() > 1);
    let names = match &member {
        Some(member) => task_names(member.seats.iter().map(|seat| seat.role)),
        None => vec![TASK.to_owned()],
    };
    let chosen = chosen(&names, args.task_name.as_deref()).map_err(|hint| {
        let task = args.task_name.as_deref().unwrap_or_default();
        let what = format!("job `{}` has no task `{task}`", dir.job());
        Fault::new(ExitCode::NOT_FOUND, what).hint(hint)
    })?;
    if let Some(member) = member {
        let ranks = all_ranks(&dir, &member);
        let shown = stream_tasks(context, &ranks, chosen);
        drive_beside(context, &store, &dir, shown).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let controller = drive::controller(&job_root::workstation(context)?, &store)?;
    let mut attached = Attached::new(context, &dir).in_columns(LogColumns::new(TASK, None));
    attached.follow_and_drive(&controller).await?;
    Ok(ExitCode::SUCCESS)
}

fn say_unused(args: &Args, context: &Context) {
    let given = [
        ("--polling-interval", args.polling_interval.is_some()),
        ("--allow-multiline-logs", args.allow_multiline_logs),
    ];
    for (name, _) in given.iter().filter(|(_, is_given)| *is_given) {
        context.printer.note(format!("{name} has no meaning here"));
    }
}

/// The names that the service gave to the tasks of these roles, in the order of ranks.
fn task_names(roles: impl Iterator<Item = GangRole>) -> Vec<String> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let name = |role: GangRole| {
        let word = match role {
            GangRole::Chief | GangRole::Head => "master",
            GangRole::Worker | GangRole::Ps | GangRole::Evaluator => role.word(),
        };
        let count = counts.entry(word).or_default();
        *count += 1;
        format!("{word}-replica-{}", *count - 1)
    };
    roles.map(name).collect()
}

/// The tasks to show, by their ranks. The error is a hint.
fn chosen(names: &[String], task: Option<&str>) -> Result<Vec<(usize, String)>, String> {
    let all = names.iter().cloned().enumerate();
    let chosen: Vec<_> = all.filter(|(_, name)| task.is_none_or(|task| task == name)).collect();
    if chosen.is_empty() {
        return Err(format!("its tasks are {}", names.join(", ")));
    }
    Ok(chosen)
}

/// The logs of these tasks of a gang, until it has ended.
async fn stream_tasks(
    context: &Context,
    ranks: &[JobDir],
    tasks: Vec<(usize, String)>,
) -> Result<(), Fault> {
    let log = |(rank, name): (usize, String)| {
        let number = u32::try_from(rank).unwrap_or(u32::MAX);
        (RankLog::new(number, ranks[rank].clone()), LogColumns::new(&name, None))
    };
    let mut logs: Vec<(RankLog, LogColumns)> = tasks.into_iter().map(log).collect();
    let mut end = GangEndWatch::default();
    loop {
        // Read before the logs, so that no output before the end is missed.
        let is_over = end.is_over(context, ranks).await;
        for (log, columns) in &mut logs {
            match print_task(context, log, columns).await {
                Ok(()) | Err(JobDirError::Store(_)) => {}
                Err(error) => return Err(record_fault(&error)),
            }
            let last = is_over.then(|| columns.last(context.clock.now())).flatten();
            last.iter().for_each(|line| context.printer.line(line));
        }
        if is_over || context.printer.reader_is_gone() {
            return Ok(());
        }
        pause(context, ranks).await;
    }
}

async fn print_task(
    context: &Context,
    log: &mut RankLog,
    columns: &mut LogColumns,
) -> Result<(), JobDirError> {
    while let Some((_, piece)) = log.next().await? {
        let at = log.arrived().await?.unwrap_or_else(|| context.clock.now());
        columns.lines(at, &piece).iter().for_each(|line| context.printer.line(line));
    }
    Ok(())
}

/// The logs of all trials, until the tuning has ended. Another process drives it.
///
/// # Errors
/// Fails when the job root does not answer.
pub async fn stream_trials(context: &Context, mut memory: TuneMemory) -> Result<ExitCode, Fault> {
    let store: StoreHandle = memory.store.clone();
    let mut logs: BTreeMap<JobId, TrialLog> = BTreeMap::new();
    loop {
        // Read before the logs, so that no output before an end is missed.
        memory.refresh().await?;
        let is_over = memory.is_over();
        for (number, known) in &memory.trials {
            for (at, spec) in known.jobs.iter().enumerate() {
                let has_ended = !known.is_running() || at + 1 < known.jobs.len();
                for (job, task) in trial_tasks(spec) {
                    let log = logs.entry(job.clone());
                    let log = log.or_insert_with(|| TrialLog::new(&store, *number, &job, &task));
                    if log.is_done {
                        continue;
                    }
                    log.print_new(context).await.map_err(|error| record_fault(&error))?;
                    if has_ended {
                        log.print_last(context);
                    }
                }
            }
        }
        if is_over || context.printer.reader_is_gone() {
            return Ok(ExitCode::SUCCESS);
        }
        context.clock.sleep(look_every(&store.url())).await;
    }
}

/// The jobs of all ranks of a trial, each with the name of its task.
fn trial_tasks(spec: &ResolvedSpec) -> Vec<(JobId, String)> {
    let Some(member) = spec.member() else { return vec![(spec.job.clone(), TASK.to_owned())] };
    let names = task_names(member.seats.iter().map(|seat| seat.role));
    member.seats.iter().map(|seat| seat.job.clone()).zip(names).collect()
}

/// The log of one job of a trial, as far as it was printed.
struct TrialLog {
    dir: JobDir,
    columns: LogColumns,
    tail: Option<LogTail>,
    is_done: bool,
}

impl TrialLog {
    fn new(store: &StoreHandle, number: u32, job: &JobId, task: &str) -> Self {
        TrialLog {
            dir: JobDir::new(store.clone(), job.clone()),
            columns: LogColumns::new(task, Some(number)),
            tail: None,
            is_done: false,
        }
    }

    async fn print_new(&mut self, context: &Context) -> Result<(), JobDirError> {
        for attempt in self.dir.attempts().await? {
            if self.tail.as_ref().is_some_and(|tail| tail.attempt > attempt) {
                continue;
            }
            let tail = match self.tail.take() {
                Some(tail) if tail.attempt == attempt => tail,
                _ => LogTail::new(attempt),
            };
            let tail = self.tail.insert(tail);
            loop {
                let piece = tail.next(&self.dir).await?;
                if piece.is_empty() {
                    break;
                }
                let at = tail.arrived(&self.dir).await?.unwrap_or_else(|| context.clock.now());
                let lines = self.columns.lines(at, &piece);
                lines.iter().for_each(|line| context.printer.line(line));
            }
        }
        Ok(())
    }

    fn print_last(&mut self, context: &Context) {
        self.is_done = true;
        let last = self.columns.last(context.clock.now());
        last.iter().for_each(|line| context.printer.line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_the_names_of_the_service() {
        let roles = [GangRole::Chief, GangRole::Worker, GangRole::Worker, GangRole::Ps];
        let names = task_names(roles.into_iter());
        assert_eq!(
            names,
            ["master-replica-0", "worker-replica-0", "worker-replica-1", "ps-replica-0"]
        );
        let all = chosen(&names, None).unwrap();
        assert_eq!(all.len(), 4);
        let one = chosen(&names, Some("worker-replica-1")).unwrap();
        assert_eq!(one, [(2, "worker-replica-1".to_owned())]);
        let hint = chosen(&names, Some("worker-replica-2")).unwrap_err();
        assert!(hint.ends_with("worker-replica-1, ps-replica-0"), "{hint}");
    }
}
