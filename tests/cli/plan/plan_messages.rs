//! What `lamp plan` says of a machine that will not be had: what a run would refuse, a slip, a
//! quota, a price that nobody named.

use serde_json::Value;

use crate::plan::plan_aws::{market, root};
use crate::sandbox::{Ended, Sandbox};

/// What a run would refuse, a plan does not end with 0, and it shows the plan all the same.
#[test]
fn plan_with_an_unusable_job_root_ends_with_the_code_of_run() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let job = [
        "--cloud",
        "aws",
        "--gpus",
        "A10G",
        "--instance-type",
        "g5.xlarge",
        "--max-runtime",
        "1h",
        "--",
        "python3",
        "train.py",
    ];
    let lamp =
        |verb: &str| sandbox.end(sandbox.command(&[&[verb], &job[..]].concat()).envs(ec2.env()));
    let (planned, run) = (lamp("plan"), lamp("run"));
    assert_eq!(
        (planned.code, run.code),
        (102, 102),
        "its job root is a folder: {planned:?} {run:?}"
    );
    assert!(
        planned.out.starts_with(
            "g5.xlarge in us-east-1a, on-demand, $1.01/h: this machine costs at most $"
        ),
        "{planned:?}"
    );
}

/// As the doctor says it of an image that the configuration names.
#[test]
fn an_image_that_is_not_there_says_which_are() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let plan = |image: &str| {
        let words = [
            "plan",
            "--cloud",
            "aws",
            "--gpus",
            "A10G",
            "--max-runtime",
            "1h",
            "--image",
            image,
            "--",
            "python3",
            "train.py",
        ];
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)))
    };
    for (image, missing) in [
        ("/none/such", "there is no parameter `/none/such` in us-east-1"),
        ("ami-12345678", "there is no image ami-12345678 in us-east-1"),
    ] {
        let ended = plan(image);
        assert!(ended.code == 104 && ended.err.contains(missing), "{ended:?}");
        let hint = "hint: another `--image`, or `image` in [machine] of the job file: `aws ec2 describe-images --region us-east-1 --owners self`";
        assert!(ended.err.contains(hint), "{ended:?}");
    }
}

/// A slip of the finger, and a quota: both with what to type.
#[test]
fn mistyped_gpu_and_a_quota_that_is_too_small_say_what_to_do() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let plan = |wanted: &[&str]| {
        let words = [
            &["plan", "--cloud", "aws", "--max-runtime", "1h"],
            wanted,
            &["--", "python3", "train.py"],
        ]
        .concat();
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)))
    };
    let model = plan(&["--gpus", "A10"]);
    assert!(model.code == 104 && model.err.contains("; did you mean A100 or A10G?"), "{model:?}");
    let kind = plan(&["--instance-type", "g5.xlrge"]);
    assert!(
        kind.code == 104
            && kind.err.contains("g5.xlrge is not sold in us-east-1 (did you mean g5.xlarge?)"),
        "{kind:?}"
    );
    ec2.quota("L-DB2E81BA", 64.0);
    let eight = plan(&["--gpus", "A10G:8"]);
    for said in [
        "needs 192 vCPUs, and the quota",
        "--quota-code L-DB2E81BA --desired-value 192",
        "servicequotas/home/services/ec2/quotas/L-DB2E81BA",
    ] {
        assert!(eight.code == 104 && eight.err.contains(said), "{said}: {eight:?}");
    }
}

