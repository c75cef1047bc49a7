//! The false EC2 itself: is it as nasty as the real one where we say so?
//!
//! Skipped, in words, where `moto_server` is not installed.

use std::time::{Duration, Instant};

use serde_json::json;

use lamp_test_support::ec2::{FalseEc2, Fault, Node, Options, State, rounds};

const IMAGE: &str = "ami-0d15ea5e000000022";

fn launch(ec2: &FalseEc2, more: &[(&str, &str)]) -> Result<Node, (u16, String)> {
    let tags =
        [("ResourceType", "instance"), ("Tag.1.Key", "lamplighter:owner"), ("Tag.1.Value", "me")];
    let tags = tags.map(|(key, value)| (format!("TagSpecification.1.{key}"), value));
    let mut params = vec![
        ("ImageId", IMAGE),
        ("InstanceType", "g5.xlarge"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    params.extend(tags.iter().map(|(key, value)| (key.as_str(), *value)));
    params.extend_from_slice(more);
    ec2.ask("RunInstances", &params)
}

fn id(made: &Node) -> String {
    made.items("instancesSet")[0].at("instanceId").to_owned()
}

const SPOT: (&str, &str) = ("InstanceMarketOptions.MarketType", "spot");

fn said(refusal: Result<Node, (u16, String)>) -> String {
    refusal.expect_err("it is refused").1
}

fn shown(ec2: &FalseEc2, params: &[(&str, &str)]) -> Vec<(String, String)> {
    let told = ec2.ask("DescribeInstances", params).expect("told");
    let items = told.all("instancesSet").into_iter().flat_map(|set| &set.children);
    items
        .map(|item| (item.at("instanceId").to_owned(), item.at("instanceState/name").to_owned()))
        .collect()
}

fn by(filter: &str, value: &str) -> [(String, String); 2] {
    [("Filter.1.Name".into(), filter.into()), ("Filter.1.Value.1".into(), value.into())]
}

#[test]
fn client_token_launches_once() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let token = ("ClientToken", "attempt-1");
    let first = id(&launch(&ec2, &[token]).unwrap());
    assert_eq!(id(&launch(&ec2, &[token]).unwrap()), first);
    assert_eq!(
        said(launch(&ec2, &[token, ("EbsOptimized", "true")])),
        "IdempotentParameterMismatch"
    );
    // The trap: with a zone in the request the token holds in that zone alone.
    let elsewhere =
        id(&launch(&ec2, &[token, ("Placement.AvailabilityZone", "us-east-1b")]).unwrap());
    assert_ne!(elsewhere, first);
    // A reply that is lost is a launch all the same.
    ec2.fault(Fault::lost("RunInstances"));
    assert_eq!(launch(&ec2, &[("ClientToken", "attempt-2")]), Err((0, String::new())));
    let second = id(&launch(&ec2, &[("ClientToken", "attempt-2")]).unwrap());
    assert_eq!(ec2.instances().len(), 3);
    let filter = by("client-token", "attempt-2");
    assert_eq!(
        shown(&ec2, &filter.each_ref().map(|(key, value)| (key.as_str(), value.as_str()))).len(),
        1
    );
    ec2.ask("TerminateInstances", &[("InstanceId.1", &second)]).unwrap();
    assert_eq!(said(launch(&ec2, &[("ClientToken", "attempt-2")])), "IdempotentInstanceTerminated");
    assert_eq!(
        said(launch(&ec2, &[("DryRun", "true"), ("ClientToken", "attempt-1")])),
        "DryRunOperation"
    );
}

#[test]
fn states_take_time_and_ends_have_reasons() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let Some(ec2) =
        FalseEc2::start(Options { pending: minutes(1), stopping: minutes(1), managed: false })
    else {
        return;
    };
    let made = launch(&ec2, &[("InstanceInitiatedShutdownBehavior", "terminate")]).unwrap();
    let instance = id(&made);
    assert_eq!(
        (
            made.all("instanceType")[0].text.as_str(),
            made.all("virtualizationType")[0].text.as_str()
        ),
        ("g5.xlarge", "hvm")
    );
    assert_eq!(made.items("instancesSet")[0].at("instanceState/name"), "pending");
    ec2.advance(minutes(2));
    assert_eq!(
        shown(&ec2, &[("InstanceId.1", &instance)]),
        [(instance.clone(), "running".to_owned())]
    );
    let told = ec2.ask("TerminateInstances", &[("InstanceId.1", &instance)]).unwrap();
    let item = &told.items("instancesSet")[0];
    assert_eq!(
        (item.at("previousState/name"), item.at("currentState/name")),
        ("running", "shutting-down")
    );
    ec2.stale(minutes(2));
    ec2.advance(minutes(1));
    assert_eq!(
        shown(&ec2, &[("InstanceId.1", &instance)])[0].1,
        "running",
        "a stale read still believes in it"
    );
    ec2.stale(Duration::ZERO);
    assert_eq!(shown(&ec2, &[("InstanceId.1", &instance)])[0].1, "terminated");
    let told = ec2.ask("DescribeInstances", &[]).unwrap();
    assert_eq!(told.all("stateReason")[0].at("code"), "Client.UserInitiatedShutdown");
    let ledger = ec2.ledger(&instance);
    assert!(
        ledger.spans.len() == 1 && (60..=65).contains(&ledger.billed_seconds()),
        "from running to shutting-down: {ledger:?}"
    );
    // Its disk went with it.
    assert_eq!(ec2.ask("DescribeVolumes", &[]).unwrap().all("volumeId").len(), 0);

    let own = id(&launch(&ec2, &[("InstanceInitiatedShutdownBehavior", "terminate")]).unwrap());
    let kept = id(&launch(&ec2, &[]).unwrap());
    ec2.advance(minutes(1));
    [&own, &kept].into_iter().for_each(|id| ec2.powered_off(id));
    ec2.advance(minutes(1));
    assert_eq!(
        [ec2.instance(&own).state, ec2.instance(&kept).state],
        [State::Terminated, State::Stopped]
    );
    assert_eq!(ec2.instance(&own).reason, "Client.InstanceInitiatedShutdown");
    assert_eq!(
        said(ec2.ask("StartInstances", &[("InstanceId.1", &own)])),
        "IncorrectInstanceState"
    );
    ec2.ask("StartInstances", &[("InstanceId.1", &kept)]).unwrap();
    ec2.advance(minutes(2));
    assert_eq!(ec2.ledger(&kept).spans.len(), 2);
}

