//! A subnet without a free address: another of its zone is taken, and where there is none, another
//! zone.

use lamplighter::adapters::aws::ec2::cloud::AwsCloud;
use lamplighter::adapters::aws::settings::AwsSettings;
use lamplighter::job::{LaunchRequest, Plan};
use lamplighter::market::{Market, Offer, Zone};
use lamplighter::ports::Cloud;

use crate::aws::{cloud, kind, offer, plan, session_with, spec};
use lamp_test_support::ec2::{FalseEc2, Fault, Options};

/// The default VPC with the group that `lamp init aws` makes; gives the VPC, and its subnet in a
/// zone.
fn network(ec2: &FalseEc2, zone: &str) -> (String, String) {
    let vpc = ec2.ask("DescribeVpcs", &[]).expect("VPCs").items("vpcSet")[0].at("vpcId").to_owned();
    ec2.ask(
        "CreateSecurityGroup",
        &[("GroupName", "lamplighter"), ("GroupDescription", "ours"), ("VpcId", &vpc)],
    )
    .expect("a group");
    let subnets = ec2.ask("DescribeSubnets", &[]).expect("subnets");
    let here = subnets
        .items("subnetSet")
        .iter()
        .find(|one| one.at("availabilityZone") == zone)
        .expect("one for each zone");
    (vpc, here.at("subnetId").to_owned())
}

/// What the next attempt would launch; the refusal, where there is nothing to launch.
async fn next(aws: &AwsCloud, token: &str, offer: &Offer) -> Result<Plan, String> {
    let launch = aws.prepare(&spec("dlami", 100), offer).await.map_err(|error| kind(&error))?;
    let launch = launch.expect("EC2 wants to know more than the offer says");
    let launch = LaunchRequest { profile: None, user_data: "#!/bin/sh\n".into(), ..launch };
    Ok(Plan { offer: offer.clone(), launch: Some(launch), ..plan(token, Market::OnDemand) })
}

fn subnet(plan: &Plan) -> String {
    plan.launch
        .as_ref()
        .and_then(|launch| launch.subnet.clone())
        .expect("each machine stands in a subnet")
}

fn full(ec2: &FalseEc2, subnet: &str) {
    ec2.fault(
        Fault::code("RunInstances", "InsufficientFreeAddressesInSubnet")
            .when("SubnetId", subnet)
            .always(),
    );
}

#[tokio::test]
async fn next_attempt_stands_in_the_other_subnet_of_its_zone() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let (vpc, first) = network(&ec2, "us-east-1a");
    let made = ec2.ask(
        "CreateSubnet",
        &[("VpcId", &vpc), ("CidrBlock", "172.31.240.0/24"), ("AvailabilityZone", "us-east-1a")],
    );
    let second = made.expect("a second subnet").all("subnetId")[0].text.clone();
    let settings =
        AwsSettings { subnets: vec![first.clone(), second.clone()], ..AwsSettings::default() };
    let (aws, here) = (AwsCloud::new(session_with(&ec2, settings)), offer(Market::OnDemand));
    let plan = next(&aws, "token-1", &here).await.expect("both are open");
    assert_eq!(subnet(&plan), first, "it has sixteen times as many addresses");
    full(&ec2, &first);
    assert_eq!(
        kind(&aws.launch(&plan).await.expect_err("it is full")),
        "no free address in the subnet",
        "which says nothing of its zone"
    );
    let plan = next(&aws, "token-2", &here).await.expect("the second is open");
    assert_eq!(subnet(&plan), second, "though the first still shows more");
    let id = aws.launch(&plan).await.expect("launched");
    assert_eq!(ec2.instance(&id).zone, "us-east-1a");
    // Once that is full too, there is nothing left there.
    full(&ec2, &second);
    let plan = next(&aws, "token-3", &here).await.expect("nobody knows yet");
    assert_eq!(
        kind(&aws.launch(&plan).await.expect_err("it is full")),
        "no free address in the zone"
    );
    assert_eq!(
        next(&aws, "token-4", &here).await.map(|plan| subnet(&plan)),
        Err("no free address in the zone".into())
    );
}

#[tokio::test]
async fn only_subnet_of_a_zone_is_asked_by_no_other_type() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let (_, here) = network(&ec2, "us-east-1a");
    let (aws, small) = (cloud(&ec2), offer(Market::OnDemand));
    full(&ec2, &here);
    let plan = next(&aws, "token-1", &small).await.expect("nobody knows yet");
    assert_eq!(
        kind(&aws.launch(&plan).await.expect_err("it is full")),
        "no free address in the zone"
    );
    let large = Offer { instance_type: "g5.2xlarge".into(), ..small.clone() };
    assert_eq!(
        next(&aws, "token-2", &large).await.map(|plan| subnet(&plan)),
        Err("no free address in the zone".into())
    );
    assert_eq!(ec2.calls_of("RunInstances").len(), 1);
    let elsewhere = next(&aws, "token-3", &Offer { zone: Zone::new("us-east-1b"), ..large })
        .await
        .expect("another zone has another subnet");
    aws.launch(&elsewhere).await.expect("launched");
    // Another program has not met it, and is told by its own launch; where nobody says what else
    // there is, that speaks of the zone.
    let (other, plan) =
        (cloud(&ec2), next(&cloud(&ec2), "token-4", &small).await.expect("nobody knows yet"));
    ec2.fault(Fault::code("DescribeSubnets", "UnauthorizedOperation").always());
    assert_eq!(
        kind(&other.launch(&plan).await.expect_err("it is full")),
        "no free address in the zone"
    );
}
