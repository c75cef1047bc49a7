//! RunInstances: one call with everything in it, and one machine for one plan, whatever becomes of
//! the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lamplighter::instance::{RANKS_TAG, tags_of_rank};
use lamplighter::job::{GangLaunch, Plan, Shutdown, member_job};
use lamplighter::market::Market;
use lamplighter::ports::{Cloud, CloudError};

use crate::aws::{OWNER, chain, cloud, kind, machine, plan, region};
use lamp_test_support::ec2::{Call, FalseEc2, Fault, Options};

/// What was asked, without what differs from call to call by the protocol.
fn body(call: &Call) -> BTreeMap<String, String> {
    call.params.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The tags that a launch asks for one kind of thing.
fn tags(call: &Call, kind: &str) -> BTreeMap<String, String> {
    let Some(n) = (1..9).find(|n| {
        call.params.get(&format!("TagSpecification.{n}.ResourceType")).is_some_and(|it| it == kind)
    }) else {
        return BTreeMap::new();
    };
    let at = |m: u32, part: &str| {
        call.params.get(&format!("TagSpecification.{n}.Tag.{m}.{part}")).cloned()
    };
    (1..20).filter_map(|m| Some((at(m, "Key")?, at(m, "Value")?))).collect()
}

#[tokio::test]
async fn launch_is_one_complete_call_and_the_same_when_repeated() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let plan = plan("token-1", Market::Spot);
    let id = aws.launch(&plan).await.unwrap();
    assert_eq!(aws.launch(&plan).await.unwrap(), id);
    // Another process, later.
    assert_eq!(cloud(&ec2).launch(&plan).await.unwrap(), id);
    let calls = ec2.calls_of("RunInstances");
    assert_eq!((calls.len(), ec2.instances().len()), (3, 1));
    assert_eq!(body(&calls[0]), body(&calls[1]));
    assert_eq!(body(&calls[0]), body(&calls[2]));
    assert_eq!(ec2.calls().len(), 3, "nothing else was asked");

    let asked = |name: &str| calls[0].params.get(name).map_or("", String::as_str);
    for (name, value) in [
        ("ClientToken", "token-1"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("MetadataOptions.HttpTokens", "required"),
        ("MetadataOptions.HttpPutResponseHopLimit", "1"),
        ("MetadataOptions.InstanceMetadataTags", "enabled"),
        ("InstanceInitiatedShutdownBehavior", "terminate"),
        ("BlockDeviceMapping.1.DeviceName", "/dev/sda1"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "120"),
        ("BlockDeviceMapping.1.Ebs.VolumeType", "gp3"),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
        ("InstanceMarketOptions.MarketType", "spot"),
        ("InstanceMarketOptions.SpotOptions.MaxPrice", "0.650000"),
        ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"),
        ("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate"),
        ("Placement.AvailabilityZone", "us-east-1a"),
        ("UserData", "IyEvYmluL3NoCnRydWUK"),
    ] {
        assert_eq!(asked(name), value, "{name}");
    }
    for kind in ["instance", "volume", "network-interface", "spot-instances-request"] {
        let tags = tags(&calls[0], kind);
        assert!(
            plan.tags.iter().all(|(key, value)| tags.get(key) == Some(value)),
            "{kind}: {tags:?}"
        );
        assert_eq!(tags["Name"], "lamp digits-222222 1");
    }
    let seen = ec2.instance(&id);
    assert!(seen.spot && plan.tags.iter().all(|(key, value)| seen.tags.get(key) == Some(value)));
}

/// The plans of the ranks of a gang, whose machines one call launches.
fn gang(token: &str, ranks: u32) -> Vec<Plan> {
    let base = plan(token, Market::OnDemand);
    let of = |rank: u32| {
        let gang = Some(GangLaunch { leader: base.job.clone(), rank, ranks, fewest: None });
        let mut tags = base.tags.clone();
        tags.insert(RANKS_TAG.to_owned(), ranks.to_string());
        let tags = tags_of_rank(tags, rank);
        Plan { job: member_job(&base.job, rank as usize), gang, tags, ..base.clone() }
    };
    (0..ranks).map(of).collect()
}

#[tokio::test]
async fn one_call_launches_all_ranks_and_each_finds_its_own_machine() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let plans = gang("token-g", 3);
    // The answer is lost: the same call again buys nothing twice.
    ec2.fault(Fault::lost("RunInstances"));
    let first = cloud(&ec2).launch(&plans[0]).await;
    assert!(matches!(first, Ok(_) | Err(CloudError::Ambiguous { .. })), "{first:?}");
    let mut ids = Vec::new();
    for plan in &plans {
        // Each rank may have another process.
        ids.push(cloud(&ec2).launch(plan).await.unwrap());
    }
    assert_eq!(ec2.instances().len(), 3, "never a second gang");
    for call in ec2.calls_of("RunInstances") {
        assert_eq!((&*call.params["MinCount"], &*call.params["MaxCount"]), ("3", "3"));
        assert_eq!(tags(&call, "instance")["lamplighter:ranks"], "3");
    }
    let unique: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), 3, "{ids:?}");
    let views = cloud(&ec2).describe(OWNER, &region()).await.unwrap();
    for (plan, id) in plans.iter().zip(&ids) {
        let view = views.iter().find(|view| view.id == *id).expect("it is shown");
        assert_eq!(view.tags.job, plan.job, "the job of its rank");
        assert_eq!(view.client_token.as_deref(), Some("token-g"));
    }
    let one = cloud(&ec2);
    one.describe(OWNER, &region()).await.unwrap();
    one.terminate(&machine(&ids[1])).await.unwrap();
    assert_eq!(cloud(&ec2).launch(&plans[2]).await.unwrap(), ids[2], "the others stay");
}

