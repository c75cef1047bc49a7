//! A complete checkpoint: the files of the checkpoint folder at one moment, and the manifest written last.
//!
//! Only a checkpoint with a manifest exists. A torn upload has none and is never resumed from.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AttemptNo, CheckpointNo};

/// What the agent writes in its journal when a checkpoint folder never rests and nothing in it can be told to be complete. Others
/// look for it, so that nobody is promised a checkpoint that will not come.
pub const NEVER_RESTS: &str = "the checkpoint folder has not rested for two seconds in a minute, so nothing of it is kept and an \
    interruption would lose the work: save less often, save under a new number each time, or mark each checkpoint in the progress file";

/// `checkpoints/<n>/manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub number: CheckpointNo,
    pub attempt: AttemptNo,
    pub created: Timestamp,
    /// The workload's own step at that moment, when it said one.
    #[serde(default)]
    pub step: Option<f64>,
    pub files: Vec<CheckpointFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<CheckpointLink>,
    /// From the request (or the first change of the folder) until the folder was quiet, seconds.
    pub save_secs: f64,
    /// Reading, hashing and uploading, seconds.
    pub upload_secs: f64,
    /// Whether the workload had marked it, or one before it, as complete: the next machine waits for its marks then.
    #[serde(default)]
    pub marks: Option<bool>,
    /// For how long the workload has left no sign of progress so far, at most, seconds: the next machine knows by that that it reports,
    /// and is as patient with it. `None`: it has told no step and printed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_secs: Option<f64>,
    /// The notice, request or verdict that asked for it, if any; otherwise it was the interval.
    #[serde(default)]
    pub asked_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFile {
    /// Relative to the checkpoint folder, `/` between the parts.
    pub path: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// The object that holds it, relative to the job: an unchanged file points into an earlier checkpoint.
    pub key: String,
    /// Unix permission bits.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Time of its last change, nanoseconds since 1970: scripts look for the newest by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<i64>,
}

/// A symbolic link to a folder of the checkpoint, as `latest -> step-40`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLink {
    /// Relative to the checkpoint folder.
    pub path: String,
    /// Relative, and inside the checkpoint folder.
    pub target: String,
}

/// What the outcome and the receipt say of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSummary {
    pub number: CheckpointNo,
    pub attempt: AttemptNo,
    pub created: Timestamp,
    #[serde(default)]
    pub step: Option<f64>,
    pub bytes: u64,
}

impl Manifest {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub fn summary(&self) -> CheckpointSummary {
        CheckpointSummary { number: self.number, attempt: self.attempt, created: self.created, step: self.step, bytes: self.bytes() }
    }
}
