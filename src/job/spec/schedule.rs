//! Schedules, the jobs that a directory of job files made, and their records.
//!
//! A schedule is the `[schedule]` section of a job file. `lamp apply` writes it as a record into
//! the job root. A daemon makes a job each time it is due (`policy::schedule::calendar` decides
//! when).

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Time;
use serde::{Deserialize, Serialize};

use crate::job::{Applied, CodeArchive, JobId, ResolvedSpec, Spec};
use crate::market::UsdPerHour;

/// When the user wants a job run, every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// Five fields; `None`: once, as soon as the other conditions hold.
    #[serde(default)]
    pub cron: Option<String>,
    /// An IANA name: the time zone of `cron` and `only_between`.
    pub timezone: String,
    /// From the first time of day to the second, over midnight if the second is earlier.
    #[serde(default)]
    pub only_between: Option<(Time, Time)>,
    #[serde(default)]
    pub only_while_spot_under: Option<UsdPerHour>,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// The rule for a run that is due while the last one still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits; several waiting runs become one.
    Queue,
}

/// The rule for runs that came due while no daemon ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUp {
    /// The latest of them runs, late.
    #[default]
    Latest,
    None,
}

/// `schedules/<set>/<name>.json`: `lamp apply` writes it, the daemon reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub format: u32,
    pub applied: Applied,
    /// When this schedule was first applied: earlier times are not due.
    pub since: Timestamp,
    pub written_by: String,
    pub schedule: ScheduleSpec,
    /// The spec of each run.
    pub spec: Spec,
    #[serde(default)]
    pub code: Option<CodeArchive>,
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    /// The only workstation whose daemon runs it, for `cloud = "local"`; `None`: any.
    #[serde(default)]
    pub here: Option<String>,
    /// When its file, or the file's `[schedule]`, was removed: later times are not due.
    #[serde(default)]
    pub removed: Option<Timestamp>,
}

/// `schedules/<set>/<name>/runs/<due>.json`, created only if absent: its creator decides this due
/// time for all daemons. The job's spec is in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    pub format: u32,
    pub due: Timestamp,
    pub decided: Timestamp,
    /// The controller that decided, for people.
    pub by: String,
    /// Why, in a sentence.
    pub reason: String,
    /// The job; `None`: this run was skipped.
    #[serde(default)]
    pub job: Option<Box<ResolvedSpec>>,
    /// The run that was under way when this one was skipped.
    #[serde(default)]
    pub running: Option<JobId>,
}

impl ScheduleRun {
    /// The newest job of the schedule as of this decision.
    pub fn newest_job(&self) -> Option<&JobId> {
        self.job.as_ref().map(|spec| &spec.job).or(self.running.as_ref())
    }
}

/// `jobs/<job>/waiting.json`, `schedules/<set>/<name>/waiting.json`: why the launch waits.
/// Overwritten; without meaning after a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub format: u32,
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// When the wait ends, if known.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// In a schedule: the due time that waits.
    #[serde(default)]
    pub due: Option<Timestamp>,
    /// Since when any daemon has seen it wait. `None`: that clock could not be checked.
    #[serde(default)]
    pub seen: Option<Timestamp>,
}