/// With `nodes = "2..4"` one call launches 2 to 4 machines. The token gives the same ones again.
#[tokio::test]
async fn launch_of_fewer_machines_says_which_ranks_have_none() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let mut plans = gang("token-g", 4);
    for plan in &mut plans {
        plan.gang.as_mut().expect("it is a gang").fewest = Some(2);
    }
    ec2.room(Some(3));
    let early = cloud(&ec2).launch(&plans[3]).await.unwrap_err();
    assert!(matches!(early, CloudError::Ambiguous { .. }), "nothing is launched yet: {early:?}");
    assert_eq!(ec2.calls_of("RunInstances").len(), 0, "only rank 0 buys");
    ec2.fault(Fault::lost("RunInstances"));
    let first = cloud(&ec2).launch(&plans[0]).await;
    assert!(matches!(first, Ok(_) | Err(CloudError::Ambiguous { .. })), "{first:?}");
    for room in [Some(0), None] {
        ec2.room(room);
        let mut ids = BTreeSet::new();
        for plan in &plans[..3] {
            ids.insert(cloud(&ec2).launch(plan).await.unwrap());
        }
        assert_eq!(ids.len(), 3, "{ids:?}");
        let none = cloud(&ec2).launch(&plans[3]).await.unwrap_err();
        let CloudError::NoCapacity { what, .. } = &none else { panic!("{none:?}") };
        assert_eq!(what, "EC2 had machines for 3 of 4 ranks");
        assert_eq!(ec2.instances().len(), 3, "the same machines");
    }
    for call in ec2.calls_of("RunInstances") {
        assert_eq!((&*call.params["MinCount"], &*call.params["MaxCount"]), ("2", "4"));
    }
    ec2.room(Some(1));
    let refused = cloud(&ec2).launch(&Plan { client_token: "t2".into(), ..plans[0].clone() }).await;
    assert!(matches!(refused, Err(CloudError::NoCapacity { .. })), "{refused:?}");
    assert_eq!(ec2.instances().len(), 3, "fewer than two are none");
}

/// A rank never buys: without the launch of rank 0 it has no machine.
#[tokio::test]
async fn without_capacity_for_all_ranks_none_is_launched() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.fault(Fault::code("RunInstances", "InsufficientInstanceCapacity"));
    let plans = gang("token-g", 2);
    let refused = cloud(&ec2).launch(&plans[0]).await.unwrap_err();
    assert!(matches!(refused, CloudError::NoCapacity { .. }), "{refused:?}");
    let missing = cloud(&ec2).launch(&plans[1]).await.unwrap_err();
    assert!(matches!(missing, CloudError::Ambiguous { .. }), "{missing:?}");
    assert_eq!((ec2.calls_of("RunInstances").len(), ec2.instances().len()), (1, 0));
}

