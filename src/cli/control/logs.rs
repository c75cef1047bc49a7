//! `lamp logs`: the workload's output, byte for byte.

use clap::Args as ClapArgs;

use super::outputs::warn_discarded;
use super::rank_logs::{self, RankLog, rank_object};
use crate::app::drive;
use crate::app::gang::gang_jobs::{find_rank, ranks_below};
use crate::app::log_tail::{LogEnd, LogTail, lines_in};
use crate::app::record_errors;
use crate::app::view::discarded;
use crate::app::view::standalone_run::AloneRun;
use crate::cli::output::log_piece::{as_object, print_piece};
use crate::cli::run::attach::{Attached, look_every};
use crate::cli::shell::job_root;
use crate::cli::shell::slow_notice::{never_silent, of_root};
use crate::cli::{Context, ExitCode, Fault, Format};
use crate::job::{AttemptNo, Discarded, StoredKind};
use crate::jobdir::{JobDir, JobDirError};

/// Print the output of a job
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// A job: its id, the beginning of it, or its name [default: the newest]
    pub job: Option<String>,

    /// Go on until the job has ended
    #[arg(short, long, conflicts_with = "attempt")]
    pub follow: bool,

    /// Only the last lines; with `--follow` those and what comes after
    #[arg(short = 'n', long, visible_alias = "lines", value_name = "N")]
    pub tail: Option<usize>,

    /// The output of this rank of several machines [default: all, each line with its rank]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,

    /// Only this attempt [default: all, in order]
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
}

/// # Errors
/// Fails when the job or the attempt is missing, or the job root is unreachable.
pub async fn run(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    if args.follow {
        return follow(args, context).await;
    }
    never_silent(context, of_root(context), print_all(args, context)).await
}

