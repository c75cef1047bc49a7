//! Switch C: an alarm for a machine that publishes, armed once, gone with its machine.

use jiff::SignedDuration;
use lamplighter::job::{AlarmRule, Plan, Shutdown, Starts};
use lamplighter::market::Market;
use lamplighter::ports::Cloud;

use crate::aws::{chain, cloud, is_going, kind, machine, plan};
use lamp_test_support::ec2::{FalseEc2, Fault, Node, Options};

/// As the agent publishes it.
fn beat(ec2: &FalseEc2, id: &str) {
    beat_of(ec2, id, SignedDuration::from_secs(-60));
}

/// A heartbeat of so long from now.
fn beat_of(ec2: &FalseEc2, id: &str, after: SignedDuration) {
    let at = (jiff::Timestamp::now() + after).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let datum = [
        ("Timestamp", at.as_str()),
        ("MetricName", "Heartbeat"),
        ("Dimensions.member.1.Name", "InstanceId"),
        ("Dimensions.member.1.Value", id),
        ("StatisticValues.SampleCount", "1"),
        ("StatisticValues.Sum", "1"),
        ("StatisticValues.Minimum", "1"),
        ("StatisticValues.Maximum", "1"),
    ];
    let datum = datum.map(|(name, value)| (format!("MetricData.member.1.{name}"), value));
    let params: Vec<_> = [("Namespace", "Lamplighter")]
        .into_iter()
        .chain(datum.iter().map(|(name, value)| (name.as_str(), *value)))
        .collect();
    ec2.ask_cloudwatch("PutMetricData", &params).expect("published");
}

fn alarms(ec2: &FalseEc2) -> Vec<Node> {
    let told = ec2.ask_cloudwatch("DescribeAlarms", &[]).expect("told");
    told.all("MetricAlarms").into_iter().flat_map(|set| set.children.clone()).collect()
}

fn at<'a>(alarm: &'a Node, names: &[&str]) -> Vec<&'a str> {
    names.iter().map(|name| alarm.at(name)).collect()
}

fn watched(token: &str, market: Market, alarm: &str) -> Plan {
    let mut plan = plan(token, market);
    plan.launch.as_mut().unwrap().alarm = Some(alarm.parse::<AlarmRule>().unwrap());
    plan
}

#[tokio::test]
async fn machine_is_armed_once_its_first_heartbeat_has_arrived() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let plan = watched("token-1", Market::Spot, "heartbeat");
    let id = aws.launch(&plan).await.unwrap();
    let other = aws.launch(&watched("token-2", Market::Spot, "heartbeat")).await.unwrap();
    beat(&ec2, &other);
    let error = aws.guard(&plan, &machine(&id)).await.unwrap_err();
    assert!(
        kind(&error) == "ambiguous" && chain(&error).contains("no whole minute with a heartbeat"),
        "{}",
        chain(&error)
    );
    assert_eq!(alarms(&ec2).len(), 0, "it would be ended for what it cannot help");
    // In a minute that is not over: each of the alarm's periods would be empty.
    beat_of(&ec2, &id, SignedDuration::from_secs(60));
    assert_eq!(kind(&aws.guard(&plan, &machine(&id)).await.unwrap_err()), "ambiguous");

    beat(&ec2, &id);
    aws.guard(&plan, &machine(&id)).await.unwrap();
    aws.guard(&plan, &machine(&id)).await.unwrap();
    let all = alarms(&ec2);
    let [alarm] = all.as_slice() else { panic!("one alarm: {all:?}") };
    let name = format!("lamplighter-{id}-digits-222222-0001");
    assert_eq!(
        at(alarm, &["AlarmName", "Namespace", "MetricName", "TreatMissingData"]),
        [&name, "Lamplighter", "Heartbeat", "breaching"]
    );
    assert_eq!(
        at(alarm, &["Statistic", "ComparisonOperator", "Period", "EvaluationPeriods"]),
        ["SampleCount", "LessThanThreshold", "60", "30"]
    );
    assert_eq!(
        at(alarm, &["Threshold", "AlarmActions/member"]),
        ["1.0", "arn:aws:automate:us-east-1:ec2:terminate"]
    );
    let tags = ec2
        .ask_cloudwatch("ListTagsForResource", &[("ResourceARN", alarm.at("AlarmArn"))])
        .unwrap();
    let tags: Vec<_> = tags
        .all("member")
        .into_iter()
        .map(|tag| (tag.at("Key").to_owned(), tag.at("Value").to_owned()))
        .collect();
    assert!(
        plan.tags.iter().all(|(key, value)| tags.contains(&(key.clone(), value.clone()))),
        "{tags:?}"
    );

    // It does what it is for, and tells whose end that was.
    assert_eq!(aws.alarmed(&machine(&id)).await.unwrap(), None);
    ec2.ring(&name);
    assert!(is_going(ec2.instance(&id).state));
    let rang = aws.alarmed(&machine(&id)).await.unwrap().expect("it rang");
    assert!(jiff::Timestamp::now().duration_since(rang).as_secs() < 60, "{rang}");
    assert_eq!(
        aws.alarmed(&machine(&other)).await.unwrap(),
        None,
        "another machine's is another's"
    );
    ec2.fault(Fault::code("DescribeAlarms", "AccessDenied"));
    assert_eq!(kind(&aws.alarmed(&machine(&id)).await.unwrap_err()), "denied");
    aws.release(&machine(&id)).await.unwrap();
    aws.release(&machine(&id)).await.unwrap();
    assert_eq!(alarms(&ec2).len(), 0);
}

