//! What machines left behind: found whole, priced, and removed only when it is ours and in use by
//! nothing.

use std::collections::BTreeSet;

use lamplighter::account::Residue;
use lamplighter::adapters::aws::ec2::cloud::AwsCloud;
use lamplighter::instance::Tags;
use lamplighter::job::{AlarmRule, JobId};
use lamplighter::market::{Market, Usd};
use lamplighter::ports::Cloud;

use crate::aws::{OWNER, kind, machine, plan, region, session};
use lamp_test_support::ec2::{Call, FalseEc2, Fault, Options, rounds};

/// Parameters that tag a new thing as this owner's.
fn tagged(kind: &str, owner: &str) -> Vec<(String, String)> {
    let pairs =
        [("ResourceType", kind), ("Tag.1.Key", "lamplighter:owner"), ("Tag.1.Value", owner)];
    pairs.map(|(key, value)| (format!("TagSpecification.1.{key}"), value.to_owned())).to_vec()
}

fn make(
    ec2: &FalseEc2,
    action: &str,
    params: &[(&str, &str)],
    tags: Vec<(String, String)>,
    id: &str,
) -> String {
    let params = params
        .iter()
        .copied()
        .chain(tags.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        .collect::<Vec<_>>();
    ec2.ask(action, &params).unwrap().all(id)[0].text.clone()
}

fn find<'a>(all: &'a [Residue], kind: &str) -> Vec<&'a Residue> {
    all.iter().filter(|one| one.kind == kind).collect()
}

/// A spot machine whose alarm is armed.
async fn guarded(aws: &AwsCloud) -> String {
    let mut watched = plan("token-1", Market::Spot);
    watched.launch.as_mut().unwrap().alarm = Some("cpu<=0.3 for 5m".parse::<AlarmRule>().unwrap());
    let id = aws.launch(&watched).await.unwrap();
    aws.guard(&watched, &machine(&id)).await.unwrap();
    id
}

#[tokio::test]
async fn what_is_left_is_found_priced_and_removed() {
    let Some(ec2) =
        FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let id = guarded(&aws).await;
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), [], "a living machine uses all of it");

    let volume = |owner| {
        make(
            &ec2,
            "CreateVolume",
            &[("Size", "100"), ("AvailabilityZone", "us-east-1a")],
            tagged("volume", owner),
            "volumeId",
        )
    };
    let (ours, theirs) = (volume(OWNER), volume("you"));
    let address = make(
        &ec2,
        "AllocateAddress",
        &[("Domain", "vpc")],
        tagged("elastic-ip", OWNER),
        "allocationId",
    );
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [disk] = find(&all, "volume")[..] else { panic!("one disk: {all:?}") };
    assert_eq!(
        (disk.id.as_str(), disk.usd_per_month, disk.detail.as_str()),
        (ours.as_str(), Usd::from_micros(8_000_000), "100 GiB, in use by nothing")
    );
    let [ip] = find(&all, "address")[..] else { panic!("one address: {all:?}") };
    assert_eq!((ip.id.as_str(), ip.usd_per_month), (address.as_str(), Usd::from_micros(3_650_000)));
    let [alarm] = find(&all, "alarm")[..] else { panic!("one alarm: {all:?}") };
    assert!(alarm.id.contains(&id) && alarm.usd_per_month == Usd::from_micros(100_000));
    assert_eq!(all.len(), 3, "{all:?}");

    for one in &all {
        aws.clear(one).await.unwrap();
    }
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), []);
    // Not ours by its tag, whatever the caller believes.
    let foreign = Residue { id: theirs.clone(), ..disk.clone() };
    assert_eq!(kind(&aws.clear(&foreign).await.unwrap_err()), "denied");
    // Found, and then somebody else's.
    let mine = volume(OWNER);
    let all = aws.residue(OWNER, &region()).await.unwrap();
    ec2.ask(
        "CreateTags",
        &[("ResourceId.1", &mine), ("Tag.1.Key", "lamplighter:owner"), ("Tag.1.Value", "you")],
    )
    .unwrap();
    assert_eq!(kind(&aws.clear(&all[0]).await.unwrap_err()), "denied");
    assert_eq!(
        kind(&aws.clear(&Residue { ours: false, ..disk.clone() }).await.unwrap_err()),
        "denied"
    );
    assert_eq!(
        ec2.ask("DescribeVolumes", &[])
            .unwrap()
            .all("volumeId")
            .iter()
            .filter(|one| one.text == theirs)
            .count(),
        1
    );
}

