//! Resources that machines left behind in a region: disks, addresses, interfaces, spot requests,
//! alarms.
//!
//! All kinds are asked for at the same time, for an owner or for one job. Resources that a machine
//! still uses are left out, and so are alarms of other owners. Each gets its price per month.
//!
//! For one job, EC2 filters by the job's tag, and alarms are found by machine names. A hundred jobs
//! that end beside ten thousand machines cost a few calls each. The removal reads the owner tag
//! again (`ec2::residue_delete`). Not here: whether to remove it.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{
    Filter, Instance, SpotInstanceRequest, SpotInstanceState, Tag, Volume, VolumeState,
};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::alarm::{self, Alarm};
use super::describe::{self, VALUES_MAX, filter, owned, state};
use super::errors::meaning;
use crate::account::Residue;
use crate::adapters::aws::session::AwsSession;
use crate::instance::{InstanceState, TAG_PREFIX};
use crate::job::JobId;
use crate::market::{Catalog, CloudKind, Region, Usd};
use crate::ports::CloudError;

pub const VOLUME: &str = "volume";
pub const ADDRESS: &str = "address";
pub const INTERFACE: &str = "network interface";
pub const SPOT_REQUEST: &str = "spot request";
pub const ALARM: &str = "alarm";

/// Hours of a month in AWS's price list: a twelfth of a year.
const HOURS_A_MONTH: i64 = 730;

/// A standard alarm in every commercial region (CloudWatch's price list, January 2026).
const ALARM_A_MONTH: Usd = Usd::from_micros(100_000);

/// Concurrent calls to CloudWatch, which takes a few a second of each kind.
const AT_ONCE: usize = 4;

/// The owner, and perhaps the job, whose residue is asked for.
struct ResidueQuery<'a> {
    session: &'a AwsSession,
    owner: &'a str,
    region: &'a Region,
    /// One job alone, with its machines in this region.
    job: Option<(&'a JobId, &'a BTreeSet<String>)>,
}

/// The machines that have not ended, by id: state and job.
type Living = BTreeMap<String, (InstanceState, Option<JobId>)>;

/// # Errors
/// If EC2 or CloudWatch does not answer: half a list would say that nothing is left.
pub async fn residue(
    session: &AwsSession,
    owner: &str,
    region: &Region,
) -> Result<Vec<Residue>, CloudError> {
    found(&ResidueQuery { session, owner, region, job: None }).await
}

/// The residue of one job that had these machines here.
///
/// # Errors
/// If EC2 or CloudWatch does not answer.
pub async fn residue_of(
    session: &AwsSession,
    owner: &str,
    region: &Region,
    job: &JobId,
    machines: &BTreeSet<String>,
) -> Result<Vec<Residue>, CloudError> {
    found(&ResidueQuery { session, owner, region, job: Some((job, machines)) }).await
}

async fn found(asked: &ResidueQuery<'_>) -> Result<Vec<Residue>, CloudError> {
    let living = living(asked).await?;
    let (volumes, addresses, interfaces, mut requests, mut alarms) = tokio::try_join!(
        volumes(asked, &living),
        addresses(asked),
        interfaces(asked),
        spot_requests(asked, &living),
        alarms(asked, &living)
    )?;
    // These machines appeared after the first look, or belong to another owner.
    let named = requests
        .iter()
        .filter_map(|(_, machine)| machine.clone())
        .chain(alarms.iter().filter_map(Alarm::machine));
    let used = alive(asked, named.collect()).await?;
    requests.retain(|(_, machine)| machine.as_ref().is_none_or(|machine| !used.contains(machine)));
    alarms.retain(|alarm| alarm.machine().is_some_and(|machine| !used.contains(&machine)));
    let requests: Vec<Residue> = requests.into_iter().map(|(request, _)| request).collect();
    let all = [volumes, addresses, interfaces, requests, of_owner(asked, alarms).await?].concat();
    all.iter()
        .for_each(|one| asked.session.memory.residue.put(one.id.clone(), asked.owner.to_owned()));
    Ok(all)
}

impl ResidueQuery<'_> {
    /// Filters by the owner's tag, and by the job's tag for one job.
    fn filters(&self) -> Vec<Filter> {
        let job =
            self.job.map(|(job, _)| filter(&format!("tag:{TAG_PREFIX}job"), [job.to_string()]));
        [owned(self.owner)].into_iter().chain(job).collect()
    }
}

async fn living(asked: &ResidueQuery<'_>) -> Result<Living, CloudError> {
    let all = describe::all(asked.session, asked.region, asked.filters()).await?;
    let alive = |state: &InstanceState| !state.is_terminated();
    let of = |machine: &Instance| {
        Some((
            machine.instance_id()?.to_owned(),
            (state(machine).filter(alive)?, job_of(machine.tags())),
        ))
    };
    Ok(all.iter().filter_map(of).collect())
}

