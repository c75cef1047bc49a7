//! The security group of the machines, its networks, and the machines that still run.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_ec2::types::{
    InstanceStateName, IpPermission, ResourceType, SecurityGroup, Tag, TagSpecification,
    UserIdGroupPair,
};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures::future::join_all;

use super::setup_error::SetupError;
use crate::account::lookup::{Found, GroupFound, RegionFound};
use crate::account::setup::{GANG_GROUP, SetupNames};
use crate::adapters::aws::ec2::describe::{filter, tag_map};
use crate::adapters::aws::ec2::{regions, subnets};
use crate::adapters::aws::service_error::{found, is_gone, said};
use crate::adapters::aws::session::AwsSession;
use crate::instance::{OWNER_TAG, owned_by};
use crate::market::Region;
use crate::ports::chain;

pub(crate) async fn regions(session: &Arc<AwsSession>, names: &SetupNames) -> Vec<RegionFound> {
    join_all(names.regions.iter().map(|region| look(session, &names.group, region))).await.concat()
}

/// One entry for each network of the region that machines use. Without such a network, one entry
/// without a network.
pub(crate) async fn look(session: &Arc<AwsSession>, name: &str, region: &str) -> Vec<RegionFound> {
    let region = Region::new(region);
    let ec2 = session.ec2(&region).await;
    // All groups of the name in any network: the networks are not known yet.
    let by = if name.starts_with("sg-") { "group-id" } else { "group-name" };
    let wanted = match by {
        "group-id" => vec![name.to_owned()],
        _ => vec![name.to_owned(), GANG_GROUP.to_owned()],
    };
    let groups = ec2.describe_security_groups().filters(filter(by, wanted)).send();
    let (vpcs, groups) = tokio::join!(vpcs(session, &region), groups);
    let of = |vpc, group: Found<GroupFound>, elsewhere| {
        let by_subnets = !session.settings.subnets.is_empty();
        RegionFound {
            region: region.to_string(),
            vpc,
            by_subnets,
            gang_group: match &group {
                Found::Unknown(why) => Found::Unknown(why.clone()),
                Found::Nothing | Found::There(_) => Found::Nothing,
            },
            group,
            elsewhere,
            stands_in: None,
        }
    };
    let vpcs = match vpcs {
        Ok(vpcs) => vpcs,
        Err(why) => return vec![of(Found::Unknown(why.clone()), Found::Unknown(why), Vec::new())],
    };
    let named = |vpc: &String| Found::There(vpc.clone());
    let groups = match found(groups) {
        Found::There(answer) => answer.security_groups().to_vec(),
        Found::Nothing => Vec::new(),
        Found::Unknown(why) => {
            let first = vpcs.first().map_or(Found::Nothing, named);
            return vec![of(first, Found::Unknown(why), Vec::new())];
        }
    };
    let is_elsewhere = |group: &&SecurityGroup| {
        by == "group-name" && group.vpc_id().is_none_or(|vpc| !vpcs.contains(vpc))
    };
    let mut elsewhere: Vec<GroupFound> =
        groups.iter().filter(is_elsewhere).map(group_found).collect();
    if vpcs.is_empty() {
        return vec![of(Found::Nothing, Found::Nothing, elsewhere)];
    }
    let is_gangs = |group: &SecurityGroup| group.group_name() == Some(GANG_GROUP);
    let here = |vpc: &String, for_gangs: bool| {
        groups
            .iter()
            .find(|group| group.vpc_id() == Some(vpc) && is_gangs(group) == for_gangs)
            .map_or(Found::Nothing, |group| Found::There(group_found(group)))
    };
    // An id is one group of one network.
    let stands_in = |vpc: &String| {
        groups
            .iter()
            .filter(|_| by == "group-id")
            .find_map(|group| group.vpc_id().filter(|there| there != vpc))
    };
    let seen = |vpc| {
        let found = of(named(vpc), here(vpc, false), std::mem::take(&mut elsewhere));
        let stands_in = stands_in(vpc).map(str::to_owned);
        RegionFound { stands_in, gang_group: here(vpc, true), ..found }
    };
    vpcs.iter().map(seen).collect()
}

/// The networks of the user's subnets, else the default one.
async fn vpcs(session: &AwsSession, region: &Region) -> Result<BTreeSet<String>, String> {
    if !session.settings.subnets.is_empty() {
        let places = subnets::find(session, region).await.map_err(|error| chain(&error))?;
        return Ok(places.into_iter().map(|place| place.network).collect());
    }
    let told = session
        .ec2(region)
        .await
        .describe_vpcs()
        .filters(filter("is-default", ["true".to_owned()]))
        .send()
        .await;
    match found(told) {
        Found::There(answer) => {
            Ok(answer.vpcs().iter().filter_map(|vpc| vpc.vpc_id()).map(str::to_owned).collect())
        }
        Found::Nothing => Ok(BTreeSet::new()),
        Found::Unknown(why) => Err(why),
    }
}

fn group_found(group: &SecurityGroup) -> GroupFound {
    GroupFound {
        id: group.group_id().unwrap_or_default().to_owned(),
        owner: group
            .tags()
            .iter()
            .find(|tag| tag.key() == Some(OWNER_TAG))
            .and_then(Tag::value)
            .map(str::to_owned),
        rules_in: group.ip_permissions().len(),
    }
}

pub(crate) async fn create(
    session: &Arc<AwsSession>,
    names: &SetupNames,
    region: &str,
    vpc: &str,
) -> Result<(), SetupError> {
    make(session, names, region, vpc, (&names.group, "Machines of Lamplighter, without any way in"))
        .await
        .map(drop)
}

