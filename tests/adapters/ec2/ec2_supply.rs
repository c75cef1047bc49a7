//! What EC2 sells, asked of a false EC2: types, zones, prices, quotas, and what is said where a
//! part of it fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use lamplighter::adapters::aws::ec2::offers::{supply, survey};
use lamplighter::adapters::aws::session::AwsSession;
use lamplighter::adapters::aws::settings::AwsSettings;
use lamplighter::job::{MachineSpec, MarketChoice};
use lamplighter::market::{CloudKind, Market, PriceRule, Span, Supply, Usd, UsdPerHour};
use lamplighter::ports::{Cloud as _, CloudError};

use crate::aws;
use lamp_test_support::ec2::{FalseEc2, Fault, Options, rounds};

fn session(ec2: &FalseEc2, cache: Option<&Path>) -> Arc<AwsSession> {
    aws::session_with(
        ec2,
        AwsSettings { cache: cache.map(Path::to_owned), ..AwsSettings::default() },
    )
}

fn machine(gpus: &str, market: MarketChoice) -> MachineSpec {
    MachineSpec {
        cloud: CloudKind::Aws,
        gpus: gpus.parse().unwrap(),
        market,
        max_price: PriceRule::Auto,
        ..MachineSpec::default()
    }
}

fn usd(dollars: &str) -> UsdPerHour {
    UsdPerHour::new(dollars.parse().unwrap())
}

fn pools(supply: &Supply) -> Vec<String> {
    supply
        .offers
        .iter()
        .map(|offer| format!("{} {} {}", offer.instance_type, offer.zone, offer.market))
        .collect()
}

#[tokio::test]
async fn offers_are_what_fits_in_every_zone_and_market() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.spot_prices(
        "g5.xlarge",
        "us-east-1a",
        &[(SignedDuration::from_hours(30), 0.5), (SignedDuration::from_hours(2), 0.37)],
    );
    let found = supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::Auto)).await.unwrap();
    assert!(found.offers.iter().all(|offer| offer.instance_type.starts_with("g5.")
        && offer.gpu_model.as_deref() == Some("A10G")));
    let spot = found.offers.iter().find(|offer| {
        (offer.instance_type.as_str(), offer.zone.as_str(), offer.market)
            == ("g5.xlarge", "us-east-1a", Market::Spot)
    });
    let spot = spot.unwrap_or_else(|| panic!("{:?}", pools(&found)));
    assert_eq!(
        (spot.price, spot.on_demand, spot.vcpus, spot.gpus),
        (usd("0.37"), Some(usd("1.006")), 4, 1)
    );
    assert_eq!((spot.gpu_memory_mib, spot.extras > UsdPerHour::ZERO), (Some(22888), true));
    let full: Vec<_> = found
        .offers
        .iter()
        .filter(|offer| offer.market == Market::OnDemand && offer.instance_type == "g5.xlarge")
        .collect();
    assert!(full.len() > 2 && full.iter().all(|offer| offer.price == usd("1.006")), "{full:?}");
    // It has no price in the list: Windows, dedicated machines and reservations are other things.
    assert!(
        found.refused.iter().any(|no| no.starts_with("g5.4xlarge, on-demand, in us-east-1a")),
        "{:?}",
        found.refused
    );
    assert!(found.histories.is_empty(), "nobody asked for them");
    assert!(
        found
            .notes
            .iter()
            .any(|note| note
                .contains("a public address $0.0050 an hour (AWS's list since 2024-02-01)")),
        "{:?}",
        found.notes
    );
}

#[tokio::test]
async fn price_quantile_fetches_all_pages_of_its_history_window() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    // More changes than a page has rows.
    let changes: Vec<(SignedDuration, f64)> = (0..1500)
        .rev()
        .map(|n| (SignedDuration::from_mins(10 * n + 1), 0.3 + f64::from(n as i32 % 7) / 100.0))
        .collect();
    ec2.spot_prices("g5.xlarge", "us-east-1a", &changes);
    let spec = MachineSpec {
        max_price: "p95 of 9d".parse().unwrap(),
        instance_types: vec!["g5.xlarge".into()],
        ..machine("A10G:1", MarketChoice::Spot)
    };
    let found = supply(&session(&ec2, None), &spec).await.unwrap();
    let history =
        found.histories.iter().find(|history| history.zone.as_str() == "us-east-1a").unwrap();
    // Nine days of changes every ten minutes, and the one that held at their start.
    assert!(
        (9 * 144..=9 * 144 + 2).contains(&history.points().len()),
        "{}",
        history.points().len()
    );
    assert!(
        ec2.calls_of("DescribeSpotPriceHistory")
            .iter()
            .any(|call| call.params.contains_key("NextToken"))
    );
    assert!(found.offers.iter().all(|offer| offer.market == Market::Spot));
    let longer =
        survey(&session(&ec2, None), &spec, Some(Span::from_secs(2 * 86_400))).await.unwrap();
    assert!(longer.histories[0].points().len() <= 2 * 144 + 2);
}

