//! The security group of the machines, the network that it stands in, and the machines that still run.

use std::sync::Arc;

use aws_sdk_ec2::types::{Filter, InstanceStateName, ResourceType, Tag, TagSpecification};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures::future::join_all;

use super::aws_said::{found, is_gone, said};
use super::aws_session::AwsSession;
use super::aws_setup::SetupError;
use super::ec2_describe::tag_map;
use crate::instance::setup::{Found, GroupFound, RegionFound, SetupNames};
use crate::instance::{OWNER_TAG, owned_by};
use crate::market::Region;

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

pub(super) async fn regions(session: &Arc<AwsSession>, names: &SetupNames) -> Vec<RegionFound> {
    join_all(names.regions.iter().map(|region| look(session, &names.group, region))).await
}

pub(super) async fn look(session: &Arc<AwsSession>, name: &str, region: &str) -> RegionFound {
    let ec2 = session.ec2(&Region::new(region)).await;
    let vpcs = ec2.describe_vpcs().filters(filter("is-default", "true")).send();
    // All of the name, whatever network they stand in: the filter by network would need the answer to the first question.
    let by = if name.starts_with("sg-") { "group-id" } else { "group-name" };
    let groups = ec2.describe_security_groups().filters(filter(by, name)).send();
    let (vpcs, groups) = tokio::join!(vpcs, groups);
    let default_vpc = match found(vpcs) {
        Found::There(answer) => answer.vpcs().first().and_then(|vpc| vpc.vpc_id()).map_or(Found::Nothing, |id| Found::There(id.to_owned())),
        Found::Nothing => Found::Nothing,
        Found::Unknown(why) => Found::Unknown(why),
    };
    let group = match found(groups) {
        Found::There(answer) => {
            let vpc = default_vpc.there().map(String::as_str);
            let here = answer.security_groups().iter().find(|group| by == "group-id" || group.vpc_id() == vpc);
            here.map_or(Found::Nothing, |group| {
                Found::There(GroupFound {
                    id: group.group_id().unwrap_or_default().to_owned(),
                    owner: group.tags().iter().find(|tag| tag.key() == Some(OWNER_TAG)).and_then(Tag::value).map(str::to_owned),
                    rules_in: group.ip_permissions().len(),
                })
            })
        }
        Found::Nothing => Found::Nothing,
        Found::Unknown(why) => Found::Unknown(why),
    };
    RegionFound { region: region.to_owned(), default_vpc, group }
}

pub(super) async fn create(session: &Arc<AwsSession>, names: &SetupNames, region: &str, vpc: &str) -> Result<(), SetupError> {
    let ec2 = session.ec2(&Region::new(region)).await;
    let tags = TagSpecification::builder()
        .resource_type(ResourceType::SecurityGroup)
        .tags(Tag::builder().key(OWNER_TAG).value(&names.owner).build())
        .build();
    let call = ec2.create_security_group().group_name(&names.group).vpc_id(vpc).tag_specifications(tags);
    match call.description("Machines of Lamplighter, without any way in").send().await {
        Err(error) if error.code() == Some("InvalidGroup.Duplicate") => Ok(()),
        answer => answer.map(|_| ()).map_err(|error| SetupError::new("create the security group", said(&error))),
    }
}

pub(super) async fn delete(session: &Arc<AwsSession>, region: &str, id: &str) -> Result<(), SetupError> {
    match session.ec2(&Region::new(region)).await.delete_security_group().group_id(id).send().await {
        Err(error) if is_gone(&error) => Ok(()),
        answer => answer.map(|_| ()).map_err(|error| SetupError::new(format!("delete the security group {id}"), said(&error))),
    }
}

/// Machines with our owner tag that are not terminated, in all regions that we buy in: those of our launches, and the others,
/// each with why it is none.
pub(super) async fn machines(session: &Arc<AwsSession>, names: &SetupNames) -> Result<(Vec<String>, Vec<String>), SetupError> {
    let each = names.regions.iter().map(|region| async move {
        let ec2 = session.ec2(&Region::new(region.as_str())).await;
        let mut pages = ec2.describe_instances().filters(filter(&format!("tag:{OWNER_TAG}"), &names.owner)).into_paginator().items().send();
        let (mut alive, mut odd) = (Vec::new(), Vec::new());
        while let Some(reservation) = pages.next().await {
            let reservation = reservation.map_err(|error| SetupError::new(format!("see which machines run in {region}"), said(&error)))?;
            let ends =
                |instance: &&aws_sdk_ec2::types::Instance| instance.state().and_then(|state| state.name()) != Some(&InstanceStateName::Terminated);
            for (id, instance) in reservation.instances().iter().filter(ends).filter_map(|instance| Some((instance.instance_id()?, instance))) {
                match owned_by(&tag_map(instance), &names.owner) {
                    Ok(_) => alive.push(id.to_owned()),
                    Err(why) => odd.push(format!("{id} in {region} ({why})")),
                }
            }
        }
        Ok((alive, odd))
    });
    let all = join_all(each).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (alive, odd): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    Ok((alive.concat(), odd.concat()))
}
