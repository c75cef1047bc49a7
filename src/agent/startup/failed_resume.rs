//! Judges a start that fails, perhaps because of its checkpoint: what it began from, and whether it
//! made progress.
//!
//! ```text
//!   start ─> StartRecord ─> it fails ─> policy::lifecycle::checkpoint_rollback
//!       ─> RollbackRecord ─> start again
//! ```
//! Not here: whether to go back, and the restore of an older checkpoint (`startup`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::checkpoint::completeness::complete_set::is_a_save;
use crate::agent::checkpoint::handle::Checkpoints;
use crate::job::{CheckpointNo, CheckpointSummary};
use crate::market::{Span, elapsed};

/// The state at the beginning of a start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRecord {
    pub(crate) from: CheckpointSummary,
    /// The folder held nothing newer.
    pub(crate) exact: bool,
    /// By the monotonic clock.
    pub(crate) at: Timestamp,
    /// Bytes that the checkpoints of this attempt had written by then.
    #[serde(default)]
    pub(crate) written: u64,
    pub(crate) lived: Option<Span>,
    pub(crate) is_going: bool,
    /// The first step that it printed, which may be the one that it resumes from.
    #[serde(default)]
    pub(crate) first_step: Option<f64>,
    /// There is no older one, or it cannot be restored.
    #[serde(default)]
    pub(crate) is_last: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RollbackRecord {
    pub from: CheckpointNo,
    pub to: CheckpointNo,
    pub lived: Span,
}

impl StartRecord {
    /// How long the start has run, or ran.
    pub(crate) fn lived(&self, now: Timestamp) -> Span {
        self.lived.unwrap_or_else(|| Span::from_duration(elapsed(self.at, now)))
    }

    /// The start has ended.
    pub(crate) fn ends(&mut self, now: Timestamp) {
        self.lived.get_or_insert(Span::from_duration(elapsed(self.at, now)));
    }

    /// Whether the start made progress: it told a step beyond its checkpoint, printed one beyond
    /// its first too, or made a checkpoint. `told` and `printed`: its newest step.
    pub(crate) fn has_progress(
        &mut self,
        told: Option<f64>,
        printed: Option<f64>,
        saves: Option<&Checkpoints>,
    ) -> bool {
        let first = printed.map(|step| *self.first_step.get_or_insert(step));
        let is_beyond = |step: Option<f64>| {
            step.is_some_and(|step| self.from.step.is_none_or(|from| step > from))
        };
        let has_written = || {
            saves.is_some_and(|saves| {
                is_a_save(saves.written().saturating_sub(self.written), self.from.bytes)
            })
        };
        let made = |newest: CheckpointSummary| {
            newest.number > self.from.number
                && newest.step.map_or_else(has_written, |step| is_beyond(Some(step)))
        };
        is_beyond(told)
            || is_beyond(printed) && printed > first
            || saves.and_then(Checkpoints::last).is_some_and(made)
    }
}

impl RollbackRecord {
    /// Reads well after "because".
    pub fn in_words(&self) -> String {
        let lived = Span::from_secs(self.lived.duration().as_secs().max(1));
        format!(
            "the command ended within {lived} of its start from checkpoint {}",
            self.from.number()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manifest is often one report too low, and a script prints from where it goes on.
    #[test]
    fn line_that_says_where_it_resumes_is_no_progress() {
        let from = serde_json::json!({ "number": 2, "attempt": 1, "step": 4.0, "bytes": 100,
            "created": "2026-12-01T00:00:00Z" });
        let start = StartRecord {
            from: serde_json::from_value(from).expect("a summary"),
            exact: true,
            at: Timestamp::UNIX_EPOCH,
            written: 0,
            lived: None,
            is_going: false,
            first_step: None,
            is_last: false,
        };
        let mut prints = start.clone();
        assert!(!prints.has_progress(None, Some(5.0), None), "resuming at epoch 5");
        assert!(!prints.has_progress(None, Some(5.0), None));
        assert!(prints.has_progress(None, Some(6.0), None));
        assert!(start.clone().has_progress(Some(5.0), Some(5.0), None), "it tells its own steps");
        assert!(!start.clone().has_progress(Some(4.0), Some(4.0), None));
    }
}
