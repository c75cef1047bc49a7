//! Machines of the account that `lamp` did not launch. They have GPUs (forgotten, or launched with
//! a stolen key), or they carry our owner tag without the rest of our tags. Other lists leave these
//! out.
//!
//! Not here: how much they are used (`ec2::utilization`), and how to end one.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{Filter, Instance, InstanceLifecycleType};
use jiff::Timestamp;

use crate::account::ForeignMachine;
use crate::adapters::aws::disk_cache::Ec2Cache;
use crate::adapters::aws::ec2::describe::tag_map;
use crate::adapters::aws::ec2::errors::meaning;
use crate::adapters::aws::ec2::{price_list, utilization};
use crate::adapters::aws::session::AwsSession;
use crate::instance::{OWNER_TAG, Tags};
use crate::market::{Catalog, Market, Region, UsdPerHour};
use crate::ports::CloudError;

/// The families with an accelerator (G, P, Trainium, Inferentia, DL and VT).
const FAMILIES: [&str; 10] =
    ["g*", "p2*", "p3*", "p4*", "p5*", "p6*", "trn*", "inf*", "dl*", "vt*"];

/// # Errors
/// When EC2 does not answer.
pub async fn foreign(
    session: &AwsSession,
    _owner: &str,
    region: &Region,
) -> Result<Vec<ForeignMachine>, CloudError> {
    let (with_gpus, tagged) =
        tokio::try_join!(list(session, region, with_gpus()), list(session, region, tagged()))?;
    let mut machines: Vec<ForeignMachine> = Vec::new();
    for instance in with_gpus.iter().chain(&tagged) {
        let is_known =
            machines.iter().any(|known| Some(known.id.as_str()) == instance.instance_id());
        machines.extend(machine(region, instance).filter(|_| !is_known));
    }
    let ids: Vec<&str> = machines.iter().map(|machine| machine.id.as_str()).collect();
    let (used, prices) = tokio::join!(
        utilization::of_machines(session, region, &ids),
        prices(session, region, &machines)
    );
    for machine in &mut machines {
        machine.usd_per_hour = prices.get(&machine.instance_type).copied().or(machine.usd_per_hour);
        let used = used.get(&machine.id).copied().unwrap_or_default();
        (machine.cpu_percent, machine.gpu_percent) = (used.cpu_percent, used.gpu_percent);
    }
    Ok(machines)
}

async fn list(
    session: &AwsSession,
    region: &Region,
    filter: Filter,
) -> Result<Vec<Instance>, CloudError> {
    let running =
        Filter::builder().name("instance-state-name").values("pending").values("running").build();
    let mut pages = session
        .ec2(region)
        .await
        .describe_instances()
        .filters(running)
        .filters(filter)
        .into_paginator()
        .send();
    let mut instances = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning("list the machines of the account", error))?;
        instances.extend(
            page.reservations
                .unwrap_or_default()
                .into_iter()
                .flat_map(|one| one.instances.unwrap_or_default()),
        );
    }
    Ok(instances)
}

fn with_gpus() -> Filter {
    FAMILIES
        .iter()
        .fold(Filter::builder().name("instance-type"), |filter, family| filter.values(*family))
        .build()
}

/// Machines with an owner tag, whatever owner it names.
fn tagged() -> Filter {
    Filter::builder().name("tag-key").values(OWNER_TAG).build()
}

/// Why a machine with our owner tag is not a launch of `lamp`. Complete tags are a launch, also for
/// another owner: that owner's `lamp` watches the machine.
fn odd(tags: &BTreeMap<String, String>) -> Option<String> {
    let owner = tags.get(OWNER_TAG)?;
    let why = Tags::from_map(tags).err()?;
    Some(format!("it carries `{OWNER_TAG}` = `{owner}`, and is no launch of `lamp`: {why}"))
}

/// `None`: a `lamp` launched it.
fn machine(region: &Region, instance: &Instance) -> Option<ForeignMachine> {
    let tags = tag_map(instance);
    let odd = odd(&tags);
    if odd.is_none() && tags.contains_key(OWNER_TAG) {
        return None;
    }
    let name =
        instance.tags().iter().find(|tag| tag.key() == Some("Name")).and_then(|tag| tag.value());
    let launched = instance.launch_time().and_then(|time| Timestamp::new(time.secs(), 0).ok())?;
    let kind = instance.instance_type()?.as_str().to_owned();
    let spot = instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot);
    Some(ForeignMachine {
        region: region.clone(),
        id: instance.instance_id()?.to_owned(),
        name: name.map(str::to_owned),
        market: if spot { Market::Spot } else { Market::OnDemand },
        launched,
        // The price of the shipped catalogue, if the price list does not answer.
        usd_per_hour: Catalog::shipped().on_demand(&kind, region),
        instance_type: kind,
        cpu_percent: None,
        gpu_percent: None,
        odd,
    })
}

/// The on-demand prices by type. A region without such machines is not asked.
async fn prices(
    session: &AwsSession,
    region: &Region,
    machines: &[ForeignMachine],
) -> BTreeMap<String, UsdPerHour> {
    let kinds: BTreeSet<&str> =
        machines.iter().map(|machine| machine.instance_type.as_str()).collect();
    if kinds.is_empty() {
        return BTreeMap::new();
    }
    let kinds: Vec<String> = kinds.into_iter().map(str::to_owned).collect();
    let cache = Ec2Cache::of(session, region).await;
    price_list::on_demand(session, &cache, region, &kinds).await.by_type
}
