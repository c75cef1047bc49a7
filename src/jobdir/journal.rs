//! The events of an attempt: numbered, in batches that never change.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::Notice;
use crate::job::{AttemptPhase, CheckpointSummary, ExitStatus, NEVER_RESTS, Reason};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Event {
    /// From 1, without gaps within an attempt.
    pub seq: u64,
    pub at: Timestamp,
    #[serde(flatten)]
    pub what: EventDetail,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventDetail {
    Phase {
        phase: AttemptPhase,
    },
    /// The agent started; `reattached` when it found its workload running.
    Agent {
        version: String,
        instance: String,
        reattached: bool,
    },
    Resumed {
        checkpoint: CheckpointSummary,
        /// Why this one and not a newer one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        went_back: Option<String>,
    },
    WorkloadStarted {
        start: u32,
        pid: u32,
        command: String,
    },
    WorkloadEnded {
        start: u32,
        exit: ExitStatus,
        orphans: u32,
    },
    /// A policy's verdict changed.
    Verdict {
        reason: Reason,
    },
    Notice {
        notice: Notice,
    },
    /// A request for a checkpoint. `processes` 0: not sent, for lack of a handler.
    Asked {
        by: String,
        signal: String,
        processes: u32,
    },
    /// A complete checkpoint: its manifest is written.
    Checkpoint {
        checkpoint: CheckpointSummary,
        save_secs: f64,
        upload_secs: f64,
        asked_by: Option<String>,
    },
    /// The agent saw a request in the job directory.
    Wish {
        number: u32,
        by: String,
        text: String,
    },
    /// A person should look at this.
    Attention {
        text: String,
    },
    /// The stacks of the waiting processes, stored under this key.
    Stacks {
        key: String,
    },
    /// Something could not be kept.
    Loss {
        text: String,
    },
    #[serde(other)]
    Unknown,
}

impl EventDetail {
    /// Whether the agent said that the checkpoint folder changes all the time, so that no
    /// checkpoint is complete. The event has no field for this: only its text says it.
    pub fn is_restless_folder(&self) -> bool {
        matches!(self, EventDetail::Attention { text } if text == NEVER_RESTS)
    }
}
