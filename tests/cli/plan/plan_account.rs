//! `lamp plan` in accounts as people have them: a key of their own for disks, a dedicated network,
//! a region that is off, bare metal.

use serde_json::json;

use crate::plan::plan_aws::{market, root};
use crate::sandbox::{Ended, Sandbox, limit};
use lamp_test_support::ec2::{FalseEc2, Fault};

fn plan_in(ec2: &FalseEc2, config: &str, args: &[&str]) -> Ended {
    let sandbox = Sandbox::with_script();
    sandbox.write("home/.config/lamplighter/config.toml", config);
    let all = [
        &["plan", "--cloud", "aws", "--gpus", "A10G", "--instance-type", "g5.xlarge"],
        args,
        limit(args),
        &["--", "python3", "train.py"],
    ]
    .concat();
    sandbox.end(sandbox.command(&all).envs(ec2.env()).env("LAMP_JOB_ROOT", root(ec2)))
}

#[test]
fn disk_key_is_refused_if_disabled_and_told_if_unfit_for_spot() {
    let Some(ec2) = market() else { return };
    let made = ec2
        .ask_json("kms", "TrentService.CreateKey", &json!({ "Description": "disks" }))
        .expect("a key");
    let (id, arn) = (
        made["KeyMetadata"]["KeyId"].clone(),
        made["KeyMetadata"]["Arn"].as_str().expect("an arn").to_owned(),
    );
    ec2.disk_key(&arn);
    let spot = plan_in(&ec2, "", &["--spot-auto", "--checkpoint", "saved", "--max-runtime", "3h"]);
    assert!(
        spot.code == 0 && spot.out.contains("AWSServiceRoleForEC2Spot may not use it"),
        "{spot:?}"
    );
    assert!(
        spot.out.contains(&format!("`aws kms create-grant --region us-east-1 --key-id {arn}")),
        "{spot:?}"
    );
    let on_demand = plan_in(&ec2, "", &["--on-demand"]);
    assert!(on_demand.code == 0 && !on_demand.out.contains("create-grant"), "{on_demand:?}");
    let role = "arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot";
    let grant =
        json!({ "KeyId": id, "GranteePrincipal": role, "Operations": ["Decrypt", "CreateGrant"] });
    ec2.ask_json("kms", "TrentService.CreateGrant", &grant).expect("a grant");
    let granted =
        plan_in(&ec2, "", &["--spot-auto", "--checkpoint", "saved", "--max-runtime", "3h"]);
    assert!(granted.code == 0 && !granted.out.contains("create-grant"), "{granted:?}");
    ec2.ask_json("kms", "TrentService.DisableKey", &json!({ "KeyId": id })).expect("disabled");
    let refused = plan_in(&ec2, "", &["--on-demand"]);
    assert!(
        refused.code != 0 && refused.err.contains("which is Disabled: no machine can start"),
        "{refused:?}"
    );
    assert!(refused.err.contains("`aws kms enable-key --region us-east-1"), "{refused:?}");
}

#[test]
fn network_of_dedicated_machines_is_refused_with_its_price() {
    let Some(ec2) = market() else { return };
    let made = |action: &str, params: &[(&str, &str)], key: &str| {
        ec2.ask(action, params).expect("made").all(key)[0].text.clone()
    };
    let vpc = made(
        "CreateVpc",
        &[("CidrBlock", "10.9.0.0/16"), ("InstanceTenancy", "dedicated")],
        "vpcId",
    );
    let subnet = made(
        "CreateSubnet",
        &[("VpcId", &vpc), ("CidrBlock", "10.9.1.0/24"), ("AvailabilityZone", "us-east-1a")],
        "subnetId",
    );
    let refused = plan_in(&ec2, &format!("[aws]\nsubnets = [\"{subnet}\"]\n"), &["--on-demand"]);
    let said = format!("the network {vpc} of {subnet} makes every machine a dedicated one");
    assert!(
        refused.code != 0 && refused.err.contains(&said) && refused.err.contains("$2.00 an hour"),
        "{refused:?}"
    );
}

#[test]
fn region_that_is_off_or_is_none_is_called_so() {
    let Some(ec2) = market() else { return };
    // EC2 answers as if the credentials were wrong.
    for call in
        ["DescribeInstanceTypes", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs"]
    {
        ec2.fault(Fault::code(call, "AuthFailure").always());
    }
    for (region, said) in [
        (
            "ap-east-1",
            "the region ap-east-1 is not switched on in this account: `aws account enable-region --region-name ap-east-1`",
        ),
        ("us-esat-1", "AWS has no region `us-esat-1`; did you mean us-east-1"),
    ] {
        let sandbox = Sandbox::with_script();
        let machine = format!(
            "[machine]\ncloud = 'aws'\ngpus = 'A10G'\ninstance_types = ['g5.xlarge']\nmarket = 'on-demand'\nregions = ['{region}']\n"
        );
        sandbox.write(
            "lamp.toml",
            format!("command = ['python3', 'train.py']\n{machine}[limits]\nmax_runtime = '1h'\n"),
        );
        let refused = sandbox
            .end(sandbox.command(&["plan"]).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)));
        assert!(refused.code != 0 && refused.err.contains(said), "{refused:?}");
    }
}
