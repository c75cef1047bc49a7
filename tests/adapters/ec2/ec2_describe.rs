//! What is read of our machines: all pages, nobody else's, and why and when they ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::InstanceState;
use lamplighter::market::Market;
use lamplighter::ports::Cloud;

use crate::aws::{OWNER, cloud, kind, launched, machine, plan, region, views};
use lamp_test_support::ec2::{FalseEc2, Fault, Options};

#[tokio::test]
async fn all_pages_are_read_and_others_machines_are_left_out() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    let copies = ec2.multiply(&id, 2100);
    ec2.take_calls();
    let all = views(&aws).await;
    assert_eq!((all.len(), ec2.take_calls().len()), (2101, 3));
    let one = all.iter().find(|view| view.id == id).unwrap();
    assert_eq!(
        (one.state, one.market, one.instance_type.as_str()),
        (InstanceState::Running, Market::OnDemand, "g5.xlarge")
    );
    assert_eq!((one.client_token.as_deref(), one.ended), (Some("token-1"), None));
    assert_eq!(one.tags.to_map(), plan("token-1", Market::OnDemand).tags);
    assert!((Timestamp::now().duration_since(one.launched)).abs() < SignedDuration::from_mins(1));

    // Somebody else's; one that only looks like ours; one whose tags are damaged.
    let mut tags = plan("x", Market::OnDemand).tags;
    tags.insert("lamplighter:owner".into(), "you".into());
    ec2.tag(&copies[0], &tags);
    ec2.tag(&copies[1], &BTreeMap::from([("lamplighter:owner".to_owned(), OWNER.to_owned())]));
    tags.insert("lamplighter:owner".into(), OWNER.into());
    tags.insert("lamplighter:kill-at".into(), "soon".into());
    ec2.tag(&copies[2], &tags);
    let all = views(&aws).await;
    assert_eq!(all.len(), 2098);
    assert!(copies[..3].iter().all(|copy| all.iter().all(|view| view.id != *copy)));
}

#[tokio::test]
async fn page_that_is_missing_is_an_error() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    ec2.multiply(&id, 1500);
    ec2.fault(Fault::code("DescribeInstances", "RequestLimitExceeded").skip(1).always());
    let error = aws.describe(OWNER, &region()).await.unwrap_err();
    assert_eq!(kind(&error), "throttled");
    ec2.mend();
    ec2.fault(Fault::code("DescribeInstances", "UnauthorizedOperation"));
    assert_eq!(kind(&aws.describe(OWNER, &region()).await.unwrap_err()), "denied");
}

/// Only those, from all pages; and who may not ask does not know.
#[tokio::test]
async fn machines_whose_hosts_fail_are_told() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    let other = launched(&aws, "token-2", Market::OnDemand).await;
    assert_eq!(aws.failing_hosts(&region()).await.unwrap(), BTreeSet::new());
    ec2.impair(&other, true);
    assert_eq!(aws.failing_hosts(&region()).await.unwrap(), BTreeSet::from([other]));
    ec2.impair(&id, true);
    let copies = ec2.multiply(&id, 1500);
    assert_eq!(aws.failing_hosts(&region()).await.unwrap().len(), 2 + copies.len());
    ec2.fault(Fault::code("DescribeInstanceStatus", "UnauthorizedOperation"));
    assert_eq!(kind(&aws.failing_hosts(&region()).await.unwrap_err()), "denied");
}

#[tokio::test]
async fn it_says_when_and_why_a_machine_ended() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let by_hand = launched(&aws, "token-1", Market::OnDemand).await;
    let by_itself = launched(&aws, "token-2", Market::OnDemand).await;
    let taken = launched(&aws, "token-3", Market::Spot).await;
    ec2.ask("TerminateInstances", &[("InstanceId.1", &by_hand)]).unwrap();
    ec2.powered_off(&by_itself);
    ec2.interrupt(&taken, Duration::from_secs(120));
    // The request is ahead of the machine, which runs.
    let seen = views(&aws).await;
    let of = |views: &[_], id: &str| {
        views
            .iter()
            .find(|view: &&lamplighter::instance::InstanceView| view.id == *id)
            .unwrap()
            .clone()
    };
    assert_eq!(
        (of(&seen, &taken).state, of(&seen, &taken).state_reason),
        (InstanceState::Running, None)
    );
    let ended = of(&seen, &by_hand).ended.expect("it says when");
    assert!(Timestamp::now().duration_since(ended).abs() < SignedDuration::from_mins(1));
    assert_eq!(of(&seen, &by_hand).state_reason.as_deref(), Some("Client.UserInitiatedShutdown"));

    ec2.advance(Duration::from_secs(130));
    ec2.advance(Duration::from_secs(5));
    let seen = views(&aws).await;
    assert_eq!(of(&seen, &by_itself).state, InstanceState::Terminated);
    assert_eq!(
        of(&seen, &by_itself).state_reason.as_deref(),
        Some("Client.InstanceInitiatedShutdown")
    );
    let reason = of(&seen, &taken).state_reason.unwrap();
    assert_eq!(reason, "Server.SpotInstanceTermination: instance-terminated-no-capacity");
    // A request that has ended is asked once.
    ec2.take_calls();
    assert_eq!(of(&views(&aws).await, &taken).state_reason.unwrap(), reason);
    assert_eq!(ec2.take_calls().len(), 1);
    // Without that answer EC2's own reason stays, and the rest is known.
    let other = cloud(&ec2);
    ec2.fault(Fault::code("DescribeSpotInstanceRequests", "UnauthorizedOperation").always());
    assert_eq!(
        of(&views(&other).await, &taken).state_reason.as_deref(),
        Some("Server.SpotInstanceTermination")
    );
}

#[tokio::test]
async fn what_is_not_shown_by_tag_is_looked_for_by_its_token() {
    let Some(ec2) = FalseEc2::start(Options { stopping: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let plan = plan("token-1", Market::OnDemand);
    aws.confirm_missing(&plan).await.unwrap();
    let id = aws.launch(&plan).await.unwrap();
    ec2.tag(&id, &BTreeMap::new());
    assert_eq!(views(&aws).await, []);
    let error = aws.confirm_missing(&plan).await.unwrap_err();
    assert_eq!(kind(&error), "ambiguous", "it bills: it is not gone");
    ec2.fault(Fault::code("DescribeInstances", "RequestLimitExceeded").always());
    assert_eq!(kind(&aws.confirm_missing(&plan).await.unwrap_err()), "throttled");
    ec2.mend();
    ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    // EC2 takes the tags off a machine that has ended, and tells of its end for an hour.
    let ended = aws.confirm_missing(&plan).await.unwrap().expect("it is told of");
    assert_eq!(
        (ended.id, ended.state, ended.tags.attempt),
        (id, InstanceState::Terminated, plan.attempt)
    );
    assert!(
        ended.ended.is_some()
            && ended.state_reason.as_deref() == Some("Client.UserInitiatedShutdown")
    );
    assert_eq!(
        kind(&aws.terminate(&machine("i-0123456789abcdef0")).await.unwrap_err()),
        "ambiguous",
        "an id that nobody knows"
    );
}
