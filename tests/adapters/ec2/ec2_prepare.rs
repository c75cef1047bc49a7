//! What a launch needs beside the offer: found in two rounds, asked for once, and wrong in words.

use std::time::Duration;

use lamplighter::adapters::aws::ec2::cloud::AwsCloud;
use lamplighter::adapters::aws::settings::AwsSettings;
use lamplighter::job::{LaunchRequest, Reaction, Shutdown, Spec};
use lamplighter::market::{Arch, Market, Offer, Zone};
use lamplighter::ports::{Cloud, CloudError};

use crate::aws::{IMAGE, cloud, kind, offer, plan, session_with, spec};
use lamp_test_support::ec2::{FalseEc2, Fault, Options, rounds};

/// The security group that `lamp init aws` makes; gives its id.
fn group(ec2: &FalseEc2, name: &str) -> String {
    let vpcs = ec2.ask("DescribeVpcs", &[]).unwrap();
    let vpc = vpcs.items("vpcSet")[0].at("vpcId").to_owned();
    let made = ec2
        .ask(
            "CreateSecurityGroup",
            &[("GroupName", name), ("GroupDescription", name), ("VpcId", &vpc)],
        )
        .unwrap();
    made.at("groupId").to_owned()
}

async fn prepare(aws: &AwsCloud, spec: &Spec, offer: &Offer) -> Result<LaunchRequest, CloudError> {
    aws.prepare(spec, offer)
        .await
        .map(|launch| launch.expect("EC2 wants to know more than the offer says"))
}

async fn refused(aws: &AwsCloud, spec: &Spec, offer: &Offer) -> (String, String) {
    let error = prepare(aws, spec, offer).await.unwrap_err();
    (kind(&error), crate::aws::chain(&error))
}

#[tokio::test]
async fn all_of_it_is_found_in_two_rounds_and_asked_for_once() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let group = group(&ec2, "lamplighter");
    let aws = cloud(&ec2);
    ec2.take_calls();
    // So long that what is asked at once overlaps on a busy computer too.
    ec2.latency(Duration::from_millis(800));
    let launch = prepare(&aws, &spec("dlami", 100), &offer(Market::Spot)).await.unwrap();
    let calls = ec2.take_calls();
    assert_eq!(
        (calls.len(), rounds(&calls)),
        (6, 2),
        "{:?}",
        calls.iter().map(|call| &call.action).collect::<Vec<_>>()
    );
    assert_eq!(
        (launch.image.as_str(), launch.root_device.as_str(), launch.disk_gib),
        (IMAGE, "/dev/sda1", 100)
    );
    assert!(launch.image_name.unwrap().contains("Ubuntu 22.04"));
    assert_eq!(
        (launch.profile.as_deref(), launch.key_name.as_deref()),
        (Some("lamplighter-box"), None)
    );
    assert_eq!((launch.security_groups, launch.shutdown), (vec![group], Shutdown::Terminate));
    let subnet = launch.subnet.unwrap();
    let zone =
        ec2.ask("DescribeSubnets", &[("SubnetId.1", &subnet)]).unwrap().all("availabilityZone")[0]
            .text
            .clone();
    assert_eq!(zone, "us-east-1a");
    // After an interruption, in another zone.
    ec2.take_calls();
    let elsewhere = Offer { zone: Zone::new("us-east-1b"), ..offer(Market::OnDemand) };
    let again = prepare(&aws, &spec("dlami", 100), &elsewhere).await.unwrap();
    assert_eq!(ec2.take_calls().len(), 0);
    assert_ne!(again.subnet.unwrap(), subnet);
}