/// So many machines of an owner's, of one job, that live.
async fn fleet(
    ec2: &FalseEc2,
    aws: &AwsCloud,
    owner: &str,
    job: &str,
    machines: usize,
) -> Vec<String> {
    let mut plan = plan(&format!("token of {owner}"), Market::OnDemand);
    plan.job = job.parse().unwrap();
    let tags = Tags::from_map(&plan.tags).unwrap();
    plan.tags = Tags { owner: owner.into(), job: plan.job.clone(), ..tags }.to_map();
    let first = aws.launch(&plan).await.unwrap();
    let mut ids = ec2.multiply(&first, machines - 1);
    ids.push(first);
    ids
}

/// As `guard` makes them, of an owner's machines.
fn watch(ec2: &FalseEc2, owner: &str, machines: &[String]) {
    for id in machines {
        let name = format!("lamplighter-{id}-digits-222222-0001");
        let params = [
            ("AlarmName", name.as_str()),
            ("Namespace", "AWS/EC2"),
            ("MetricName", "CPUUtilization"),
            ("Statistic", "Average"),
            ("ComparisonOperator", "LessThanThreshold"),
            ("Threshold", "1"),
            ("Period", "300"),
            ("EvaluationPeriods", "2"),
            ("Tags.member.1.Key", "lamplighter:owner"),
            ("Tags.member.1.Value", owner),
        ];
        ec2.ask_cloudwatch("PutMetricAlarm", &params).expect("made");
    }
}

fn calls_of<'a>(calls: &'a [Call], action: &str) -> Vec<&'a Call> {
    calls.iter().filter(|call| call.action == action).collect()
}

#[tokio::test]
async fn end_of_one_job_asks_no_more_beside_a_fleet_than_alone() {
    let Some(ec2) =
        FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let (id, job) = (guarded(&aws).await, plan("token-1", Market::Spot).job);
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    let ours = fleet(&ec2, &aws, OWNER, "other-333333", 300).await;
    let theirs = fleet(&ec2, &aws, "bob", "bobs-444444", 50).await;
    watch(&ec2, OWNER, &ours);
    watch(&ec2, "bob", &theirs);
    let gone = ours[0].clone();
    ec2.ask("TerminateInstances", &[("InstanceId.1", &gone)]).unwrap();
    let end = async || {
        ec2.take_calls();
        let left =
            aws.residue_of(OWNER, &region(), &job, &BTreeSet::from([id.clone()])).await.unwrap();
        (left, ec2.take_calls())
    };
    let (left, calls) = end().await;
    let [alarm] = &left[..] else { panic!("its alarm, and none of another job's: {left:?}") };
    assert!(alarm.kind == "alarm" && alarm.id.contains(&id), "{alarm:?}");
    assert_eq!(
        (calls_of(&calls, "DescribeAlarms").len(), calls_of(&calls, "ListTagsForResource").len()),
        (1, 1),
        "its tag is read"
    );
    // The usual case: the alarm goes when the attempt is settled. `lamp_test_support::fleet` counts
    // as many calls.
    aws.release(&machine(&id)).await.unwrap();
    let (left, calls) = end().await;
    assert_eq!(
        (
            left.len(),
            calls_of(&calls, "DescribeAlarms").len(),
            calls_of(&calls, "ListTagsForResource").len()
        ),
        (0, 1, 0)
    );
    assert_eq!(calls.len(), 6, "{:?}", calls.iter().map(|call| &call.action).collect::<Vec<_>>());
}

#[tokio::test]
async fn alarm_of_a_living_machine_costs_a_sweep_no_extra_call() {
    let Some(ec2) =
        FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let theirs = fleet(&ec2, &aws, "bob", "bobs-444444", 230).await;
    watch(&ec2, "bob", &theirs);
    let ours = fleet(&ec2, &aws, OWNER, "mine-333333", 3).await;
    watch(&ec2, OWNER, &ours);
    let of_ours_gone = &ours[0];
    for gone in [&theirs[..15], &ours[..1]].concat() {
        ec2.ask("TerminateInstances", &[("InstanceId.1", &gone)]).unwrap();
    }
    ec2.latency(std::time::Duration::from_millis(40));
    ec2.take_calls();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let calls = ec2.take_calls();
    let [alarm] = find(&all, "alarm")[..] else { panic!("one alarm: {all:?}") };
    assert!(alarm.id.contains(of_ours_gone), "{alarm:?}");
    let tags = calls_of(&calls, "ListTagsForResource");
    assert_eq!(tags.len(), 16, "those of machines that are gone: fifteen of bob's, one of ours");
    let at_once = tags
        .iter()
        .map(|one| {
            tags.iter().filter(|other| other.began <= one.began && one.began < other.ended).count()
        })
        .max();
    assert!(
        rounds(tags.iter().copied()) <= 8 && at_once <= Some(4),
        "some at once, and not all: {at_once:?} at once"
    );
    let looks = calls_of(&calls, "DescribeInstances");
    assert_eq!(looks.len(), 3, "ours; and 231 machines by their ids, 200 a call");
}

