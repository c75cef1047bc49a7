//! Machines of others in the account, which our programs must never touch.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cloud_port::REGION;
use super::world::World;
use crate::market::{Arch, CloudKind, Market, Offer, Region, UsdPerHour, Zone};

/// Machines of others: one of another owner with our job's tags, one without an owner, one whose
/// tags look like ours.
pub fn add(world: &Arc<World>) {
    let offer = Offer {
        cloud: CloudKind::Aws,
        region: Region::new(REGION),
        zone: Zone::new("us-east-1a"),
        instance_type: "g5.xlarge".into(),
        gpus: 1,
        gpu_model: None,
        gpu_memory_mib: None,
        vcpus: 4,
        arch: Arch::X86_64,
        market: Market::OnDemand,
        price: UsdPerHour::ZERO,
        extras: UsdPerHour::ZERO,
        on_demand: None,
    };
    let tag = |key: &str, value: &str| (format!("lamplighter:{key}"), value.to_owned());
    let job = [tag("job", world.job().as_str()), tag("attempt", "0001"), tag("lease-s", "1800")];
    let of = |owner: Option<&str>| -> BTreeMap<String, String> {
        job.iter().cloned().chain(owner.map(|owner| tag("owner", owner))).collect()
    };
    world.ec2.add_foreign("i-other", of(Some("somebody else")), offer.clone());
    world.ec2.add_foreign("i-nobody", of(None), offer.clone());
    world.ec2.add_foreign("i-alike", of(Some("Me")), offer);
}
