//! Prepares a launch: image, network, role, disk, and what the machine does when it powers off.
//!
//! It reads `image`, `subnets`, the security group and the key pair at the same time, remembers
//! them for minutes, and makes a `LaunchRequest`. It changes nothing. A wrong setting is reported
//! here, before a machine is bought. Not here: a price, a choice between offers.

use aws_sdk_ec2::types::{IpPermission, SecurityGroup};
use futures::future::join_all;

use super::describe::filter;
use super::disk_key;
use super::errors::meaning;
use super::image as ec2_image;
use super::subnets;
use crate::account::lookup::one_network;
use crate::account::setup::GANG_GROUP;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::{
    DiskKey, LaunchImage, LaunchSecurityGroup, LaunchSubnet, TRUSTED,
};
use crate::job::{AlarmRule, LaunchRequest, MachineSpec, Refusal, Shutdown, Spec};
use crate::market::{Arch, Market, Offer, Region};
use crate::ports::CloudError;

/// The instance profile that `lamp init aws` creates.
const PROFILE: &str = "lamplighter-box";
const GROUP: &str = "lamplighter";

/// # Errors
/// If EC2 does not answer, or a resource is missing or unsuitable.
pub async fn prepare(
    session: &AwsSession,
    spec: &Spec,
    offer: &Offer,
) -> Result<LaunchRequest, CloudError> {
    let LaunchAnswers { image, subnets, groups, key, disk_key } =
        ask(session, &spec.machine, &offer.region, offer.arch).await;
    let image = image?;
    if let Some(disk_key) = disk_key {
        disk_key.check(&offer.region)?;
    }
    image.fits(offer)?;
    let key_name = key?;
    let subnet = subnets::choose(session, &subnets?, offer)?;
    // The user may create the group meanwhile, so the next look asks again.
    let group = group_of(session, &groups?, &subnet)
        .inspect_err(|_| session.memory.groups.forget(&offer.region))?;
    let mut security_groups = vec![group];
    if spec.gang.is_some() {
        security_groups.push(gang_group(session, &offer.region, &subnet.network).await?);
    }
    if spec.machine.disk_gib < image.disk_gib_min {
        let (has, needs) = (spec.machine.disk_gib, image.disk_gib_min);
        return Err(CloudError::Invalid {
            what: format!(
                "the image {} needs a disk of {needs} GiB, and `machine.disk` is {has}",
                image.name
            ),
        });
    }
    let settings = &session.settings;
    Ok(LaunchRequest {
        image: image.id,
        image_name: Some(image.name),
        root_device: image.root_device,
        disk_gib: spec.machine.disk_gib,
        profile: Some(settings.instance_profile.clone().unwrap_or_else(|| PROFILE.to_owned())),
        security_groups,
        subnet: Some(subnet.id),
        key_name,
        shutdown: shutdown(spec, offer),
        alarm: alarm(spec),
        user_data: String::new(),
    })
}

/// Why this offer can never be launched, from what is remembered: no subnet in its zone, or an
/// image for other machines. It sends no request.
pub fn known_unfit(session: &AwsSession, machine: &MachineSpec, offer: &Offer) -> Option<String> {
    let image = ec2_image::remembered(session, &machine.image, &offer.region, offer.arch);
    let by_image = image.and_then(|image| image.fits(offer).err());
    let by_subnet = || {
        subnets::choose(session, &session.memory.subnets.get(&offer.region, TRUSTED)?, offer).err()
    };
    match by_image.or_else(by_subnet)? {
        // A subnet without a free address has one again in minutes.
        CloudError::NoCapacity { what, refusal: Refusal::NotSold } => Some(what),
        _ => None,
    }
}

/// Asks for the launch's resources while offers are still being asked for, so that [`prepare`]
/// finds them remembered. `prepare` meets and reports the same errors. The architecture is not
/// known yet; most machines are x86-64.
pub async fn ahead(session: &AwsSession, machine: &MachineSpec) {
    let regions = session.regions(&machine.regions).await;
    join_all(regions.iter().map(|region| ask(session, machine, region, Arch::X86_64))).await;
}

