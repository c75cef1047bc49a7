//! The current market, as reported by a cloud.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Market, Offer, PriceHistory, Region};

/// The offers at one moment, with the data to judge them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supply {
    /// Offers that satisfy the requirement, in every allowed zone and market.
    pub offers: Vec<Offer>,
    /// Price histories of the spot offers, if requested.
    pub histories: Vec<PriceHistory>,
    pub quotas: Vec<Quota>,
    /// Types that do not fit or are unavailable, each with the reason.
    pub refused: Vec<String>,
    /// Remarks for the user, for example that a price list is old.
    pub notes: Vec<String>,
    /// Regions with a suitable machine that is not offered, because its price is unknown.
    pub unpriced: BTreeSet<Region>,
}

/// How many vCPUs of a family an account may run in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Quota {
    /// The cloud's name: `All G and VT Spot Instance Requests`.
    pub name: String,
    /// The code for an increase request: `L-3819A6DF`.
    pub code: String,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub region: Region,
    pub market: Market,
    /// Leading letters of the types that it counts, with the generation or without: `["g", "vt"]`,
    /// `["p5"]`.
    pub families: Vec<String>,
    pub vcpus_max: u32,
    pub vcpus_used: u32,
}

impl Quota {
    /// Whether it counts an offer.
    pub fn covers(&self, offer: &Offer) -> bool {
        self.region == offer.region
            && self.market == offer.market
            && is_of_any(&offer.instance_type, &self.families)
    }

    pub fn vcpus_left(&self) -> u32 {
        self.vcpus_max.saturating_sub(self.vcpus_used)
    }
}

/// Whether a type belongs to one of these families (`is_of_family`).
pub fn is_of_any(instance_type: &str, families: &[impl AsRef<str>]) -> bool {
    families.iter().any(|family| is_of_family(instance_type, family.as_ref()))
}

/// `g5.xlarge` is in `g` and `g5`; `gr6.4xlarge` is in `gr` but not `g`; `p5en.48xlarge` is in
/// `p5`.
fn is_of_family(instance_type: &str, family: &str) -> bool {
    let letters = instance_type
        .find(|letter: char| !letter.is_ascii_alphabetic())
        .unwrap_or(instance_type.len());
    let digits =
        instance_type[letters..].find(|letter: char| !letter.is_ascii_digit()).unwrap_or(0);
    family == &instance_type[..letters] || family == &instance_type[..letters + digits]
}

impl Supply {
    /// Adds the supply of another place.
    pub fn extend(&mut self, other: Supply) {
        self.offers.extend(other.offers);
        self.histories.extend(other.histories);
        self.quotas.extend(other.quotas);
        self.refused.extend(other.refused);
        self.unpriced.extend(other.unpriced);
        self.notes.extend(
            other.notes.into_iter().filter(|note| !self.notes.contains(note)).collect::<Vec<_>>(),
        );
    }

    pub fn history(&self, offer: &Offer) -> Option<&PriceHistory> {
        self.histories.iter().find(|history| {
            history.zone == offer.zone && history.instance_type == offer.instance_type
        })
    }

    pub fn quota(&self, offer: &Offer) -> Option<&Quota> {
        self.quotas.iter().find(|quota| quota.covers(offer))
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_family;

    #[test]
    fn family_is_its_letters_or_its_letters_and_its_generation() {
        for (family, kind) in [
            ("g", "g5.xlarge"),
            ("g5", "g5.xlarge"),
            ("gr", "gr6f.4xlarge"),
            ("p4", "p4de.24xlarge"),
            ("p5", "p5en.48xlarge"),
            ("p6", "p6-b200.48xlarge"),
        ] {
            assert!(is_of_family(kind, family), "{kind} {family}");
        }
        for (family, kind) in [
            ("g", "gr6.4xlarge"),
            ("p5", "p4d.24xlarge"),
            ("p", "vt1.3xlarge"),
            ("m5", "m5dn"),
            ("x", ""),
        ] {
            assert_eq!(is_of_family(kind, family), family == "m5", "{kind} {family}");
        }
    }
}
