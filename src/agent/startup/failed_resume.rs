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

    /// Whether the start made progress: it reported a step beyond its checkpoint, or made one.
    pub(crate) fn has_progress(&self, step: Option<f64>, saves: Option<&Checkpoints>) -> bool {
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
        is_beyond(step) || saves.and_then(Checkpoints::last).is_some_and(made)
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
