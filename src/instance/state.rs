//! What the cloud says of a machine.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tags;

/// EC2's states. Billing ends when `Running` is left for `Stopping` or `ShuttingDown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
}

/// One machine in one answer of the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceView {
    pub id: String,
    pub state: InstanceState,
    pub tags: Tags,
    pub client_token: Option<String>,
    pub launched: Timestamp,
    /// When billing ended, once it has and the cloud says so.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The cloud's reason for the state, `Server.SpotInstanceTermination` for example.
    #[serde(default)]
    pub state_reason: Option<String>,
}

impl InstanceState {
    /// Whether the machine costs money by the hour.
    pub fn bills(self) -> bool {
        matches!(self, InstanceState::Pending | InstanceState::Running)
    }

    /// Whether it is gone for good.
    pub fn is_terminated(self) -> bool {
        self == InstanceState::Terminated
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstanceState::Pending => "pending",
            InstanceState::Running => "running",
            InstanceState::Stopping => "stopping",
            InstanceState::Stopped => "stopped",
            InstanceState::ShuttingDown => "shutting-down",
            InstanceState::Terminated => "terminated",
        })
    }
}