/// Each rank of a gang reaches the others. No other host reaches a rank.
#[tokio::test]
async fn gang_machines_are_in_a_group_that_is_open_only_to_itself() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let ordinary = group(&ec2, "lamplighter");
    let aws = cloud(&ec2);
    let gang = Spec { gang: Some(Box::default()), ..spec("dlami", 100) };
    let here = offer(Market::OnDemand);
    let (_, said) = refused(&aws, &gang, &here).await;
    assert!(said.contains("no security group `lamplighter-gang`"), "{said}");
    let inner = group(&ec2, "lamplighter-gang");
    let (_, said) = refused(&aws, &gang, &here).await;
    assert!(said.contains("does not let in its own machines"), "{said}");
    let rule = [
        ("GroupId", inner.as_str()),
        ("IpPermissions.1.IpProtocol", "-1"),
        ("IpPermissions.1.Groups.1.GroupId", inner.as_str()),
    ];
    ec2.ask("AuthorizeSecurityGroupIngress", &rule).unwrap();
    let launch = prepare(&aws, &gang, &here).await.unwrap();
    assert_eq!(launch.security_groups, [ordinary.clone(), inner.clone()]);
    let world = [
        ("GroupId", inner.as_str()),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "22"),
        ("IpPermissions.1.ToPort", "22"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
    ];
    ec2.ask("AuthorizeSecurityGroupIngress", &world).unwrap();
    let (_, said) = refused(&aws, &gang, &here).await;
    assert!(said.contains("and no other host"), "{said}");
    let alone = prepare(&aws, &spec("dlami", 100), &here).await.unwrap();
    assert_eq!(alone.security_groups, [ordinary], "one machine needs no such group");
}

#[tokio::test]
async fn image_is_found_by_any_of_its_names() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    group(&ec2, "lamplighter");
    ec2.parameter("/my/image", "ami-0d15ea5e000002023");
    ec2.parameter("/my/number", "42");
    let aws = cloud(&ec2);
    let arm =
        Offer { arch: Arch::Arm64, instance_type: "g5g.xlarge".into(), ..offer(Market::OnDemand) };
    let x86 = offer(Market::OnDemand);
    for (words, offer, id, root) in [
        ("dlami", &x86, "ami-0d15ea5e000000022", "/dev/sda1"),
        ("dlami", &arm, "ami-0d15ea5e0000000a4", "/dev/sda1"),
        ("dlami:ubuntu-24.04", &x86, "ami-0d15ea5e000000024", "/dev/sda1"),
        ("dlami:pytorch", &x86, "ami-0d15ea5e000000210", "/dev/sda1"),
        ("dlami:amazon-linux-2023", &x86, "ami-0d15ea5e000002023", "/dev/xvda"),
        ("ami-0d15ea5e000000024", &x86, "ami-0d15ea5e000000024", "/dev/sda1"),
        ("ssm:/my/image", &x86, "ami-0d15ea5e000002023", "/dev/xvda"),
        ("/my/image", &x86, "ami-0d15ea5e000002023", "/dev/xvda"),
        // The newest of two.
        (
            "name:Deep Learning Base OSS*(Ubuntu 22.04)*;owner=amazon",
            &x86,
            "ami-0d15ea5e000000022",
            "/dev/sda1",
        ),
        ("name:Deep Learning*;owner=898082745236", &arm, "ami-0d15ea5e0000000a4", "/dev/sda1"),
    ] {
        let launch = prepare(&aws, &spec(words, 100), offer)
            .await
            .unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!((launch.image.as_str(), launch.root_device.as_str()), (id, root), "{words}");
    }
    for (words, class, said) in [
        ("ubuntu", "invalid", "names no image"),
        ("ssm:/none", "invalid", "there is no parameter `/none` in us-east-1"),
        ("/my/number", "invalid", "holds no image id"),
        ("name:nothing-*;owner=amazon", "not sold there", "no image for x86_64"),
        ("ami-0d15ea5e0000000a4", "not sold there", "is for arm64, and g5.xlarge is x86_64"),
        ("ami-0123456789abcdef0", "invalid", "ami-0123456789abcdef0"),
    ] {
        let (was, text) = refused(&aws, &spec(words, 100), &x86).await;
        assert!(was == class && text.contains(said), "{words}: {was}: {text}");
    }
    // NVIDIA's open driver drives no GPU from before Turing.
    let volta = Offer {
        gpu_model: Some("V100".into()),
        instance_type: "p3dn.24xlarge".into(),
        ..offer(Market::OnDemand)
    };
    let (was, text) = refused(&aws, &spec("dlami", 100), &volta).await;
    assert!(
        was == "not sold there"
            && text.contains("open driver, which does not drive the V100 of p3dn.24xlarge"),
        "{text}"
    );
    // What is remembered of the image says so again, and asks nobody.
    ec2.take_calls();
    let known = aws.known_unfit(&spec("dlami", 100), &volta);
    assert!(
        known.is_some_and(|why| why.contains("does not drive the V100"))
            && aws.known_unfit(&spec("dlami", 100), &x86).is_none()
    );
    assert_eq!(ec2.take_calls().len(), 0);
    // What a machine has in itself is no disk that is bought.
    let ubuntu =
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id";
    assert_eq!(
        prepare(&aws, &spec(ubuntu, 100), &x86).await.unwrap().image,
        "ami-0d15ea5e000002404"
    );
    let (was, text) = refused(&aws, &spec("dlami", 50), &x86).await;
    assert!(
        was == "invalid" && text.contains("needs a disk of 65 GiB, and `machine.disk` is 50"),
        "{text}"
    );
}