/// Another sweep was quicker, or the first of two calls was carried out and nobody heard of it.
#[tokio::test]
async fn what_is_gone_already_is_removed() {
    let Some(ec2) =
        FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let id = guarded(&aws).await;
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    make(
        &ec2,
        "CreateVolume",
        &[("Size", "100"), ("AvailabilityZone", "us-east-1a")],
        tagged("volume", OWNER),
        "volumeId",
    );
    make(
        &ec2,
        "AllocateAddress",
        &[("Domain", "vpc")],
        tagged("elastic-ip", OWNER),
        "allocationId",
    );
    let subnets = ec2.ask("DescribeSubnets", &[]).unwrap();
    let subnet = [("SubnetId", subnets.items("subnetSet")[0].at("subnetId"))];
    make(
        &ec2,
        "CreateNetworkInterface",
        &subnet,
        tagged("network-interface", OWNER),
        "networkInterfaceId",
    );
    let all = aws.residue(OWNER, &region()).await.unwrap();
    assert_eq!(
        ["volume", "address", "network interface", "alarm"].map(|kind| find(&all, kind).len()),
        [1, 1, 1, 1],
        "{all:?}"
    );

    // The answer is lost, so the same call is made again, of what is no longer there.
    let calls = [
        ("volume", "DeleteVolume", "InvalidVolume.NotFound"),
        ("address", "ReleaseAddress", "InvalidAllocationID.NotFound"),
        ("network interface", "DeleteNetworkInterface", "InvalidNetworkInterfaceID.NotFound"),
    ];
    for (kind, action, code) in calls {
        ec2.take_calls();
        ec2.fault(Fault::lost(action));
        aws.clear(find(&all, kind)[0]).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let told: Vec<String> = ec2
            .take_calls()
            .into_iter()
            .filter(|call| call.action == action)
            .map(|call| call.code)
            .collect();
        assert_eq!(told, ["", code], "{kind}");
    }
    // Another sweep has removed it, its tags with it; an alarm has none to read.
    ec2.fault(Fault::code("DeleteAlarms", "ResourceNotFound").after());
    for one in &all {
        aws.clear(one).await.unwrap_or_else(|error| panic!("{one:?}: {error}"));
    }
    let request = Residue { kind: "spot request".into(), ..find(&all, "volume")[0].clone() };
    aws.clear(&request).await.unwrap();
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), []);
    // Shown, and without any owner now: nobody's to remove.
    let bare = make(
        &ec2,
        "CreateVolume",
        &[("Size", "100"), ("AvailabilityZone", "us-east-1a")],
        tagged("volume", OWNER),
        "volumeId",
    );
    let all = aws.residue(OWNER, &region()).await.unwrap();
    ec2.ask("DeleteTags", &[("ResourceId.1", &bare), ("Tag.1.Key", "lamplighter:owner")]).unwrap();
    assert_eq!(kind(&aws.clear(&all[0]).await.unwrap_err()), "denied");
}

/// EC2 shows a request before its machine: in between it looks as if it had none.
#[tokio::test]
async fn request_is_cancelled_only_if_ours_and_its_machine_ended() {
    let Some(ec2) =
        FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    ec2.unseen(std::time::Duration::from_secs(600));
    let id = aws.launch(&plan("token-1", Market::Spot)).await.unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [request] = &all[..] else { panic!("its request, and not the machine: {all:?}") };
    assert_eq!(
        kind(&aws.clear(request).await.unwrap_err()),
        "ambiguous",
        "the machine is not shown yet"
    );
    ec2.unseen(std::time::Duration::ZERO);
    assert_eq!(kind(&aws.clear(request).await.unwrap_err()), "invalid", "it is, and lives");
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), [], "so nothing is left over");
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    aws.clear(request).await.unwrap();
    assert_eq!(
        ec2.calls_of("CancelSpotInstanceRequests").len(),
        0,
        "it was closed with its machine"
    );

    ec2.asks_again(&id);
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [request] = &all[..] else { panic!("its request: {all:?}") };
    let give = |owner| {
        ec2.ask(
            "CreateTags",
            &[
                ("ResourceId.1", &request.id),
                ("Tag.1.Key", "lamplighter:owner"),
                ("Tag.1.Value", owner),
            ],
        )
        .unwrap()
    };
    give("you");
    assert_eq!(kind(&aws.clear(request).await.unwrap_err()), "denied", "somebody else's by now");
    assert_eq!(ec2.calls_of("CancelSpotInstanceRequests").len(), 0);
    give(OWNER);
    aws.clear(request).await.unwrap();
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), []);
}