#[test]
fn spot_is_bid_for_and_taken_back() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    ec2.spot_prices("g5.xlarge", "us-east-1a", &[(jiff::SignedDuration::from_hours(1), 0.5)]);
    let bid = |price| {
        [
            SPOT,
            ("InstanceMarketOptions.SpotOptions.MaxPrice", price),
            ("Placement.AvailabilityZone", "us-east-1a"),
        ]
    };
    assert_eq!(said(launch(&ec2, &bid("0.4"))), "SpotMaxPriceTooLow");
    let made = launch(&ec2, &bid("0.6")).unwrap();
    let (instance, request) = (id(&made), made.all("spotInstanceRequestId")[0].text.clone());
    assert_eq!(made.all("instanceLifecycle")[0].text, "spot");
    assert_eq!(
        said(ec2.ask("StopInstances", &[("InstanceId.1", &instance)])),
        "UnsupportedOperation"
    );
    let on_demand = id(&launch(&ec2, &[]).unwrap());
    let filter = by("instance-lifecycle", "spot");
    assert_eq!(
        shown(&ec2, &filter.each_ref().map(|(key, value)| (key.as_str(), value.as_str()))),
        [(instance.clone(), "running".into())]
    );

    ec2.interrupt(&instance, Duration::from_secs(120));
    let told =
        ec2.ask("DescribeSpotInstanceRequests", &[("SpotInstanceRequestId.1", &request)]).unwrap();
    assert_eq!(told.all("status")[0].at("code"), "instance-terminated-no-capacity");
    assert_eq!(
        ec2.instance(&instance).state,
        State::Running,
        "the request is ahead of the instance"
    );
    ec2.advance(Duration::from_secs(121));
    assert_eq!(ec2.instance(&instance).state, State::ShuttingDown);
    ec2.advance(Duration::from_secs(1));
    let ended = ec2.instance(&instance);
    assert_eq!(
        (ended.state, ended.reason.as_str()),
        (State::Terminated, "Server.SpotInstanceTermination")
    );
    assert!(ec2.ledger(&instance).free && !ec2.ledger(&on_demand).free);

    // Cancelling a request ends no instance.
    let made = launch(&ec2, &[SPOT]).unwrap();
    let request = made.all("spotInstanceRequestId")[0].text.clone();
    ec2.ask("CancelSpotInstanceRequests", &[("SpotInstanceRequestId.1", &request)]).unwrap();
    assert_eq!(ec2.instance(&id(&made)).state, State::Running);
}

