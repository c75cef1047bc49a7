//! The save that the workload was asked for last: one at a time.
//!
//! A handler that is entered a second time writes into the file that it is writing. So while one is under way nobody asks again: its
//! answer counts for whoever would have asked. What must never live here: the signal, the upload.

use tokio::sync::watch;

use super::handle::Saved;

/// What came of it is written by the task that waits for it; a save that another took the place of has nobody who hears.
#[derive(Default)]
pub(crate) struct Saving(Option<watch::Receiver<Option<Saved>>>);

impl Saving {
    pub(crate) fn begin(&mut self) -> watch::Sender<Option<Saved>> {
        let (answer, heard) = watch::channel(None);
        self.0 = Some(heard);
        answer
    }

    /// It was asked, and what comes of it is not known yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.as_ref().is_some_and(|heard| heard.borrow().is_none() && heard.has_changed().is_ok())
    }

    pub(crate) fn answer(&self) -> Option<Saved> {
        self.0.as_ref()?.borrow().clone()
    }

    /// What will come of one that is under way; `None`: nothing is.
    pub(crate) fn heard(&self) -> Option<watch::Receiver<Option<Saved>>> {
        self.0.clone().filter(|_| self.is_under_way())
    }

    /// Another takes its place, or whoever was asked is gone: its answer says nothing any more.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}
