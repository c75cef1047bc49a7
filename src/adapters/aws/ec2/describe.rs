//! Our machines in a region: all pages, by owner tag; or the machines of one launch, by its token.
//!
//! DescribeInstances by tag becomes views, without the machines of other owners. For spot machines
//! that EC2 took, their spot requests tell why. Not here: a guess. An incomplete answer is an
//! error, and an error means unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_ec2::types::{Filter, Instance, InstanceLifecycleType, InstanceStateName};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::errors::{Ec2Error, meaning};
use crate::adapters::aws::session::AwsSession;
use crate::instance::{
    InstanceState, InstanceView, MachineRef, OWNER_TAG, Tags, owned_by, tags_of_rank,
};
use crate::job::Plan;
use crate::market::{CloudKind, Market, Region};
use crate::ports::CloudError;

/// The largest page of EC2.
const PAGE: i32 = 1000;

/// The most values that EC2 takes in one filter.
pub const VALUES_MAX: usize = 200;

/// An EC2 reason that says only that spot took the machine; its request says more.
const TAKEN: &str = "Server.Spot";

/// The final prefix of a request's status after its machine has ended.
const ENDED: &str = "instance-terminated";

/// All machines of this owner.
///
/// # Errors
/// If EC2 does not answer: the state is unknown then.
pub async fn describe(
    session: &AwsSession,
    owner: &str,
    region: &Region,
) -> Result<Vec<InstanceView>, CloudError> {
    let instances = all(session, region, [owned(owner)]).await?;
    let mut views: Vec<InstanceView> =
        instances.iter().filter_map(|instance| ours(session, region, instance, owner)).collect();
    views.iter().for_each(|view| session.memory.owners.put(view.machine(), owner.to_owned()));
    tell_spot_ends(session, region, &instances, &mut views).await;
    Ok(views)
}

/// The machines of one launch, with the tags of their plan, whatever tags they carry. If the
/// launch is of several machines, only the one with the plan's rank.
///
/// # Errors
/// If EC2 does not answer: the state is unknown then.
pub async fn by_token(session: &AwsSession, plan: &Plan) -> Result<Vec<InstanceView>, CloudError> {
    let region = &plan.offer.region;
    let instances =
        all(session, region, [filter("client-token", [plan.client_token.clone()])]).await?;
    // Without these tags its machine would seem to be missing.
    let tags = Tags::from_map(&plan.tags)
        .map_err(|error| Ec2Error::ambiguous("read the tags of the plan", &error.to_string()))?;
    let instances: Vec<Instance> =
        instances.into_iter().filter(|instance| is_of(plan, instance)).collect();
    let launched =
        |instance: &Instance| view(region, instance, instance.instance_id()?, tags.clone());
    let mut views: Vec<InstanceView> = instances.iter().filter_map(launched).collect();
    tell_spot_ends(session, region, &instances, &mut views).await;
    Ok(views)
}

/// Machines with a failing *system* status check, which tests the host. The instance check is less
/// useful than a heartbeat: it also fails for a working machine without a network.
///
/// # Errors
/// If EC2 does not answer: the state is unknown then.
pub async fn failing_hosts(
    session: &AwsSession,
    region: &Region,
) -> Result<BTreeSet<String>, CloudError> {
    let fails = filter("system-status.status", ["impaired".to_owned()]);
    let mut pages = session
        .ec2(region)
        .await
        .describe_instance_status()
        .filters(fails)
        .max_results(PAGE)
        .into_paginator()
        .send();
    let mut failing = BTreeSet::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| meaning("read the checks of hosts", error))?;
        failing.extend(
            page.instance_statuses
                .unwrap_or_default()
                .into_iter()
                .filter_map(|status| status.instance_id),
        );
    }
    Ok(failing)
}

/// The filter for this owner's tag. In EC2's filters `*` and `?` are wildcards, so an owner with
/// such a letter would see the machines of others.
pub fn owned(owner: &str) -> Filter {
    let literal = owner.replace('\\', r"\\").replace('*', r"\*").replace('?', r"\?");
    filter(&format!("tag:{OWNER_TAG}"), [literal])
}