#[test]
fn faults_meet_those_they_are_meant_for() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let zone = |zone| [("Placement.AvailabilityZone", zone)];
    ec2.fault(
        Fault::code("RunInstances", "InsufficientInstanceCapacity")
            .when("zone", "us-east-1a")
            .when("InstanceType", "g5*")
            .times(2),
    );
    assert_eq!(
        launch(&ec2, &zone("us-east-1a")),
        Err((500, "InsufficientInstanceCapacity".into()))
    );
    assert!(launch(&ec2, &zone("us-east-1b")).is_ok());
    assert_eq!(said(launch(&ec2, &zone("us-east-1a"))), "InsufficientInstanceCapacity");
    assert!(launch(&ec2, &zone("us-east-1a")).is_ok());
    // Which zone a subnet lies in is known, too.
    let subnets = ec2.ask("DescribeSubnets", &[]).unwrap();
    let subnet = subnets
        .items("subnetSet")
        .iter()
        .find(|subnet| subnet.at("availabilityZone") == "us-east-1c")
        .unwrap()
        .at("subnetId")
        .to_owned();
    ec2.fault(Fault::code("RunInstances", "Unsupported").when("zone", "us-east-1c"));
    assert_eq!(said(launch(&ec2, &[("SubnetId", &subnet)])), "Unsupported");
    ec2.fault(Fault::code("DescribeInstances", "RequestLimitExceeded").always());
    for _ in 0..3 {
        assert_eq!(ec2.ask("DescribeInstances", &[]), Err((503, "RequestLimitExceeded".into())));
    }
    ec2.mend();
    ec2.fault(Fault::code("RunInstances", "InternalError").after());
    let before = ec2.instances().len();
    assert_eq!(said(launch(&ec2, &[])), "InternalError");
    assert_eq!(ec2.instances().len(), before + 1);

    ec2.unseen(Duration::from_secs(60));
    let young = id(&launch(&ec2, &[]).unwrap());
    assert_eq!(
        said(ec2.ask("DescribeInstances", &[("InstanceId.1", &young)])),
        "InvalidInstanceID.NotFound"
    );
    assert_eq!(
        said(ec2.ask("TerminateInstances", &[("InstanceId.1", &young)])),
        "InvalidInstanceID.NotFound"
    );
    assert_eq!(shown(&ec2, &[]).len(), 0, "all of them are young");
    ec2.advance(Duration::from_secs(61));
    assert_eq!(shown(&ec2, &[]).len(), before + 2);
    assert_eq!(said(launch(&ec2, &[("ImageId", "ami-00000000")])), "InvalidAMIID.NotFound");
    assert_eq!(said(launch(&ec2, &[("UserData", &"QUFB".repeat(5462))])), "InvalidParameterValue");
    assert_eq!(
        said(
            ec2.ask(
                "DescribeInstances",
                &[("Filter.1.Name", "colour"), ("Filter.1.Value.1", "red")]
            )
        ),
        "InvalidParameterValue"
    );
}

#[test]
fn log_tells_what_waited_for_what() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    // So long that what is asked at once overlaps on a busy computer too.
    let latency = Duration::from_millis(800);
    ec2.latency(latency);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ec2.ask("DescribeRegions", &[]).unwrap());
        }
    });
    ec2.ask("DescribeVpcs", &[]).unwrap();
    assert!(began.elapsed() >= 2 * latency);
    let calls = ec2.take_calls();
    assert_eq!((calls.len(), rounds(&calls)), (5, 2));
    assert!(calls.iter().all(|call| call.service == "ec2"
        && call.status == 200
        && call.ended - call.began >= latency));
    assert_eq!(ec2.calls().len(), 0);
}