/// The machines among these that have not ended, of any owner.
async fn alive(
    asked: &ResidueQuery<'_>,
    machines: BTreeSet<String>,
) -> Result<BTreeSet<String>, CloudError> {
    let machines: Vec<String> = machines.into_iter().collect();
    let mut alive = BTreeSet::new();
    for some in machines.chunks(VALUES_MAX) {
        let shown =
            describe::all(asked.session, asked.region, [filter("instance-id", some.to_vec())])
                .await?;
        let lives = shown
            .iter()
            .filter(|machine| state(machine).is_some_and(|state| !state.is_terminated()));
        alive.extend(lives.filter_map(|machine| machine.instance_id().map(str::to_owned)));
    }
    Ok(alive)
}

async fn volumes(asked: &ResidueQuery<'_>, living: &Living) -> Result<Vec<Residue>, CloudError> {
    let mut found = volumes_of(asked, asked.filters(), living).await?;
    // `lamp start` may give a kept machine to another job; its disk keeps the tags of the first
    // one.
    let kept: Vec<String> = living
        .iter()
        .filter(|(_, (state, _))| *state == InstanceState::Stopped)
        .map(|(id, _)| id.clone())
        .collect();
    if asked.job.is_some() && !kept.is_empty() {
        let theirs = volumes_of(
            asked,
            vec![owned(asked.owner), filter("attachment.instance-id", kept)],
            living,
        )
        .await?;
        found.extend(theirs);
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found.dedup_by(|one, other| one.id == other.id);
    }
    Ok(found)
}

async fn volumes_of(
    asked: &ResidueQuery<'_>,
    filters: Vec<Filter>,
    living: &Living,
) -> Result<Vec<Residue>, CloudError> {
    let (client, region) = (asked.session.ec2(asked.region).await, asked.region);
    let mut pages = client.describe_volumes().set_filters(Some(filters)).into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page =
            page.map_err(|error| meaning(&format!("look at the disks in {region}"), error))?;
        found.extend(page.volumes().iter().filter_map(|volume| of_volume(region, volume, living)));
    }
    Ok(found)
}

fn of_volume(region: &Region, volume: &Volume, living: &Living) -> Option<Residue> {
    let gib = volume.size().unwrap_or(0);
    let user = volume.attachments().iter().find_map(|attachment| attachment.instance_id());
    let (whose, kept, job) =
        match (volume.state()?, user.and_then(|user| Some((user, living.get(user)?)))) {
            (VolumeState::Available, _) => {
                ("in use by nothing".to_owned(), false, job_of(volume.tags()))
            }
            // Kept on purpose, but billed. The disk has the tags of the launch; `lamp start` may
            // have given the machine to another job.
            (VolumeState::InUse, Some((user, (InstanceState::Stopped, job)))) => {
                (format!("kept by the stopped {user}"), true, job.clone())
            }
            _ => return None,
        };
    let price = Catalog::shipped().disk_gib_month(region).map(|dated| dated.value);
    let told = if price.is_none() { ", at a price that is not known" } else { "" };
    let cost = Usd::from_micros(price.unwrap_or(Usd::ZERO).micros() * i64::from(gib));
    let found = residue_item(
        region,
        VOLUME,
        volume.volume_id()?,
        format!("{gib} GiB, {whose}{told}"),
        cost,
    );
    Some(Residue { kept, job: job.or_else(|| job_of(volume.tags())), ..found })
}

async fn addresses(asked: &ResidueQuery<'_>) -> Result<Vec<Residue>, CloudError> {
    let region = asked.region;
    let told = asked
        .session
        .ec2(region)
        .await
        .describe_addresses()
        .set_filters(Some(asked.filters()))
        .send()
        .await;
    let told =
        told.map_err(|error| meaning(&format!("look at the addresses in {region}"), error))?;
    let hour = Catalog::shipped().public_ipv4_hour(region).map_or(Usd::ZERO, |dated| dated.value);
    let free = told.addresses().iter().filter(|address| address.association_id().is_none());
    let of = |address: &aws_sdk_ec2::types::Address| {
        let detail = format!("{}, in use by nothing", address.public_ip().unwrap_or("an address"));
        let found = residue_item(
            region,
            ADDRESS,
            address.allocation_id()?,
            detail,
            Usd::from_micros(hour.micros() * HOURS_A_MONTH),
        );
        Some(Residue { job: job_of(address.tags()), ..found })
    };
    Ok(free.filter_map(of).collect())
}

