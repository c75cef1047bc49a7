//! `lamp ml-engine jobs stream-logs`: the log of a job, or of all trials of a tuning, in the
//! columns of gcloud.

use std::collections::BTreeMap;

use clap::Args as ClapArgs;

use crate::app::drive;
use crate::app::find_job;
use crate::app::log_tail::LogTail;
use crate::app::record_errors::record_fault;
use crate::app::submit::search_view::find_tuning;
use crate::app::tune::memory::TuneMemory;
use crate::cli::output::log_columns::LogColumns;
use crate::cli::run::attach::{Attached, look_every};
use crate::cli::shell::job_root;
use crate::cli::{Context, ExitCode, Fault};
use crate::job::JobId;
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::StoreHandle;

/// The service named the tasks of a job so. A job has one log here.
pub const TASK: &str = "master-replica-0";

#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its name or its id
    pub job: String,
    /// Accepted without effect: a job has one log
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
/// Fails when the job is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    say_unused(args, context);
    let store = job_root::open_existing(context).await?;
    if let Some(memory) = find_tuning(&store, &args.job).await? {
        return stream_trials(context, memory).await;
    }
    let dir = find_job::find(&store, Some(&args.job)).await?;
    let controller = drive::controller(&job_root::workstation(context)?, &store)?;
    let mut attached = Attached::new(context, &dir).in_columns(LogColumns::new(TASK, None));
    attached.follow_and_drive(&controller).await?;
    Ok(ExitCode::SUCCESS)
}

fn say_unused(args: &Args, context: &Context) {
    let given = [
        ("--task-name", args.task_name.is_some()),
        ("--polling-interval", args.polling_interval.is_some()),
        ("--allow-multiline-logs", args.allow_multiline_logs),
    ];
    for (name, _) in given.iter().filter(|(_, is_given)| *is_given) {
        context.printer.note(format!("{name} has no meaning here"));
    }
}

/// The logs of all trials, until the tuning has ended. Another process drives it.
///
/// # Errors
/// Fails when the job root does not answer.
pub async fn stream_trials(context: &Context, mut memory: TuneMemory) -> Result<ExitCode, Fault> {
    let store: StoreHandle = memory.store.clone();
    let mut logs: BTreeMap<(u32, usize), TrialLog> = BTreeMap::new();
    loop {
        // Read before the logs, so that no output before an end is missed.
        memory.refresh().await?;
        let is_over = memory.is_over();
        for (number, known) in &memory.trials {
            for (at, spec) in known.jobs.iter().enumerate() {
                let log = logs.entry((*number, at));
                let log = log.or_insert_with(|| TrialLog::new(&store, *number, &spec.job));
                if log.is_done {
                    continue;
                }
                log.print_new(context).await.map_err(|error| record_fault(&error))?;
                if !known.is_running() || at + 1 < known.jobs.len() {
                    log.print_last(context);
                }
            }
        }
        if is_over || context.printer.reader_is_gone() {
            return Ok(ExitCode::SUCCESS);
        }
        context.clock.sleep(look_every(&store.url())).await;
    }
}

/// The log of one job of a trial, as far as it was printed.
struct TrialLog {
    dir: JobDir,
    columns: LogColumns,
    tail: Option<LogTail>,
    is_done: bool,
}

impl TrialLog {
    fn new(store: &StoreHandle, number: u32, job: &JobId) -> Self {
        TrialLog {
            dir: JobDir::new(store.clone(), job.clone()),
            columns: LogColumns::new(TASK, Some(number)),
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
