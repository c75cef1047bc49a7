//! One RunInstances call, made from the plan alone: for one machine, or for all ranks of a gang.
//!
//! The answer is an id or a refusal (`ec2::errors`). Without an answer, or if the token was used
//! before, the machine of the token is looked up.
//!
//! The same plan gives the same request, byte for byte: it uses no clock, setting or random number.
//! The SDK retries nothing here: the controller repeats the call, and can look at the result
//! meanwhile. Not here: a choice.

use std::time::Duration;

use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::operation::run_instances::RunInstancesOutput;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    BlockDeviceMapping, CapacityReservationPreference, CapacityReservationSpecification,
    CreditSpecificationRequest, EbsBlockDevice, HttpTokensState, IamInstanceProfileSpecification,
    InstanceInterruptionBehavior, InstanceMarketOptionsRequest, InstanceMetadataEndpointState,
    InstanceMetadataOptionsRequest, InstanceMetadataTagsState, MarketType, Placement, ResourceType,
    ShutdownBehavior, SpotInstanceType, SpotMarketOptions, Tag, TagSpecification, VolumeType,
};

use super::describe;
use super::errors::{Class, Ec2Error, RefusedCall};
use super::subnets;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::host::system_clock::SystemClock;
use crate::instance::tags_of_launch;
use crate::job::{GangLaunch, LaunchRequest, Plan, Refusal, Shutdown};
use crate::market::{Market, UsdPerHour};
use crate::ports::{Clock, CloudError};

/// IAM tells EC2 about a new instance profile within seconds. If this is shorter, the first launch
/// after `lamp init aws` fails. If it is longer, a misspelled name is reported late.
const PROFILE_KNOWN_WITHIN: Duration = Duration::from_secs(120);

/// EC2 keeps a client token for at least a day. With an older one, the same call might buy a second
/// gang. Much shorter leaves a rank without an answer.
const TOKEN_LIVES: Duration = Duration::from_secs(20 * 3600);

const ACT: &str = "launch a machine";

/// # Errors
/// As `ec2::errors` reads them.
pub async fn launch(session: &AwsSession, plan: &Plan) -> Result<String, CloudError> {
    if plan.gang.as_ref().is_some_and(|gang| gang.rank > 0) {
        return launched_by_rank_0(session, plan).await;
    }
    let client = session.ec2(&plan.offer.region).await;
    let trouble = match send(request(&client, plan)?).await {
        Ok(made) => return made_id(&made, plan),
        Err(trouble) => trouble,
    };
    match trouble.class {
        // The token tells whether it was carried out. If EC2 does not show the machine yet, the
        // same call finds it later.
        Class::Ambiguous | Class::Mismatch | Class::Spent => adopt(session, plan, trouble).await,
        Class::SubnetFull => Err(CloudError::NoCapacity {
            refusal: subnets::full(session, plan).await,
            what: trouble.words(),
        }),
        Class::ProfileUnknown
            if SystemClock.now().duration_since(plan.created)
                > PROFILE_KNOWN_WITHIN.try_into().expect("two minutes fit") =>
        {
            let profile =
                plan.launch.as_ref().and_then(|launch| launch.profile.as_deref()).unwrap_or("none");
            Err(CloudError::Invalid {
                what: format!(
                    "{trouble}; the instance profile is `{profile}`, and `lamp init aws` makes one"
                ),
            })
        }
        _ => Err(trouble.into()),
    }
}

/// Asks whether this launch would be allowed, and launches nothing.
///
/// # Errors
/// The reason why not, as `ec2::errors` reads it.
pub async fn permitted(session: &AwsSession, plan: &Plan) -> Result<(), CloudError> {
    let client = session.ec2(&plan.offer.region).await;
    // Without the token: EC2 must not take a dry run for the launch.
    let rehearsal = request(&client, plan)?.dry_run(true).set_client_token(None);
    match send(rehearsal).await {
        Err(trouble) if trouble.is(Class::WouldWork) => Ok(()),
        // A missing permission does not become a search for another offer.
        Err(trouble) if trouble.is(Class::NoSpotRole) => Err(CloudError::Denied {
            act: ACT.to_owned(),
            cause: CloudError::from(trouble).to_string().into(),
        }),
        Err(trouble) => Err(trouble.into()),
        // EC2 never answers a dry run with success, but an emulator may.
        Ok(_) => Ok(()),
    }
}

async fn send(request: RunInstancesFluentBuilder) -> Result<RunInstancesOutput, Ec2Error> {
    let once = aws_sdk_ec2::config::Builder::new().retry_config(RetryConfig::disabled());
    request
        .customize()
        .config_override(once)
        .send()
        .await
        .map_err(|error| Ec2Error::of(ACT, error).on(RefusedCall::Launch))
}

