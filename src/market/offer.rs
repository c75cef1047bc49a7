//! Something that can be bought now, at a price.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Cloud, Region, UsdPerHour, Zone};

/// How a machine is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Market {
    /// The full price; the cloud does not take it back.
    #[default]
    OnDemand,
    /// Spare capacity at a fraction of the price; the cloud takes it back with a short notice.
    Spot,
}

/// One machine type in one zone on one market, with its price now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub cloud: Cloud,
    pub region: Region,
    pub zone: Zone,
    pub instance_type: String,
    /// Number of whole GPUs; 0 for a machine without one or with a fraction of one.
    pub gpus: u32,
    pub gpu_model: Option<String>,
    pub market: Market,
    pub price: UsdPerHour,
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Market::OnDemand => "on-demand",
            Market::Spot => "spot",
        })
    }
}
