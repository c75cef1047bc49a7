//! The output of all ranks of a gang: piece by piece in turn, each line with its rank.
//!
//! Not here: which lines a person asks for (`logs`).

use std::pin::pin;
use std::time::Duration;

use crate::app::drive;
use crate::app::log_tail::LogTail;
use crate::app::record_errors::record_fault;
use crate::cli::output::log_piece::as_object;
use crate::cli::run::attach::look_every;
use crate::cli::shell::ctrl_c::LeaveSignals;
use crate::cli::shell::job_root;
use crate::cli::{Context, Fault};
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::StoreHandle;

/// The other ranks end after rank 0, within their power-off. Longer waits for a machine that has
/// gone; shorter loses its last lines.
const OTHERS_END_WITHIN: Duration = Duration::from_secs(180);

/// The log of one rank, through all its attempts.
pub struct RankLog {
    pub rank: u32,
    pub dir: JobDir,
    tail: Option<LogTail>,
    lines: RankLines,
}

impl RankLog {
    pub fn new(rank: u32, dir: JobDir) -> Self {
        RankLog { rank, dir, tail: None, lines: RankLines { rank, rest: Vec::new() } }
    }

    /// Goes on after these bytes, which were shown.
    #[must_use]
    pub fn from(mut self, tail: Option<LogTail>) -> Self {
        self.tail = tail;
        self
    }

    /// The next piece, and its attempt; `None`: there is no more yet.
    ///
    /// # Errors
    /// Fails when the store does not answer.
    pub async fn next(&mut self) -> Result<Option<(AttemptNo, Vec<u8>)>, JobDirError> {
        loop {
            if let Some(tail) = &mut self.tail {
                let bytes = tail.next(&self.dir).await?;
                if !bytes.is_empty() {
                    return Ok(Some((tail.attempt, bytes)));
                }
            }
            let last = self.tail.as_ref().map(|tail| tail.attempt);
            let attempts = self.dir.attempts().await?;
            let Some(next) = attempts.into_iter().find(|next| last.is_none_or(|last| *next > last))
            else {
                return Ok(None);
            };
            self.tail = Some(LogTail::new(next));
        }
    }

    /// When the piece that was returned last came to the job root.
    ///
    /// # Errors
    /// Fails when the store does not answer.
    pub async fn arrived(&self) -> Result<Option<jiff::Timestamp>, JobDirError> {
        match &self.tail {
            Some(tail) => tail.arrived(&self.dir).await,
            None => Ok(None),
        }
    }

    /// Prints a piece: whole lines for people, an object for programs.
    pub fn print(&mut self, context: &Context, attempt: AttemptNo, piece: &[u8]) {
        if context.is_machine_output() {
            context.printer.line(rank_object(self.rank, attempt, piece));
        } else {
            context.printer.bytes(&self.lines.complete(piece));
        }
    }

    /// Prints what came after the last line end.
    pub fn print_last(&mut self, context: &Context) {
        let last = self.lines.last();
        if !last.is_empty() {
            context.printer.bytes(&last);
        }
    }
}

/// Makes lines of the pieces of a rank, which may end inside a line.
struct RankLines {
    rank: u32,
    rest: Vec<u8>,
}

impl RankLines {
    /// The complete lines so far, each with its rank.
    fn complete(&mut self, piece: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(piece);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let after = self.rest.split_off(end);
        with_rank(self.rank, &std::mem::replace(&mut self.rest, after))
    }

    /// The rest as a line; empty: there is none.
    fn last(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        with_rank(self.rank, &rest)
    }
}

/// A piece of a rank for programs.
pub fn rank_object(rank: u32, attempt: AttemptNo, piece: &[u8]) -> serde_json::Value {
    let mut object = as_object(attempt, piece);
    object["rank"] = rank.into();
    object
}

/// `lines`: whole lines.
pub fn with_rank(rank: u32, lines: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(lines.len() + lines.len() / 8);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(format!("[{rank}] ").as_bytes());
        text.extend_from_slice(line);
    }
    text
}

