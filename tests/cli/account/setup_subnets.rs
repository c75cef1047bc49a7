//! Subnets of the user's own: `lamp init aws`, `lamp doctor`, a launch and `lamp uninit aws` mean
//! the same network.

#![cfg(feature = "aws")]

use serde_json::Value;

use crate::account::setup::User;
use crate::sandbox::{Ended, limit};

const CONFIG: &str = "home/.config/lamplighter/config.toml";

/// A second network with one subnet; gives both ids.
fn network(user: &User, addresses: &str) -> (String, String) {
    let made =
        user.ec2.ask("CreateVpc", &[("CidrBlock", &format!("{addresses}.0.0/16"))]).expect("a VPC");
    let vpc = made.all("vpcId")[0].text.clone();
    let block = format!("{addresses}.1.0/24");
    let asked = [
        ("VpcId", vpc.as_str()),
        ("CidrBlock", block.as_str()),
        ("AvailabilityZone", "us-east-1a"),
    ];
    let subnet =
        user.ec2.ask("CreateSubnet", &asked).expect("a subnet").all("subnetId")[0].text.clone();
    (vpc, subnet)
}

/// The configuration with these subnets beside what is there.
fn name_subnets(user: &User, subnets: &[&str]) {
    name(user, "subnets", &format!("{subnets:?}"));
}

fn name(user: &User, key: &str, value: &str) {
    let config = user.sandbox.read(CONFIG);
    let kept = config.lines().filter(|line| !line.starts_with(key));
    let all = kept.flat_map(|line| {
        [line.to_owned()].into_iter().chain((line == "[aws]").then(|| format!("{key} = {value}")))
    });
    user.sandbox.write(CONFIG, all.collect::<Vec<_>>().join("\n"));
}

fn plan(user: &User) -> Ended {
    let args =
        ["plan", "--cloud", "aws", "--gpus", "A10G", "--instance-type", "g5.xlarge", "--on-demand"];
    user.lamp(&[&args[..], limit(&args), &["--", "true"]].concat())
}

/// The networks in which a group of our name stands.
fn groups(user: &User) -> Vec<String> {
    let found = user
        .ec2
        .ask(
            "DescribeSecurityGroups",
            &[("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "lamplighter")],
        )
        .expect("groups");
    found.items("securityGroupInfo").iter().map(|group| group.at("vpcId").to_owned()).collect()
}

/// What doctor says of each network.
fn networks(user: &User) -> Vec<(String, String)> {
    let (_, found) = user.json(&["doctor"]);
    let word = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let checks = found["checks"].as_array().expect("checks").iter();
    checks
        .filter_map(|check| {
            Some((word(check, "check").strip_prefix("network, ")?.to_owned(), word(check, "level")))
        })
        .collect()
}

#[test]
fn security_group_follows_the_network_of_the_users_subnets() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let default = groups(&user);
    assert_eq!(
        (default.len(), networks(&user)),
        (1, vec![("us-east-1".to_owned(), "ok".to_owned())])
    );
    let (vpc, subnet) = network(&user, "10.7");
    name_subnets(&user, &[&subnet]);
    // The group of the default network is none of theirs, for a launch and for doctor alike.
    let refused = plan(&user);
    let said = format!(
        "the security group `lamplighter` is not in {vpc}, where {subnet} lies; `lamp init aws` makes one there"
    );
    assert!(refused.code != 0 && refused.err.contains(&said), "{refused:?}");
    let place = format!("{vpc} of us-east-1");
    assert_eq!(networks(&user), [(place.clone(), "failure".to_owned())]);

    let made = user.lamp(&["init", "aws", "--yes"]);
    assert!(
        made.code == 0 && made.out.contains(&format!("security group lamplighter in {place}")),
        "{made:?}"
    );
    assert_eq!(groups(&user), [default.clone(), vec![vpc.clone()]].concat());
    assert_eq!(networks(&user), [(place, "ok".to_owned())]);
    let planned = plan(&user);
    assert!(
        planned.code == 0 && planned.out.starts_with("g5.xlarge in us-east-1a, on-demand"),
        "{planned:?}"
    );
    user.changes();
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    assert_eq!(user.changes(), Vec::<String>::new(), "a second time changes nothing");

    // A third network: each has its own.
    let (other, beside) = network(&user, "10.8");
    name_subnets(&user, &[&subnet, &beside]);
    let mut levels: Vec<String> = networks(&user).into_iter().map(|(_, level)| level).collect();
    levels.sort();
    assert_eq!(levels, ["failure", "ok"]);
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    assert_eq!(groups(&user), [default, vec![vpc, other]].concat());

    // What was made is taken away, also where the configuration says otherwise by now.
    let gone = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    assert_eq!(groups(&user), Vec::<String>::new());
}

/// It is there, and of no use where the machines are.
#[test]
fn security_group_id_of_another_network_is_reported() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let found = user
        .ec2
        .ask(
            "DescribeSecurityGroups",
            &[("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "lamplighter")],
        )
        .expect("groups");
    let (id, theirs) = (found.all("groupId")[0].text.clone(), groups(&user).remove(0));
    let (ours, subnet) = network(&user, "10.7");
    let fix = |theirs: &str, ours: &str| {
        format!(
            "name a security group of {ours} as `security_group` in [aws], or subnets of {theirs} as `subnets`"
        )
    };
    let said = || {
        let (_, found) = user.json(&["doctor"]);
        let checks = found["checks"].as_array().expect("checks").iter().cloned();
        let network: Vec<Value> = checks
            .filter(|check| {
                check["check"].as_str().is_some_and(|name| name.starts_with("network, "))
            })
            .collect();
        network[0].clone()
    };
    name(&user, "security_group", &format!("{id:?}"));
    assert_eq!(said()["level"], "ok");
    name_subnets(&user, &[&subnet]);
    let check = said();
    let words =
        format!("the security group {id} is in {theirs}, and machines are bought in {ours}");
    assert_eq!(
        (&check["level"], &check["said"], &check["fix"]),
        (&"failure".into(), &words.into(), &fix(&theirs, &ours).into())
    );
    let refused = plan(&user);
    let words = format!(
        "the security group `{id}` is in {theirs}, and {subnet} lies in {ours}: {}",
        fix(&theirs, &ours)
    );
    assert!(refused.code != 0 && refused.err.contains(&words), "{refused:?}");

    // The other way round: their own network's group, and no subnet of it.
    let made = user
        .ec2
        .ask(
            "CreateSecurityGroup",
            &[("GroupName", "own"), ("GroupDescription", "own"), ("VpcId", &ours)],
        )
        .expect("made");
    name(&user, "security_group", &format!("{:?}", made.all("groupId")[0].text));
    assert_eq!(said()["level"], "ok");
    let config = user.sandbox.read(CONFIG);
    user.sandbox.write(
        CONFIG,
        config.lines().filter(|line| !line.starts_with("subnets")).collect::<Vec<_>>().join("\n"),
    );
    assert_eq!(
        (&said()["level"], &said()["fix"]),
        (&"failure".into(), &fix(&ours, &theirs).into())
    );
    let refused = plan(&user);
    assert!(
        refused.code == 102
            && refused.err.contains(&format!(" in {theirs} of us-east-1 (it is in {ours})")),
        "{refused:?}"
    );
}
