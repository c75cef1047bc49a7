//! The source of a job that `lamp start` made out of an ended job.
//!
//! The records of an ended job never change, so the continuation is a new job that names the old
//! one (docs/decisions.md, 13). Its id follows from the old id, so a second `lamp start` finds the
//! same job. Other modules read the old job's records.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{CheckpointSummary, JobId, LaunchRequest, Starts};
use crate::market::Offer;

/// Part of `spec.json` in a continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continues {
    /// The job that has ended.
    pub job: JobId,
    /// The newest complete checkpoint of the old job, until the new job has its own.
    #[serde(default)]
    pub checkpoint: Option<Inherited>,
    /// The stopped machine whose disk was kept: the first attempt starts it again.
    #[serde(default)]
    pub machine: Option<KeptMachine>,
    /// Its code differs from the old job's: the agent unpacks it over the work on a kept disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_code: bool,
    /// Another trial of a tuning: of the kept disk, only the files of its setup count. The old job
    /// goes on nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_setup: bool,
}

impl Continues {
    /// The part of an attempt's plan that starts this machine.
    pub fn starts(&self, kept: &KeptMachine) -> Starts {
        Starts {
            job: self.job.clone(),
            instance: kept.instance.clone(),
            launched: kept.launched,
            only_setup: self.only_setup,
        }
    }

    /// Whether a new machine serves as well as the kept one.
    pub fn may_go_elsewhere(&self) -> bool {
        self.checkpoint.is_some() || self.only_setup
    }
}

/// A checkpoint of another job. It stays in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inherited {
    /// The job that saved it.
    pub job: JobId,
    pub checkpoint: CheckpointSummary,
}

/// A stopped machine, with all that its next start needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptMachine {
    pub instance: String,
    /// Its last start. A later start in the cloud means that it was started again.
    pub launched: Timestamp,
    /// The token of its first launch: the cloud identifies the machine by it.
    pub client_token: String,
    pub offer: Offer,
    #[serde(default)]
    pub launch: Option<LaunchRequest>,
}