/// The machine of this rank. Its plan never buys: a second purchase could be a second gang.
async fn launched_by_rank_0(session: &AwsSession, plan: &Plan) -> Result<String, CloudError> {
    let found = describe::by_token(session, plan).await?;
    if let Some(machine) = found.first() {
        return Ok(machine.id.clone());
    }
    let age = SystemClock.now().duration_since(plan.created);
    let may_ask = age < TOKEN_LIVES.try_into().expect("some hours fit");
    let leaders = leaders(plan).filter(|leaders| may_ask && !is_all_or_none(leaders));
    let Some(leaders) = leaders else { return Err(not_shown()) };
    // Once the machine of rank 0 is shown, the same call buys nothing. Its answer names all
    // machines of the launch, and DescribeInstances may still lack some.
    if describe::by_token(session, &leaders).await?.is_empty() {
        return Err(not_shown());
    }
    let client = session.ec2(&plan.offer.region).await;
    let made = match send(request(&client, &leaders)?).await {
        Ok(made) if !made.instances().is_empty() => made,
        Ok(_) => return Err(not_shown()),
        Err(trouble) if trouble.is(Class::Spent) => return Err(not_shown()),
        Err(trouble) => return Err(trouble.into()),
    };
    made_id(&made, plan).map_err(|_| {
        let (had, ranks) = (made.instances().len(), leaders.machines());
        CloudError::NoCapacity {
            refusal: Refusal::Capacity,
            what: format!("EC2 had machines for {had} of {ranks} ranks"),
        }
    })
}

fn not_shown() -> CloudError {
    Ec2Error::ambiguous(ACT, "the launch of rank 0 does not show the machine of this rank yet")
}

fn is_all_or_none(plan: &Plan) -> bool {
    plan.gang.as_ref().is_none_or(|gang| gang.at_least() == gang.ranks)
}

/// The plan of rank 0, as far as it makes the request of the launch.
fn leaders(plan: &Plan) -> Option<Plan> {
    let gang = plan.gang.as_ref()?;
    Some(Plan {
        job: gang.leader.clone(),
        tags: tags_of_launch(plan.tags.clone(), &gang.leader, gang.ranks),
        gang: Some(GangLaunch { rank: 0, ..gang.clone() }),
        ..plan.clone()
    })
}

/// EC2 does not list the machines of a launch in their order.
fn made_id(made: &RunInstancesOutput, plan: &Plan) -> Result<String, CloudError> {
    let instance = made.instances().iter().find(|instance| describe::is_of(plan, instance));
    let id = instance.and_then(|instance| instance.instance_id());
    id.map(str::to_owned).ok_or_else(|| Ec2Error::ambiguous(ACT, "the answer names no machine"))
}

/// The machine of the token if EC2 shows it; otherwise the error.
async fn adopt(session: &AwsSession, plan: &Plan, trouble: Ec2Error) -> Result<String, CloudError> {
    let found = describe::by_token(session, plan).await;
    match found.as_deref().map(<[_]>::first) {
        Ok(Some(machine)) if trouble.is(Class::Mismatch) => Err(CloudError::Mismatch {
            machine: Some(machine.id.clone()),
            what: format!("{trouble}"),
        }),
        Ok(Some(machine)) => Ok(machine.id.clone()),
        // A machine may exist that EC2 does not show yet.
        Ok(None) | Err(_) => Err(trouble.into()),
    }
}

/// The CPU credits of a burstable machine. By default T3, T3a and T4g run as `unlimited`, which
/// bills more use at $0.05 per vCPU hour: many times the price of a small machine, and in no plan
/// (EC2 user guide, "Unlimited mode for burstable performance instances"). A `standard` machine is
/// slower and costs the planned price.
fn credits(instance_type: &str) -> Option<CreditSpecificationRequest> {
    let family = instance_type.split('.').next().unwrap_or_default();
    ["t2", "t3", "t3a", "t4g"]
        .contains(&family)
        .then(|| CreditSpecificationRequest::builder().cpu_credits("standard").build())
}

/// An open reservation takes in each matching on-demand machine, unless the launch refuses it. The
/// account pays for it to have room for other work (EC2 user guide, "Capacity Reservations"). Spot
/// machines never use one.
fn reservation(spot: bool) -> Option<CapacityReservationSpecification> {
    let none = CapacityReservationSpecification::builder()
        .capacity_reservation_preference(CapacityReservationPreference::None);
    (!spot).then(|| none.build())
}