#[tokio::test]
async fn classic_rule_needs_no_agent_and_a_kept_disk_is_kept() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let mut plan = watched("token-1", Market::OnDemand, "cpu<=0.3 for 10m");
    plan.launch.as_mut().unwrap().shutdown = Shutdown::Stop;
    let id = aws.launch(&plan).await.unwrap();
    aws.guard(&plan, &machine(&id)).await.unwrap();
    let all = alarms(&ec2);
    let alarm = &all[0];
    assert_eq!(
        at(alarm, &["Namespace", "MetricName", "TreatMissingData", "Statistic"]),
        ["AWS/EC2", "CPUUtilization", "ignore", "Average"]
    );
    assert_eq!(at(alarm, &["Period", "EvaluationPeriods", "Threshold"]), ["300", "2", "0.3"]);
    assert_eq!(
        at(alarm, &["ComparisonOperator", "AlarmActions/member"]),
        ["LessThanOrEqualToThreshold", "arn:aws:automate:us-east-1:ec2:stop"]
    );
    // The alarm of one machine goes, that of another stays.
    let other = watched("token-2", Market::Spot, "cpu<=0.3 for 5m");
    let other_id = aws.launch(&other).await.unwrap();
    aws.guard(&other, &machine(&other_id)).await.unwrap();
    aws.release(&machine(&id)).await.unwrap();
    let left = alarms(&ec2);
    assert!(left.len() == 1 && left[0].at("AlarmName").contains(&other_id));
    assert_eq!(left[0].at("AlarmActions/member"), "arn:aws:automate:us-east-1:ec2:terminate");

    // Nothing is asked for: nothing is done. What is refused is told.
    ec2.take_calls();
    aws.guard(&crate::aws::plan("token-3", Market::Spot), &machine(&id)).await.unwrap();
    assert_eq!(ec2.take_calls().len(), 0);
    ec2.fault(Fault::code("PutMetricAlarm", "AccessDenied"));
    assert_eq!(kind(&aws.guard(&other, &machine(&other_id)).await.unwrap_err()), "denied");
}

/// Of a machine whose metrics alone are lost. Where it has rung, that is what tells who ended the
/// machine.
#[tokio::test]
async fn alarm_is_removed_from_a_living_machine_unless_it_rings() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let plan = watched("token-1", Market::Spot, "heartbeat");
    let id = machine(&aws.launch(&plan).await.unwrap());
    aws.unguard(&id).await.unwrap();
    beat(&ec2, &id.id);
    aws.guard(&plan, &id).await.unwrap();
    aws.unguard(&id).await.unwrap();
    assert_eq!(alarms(&ec2).len(), 0);
    aws.guard(&plan, &id).await.unwrap();
    ec2.ring(alarms(&ec2)[0].at("AlarmName"));
    aws.unguard(&id).await.unwrap();
    assert_eq!(alarms(&ec2).len(), 1);
    assert!(aws.alarmed(&id).await.unwrap().is_some());
    ec2.fault(Fault::code("DescribeAlarms", "AccessDenied"));
    assert_eq!(kind(&aws.unguard(&id).await.unwrap_err()), "denied");
    assert_eq!(alarms(&ec2).len(), 1, "whoever does not know whether it rings leaves it");
}

/// A machine whose last heartbeat is of a few minutes ago is started again: an alarm on five
/// minutes of silence would stop it in its boot.
#[tokio::test]
async fn alarm_is_not_armed_by_measurements_from_before_the_restart() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let started = |alarm: &str, minutes: i64| {
        let mut plan = watched("token-1", Market::OnDemand, alarm);
        let now = jiff::Timestamp::now();
        plan.starts = Some(Starts {
            job: "before-333333".parse().unwrap(),
            instance: "i-1".into(),
            launched: now - SignedDuration::from_hours(9),
            only_setup: false,
        });
        plan.created = now - SignedDuration::from_mins(minutes);
        plan
    };
    let id = machine(&aws.launch(&watched("token-1", Market::OnDemand, "off")).await.unwrap());
    beat(&ec2, &id.id);
    for (alarm, minutes, armed) in [
        ("heartbeat for 5m", -2, 0),
        ("cpu<=0.3 for 10m", 9, 0),
        ("heartbeat for 5m", 2, 1),
        ("cpu<=0.3 for 10m", 11, 1),
    ] {
        let told = aws.guard(&started(alarm, minutes), &id).await;
        assert_eq!(
            (told.is_ok(), alarms(&ec2).len()),
            (armed == 1, armed),
            "{alarm}, started {minutes} min ago: {told:?}"
        );
        aws.release(&id).await.unwrap();
    }
}
