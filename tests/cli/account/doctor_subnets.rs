//! `lamp doctor` of named subnets: whether a machine there could fetch its agent, before one is
//! bought to find out.

#![cfg(feature = "aws")]

use serde_json::Value;

use crate::account::setup::User;

const CONFIG: &str = "home/.config/lamplighter/config.toml";

fn made(user: &User, action: &str, params: &[(&str, &str)], id: &str) -> String {
    user.ec2.ask(action, params).unwrap_or_else(|no| panic!("{action}: {no:?}")).all(id)[0]
        .text
        .clone()
}

fn checks(user: &User) -> Vec<Value> {
    let (_, found) = user.json(&["doctor"]);
    let all = found["checks"].as_array().expect("checks").iter().cloned();
    all.filter(|check| check["check"].as_str().is_some_and(|name| name.starts_with("subnets")))
        .collect()
}

#[test]
fn doctor_warns_of_a_named_subnet_without_a_route_out() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    assert_eq!(checks(&user), Vec::<Value>::new(), "none is named");
    let vpc = made(&user, "CreateVpc", &[("CidrBlock", "10.9.0.0/16")], "vpcId");
    let subnet = |block: &str| {
        made(
            &user,
            "CreateSubnet",
            &[("VpcId", &vpc), ("CidrBlock", block), ("AvailabilityZone", "us-east-1a")],
            "subnetId",
        )
    };
    let (shut, open) = (subnet("10.9.1.0/24"), subnet("10.9.2.0/24"));
    let gateway = made(&user, "CreateInternetGateway", &[], "internetGatewayId");
    user.ec2
        .ask("AttachInternetGateway", &[("VpcId", &vpc), ("InternetGatewayId", &gateway)])
        .expect("attached");
    let table = made(&user, "CreateRouteTable", &[("VpcId", &vpc)], "routeTableId");
    let route = [
        ("RouteTableId", table.as_str()),
        ("DestinationCidrBlock", "0.0.0.0/0"),
        ("GatewayId", &gateway),
    ];
    user.ec2.ask("CreateRoute", &route).expect("a route");
    user.ec2
        .ask("AssociateRouteTable", &[("RouteTableId", &table), ("SubnetId", &open)])
        .expect("associated");

    let plain = user.sandbox.read(CONFIG);
    let named = |ids: &[&str]| {
        user.sandbox
            .write(CONFIG, plain.replacen("[aws]\n", &format!("[aws]\nsubnets = {ids:?}\n"), 1))
    };
    named(&[&open]);
    let [one] = &checks(&user)[..] else { panic!("one: {:#?}", checks(&user)) };
    assert_eq!(one["level"], "warning", "its machines have no public address: {one:#}");
    assert!(
        one["fix"].as_str().is_some_and(
            |fix| fix.contains(&format!("--subnet-id {open} --map-public-ip-on-launch"))
        ),
        "{one:#}"
    );

    user.ec2
        .ask("ModifySubnetAttribute", &[("SubnetId", &open), ("MapPublicIpOnLaunch.Value", "true")])
        .expect("changed");
    let [one] = &checks(&user)[..] else { panic!("one: {:#?}", checks(&user)) };
    assert_eq!(
        (&one["check"], &one["level"]),
        (&"subnets, us-east-1".into(), &"ok".into()),
        "{one:#}"
    );

    named(&[&open, &shut, "subnet-0123456789abcdef0"]);
    let [here, nowhere] = &checks(&user)[..] else { panic!("two: {:#?}", checks(&user)) };
    assert_eq!(here["level"], "warning", "{here:#}");
    let said = here["said"].as_str().expect("words");
    assert!(
        said.starts_with(&format!("{shut} has no route out: ")) && !said.contains(&open),
        "{here:#}"
    );
    assert_eq!(nowhere["level"], "failure", "{nowhere:#}");
    assert!(
        nowhere["said"].as_str().is_some_and(
            |said| said.starts_with("subnet-0123456789abcdef0 is in none of the regions")
        ),
        "{nowhere:#}"
    );
}
