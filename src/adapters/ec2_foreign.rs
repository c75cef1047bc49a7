//! GPU machines of the account that nobody of ours launched: the forgotten ones, and those of a stolen key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_ec2::types::{Filter, Instance, InstanceLifecycleType};
use jiff::Timestamp;

use super::aws_session::AwsSession;
use super::cloudwatch_query::{ask, elements, texts};
use super::ec2_cache::Ec2Cache;
use super::ec2_errors::meaning;
use super::ec2_price_list;
use super::system_clock::SystemClock;
use crate::instance::{ForeignMachine, OWNER_TAG};
use crate::market::{Catalog, Market, Region, UsdPerHour};
use crate::ports::{Clock, CloudError};

/// The families with an accelerator, as their names begin (G, P, Trainium, Inferentia, DL and VT).
const FAMILIES: [&str; 10] = ["g*", "p2*", "p3*", "p4*", "p5*", "p6*", "trn*", "inf*", "dl*", "vt*"];

/// What is looked back on: a day has the night in it.
const LOOK_BACK: Duration = Duration::from_secs(24 * 3600);

/// # Errors
/// When EC2 does not answer.
pub async fn foreign(session: &AwsSession, _owner: &str, region: &Region) -> Result<Vec<ForeignMachine>, CloudError> {
    let mut machines = Vec::new();
    let mut pages = session.ec2(region).await.describe_instances().set_filters(Some(filters())).into_paginator().send();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning("list the machines of the account", error))?;
        let instances = page.reservations().iter().flat_map(|reservation| reservation.instances());
        machines.extend(instances.filter(|instance| !is_ours(instance)).filter_map(|instance| machine(region, instance)));
    }
    let (cpu, prices) = tokio::join!(cpu_of(session, region, &machines), prices(session, region, &machines));
    for machine in &mut machines {
        machine.usd_per_hour = prices.get(&machine.instance_type).copied().or(machine.usd_per_hour);
        machine.cpu_percent = cpu.get(&machine.id).copied();
    }
    Ok(machines)
}

fn filters() -> Vec<Filter> {
    let running = Filter::builder().name("instance-state-name").values("pending").values("running").build();
    let families = FAMILIES.iter().fold(Filter::builder().name("instance-type"), |filter, family| filter.values(*family)).build();
    vec![running, families]
}

/// Anybody's of Lamplighter's: another owner of the same account has a `lamp` of their own that watches it.
fn is_ours(instance: &Instance) -> bool {
    instance.tags().iter().any(|tag| tag.key() == Some(OWNER_TAG))
}

fn machine(region: &Region, instance: &Instance) -> Option<ForeignMachine> {
    let name = instance.tags().iter().find(|tag| tag.key() == Some("Name")).and_then(|tag| tag.value());
    let launched = instance.launch_time().and_then(|time| Timestamp::new(time.secs(), 0).ok())?;
    let kind = instance.instance_type()?.as_str().to_owned();
    let spot = instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot);
    Some(ForeignMachine {
        region: region.clone(),
        id: instance.instance_id()?.to_owned(),
        name: name.map(str::to_owned),
        market: if spot { Market::Spot } else { Market::OnDemand },
        launched,
        // The catalogue's, where the price list does not answer.
        usd_per_hour: Catalog::shipped().on_demand(&kind, region),
        instance_type: kind,
        cpu_percent: None,
        gpu_percent: None,
    })
}

/// The on-demand prices by type; of a region without such machines nothing is asked.
async fn prices(session: &AwsSession, region: &Region, machines: &[ForeignMachine]) -> BTreeMap<String, UsdPerHour> {
    let kinds: BTreeSet<&str> = machines.iter().map(|machine| machine.instance_type.as_str()).collect();
    if kinds.is_empty() {
        return BTreeMap::new();
    }
    let kinds: Vec<String> = kinds.into_iter().map(str::to_owned).collect();
    let cache = Ec2Cache::of(session, region).await;
    ec2_price_list::on_demand(session, &cache, region, &kinds).await.by_type
}

/// What one call of GetMetricData takes.
const QUERIES_MAX: usize = 500;

/// The mean processor use of the last day. What CloudWatch does not say is unknown, and no reason to say nothing.
async fn cpu_of(session: &AwsSession, region: &Region, machines: &[ForeignMachine]) -> BTreeMap<String, f64> {
    let now = SystemClock.now();
    let from = now.saturating_sub(LOOK_BACK).unwrap_or(now);
    let time = |name: &str, at: Timestamp| (name.to_owned(), at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mut means = BTreeMap::new();
    for batch in machines.chunks(QUERIES_MAX) {
        let queries = batch.iter().enumerate().flat_map(|(at, machine)| query(at, &machine.id));
        let params: Vec<(String, String)> = [time("StartTime", from), time("EndTime", now)].into_iter().chain(queries).collect();
        match ask(session, region, "ask for the use of machines", "GetMetricData", &params).await {
            Ok(answer) => {
                for result in elements(&answer, "MetricDataResults").into_iter().flat_map(|results| elements(results, "member")) {
                    let id = texts(result, "Id").into_iter().next();
                    let at = id.and_then(|id| id.strip_prefix('m')?.parse::<usize>().ok());
                    let values = elements(result, "Values").into_iter().flat_map(|values| texts(values, "member"));
                    let first = values.into_iter().next().and_then(|value| value.parse().ok());
                    let Some((machine, first)) = at.and_then(|at| batch.get(at)).zip(first) else { continue };
                    means.insert(machine.id.clone(), first);
                }
            }
            Err(error) => tracing::warn!("no use of the machines in {region} is known: {error}"),
        }
    }
    means
}

fn query(at: usize, instance: &str) -> Vec<(String, String)> {
    let words = [
        ("Id", format!("m{at}")),
        ("MetricStat.Metric.Namespace", "AWS/EC2".to_owned()),
        ("MetricStat.Metric.MetricName", "CPUUtilization".to_owned()),
        ("MetricStat.Metric.Dimensions.member.1.Name", "InstanceId".to_owned()),
        ("MetricStat.Metric.Dimensions.member.1.Value", instance.to_owned()),
        ("MetricStat.Period", LOOK_BACK.as_secs().to_string()),
        ("MetricStat.Stat", "Average".to_owned()),
    ];
    words.map(|(name, value)| (format!("MetricDataQueries.member.{}.{name}", at + 1), value)).to_vec()
}
