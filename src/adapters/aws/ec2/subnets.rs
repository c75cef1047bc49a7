//! The subnet of a machine: the user's, or the default one of its zone; and which subnets have no
//! free address.
//!
//! After a launch without a free address, the subnet is left out for three minutes, and the
//! region's subnets are read again. If another subnet of the zone has an address, the next attempt
//! uses it. Otherwise the zone is refused for all types. It changes nothing. Not here: for how long
//! an attempt avoids a zone (`policy::purchase::refusal_backoff`).

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Subnet, Tenancy};

use super::describe::filter;
use super::errors::meaning;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::{LaunchSubnet, TRUSTED};
use crate::job::{Plan, Refusal};
use crate::market::{Offer, Region};
use crate::ports::CloudError;

/// How long a full subnet is left out: as long as the refusal of its zone lasts. If this is
/// shorter, a launch uses it again before a machine has ended. If it is longer, a zone of one
/// subnet stays unusable after its refusal has expired.
const FULL_FOR: Duration = Duration::from_secs(3 * 60);

/// The user's subnets, or the default ones of all zones: one call for a region.
///
/// # Errors
/// If EC2 does not answer.
pub async fn find(session: &AwsSession, region: &Region) -> Result<Vec<LaunchSubnet>, CloudError> {
    if let Some(known) = session.memory.subnets.get(region, TRUSTED) {
        return Ok(known);
    }
    let named = &session.settings.subnets;
    let wanted = if named.is_empty() {
        filter("default-for-az", ["true".to_owned()])
    } else {
        filter("subnet-id", named.clone())
    };
    let client = session.ec2(region).await;
    let subnets = async {
        let mut pages = client.describe_subnets().filters(wanted).into_paginator().send();
        let mut places = Vec::new();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| meaning(&format!("look at the subnets in {region}"), error))?;
            places.extend(page.subnets().iter().filter_map(place));
        }
        Ok::<_, CloudError>(places)
    };
    let (places, dedicated) = tokio::join!(subnets, dedicated(&client));
    let mut places = places?;
    places.iter_mut().for_each(|place| place.dedicated = dedicated.contains(&place.network));
    if !places.is_empty() {
        session.memory.subnets.put(region.clone(), places.clone());
    }
    Ok(places)
}

/// The networks with dedicated tenancy. Without the right to look, the set is empty.
async fn dedicated(client: &Client) -> BTreeSet<String> {
    let mut pages = client.describe_vpcs().into_paginator().send();
    let mut found = BTreeSet::new();
    while let Some(Ok(page)) = pages.next().await {
        let odd = page.vpcs().iter().filter(|network| {
            network.instance_tenancy().is_some_and(|tenancy| *tenancy != Tenancy::Default)
        });
        found.extend(odd.filter_map(|network| network.vpc_id().map(str::to_owned)));
    }
    found
}

fn place(subnet: &Subnet) -> Option<LaunchSubnet> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    Some(LaunchSubnet {
        id: text(subnet.subnet_id())?,
        zone: text(subnet.availability_zone())?,
        network: text(subnet.vpc_id())?,
        free: subnet.available_ip_address_count().unwrap_or(i32::MAX),
        gives_address: subnet.map_public_ip_on_launch() == Some(true),
        dedicated: false,
    })
}

/// The subnet with the most free addresses in the offer's zone, without those that were full
/// recently. If there is none, another zone may have one.
///
/// # Errors
/// The reason why there is none.
pub fn choose(
    session: &AwsSession,
    places: &[LaunchSubnet],
    offer: &Offer,
) -> Result<LaunchSubnet, CloudError> {
    let here: Vec<&LaunchSubnet> =
        places.iter().filter(|place| place.zone == offer.zone.as_str()).collect();
    let open = here.iter().filter(|place| !place.dedicated && !was_full(session, place));
    open.max_by_key(|place| place.free)
        .map(|place| (*place).clone())
        .ok_or_else(|| none(session, &here, offer))
}

