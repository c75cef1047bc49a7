//! `lamp doctor` against a false AWS: a line for each thing, a cure for each fault, and an exit
//! code.

#![cfg(feature = "aws")]

use jiff::SignedDuration;
use serde_json::Value;

use crate::account::setup::User;
use crate::sandbox::{Ended, Sandbox};
use lamp_test_support::ec2::Fault;

/// An agent that could be shipped: the tests' own is a program for this machine.
fn with_agent(user: &User, args: &[&str]) -> (i32, Value) {
    let mut command = user.sandbox.command(&[args, &["-o", "json"]].concat());
    command.envs(user.ec2.env()).env("LAMP_AGENT_BINARY", env!("CARGO_BIN_EXE_lamp-agent"));
    let ended = user.sandbox.end(&mut command);
    (ended.code, document(&ended))
}

/// In each of them, whatever is not well has a cure.
fn document(ended: &Ended) -> Value {
    let found: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    for check in found["checks"].as_array().expect("checks") {
        let is_bad = ["warning", "unknown", "failure"].iter().any(|level| check["level"] == *level);
        assert!(
            !is_bad || check["fix"].as_str().is_some_and(|fix| !fix.trim().is_empty()),
            "{check:#}"
        );
    }
    found
}

/// The same words where nobody answers AWS's part of them.
fn offline(sandbox: &Sandbox, words: &[&str], more: &[(&str, &str)]) -> Ended {
    let mut command = sandbox.command(words);
    // Nothing listens there: no test asks the real one.
    command
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
    sandbox.end(command.envs(more.iter().copied()))
}

fn level<'a>(found: &'a Value, name: &str) -> &'a str {
    check(found, name)["level"].as_str().unwrap_or_default()
}

fn check<'a>(found: &'a Value, name: &str) -> &'a Value {
    let checks = found["checks"].as_array().expect("checks");
    checks
        .iter()
        .find(|check| check["check"].as_str().is_some_and(|check| check == name))
        .unwrap_or_else(|| panic!("no {name} in {found}"))
}

#[test]
fn what_init_made_is_well() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    user.ec2.take_calls();
    let (code, found) = with_agent(&user, &["doctor"]);
    assert_eq!(code, 0, "{found:#}");
    let well = [
        "credentials",
        "clock",
        "region",
        "gpu quota, spot, us-east-1",
        "gpu quota, on-demand, us-east-1",
        "spot role",
        "alarm role",
        "bucket",
        "writing",
    ];
    for name in well.iter().chain(&[
        "role of the machines",
        "network, us-east-1",
        "image, us-east-1",
        "price list, us-east-1",
        "disk price",
        "job root",
        "configuration",
        "agent to ship",
    ]) {
        assert_eq!(level(&found, name), "ok", "{:#}", check(&found, name));
    }
    assert_eq!(level(&found, "endpoint"), "warning", "an emulator is told");
    // It leaves nothing: an upload is begun and given up.
    let changing = ["Create", "Put", "Delete", "Run", "Add", "PUT"];
    let changes: Vec<String> = user.ec2.take_calls().into_iter().map(|call| call.action).collect();
    assert!(
        !changes.iter().any(|action| changing.iter().any(|verb| action.starts_with(verb))),
        "{changes:?}"
    );
    assert_eq!(user.ec2.s3("GET", &format!("/{}?list-type=2", user.bucket()), b"").0, 200);
}

/// Each in its own line, all in one run: whoever repairs one sees the others too.
#[test]
fn what_is_wrong_is_told_with_its_cure() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    for code in ["L-3819A6DF", "L-7212CCBC", "L-C4BD4855"] {
        user.ec2.quota(code, 0.0);
    }
    user.ec2.clock_ahead(SignedDuration::from_mins(9));
    user.ec2.fault(
        Fault::code("GetProducts", "AccessDeniedException")
            .saying("User is not authorized to perform: pricing:GetProducts")
            .always(),
    );
    let groups = user
        .ec2
        .ask(
            "DescribeSecurityGroups",
            &[("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "lamplighter")],
        )
        .expect("told");
    let group = groups.items("securityGroupInfo")[0].at("groupId").to_owned();
    let open = [
        ("GroupId", group.as_str()),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "22"),
        ("IpPermissions.1.ToPort", "22"),
    ];
    let open = [&open[..], &[("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0")]].concat();
    user.ec2.ask("AuthorizeSecurityGroupIngress", &open).expect("opened");
    let (code, found) = with_agent(&user, &["doctor"]);
    assert_eq!(code, 100, "{found:#}");
    assert_eq!(found["worst"], "failure");
    let expected = [
        ("clock", "failure", "timedatectl"),
        ("gpu quota, spot, us-east-1", "warning", "request-service-quota-increase"),
        ("price list, us-east-1", "warning", "lamp iam controller"),
        ("network, us-east-1", "warning", "describe-security-groups"),
        ("bucket", "ok", ""),
    ];
    for (name, wanted, cure) in expected {
        let check = check(&found, name);
        assert_eq!(check["level"], wanted, "{check:#}");
        assert!(check["fix"].as_str().unwrap_or_default().contains(cure), "{check:#}");
    }
}