/// A plan would show the price of plain Linux and of one disk, and the bill another.
#[tokio::test]
async fn image_that_costs_more_than_machine_and_disk_is_refused() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    group(&ec2, "lamplighter");
    let (aws, x86) = (cloud(&ec2), offer(Market::OnDemand));
    for (words, said) in [
        (
            "ami-0d15ea5e000000010",
            "platform `Red Hat Enterprise Linux`, usage operation `RunInstances:0010`",
        ),
        (
            "name:RHEL-9*;owner=amazon",
            "platform `Red Hat Enterprise Linux`, usage operation `RunInstances:0010`",
        ),
        ("ami-0d15ea5e000000802", "product code `8v9ldxexample`"),
    ] {
        let (was, text) = refused(&aws, &spec(words, 100), &x86).await;
        assert!(
            was == "invalid"
                && text.contains(&format!("has a price of its own beside the machine's ({said})")),
            "{words}: {was}: {text}"
        );
        assert!(text.contains("choose one that EC2 bills as `Linux/UNIX`"), "{text}");
    }
    let (was, text) = refused(&aws, &spec("ami-0d15ea5e0000d15c2", 100), &x86).await;
    assert!(
        was == "invalid"
            && text.contains("brings further disks (/dev/sdf)")
            && text.contains("an image of its root disk alone"),
        "{was}: {text}"
    );
}

#[tokio::test]
async fn network_that_does_not_fit_is_told() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let (spec, x86) = (spec("dlami", 100), offer(Market::OnDemand));
    let (was, text) = refused(&aws, &spec, &x86).await;
    assert!(
        was == "invalid"
            && text.contains("no security group `lamplighter`; `lamp init aws` makes one"),
        "{text}"
    );
    // Made by now: what was missing is asked for again.
    let id = group(&ec2, "lamplighter");
    prepare(&aws, &spec, &x86).await.unwrap();
    let nowhere = Offer { zone: Zone::new("us-east-1z"), ..x86.clone() };
    let (was, text) = refused(&aws, &spec, &nowhere).await;
    assert!(was == "not sold there" && text.contains("us-east-1z has no default subnet"), "{text}");

    let open = group(&ec2, "open");
    let port = [
        ("GroupId", open.as_str()),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "22"),
        ("IpPermissions.1.ToPort", "22"),
    ];
    let port: Vec<_> =
        port.into_iter().chain([("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0")]).collect();
    ec2.ask("AuthorizeSecurityGroupIngress", &port).unwrap();
    let settings = AwsSettings { security_group: Some("open".into()), ..AwsSettings::default() };
    let (was, text) = refused(&AwsCloud::new(session_with(&ec2, settings)), &spec, &x86).await;
    assert!(
        was == "invalid" && text.contains("`open`") && text.contains("has inbound rules"),
        "{text}"
    );

    // What the user names is taken: a group by its id, a profile, a key, a subnet in one zone only.
    let subnets = ec2.ask("DescribeSubnets", &[]).unwrap();
    let subnet = subnets
        .items("subnetSet")
        .iter()
        .find(|one| one.at("availabilityZone") == "us-east-1a")
        .unwrap()
        .at("subnetId")
        .to_owned();
    let text = |text: &str| Some(text.to_owned());
    let settings = AwsSettings {
        security_group: text(&id),
        subnets: vec![subnet.clone()],
        instance_profile: text("mine"),
        key_name: text("key"),
        ..AwsSettings::default()
    };
    ec2.ask("CreateKeyPair", &[("KeyName", "key")]).unwrap();
    let mine = AwsCloud::new(session_with(&ec2, settings));
    let launch = prepare(&mine, &spec, &x86).await.unwrap();
    assert_eq!((launch.subnet, launch.security_groups), (Some(subnet), vec![id]));
    assert_eq!(
        (launch.profile.as_deref(), launch.key_name.as_deref()),
        (Some("mine"), Some("key"))
    );
    let (was, text) = refused(&mine, &spec, &Offer { zone: Zone::new("us-east-1b"), ..x86 }).await;
    assert!(
        was == "not sold there" && text.contains("none of `aws.subnets` lies in us-east-1b"),
        "{text}"
    );
}