fn none(session: &AwsSession, here: &[&LaunchSubnet], offer: &Offer) -> CloudError {
    let ordinary: Vec<&str> =
        here.iter().filter(|place| !place.dedicated).map(|place| place.id.as_str()).collect();
    if !ordinary.is_empty() {
        let what = format!(
            "a launch in {} found no free address there a moment ago",
            ordinary.join(" and in ")
        );
        return CloudError::NoCapacity { what, refusal: Refusal::Addresses };
    }
    if let Some(place) = here.first() {
        let what = format!(
            "the network {} of {} makes every machine a dedicated one, which costs more than its price and $2.00 an hour for the region: \
             name subnets of another network in `aws.subnets`",
            place.network, place.id
        );
        return CloudError::NoCapacity { what, refusal: Refusal::NotSold };
    }
    let what = if session.settings.subnets.is_empty() {
        format!(
            "{} has no default subnet; `aws ec2 create-default-subnet --availability-zone {}` makes one",
            offer.zone, offer.zone
        )
    } else {
        format!("none of `aws.subnets` lies in {}", offer.zone)
    };
    CloudError::NoCapacity { what, refusal: Refusal::NotSold }
}

/// Remembers that the subnet of a launch had no free address. The refusal covers the subnet alone
/// if another one of the zone has an address, and otherwise the whole zone, also if EC2 does not
/// say.
pub async fn full(session: &AwsSession, plan: &Plan) -> Refusal {
    let Some(subnet) = plan.launch.as_ref().and_then(|launch| launch.subnet.as_ref()) else {
        return Refusal::Addresses;
    };
    session.memory.full_subnets.put(subnet.clone(), ());
    // The number of free addresses may be ten minutes old.
    session.memory.subnets.forget(&plan.offer.region);
    let places = find(session, &plan.offer.region).await.unwrap_or_default();
    let is_open = |place: &LaunchSubnet| {
        place.zone == plan.offer.zone.as_str() && place.free > 0 && !was_full(session, place)
    };
    if places.iter().any(is_open) { Refusal::Subnet } else { Refusal::Addresses }
}

fn was_full(session: &AwsSession, place: &LaunchSubnet) -> bool {
    session.memory.full_subnets.get(&place.id, FULL_FOR).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::aws::settings::AwsSettings;
    use crate::market::{Arch, CloudKind, Market, UsdPerHour, Zone};

    fn place(id: &str, dedicated: bool) -> LaunchSubnet {
        LaunchSubnet {
            id: id.into(),
            zone: "r1".into(),
            network: "vpc-1".into(),
            free: 1,
            gives_address: true,
            dedicated,
        }
    }

    #[test]
    fn full_subnet_shuts_a_zone_briefly_and_dedicated_ones_for_long() {
        let offer = Offer {
            cloud: CloudKind::Aws,
            region: Region::new("r"),
            zone: Zone::new("r1"),
            instance_type: "g5.xlarge".into(),
            gpus: 1,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 4,
            arch: Arch::X86_64,
            market: Market::Spot,
            price: UsdPerHour::ZERO,
            extras: UsdPerHour::ZERO,
            on_demand: None,
        };
        let session = AwsSession::new(AwsSettings::default());
        let refusal = |places: &[LaunchSubnet]| match choose(&session, places, &offer) {
            Err(CloudError::NoCapacity { refusal, .. }) => Some(refusal),
            _ => None,
        };
        let (dedicated, ordinary) = (place("subnet-d", true), place("subnet-o", false));
        assert_eq!(
            choose(&session, &[dedicated.clone(), ordinary.clone()], &offer)
                .expect("one has room")
                .id,
            "subnet-o"
        );
        session.memory.full_subnets.put("subnet-o".into(), ());
        assert_eq!(refusal(&[dedicated.clone(), ordinary]), Some(Refusal::Addresses));
        assert_eq!(refusal(&[dedicated]), Some(Refusal::NotSold));
    }
}