#[test]
fn new_account_is_told_what_to_do_first() {
    let Some(user) = User::new() else { return };
    user.sandbox
        .write("home/.config/lamplighter/config.toml", "job_root = 's3://nothing-of-that-name'\n");
    let (code, found) = with_agent(&user, &["doctor"]);
    assert_eq!(code, 100);
    for name in ["bucket", "role of the machines", "network, us-east-1"] {
        assert_eq!(level(&found, name), "failure", "{:#}", check(&found, name));
        assert!(
            check(&found, name)["fix"].as_str().is_some_and(|fix| fix.contains("lamp init aws")),
            "{:#}",
            check(&found, name)
        );
    }
    assert_eq!(level(&found, "spot role"), "warning");
    assert_eq!(level(&found, "alarm role"), "warning");
    user.sandbox.write(
        "home/.config/lamplighter/config.toml",
        "job_root = 's3://nothing-of-that-name'\n[watch]\nalarm = 'off'\n",
    );
    assert_eq!(level(&with_agent(&user, &["doctor"]).1, "alarm role"), "skipped");
}

/// An answer is no silence: it has a cure, and the exit code of what is broken.
#[test]
fn what_aws_says_is_not_there_is_broken_and_has_a_cure() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    user.ec2.fault(Fault::code("GetParameter", "ParameterNotFound").always());
    user.ec2.list_no_machines();
    let (code, found) = with_agent(&user, &["doctor"]);
    assert_eq!((code, &found["worst"]), (100, &"failure".into()), "{found:#}");
    for (name, cure) in
        [("image, us-east-1", "image = \"ssm:"), ("price list, us-east-1", "max_price")]
    {
        let check = check(&found, name);
        assert_eq!(check["level"], "failure", "{check:#}");
        assert!(
            check["fix"]
                .as_str()
                .is_some_and(|fix| fix.contains(cure) && fix.contains("another region")),
            "{check:#}"
        );
    }
}

#[test]
fn every_region_is_asked_for_its_image_and_its_prices() {
    let Some(user) = User::new() else { return };
    assert_eq!(
        user.lamp(&["init", "aws", "--yes", "--region", "us-east-1", "--region", "us-east-2"]).code,
        0
    );
    user.ec2.fault(
        Fault::code("GetParameter", "ParameterNotFound").when("region", "us-east-2").always(),
    );
    let (code, found) = with_agent(&user, &["doctor"]);
    assert_eq!(code, 100, "{found:#}");
    for (name, wanted) in [
        ("image, us-east-1", "ok"),
        ("image, us-east-2", "failure"),
        ("price list, us-east-1", "ok"),
        ("price list, us-east-2", "ok"),
    ] {
        assert_eq!(level(&found, name), wanted, "{:#}", check(&found, name));
    }
}

/// It asks what a launch asks, whatever the words are: a typing error is told before a machine is
/// bought.
#[test]
fn doctor_resolves_the_configured_image_as_a_launch_does() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let config = user.sandbox.read("home/.config/lamplighter/config.toml");
    let with = |image: &str| {
        user.sandbox.write(
            "home/.config/lamplighter/config.toml",
            format!("{config}\n[machine]\nimage = '{image}'\n"),
        );
        check(&with_agent(&user, &["doctor"]).1, "image, us-east-1").clone()
    };
    for (words, id) in [
        ("dlami:amazon-linux-2023", "ami-0d15ea5e000002023"),
        ("ami-0d15ea5e000002404", "ami-0d15ea5e000002404"),
        (
            "name:Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)*;owner=amazon",
            "ami-0d15ea5e000000024",
        ),
    ] {
        let found = with(words);
        assert!(
            found["level"] == "ok"
                && found["said"]
                    .as_str()
                    .is_some_and(|said| said.starts_with(&format!("`{words}` is {id} ("))),
            "{found:#}"
        );
    }
    let arm = with("ami-0d15ea5e0000000a4");
    assert!(
        arm["level"] == "warning"
            && arm["said"].as_str().is_some_and(|said| said.contains("for arm64")),
        "{arm:#}"
    );
    user.ec2.fault(
        Fault::code("GetParameter", "ParameterNotFound")
            .when("Name", "*amazon-linux-2023*")
            .always(),
    );
    for words in [
        "dlami:amazon-linux-2023",
        "ami-0123456789abcdef0",
        "ssm:/nothing/of/that/name",
        "name:no-such-*",
        "ami-0d15ea5e000000010",
    ] {
        let found = with(words);
        assert_eq!(found["level"], "failure", "{words}: {found:#}");
        let (said, fix) =
            (found["said"].as_str().unwrap_or_default(), found["fix"].as_str().unwrap_or_default());
        assert!(
            said.starts_with(&format!("`{words}`, says the configuration, and it cannot be had: "))
                && fix.contains("`dlami`"),
            "{found:#}"
        );
    }
    assert_eq!(with("dlami")["level"], "ok", "the others stand");
}