async fn interfaces(asked: &ResidueQuery<'_>) -> Result<Vec<Residue>, CloudError> {
    let (client, region) = (asked.session.ec2(asked.region).await, asked.region);
    let unused = client
        .describe_network_interfaces()
        .set_filters(Some(asked.filters()))
        .filters(filter("status", ["available".to_owned()]));
    let mut pages = unused.into_paginator().send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| {
            meaning(&format!("look at the network interfaces in {region}"), error)
        })?;
        found.extend(page.network_interfaces().iter().filter_map(|interface| {
            let found = residue_item(
                region,
                INTERFACE,
                interface.network_interface_id()?,
                "in use by nothing".into(),
                Usd::ZERO,
            );
            Some(Residue { job: job_of(interface.tag_set()), ..found })
        }));
    }
    Ok(found)
}

/// Requests that are still open without their machine: they hold quota, and may launch another one.
/// Each comes with the machine that it names.
async fn spot_requests(
    asked: &ResidueQuery<'_>,
    living: &Living,
) -> Result<Vec<(Residue, Option<String>)>, CloudError> {
    let (client, region) = (asked.session.ec2(asked.region).await, asked.region);
    let mut pages = client
        .describe_spot_instance_requests()
        .set_filters(Some(asked.filters()))
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page =
            page.map_err(|error| meaning(&format!("look at spot requests in {region}"), error))?;
        let with_machine = |request: &SpotInstanceRequest| {
            Some((of_request(region, request, living)?, request.instance_id().map(str::to_owned)))
        };
        found.extend(page.spot_instance_requests().iter().filter_map(with_machine));
    }
    Ok(found)
}

/// Whether it may still launch a machine, or has one.
pub fn is_open(request: &SpotInstanceRequest) -> bool {
    matches!(
        request.state(),
        Some(SpotInstanceState::Open | SpotInstanceState::Active | SpotInstanceState::Disabled)
    )
}

fn of_request(region: &Region, request: &SpotInstanceRequest, living: &Living) -> Option<Residue> {
    let used = request.instance_id().is_some_and(|id| living.contains_key(id));
    let word = request.state()?.as_str();
    let found = residue_item(
        region,
        SPOT_REQUEST,
        request.spot_instance_request_id()?,
        format!("{word}, without a machine"),
        Usd::ZERO,
    );
    (is_open(request) && !used).then(|| Residue { job: job_of(request.tags()), ..found })
}

/// The alarms of a job's machines by name; otherwise all of the account, since CloudWatch cannot
/// filter by tag.
async fn alarms(asked: &ResidueQuery<'_>, living: &Living) -> Result<Vec<Alarm>, CloudError> {
    let prefixes = match asked.job {
        Some((_, machines)) => machines.iter().map(|machine| alarm::prefix_of(machine)).collect(),
        None => vec![alarm::PREFIX.to_owned()],
    };
    let asks = prefixes
        .into_iter()
        .map(|prefix| async move { alarm::alarms(asked.session, asked.region, &prefix).await });
    let all: Vec<Vec<Alarm>> = stream::iter(asks).buffered(AT_ONCE).try_collect().await?;
    Ok(all
        .into_iter()
        .flatten()
        .filter(|alarm| alarm.machine().is_some_and(|machine| !living.contains_key(&machine)))
        .collect())
}

/// The alarms of ended machines that carry the owner's tag: one call for each.
async fn of_owner(
    asked: &ResidueQuery<'_>,
    alarms: Vec<Alarm>,
) -> Result<Vec<Residue>, CloudError> {
    let reads = alarms.into_iter().map(|alarm| async move {
        let is_ours =
            alarm::is_of(asked.session, asked.region, &alarm, asked.owner).await? == Some(true);
        let detail = format!("watches {}, which is gone", alarm.machine().unwrap_or_default());
        Ok::<_, CloudError>(
            is_ours.then(|| residue_item(asked.region, ALARM, &alarm.name, detail, ALARM_A_MONTH)),
        )
    });
    let read: Vec<Option<Residue>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

/// The job in the tags of the launch.
fn job_of(tags: &[Tag]) -> Option<JobId> {
    tags.iter()
        .find(|tag| tag.key().and_then(|key| key.strip_prefix(TAG_PREFIX)) == Some("job"))
        .and_then(|tag| tag.value()?.parse().ok())
}

/// A piece of residue that carries the owner's tag.
fn residue_item(
    region: &Region,
    kind: &str,
    id: &str,
    detail: String,
    usd_per_month: Usd,
) -> Residue {
    let (region, kind, id) = (region.clone(), kind.to_owned(), id.to_owned());
    Residue {
        cloud: CloudKind::Aws,
        region,
        kind,
        id,
        detail,
        usd_per_month,
        ours: true,
        kept: false,
        job: None,
    }
}
