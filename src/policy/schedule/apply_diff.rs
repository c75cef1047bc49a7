//! The changes that make a set's jobs match the files of a directory.
//!
//! ```text
//!   file ── no job, no schedule ─> create          words the same ─> unchanged
//!        └─ other words ─────────> changed         file is gone ───> gone
//!   the words the same, its job ended without success, `again` is set ──> again
//! ```
//! A job's spec is immutable: changed words make a new job, and the old job runs on unless
//! `replace` is set. Jobs without the label of the set are not among the facts, so they stay
//! untouched.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::job::{Applied, JobId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFact {
    pub file: String,
    pub sha256: String,
    /// It has a `[schedule]`.
    pub is_scheduled: bool,
    /// The stored schedule matches the file, including the workdir.
    pub is_as_kept: bool,
}

/// A job that this set and owner made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    pub job: JobId,
    pub applied: Applied,
    pub created: Timestamp,
    pub has_ended: bool,
    /// It ended without success: it was stopped, it failed, or a limit ended it.
    pub fell_short: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyWishes {
    /// Stop a job whose file changed before making the new one.
    pub replace: bool,
    /// Stop the jobs and schedules of deleted files.
    pub prune: bool,
    /// Make a new job for a file whose job ended without success.
    pub again: bool,
    /// The list of files is complete: a missing file counts as deleted.
    pub whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Create,
    Unchanged,
    Changed,
    Again,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Applies {
    Job,
    Schedule,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    pub file: String,
    pub kind: Applies,
    pub change: ChangeKind,
    pub stops: Vec<JobId>,
    /// Older jobs of the file, changed or deleted or not, that run on.
    pub leaves: Vec<JobId>,
    /// The file's schedule ends.
    pub unschedules: bool,
}

impl FileChange {
    pub fn makes(&self) -> bool {
        matches!(self.change, ChangeKind::Create | ChangeKind::Changed | ChangeKind::Again)
    }

    pub fn is_nothing(&self) -> bool {
        !self.makes() && self.stops.is_empty() && !self.unschedules
    }
}

/// The change of every file in order, then of the deleted ones. `scheduled`: files with an active
/// schedule.
pub fn changes(
    files: &[FileFact],
    jobs: &[JobFact],
    scheduled: &BTreeSet<String>,
    wishes: ApplyWishes,
) -> Vec<FileChange> {
    let mut changes: Vec<FileChange> = files
        .iter()
        .map(|file| change_of(file, jobs, scheduled.contains(&file.file), wishes))
        .collect();
    if wishes.whole {
        let there: BTreeSet<&str> = files.iter().map(|file| file.file.as_str()).collect();
        let open = jobs.iter().filter(|job| !job.has_ended).map(|job| &job.applied.file);
        let known: BTreeSet<&String> =
            scheduled.iter().chain(open).filter(|file| !there.contains(file.as_str())).collect();
        changes.extend(
            known.into_iter().map(|file| gone(file, jobs, scheduled.contains(file), wishes)),
        );
    }
    changes
}

fn open_of(file: &str, jobs: &[JobFact]) -> Vec<JobId> {
    jobs.iter()
        .filter(|job| job.applied.file == file && !job.has_ended)
        .map(|job| job.job.clone())
        .collect()
}

/// Running jobs that a newer one replaces: with other words, or with the same words and older.
fn older_of<'a>(file: &FileFact, jobs: &'a [JobFact]) -> BTreeSet<&'a JobId> {
    let newest = newest_of(&file.file, jobs).filter(|job| !job.has_ended && !file.is_scheduled);
    let is_older = |job: &&JobFact| {
        job.applied.sha256 != file.sha256 || newest.is_some_and(|newest| newest.job != job.job)
    };
    jobs.iter()
        .filter(|job| job.applied.file == file.file)
        .filter(is_older)
        .map(|job| &job.job)
        .collect()
}

pub fn newest_of<'a>(file: &str, jobs: &'a [JobFact]) -> Option<&'a JobFact> {
    jobs.iter()
        .filter(|job| job.applied.file == file)
        .max_by_key(|job| (job.created, job.job.clone()))
}

fn change_of(
    file: &FileFact,
    jobs: &[JobFact],
    has_schedule: bool,
    wishes: ApplyWishes,
) -> FileChange {
    let newest = newest_of(&file.file, jobs);
    let (mut open, older) = (open_of(&file.file, jobs), older_of(file, jobs));
    let change = match (file.is_scheduled, has_schedule, newest) {
        (true, true, _) if file.is_as_kept => ChangeKind::Unchanged,
        (true, false, None) | (false, false, None) => ChangeKind::Create,
        // A job made by a schedule counts only for a scheduled file.
        (false, false, Some(job))
            if job.applied.sha256 == file.sha256 && job.applied.due.is_none() =>
        {
            // One job at a time, even if wrong clocks dated them.
            let gives_way = |job: &JobId| wishes.replace && older.contains(job);
            if wishes.again && job.fell_short && open.iter().all(gives_way) {
                ChangeKind::Again
            } else {
                ChangeKind::Unchanged
            }
        }
        _ => ChangeKind::Changed,
    };
    if change == ChangeKind::Unchanged {
        open.retain(|job| older.contains(job));
    }
    let (stops, leaves) = if wishes.replace { (open, Vec::new()) } else { (Vec::new(), open) };
    let kind = if file.is_scheduled { Applies::Schedule } else { Applies::Job };
    FileChange {
        file: file.file.clone(),
        kind,
        change,
        stops,
        leaves,
        unschedules: has_schedule && !file.is_scheduled,
    }
}

fn gone(file: &str, jobs: &[JobFact], has_schedule: bool, wishes: ApplyWishes) -> FileChange {
    let open = open_of(file, jobs);
    let (stops, leaves) = if wishes.prune { (open, Vec::new()) } else { (Vec::new(), open) };
    let kind = if has_schedule { Applies::Schedule } else { Applies::Job };
    FileChange {
        file: file.to_owned(),
        kind,
        change: ChangeKind::Gone,
        stops,
        leaves,
        unschedules: has_schedule && wishes.prune,
    }
}