#[test]
fn pages_filters_and_tags_are_those_of_ec2() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let first = id(&launch(&ec2, &[]).unwrap());
    let copies = ec2.multiply(&first, 2500);
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let filters = [
            ("Filter.1.Name", "tag:lamplighter:owner"),
            ("Filter.1.Value.1", "me"),
            ("Filter.2.Name", "instance-state-name"),
            ("Filter.2.Value.1", "running"),
        ];
        let mut params = filters.to_vec();
        if !token.is_empty() {
            params.push(("NextToken", &token));
        }
        let page = ec2.ask("DescribeInstances", &params).unwrap();
        seen.extend(page.all("instanceId").into_iter().map(|id| id.text.clone()));
        token = page.at("nextToken").to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((seen.len(), ec2.calls().len()), (2501, 4));
    ec2.ask(
        "CreateTags",
        &[
            ("ResourceId.1", &copies[7]),
            ("ResourceId.2", &first),
            ("Tag.1.Key", "mark"),
            ("Tag.1.Value", "x"),
        ],
    )
    .unwrap();
    let marked = shown(&ec2, &[("Filter.1.Name", "tag:mark"), ("Filter.1.Value.1", "*")]);
    assert_eq!(marked.len(), 2);
    ec2.ask("DeleteTags", &[("ResourceId.1", &first), ("Tag.1.Key", "mark")]).unwrap();
    assert_eq!(
        shown(&ec2, &[("Filter.1.Name", "tag-key"), ("Filter.1.Value.1", "mark")]),
        [(copies[7].clone(), "running".into())]
    );
    assert_eq!(
        said(ec2.ask("DescribeInstances", &[("InstanceId.1", &first), ("MaxResults", "5")])),
        "InvalidParameterCombination"
    );
    assert_eq!(
        shown(&ec2, &[("Filter.1.Name", "instance-lifecycle"), ("Filter.1.Value.1", "*")]).len(),
        0
    );
    assert_eq!(
        ec2.ask_in("eu-west-1", "DescribeInstances", &[]).unwrap().all("instanceId").len(),
        0,
        "another Region has others"
    );
}

#[test]
fn prices_quotas_and_images_are_told() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let now = jiff::Timestamp::now();
    let start = (now - jiff::SignedDuration::from_hours(24 * 60)).to_string();
    let mut rows = 0;
    let mut token = String::new();
    loop {
        let params = [
            ("StartTime", start.as_str()),
            ("ProductDescription.1", "Linux/UNIX"),
            ("InstanceType.1", "g5.xlarge"),
            ("InstanceType.2", "p3.2xlarge"),
            ("NextToken", &token),
        ];
        let page = ec2.ask("DescribeSpotPriceHistory", &params).unwrap();
        rows += page.items("spotPriceHistorySet").len();
        token = page.at("nextToken").to_owned();
        if token.is_empty() {
            break;
        }
    }
    // Two types in three zones, four changes a day for sixty days, and the price that held before.
    assert_eq!(rows, 2 * 3 * (60 * 4 + 1));
    let filters = json!([{ "Type": "TERM_MATCH", "Field": "instanceType", "Value": "g5.xlarge" }, { "Type": "TERM_MATCH", "Field": "operatingSystem", "Value": "Linux" },
        { "Type": "TERM_MATCH", "Field": "tenancy", "Value": "Shared" }, { "Type": "TERM_MATCH", "Field": "preInstalledSw", "Value": "NA" },
        { "Type": "TERM_MATCH", "Field": "capacitystatus", "Value": "Used" }, { "Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1" }]);
    let list = ec2
        .ask_json(
            "pricing",
            "AWSPriceListService.GetProducts",
            &json!({ "ServiceCode": "AmazonEC2", "Filters": filters }),
        )
        .unwrap();
    let products = list["PriceList"].as_array().unwrap();
    assert_eq!(products.len(), 1);
    assert!(products[0].as_str().unwrap().contains("\"USD\":\"1.0060000000\""));
    let quota = ec2
        .ask_json(
            "servicequotas",
            "ServiceQuotasV20190624.GetServiceQuota",
            &json!({ "ServiceCode": "ec2", "QuotaCode": "L-3819A6DF" }),
        )
        .unwrap();
    assert_eq!(quota["Quota"]["Value"], 64.0);
    let name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id";
    let parameter =
        ec2.ask_json("ssm", "AmazonSSM.GetParameter", &json!({ "Name": name })).unwrap();
    assert_eq!(parameter["Parameter"]["Value"], IMAGE);
    let images = ec2.ask("DescribeImages", &[("ImageId.1", IMAGE)]).unwrap();
    assert_eq!(
        (images.all("architecture")[0].text.as_str(), images.all("volumeSize")[0].text.as_str()),
        ("x86_64", "65")
    );
    let params = [
        ("Owner.1", "amazon"),
        ("Filter.1.Name", "name"),
        ("Filter.1.Value.1", "Deep Learning Base OSS*Ubuntu 22.04*"),
    ];
    assert_eq!(ec2.ask("DescribeImages", &params).unwrap().items("imagesSet").len(), 2);
    let unknown = ec2.ask_json("ssm", "AmazonSSM.GetParameter", &json!({ "Name": "/none" }));
    assert_eq!(unknown.unwrap_err().1, "ParameterNotFound");
}
