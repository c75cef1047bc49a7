//! The vCPU quotas of the account by family, and the vCPUs in use.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_ec2::types::{
    Filter, Instance, InstanceLifecycleType, Reservation, SpotInstanceRequest,
};
use futures::StreamExt as _;
use futures::stream;

use super::errors::meaning;
use crate::adapters::aws::disk_cache::Ec2Cache;
use crate::adapters::aws::session::AwsSession;
use crate::market::{Market, Offer, QUOTA_KINDS, Quota, QuotaKind, Region, Supply, is_of_any};
use crate::ports::{CloudError, chain};

/// A person raises a quota and waits for it, so a quota without room is asked once more
/// ([`ask_again`]). Only AWS lowers one.
const QUOTAS_HOLD: Duration = Duration::from_secs(3600);

/// Service Quotas answers a few calls a second.
const AT_ONCE: usize = 4;

/// A plan may be shown and then made within seconds. A minute could hide a machine that was
/// launched meanwhile.
const USED_HOLDS: Duration = Duration::from_secs(20);

/// The vCPUs in use, by type and market.
pub type Used = Vec<(String, Market, u32)>;

/// The vCPUs of running machines and of open spot requests, which EC2 counts too.
///
/// # Errors
/// If EC2 does not answer.
pub async fn used(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
) -> Result<Used, CloudError> {
    if let Some(kept) = cache.get("used", USED_HOLDS) {
        return Ok(kept);
    }
    let (reservations, waiting) =
        tokio::try_join!(running(session, region), waiting(session, region))?;
    let mut counted: BTreeMap<(String, Market), u32> = BTreeMap::new();
    let run = reservations.iter().flat_map(|reservation| reservation.instances()).filter_map(vcpus);
    for (key, vcpus) in run.chain(waiting.iter().filter_map(vcpus_of_request)) {
        *counted.entry(key).or_default() += vcpus;
    }
    let used = counted.into_iter().map(|((kind, market), vcpus)| (kind, market, vcpus)).collect();
    cache.put("used", &used);
    Ok(used)
}

async fn running(session: &AwsSession, region: &Region) -> Result<Vec<Reservation>, CloudError> {
    let live =
        Filter::builder().name("instance-state-name").values("pending").values("running").build();
    let asked = session.ec2(region).await.describe_instances().filters(live);
    let pages: Result<Vec<_>, _> = asked.into_paginator().items().send().collect().await;
    pages.map_err(|error| meaning(&format!("count what runs in {region}"), error))
}

/// Open spot requests. Lamplighter leaves none, but fleets and persistent requests do. Active ones
/// have their machine and are left out: there may be ten thousand.
async fn waiting(
    session: &AwsSession,
    region: &Region,
) -> Result<Vec<SpotInstanceRequest>, CloudError> {
    let open = Filter::builder().name("state").values("open").build();
    let asked = session.ec2(region).await.describe_spot_instance_requests().filters(open);
    let pages: Result<Vec<_>, _> = asked.into_paginator().items().send().collect().await;
    pages.map_err(|error| meaning(&format!("count the open spot requests in {region}"), error))
}

fn vcpus_of_request(request: &SpotInstanceRequest) -> Option<((String, Market), u32)> {
    let kind = request.launch_specification()?.instance_type()?.as_str().to_owned();
    let vcpus = of_size(&kind)?;
    Some(((kind, Market::Spot), vcpus))
}

fn vcpus(instance: &Instance) -> Option<((String, Market), u32)> {
    let market = if instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot) {
        Market::Spot
    } else {
        Market::OnDemand
    };
    let kind = instance.instance_type()?.as_str().to_owned();
    let told = instance.cpu_options().and_then(|cpu| {
        u32::try_from(cpu.core_count()?.checked_mul(cpu.threads_per_core()?)?).ok()
    });
    let vcpus = told.or_else(|| of_size(&kind))?;
    Some(((kind, market), vcpus))
}

/// The vCPUs of a size, if the instance does not tell: `large` is two, `xlarge` four, `12xlarge`
/// twelve times four.
fn of_size(kind: &str) -> Option<u32> {
    match kind.split_once('.')?.1 {
        "nano" | "micro" | "small" | "medium" | "large" => Some(2),
        "xlarge" => Some(4),
        size => size.strip_suffix("xlarge")?.parse::<u32>().ok().map(|times| times * 4),
    }
}

/// The quotas of some types and markets, before the use is subtracted.
#[derive(Default)]
pub struct FoundQuotas {
    pub quotas: Vec<Quota>,
    /// The codes of quotas that came from the cache.
    pub kept: BTreeSet<String>,
    /// An error if one could not be read.
    pub trouble: Option<CloudError>,
}

pub async fn quotas(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    types: &[String],
    markets: &[Market],
) -> FoundQuotas {
    let client = session.quotas(region).await;
    let mut asked = Vec::new();
    for kind in QUOTA_KINDS {
        let is_concerned = types.iter().any(|name| kind.counts(name));
        if is_concerned && markets.contains(&kind.market) {
            asked.push(quota(&client, cache, region, kind));
        }
    }
    let answers: Vec<Result<Option<(Quota, bool)>, CloudError>> =
        stream::iter(asked).buffered(AT_ONCE).collect().await;
    let mut known = FoundQuotas::default();
    for answer in answers {
        match answer {
            Ok(Some((quota, is_kept))) => {
                known.kept.extend(is_kept.then(|| quota.code.clone()));
                known.quotas.push(quota);
            }
            Ok(None) => {}
            Err(error) => known.trouble = Some(error),
        }
    }
    known
}