/// The complete request.
///
/// # Errors
/// If the plan was made for another cloud.
fn request(
    client: &aws_sdk_ec2::Client,
    plan: &Plan,
) -> Result<RunInstancesFluentBuilder, CloudError> {
    let Some(launch) = &plan.launch else {
        return Err(CloudError::Invalid {
            what: format!(
                "the plan of attempt {} does not say what to launch",
                plan.attempt.number()
            ),
        });
    };
    let spot = plan.offer.market == Market::Spot;
    // EC2 launches as many as it has up to the second number, and none below the first.
    let count = |machines: u32| i32::try_from(machines).unwrap_or(i32::MAX);
    let least = plan.gang.as_ref().map_or(1, GangLaunch::at_least);
    let mut request = client
        .run_instances()
        .client_token(&plan.client_token)
        .min_count(count(least))
        .max_count(count(plan.machines()))
        .image_id(&launch.image)
        .instance_type(plan.offer.instance_type.as_str().into())
        .set_security_group_ids(
            (!launch.security_groups.is_empty()).then(|| launch.security_groups.clone()),
        )
        .set_key_name(launch.key_name.clone())
        .set_iam_instance_profile(launch.profile.as_deref().map(profile))
        .user_data(aws_smithy_types::base64::encode(&launch.user_data))
        .block_device_mappings(root(launch))
        .metadata_options(metadata())
        .set_capacity_reservation_specification(reservation(spot))
        .set_credit_specification(credits(plan.offer.instance_type.as_str()))
        // A one-time spot machine can only be terminated.
        .instance_initiated_shutdown_behavior(if spot || launch.shutdown == Shutdown::Terminate {
            ShutdownBehavior::Terminate
        } else {
            ShutdownBehavior::Stop
        })
        .set_tag_specifications(Some(tags(plan)));
    // A subnet implies its zone. With the zone too, the token would count in that zone only.
    request = match &launch.subnet {
        Some(subnet) => request.subnet_id(subnet),
        None => request
            .placement(Placement::builder().availability_zone(plan.offer.zone.as_str()).build()),
    };
    Ok(if spot { request.instance_market_options(spot_options(plan.bid)) } else { request })
}

fn profile(named: &str) -> IamInstanceProfileSpecification {
    let profile = IamInstanceProfileSpecification::builder();
    if named.starts_with("arn:") { profile.arn(named).build() } else { profile.name(named).build() }
}

fn root(launch: &LaunchRequest) -> BlockDeviceMapping {
    let disk = EbsBlockDevice::builder()
        .volume_size(i32::try_from(launch.disk_gib).unwrap_or(i32::MAX))
        .volume_type(VolumeType::Gp3)
        .encrypted(true)
        .delete_on_termination(true)
        .build();
    BlockDeviceMapping::builder().device_name(&launch.root_device).ebs(disk).build()
}

/// Version 2 only, for the machine itself only (one hop excludes its containers), with the tags
/// that the agent reads.
fn metadata() -> InstanceMetadataOptionsRequest {
    InstanceMetadataOptionsRequest::builder()
        .http_endpoint(InstanceMetadataEndpointState::Enabled)
        .http_tokens(HttpTokensState::Required)
        .http_put_response_hop_limit(1)
        .instance_metadata_tags(InstanceMetadataTagsState::Enabled)
        .build()
}

fn spot_options(bid: Option<UsdPerHour>) -> InstanceMarketOptionsRequest {
    let options = SpotMarketOptions::builder()
        .spot_instance_type(SpotInstanceType::OneTime)
        .instance_interruption_behavior(InstanceInterruptionBehavior::Terminate)
        .set_max_price(bid.map(dollars))
        .build();
    InstanceMarketOptionsRequest::builder()
        .market_type(MarketType::Spot)
        .spot_options(options)
        .build()
}

/// In AWS's format; exact, because money is whole micro-dollars.
fn dollars(price: UsdPerHour) -> String {
    let micros = price.per_hour().micros().max(0);
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// The same tags for everything that the call creates, so that a volume or interface left behind is
/// recognised.
fn tags(plan: &Plan) -> Vec<TagSpecification> {
    let tag = |key: &str, value: &str| Tag::builder().key(key).value(value).build();
    let name = tag("Name", &format!("lamp {} {}", plan.job, plan.attempt.number()));
    let tags: Vec<Tag> =
        std::iter::once(name).chain(plan.tags.iter().map(|(key, value)| tag(key, value))).collect();
    let mut kinds =
        vec![ResourceType::Instance, ResourceType::Volume, ResourceType::NetworkInterface];
    if plan.offer.market == Market::Spot {
        kinds.push(ResourceType::SpotInstancesRequest);
    }
    kinds
        .into_iter()
        .map(|kind| {
            TagSpecification::builder().resource_type(kind).set_tags(Some(tags.clone())).build()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::Usd;

    #[test]
    fn bid_is_written_exactly() {
        let written = |micros| dollars(UsdPerHour::new(Usd::from_micros(micros)));
        assert_eq!(
            [written(650_000), written(12_000_001), written(-5)],
            ["0.650000", "12.000001", "0.000000"]
        );
    }
}