/// AWS's default for these bills processor time beyond what they earn, which no plan has in it.
#[tokio::test]
async fn burstable_machine_bills_no_surplus_credits() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    for (kind, credits) in [("t3.micro", "standard"), ("m5.large", "")] {
        let mut plan = plan(&format!("token-{kind}"), Market::OnDemand);
        plan.offer.instance_type = kind.into();
        cloud(&ec2).launch(&plan).await.unwrap();
        let call = ec2.calls_of("RunInstances").pop().unwrap();
        assert_eq!(
            call.params.get("CreditSpecification.CpuCredits").map_or("", String::as_str),
            credits,
            "{kind}"
        );
    }
}

/// The account pays for it to have room for other work.
#[tokio::test]
async fn open_reservation_of_the_account_is_not_taken() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    for (market, preference) in [(Market::OnDemand, "none"), (Market::Spot, "")] {
        cloud(&ec2).launch(&plan(&format!("token-{market}"), market)).await.unwrap();
        let call = ec2.calls_of("RunInstances").pop().unwrap();
        let asked = call
            .params
            .get("CapacityReservationSpecification.CapacityReservationPreference")
            .map_or("", String::as_str);
        assert_eq!(asked, preference, "{market}");
    }
}

#[tokio::test]
async fn on_demand_may_keep_its_disk_and_stands_in_its_subnet() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let subnets = ec2.ask("DescribeSubnets", &[]).unwrap();
    let subnet = subnets
        .items("subnetSet")
        .iter()
        .find(|one| one.at("availabilityZone") == "us-east-1b")
        .unwrap()
        .at("subnetId")
        .to_owned();
    let groups = ec2.ask("DescribeSecurityGroups", &[]).unwrap();
    let group = groups.items("securityGroupInfo")[0].at("groupId").to_owned();
    let mut plan = plan("token-1", Market::OnDemand);
    let launch = plan.launch.as_mut().unwrap();
    (launch.subnet, launch.security_groups, launch.shutdown) =
        (Some(subnet.clone()), vec![group.clone()], Shutdown::Stop);
    let id = cloud(&ec2).launch(&plan).await.unwrap();
    let call = &ec2.calls_of("RunInstances")[0];
    let asked = |name: &str| call.params.get(name).map_or("", String::as_str);
    assert_eq!(
        (asked("SubnetId"), asked("SecurityGroupId.1"), asked("InstanceInitiatedShutdownBehavior")),
        (subnet.as_str(), group.as_str(), "stop")
    );
    // A zone in the request would bind the token to it.
    assert!(
        !call
            .params
            .keys()
            .any(|key| key.starts_with("Placement") || key.starts_with("InstanceMarketOptions"))
    );
    assert!(tags(call, "spot-instances-request").is_empty());
    assert_eq!(ec2.instance(&id).zone, "us-east-1b");
}

/// A key that nobody asked for would let somebody in, and without its profile a machine reaches no
/// job root.
#[tokio::test]
async fn key_pair_and_the_profile_are_those_of_the_plan_or_none() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.ask("CreateKeyPair", &[("KeyName", "lab")]).expect("a key pair");
    ec2.profile("box");
    for (token, named) in [("token-1", Some(("lab", "box"))), ("token-2", None)] {
        let mut plan = plan(token, Market::OnDemand);
        let launch = plan.launch.as_mut().expect("the plan says what to launch");
        (launch.key_name, launch.profile) =
            (named.map(|(key, _)| key.to_owned()), named.map(|(_, profile)| profile.to_owned()));
        cloud(&ec2).launch(&plan).await.expect("launched");
        let call = ec2.calls_of("RunInstances").pop().expect("it was asked for");
        let asked = |name: &str| call.params.get(name).map(String::as_str);
        assert_eq!(
            asked("KeyName").zip(asked("IamInstanceProfile.Name")),
            named,
            "{:?}",
            call.params
        );
        let others = call
            .params
            .keys()
            .filter(|key| key.starts_with("KeyName") || key.starts_with("IamInstanceProfile"))
            .count();
        assert_eq!(others, if named.is_some() { 2 } else { 0 }, "{:?}", call.params);
    }
}