/// boto3#130, botocore#533: a page without rows is not the last one while it names another.
#[tokio::test]
async fn prices_behind_an_empty_first_page_are_found() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.begins_with_an_empty_page_of_prices();
    let zones = ["us-east-1a", "us-east-1b"];
    for (zone, usd) in zones.into_iter().zip([0.3, 0.4]) {
        ec2.spot_prices("g5.xlarge", zone, &[(SignedDuration::from_hours(2), usd)]);
    }
    let spec = MachineSpec {
        instance_types: vec!["g5.xlarge".into()],
        ..machine("A10G:1", MarketChoice::Spot)
    };
    let found = supply(&session(&ec2, None), &spec).await.unwrap();
    let has = |zone: &&str| {
        found
            .offers
            .iter()
            .any(|offer| offer.zone.as_str() == *zone && offer.market == Market::Spot)
    };
    assert!(zones.iter().all(has), "{:?}", found.offers);
}

#[tokio::test]
async fn quotas_are_told_with_what_runs_now() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let run = |kind: &str, more: &[(&str, &str)]| {
        let mut params = vec![
            ("ImageId", "ami-0d15ea5e000000022"),
            ("InstanceType", kind),
            ("MinCount", "1"),
            ("MaxCount", "1"),
        ];
        params.extend_from_slice(more);
        ec2.ask("RunInstances", &params).unwrap();
    };
    run("g5.2xlarge", &[]);
    run("g4dn.xlarge", &[("InstanceMarketOptions.MarketType", "spot")]);
    run("m5.large", &[]);
    let found = supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::Auto)).await.unwrap();
    let told: Vec<_> = found
        .quotas
        .iter()
        .map(|quota| (quota.code.as_str(), quota.vcpus_max, quota.vcpus_used))
        .collect();
    assert_eq!(told, [("L-DB2E81BA", 64, 8), ("L-3819A6DF", 64, 4)]);
    let big = found.offers.iter().find(|offer| offer.instance_type == "g5.48xlarge").unwrap();
    assert_eq!(
        found.quota(big).map(|quota| quota.vcpus_left()),
        Some(if big.market == Market::Spot { 60 } else { 56 })
    );
}

/// EC2 counts what is asked for on the spot market as if it ran.
#[tokio::test]
async fn what_open_spot_requests_wait_for_is_no_longer_free() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let spot = [
        ("ImageId", "ami-0d15ea5e000000022"),
        ("InstanceType", "g4dn.xlarge"),
        ("InstanceMarketOptions.MarketType", "spot"),
    ];
    ec2.ask("RunInstances", &[&spot[..], &[("MinCount", "1"), ("MaxCount", "1")]].concat())
        .unwrap();
    ec2.wait_for_spot("us-east-1", "g5.2xlarge");
    ec2.wait_for_spot("us-east-2", "g5.48xlarge");
    let found = supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::Auto)).await.unwrap();
    let told: Vec<_> =
        found.quotas.iter().map(|quota| (quota.code.as_str(), quota.vcpus_used)).collect();
    assert_eq!(
        told,
        [("L-DB2E81BA", 0), ("L-3819A6DF", 4 + 8)],
        "a request that has its machine counts once"
    );
}

#[tokio::test]
async fn part_that_fails_is_said_and_never_made_up() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.fault(Fault::code("GetProducts", "AccessDeniedException").status(400).always());
    ec2.fault(Fault::code("GetServiceQuota", "AccessDeniedException").status(400).always());
    let denied =
        supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::OnDemand)).await.unwrap();
    assert!(denied.offers.iter().any(|offer| offer.price == usd("1.006")), "{denied:?}");
    assert!(
        denied.notes.iter().any(|note| note.contains("the shipped ones of 2026-07-20")),
        "{:?}",
        denied.notes
    );
    assert!(
        denied.quotas.is_empty()
            && denied
                .notes
                .iter()
                .any(|note| note.contains("the quotas of us-east-1 are not known")),
        "{:?}",
        denied.notes
    );

    ec2.mend();
    ec2.fault(Fault::code("DescribeSpotPriceHistory", "UnauthorizedOperation").always());
    let blind = supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::Auto)).await.unwrap();
    assert!(blind.offers.iter().all(|offer| offer.market == Market::OnDemand));
    assert!(
        blind.notes.iter().any(|note| note.starts_with("no spot machine of us-east-1 is offered")),
        "{:?}",
        blind.notes
    );

    ec2.mend();
    ec2.fault(Fault::code("DescribeInstanceTypes", "UnauthorizedOperation").always());
    let error =
        supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::Auto)).await.unwrap_err();
    assert!(matches!(error, CloudError::Denied { .. }), "{error:?}");
    // One region that does not answer hides no other.
    ec2.mend();
    ec2.fault(
        Fault::code("DescribeInstanceTypes", "AuthFailure").when("region", "us-west-2").always(),
    );
    let two = MachineSpec {
        regions: vec!["us-east-1".into(), "us-west-2".into()],
        ..machine("A10G:1", MarketChoice::OnDemand)
    };
    let found = supply(&session(&ec2, None), &two).await.unwrap();
    assert!(
        !found.offers.is_empty()
            && found
                .notes
                .iter()
                .any(|note| note.starts_with("us-west-2 was not asked to the end")),
        "{:?}",
        found.notes
    );
}