/// For a site with a bad line: else the machine that works on behind it is ended by its alarm.
#[tokio::test]
async fn machine_with_a_long_lease_has_an_alarm_that_waits_for_it() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    group(&ec2, "lamplighter");
    let aws = cloud(&ec2);
    for (lease, alarm, watched) in [
        ("30m", "heartbeat", "30m"),
        ("3h", "heartbeat", "180m"),
        ("3h", "heartbeat for 15m", "15m"),
    ] {
        let mut spec = spec("dlami", 100);
        (spec.limits.lease, spec.watch.alarm) = (lease.parse().unwrap(), alarm.parse().unwrap());
        let launch = prepare(&aws, &spec, &offer(Market::OnDemand)).await.unwrap();
        assert_eq!(
            launch.alarm.map(|alarm| alarm.to_string()),
            Some(format!("heartbeat for {watched}")),
            "{alarm} beside {lease}"
        );
    }
}

#[tokio::test]
async fn only_an_on_demand_machine_that_may_be_kept_stops() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    group(&ec2, "lamplighter");
    let aws = cloud(&ec2);
    let mut spec = spec("dlami", 100);
    spec.on.success = Reaction::Stop;
    assert_eq!(
        prepare(&aws, &spec, &offer(Market::OnDemand)).await.unwrap().shutdown,
        Shutdown::Stop
    );
    assert_eq!(
        prepare(&aws, &spec, &offer(Market::Spot)).await.unwrap().shutdown,
        Shutdown::Terminate
    );
    // What is prepared can be launched.
    let mut plan = plan("token-1", Market::OnDemand);
    let launch = prepare(&aws, &spec, &offer(Market::OnDemand)).await.unwrap();
    plan.launch = Some(LaunchRequest { profile: None, user_data: "#!/bin/sh\n".into(), ..launch });
    aws.permitted(&plan).await.unwrap();
    let id = aws.launch(&plan).await.unwrap();
    assert_eq!(ec2.instance(&id).zone, "us-east-1a");
}

/// EC2 keeps key pairs by region; a launch with one that is not there would be refused after all
/// else was done.
#[tokio::test]
async fn region_without_the_users_key_pair_is_not_ready() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    group(&ec2, "lamplighter");
    ec2.ask_in("us-west-2", "CreateKeyPair", &[("KeyName", "lab")]).unwrap();
    ec2.ask("CreateKeyPair", &[("KeyName", "lab-2")]).unwrap();
    let named = || {
        AwsCloud::new(session_with(
            &ec2,
            AwsSettings { key_name: Some("lab".into()), ..AwsSettings::default() },
        ))
    };
    let (aws, here, spec) = (named(), offer(Market::Spot), spec("dlami", 100));
    let (was, text) = refused(&aws, &spec, &here).await;
    assert!(
        was == "invalid"
            && text.starts_with(
                "the key pair `lab` of `aws.key_name` is not in us-east-1; `aws ec2 import-key-pair"
            ),
        "{text}"
    );
    // Once it is there it is seen at once, and not asked for again.
    ec2.ask("CreateKeyPair", &[("KeyName", "lab")]).unwrap();
    assert_eq!(prepare(&aws, &spec, &here).await.unwrap().key_name.as_deref(), Some("lab"));
    ec2.take_calls();
    prepare(&aws, &spec, &here).await.unwrap();
    assert_eq!(ec2.take_calls().len(), 0);
    // A policy of an earlier version does not allow to look.
    ec2.fault(Fault::code("DescribeKeyPairs", "UnauthorizedOperation").always());
    let launch = prepare(&named(), &spec, &here).await.unwrap();
    assert_eq!(launch.key_name.as_deref(), Some("lab"));
}