/// The facts that a launch in a region needs.
struct LaunchAnswers {
    image: Result<LaunchImage, CloudError>,
    subnets: Result<Vec<LaunchSubnet>, CloudError>,
    groups: Result<Vec<LaunchSecurityGroup>, CloudError>,
    key: Result<Option<String>, CloudError>,
    disk_key: Option<DiskKey>,
}

/// Asks for all of them at the same time; each function remembers its answer.
async fn ask(
    session: &AwsSession,
    machine: &MachineSpec,
    region: &Region,
    arch: Arch,
) -> LaunchAnswers {
    let (image, subnets, groups, key, disk_key) = tokio::join!(
        ec2_image::find(session, &machine.image, region, arch),
        subnets::find(session, region),
        groups(session, region),
        key_pair(session, region),
        disk_key::find(session, region)
    );
    LaunchAnswers { image, subnets, groups, key, disk_key }
}

/// Whether the machine may keep its disk when it powers itself off. The controller terminates the
/// others.
fn shutdown(spec: &Spec, offer: &Offer) -> Shutdown {
    if spec.on.may_stop() && offer.market == Market::OnDemand {
        Shutdown::Stop
    } else {
        Shutdown::Terminate
    }
}

/// A machine gets an alarm only if it publishes metrics; otherwise the alarm would terminate it.
fn alarm(spec: &Spec) -> Option<AlarmRule> {
    match spec.watch.alarm {
        AlarmRule::Off => None,
        AlarmRule::Heartbeat { .. } if !spec.watch.metrics => None,
        rule => Some(rule.beside(spec.limits.lease)),
    }
}

fn group_name(session: &AwsSession) -> &str {
    session.settings.security_group.as_deref().unwrap_or(GROUP)
}

fn is_id(group: &str) -> bool {
    group.starts_with("sg-")
}

/// The groups of the name, one in each network, or the one of the id.
async fn groups(
    session: &AwsSession,
    region: &Region,
) -> Result<Vec<LaunchSecurityGroup>, CloudError> {
    if let Some(known) = session.memory.groups.get(region, TRUSTED) {
        return Ok(known);
    }
    let name = group_name(session);
    let wanted = filter(if is_id(name) { "group-id" } else { "group-name" }, [name.to_owned()]);
    let told = session.ec2(region).await.describe_security_groups().filters(wanted).send().await;
    let told =
        told.map_err(|error| meaning(&format!("look at the security groups in {region}"), error))?;
    let groups: Vec<LaunchSecurityGroup> =
        told.security_groups().iter().filter_map(group).collect();
    // A person repairs a missing or open group and tries again, so these are not remembered.
    if groups.iter().any(|group| !group.lets_in) {
        session.memory.groups.put(region.clone(), groups.clone());
    }
    Ok(groups)
}

fn group(group: &SecurityGroup) -> Option<LaunchSecurityGroup> {
    let lets_in = !group.ip_permissions().is_empty();
    Some(LaunchSecurityGroup {
        id: group.group_id()?.to_owned(),
        network: group.vpc_id()?.to_owned(),
        lets_in,
    })
}

fn group_of(
    session: &AwsSession,
    groups: &[LaunchSecurityGroup],
    subnet: &LaunchSubnet,
) -> Result<String, CloudError> {
    let name = group_name(session);
    let wrong = |what: String| Err(CloudError::Invalid { what });
    // `lamp init aws` does not create groups with the user's own names.
    let (anew, there) = match name {
        GROUP => {
            ("`lamp init aws` makes one without any open port", "`lamp init aws` makes one there")
        }
        _ => ("make one without any open port", "make one there"),
    };
    match groups.iter().find(|group| group.network == subnet.network) {
        None if groups.is_empty() => wrong(format!("there is no security group `{name}`; {anew}")),
        None if is_id(name) => {
            let (theirs, ours) = (&groups[0].network, &subnet.network);
            wrong(format!(
                "the security group `{name}` is in {theirs}, and {} lies in {ours}: {}",
                subnet.id,
                one_network(theirs, ours)
            ))
        }
        None => wrong(format!(
            "the security group `{name}` is not in {}, where {} lies; {there}",
            subnet.network, subnet.id
        )),
        Some(group) if group.lets_in => wrong(format!(
            "the security group `{name}` ({}) has inbound rules; machines need no open port: remove these rules",
            group.id
        )),
        Some(group) => Ok(group.id.clone()),
    }
}

