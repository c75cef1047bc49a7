//! What an owner's machines left behind in a region: disks, addresses, interfaces, spot requests, alarms.
//!
//! ```text
//!   machines ┐
//!   volumes  │
//!   ...      ├─ all at once ──> what no living machine uses, with what it costs a month
//!   alarms   ┘
//! ```
//! What a living machine uses is no residue. Removing one reads its owner tag again. What must never live here: whether to
//! remove it.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Instance, SpotInstanceRequest, SpotInstanceState, Tag, Volume, VolumeState};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use super::aws_session::AwsSession;
use super::cloudwatch_alarm;
use super::ec2_describe::{self, filter, owned, state};
use super::ec2_errors::meaning;
use crate::instance::{InstanceState, OWNER_TAG, Residue, TAG_PREFIX};
use crate::job::JobId;
use crate::market::{Catalog, Cloud, Region, Usd};
use crate::ports::CloudError;

const VOLUME: &str = "volume";
const ADDRESS: &str = "address";
const INTERFACE: &str = "network interface";
const SPOT_REQUEST: &str = "spot request";
const ALARM: &str = "alarm";

/// As AWS's price list counts them: a twelfth of a year.
const HOURS_A_MONTH: i64 = 730;

/// A standard alarm, in every commercial region (CloudWatch's price list, January 2026).
const ALARM_A_MONTH: Usd = Usd::from_micros(100_000);

/// A list that somebody has looked at for so long is old: a new one is made first.
const FOUND_WITHIN: Duration = Duration::from_secs(3600);

/// The owner's machines that have not ended, by their ids: how they are, and whose.
type Living = BTreeMap<String, (InstanceState, Option<JobId>)>;

type Refused<E> = SdkError<E, HttpResponse>;

/// # Errors
/// When EC2 or CloudWatch does not answer: half a list would say that nothing is left.
pub async fn residue(session: &AwsSession, owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
    let living = living(session, owner, region).await?;
    let (volumes, addresses, interfaces, requests, alarms) = tokio::try_join!(
        volumes(session, owner, region, &living),
        addresses(session, owner, region),
        interfaces(session, owner, region),
        spot_requests(session, owner, region, &living),
        alarms(session, owner, region, &living),
    )?;
    let all = [volumes, addresses, interfaces, requests, alarms].concat();
    all.iter().for_each(|one| session.memory.residue.put(one.id.clone(), owner.to_owned()));
    Ok(all)
}

/// # Errors
/// When it is not ours, is in use, or EC2 does not answer. What is gone already is no error.
pub async fn clear(session: &AwsSession, residue: &Residue) -> Result<(), CloudError> {
    let act = format!("remove the {} {}", residue.kind, residue.id);
    let not_ours =
        || CloudError::Denied { act: act.clone(), cause: format!("it was not found by the tag `{OWNER_TAG}`, or carries another now").into() };
    let Some(owner) = session.memory.residue.get(&residue.id, FOUND_WITHIN).filter(|_| residue.ours) else { return Err(not_ours()) };
    let (client, id) = (session.ec2(&residue.region).await, residue.id.as_str());
    if residue.kind == ALARM {
        return cloudwatch_alarm::delete(session, &residue.region, &[id.to_owned()]).await;
    }
    if residue.kind == SPOT_REQUEST {
        return done(&act, client.cancel_spot_instance_requests().spot_instance_request_ids(id).send().await);
    }
    let tags = client.describe_tags().filters(filter("resource-id", [id.to_owned()])).filters(filter("key", [OWNER_TAG.to_owned()])).send().await;
    let tags = tags.map_err(|error| meaning(&act, error))?;
    if !tags.tags().iter().any(|tag| tag.value() == Some(&owner)) {
        // What is gone has no tags either.
        let gone = tags.tags().is_empty() && is_gone(&client, residue, &act).await?;
        return if gone { Ok(()) } else { Err(not_ours()) };
    }
    match residue.kind.as_str() {
        // EC2 refuses a disk that is in use.
        VOLUME => done(&act, client.delete_volume().volume_id(id).send().await),
        ADDRESS => done(&act, client.release_address().allocation_id(id).send().await),
        INTERFACE => done(&act, client.delete_network_interface().network_interface_id(id).send().await),
        other => Err(CloudError::Invalid { what: format!("cannot {act}: nobody knows how to remove a {other}") }),
    }
}

