//! Terminate, stop, start and the hard cap: of our machines only, and repeated until they are done.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::market::Market;
use lamplighter::ports::Cloud;

use crate::aws::{chain, cloud, is_going, kind, launched, machine, plan, views};
use lamp_test_support::ec2::{FalseEc2, Fault, Options, State};

const AT_ONCE: Options =
    Options { pending: Duration::ZERO, stopping: Duration::from_millis(200), managed: false };

#[tokio::test]
async fn ours_ends_and_others_are_not_touched() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    let foreign = launched(&aws, "token-2", Market::OnDemand).await;
    // Between the caller's look and the call somebody took it over.
    ec2.tag(&foreign, &BTreeMap::from([("owner".to_owned(), "somebody".to_owned())]));
    let error = aws.terminate(&machine(&foreign)).await.unwrap_err();
    assert!(
        kind(&error) == "denied" && chain(&error).contains("`lamplighter:owner` is missing"),
        "{}",
        chain(&error)
    );
    assert!(
        aws.stop(&machine(&foreign)).await.is_err()
            && aws.raise_kill_at(&machine(&foreign), Timestamp::MAX).await.is_err()
    );
    assert!(aws.start(&machine(&foreign), &plan("t", Market::OnDemand)).await.is_err());
    assert_eq!(ec2.instance(&foreign).state, State::Running);
    let touching = [
        "TerminateInstances",
        "StopInstances",
        "StartInstances",
        "CreateTags",
        "ModifyInstanceAttribute",
    ];
    assert!(touching.iter().all(|action| ec2.calls_of(action).is_empty()));

    aws.terminate(&machine(&id)).await.unwrap();
    aws.terminate(&machine(&id)).await.unwrap();
    assert!(is_going(ec2.instance(&id).state));
    ec2.advance(Duration::from_secs(1));
    // It has ended, and EC2 has taken its tags.
    ec2.tag(&id, &BTreeMap::new());
    aws.terminate(&machine(&id)).await.unwrap();
}

/// It has been shutting down for longer than EC2 takes: the next call forces it, and none before.
#[tokio::test]
async fn an_end_that_hangs_for_ten_minutes_is_forced_by_the_next_call() {
    let Some(ec2) = FalseEc2::start(Options { stopping: Duration::from_secs(3600), ..AT_ONCE })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    aws.terminate(&machine(&id)).await.unwrap();
    for minutes in [9, 11] {
        ec2.hangs_for(&id, Duration::from_secs(60 * minutes));
        assert_eq!(ec2.instance(&id).state, State::ShuttingDown);
        aws.terminate(&machine(&id)).await.unwrap();
    }
    let forced: Vec<_> = ec2
        .calls_of("TerminateInstances")
        .iter()
        .map(|call| ["Force", "SkipOsShutdown"].map(|word| call.params.get(word).cloned()))
        .collect();
    let yes = || Some("true".to_owned());
    assert_eq!(forced, [[None, None], [None, None], [yes(), yes()]]);
}

/// Somebody else's Lamplighter took it over between the look and the act: all of our tags are
/// there, and another owner's name.
#[tokio::test]
async fn another_owners_tags_are_not_ours() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let aws = cloud(&ec2);
    let shown = launched(&aws, "token-1", Market::OnDemand).await;
    assert_eq!(views(&aws).await.len(), 1);
    let theirs: BTreeMap<String, String> = ec2.instance(&shown).tags;
    for owner in ["somebody", "Me", "me ", "m*"] {
        ec2.tag(
            &shown,
            &theirs
                .clone()
                .into_iter()
                .chain([("lamplighter:owner".to_owned(), owner.to_owned())])
                .collect(),
        );
        let error = aws.terminate(&machine(&shown)).await.unwrap_err();
        assert!(
            kind(&error) == "denied"
                && chain(&error).contains(&format!("`lamplighter:owner` says `{owner}`")),
            "{}",
            chain(&error)
        );
        assert!(
            aws.stop(&machine(&shown)).await.is_err()
                && aws.raise_kill_at(&machine(&shown), Timestamp::MAX).await.is_err()
        );
        assert!(aws.start(&machine(&shown), &plan("t", Market::OnDemand)).await.is_err());
    }
    assert_eq!(ec2.instance(&shown).state, State::Running);
    let touching = [
        "TerminateInstances",
        "StopInstances",
        "StartInstances",
        "CreateTags",
        "ModifyInstanceAttribute",
    ];
    assert!(touching.iter().all(|action| ec2.calls_of(action).is_empty()));
    ec2.tag(&shown, &theirs);
    aws.terminate(&machine(&shown)).await.unwrap();
    assert!(is_going(ec2.instance(&shown).state));
}