fn key(code: &str) -> String {
    format!("quota-{code}")
}

/// Asks again for cached quotas that leave no room for any offer: the user may have raised one
/// since.
pub async fn ask_again(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    kept: &BTreeSet<String>,
    supply: &mut Supply,
) {
    let Supply { quotas, offers, .. } = supply;
    let client = session.quotas(region).await;
    let mut asked = Vec::new();
    for quota in
        quotas.iter_mut().filter(|quota| kept.contains(&quota.code) && refuses_all(quota, offers))
    {
        asked.push(async {
            match value(&client, &quota.code).await {
                Ok(max) => {
                    cache.put(&key(&quota.code), &max);
                    quota.vcpus_max = max.unwrap_or(quota.vcpus_max);
                }
                Err(error) => tracing::debug!(%region, "whether {} was raised is not known: {}", quota.code, chain(&error)),
            }
        });
    }
    stream::iter(asked).buffer_unordered(AT_ONCE).collect::<()>().await;
}

fn refuses_all(quota: &Quota, offers: &[Offer]) -> bool {
    let mut covered = offers.iter().filter(|offer| quota.covers(offer)).peekable();
    covered.peek().is_some() && covered.all(|offer| offer.vcpus > quota.vcpus_left())
}

/// Also returns whether it came from the cache.
async fn quota(
    client: &aws_sdk_servicequotas::Client,
    cache: &Ec2Cache,
    region: &Region,
    kind: &QuotaKind,
) -> Result<Option<(Quota, bool)>, CloudError> {
    let key = key(kind.code);
    let kept = cache.get(&key, QUOTAS_HOLD);
    let is_kept = kept.is_some();
    let vcpus_max = match kept {
        Some(kept) => kept,
        None => {
            let max = value(client, kind.code).await?;
            cache.put(&key, &max);
            max
        }
    };
    let quota = |vcpus_max| Quota {
        name: kind.name.to_owned(),
        code: kind.code.to_owned(),
        region: region.clone(),
        market: kind.market,
        families: kind.families.iter().map(|family| (*family).to_owned()).collect(),
        vcpus_max,
        vcpus_used: 0,
    };
    Ok(vcpus_max.map(|vcpus_max| (quota(vcpus_max), is_kept)))
}

/// The account's value of a quota, else AWS's default; `None`: this region has no such quota.
async fn value(
    client: &aws_sdk_servicequotas::Client,
    code: &str,
) -> Result<Option<u32>, CloudError> {
    let whole = |value: f64| value.clamp(0.0, f64::from(u32::MAX)) as u32;
    match client.get_service_quota().service_code("ec2").quota_code(code).send().await {
        Ok(told) => return Ok(told.quota().and_then(|quota| quota.value()).map(whole)),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_no_such_resource_exception()) => {}
        Err(error) => return Err(meaning("read the account's quotas", error)),
    }
    match client.get_aws_default_service_quota().service_code("ec2").quota_code(code).send().await {
        Ok(told) => Ok(told.quota().and_then(|quota| quota.value()).map(whole)),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_no_such_resource_exception()) =>
        {
            Ok(None)
        }
        Err(error) => Err(meaning("read the account's quotas", error)),
    }
}

/// Enters the use of each quota.
pub fn count(quotas: &mut [Quota], used: &Used) {
    for quota in quotas {
        let ours = used.iter().filter(|(kind, market, _)| {
            *market == quota.market && is_of_any(kind, &quota.families)
        });
        quota.vcpus_used = ours.map(|(_, _, vcpus)| *vcpus).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_says_its_vcpus() {
        for (kind, vcpus) in [
            ("g5.xlarge", Some(4)),
            ("p4d.24xlarge", Some(96)),
            ("m5.large", Some(2)),
            ("g4dn.metal", None),
            ("", None),
        ] {
            assert_eq!(of_size(kind), vcpus, "{kind}");
        }
    }

    #[test]
    fn what_is_used_counts_for_its_family_and_market() {
        let quota = |market, families: &[&str]| Quota {
            name: String::new(),
            code: String::new(),
            region: Region::new("r"),
            market,
            families: families.iter().map(|family| (*family).to_owned()).collect(),
            vcpus_max: 64,
            vcpus_used: 0,
        };
        let mut quotas = [
            quota(Market::OnDemand, &["g", "gr"]),
            quota(Market::Spot, &["g", "gr"]),
            quota(Market::Spot, &["p5"]),
        ];
        let used = [
            ("g5.xlarge", Market::OnDemand, 8),
            ("gr6.4xlarge", Market::OnDemand, 16),
            ("g5.xlarge", Market::Spot, 4),
            ("p4d.24xlarge", Market::Spot, 96),
        ];
        let used = used
            .into_iter()
            .map(|(kind, market, vcpus)| (kind.to_owned(), market, vcpus))
            .collect();
        count(&mut quotas, &used);
        assert_eq!(quotas.map(|quota| quota.vcpus_used), [24, 4, 0]);
    }
}
