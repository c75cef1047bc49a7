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

impl Arch {
    /// By EC2's rule for names: a `g` after the number of the generation is a Graviton processor,
    /// as in `g5g` and `r8gd`. `None`: the name follows no such rule, or names all types.
    /// <https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html>
    pub fn of_type_name(instance_type: &str) -> Option<Arch> {
        let family = instance_type.split('.').next()?;
        let letters = family.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
        let attributes = letters.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let is_name = letters.len() < family.len() && attributes.len() < letters.len();
        let is_plain = attributes.chars().all(|letter| letter.is_ascii_lowercase());
        (is_name && is_plain).then(|| match family {
            // Before that rule.
            "a1" | "mac2" => Arch::Arm64,
            _ if attributes.contains('g') => Arch::Arm64,
            _ => Arch::X86_64,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::Catalog;

    #[test]
    fn name_of_a_type_tells_its_processor() {
        let of = Arch::of_type_name;
        for name in
            ["g5g.xlarge", "r8gd.large", "c7gn.medium", "im4gn.large", "a1.large", "hpc7g.*"]
        {
            assert_eq!(of(name), Some(Arch::Arm64), "{name}");
        }
        for name in ["g5.xlarge", "p4d.24xlarge", "r6i.large", "g4dn.*", "trn1.2xlarge"] {
            assert_eq!(of(name), Some(Arch::X86_64), "{name}");
        }
        for name in ["*", "g*", "u-6tb1.112xlarge", "p6-b200.48xlarge", ""] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn names_and_the_shipped_catalogue_agree_on_processors() {
        for kind in Catalog::shipped().types() {
            let told = Arch::of_type_name(&kind.name);
            assert!(told.is_none_or(|arch| arch == kind.arch), "{}: {told:?}", kind.name);
        }
    }
}
