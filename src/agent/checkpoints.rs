//! SIGNATURES, being filled in.
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::journal::Journal;
use super::marks::Board;
use super::outbox::Outbox;
use crate::job::{CheckpointSpec, CheckpointSummary, ExitStatus, Manifest};
use crate::jobdir::JobDirError;

/// Watches the checkpoint folder and uploads what is complete. Cheap to clone.
#[derive(Clone)]
pub struct Checkpoints {}

/// What the folder held just before the workload was asked to save.
#[derive(Clone, Copy, Debug)]
pub struct Ask {}

/// The answer to a save.
#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    /// A manifest is written, of what was saved after the asking.
    Complete(CheckpointSummary),
    /// Nothing changed after the asking; the newest complete checkpoint, if any, stands.
    NoChange(Option<CheckpointSummary>),
    /// Something changed and is not kept; the reason as a sentence, for losses and reasons.
    Failed(String),
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("the job directory does not say which checkpoints there are")]
    Unknown(#[source] JobDirError),
    #[error("cannot write the checkpoint folder")]
    Disk(#[source] std::io::Error),
}

/// Brings the newest complete checkpoint into the folder before the workload starts; `None`: there is none yet. Damaged
/// ones are passed over with an event. Records `Resumed`. An error means that nobody knows: do not start from nothing.
pub async fn restore(_outbox: &Outbox, _journal: &Journal, _folder: &Path, _within: Duration) -> Result<Option<Manifest>, RestoreError> {
    todo!()
}

impl Checkpoints {
    /// Call after `restore`. Complete checkpoints made in this attempt before an agent restart are remembered.
    pub fn start(_outbox: Outbox, _journal: Journal, _board: Board, _spec: &CheckpointSpec, _folder: PathBuf) -> Self {
        todo!()
    }
    /// The workload was started (again).
    pub fn workload_started(&self) {}
    /// The workload is gone: what its folder holds is final.
    pub fn workload_ended(&self, _exit: ExitStatus) {}
    /// Just before the signal that asks the workload to save.
    pub async fn ask(&self) -> Ask {
        todo!()
    }
    /// After the signal: waits for the change to be complete, uploads it, writes the manifest. Never longer than `within`.
    pub async fn save(&self, _ask: Ask, _asked_by: &str, _within: Duration) -> Saved {
        todo!()
    }
    /// The newest complete checkpoint, also the restored one.
    pub fn last(&self) -> Option<CheckpointSummary> {
        todo!()
    }
    /// Complete checkpoints written by this attempt.
    pub fn count(&self) -> u32 {
        todo!()
    }
    /// 95th percentile of save, quiet time and upload together, for `policy::interruption`; `None` before the first.
    pub fn secs_p95(&self) -> Option<f64> {
        todo!()
    }
}