/// The group that lets in the machines with the same group, and no other host.
async fn gang_group(
    session: &AwsSession,
    region: &Region,
    network: &str,
) -> Result<String, CloudError> {
    let wanted =
        [filter("group-name", [GANG_GROUP.to_owned()]), filter("vpc-id", [network.to_owned()])];
    let client = session.ec2(region).await;
    let told = client.describe_security_groups().set_filters(Some(wanted.into())).send().await;
    let told =
        told.map_err(|error| meaning(&format!("look at the security groups in {region}"), error))?;
    let wrong = |what: String| Err(CloudError::Invalid { what });
    let Some(group) = told.security_groups().first() else {
        return wrong(format!(
            "the ranks of a gang talk to each other, and there is no security group `{GANG_GROUP}` in {network} of {region}; \
             `lamp init aws --gangs` makes it"
        ));
    };
    let id = group.group_id().unwrap_or_default();
    match group.ip_permissions() {
        [] => wrong(format!(
            "the security group `{GANG_GROUP}` ({id}) does not let in its own machines; `lamp init aws --gangs`, or \
             `aws ec2 authorize-security-group-ingress --region {region} --group-id {id} --protocol -1 --source-group {id}` does that"
        )),
        rules if rules.iter().all(|rule| lets_in_only(rule, id)) => Ok(id.to_owned()),
        _ => wrong(format!(
            "the security group `{GANG_GROUP}` ({id}) must let in all traffic of its own machines, and no other host: mend its inbound rules"
        )),
    }
}

/// Whether a rule is for all traffic, and only from the machines of this group.
fn lets_in_only(rule: &IpPermission, group: &str) -> bool {
    let pairs = rule.user_id_group_pairs();
    rule.ip_protocol() == Some("-1")
        && rule.ip_ranges().is_empty()
        && rule.ipv6_ranges().is_empty()
        && rule.prefix_list_ids().is_empty()
        && !pairs.is_empty()
        && pairs.iter().all(|pair| pair.group_id() == Some(group))
}

/// The user's key pair, if one is named. EC2 keeps key pairs by region, and refuses a launch if the
/// pair is missing. Without the right to look, the launch is tried and EC2 decides.
async fn key_pair(session: &AwsSession, region: &Region) -> Result<Option<String>, CloudError> {
    let Some(name) = session.settings.key_name.clone() else { return Ok(None) };
    if session.memory.key_pairs.get(region, TRUSTED).is_some() {
        return Ok(Some(name));
    }
    let told = session
        .ec2(region)
        .await
        .describe_key_pairs()
        .filters(filter("key-name", [name.clone()]))
        .send()
        .await;
    let told =
        match told.map_err(|error| meaning(&format!("look at the key pairs in {region}"), error)) {
            Ok(told) => told,
            Err(CloudError::Denied { .. }) => return Ok(Some(name)),
            Err(error) => return Err(error),
        };
    // A filter would treat `*` and `?` as wildcards.
    if !told.key_pairs().iter().any(|pair| pair.key_name() == Some(name.as_str())) {
        let cure = format!(
            "`aws ec2 import-key-pair --region {region} --key-name {name} --public-key-material fileb://FILE` brings it there"
        );
        return Err(CloudError::Invalid {
            what: format!("the key pair `{name}` of `aws.key_name` is not in {region}; {cure}"),
        });
    }
    session.memory.key_pairs.put(region.clone(), ());
    Ok(Some(name))
}
