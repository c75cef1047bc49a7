//! EC2's quotas and the machines that they count.
//!
//! Codes and names come from Service Quotas (`aws service-quotas list-service-quotas --service-code
//! ec2`) and AWS's page "Amazon EC2 instance type quotas". [`Quota`](super::Quota) has the amounts
//! left.

use std::collections::BTreeSet;

use super::{Catalog, CloudKind, Market, Offer, is_of_any};

const STANDARD: &[&str] = &["a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"];

/// A quota in vCPUs, for one market.
#[derive(Debug, PartialEq, Eq)]
pub struct QuotaKind {
    /// Quota code for an increase request.
    pub code: &'static str,
    pub name: &'static str,
    pub market: Market,
    /// See [`Quota::families`](super::Quota).
    pub families: &'static [&'static str],
    /// Short name of its GPU machines, if it counts any.
    pub gpus: Option<&'static str>,
}

impl QuotaKind {
    /// Whether it counts this type, on its own market.
    pub fn counts(&self, instance_type: &str) -> bool {
        is_of_any(instance_type, self.families)
    }
}

const fn kind(
    code: &'static str,
    name: &'static str,
    market: Market,
    families: &'static [&'static str],
) -> QuotaKind {
    QuotaKind { code, name, market, families, gpus: None }
}

const fn gpus(word: &'static str, kind: QuotaKind) -> QuotaKind {
    QuotaKind { gpus: Some(word), ..kind }
}

/// The quotas for our machines. On spot, each generation of P has its own quota. AWS's page has
/// none for P6, and the caller reports such a type ([`uncounted`]).
pub const QUOTA_KINDS: &[QuotaKind] = &[
    gpus(
        "G and VT",
        kind(
            "L-DB2E81BA",
            "Running On-Demand G and VT instances",
            Market::OnDemand,
            &["g", "gr", "vt"],
        ),
    ),
    gpus("P", kind("L-417A185B", "Running On-Demand P instances", Market::OnDemand, &["p"])),
    kind(
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        Market::OnDemand,
        STANDARD,
    ),
    gpus(
        "G and VT",
        kind("L-3819A6DF", "All G and VT Spot Instance Requests", Market::Spot, &["g", "gr", "vt"]),
    ),
    gpus(
        "P2 to P4",
        kind(
            "L-7212CCBC",
            "All P4, P3 and P2 Spot Instance Requests",
            Market::Spot,
            &["p2", "p3", "p4"],
        ),
    ),
    gpus("P5", kind("L-C4BD4855", "All P5 Spot Instance Requests", Market::Spot, &["p5"])),
    kind(
        "L-34B43A08",
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        Market::Spot,
        STANDARD,
    ),
    kind("L-7295265B", "Running On-Demand X instances", Market::OnDemand, &["x"]),
    kind("L-74FC7D96", "Running On-Demand F instances", Market::OnDemand, &["f"]),
    kind("L-1945791B", "Running On-Demand Inf instances", Market::OnDemand, &["inf"]),
    kind("L-2C3B7624", "Running On-Demand Trn instances", Market::OnDemand, &["trn"]),
    kind("L-6E869C2A", "Running On-Demand DL instances", Market::OnDemand, &["dl"]),
    kind("L-F7808C92", "Running On-Demand HPC instances", Market::OnDemand, &["hpc"]),
    kind("L-43DA4232", "Running On-Demand High Memory instances", Market::OnDemand, &["u"]),
    kind("L-E3A00192", "All X Spot Instance Requests", Market::Spot, &["x"]),
    kind("L-88CF9481", "All F Spot Instance Requests", Market::Spot, &["f"]),
    kind("L-B5D1601B", "All Inf Spot Instance Requests", Market::Spot, &["inf"]),
    kind("L-6B0D517C", "All Trn Spot Instance Requests", Market::Spot, &["trn"]),
    kind("L-85EED4F7", "All DL Spot Instance Requests", Market::Spot, &["dl"]),
];

/// The quotas that count GPU machines.
pub fn gpu_quotas() -> impl Iterator<Item = &'static QuotaKind> {
    QUOTA_KINDS.iter().filter(|kind| kind.gpus.is_some())
}