#[tokio::test]
async fn supply_asks_in_parallel_and_nothing_that_it_remembers() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    // So long that what is asked at once overlaps on a busy computer too.
    ec2.latency(Duration::from_millis(800));
    let spec = machine("A10G:1", MarketChoice::Auto);
    let cold = supply(&session(&ec2, Some(folder.path())), &spec).await.unwrap();
    let calls = ec2.take_calls();
    // Types; then zones, spot prices, quotas and the price list, whose nine questions are one more
    // than may be asked at once.
    assert!(rounds(&calls) <= 3, "{} rounds: {calls:?}", rounds(&calls));
    let warm = supply(&session(&ec2, Some(folder.path())), &spec).await.unwrap();
    let asked: Vec<String> = ec2.take_calls().into_iter().map(|call| call.action).collect();
    assert!(asked.is_empty(), "what was asked a moment ago is asked again: {asked:?}");
    assert_eq!(cold, warm);
    // Another endpoint is another cloud.
    let Some(other) = FalseEc2::start(Options::default()) else { return };
    supply(&session(&other, Some(folder.path())), &spec).await.unwrap();
    assert!(!other.calls_of("DescribeInstanceTypes").is_empty());
}

#[tokio::test]
async fn job_without_a_gpu_gets_a_small_machine_or_the_named_type() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let small =
        supply(&session(&ec2, None), &machine("none", MarketChoice::OnDemand)).await.unwrap();
    assert!(
        small.offers.iter().any(|offer| offer.instance_type == "m5.large" && offer.gpus == 0),
        "{small:?}"
    );
    let named = MachineSpec {
        instance_types: vec!["t3.micro".into(), "t9.huge".into()],
        ..machine("none", MarketChoice::OnDemand)
    };
    let found = supply(&session(&ec2, None), &named).await.unwrap();
    assert!(found.offers.iter().all(|offer| offer.instance_type == "t3.micro"
        && offer.price.per_hour() == "0.0104".parse::<Usd>().unwrap()));
    assert_eq!(found.refused, ["t9.huge is not sold in us-east-1"]);
    let none =
        supply(&session(&ec2, None), &machine("H900:1", MarketChoice::OnDemand)).await.unwrap();
    assert!(
        none.offers.is_empty()
            && none.refused[0].starts_with("us-east-1 has no type with H900:1, only "),
        "{:?}",
        none.refused
    );
}

#[tokio::test]
async fn spot_prices_of_a_machine_begin_with_the_one_at_its_start() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let hours = SignedDuration::from_hours;
    ec2.spot_prices(
        "g5.xlarge",
        "us-east-1a",
        &[(hours(30), 0.5), (hours(20), 0.37), (hours(2), 0.41)],
    );
    let found = supply(&session(&ec2, None), &machine("A10G:1", MarketChoice::Spot)).await.unwrap();
    let offer = found
        .offers
        .iter()
        .find(|offer| offer.instance_type == "g5.xlarge" && offer.zone.as_str() == "us-east-1a")
        .unwrap();
    let newest = aws::cloud(&ec2)
        .spot_prices(offer, jiff::Timestamp::UNIX_EPOCH)
        .await
        .unwrap()
        .newest()
        .unwrap()
        .at;
    // Six hours before the last change the price of twenty hours ago held.
    let prices = aws::cloud(&ec2).spot_prices(offer, newest - hours(6)).await.unwrap();
    let told: Vec<UsdPerHour> = prices.points().iter().map(|point| point.price).collect();
    assert_eq!(
        (told, prices.at(newest - hours(6))),
        (vec![usd("0.37"), usd("0.41")], Some(usd("0.37"))),
        "of this zone, for Linux"
    );

    ec2.fault(Fault::code("DescribeSpotPriceHistory", "UnauthorizedOperation").always());
    let error = aws::cloud(&ec2).spot_prices(offer, newest).await.unwrap_err();
    assert!(matches!(error, CloudError::Denied { .. }), "{error:?}");
}
