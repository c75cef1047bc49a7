//! The newest save request to the workload: one at a time.
//!
//! A signal handler that runs twice at once would write into the same file. So the agent sends no
//! second request during a save: the first result counts for both. Not here: the signal, the
//! upload.

use tokio::sync::watch;

use super::handle::Saved;

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