pub fn filter(name: &str, values: impl IntoIterator<Item = String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().collect())).build()
}

/// All pages, or an error: with half an answer, machines would seem to be missing.
///
/// # Errors
/// As `ec2::errors` reads them.
pub async fn all(
    session: &AwsSession,
    region: &Region,
    filters: impl IntoIterator<Item = Filter>,
) -> Result<Vec<Instance>, CloudError> {
    let filters = Some(filters.into_iter().collect());
    let client = session.ec2(region).await;
    let mut pages =
        client.describe_instances().set_filters(filters).max_results(PAGE).into_paginator().send();
    let mut instances = Vec::new();
    while let Some(page) = pages.next().await {
        let page =
            page.map_err(|error| meaning(&format!("look at the machines in {region}"), error))?;
        instances.extend(
            page.reservations
                .unwrap_or_default()
                .into_iter()
                .flat_map(|one| one.instances.unwrap_or_default()),
        );
    }
    Ok(instances)
}

/// One machine by its id; `None`: EC2 does not show it.
///
/// # Errors
/// As `ec2::errors` reads them.
pub async fn one(
    session: &AwsSession,
    region: &Region,
    id: &str,
) -> Result<Option<Instance>, CloudError> {
    // A filter, because an unknown id would be an error.
    Ok(all(session, region, [filter("instance-id", [id.to_owned()])]).await?.into_iter().next())
}

/// A machine with all of our tags; others are never touched.
fn ours(
    session: &AwsSession,
    region: &Region,
    instance: &Instance,
    owner: &str,
) -> Option<InstanceView> {
    let id = instance.instance_id()?;
    match owned_by(&tag_map(instance), owner) {
        Ok(tags) => view(region, instance, id, tags),
        Err(error) => {
            let machine =
                MachineRef { cloud: CloudKind::Aws, region: region.clone(), id: id.to_owned() };
            // Only a person can deal with this machine now, so it is reported once.
            if session.memory.odd.get(&machine, Duration::MAX).is_none() {
                let list = if state(instance).is_some_and(|state| state.bills()) {
                    "; `lamp sweep --foreign` lists it"
                } else {
                    ""
                };
                tracing::warn!(
                    "{machine} is left alone: it has our owner tag, and Lamplighter did not launch it or its tags were changed ({error}){list}"
                );
                session.memory.odd.put(machine, ());
            }
            None
        }
    }
}

/// Whether a machine of the plan's launch belongs to this plan.
pub fn is_of(plan: &Plan, instance: &Instance) -> bool {
    plan.gang.as_ref().is_none_or(|gang| launch_index(instance) == gang.rank)
}

/// The place of a machine in its launch, from 0.
fn launch_index(instance: &Instance) -> u32 {
    instance.ami_launch_index().and_then(|index| u32::try_from(index).ok()).unwrap_or_default()
}

/// The tags of a machine, with the job of its rank.
pub fn tag_map(instance: &Instance) -> BTreeMap<String, String> {
    let tags = instance
        .tags()
        .iter()
        .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value()?.to_owned())))
        .collect();
    tags_of_rank(tags, launch_index(instance))
}

fn view(region: &Region, instance: &Instance, id: &str, tags: Tags) -> Option<InstanceView> {
    let state = state(instance)?;
    let spot = instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot);
    Some(InstanceView {
        id: id.to_owned(),
        cloud: CloudKind::Aws,
        region: region.clone(),
        instance_type: instance
            .instance_type()
            .map(|kind| kind.as_str().to_owned())
            .unwrap_or_default(),
        market: if spot { Market::Spot } else { Market::OnDemand },
        state,
        tags,
        client_token: instance.client_token().map(str::to_owned).filter(|token| !token.is_empty()),
        launched: instance.launch_time().and_then(|time| Timestamp::new(time.secs(), 0).ok())?,
        ended: if state.bills() { None } else { transition(instance) },
        state_reason: instance.state_reason().and_then(|reason| reason.code()).map(str::to_owned),
    })
}