fn is_counted(instance_type: &str, market: Market) -> bool {
    QUOTA_KINDS.iter().any(|kind| kind.market == market && kind.counts(instance_type))
}

/// A remark for an offer without a row: the plan shows no quota, although one may exist.
pub fn uncounted(offer: &Offer) -> Option<String> {
    let is_uncounted =
        offer.cloud == CloudKind::Aws && !is_counted(&offer.instance_type, offer.market);
    is_uncounted.then(|| {
        let (kind, market) = (&offer.instance_type, offer.market);
        format!(
            "no quota that this version knows counts {kind}, {market}: what is left of it is not known, and EC2 may refuse a launch for want of one"
        )
    })
}

/// Families of the shipped catalogue without a row on a market: `p6`.
pub fn uncounted_families(market: Market) -> BTreeSet<&'static str> {
    let uncounted = Catalog::shipped()
        .types()
        .iter()
        .map(|kind| kind.name.as_str())
        .filter(|name| !is_counted(name, market));
    uncounted.filter_map(|name| name.split(['.', '-']).next()).collect()
}

/// Whether both offers share a quota. A family without a row is treated as its own quota.
pub fn share_a_quota(one: &Offer, other: &Offer) -> bool {
    let both = |kind: &QuotaKind| {
        kind.market == one.market
            && kind.counts(&one.instance_type)
            && kind.counts(&other.instance_type)
    };
    one.region == other.region
        && one.market == other.market
        && (one.family() == other.family() || QUOTA_KINDS.iter().any(both))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Arch, Region, UsdPerHour, Zone};

    fn offer(cloud: CloudKind, instance_type: &str, market: Market) -> Offer {
        Offer {
            cloud,
            region: Region::new("us-east-1"),
            zone: Zone::new("us-east-1a"),
            instance_type: instance_type.into(),
            gpus: 8,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 192,
            arch: Arch::X86_64,
            market,
            price: UsdPerHour::ZERO,
            extras: UsdPerHour::ZERO,
            on_demand: None,
        }
    }

    #[test]
    fn each_shipped_type_is_counted_once_or_said_to_be_uncounted() {
        for market in [Market::Spot, Market::OnDemand] {
            for kind in Catalog::shipped().types() {
                let rows = QUOTA_KINDS
                    .iter()
                    .filter(|row| row.market == market && row.counts(&kind.name))
                    .count();
                let said = uncounted(&offer(CloudKind::Aws, &kind.name, market));
                assert_eq!(
                    (rows, said.is_some()),
                    if said.is_none() { (1, false) } else { (0, true) },
                    "{} {market}",
                    kind.name
                );
            }
        }
        assert_eq!(
            uncounted_families(Market::Spot),
            BTreeSet::from(["p6"]),
            "AWS's page names no spot quota of P6"
        );
        assert_eq!(uncounted_families(Market::OnDemand), BTreeSet::new());
    }

    #[test]
    fn gpu_quotas_are_those_that_count_a_shipped_type() {
        for row in QUOTA_KINDS {
            let counts = Catalog::shipped().types().iter().any(|kind| row.counts(&kind.name));
            assert_eq!(row.gpus.is_some(), counts, "{}", row.name);
        }
    }

    #[test]
    fn type_is_counted_once_and_only_an_aws_one_may_be_uncounted() {
        for name in [
            "x2gd.xlarge",
            "f2.6xlarge",
            "inf2.xlarge",
            "trn1.2xlarge",
            "dl1.24xlarge",
            "i4i.large",
            "im4gn.large",
            "m5.large",
            "vt1.3xlarge",
        ] {
            for market in [Market::Spot, Market::OnDemand] {
                let rows = QUOTA_KINDS
                    .iter()
                    .filter(|row| row.market == market && row.counts(name))
                    .count();
                assert_eq!(rows, 1, "{name} {market}");
            }
        }
        let said = uncounted(&offer(CloudKind::Aws, "p6-b200.48xlarge", Market::Spot))
            .expect("nothing counts it");
        assert!(
            said.starts_with("no quota that this version knows counts p6-b200.48xlarge, spot: "),
            "{said}"
        );
        assert_eq!(uncounted(&offer(CloudKind::Local, "workstation", Market::OnDemand)), None);
    }
}
