//! How long the command has run, as far as this agent has seen it from its start to its end.

use std::time::Duration;

use crate::market::Span;

/// One start of the command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    /// On the clock that never steps. `None`: an earlier agent started it, or what runs is `setup`.
    began: Option<Duration>,
    lasted: Option<Duration>,
}

impl Ran {
    pub(crate) fn from(began: Option<Duration>) -> Self {
        Ran { began, lasted: None }
    }

    /// How long it lasted; `None` while it runs, and where its start was not seen.
    pub(crate) fn lasted(&mut self, has_ended: bool, now: Duration) -> Option<Span> {
        let ran = now.saturating_sub(self.began?);
        has_ended.then(|| Span::from_duration(*self.lasted.get_or_insert(ran)))
    }
}
