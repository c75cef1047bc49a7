//! A plan says how often its bid would have been exceeded, whichever rule it is of.

use jiff::SignedDuration;
use serde_json::Value;

use crate::plan::plan_aws::{market, root};
use crate::sandbox::{Ended, Sandbox};
use lamp_test_support::ec2::{FalseEc2, Fault};

/// The cheapest zone was dearer for two of its twenty days.
fn risen() -> Option<FalseEc2> {
    let ec2 = market()?;
    let days = |days: i64| SignedDuration::from_hours(24 * days);
    ec2.spot_prices(
        "g5.xlarge",
        "us-east-1b",
        &[(days(20), 0.36), (days(6), 0.60), (days(4), 0.36)],
    );
    Some(ec2)
}

fn plan(ec2: &FalseEc2, more: &[&str]) -> Ended {
    let sandbox = Sandbox::with_script();
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

fn document(ec2: &FalseEc2, more: &[&str]) -> Value {
    let ended = plan(ec2, &[more, &["-o", "json"]].concat());
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

const HONEST: &str = "most interruptions come from capacity, not from price: a higher bid pays more and keeps little longer\n";

#[test]
fn plan_says_how_often_the_price_exceeded_the_bid_of_each_rule() {
    let Some(ec2) = risen() else { return };
    let above = "the price was above the bid for 10.0% of the last 20d, and rose above it once\n";
    let never = "the price was never above the bid in the last 20d\n";
    for (rule, said, share) in [
        ("auto", above, 0.1),
        ("0.5", above, 0.1),
        ("40% of on-demand", above, 0.1),
        ("p95 of 14d", never, 0.0),
    ] {
        let asked = ["--spot", "--max-price", rule];
        let ended = plan(&ec2, &asked);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.out.contains(&format!("{said}{HONEST}")), "{rule}: {}", ended.out);
        let found = document(&ec2, &asked);
        let told = &found["bid_exceeded"];
        assert!(
            told["share_above"].as_f64().is_some_and(|found| (found - share).abs() < 0.001),
            "{rule}: {told}"
        );
        assert_eq!(
            (told["crossings"].as_u64(), &told["unknown"]),
            (Some(u64::from(share > 0.0)), &Value::Null),
            "{rule}"
        );
    }
    let on_demand = ["--on-demand"];
    assert!(!plan(&ec2, &on_demand).out.contains("above the bid"), "it has no bid");
    assert_eq!(document(&ec2, &on_demand)["bid_exceeded"], Value::Null);
}

/// It is the one question about a zone alone.
#[test]
fn without_an_answer_about_past_prices_the_plan_is_what_it_was() {
    let Some(ec2) = risen() else { return };
    let known = plan(&ec2, &["--spot"]);
    ec2.fault(
        Fault::code("DescribeSpotPriceHistory", "UnauthorizedOperation")
            .when("AvailabilityZone", "us-east-1b")
            .always(),
    );
    let ended = plan(&ec2, &["--spot"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.err.contains("how often the bid would have been exceeded is not known: "),
        "{}",
        ended.err
    );
    let timeless = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with("the machine ends at "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut rest = timeless(&known.out);
    rest.retain(|line| !line.starts_with("the price was above the bid for "));
    assert_eq!(timeless(&ended.out), rest);
    let told = &document(&ec2, &["--spot"])["bid_exceeded"];
    assert!(told["unknown"].is_string() && told["share_above"].is_null(), "{told}");
}