#[tokio::test]
async fn protection_of_ours_is_cleared() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    ec2.ask(
        "ModifyInstanceAttribute",
        &[("InstanceId", &id), ("DisableApiTermination.Value", "true")],
    )
    .unwrap();
    assert_eq!(
        ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).unwrap_err().1,
        "OperationNotPermitted"
    );
    aws.terminate(&machine(&id)).await.unwrap();
    assert!(is_going(ec2.instance(&id).state));
    // It may be that only an administrator can clear it.
    let other = launched(&aws, "token-2", Market::OnDemand).await;
    ec2.ask(
        "ModifyInstanceAttribute",
        &[("InstanceId", &other), ("DisableApiTermination.Value", "true")],
    )
    .unwrap();
    ec2.fault(Fault::code("ModifyInstanceAttribute", "UnauthorizedOperation"));
    assert_eq!(kind(&aws.terminate(&machine(&other)).await.unwrap_err()), "denied");
}

#[tokio::test]
async fn a_persistent_request_is_cancelled_before_its_machine_ends() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let mut params: Vec<(String, String)> = [
        ("ImageId", crate::aws::IMAGE),
        ("InstanceType", "g5.xlarge"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("InstanceMarketOptions.MarketType", "spot"),
        ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "persistent"),
        ("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "stop"),
        ("TagSpecification.1.ResourceType", "instance"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec();
    for (n, (key, value)) in plan("t", Market::Spot).tags.into_iter().enumerate() {
        params.push((format!("TagSpecification.1.Tag.{}.Key", n + 1), key));
        params.push((format!("TagSpecification.1.Tag.{}.Value", n + 1), value));
    }
    let params: Vec<(&str, &str)> =
        params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let made = ec2.ask("RunInstances", &params).unwrap();
    let id = made.all("instanceId")[0].text.clone();
    let aws = cloud(&ec2);
    // Whole tags say that it is somebody's launch; whose it is must have been looked for.
    assert_eq!(kind(&aws.terminate(&machine(&id)).await.unwrap_err()), "ambiguous");
    assert_eq!(views(&aws).await.len(), 1);
    // Its state changes just now: nothing is ended before the request is surely cancelled.
    ec2.fault(Fault::code("CancelSpotInstanceRequests", "IncorrectSpotRequestState"));
    let error = aws.terminate(&machine(&id)).await.unwrap_err();
    assert!(
        kind(&error) == "ambiguous" && chain(&error).contains("IncorrectSpotRequestState"),
        "{}",
        chain(&error)
    );
    assert!(
        ec2.calls_of("TerminateInstances").is_empty() && ec2.instance(&id).state == State::Running
    );
    ec2.take_calls();
    aws.terminate(&machine(&id)).await.unwrap();
    let calls: Vec<String> = ec2
        .calls()
        .into_iter()
        .map(|call| call.action)
        .filter(|action| !action.starts_with("Describe"))
        .collect();
    assert_eq!(calls, ["CancelSpotInstanceRequests", "TerminateInstances"]);

    // It is somebody else's, and may not be cancelled: the machine ends all the same, and they hear
    // of the request.
    let made = ec2.ask("RunInstances", &params).unwrap();
    let id = made.all("instanceId")[0].text.clone();
    assert_eq!(views(&aws).await.len(), 2);
    ec2.fault(Fault::code("CancelSpotInstanceRequests", "UnauthorizedOperation"));
    let error = aws.terminate(&machine(&id)).await.unwrap_err();
    let text = chain(&error);
    assert!(
        kind(&error) == "ended, and may come back"
            && text.starts_with(&format!("{id} is ended, and may come back: ")),
        "{text}"
    );
    assert!(
        text.contains("the persistent spot request of") && text.contains("UnauthorizedOperation"),
        "{text}"
    );
    assert!(is_going(ec2.instance(&id).state), "it bills no more");

    // A one-time request needs none.
    let id = launched(&aws, "token-1", Market::Spot).await;
    ec2.take_calls();
    aws.terminate(&machine(&id)).await.unwrap();
    assert!(
        ec2.calls_of("CancelSpotInstanceRequests").is_empty() && is_going(ec2.instance(&id).state)
    );
}

#[tokio::test]
async fn not_found_is_not_gone() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let aws = cloud(&ec2);
    ec2.unseen(Duration::from_secs(60));
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    for _ in 0..2 {
        let error = aws.terminate(&machine(&id)).await.unwrap_err();
        assert!(
            kind(&error) == "ambiguous" && chain(&error).contains("InvalidInstanceID.NotFound"),
            "{}",
            chain(&error)
        );
    }
    assert_eq!(kind(&aws.stop(&machine(&id)).await.unwrap_err()), "ambiguous");
    ec2.advance(Duration::from_secs(61));
    aws.terminate(&machine(&id)).await.unwrap();
    assert!(is_going(ec2.instance(&id).state));
}

#[tokio::test]
async fn on_demand_stops_and_starts_and_spot_is_only_ended() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    aws.stop(&machine(&id)).await.unwrap();
    aws.stop(&machine(&id)).await.unwrap();
    ec2.advance(Duration::from_secs(1));
    assert_eq!(ec2.instance(&id).state, State::Stopped);
    aws.stop(&machine(&id)).await.unwrap();

    // The next attempt has its own number and no cap.
    let mut next = plan("token-1", Market::OnDemand);
    next.tags.insert("lamplighter:attempt".into(), "0002".into());
    next.tags.remove("lamplighter:kill-at");
    // By a process that has not looked for anything: whose the plan is, the machine must be.
    let theirs = {
        let mut theirs = next.clone();
        theirs.tags.insert("lamplighter:owner".into(), "bob".into());
        theirs
    };
    assert_eq!(kind(&cloud(&ec2).start(&machine(&id), &theirs).await.unwrap_err()), "denied");
    cloud(&ec2).start(&machine(&id), &next).await.unwrap();
    assert_eq!(ec2.instance(&id).state, State::Running);
    let view = &views(&aws).await[0];
    assert_eq!((view.tags.attempt.number(), view.tags.kill_at), (2, None));

    // A type of machine that EC2 does not stop: it is said, and it is not ended in place of that.
    ec2.fault(Fault::code("StopInstances", "UnsupportedOperation"));
    let error = aws.stop(&machine(&id)).await.unwrap_err();
    assert!(
        kind(&error) == "unstoppable"
            && error
                .to_string()
                .contains("cannot be stopped, only terminated (UnsupportedOperation"),
        "{error}"
    );
    assert!(
        ec2.calls_of("TerminateInstances").is_empty() && ec2.instance(&id).state == State::Running
    );

    let spot = launched(&aws, "token-2", Market::Spot).await;
    ec2.take_calls();
    let error = aws.stop(&machine(&spot)).await.unwrap_err();
    assert!(
        kind(&error) == "unstoppable" && error.to_string().contains("can only be terminated"),
        "{error}"
    );
    assert!(ec2.calls_of("StopInstances").is_empty());
}

#[tokio::test]
async fn hard_cap_is_raised_and_never_lowered() {
    let Some(ec2) = FalseEc2::start(AT_ONCE) else { return };
    let aws = cloud(&ec2);
    let id = launched(&aws, "token-1", Market::OnDemand).await;
    let cap = |id: &str| ec2.instance(id).tags.get("lamplighter:kill-at").cloned();
    let (lower, higher): (Timestamp, Timestamp) =
        ("2029-12-31T00:00:00Z".parse().unwrap(), "2030-01-02T00:00:00Z".parse().unwrap());
    aws.raise_kill_at(&machine(&id), lower).await.unwrap();
    assert_eq!(cap(&id).as_deref(), Some("2030-01-01T00:00:00Z"));
    aws.raise_kill_at(&machine(&id), higher).await.unwrap();
    assert_eq!(cap(&id).as_deref(), Some("2030-01-02T00:00:00Z"));
    assert_eq!(ec2.calls_of("CreateTags").len(), 1);
}
