//! The cloud's description of a machine.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tags;
use crate::market::{CloudKind, Market, Region};

/// EC2's states. Billing ends when `Running` changes to `Stopping` or `ShuttingDown`.
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

/// A machine's full address: ids are unique only within a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MachineRef {
    pub cloud: CloudKind,
    pub region: Region,
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceView {
    pub id: String,
    pub cloud: CloudKind,
    pub region: Region,
    pub instance_type: String,
    pub market: Market,
    pub state: InstanceState,
    pub tags: Tags,
    pub client_token: Option<String>,
    pub launched: Timestamp,
    /// When billing ended, if it has and the cloud reports it.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The cloud's reason for the state, for example `Server.SpotInstanceTermination`.
    #[serde(default)]
    pub state_reason: Option<String>,
}

impl InstanceView {
    pub fn machine(&self) -> MachineRef {
        MachineRef { cloud: self.cloud, region: self.region.clone(), id: self.id.clone() }
    }
}

impl fmt::Display for MachineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

impl InstanceState {
    /// Whether the machine costs money by the hour.
    pub fn bills(self) -> bool {
        matches!(self, InstanceState::Pending | InstanceState::Running)
    }

    /// Whether it is terminated, or stopped with its disk.
    pub fn is_out(self) -> bool {
        matches!(self, InstanceState::Terminated | InstanceState::Stopped)
    }

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
