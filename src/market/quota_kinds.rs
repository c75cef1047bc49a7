//! Which quotas of EC2 count which machines.
//!
//! The codes and names are those of Service Quotas (`aws service-quotas list-service-quotas --service-code ec2`). What must never
//! live here: how much of one is left ([`Quota`](super::Quota)).

use super::{Market, Offer, is_of_any};

const STANDARD: &[&str] = &["a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"];

/// A quota in vCPUs, of one market.
pub struct QuotaKind {
    /// What a request for more is addressed to.
    pub code: &'static str,
    pub name: &'static str,
    pub market: Market,
    /// As [`Quota::families`](super::Quota).
    pub families: &'static [&'static str],
}

impl QuotaKind {
    /// Whether it counts machines of this type, where they are of its market.
    pub fn counts(&self, instance_type: &str) -> bool {
        is_of_any(instance_type, self.families)
    }
}

const fn kind(code: &'static str, name: &'static str, market: Market, families: &'static [&'static str]) -> QuotaKind {
    QuotaKind { code, name, market, families }
}

/// The quotas that machines of ours fall under. On the spot market each generation of P has its own.
pub const QUOTA_KINDS: &[QuotaKind] = &[
    kind("L-DB2E81BA", "Running On-Demand G and VT instances", Market::OnDemand, &["g", "gr", "vt"]),
    kind("L-417A185B", "Running On-Demand P instances", Market::OnDemand, &["p"]),
    kind("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", Market::OnDemand, STANDARD),
    kind("L-3819A6DF", "All G and VT Spot Instance Requests", Market::Spot, &["g", "gr", "vt"]),
    kind("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", Market::Spot, &["p2", "p3", "p4"]),
    kind("L-C4BD4855", "All P5 Spot Instance Requests", Market::Spot, &["p5"]),
    kind("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", Market::Spot, STANDARD),
];

/// Whether one quota of one region counts both; of a family that is in none of the table, its machines share one of their own.
pub fn share_a_quota(one: &Offer, other: &Offer) -> bool {
    let both = |kind: &QuotaKind| kind.market == one.market && kind.counts(&one.instance_type) && kind.counts(&other.instance_type);
    one.region == other.region && one.market == other.market && (one.family() == other.family() || QUOTA_KINDS.iter().any(both))
}