/// Nothing many times as dear is bought without a word, and the plan says the word.
#[test]
fn plan_names_what_is_too_dear_to_be_bought_in_its_place() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let plan = |more: &[&str]| {
        let words = [
            &[
                "plan",
                "--cloud",
                "aws",
                "--gpus",
                "A10G:1",
                "--region",
                "us-east-1",
                "--max-runtime",
                "1h",
            ],
            more,
            &["--", "python3", "train.py"],
        ]
        .concat();
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)))
    };
    let types = |document: &Value, key: &str| -> Vec<String> {
        let all = document[key].as_array().into_iter().flatten();
        all.filter_map(|one| {
            one["instance_type"].as_str().or(one["offer"]["instance_type"].as_str())
        })
        .map(str::to_owned)
        .collect()
    };
    let shown = plan(&[]);
    assert!(
        shown.out.contains("not g5.12xlarge in us-east-1")
            && shown.out.contains("` would allow it"),
        "{shown:?}"
    );
    assert!(
        shown.out.contains(" where it is not to be had and a dearer one takes its place\n"),
        "{shown:?}"
    );
    let read = |ended: Ended| -> Value {
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    };
    let (usual, any) =
        (read(plan(&["-o", "json"])), read(plan(&["--fallback-cost", "any", "-o", "json"])));
    assert!(!types(&usual, "fallbacks").iter().any(|kind| kind == "g5.12xlarge"), "{usual}");
    assert!(
        types(&usual, "rejected").iter().any(|kind| kind == "g5.12xlarge")
            && types(&any, "fallbacks").iter().any(|kind| kind == "g5.12xlarge")
    );
    let usd = |document: &Value, key: &str| {
        document[key].as_f64().unwrap_or_else(|| panic!("{document}"))
    };
    assert_eq!(usd(&usual, "most_usd_offer"), usd(&any, "most_usd_offer"));
    assert!(
        usd(&usual, "most_usd") < 2.0 * usd(&usual, "most_usd_offer") + 0.01
            && usd(&any, "most_usd") > 5.0 * usd(&any, "most_usd_offer"),
        "{usual}"
    );
}

/// Nobody is sent to ask for a quota of machines that the budget would not pay; and what is named
/// is enough.
#[test]
fn budget_or_bid_that_is_too_small_gets_a_hint_that_suffices() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let plan = |more: &[&str]| {
        let words = [
            &["plan", "--cloud", "aws", "--gpus", "A10G:1", "--max-runtime", "1h"],
            more,
            &["--", "python3", "train.py"],
        ]
        .concat();
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)))
    };
    ec2.quota("L-DB2E81BA", 8.0);
    let poor = plan(&["--budget", "0.05"]);
    assert!(
        poor.code == 104 && poor.err.contains("is too dear for the budget; the cheapest, g5.xlarge in us-east-1a, costs up to $1.02/h"),
        "{poor:?}"
    );
    assert!(!poor.err.contains("ask for"), "no quota is in the way of a cheap machine: {poor:?}");
    assert!(
        poor.err.contains("is enough to start one: 10 minutes of g5.xlarge"),
        "whole cents are not the smallest: {poor:?}"
    );
    let smallest = poor
        .err
        .split("hint: `--budget ")
        .nth(1)
        .and_then(|rest| rest.split('`').next())
        .unwrap_or_else(|| panic!("{poor:?}"));
    assert!(poor.err.contains("would pay for all the time that its limits allow"), "{poor:?}");
    let enough = plan(&["--budget", smallest]);
    assert!(enough.out.starts_with("g5.xlarge in us-east-1a, on-demand"), "{enough:?}");
    ec2.quota("L-3819A6DF", 8.0);
    let low = plan(&["--market", "spot", "--max-price", "0.1"]);
    assert!(
        low.code == 104
            && low.err.contains("hint: g5.xlarge in us-east-1b, spot costs $0.36/h now: ")
            && !low.err.contains("ask for"),
        "{low:?}"
    );
}

/// A region without a known price for disks offers nothing, and the message has the cure. A price of
/// the shipped list is enough.
#[test]
fn region_without_the_price_of_a_disk_says_so_and_what_to_do() {
    let Some(ec2) = market() else { return };
    let sandbox = Sandbox::with_script();
    let plan = |region: &str| {
        let words = [
            "plan",
            "--cloud",
            "aws",
            "--instance-type",
            "t3.micro",
            "--region",
            region,
            "--max-runtime",
            "1h",
            "--",
            "python3",
            "train.py",
        ];
        sandbox.end(sandbox.command(&words).envs(ec2.env()).env("LAMP_JOB_ROOT", root(&ec2)))
    };
    for region in ["ap-south-2", "eu-north-1"] {
        ec2.ask_in(
            region,
            "CreateSecurityGroup",
            &[("GroupName", "lamplighter"), ("GroupDescription", "x")],
        )
        .expect("made");
    }
    let none = plan("ap-south-2");
    for said in [
        "the price of a disk in ap-south-2 is not known",
        "hint: prices come from AWS's price list",
        "`pricing:GetProducts`",
        "eu-north-1",
    ] {
        assert!(none.code == 104 && none.err.contains(said), "{said}: {none:?}");
    }
    let north = plan("eu-north-1");
    assert!(north.out.starts_with("t3.micro in eu-north-1"), "{north:?}");
}
