//! What machines left behind: found whole, priced, and removed only when it is ours and in use by nothing.

use lamplighter::adapters::aws_cloud::AwsCloud;
use lamplighter::instance::Residue;
use lamplighter::job::{AlarmRule, JobId};
use lamplighter::market::{Market, Usd};
use lamplighter::ports::Cloud;

use crate::aws::{OWNER, kind, machine, plan, region, session};
use crate::ec2::{FalseEc2, Fault, Options};

/// Parameters that tag a new thing as this owner's.
fn tagged(kind: &str, owner: &str) -> Vec<(String, String)> {
    let pairs = [("ResourceType", kind), ("Tag.1.Key", "lamplighter:owner"), ("Tag.1.Value", owner)];
    pairs.map(|(key, value)| (format!("TagSpecification.1.{key}"), value.to_owned())).to_vec()
}

fn make(ec2: &FalseEc2, action: &str, params: &[(&str, &str)], tags: Vec<(String, String)>, id: &str) -> String {
    let params = params.iter().copied().chain(tags.iter().map(|(key, value)| (key.as_str(), value.as_str()))).collect::<Vec<_>>();
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
    let Some(ec2) = FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() }) else { return };
    let aws = AwsCloud::new(session(&ec2));
    let id = guarded(&aws).await;
    assert_eq!(aws.residue(OWNER, &region()).await.unwrap(), [], "a living machine uses all of it");

    let volume = |owner| make(&ec2, "CreateVolume", &[("Size", "100"), ("AvailabilityZone", "us-east-1a")], tagged("volume", owner), "volumeId");
    let (ours, theirs) = (volume(OWNER), volume("you"));
    let address = make(&ec2, "AllocateAddress", &[("Domain", "vpc")], tagged("elastic-ip", OWNER), "allocationId");
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
    ec2.ask("CreateTags", &[("ResourceId.1", &mine), ("Tag.1.Key", "lamplighter:owner"), ("Tag.1.Value", "you")]).unwrap();
    assert_eq!(kind(&aws.clear(&all[0]).await.unwrap_err()), "denied");
    assert_eq!(kind(&aws.clear(&Residue { ours: false, ..disk.clone() }).await.unwrap_err()), "denied");
    assert_eq!(ec2.ask("DescribeVolumes", &[]).unwrap().all("volumeId").iter().filter(|one| one.text == theirs).count(), 1);
}

/// Another sweep was quicker, or the first of two calls was carried out and nobody heard of it.
#[tokio::test]
async fn what_is_gone_already_is_removed() {
    let Some(ec2) = FalseEc2::start(Options { stopping: std::time::Duration::ZERO, ..Options::default() }) else { return };
    let aws = AwsCloud::new(session(&ec2));
    let id = guarded(&aws).await;
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    make(&ec2, "CreateVolume", &[("Size", "100"), ("AvailabilityZone", "us-east-1a")], tagged("volume", OWNER), "volumeId");
    make(&ec2, "AllocateAddress", &[("Domain", "vpc")], tagged("elastic-ip", OWNER), "allocationId");
    let subnets = ec2.ask("DescribeSubnets", &[]).unwrap();
    let subnet = [("SubnetId", subnets.items("subnetSet")[0].at("subnetId"))];
    make(&ec2, "CreateNetworkInterface", &subnet, tagged("network-interface", OWNER), "networkInterfaceId");
    let all = aws.residue(OWNER, &region()).await.unwrap();
    assert_eq!(["volume", "address", "network interface", "alarm"].map(|kind| find(&all, kind).len()), [1, 1, 1, 1], "{all:?}");

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
        let told: Vec<String> = ec2.take_calls().into_iter().filter(|call| call.action == action).map(|call| call.code).collect();
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
    let bare = make(&ec2, "CreateVolume", &[("Size", "100"), ("AvailabilityZone", "us-east-1a")], tagged("volume", OWNER), "volumeId");
    let all = aws.residue(OWNER, &region()).await.unwrap();
    ec2.ask("DeleteTags", &[("ResourceId.1", &bare), ("Tag.1.Key", "lamplighter:owner")]).unwrap();
    assert_eq!(kind(&aws.clear(&all[0]).await.unwrap_err()), "denied");
}

#[tokio::test]
async fn a_kept_disk_is_told_of_and_not_removed_and_half_a_list_is_none() {
    let Some(ec2) = FalseEc2::start(Options { pending: std::time::Duration::ZERO, stopping: std::time::Duration::ZERO, managed: false }) else {
        return;
    };
    let aws = AwsCloud::new(session(&ec2));
    let id = aws.launch(&plan("token-1", Market::OnDemand)).await.unwrap();
    aws.stop(&machine(&id)).await.unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [disk] = find(&all, "volume")[..] else { panic!("one disk: {all:?}") };
    assert_eq!((disk.detail.as_str(), disk.usd_per_month), (format!("120 GiB, kept by the stopped {id}").as_str(), Usd::from_micros(9_600_000)));
    assert!(aws.clear(disk).await.is_err(), "EC2 itself refuses a disk that is in use");
    // `lamp start` has given the machine to another job: its disk, which still has the tags of its launch, is that one's.
    let (first, next) = (disk.job.clone(), "another-222222".parse::<JobId>().unwrap());
    ec2.ask("CreateTags", &[("ResourceId.1", &id), ("Tag.1.Key", "lamplighter:job"), ("Tag.1.Value", next.as_str())]).unwrap();
    let all = aws.residue(OWNER, &region()).await.unwrap();
    let [disk] = find(&all, "volume")[..] else { panic!("one disk: {all:?}") };
    assert_eq!((first.is_some_and(|first| first != next), disk.job.as_ref()), (true, Some(&next)));
    for action in
        ["DescribeVolumes", "DescribeAddresses", "DescribeNetworkInterfaces", "DescribeSpotInstanceRequests", "DescribeAlarms", "DescribeInstances"]
    {
        ec2.fault(Fault::code(action, "UnauthorizedOperation").always());
        assert!(aws.residue(OWNER, &region()).await.is_err(), "{action}");
        ec2.mend();
    }
}
