//! The cloud's warning that a machine will be taken away or disturbed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub kind: NoticeKind,
    /// When it takes effect; for a rebalance recommendation, when it was given. May lie in the past: EC2 leaves a notice
    /// in place when it did not reclaim after all.
    pub at: Timestamp,
    /// The cloud's own word: `terminate`, `stop`, `hibernate`, `instance-reboot`, ...
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// The machine is taken away at the time given; EC2 gives about 120 seconds.
    Interruption,
    /// An interruption has become likelier. Nothing must be stopped for it.
    Rebalance,
    /// A scheduled reboot, stop or retirement.
    Maintenance,
}
