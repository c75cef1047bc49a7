//! What a cloud sells now, as far as it told.

use serde::{Deserialize, Serialize};

use super::{Market, Offer, PriceHistory, Region};

/// The offers of one moment, and what is needed to judge them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supply {
    /// What satisfies the requirement, in every zone and market that the job allows.
    pub offers: Vec<Offer>,
    /// The price histories of the spot offers, where they were asked for.
    pub histories: Vec<PriceHistory>,
    pub quotas: Vec<Quota>,
    /// Types that do not fit, or cannot be had, each with the reason in words.
    pub refused: Vec<String>,
    /// What a person should know of these facts: that a price list is an old one, for example.
    pub notes: Vec<String>,
}

/// How many vCPUs of a family an account may run in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// As the cloud names it: `All G and VT Spot Instance Requests`.
    pub name: String,
    /// `L-3819A6DF`: what a request for more is addressed to.
    pub code: String,
    pub region: Region,
    pub market: Market,
    /// The first letters of the types that it covers: `["g", "vt"]`.
    pub families: Vec<String>,
    pub vcpus_max: u32,
    pub vcpus_used: u32,
}

impl Quota {
    /// Whether it counts an offer. `g` covers `g5.xlarge`, and not `gr6.4xlarge`, unless `gr` is named too.
    pub fn covers(&self, offer: &Offer) -> bool {
        let family: String = offer.instance_type.chars().take_while(char::is_ascii_alphabetic).collect();
        self.region == offer.region && self.market == offer.market && self.families.contains(&family)
    }

    pub fn vcpus_left(&self) -> u32 {
        self.vcpus_max.saturating_sub(self.vcpus_used)
    }
}

impl Supply {
    pub fn history(&self, offer: &Offer) -> Option<&PriceHistory> {
        self.histories.iter().find(|history| history.zone == offer.zone && history.instance_type == offer.instance_type)
    }

    pub fn quota(&self, offer: &Offer) -> Option<&Quota> {
        self.quotas.iter().find(|quota| quota.covers(offer))
    }
}
