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

/// What a machine's processor speaks; the image and the agent must speak the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    #[default]
    X86_64,
    Arm64,
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
    /// Of each GPU, in MiB.
    #[serde(default)]
    pub gpu_memory_mib: Option<u64>,
    /// What quotas are counted in; 0 where nobody counts.
    #[serde(default)]
    pub vcpus: u32,
    #[serde(default)]
    pub arch: Arch,
    pub market: Market,
    /// What an hour costs now.
    pub price: UsdPerHour,
    /// What bills beside the machine while it runs: its disk, its public address.
    #[serde(default)]
    pub extras: UsdPerHour,
    /// What the same machine costs on demand, where that is known: the ceiling of a bid.
    #[serde(default)]
    pub on_demand: Option<UsdPerHour>,
}

impl Offer {
    /// For people: `g5.xlarge in us-east-1a, spot`.
    pub fn describe(&self) -> String {
        format!("{} in {}, {}", self.instance_type, self.zone, self.market)
    }

    /// `g5` of `g5.xlarge`.
    pub fn family(&self) -> &str {
        self.instance_type.split('.').next().unwrap_or_default()
    }

    /// All that an hour costs.
    pub fn hourly(&self) -> UsdPerHour {
        self.hourly_at(self.price)
    }

    /// All that an hour would cost if the machine alone cost this much.
    pub fn hourly_at(&self, price: UsdPerHour) -> UsdPerHour {
        UsdPerHour::new(price.per_hour() + self.extras.per_hour())
    }

    /// All that an hour may come to: a spot price may rise to the bid. Where it is above it now, the machine is not to be had before it
    /// has come down.
    pub fn hourly_at_most(&self, bid: Option<UsdPerHour>) -> UsdPerHour {
        self.hourly_at(bid.unwrap_or(self.price))
    }

    /// What a refusal for want of capacity says something about: the same type in the same zone on the same market.
    pub fn is_same_pool(&self, other: &Offer) -> bool {
        (self.cloud, &self.zone, &self.instance_type, self.market) == (other.cloud, &other.zone, &other.instance_type, other.market)
    }
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Market::OnDemand => "on-demand",
            Market::Spot => "spot",
        })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86_64",
            Arch::Arm64 => "arm64",
        })
    }
}