async fn follow(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let fault = |error: JobDirError| record_errors::record_fault(&error);
    let find = async {
        let store = job_root::open_existing(context).await?;
        let dir = find_rank(&store, args.job.as_deref(), args.rank).await?;
        let alone = AloneRun::read(&dir).await.map_err(fault)?;
        Ok::<_, Fault>((store, dir, alone))
    };
    // From here on, no output means that the log is silent.
    let (store, dir, alone) = never_silent(context, of_root(context), find).await?;
    warn_discarded(context, &dir, StoredKind::Logs).await;
    if let Some(mut logs) = logs_of_ranks(args, &dir).await {
        if let Some(lines) = args.tail {
            print_last_of_each(context, &mut logs, lines).await.map_err(fault)?;
        }
        let shown = rank_logs::follow(context, &mut logs);
        rank_logs::drive_beside(context, &store, &dir, shown).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let from = match args.tail {
        Some(lines) => {
            let attempts = dir.attempts().await.map_err(fault)?;
            let (last, tail) = last_of(&dir, &attempts, lines).await.map_err(fault)?;
            last.iter().for_each(|(attempt, bytes)| print_piece(context, *attempt, bytes));
            tail
        }
        None => None,
    };
    if alone.is_some() {
        return follow_alone(context, &dir, from).await.map_err(fault);
    }
    let controller = drive::controller(&job_root::workstation(context)?, &store)?;
    Attached::new(context, &dir).with_log().from(from).follow_and_drive(&controller).await?;
    Ok(ExitCode::SUCCESS)
}

async fn print_all(args: &Args, context: &Context) -> Result<ExitCode, Fault> {
    let store = job_root::open_existing(context).await?;
    let dir = find_rank(&store, args.job.as_deref(), args.rank).await?;
    let fault = |error: JobDirError| record_errors::record_fault(&error);
    let (attempts, gone) =
        tokio::join!(dir.attempts(), warn_discarded(context, &dir, StoredKind::Logs));
    let attempts = attempts.map_err(fault)?;
    if let Some(logs) = logs_of_ranks(args, &dir).await {
        let gone = gone.as_ref();
        print_ranks(args, context, logs, gone).await.map_err(fault)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen: Vec<AttemptNo> = match args.attempt.map(AttemptNo::new) {
        Some(one) if attempts.contains(&one) => vec![one],
        Some(one) => {
            return Err(Fault::new(
                ExitCode::NOT_FOUND,
                format!("job `{}` has no attempt {}", dir.job(), one.number()),
            )
            .hint(format!("it has {}", attempts.len())));
        }
        None => attempts,
    };
    let last = match args.tail {
        Some(lines) => Some(last_of(&dir, &chosen, lines).await.map_err(fault)?.0),
        None => None,
    };
    if context.printer.format() == Format::Json {
        let mut pieces: Vec<_> =
            last.iter().flatten().map(|(attempt, bytes)| as_object(*attempt, bytes)).collect();
        for attempt in chosen.into_iter().filter(|_| last.is_none()) {
            let mut tail = LogTail::new(attempt);
            loop {
                let bytes = tail.next(&dir).await.map_err(fault)?;
                if bytes.is_empty() {
                    break;
                }
                pieces.push(as_object(attempt, &bytes));
            }
        }
        context.printer.json(&serde_json::json!({ "job": dir.job(), "pieces": pieces, "discarded": discarded::for_programs(gone.as_ref()) }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_empty = last.as_ref().is_none_or(Vec::is_empty) && args.tail != Some(0);
    last.iter().flatten().for_each(|(attempt, bytes)| print_piece(context, *attempt, bytes));
    for attempt in chosen.into_iter().filter(|_| last.is_none()) {
        is_empty &= !print(context, &dir, attempt).await.map_err(fault)?;
    }
    if is_empty && gone.is_none() {
        let has_ended = dir.receipt().await.map_err(fault)?.is_some();
        context.printer.note(format!(
            "{} {}",
            dir.job(),
            if has_ended { "has printed nothing" } else { "has printed nothing yet" }
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The logs of all ranks. `None`: one log is meant.
async fn logs_of_ranks(args: &Args, dir: &JobDir) -> Option<Vec<RankLog>> {
    if args.rank.is_some() || args.attempt.is_some() {
        return None;
    }
    let jobs = ranks_below(dir).await;
    let of = |(rank, job)| RankLog::new(rank, JobDir::new(dir.store().clone(), job));
    (jobs.len() > 1).then(|| (0..).zip(jobs).map(of).collect())
}

/// The last lines of each rank. Newer lines are printed later.
async fn print_last_of_each(
    context: &Context,
    logs: &mut Vec<RankLog>,
    lines: usize,
) -> Result<Vec<serde_json::Value>, JobDirError> {
    let mut pieces = Vec::new();
    for log in std::mem::take(logs) {
        let attempts = log.dir.attempts().await?;
        let (last, tail) = last_of(&log.dir, &attempts, lines).await?;
        let mut log = log.from(tail);
        for (attempt, bytes) in &last {
            if context.printer.format() == Format::Json {
                pieces.push(rank_object(log.rank, *attempt, bytes));
            } else {
                log.print(context, *attempt, bytes);
            }
        }
        logs.push(log);
    }
    Ok(pieces)
}

/// The logs of all ranks so far. `gone`: they were deleted.
async fn print_ranks(
    args: &Args,
    context: &Context,
    mut logs: Vec<RankLog>,
    gone: Option<&Discarded>,
) -> Result<(), JobDirError> {
    let leader = logs[0].dir.clone();
    let is_document = context.printer.format() == Format::Json;
    let mut pieces = Vec::new();
    let mut is_empty = gone.is_none() && args.tail.is_none();
    if let Some(lines) = args.tail {
        pieces = print_last_of_each(context, &mut logs, lines).await?;
    } else if is_document {
        for log in &mut logs {
            while let Some((attempt, piece)) = log.next().await? {
                pieces.push(rank_object(log.rank, attempt, &piece));
            }
        }
    } else {
        is_empty &= !rank_logs::print_new(context, &mut logs).await?;
    }
    if is_document {
        context.printer.json(&serde_json::json!({ "job": leader.job(), "pieces": pieces, "discarded": discarded::for_programs(gone) }));
        return Ok(());
    }
    logs.iter_mut().for_each(|log| log.print_last(context));
    if is_empty {
        context.printer.note(format!("no rank of {} has printed anything", leader.job()));
    }
    Ok(())
}

async fn last_of(
    dir: &JobDir,
    attempts: &[AttemptNo],
    lines: usize,
) -> Result<(Vec<(AttemptNo, Vec<u8>)>, Option<LogTail>), JobDirError> {
    let (mut pieces, mut newest, mut left) = (Vec::new(), None, lines);
    for attempt in attempts.iter().rev() {
        let LogEnd { bytes, tail, .. } = LogTail::last(dir, *attempt, left).await?;
        left = left.saturating_sub(lines_in(&bytes));
        newest = newest.or(Some(tail));
        pieces.extend((!bytes.is_empty()).then_some((*attempt, bytes)));
        if left == 0 {
            break;
        }
    }
    pieces.reverse();
    Ok((pieces, newest))
}

/// A standalone run has no controller. Its log is followed until its agent records the end.
async fn follow_alone(
    context: &Context,
    dir: &JobDir,
    from: Option<LogTail>,
) -> Result<ExitCode, JobDirError> {
    let mut tail = from.unwrap_or_else(|| LogTail::new(AttemptNo::FIRST));
    loop {
        // Read before the log, so that no output before the end is missed.
        let over = AloneRun::read(dir).await?.is_none_or(|run| run.has_ended());
        loop {
            let bytes = tail.next(dir).await?;
            if context.printer.reader_is_gone() {
                return Ok(ExitCode::SUCCESS);
            }
            if bytes.is_empty() {
                break;
            }
            print_piece(context, AttemptNo::FIRST, &bytes);
        }
        if over {
            return Ok(ExitCode::SUCCESS);
        }
        context.clock.sleep(look_every(&dir.store().url())).await;
    }
}

async fn print(context: &Context, dir: &JobDir, attempt: AttemptNo) -> Result<bool, JobDirError> {
    let (mut tail, mut some) = (LogTail::new(attempt), false);
    loop {
        let bytes = tail.next(dir).await?;
        if bytes.is_empty() || context.printer.reader_is_gone() {
            return Ok(some);
        }
        some = true;
        print_piece(context, attempt, &bytes);
    }
}
