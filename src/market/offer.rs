//! A machine that can be bought now, at a price.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CloudKind, Region, UsdPerHour, Zone};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Market {
    /// The full price; the cloud does not interrupt it.
    #[default]
    OnDemand,
    /// Spare capacity at a fraction of the price; the cloud interrupts it with a short notice.
    Spot,
}

/// The processor architecture; the image and the agent must match it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    #[default]
    X86_64,
    Arm64,
}

/// One machine type in one zone on one market, with its price now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Offer {
    pub cloud: CloudKind,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub region: Region,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub zone: Zone,
    pub instance_type: String,
    /// Number of whole GPUs; 0 without a GPU or with a fraction of one.
    pub gpus: u32,
    pub gpu_model: Option<String>,
    /// Memory of each GPU, in MiB.
    #[serde(default)]
    pub gpu_memory_mib: Option<u64>,
    /// Unit of quotas; 0 on clouds without quotas.
    #[serde(default)]
    pub vcpus: u32,
    #[serde(default)]
    pub arch: Arch,
    pub market: Market,
    /// Current price of an hour.
    pub price: UsdPerHour,
    /// Hourly cost of the disk and the public address while the machine runs.
    #[serde(default)]
    pub extras: UsdPerHour,
    /// On-demand price of the same machine, if known: the upper limit of a bid.
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

    /// Total cost of an hour.
    pub fn hourly(&self) -> UsdPerHour {
        self.hourly_at(self.price)
    }

    /// Total cost of an hour at this machine price.
    pub fn hourly_at(&self, price: UsdPerHour) -> UsdPerHour {
        UsdPerHour::new(price.per_hour() + self.extras.per_hour())
    }

    /// The most that an hour can cost: a spot price may rise to the bid. While the price is above
    /// the bid, the machine cannot be bought.
    pub fn hourly_at_most(&self, bid: Option<UsdPerHour>) -> UsdPerHour {
        self.hourly_at(bid.unwrap_or(self.price))
    }

    /// Whether both are the same type in the same zone on the same market. A capacity error holds
    /// for exactly such a pool.
    pub fn is_same_pool(&self, other: &Offer) -> bool {
        (self.cloud, &self.zone, &self.instance_type, self.market)
            == (other.cloud, &other.zone, &other.instance_type, other.market)
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