/// Prints what is there, one piece of each rank in turn. Returns whether there was something.
///
/// # Errors
/// Fails when the store does not answer.
pub async fn print_new(context: &Context, logs: &mut [RankLog]) -> Result<bool, JobDirError> {
    let mut is_some = false;
    loop {
        let mut is_new = false;
        for log in logs.iter_mut() {
            if let Some((attempt, piece)) = log.next().await? {
                log.print(context, attempt, &piece);
                is_new = true;
            }
        }
        is_some |= is_new;
        if !is_new || context.printer.reader_is_gone() {
            return Ok(is_some);
        }
    }
}

/// Prints the logs until the gang has ended.
///
/// # Errors
/// Fails on a record that this version does not understand.
pub async fn follow(context: &Context, logs: &mut [RankLog]) -> Result<(), Fault> {
    let mut end = GangEndWatch::default();
    let ranks: Vec<JobDir> = logs.iter().map(|log| log.dir.clone()).collect();
    loop {
        // Read before the logs, so that no output before the end is missed.
        let is_over = end.is_over(context, &ranks).await;
        match print_new(context, logs).await {
            Ok(_) | Err(JobDirError::Store(_)) => {}
            Err(error) => return Err(record_fault(&error)),
        }
        if is_over || context.printer.reader_is_gone() {
            logs.iter_mut().for_each(|log| log.print_last(context));
            return Ok(());
        }
        pause(context, &ranks).await;
    }
}

/// Between two looks at the logs of these ranks.
pub async fn pause(context: &Context, ranks: &[JobDir]) {
    let root = ranks.first().map(|dir| dir.store().url()).unwrap_or_default();
    context.clock.sleep(look_every(&root)).await;
}

/// Whether all ranks have ended.
#[derive(Default)]
pub struct GangEndWatch {
    /// Since when rank 0 has its receipt.
    first_over: Option<Duration>,
}

impl GangEndWatch {
    /// `ranks`: all of them, rank 0 first.
    pub async fn is_over(&mut self, context: &Context, ranks: &[JobDir]) -> bool {
        let now = context.clock.mono();
        if self.first_over.is_some_and(|since| now.saturating_sub(since) >= OTHERS_END_WITHIN) {
            return true;
        }
        for dir in ranks {
            if !matches!(dir.receipt().await, Ok(Some(_))) {
                return false;
            }
            self.first_over.get_or_insert(now);
        }
        true
    }
}

/// Drives rank 0 while something is shown. Each other rank has a process of its own. Ctrl-C only
/// ends the show.
///
/// # Errors
/// Fails when the job cannot be driven, or as what is shown.
pub async fn drive_beside(
    context: &Context,
    store: &StoreHandle,
    leader: &JobDir,
    shown: impl Future<Output = Result<(), Fault>>,
) -> Result<(), Fault> {
    let workstation = job_root::workstation(context)?;
    let controller = drive::controller(&workstation, store)?;
    let _driving = workstation.lock_driving(leader.job().as_str());
    let mut left = LeaveSignals::listen();
    let mut driven = pin!(controller.drive(leader.job()));
    let mut shown = pin!(shown);
    let mut has_ended = false;
    loop {
        tokio::select! {
            shown = &mut shown => return shown,
            receipt = &mut driven, if !has_ended => {
                receipt.map_err(|error| drive::drive_fault(&error))?;
                has_ended = true;
            }
            () = left.heard() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_rank_although_pieces_end_inside() {
        let mut lines = RankLines { rank: 2, rest: Vec::new() };
        assert_eq!(lines.complete(b"epo"), b"");
        assert_eq!(lines.complete(b"ch 1\n\nep"), b"[2] epoch 1\n[2] \n");
        assert_eq!(lines.last(), b"[2] ep\n");
        assert_eq!(lines.last(), b"");
    }
}