#[tokio::test]
async fn a_lost_answer_is_one_machine() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    ec2.fault(Fault::lost("RunInstances"));
    let found = aws.launch(&plan("token-1", Market::OnDemand)).await.unwrap();
    // An error that says nothing, after the launch.
    ec2.fault(Fault::code("RunInstances", "InternalError").after());
    let other = aws.launch(&plan("token-2", Market::OnDemand)).await.unwrap();
    assert_eq!(
        ec2.instances().iter().map(|one| one.id.as_str()).collect::<Vec<_>>(),
        [&found, &other]
    );
    // Not shown yet: nobody knows, and the repeated call finds it.
    ec2.unseen(Duration::from_secs(60));
    ec2.fault(Fault::lost("RunInstances"));
    let plan = plan("token-3", Market::OnDemand);
    assert_eq!(kind(&aws.launch(&plan).await.unwrap_err()), "ambiguous");
    let third = aws.launch(&plan).await.unwrap();
    assert_eq!((ec2.instances().len(), ec2.instances()[2].id.as_str()), (3, third.as_str()));
    // Nothing was done at all.
    ec2.fault(Fault::cut("RunInstances"));
    let plan = crate::aws::plan("token-4", Market::OnDemand);
    assert_eq!(kind(&aws.launch(&plan).await.unwrap_err()), "ambiguous");
    assert_eq!(ec2.instances().len(), 3);
}

#[tokio::test]
async fn token_that_was_used_tells_of_its_machine() {
    let Some(ec2) = FalseEc2::start(Options { stopping: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let mut plan = plan("token-1", Market::OnDemand);
    let id = aws.launch(&plan).await.unwrap();
    plan.launch.as_mut().unwrap().disk_gib = 200;
    match aws.launch(&plan).await.unwrap_err() {
        CloudError::Mismatch { machine: Some(found), what } => {
            assert_eq!(
                found, id,
                "the machine bills, and is this plan's; the other request is our bug: {what}"
            );
            assert!(what.contains("IdempotentParameterMismatch"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    // Not shown yet: nobody knows which machine it is.
    ec2.unseen(Duration::from_secs(60));
    let hidden = crate::aws::plan("token-hidden", Market::OnDemand);
    aws.launch(&hidden).await.unwrap();
    let mut other = hidden.clone();
    other.launch.as_mut().unwrap().disk_gib = 200;
    let error = aws.launch(&other).await.unwrap_err();
    assert!(matches!(error, CloudError::Mismatch { machine: None, .. }), "{error:?}");
    ec2.unseen(Duration::ZERO);
    assert_eq!(ec2.calls_of("RunInstances")[1].code, "IdempotentParameterMismatch");

    let plan = crate::aws::plan("token-1", Market::OnDemand);
    aws.terminate(&machine(&id)).await.unwrap();
    assert_eq!(
        aws.launch(&plan).await.unwrap(),
        id,
        "it has ended, and is shown: it is settled as what it was"
    );
    ec2.forget(&id);
    let error = aws.launch(&plan).await.unwrap_err();
    assert_eq!(kind(&error), "its machine has ended", "the attempt is over: {error}");
    assert_eq!(ec2.instances().len(), 2);
}

#[tokio::test]
async fn dry_run_proves_the_right_and_launches_nothing() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let plan = plan("token-1", Market::Spot);
    aws.permitted(&plan).await.unwrap();
    ec2.fault(Fault::code("RunInstances", "UnauthorizedOperation"));
    assert_eq!(kind(&aws.permitted(&plan).await.unwrap_err()), "denied");
    let mut wrong = plan.clone();
    wrong.launch.as_mut().unwrap().image = "ami-00000000".into();
    let error = aws.permitted(&wrong).await.unwrap_err();
    assert!(chain(&error).contains("InvalidAMIID.NotFound"), "{error}");
    assert_eq!(ec2.instances().len(), 0);
    let calls = ec2.calls_of("RunInstances");
    assert!(
        calls
            .iter()
            .all(|call| call.params["DryRun"] == "true" && call.params["ClientToken"] != "token-1")
    );
    assert!(aws.launch(&plan).await.is_ok(), "the token is still free");
}
