//! What makes the jobs of a set be what the files of a directory say.
//!
//! ```text
//!   file ── no job, no schedule ─> create          words the same ─> unchanged
//!        └─ other words ─────────> changed         file is gone ───> gone
//!   the words the same, its job ended without success, and that is to be mended ──> again
//! ```
//! A job's spec is immutable: other words are another job, and the old one runs on unless it is to be replaced. What
//! carries no label of the set is not among the facts, so it is never touched. What must never live here: a call.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::job::{Applied, JobId};

/// A job file as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFact {
    pub file: String,
    pub sha256: String,
    /// It has a `[schedule]`.
    pub is_scheduled: bool,
    /// The schedule that is there is what the file says, workdir and all.
    pub is_as_kept: bool,
}

/// A job that this set and owner has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    pub job: JobId,
    pub applied: Applied,
    pub created: Timestamp,
    pub has_ended: bool,
    /// It has ended, and not with success: it was stopped, it failed, or a limit ended it.
    pub fell_short: bool,
}

/// What the user allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyWishes {
    /// A job whose file has changed is stopped before the new one is made.
    pub replace: bool,
    /// What is left of files that are gone is stopped.
    pub prune: bool,
    /// A file whose job fell short is made a job again.
    pub again: bool,
    /// The files are all that there are: what is not among them is gone.
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

/// What is to be done about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub file: String,
    pub kind: Applies,
    pub change: ChangeKind,
    /// Jobs that are stopped.
    pub stops: Vec<JobId>,
    /// Jobs of older words, also of a file that has not changed since, or of one that is gone, that run on.
    pub leaves: Vec<JobId>,
    /// A schedule that ends here.
    pub unschedules: bool,
}

impl Change {
    /// Whether something is made or written.
    pub fn makes(&self) -> bool {
        matches!(self.change, ChangeKind::Create | ChangeKind::Changed | ChangeKind::Again)
    }

    /// Whether nothing at all is to be done.
    pub fn is_nothing(&self) -> bool {
        !self.makes() && self.stops.is_empty() && !self.unschedules
    }
}

/// The change of every file, in their order, and then of those that are gone. `scheduled`: the files with a schedule that
/// is in force.
pub fn changes(files: &[FileFact], jobs: &[JobFact], scheduled: &BTreeSet<String>, wishes: ApplyWishes) -> Vec<Change> {
    let mut changes: Vec<Change> = files.iter().map(|file| change_of(file, jobs, scheduled.contains(&file.file), wishes)).collect();
    if wishes.whole {
        let there: BTreeSet<&str> = files.iter().map(|file| file.file.as_str()).collect();
        let open = jobs.iter().filter(|job| !job.has_ended).map(|job| &job.applied.file);
        let known: BTreeSet<&String> = scheduled.iter().chain(open).filter(|file| !there.contains(file.as_str())).collect();
        changes.extend(known.into_iter().map(|file| gone(file, jobs, scheduled.contains(file), wishes)));
    }
    changes
}

fn open_of(file: &str, jobs: &[JobFact]) -> Vec<JobId> {
    jobs.iter().filter(|job| job.applied.file == file && !job.has_ended).map(|job| job.job.clone()).collect()
}

/// Those under way whose place another has taken: of other words, or of the same words again beside a newer one.
fn older_of<'a>(file: &FileFact, jobs: &'a [JobFact]) -> BTreeSet<&'a JobId> {
    let newest = newest_of(&file.file, jobs).filter(|job| !job.has_ended && !file.is_scheduled);
    let is_older = |job: &&JobFact| job.applied.sha256 != file.sha256 || newest.is_some_and(|newest| newest.job != job.job);
    jobs.iter().filter(|job| job.applied.file == file.file).filter(is_older).map(|job| &job.job).collect()
}

/// The job that was made last of a file.
pub fn newest_of<'a>(file: &str, jobs: &'a [JobFact]) -> Option<&'a JobFact> {
    jobs.iter().filter(|job| job.applied.file == file).max_by_key(|job| (job.created, job.job.clone()))
}

fn change_of(file: &FileFact, jobs: &[JobFact], has_schedule: bool, wishes: ApplyWishes) -> Change {
    let newest = newest_of(&file.file, jobs);
    let (mut open, older) = (open_of(&file.file, jobs), older_of(file, jobs));
    let change = match (file.is_scheduled, has_schedule, newest) {
        (true, true, _) if file.is_as_kept => ChangeKind::Unchanged,
        (true, false, None) | (false, false, None) => ChangeKind::Create,
        // What a schedule made is not what the file asks for now.
        (false, false, Some(job)) if job.applied.sha256 == file.sha256 && job.applied.due.is_none() => {
            // Whatever the clocks said that dated them: one at a time.
            let gives_way = |job: &JobId| wishes.replace && older.contains(job);
            if wishes.again && job.fell_short && open.iter().all(gives_way) { ChangeKind::Again } else { ChangeKind::Unchanged }
        }
        _ => ChangeKind::Changed,
    };
    if change == ChangeKind::Unchanged {
        open.retain(|job| older.contains(job));
    }
    let (stops, leaves) = if wishes.replace { (open, Vec::new()) } else { (Vec::new(), open) };
    let kind = if file.is_scheduled { Applies::Schedule } else { Applies::Job };
    Change { file: file.file.clone(), kind, change, stops, leaves, unschedules: has_schedule && !file.is_scheduled }
}

fn gone(file: &str, jobs: &[JobFact], has_schedule: bool, wishes: ApplyWishes) -> Change {
    let open = open_of(file, jobs);
    let (stops, leaves) = if wishes.prune { (open, Vec::new()) } else { (Vec::new(), open) };
    let kind = if has_schedule { Applies::Schedule } else { Applies::Job };
    Change { file: file.to_owned(), kind, change: ChangeKind::Gone, stops, leaves, unschedules: has_schedule && wishes.prune }
}
