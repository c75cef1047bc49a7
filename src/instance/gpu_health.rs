//! The health of a GPU beyond its errors: driver, replaced memory rows, PCIe. For people only: no
//! policy uses it.

use serde::{Deserialize, Serialize};

/// A field is absent if the driver does not tell it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GpuHealth {
    /// The version of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The newest CUDA that the driver runs: `12.4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Memory rows that were replaced after errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_remapped: Option<u64>,
    /// A replacement waits for a reset of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_pending: Option<bool>,
    /// A row could not be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_failed: Option<bool>,
    /// Packets that PCIe had to send again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_replays: Option<u64>,
    /// From the host to the GPU, over half a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_received_bytes_per_sec: Option<f64>,
    /// From the GPU to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_sent_bytes_per_sec: Option<f64>,
}

impl GpuHealth {
    /// `Driver 550.54.15, CUDA up to 12.4`. `None`: the driver does not tell its version.
    pub fn driver_text(&self) -> Option<String> {
        let driver = self.driver.as_ref()?;
        let cuda = self.cuda.as_ref().map(|cuda| format!(", CUDA up to {cuda}"));
        Some(format!("Driver {driver}{}", cuda.unwrap_or_default()))
    }

    pub fn is_unknown(&self) -> bool {
        *self == GpuHealth::default()
    }
}