/// An account can be ready in a region where nothing can be bought: both verbs say so.
#[test]
fn region_without_a_disk_price_is_reported_by_init_and_doctor() {
    let Some(user) = User::new() else { return };
    let made = user.lamp(&["init", "aws", "--yes", "--region", "ap-south-2"]);
    assert!(
        made.code == 0
            && made.err.contains(
                "warning: the shipped catalogue does not know what a disk costs in ap-south-2"
            ),
        "{made:?}"
    );
    let found = with_agent(&user, &["doctor"]).1;
    let check = check(&found, "disk price");
    assert!(
        check["level"] == "failure"
            && check["said"].as_str().is_some_and(|said| said.contains("ap-south-2")),
        "{check:#}"
    );
    assert!(
        check["fix"].as_str().is_some_and(|fix| fix.contains("pricing:GetProducts")),
        "{check:#}"
    );
}

/// Each check that could not be made is named, and the whole is not called well.
#[test]
fn doctor_with_an_endpoint_that_is_down_reports_checks_unknown() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.config/lamplighter/config.toml", "[aws]\nregions = ['us-east-2']\n");
    let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
    let ended = offline(&sandbox, &["doctor"], &keys);
    assert!(
        ended.out.contains("?     credentials") && ended.out.contains("AWS does not answer: "),
        "{ended:?}"
    );
    for name in [
        "clock",
        "gpu quota",
        "spot role",
        "role of the machines",
        "network",
        "image",
        "price list",
    ] {
        assert!(
            ended.out.lines().any(|line| line.starts_with(&format!("?     {name} "))),
            "{name}: {}",
            ended.out
        );
    }
    // No agent is built for machines here: that is a failure of its own.
    assert!(
        [100, 103].contains(&ended.code) && ended.err.contains("without an answer: "),
        "{ended:?}"
    );
    let found = document(&offline(&sandbox, &["doctor", "-o", "json"], &keys));
    assert_eq!(
        (level(&found, "clock"), level(&found, "network")),
        ("unknown", "unknown"),
        "{found:#}"
    );
}

/// Its name has no address: whoever mistypes it would look for the fault in the network.
#[test]
fn region_that_nobody_knows_is_warned_of_with_what_was_meant() {
    let sandbox = Sandbox::new();
    let ended = offline(&sandbox, &["doctor"], &[("AWS_REGION", "us-eats-2")]);
    document(&offline(&sandbox, &["doctor", "-o", "json"], &[("AWS_REGION", "us-eats-2")]));
    assert!(ended.out.contains("warn  region "), "{ended:?}");
    assert!(
        ended.out.contains(
            "`us-eats-2` is no region that this version knows (did you mean `us-east-2`?)"
        ),
        "{ended:?}"
    );
}

#[test]
fn job_root_that_is_a_file_fails_doctor_and_its_origin_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("taken", "a file");
    let found = document(&offline(&sandbox, &["--job-root", "taken", "doctor", "-o", "json"], &[]));
    let root = check(&found, "job root");
    assert!(
        root["level"] == "failure"
            && root["fix"].as_str().is_some_and(|fix| fix.contains("--job-root")),
        "{root:#}"
    );
}

/// Whoever only uses this workstation is not told that something is broken.
#[test]
fn without_aws_nothing_is_broken() {
    let sandbox = Sandbox::new();
    let ended = offline(&sandbox, &["doctor"], &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    document(&offline(&sandbox, &["doctor", "-o", "json"], &[]));
    assert!(
        ended.out.contains("this workstation\n") && ended.out.contains("nothing here uses AWS"),
        "{ended:?}"
    );
    let rest = ended
        .out
        .lines()
        .position(|line| line.starts_with("-     the rest "))
        .expect("one line for all that was not asked");
    let said: Vec<&str> = ended.out.lines().skip(rest).flat_map(str::split_whitespace).collect();
    assert!(
        said.join(" ").contains("not asked: AWS does not know us: clock, gpu quota, spot role"),
        "{ended:?}"
    );
    assert!(
        !ended.out.contains("FAIL")
            && ended.out.lines().filter(|line| line.starts_with("warn")).count() == 2,
        "the endpoint stands in: {ended:?}"
    );
    assert!(ended.out.contains("-     region "), "{ended:?}");
}
