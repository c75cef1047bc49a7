//! When a job is to be run again, and what a directory of job files has made: nouns and their records.
//!
//! A schedule stands in the job file (`[schedule]`); `lamp apply` leaves it as a record in the job root, and a daemon makes a
//! job of it each time that it is due. What must never live here: when it is due (`policy::schedule::calendar`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Time;
use serde::{Deserialize, Serialize};

use crate::job::{CodeArchive, JobId, ResolvedSpec, Spec};
use crate::market::UsdPerHour;

/// The user's words for when a job is run, every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// Five fields; `None`: once, as soon as the other conditions hold.
    #[serde(default)]
    pub cron: Option<String>,
    /// An IANA name: what the clock of `cron` and `only_between` shows.
    pub timezone: String,
    /// From this time of day up to that one, over midnight if the second is the earlier.
    #[serde(default)]
    pub only_between: Option<(Time, Time)>,
    #[serde(default)]
    pub only_while_spot_under: Option<UsdPerHour>,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// What becomes of a run that is due while the last one still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// It waits; several that wait are one.
    Queue,
}

/// What becomes of runs that came due while nobody drove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUp {
    /// The latest of them is run, late.
    #[default]
    Latest,
    None,
}

/// Which file of which directory a job was made from. What carries no such label, or another's, `lamp apply` never touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The name of the directory, or what `--set` said.
    pub set: String,
    /// Relative to the directory.
    pub file: String,
    /// Of the file's bytes, lower-case hex.
    pub sha256: String,
    /// Who applied it: another user of the same job root has sets of the same names.
    pub owner: String,
    /// When it was due, of a run of a schedule.
    #[serde(default)]
    pub due: Option<Timestamp>,
}

/// `schedules/<set>/<name>.json`: written by `lamp apply`, read by the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub format: u32,
    pub applied: Applied,
    /// Nothing is due before: when these words were applied first.
    pub since: Timestamp,
    pub written_by: String,
    pub schedule: ScheduleSpec,
    /// What each run gets.
    pub spec: Spec,
    #[serde(default)]
    pub code: Option<CodeArchive>,
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    /// The only workstation whose daemon runs it, for `cloud = "local"`; `None`: any.
    #[serde(default)]
    pub here: Option<String>,
    /// Its file is gone, or has no `[schedule]` any more: nothing is due since then.
    #[serde(default)]
    pub removed: Option<Timestamp>,
}

/// `schedules/<set>/<name>/runs/<due>.json`, created only if absent: whoever creates it has decided this due time, once for
/// all daemons, and the spec in it is the job's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    pub format: u32,
    pub due: Timestamp,
    pub decided: Timestamp,
    /// The controller that decided, for people.
    pub by: String,
    /// Why, in a sentence.
    pub reason: String,
    /// The job; `None`: this one was left out.
    #[serde(default)]
    pub job: Option<Box<ResolvedSpec>>,
    /// The run that was under way when this one was left out.
    #[serde(default)]
    pub running: Option<JobId>,
}

impl ScheduleRun {
    /// The newest job of the schedule as of this decision.
    pub fn newest_job(&self) -> Option<&JobId> {
        self.job.as_ref().map(|spec| &spec.job).or(self.running.as_ref())
    }
}

/// `jobs/<job>/waiting.json`, `schedules/<set>/<name>/waiting.json`: why nothing is launched just now. Overwritten; of no
/// meaning once something was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub format: u32,
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// When it ends, if that is known.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Of a schedule: the due time that waits.
    #[serde(default)]
    pub due: Option<Timestamp>,
    /// Since when it has been seen to wait, whoever wrote the sentence of now; `None`: by a clock that nobody could check.
    #[serde(default)]
    pub seen: Option<Timestamp>,
}