pub fn state(instance: &Instance) -> Option<InstanceState> {
    Some(match instance.state()?.name()? {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Running => InstanceState::Running,
        InstanceStateName::Stopping => InstanceState::Stopping,
        InstanceStateName::Stopped => InstanceState::Stopped,
        InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        InstanceStateName::Terminated => InstanceState::Terminated,
        _ => return None,
    })
}

/// When its state last changed, from `User initiated (2026-11-21 00:00:00 GMT)`.
pub fn transition(instance: &Instance) -> Option<Timestamp> {
    moment(instance.state_transition_reason()?)
}

fn moment(reason: &str) -> Option<Timestamp> {
    let (_, rest) = reason.rsplit_once('(')?;
    let text = rest.strip_suffix(')')?.strip_suffix(" GMT")?;
    let time = DateTime::strptime("%Y-%m-%d %H:%M:%S", text).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// A spot machine's request tells whether price or capacity took it. It is asked once; if it does
/// not answer, EC2's own reason stays.
async fn tell_spot_ends(
    session: &AwsSession,
    region: &Region,
    instances: &[Instance],
    views: &mut [InstanceView],
) {
    let taken = |view: &InstanceView| {
        !view.state.bills()
            && view.state_reason.as_deref().is_some_and(|reason| reason.starts_with(TAKEN))
    };
    let ids: BTreeSet<&str> =
        views.iter().filter(|view| taken(view)).map(|view| view.id.as_str()).collect();
    let request_of = |instance: &Instance| {
        let id = instance.instance_id().filter(|id| ids.contains(id))?;
        Some((id.to_owned(), instance.spot_instance_request_id()?.to_owned()))
    };
    let wanted: BTreeMap<String, String> = if ids.is_empty() {
        BTreeMap::new()
    } else {
        instances.iter().filter_map(request_of).collect()
    };
    let known = &session.memory.spot_ends;
    let unknown: Vec<String> = wanted
        .values()
        .filter(|request| known.get(request, Duration::MAX).is_none())
        .cloned()
        .collect();
    for some in unknown.chunks(VALUES_MAX) {
        match spot_statuses(session, region, some).await {
            Ok(statuses) => {
                statuses.into_iter().for_each(|(request, status)| known.put(request, status))
            }
            Err(error) => tracing::debug!(%region, "why spot machines ended is not known: {error}"),
        }
    }
    for view in views {
        let status = wanted.get(&view.id).and_then(|request| known.get(request, Duration::MAX));
        if let (Some(reason), Some(status)) = (&mut view.state_reason, status) {
            *reason = format!("{reason}: {status}");
        }
    }
}

async fn spot_statuses(
    session: &AwsSession,
    region: &Region,
    requests: &[String],
) -> Result<Vec<(String, String)>, CloudError> {
    let client = session.ec2(region).await;
    let asked = client
        .describe_spot_instance_requests()
        .filters(filter("spot-instance-request-id", requests.to_vec()));
    let told = asked
        .send()
        .await
        .map_err(|error| CloudError::from(Ec2Error::of("look at spot requests", error)))?;
    let status = |request: &aws_sdk_ec2::types::SpotInstanceRequest| {
        let status = request.status()?.code().filter(|status| status.starts_with(ENDED))?;
        Some((request.spot_instance_request_id()?.to_owned(), status.to_owned()))
    };
    Ok(told.spot_instance_requests().iter().filter_map(status).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_of_a_change_is_read_where_there_is_one() {
        assert_eq!(
            moment("User initiated (2026-11-21 00:00:07 GMT)"),
            Some("2026-11-21T00:00:07Z".parse().unwrap())
        );
        assert_eq!(moment("User initiated"), None);
        assert_eq!(moment("Server.SpotInstanceTermination: (soon)"), None);
        assert_eq!(moment(""), None);
    }
}