#[tokio::test]
async fn alarm_that_is_somebody_elses_by_now_stays() {
    let Some(ec2) =
        FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let id = guarded(&aws).await;
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [alarm] = &all[..] else { panic!("its alarm: {all:?}") };
    let told = ec2.ask_cloudwatch("DescribeAlarms", &[]).unwrap();
    let arn = told.all("AlarmArn")[0].text.clone();
    let give = |owner| {
        let tag = [
            ("ResourceARN", arn.as_str()),
            ("Tags.member.1.Key", "lamplighter:owner"),
            ("Tags.member.1.Value", owner),
        ];
        ec2.ask_cloudwatch("TagResource", &tag).expect("tagged");
    };
    give("you");
    assert_eq!(kind(&aws.clear(alarm).await.unwrap_err()), "denied");
    assert_eq!(ec2.calls_of("DeleteAlarms").len(), 0);
    give(OWNER);
    // Between the look and its tags another sweep was quicker.
    ec2.fault(Fault::code("ListTagsForResource", "ResourceNotFoundException"));
    aws.clear(alarm).await.unwrap();
    assert_eq!(ec2.calls_of("DeleteAlarms").len(), 0);
    aws.clear(alarm).await.unwrap();
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), []);
}

#[tokio::test]
async fn kept_disk_is_listed_not_removed_and_a_partial_list_fails() {
    let Some(ec2) = FalseEc2::start(Options {
        pending: std::time::Duration::ZERO,
        stopping: std::time::Duration::ZERO,
        managed: false,
    }) else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let id = aws.launch(&plan("token-1", Market::OnDemand)).await.unwrap();
    aws.stop(&machine(&id)).await.unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [disk] = find(&all, "volume")[..] else { panic!("one disk: {all:?}") };
    assert_eq!(
        (disk.detail.as_str(), disk.usd_per_month),
        (format!("120 GiB, kept by the stopped {id}").as_str(), Usd::from_micros(9_600_000))
    );
    assert!(aws.clear(disk).await.is_err(), "EC2 itself refuses a disk that is in use");
    // `lamp start` has given the machine to another job: its disk, which still has the tags of its
    // launch, is that one's.
    let (first, next) = (disk.job.clone(), "another-222222".parse::<JobId>().unwrap());
    ec2.ask(
        "CreateTags",
        &[("ResourceId.1", &id), ("Tag.1.Key", "lamplighter:job"), ("Tag.1.Value", next.as_str())],
    )
    .unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [disk] = find(&all, "volume")[..] else { panic!("one disk: {all:?}") };
    assert_eq!(
        (first.as_ref().is_some_and(|first| *first != next), disk.job.as_ref()),
        (true, Some(&next))
    );
    // And whoever asks for one of the two is told so.
    let (first, machines) = (first.expect("it has its tags"), BTreeSet::from([id.clone()]));
    assert_eq!(
        aws.residue_of(OWNER, &region(), &next, &machines).await.unwrap(),
        std::slice::from_ref(disk)
    );
    assert_eq!(aws.residue_of(OWNER, &region(), &first, &machines).await.unwrap(), []);
    for action in [
        "DescribeVolumes",
        "DescribeAddresses",
        "DescribeNetworkInterfaces",
        "DescribeSpotInstanceRequests",
        "DescribeAlarms",
        "DescribeInstances",
    ] {
        ec2.fault(Fault::code(action, "UnauthorizedOperation").always());
        assert!(aws.residue(OWNER, &region()).await.is_err(), "{action}");
        assert!(aws.residue_of(OWNER, &region(), &next, &machines).await.is_err(), "{action}");
        ec2.mend();
    }
}
