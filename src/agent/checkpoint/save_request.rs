//! Save requests: what the agent asks for, the result, and the newest request to the workload.
//!
//! A signal handler that runs twice at once would write into the same file. So the agent sends no
//! second request during a save: the first result counts for both. Not here: the signal, the
//! upload.

use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::completeness::folder_diff::FolderListing;
use crate::job::CheckpointSummary;

/// The reason of a failed save when no process of the workload handles the checkpoint signal.
pub(crate) const NO_HANDLER: &str =
    "no process of the workload has a handler for the checkpoint signal";

/// The folder's content just before the workload was asked to save.
#[derive(Clone, Debug)]
pub struct SaveRequest {
    pub(crate) picture: Option<FolderListing>,
    pub(crate) marks: u64,
    pub(crate) at: Duration,
    /// The workload was not asked: the present content counts.
    pub(crate) as_is: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    /// A manifest is written, with the files saved after the request. With `Checkpoints::as_is`:
    /// with the present files.
    Complete(CheckpointSummary),
    /// Nothing changed after the request. The newest complete checkpoint, if any, remains.
    NoChange(Option<CheckpointSummary>),
    /// The save signal has no handler in the workload.
    NoHandler,
    /// Something changed but is not kept, with the reason as a sentence.
    Failed(String),
}

pub(crate) struct PendingSave {
    pub ask: SaveRequest,
    pub asked_by: String,
    pub deadline: Duration,
    pub reply: oneshot::Sender<Saved>,
}

/// The waiting task writes the result. A replaced save has no receiver.
#[derive(Default)]
pub(crate) struct Saving(Option<watch::Receiver<Option<Saved>>>);

impl Saving {
    pub(crate) fn begin(&mut self) -> watch::Sender<Option<Saved>> {
        let (answer, heard) = watch::channel(None);
        self.0 = Some(heard);
        answer
    }

    /// It was asked, and the result is not known yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.as_ref().is_some_and(|heard| heard.borrow().is_none() && heard.has_changed().is_ok())
    }

    pub(crate) fn answer(&self) -> Option<Saved> {
        self.0.as_ref()?.borrow().clone()
    }

    /// Receives the result of a save that is in progress. `None`: there is none.
    pub(crate) fn heard(&self) -> Option<watch::Receiver<Option<Saved>>> {
        self.0.clone().filter(|_| self.is_under_way())
    }

    /// Another request replaces it, or the workload is gone: its result no longer counts.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}
