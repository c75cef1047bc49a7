//! The cloud's warning that it will interrupt or disturb a machine.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Notice {
    pub kind: NoticeKind,
    /// When it takes effect; for a rebalance recommendation, when it was given. It may be in the
    /// past: EC2 keeps a notice that it did not carry out.
    pub at: Timestamp,
    /// The cloud's own word: `terminate`, `stop`, `hibernate`, `instance-reboot`, ...
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// The cloud interrupts the machine at the given time. EC2 gives about 120 seconds.
    Interruption,
    /// An interruption is likelier now. No action is needed.
    Rebalance,
    /// A scheduled reboot, stop or retirement.
    Maintenance,
}
