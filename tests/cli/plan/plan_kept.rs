//! What `lamp plan` keeps of AWS's answers: nothing of another account's, and no quota that was
//! raised since.

use std::path::Path;
use std::process::Command;

use crate::plan::plan_aws::{market, root};
use crate::sandbox::Sandbox;
use lamp_test_support::ec2::{Call, FalseEc2};

/// The quota of spot machines with such a GPU.
const SPOT: &str = "L-3819A6DF";

fn plan(sandbox: &Sandbox, ec2: &FalseEc2) -> Command {
    let args = [
        "plan",
        "--cloud",
        "aws",
        "--gpus",
        "A10G",
        "--instance-type",
        "g5.xlarge",
        "--spot",
        "--max-runtime",
        "24h",
        "--",
        "python3",
        "train.py",
    ];
    let mut command = sandbox.command(&args);
    command.envs(ec2.env()).env("LAMP_JOB_ROOT", root(ec2));
    command
}

fn asked(calls: &[Call], action: &str, key: &str) -> usize {
    calls.iter().filter(|call| call.action == action && call.key == key).count()
}

#[test]
fn quota_that_was_raised_a_moment_ago_refuses_nothing() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    ec2.quota(SPOT, 0.0);
    let none = sandbox.end(&mut plan(&sandbox, &ec2));
    assert!(none.code == 104 && none.err.contains("has 0 of 0 left in us-east-1"), "{none:?}");
    assert_eq!(
        asked(&ec2.take_calls(), "GetServiceQuota", "test"),
        1,
        "what was asked for now is not asked for again"
    );
    let still = sandbox.end(&mut plan(&sandbox, &ec2));
    assert!(still.code == 104 && still.err.contains("has 0 of 0 left in us-east-1"), "{still:?}");
    ec2.quota(SPOT, 64.0);
    let raised = sandbox.end(&mut plan(&sandbox, &ec2));
    assert!(raised.code == 0 && raised.out.contains("64 of 64 vCPUs are free"), "{raised:?}");
    // What leaves room holds for an hour.
    ec2.take_calls();
    let kept = sandbox.end(&mut plan(&sandbox, &ec2));
    assert_eq!(
        (kept.code, asked(&ec2.take_calls(), "GetServiceQuota", "test")),
        (0, 0),
        "{kept:?}"
    );
}

fn names(folder: &Path) -> Vec<String> {
    let inside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    inside
        .flat_map(|entry| {
            [vec![entry.file_name().to_string_lossy().into_owned()], names(&entry.path())].concat()
        })
        .collect()
}

/// The same names choose another account after `aws sso login` or a look into another file.
#[test]
fn what_one_account_was_told_is_not_believed_by_another() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let keys = |file: &str, key: &str| {
        sandbox.write(
            file,
            format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = test\n"),
        )
    };
    let types = |file: &str, key: &str| {
        ec2.take_calls();
        let mut command = plan(&sandbox, &ec2);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        let ended =
            sandbox.end(command.env("AWS_SHARED_CREDENTIALS_FILE", sandbox.path().join(file)));
        assert_eq!(ended.code, 0, "{ended:?}");
        asked(&ec2.take_calls(), "DescribeInstanceTypes", key)
    };
    keys("mine", "AKIAMINE");
    assert_eq!((types("mine", "AKIAMINE"), types("mine", "AKIAMINE")), (1, 0), "kept");
    keys("theirs", "AKIATHEIRS");
    assert_eq!(types("theirs", "AKIATHEIRS"), 1, "of another file");
    keys("mine", "AKIANEXT");
    assert_eq!(types("mine", "AKIANEXT"), 1, "of the same file, with another key");
    let kept = names(&sandbox.path().join("home/.cache/lamplighter/aws"));
    assert!(kept.len() > 3 && kept.iter().all(|name| !name.contains("AKIA")), "{kept:?}");
}
