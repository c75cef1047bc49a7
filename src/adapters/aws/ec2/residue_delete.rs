//! Removes one piece of residue, and checks right before that it has the owner's tag and is unused.
//!
//! It must be in a list of the last hour. Its tag is then read again. Another owner's is refused.
//! One in use is refused too: EC2 protects a disk, and a request is checked by its machine. One
//! that is gone counts as removed. Not here: a removal of anything that is missing in such a list.

use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use super::alarm;
use super::describe::{self, filter, state};
use super::errors::{Ec2Error, meaning};
use super::residue::{ADDRESS, ALARM, INTERFACE, SPOT_REQUEST, VOLUME, is_open};
use crate::account::Residue;
use crate::adapters::aws::session::AwsSession;
use crate::instance::{InstanceState, OWNER_TAG};
use crate::ports::CloudError;

/// A list that is older than this is outdated, and must be made again.
const FOUND_WITHIN: Duration = Duration::from_secs(3600);

type Ec2SdkError<E> = SdkError<E, HttpResponse>;

/// # Errors
/// If it belongs to another owner or is in use, or EC2 does not answer. Success if it is gone.
pub async fn clear(session: &AwsSession, residue: &Residue) -> Result<(), CloudError> {
    let act = format!("remove the {} {}", residue.kind, residue.id);
    let Some(owner) =
        session.memory.residue.get(&residue.id, FOUND_WITHIN).filter(|_| residue.ours)
    else {
        return Err(not_ours(&act));
    };
    match residue.kind.as_str() {
        ALARM => alarm(session, residue, &owner, &act).await,
        SPOT_REQUEST => request(session, residue, &owner, &act).await,
        _ => tagged(session, residue, &owner, &act).await,
    }
}

fn not_ours(act: &str) -> CloudError {
    CloudError::Denied {
        act: act.to_owned(),
        cause: format!("it was not found by the tag `{OWNER_TAG}`, or carries another now").into(),
    }
}

async fn alarm(
    session: &AwsSession,
    residue: &Residue,
    owner: &str,
    act: &str,
) -> Result<(), CloudError> {
    let (region, name) = (&residue.region, residue.id.as_str());
    let there = alarm::alarms(session, region, name).await?;
    let Some(alarm) = there.iter().find(|alarm| alarm.name == name) else { return Ok(()) };
    match alarm::is_of(session, region, alarm, owner).await? {
        Some(true) => alarm::delete(session, region, &[name.to_owned()]).await,
        Some(false) => Err(not_ours(act)),
        None => Ok(()),
    }
}

/// EC2 cancels a request even if it has launched a machine, and shows the new machine minutes
/// later. So a machine that is not shown yet counts as running.
async fn request(
    session: &AwsSession,
    residue: &Residue,
    owner: &str,
    act: &str,
) -> Result<(), CloudError> {
    let (client, id) = (session.ec2(&residue.region).await, residue.id.as_str());
    let shown =
        match client.describe_spot_instance_requests().spot_instance_request_ids(id).send().await {
            Err(error) if is_unknown(&error) => return Ok(()),
            told => told.map_err(|error| meaning(act, error))?,
        };
    let Some(request) = shown.spot_instance_requests().first().filter(|request| is_open(request))
    else {
        return Ok(());
    };
    if !request.tags().iter().any(|tag| tag.key() == Some(OWNER_TAG) && tag.value() == Some(owner))
    {
        return Err(not_ours(act));
    }
    if let Some(machine) = request.instance_id() {
        match describe::one(session, &residue.region, machine).await?.as_ref().and_then(state) {
            Some(InstanceState::Terminated) => {}
            Some(_) => {
                return Err(CloudError::Invalid {
                    what: format!("cannot {act}: its machine {machine} has not ended"),
                });
            }
            None => {
                return Err(Ec2Error::ambiguous(
                    act,
                    &format!("EC2 does not show its machine {machine} now, which may be a new one"),
                ));
            }
        }
    }
    done(act, client.cancel_spot_instance_requests().spot_instance_request_ids(id).send().await)
}

/// Removes a resource whose tags EC2 lists by its id.
async fn tagged(
    session: &AwsSession,
    residue: &Residue,
    owner: &str,
    act: &str,
) -> Result<(), CloudError> {
    let (client, id) = (session.ec2(&residue.region).await, residue.id.as_str());
    let tags = client
        .describe_tags()
        .filters(filter("resource-id", [id.to_owned()]))
        .filters(filter("key", [OWNER_TAG.to_owned()]))
        .send()
        .await;
    let tags = tags.map_err(|error| meaning(act, error))?;
    if !tags.tags().iter().any(|tag| tag.value() == Some(owner)) {
        // A resource that is gone has no tags either.
        let gone = tags.tags().is_empty() && is_gone(&client, residue, act).await?;
        return if gone { Ok(()) } else { Err(not_ours(act)) };
    }
    match residue.kind.as_str() {
        // EC2 refuses to delete a disk in use.
        VOLUME => done(act, client.delete_volume().volume_id(id).send().await),
        ADDRESS => done(act, client.release_address().allocation_id(id).send().await),
        INTERFACE => {
            done(act, client.delete_network_interface().network_interface_id(id).send().await)
        }
        other => Err(CloudError::Invalid {
            what: format!("cannot {act}: `lamp` cannot remove a {other}"),
        }),
    }
}

/// EC2's codes for an unknown id; each kind of resource has its own. Each call here names one.
const UNKNOWN: [&str; 4] = [
    "InvalidVolume.NotFound",
    "InvalidAllocationID.NotFound",
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidSpotInstanceRequestID.NotFound",
];

fn is_unknown(error: &impl ProvideErrorMetadata) -> bool {
    error.code().is_some_and(|code| UNKNOWN.contains(&code))
}

/// A resource that is gone counts as removed: another sweep was faster, or the answer of our first
/// call was lost.
fn done<T, E>(act: &str, told: Result<T, Ec2SdkError<E>>) -> Result<(), CloudError>
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    none(act, told, |_| 0).map(drop)
}

/// Whether EC2 shows no resource of this id.
fn none<T, E>(
    act: &str,
    told: Result<T, Ec2SdkError<E>>,
    shown: impl Fn(&T) -> usize,
) -> Result<bool, CloudError>
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    match told {
        Err(error) if is_unknown(&error) => Ok(true),
        told => told.map(|told| shown(&told) == 0).map_err(|error| meaning(act, error)),
    }
}

async fn is_gone(client: &Client, residue: &Residue, act: &str) -> Result<bool, CloudError> {
    let id = residue.id.as_str();
    match residue.kind.as_str() {
        VOLUME => none(act, client.describe_volumes().volume_ids(id).send().await, |told| {
            told.volumes().len()
        }),
        ADDRESS => none(act, client.describe_addresses().allocation_ids(id).send().await, |told| {
            told.addresses().len()
        }),
        INTERFACE => none(
            act,
            client.describe_network_interfaces().network_interface_ids(id).send().await,
            |told| told.network_interfaces().len(),
        ),
        _ => Ok(false),
    }
}
