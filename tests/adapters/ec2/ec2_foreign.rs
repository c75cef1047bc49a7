//! GPU machines that nobody of ours launched: seen with their use, and only seen.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lamplighter::market::Market;
use lamplighter::ports::Cloud;

use crate::aws::{IMAGE, OWNER, cloud, launched, region};
use lamp_test_support::ec2::{FalseEc2, Fault, Options, State};

#[tokio::test]
async fn forgotten_machine_is_seen_with_its_use() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    launched(&aws, "token-1", Market::Spot).await;
    let launch = |kind: &str| {
        let params =
            [("ImageId", IMAGE), ("InstanceType", kind), ("MinCount", "1"), ("MaxCount", "1")];
        ec2.ask("RunInstances", &params).unwrap().all("instanceId")[0].text.clone()
    };
    let (idle, silent, _small) = (launch("g5.xlarge"), launch("p3.2xlarge"), launch("t3.nano"));
    // Two measurements of the last hours, of which the mean counts.
    for (ago, percent) in [(1, "0.5"), (2, "1.5")] {
        let at = (Timestamp::now() - SignedDuration::from_hours(ago))
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let datum = [
            ("Namespace", "AWS/EC2"),
            ("MetricData.member.1.MetricName", "CPUUtilization"),
            ("MetricData.member.1.Dimensions.member.1.Name", "InstanceId"),
            ("MetricData.member.1.Dimensions.member.1.Value", &idle),
            ("MetricData.member.1.Timestamp", &at),
            ("MetricData.member.1.Value", percent),
        ];
        ec2.ask_cloudwatch("PutMetricData", &datum).unwrap();
    }
    let found = aws.foreign(OWNER, &region()).await.unwrap();
    let mut seen: Vec<_> = found
        .iter()
        .map(|one| (one.id.as_str(), one.instance_type.as_str(), one.cpu_percent))
        .collect();
    seen.sort_by_key(|one| one.1);
    assert_eq!(
        seen,
        [(idle.as_str(), "g5.xlarge", Some(1.0)), (silent.as_str(), "p3.2xlarge", None)]
    );
    // Without CloudWatch they are seen all the same.
    ec2.fault(Fault::code("GetMetricData", "AccessDenied").always());
    let found = aws.foreign(OWNER, &region()).await.unwrap();
    assert!(found.len() == 2 && found.iter().all(|one| one.cpu_percent.is_none()));
    assert!(
        [idle, silent].iter().all(|id| ec2.instance(id).state == State::Running),
        "and never touched"
    );
}

/// A machine of somebody else's agent of ours says what its GPUs do by itself; where nobody may
/// list what CloudWatch's own agent says, the rest is known.
#[tokio::test]
async fn gpu_load_from_our_agent_is_known_when_listing_is_denied() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let aws = cloud(&ec2);
    let params =
        [("ImageId", IMAGE), ("InstanceType", "g5.xlarge"), ("MinCount", "1"), ("MaxCount", "1")];
    let id = ec2.ask("RunInstances", &params).expect("launched").all("instanceId")[0].text.clone();
    let at = (Timestamp::now() - SignedDuration::from_hours(1))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    for (namespace, name, dimensions) in
        [("Lamplighter", "GPUUtilization", 1), ("CWAgent", "nvidia_smi_utilization_gpu", 2)]
    {
        let datum = [
            ("Namespace", namespace),
            ("MetricData.member.1.MetricName", name),
            ("MetricData.member.1.Timestamp", &at),
            ("MetricData.member.1.Value", if dimensions == 1 { "40" } else { "70" }),
            ("MetricData.member.1.Dimensions.member.1.Name", "InstanceId"),
            ("MetricData.member.1.Dimensions.member.1.Value", &id),
            ("MetricData.member.1.Dimensions.member.2.Name", "index"),
            ("MetricData.member.1.Dimensions.member.2.Value", "0"),
        ];
        ec2.ask_cloudwatch("PutMetricData", &datum[..4 + 2 * dimensions]).expect("published");
    }
    let gpu = async || {
        aws.foreign(OWNER, &region())
            .await
            .expect("seen")
            .iter()
            .map(|one| one.gpu_percent)
            .collect::<Vec<_>>()
    };
    assert_eq!(gpu().await, [Some(70.0)]);
    ec2.fault(Fault::code("ListMetrics", "AccessDenied").always());
    assert_eq!(gpu().await, [Some(40.0)]);
}
