//! What a job goes on from, when it is the continuation of one that has ended: `lamp start`.
//!
//! The records of a job that has ended are never touched again, so what follows is a job of its own, which names the old one
//! (docs/decisions/0013). Its id follows from the old one's: whoever starts the same job a second time finds it there. What
//! must never live here: where the old job's records are read.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{CheckpointSummary, JobId, LaunchRequest};
use crate::market::Offer;

/// In `spec.json` of a job that goes on from another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continues {
    /// The job that has ended.
    pub job: JobId,
    /// The newest complete checkpoint, until the job has one of its own.
    #[serde(default)]
    pub checkpoint: Option<Inherited>,
    /// The machine that was stopped and kept with its disk: the first attempt starts it again.
    #[serde(default)]
    pub machine: Option<KeptMachine>,
    /// Its code is not that of the job before: it is laid over the work on a kept disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_code: bool,
}

impl Continues {
    /// What the plan of an attempt says that starts this machine.
    pub fn starts(&self, kept: &KeptMachine) -> Starts {
        Starts { job: self.job.clone(), instance: kept.instance.clone(), launched: kept.launched }
    }
}

/// A checkpoint of another job. It stays where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inherited {
    /// The job that saved it.
    pub job: JobId,
    pub checkpoint: CheckpointSummary,
}

/// A stopped machine, and all that its next start needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptMachine {
    pub instance: String,
    /// Its last start. A cloud that shows a later one has started it again.
    pub launched: Timestamp,
    /// Of its first launch: by this the cloud knows it for ever.
    pub client_token: String,
    pub offer: Offer,
    #[serde(default)]
    pub launch: Option<LaunchRequest>,
}

/// The machine that a plan starts instead of launching one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// Whose machine it was, and whose name it carries until then.
    pub job: JobId,
    pub instance: String,
    /// As in [`KeptMachine`].
    pub launched: Timestamp,
}