/// What EC2 says of an id that it does not know, or no longer: each kind of thing has its own words. Each call here names one.
const UNKNOWN: [&str; 4] =
    ["InvalidVolume.NotFound", "InvalidAllocationID.NotFound", "InvalidNetworkInterfaceID.NotFound", "InvalidSpotInstanceRequestID.NotFound"];

/// What is not there needs no removal: another sweep was quicker, or it is the second call of one whose answer was lost.
fn done<T, E>(act: &str, told: Result<T, Refused<E>>) -> Result<(), CloudError>
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    none(act, told, |_| 0).map(drop)
}

/// Whether nothing of the id is shown.
fn none<T, E>(act: &str, told: Result<T, Refused<E>>, shown: impl Fn(&T) -> usize) -> Result<bool, CloudError>
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    match told {
        Err(error) if error.code().is_some_and(|code| UNKNOWN.contains(&code)) => Ok(true),
        told => told.map(|told| shown(&told) == 0).map_err(|error| meaning(act, error)),
    }
}

async fn is_gone(client: &Client, residue: &Residue, act: &str) -> Result<bool, CloudError> {
    let id = residue.id.as_str();
    match residue.kind.as_str() {
        VOLUME => none(act, client.describe_volumes().volume_ids(id).send().await, |told| told.volumes().len()),
        ADDRESS => none(act, client.describe_addresses().allocation_ids(id).send().await, |told| told.addresses().len()),
        INTERFACE => none(act, client.describe_network_interfaces().network_interface_ids(id).send().await, |told| told.network_interfaces().len()),
        _ => Ok(false),
    }
}

async fn living(session: &AwsSession, owner: &str, region: &Region) -> Result<Living, CloudError> {
    let all = ec2_describe::all(session, region, owned(owner)).await?;
    let alive = |state: &InstanceState| !state.is_terminated();
    let of = |machine: &Instance| Some((machine.instance_id()?.to_owned(), (state(machine).filter(alive)?, job_of(machine.tags()))));
    Ok(all.iter().filter_map(of).collect())
}

async fn volumes(session: &AwsSession, owner: &str, region: &Region, living: &Living) -> Result<Vec<Residue>, CloudError> {
    let client = session.ec2(region).await;
    let mut pages = client.describe_volumes().filters(owned(owner)).into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning(&format!("look at the disks in {region}"), error))?;
        found.extend(page.volumes().iter().filter_map(|volume| of_volume(region, volume, living)));
    }
    Ok(found)
}

fn of_volume(region: &Region, volume: &Volume, living: &Living) -> Option<Residue> {
    let gib = volume.size().unwrap_or(0);
    let user = volume.attachments().iter().find_map(|attachment| attachment.instance_id());
    let (whose, kept, job) = match (volume.state()?, user.and_then(|user| Some((user, living.get(user)?)))) {
        (VolumeState::Available, _) => ("in use by nothing".to_owned(), false, job_of(volume.tags())),
        // Kept on purpose, and billed all the same. Its own tags are of the launch: `lamp start` gives the machine to another job.
        (VolumeState::InUse, Some((user, (InstanceState::Stopped, job)))) => (format!("kept by the stopped {user}"), true, job.clone()),
        _ => return None,
    };
    let price = Catalog::shipped().disk_gib_month(region).map(|dated| dated.value);
    let told = if price.is_none() { ", at a price that is not known" } else { "" };
    let cost = Usd::from_micros(price.unwrap_or(Usd::ZERO).micros() * i64::from(gib));
    let found = left(region, VOLUME, volume.volume_id()?, format!("{gib} GiB, {whose}{told}"), cost);
    Some(Residue { kept, job: job.or_else(|| job_of(volume.tags())), ..found })
}

