//! The records of what a person deleted of an ended job: its stored data, its kept machine.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `jobs/<job>/discarded.json`: written before the first object is deleted, so that half-deleted
/// data counts as gone. A later discard writes all kinds again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discarded {
    pub format: u32,
    pub at: Timestamp,
    /// The person's name, for people.
    pub by: String,
    /// Empty: the person took the discard back.
    pub kinds: BTreeSet<StoredKind>,
}

/// The data that a job stores beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StoredKind {
    Checkpoints,
    Outputs,
    /// The workload's output, and the measurements taken while it ran.
    Logs,
    /// The packed workdir.
    Code,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is nothing that a job stores; it stores `checkpoints`, `outputs`, `logs` and `code`"
)]
pub struct KindError(String);

impl StoredKind {
    pub const ALL: [StoredKind; 4] =
        [StoredKind::Checkpoints, StoredKind::Outputs, StoredKind::Logs, StoredKind::Code];

    pub fn word(self) -> &'static str {
        match self {
            StoredKind::Checkpoints => "checkpoints",
            StoredKind::Outputs => "outputs",
            StoredKind::Logs => "logs",
            StoredKind::Code => "code",
        }
    }
}

impl FromStr for StoredKind {
    type Err = KindError;

    fn from_str(word: &str) -> Result<Self, KindError> {
        StoredKind::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| KindError(word.to_owned()))
    }
}

/// `jobs/<job>/given-up.json`: the job has nothing in the cloud any more, even if its receipt says
/// kept. Written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    pub format: u32,
    pub at: Timestamp,
    /// The person's name, for people.
    pub by: String,
    /// The machine that was ended; `None`: it was gone already.
    pub instance: Option<String>,
}
