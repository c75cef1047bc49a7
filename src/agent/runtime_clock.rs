//! How long the command has run, if this agent saw its start and its end.

use std::time::Duration;

use crate::market::Span;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    /// By the monotonic clock. `None`: an earlier agent started it, or `setup` runs.
    began: Option<Duration>,
    lasted: Option<Duration>,
}

impl Ran {
    pub(crate) fn from(began: Option<Duration>) -> Self {
        Ran { began, lasted: None }
    }

    /// How long it lasted. `None` while it runs, or if its start was not seen.
    pub(crate) fn lasted(&mut self, has_ended: bool, now: Duration) -> Option<Span> {
        let ran = now.saturating_sub(self.began?);
        has_ended.then(|| Span::from_duration(*self.lasted.get_or_insert(ran)))
    }
}
