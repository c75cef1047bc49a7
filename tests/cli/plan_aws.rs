//! `lamp plan` for EC2: what is shown before anything is bought.

use jiff::SignedDuration;
use serde_json::Value;

use super::ec2::{FalseEc2, Fault, Options};
use super::sandbox::{Ended, Sandbox};

/// A market with one price for each zone, and what `lamp init aws` would have made.
fn market() -> Option<FalseEc2> {
    let ec2 = FalseEc2::start(Options::default())?;
    let since = SignedDuration::from_hours(24 * 20);
    ec2.spot_prices("g5.xlarge", "us-east-1a", &[(since, 0.40)]);
    ec2.spot_prices("g5.xlarge", "us-east-1b", &[(since, 0.36)]);
    ec2.spot_prices("g5.xlarge", "us-east-1c", &[(since, 0.55)]);
    ec2.ask("CreateSecurityGroup", &[("GroupName", "lamplighter"), ("GroupDescription", "x")]).expect("made");
    ec2.profile("lamplighter-box");
    Some(ec2)
}

fn plan(ec2: &FalseEc2, args: &[&str]) -> Ended {
    let sandbox = Sandbox::with_script();
    let all = [&["plan", "--cloud", "aws", "--gpus", "A10G", "--instance-type", "g5.xlarge"], args, &["--", "python3", "train.py"]].concat();
    sandbox.end(sandbox.command(&all).envs(ec2.env()))
}

#[test]
fn a_plan_names_the_most_the_fallbacks_the_quota_the_image_and_the_disk() {
    let Some(ec2) = market() else { return };
    let ended = plan(&ec2, &["--spot-auto", "--max-runtime", "3h"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    // Three hours, five minutes for clocks and two to power off, at the bid of 0.45 and 0.015959 for disk and address.
    assert!(
        ended.out.starts_with("g5.xlarge in us-east-1b, spot, $0.36/h: costs at most $1.45, with its disk, its address and the power-off\n"),
        "{}",
        ended.out
    );
    for said in [
        "because it is the cheapest of 8 that fit, at $0.36/h, $0.38/h with its disk and address\n",
        "the bid is $0.45/h, a quarter above the price now; on-demand is $1.01/h\n",
        "in us-east-1 100 GiB of disk bill $0.0800 a GiB and month (AWS's list since 2020-12-01), and a public address $0.0050 an hour",
        "quota \"All G and VT Spot Instance Requests\" in us-east-1: 64 of 64 vCPUs are free\n",
        "boots Deep Learning Base OSS Nvidia Driver GPU AMI",
        "on an encrypted disk of 100 GiB\n",
        "if there is none: g5.xlarge in us-east-1a, spot, $0.40/h\nthen: g5.xlarge in us-east-1c, spot, $0.55/h\nthen: g5.xlarge in us-east-1a, on-demand, $1.01/h\n",
        "`limits.budget` would bound what all of them cost together",
    ] {
        assert!(ended.out.contains(said), "{said:?} in\n{}", ended.out);
    }
    assert!(ended.err.contains("nothing was started"), "{}", ended.err);
    assert!(ec2.instances().is_empty());
}

#[test]
fn a_budget_bounds_the_plan_to_the_cent_or_is_refused() {
    let Some(ec2) = market() else { return };
    let held = plan(&ec2, &["--on-demand", "--budget", "2", "-o", "json"]);
    let document: Value = serde_json::from_str(&held.out).unwrap_or_else(|error| panic!("{error}: {held:?}"));
    let most = document["most_usd"].as_f64().unwrap();
    assert!((1.99..=2.0).contains(&most), "{most}");
    assert_eq!((&document["offer"]["market"], &document["forbidden"]), (&"on-demand".into(), &Value::Null));
    assert_eq!(document["fallbacks"].as_array().map(Vec::len), Some(4), "the other zones");
    let refused = plan(&ec2, &["--on-demand", "--budget", "0.1"]);
    assert_eq!(refused.code, 104, "{refused:?}");
    assert!(refused.err.contains("costs up to $1.02/h with its disk and address: the $0.10 left of the budget buy 3m 52s"), "{}", refused.err);
    assert!(refused.err.contains("nothing was started, and nothing bills"), "{}", refused.err);
}

#[test]
fn a_full_quota_and_a_low_bid_are_named() {
    let Some(ec2) = market() else { return };
    ec2.quota("L-3819A6DF", 2.0);
    let full = plan(&ec2, &["--spot"]);
    assert_eq!(full.code, 104, "{full:?}");
    assert!(full.err.contains("needs 4 vCPUs, and the quota \"All G and VT Spot Instance Requests\" has 2 of 2 left in us-east-1"), "{}", full.err);
    ec2.quota("L-3819A6DF", 64.0);
    let low = plan(&ec2, &["--spot", "--max-price", "0.38"]);
    assert!(low.out.contains("not g5.xlarge in us-east-1a, spot: costs $0.40/h now, more than the bid of $0.38/h"), "{low:?}");
    // What EC2 would refuse is known before anything is shipped.
    ec2.fault(Fault::code("RunInstances", "UnauthorizedOperation").always());
    let denied = plan(&ec2, &["--spot"]);
    assert!(denied.err.contains("warning: the cloud would not launch it: "), "{denied:?}");
}
