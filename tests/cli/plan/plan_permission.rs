//! What a plan proves by dry runs: of each region and market that the job may go to, and not of the
//! planned one alone.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::plan::plan_aws::{market, root};
use crate::sandbox::{Ended, Sandbox};
use lamp_test_support::ec2::{FalseEc2, Fault};

fn plan(ec2: &FalseEc2, config: &str, more: &[&str]) -> Ended {
    let sandbox = Sandbox::with_script();
    sandbox.write("home/.config/lamplighter/config.toml", config);
    let job = [
        "plan",
        "--cloud",
        "aws",
        "--gpus",
        "A10G",
        "--instance-type",
        "g5.xlarge",
        "--max-runtime",
        "3h",
    ];
    sandbox.end(
        sandbox
            .command(&[&job[..], more, &["--", "python3", "train.py"]].concat())
            .envs(ec2.env())
            .env("LAMP_JOB_ROOT", root(ec2)),
    )
}

fn document(ec2: &FalseEc2, config: &str, more: &[&str]) -> Value {
    let ended = plan(ec2, config, &[more, &["-o", "json"]].concat());
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn plan_proves_each_region_and_market_and_names_a_refusal() {
    let Some(ec2) = market() else { return };
    ec2.ask_in(
        "us-west-2",
        "CreateSecurityGroup",
        &[("GroupName", "lamplighter"), ("GroupDescription", "x")],
    )
    .expect("made");
    ["a", "b", "c"].iter().for_each(|zone| {
        ec2.spot_prices(
            "g5.xlarge",
            &format!("us-west-2{zone}"),
            &[(SignedDuration::from_hours(480), 0.7)],
        )
    });
    ec2.fault(
        Fault::code("RunInstances", "UnauthorizedOperation")
            .when("region", "us-west-2")
            .when("market", "spot")
            .always(),
    );
    let words =
        ["--spot-auto", "--checkpoint", "saved", "--region", "us-east-1", "--region", "us-west-2"];
    let found = document(&ec2, "", &words);
    let asked: Vec<(&Value, &Value, bool)> = found["permissions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            (
                &one["region"],
                &one["market"],
                one["forbidden"].is_null() && one["unanswered"].is_null(),
            )
        })
        .collect();
    let (east, west, spot, full) =
        (json!("us-east-1"), json!("us-west-2"), json!("spot"), json!("on-demand"));
    assert_eq!(
        asked,
        [(&east, &spot, true), (&west, &spot, false), (&east, &full, true), (&west, &full, true)],
        "{found}"
    );
    assert!(
        found["permissions"][1]["forbidden"].is_string() && found["forbidden"].is_null(),
        "{found}"
    );
    let calls = ec2.calls_of("RunInstances");
    assert!(
        calls.len() == 4
            && calls.iter().all(|call| call.params.get("DryRun").is_some_and(|dry| dry == "true")),
        "one for each: {calls:?}"
    );
    let told = plan(&ec2, "", &words);
    assert_eq!(told.code, 0, "what is planned may be launched: {told:?}");
    assert!(
        told.err.contains(
            "warning: the cloud would not launch what is tried next in us-west-2 (spot): "
        ),
        "{}",
        told.err
    );
    let proved = "a dry run each says that you may launch it in us-east-1 (spot), us-east-1 (on-demand), us-west-2 (on-demand)\n";
    assert!(told.err.contains(proved), "{}", told.err);
    assert!(ec2.instances().is_empty());
}

/// Of the zones of a region, those alone are tried next in which the user has a subnet.
#[test]
fn with_one_subnet_no_other_zone_is_a_fallback() {
    let Some(ec2) = market() else { return };
    let subnets = ec2.ask("DescribeSubnets", &[]).expect("they are shown");
    let subnet = subnets
        .items("subnetSet")
        .iter()
        .find(|one| one.at("availabilityZone") == "us-east-1b")
        .expect("a default one");
    let config = format!("[aws]\nsubnets = ['{}']\n", subnet.at("subnetId"));
    let found = document(&ec2, &config, &["--spot-auto", "--checkpoint", "saved"]);
    let fallbacks = found["fallbacks"].as_array().expect("a list");
    assert_eq!((&found["offer"]["zone"], fallbacks.len()), (&json!("us-east-1b"), 1), "{found}");
    assert_eq!(
        (&fallbacks[0]["zone"], &fallbacks[0]["market"]),
        (&json!("us-east-1b"), &json!("on-demand"))
    );
    let because = found["rejected"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|no| no["because"] == "none of `aws.subnets` lies in us-east-1a");
    assert_eq!(because.count(), 2, "on both markets: {found}");
}
