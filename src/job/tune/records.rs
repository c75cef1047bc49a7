//! The records of a tuning: the tuning, each trial, and how each ended.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::metric_series::MetricSeries;
use super::tune_spec::TuneSpec;
use super::tuned_trial::ParamValues;
use crate::job::{CodeArchive, ResolvedSpec, Spec};
use crate::market::Usd;

/// `tunings/<name>/tuning.json`, created once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    pub format: u32,
    pub name: String,
    pub created: Timestamp,
    pub written_by: String,
    pub owner: String,
    pub tune: TuneSpec,
    /// The random choices of a tuning follow from this number and the number of the trial.
    pub seed: u64,
    /// The job of a trial, without its values.
    pub spec: Spec,
    #[serde(default)]
    pub code: Option<CodeArchive>,
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    /// The only workstation that runs its trials, for `cloud = "local"`; `None`: any.
    #[serde(default)]
    pub here: Option<String>,
}

/// `tunings/<name>/trials/<n>.json`, created only if absent: its creator decides the trial for all
/// controllers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneTrial {
    pub format: u32,
    /// From 1, without gaps.
    pub number: u32,
    pub decided: Timestamp,
    /// The controller that decided, for people.
    pub by: String,
    pub params: ParamValues,
    /// How the values were chosen, in a sentence.
    pub reason: String,
    /// The interrupted trial whose values it repeats.
    #[serde(default)]
    pub again_of: Option<u32>,
    /// The most that its job can cost; `None`: unlimited.
    #[serde(default)]
    pub most_usd: Option<Usd>,
    pub job: Box<ResolvedSpec>,
}

/// `tunings/<name>/trials/<n>/ended.json`, created only if absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneTrialEnd {
    pub format: u32,
    pub number: u32,
    pub ended: Timestamp,
    pub fate: TrialFate,
    /// The last metric; `None`: none was reported, or it was NaN.
    #[serde(default)]
    pub value: Option<f64>,
    pub series: MetricSeries,
    pub usd: Usd,
    /// Why, in a sentence.
    pub reason: String,
}

/// How a trial ended. The words are stable: scripts use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialFate {
    Complete,
    /// Stopped early, or its metric was not a number.
    Pruned,
    Failed,
    /// Its machine was lost and the job did not go on. The same values are tried again.
    Interrupted,
    /// The user stopped its job.
    Stopped,
}

/// `tunings/<name>/trials/<n>/pruned.json`, created only if absent, before its job is stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialPruned {
    pub format: u32,
    pub number: u32,
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
}

/// `tunings/<name>/trials/<n>/paused-<k>.json`, created only if absent, before its job is stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialPaused {
    pub format: u32,
    pub number: u32,
    /// The pauses of a trial count from 1.
    pub pause: u32,
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
}

/// `tunings/<name>/trials/<n>/resumed-<k>.json`, created only if absent: the job that goes on after
/// pause `k`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResumed {
    pub format: u32,
    pub number: u32,
    pub pause: u32,
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
    /// The step of the rung that it has passed.
    pub passed: f64,
    /// The most that this job can cost; `None`: unlimited.
    #[serde(default)]
    pub most_usd: Option<Usd>,
    pub job: Box<ResolvedSpec>,
}

/// `tunings/<name>/ended.json`, created only if absent: no more trials are started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningEnd {
    pub format: u32,
    pub at: Timestamp,
    pub by: String,
    pub because: TuningEndedBecause,
    /// Why, in a sentence.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningEndedBecause {
    /// All its trials have ended.
    Done,
    /// The next trial did not fit the budget.
    Budget,
    /// Too many trials failed.
    Failed,
    /// Too many trials were interrupted.
    Interrupted,
    UserStopped,
}

impl TrialFate {
    pub fn word(self) -> &'static str {
        match self {
            TrialFate::Complete => "complete",
            TrialFate::Pruned => "pruned",
            TrialFate::Failed => "failed",
            TrialFate::Interrupted => "interrupted",
            TrialFate::Stopped => "stopped",
        }
    }
}