/// The group for gangs, opened to its own machines.
pub(crate) async fn create_for_gangs(
    session: &Arc<AwsSession>,
    names: &SetupNames,
    region: &str,
    vpc: &str,
) -> Result<(), SetupError> {
    let text = "Gangs of Lamplighter, whose machines reach each other";
    match make(session, names, region, vpc, (GANG_GROUP, text)).await? {
        Some(id) => open_to_itself(session, region, &id).await,
        // Another run has just made it, and opens it.
        None => Ok(()),
    }
}

/// Lets in all traffic of the machines of this group, and no other.
pub(crate) async fn open_to_itself(
    session: &Arc<AwsSession>,
    region: &str,
    id: &str,
) -> Result<(), SetupError> {
    let own = UserIdGroupPair::builder().group_id(id).build();
    let all = IpPermission::builder().ip_protocol("-1").user_id_group_pairs(own).build();
    let ec2 = session.ec2(&Region::new(region)).await;
    let call = ec2.authorize_security_group_ingress().group_id(id).ip_permissions(all);
    match call.send().await {
        Err(error) if error.code() == Some("InvalidPermission.Duplicate") => Ok(()),
        answer => answer.map(drop).map_err(|error| {
            SetupError::new(format!("open the group {id} to itself"), said(&error))
        }),
    }
}

/// The id of the new group. `None`: one of this name is there.
async fn make(
    session: &Arc<AwsSession>,
    names: &SetupNames,
    region: &str,
    vpc: &str,
    (name, text): (&str, &str),
) -> Result<Option<String>, SetupError> {
    let ec2 = session.ec2(&Region::new(region)).await;
    let tags = TagSpecification::builder()
        .resource_type(ResourceType::SecurityGroup)
        .tags(Tag::builder().key(OWNER_TAG).value(&names.owner).build())
        .build();
    let call = ec2.create_security_group().group_name(name).vpc_id(vpc).tag_specifications(tags);
    match call.description(text).send().await {
        Err(error) if error.code() == Some("InvalidGroup.Duplicate") => Ok(None),
        answer => answer
            .map(|made| made.group_id().map(str::to_owned))
            .map_err(|error| SetupError::new("create the security group", said(&error))),
    }
}

pub(crate) async fn delete(
    session: &Arc<AwsSession>,
    region: &str,
    id: &str,
) -> Result<(), SetupError> {
    match session.ec2(&Region::new(region)).await.delete_security_group().group_id(id).send().await
    {
        Err(error) if is_gone(&error) => Ok(()),
        answer => answer.map(|_| ()).map_err(|error| {
            SetupError::new(format!("delete the security group {id}"), said(&error))
        }),
    }
}

/// Machines with our owner tag that are not terminated.
pub(crate) struct Machines {
    /// Launches of `lamp`.
    pub alive: Vec<String>,
    /// The others, each with the reason why it is no launch.
    pub odd: Vec<String>,
    /// Regions that do not answer, each with the reason. A region that is off in the account has no
    /// machine, so this is no reason to stop.
    pub unasked: Vec<String>,
}

/// The machines of all regions: one where nothing is bought any more may still have a machine.
///
/// # Errors
/// If a region that we buy in does not answer.
pub(crate) async fn machines(
    session: &Arc<AwsSession>,
    names: &SetupNames,
) -> Result<Machines, SetupError> {
    let mut regions: BTreeSet<String> = names.regions.iter().cloned().collect();
    let mut unasked = Vec::new();
    match regions::regions(session).await {
        Ok(all) => regions.extend(all.iter().map(ToString::to_string)),
        Err(error) => {
            unasked.push(format!("every region but {} ({error})", names.regions.join(", ")))
        }
    }
    let (mut alive, mut odd) = (Vec::new(), Vec::new());
    for (region, found) in join_all(
        regions
            .iter()
            .map(|region| async move { (region, machines_in(session, names, region).await) }),
    )
    .await
    {
        match found {
            Ok((ours, others)) => {
                alive.extend(ours);
                odd.extend(others);
            }
            Err(why) if !names.regions.contains(region) => {
                unasked.push(format!("{region} ({why})"))
            }
            Err(why) => {
                return Err(SetupError::new(format!("see which machines run in {region}"), why));
            }
        }
    }
    Ok(Machines { alive, odd, unasked })
}

async fn machines_in(
    session: &Arc<AwsSession>,
    names: &SetupNames,
    region: &str,
) -> Result<(Vec<String>, Vec<String>), String> {
    let ec2 = session.ec2(&Region::new(region)).await;
    let mut pages = ec2
        .describe_instances()
        .filters(filter(&format!("tag:{OWNER_TAG}"), [names.owner.clone()]))
        .into_paginator()
        .items()
        .send();
    let (mut alive, mut odd) = (Vec::new(), Vec::new());
    while let Some(reservation) = pages.next().await {
        let reservation = reservation.map_err(|error| said(&error))?;
        let ends = |instance: &&aws_sdk_ec2::types::Instance| {
            instance.state().and_then(|state| state.name()) != Some(&InstanceStateName::Terminated)
        };
        for (id, instance) in reservation
            .instances()
            .iter()
            .filter(ends)
            .filter_map(|instance| Some((instance.instance_id()?, instance)))
        {
            match owned_by(&tag_map(instance), &names.owner) {
                Ok(_) => alive.push(id.to_owned()),
                Err(why) => odd.push(format!("{id} in {region} ({why})")),
            }
        }
    }
    Ok((alive, odd))
}