async fn addresses(session: &AwsSession, owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
    let told = session.ec2(region).await.describe_addresses().filters(owned(owner)).send().await;
    let told = told.map_err(|error| meaning(&format!("look at the addresses in {region}"), error))?;
    let hour = Catalog::shipped().public_ipv4_hour(region).map_or(Usd::ZERO, |dated| dated.value);
    let free = told.addresses().iter().filter(|address| address.association_id().is_none());
    let of = |address: &aws_sdk_ec2::types::Address| {
        let detail = format!("{}, in use by nothing", address.public_ip().unwrap_or("an address"));
        Some(left(region, ADDRESS, address.allocation_id()?, detail, Usd::from_micros(hour.micros() * HOURS_A_MONTH)))
    };
    Ok(free.filter_map(of).collect())
}

async fn interfaces(session: &AwsSession, owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
    let client = session.ec2(region).await;
    let mut pages =
        client.describe_network_interfaces().filters(owned(owner)).filters(filter("status", ["available".to_owned()])).into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning(&format!("look at the network interfaces in {region}"), error))?;
        found.extend(page.network_interfaces().iter().filter_map(|interface| {
            let found = left(region, INTERFACE, interface.network_interface_id()?, "in use by nothing".into(), Usd::ZERO);
            Some(Residue { job: job_of(interface.tag_set()), ..found })
        }));
    }
    Ok(found)
}

/// A request that lives without its machine holds quota, and may launch another one.
async fn spot_requests(session: &AwsSession, owner: &str, region: &Region, living: &Living) -> Result<Vec<Residue>, CloudError> {
    let client = session.ec2(region).await;
    let mut pages = client.describe_spot_instance_requests().filters(owned(owner)).into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning(&format!("look at spot requests in {region}"), error))?;
        found.extend(page.spot_instance_requests().iter().filter_map(|request| of_request(region, request, living)));
    }
    Ok(found)
}

fn of_request(region: &Region, request: &SpotInstanceRequest, living: &Living) -> Option<Residue> {
    let open = matches!(request.state()?, SpotInstanceState::Open | SpotInstanceState::Active | SpotInstanceState::Disabled);
    let used = request.instance_id().is_some_and(|id| living.contains_key(id));
    let word = request.state()?.as_str();
    let found = left(region, SPOT_REQUEST, request.spot_instance_request_id()?, format!("{word}, without a machine"), Usd::ZERO);
    (open && !used).then(|| Residue { job: job_of(request.tags()), ..found })
}

async fn alarms(session: &AwsSession, owner: &str, region: &Region, living: &Living) -> Result<Vec<Residue>, CloudError> {
    let mut found = Vec::new();
    for alarm in cloudwatch_alarm::alarms(session, region, cloudwatch_alarm::PREFIX).await? {
        let Some(machine) = alarm.machine().filter(|machine| !living.contains_key(machine)) else { continue };
        if cloudwatch_alarm::is_of(session, region, &alarm, owner).await? {
            found.push(left(region, ALARM, &alarm.name, format!("watches {machine}, which is gone"), ALARM_A_MONTH));
        }
    }
    Ok(found)
}

/// The job in the tags of the launch that made it.
fn job_of(tags: &[Tag]) -> Option<JobId> {
    let key = format!("{TAG_PREFIX}job");
    tags.iter().find(|tag| tag.key() == Some(&key)).and_then(|tag| tag.value()?.parse().ok())
}

/// It was found by the owner's tag.
fn left(region: &Region, kind: &str, id: &str, detail: String, usd_per_month: Usd) -> Residue {
    let (region, kind, id) = (region.clone(), kind.to_owned(), id.to_owned());
    Residue { cloud: Cloud::Aws, region, kind, id, detail, usd_per_month, ours: true, kept: false, job: None }
}
