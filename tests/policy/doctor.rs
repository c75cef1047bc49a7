//! What `lamp doctor` makes of what it found: each fault has its level and a cure that can be
//! typed.

use lamplighter::account::lookup::{
    BucketFound, Found, GroupFound, ImageFound, ProfileFound, RegionFound, RoleFound,
};
use lamplighter::account::permissions::PolicyName;
use lamplighter::account::setup::SetupNames;
use lamplighter::market::{Arch, Market, QuotaKind, gpu_quotas};
use lamplighter::policy::account::doctor::{
    Check, GpuQuota, Level, judge_alarm_role, judge_bucket, judge_clock, judge_image,
    judge_network, judge_price_list, judge_quotas, judge_role, judge_spot_role, judge_stand_in,
    judge_writing, worst,
};

fn names() -> SetupNames {
    SetupNames {
        owner: "alice".into(),
        regions: vec!["us-east-2".into()],
        bucket: "jobs".into(),
        bucket_is_ours_by_name: false,
        prefix: "team/".into(),
        role: "lamplighter-box".into(),
        group: "lamplighter".into(),
        session_manager: false,
        gangs: false,
        secrets: vec![],
    }
}

fn bucket() -> BucketFound {
    BucketFound {
        owner: None,
        region: "us-east-2".into(),
        versioned: true,
        private: true,
        encrypted: true,
        own_key: None,
        tidy: true,
    }
}

fn level_and_cure(check: &Check) -> (Level, bool) {
    (check.level, check.fix.as_ref().is_some_and(|fix| fix.contains('`')))
}

#[test]
fn clock_that_is_off_is_told_before_aws_refuses() {
    for (secs, level) in [
        (0, Level::Ok),
        (59, Level::Ok),
        (-60, Level::Warning),
        (240, Level::Failure),
        (-86400, Level::Failure),
    ] {
        assert_eq!(judge_clock(&Ok(secs)).level, level, "{secs}");
    }
    assert_eq!(judge_clock(&Ok(-7)).said, "7 s behind AWS's");
    assert_eq!(level_and_cure(&judge_clock(&Err("no route".into()))), (Level::Unknown, true));
}

/// As AWS would say them: of the two markets.
fn quotas(spot: Result<f64, String>, on_demand: f64) -> Vec<GpuQuota> {
    let of =
        |kind: &QuotaKind| if kind.market == Market::Spot { spot.clone() } else { Ok(on_demand) };
    gpu_quotas().map(|kind| GpuQuota { kind, vcpus: of(kind) }).collect()
}

#[test]
fn quota_of_nothing_says_how_to_ask_for_more() {
    let levels = |quotas: &[GpuQuota]| {
        judge_quotas("us-east-2", quotas).iter().map(|check| check.level).collect::<Vec<_>>()
    };
    assert_eq!(levels(&quotas(Ok(64.0), 64.0)), [Level::Ok, Level::Ok]);
    let spot = judge_quotas("us-east-2", &quotas(Ok(64.0), 64.0)).swap_remove(0);
    assert_eq!(spot.check, "gpu quota, spot, us-east-2");
    assert_eq!(
        spot.said,
        "G and VT 64 vCPUs, P2 to P4 64 vCPUs, P5 64 vCPUs; no quota that this version knows counts p6"
    );
    assert_eq!(levels(&quotas(Ok(0.0), 64.0)), [Level::Warning, Level::Ok]);
    assert_eq!(levels(&quotas(Ok(0.0), 0.0)), [Level::Failure, Level::Failure]);
    assert_eq!(
        levels(&quotas(Err("AccessDenied: no".into()), 0.0)),
        [Level::Warning, Level::Warning],
        "unknown is not nothing"
    );
    let fix = judge_quotas("us-east-2", &quotas(Ok(0.0), 8.0))[0].fix.clone().unwrap();
    assert!(
        fix.contains(
            "--region us-east-2 --service-code ec2 --quota-code L-3819A6DF --desired-value 8"
        ),
        "{fix}"
    );
    assert!(fix.contains("https://us-east-2.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-3819A6DF"), "{fix}");
}

#[test]
fn bucket_is_there_private_and_near() {
    let judge = |found| level_and_cure(&judge_bucket(&names(), &found));
    assert_eq!(judge(Found::There(bucket())), (Level::Ok, false));
    assert_eq!(judge(Found::Nothing), (Level::Failure, true));
    assert_eq!(
        judge(Found::There(BucketFound { private: false, ..bucket() })),
        (Level::Failure, true)
    );
    assert_eq!(
        judge(Found::There(BucketFound { versioned: false, ..bucket() })),
        (Level::Warning, true)
    );
    assert_eq!(
        judge(Found::There(BucketFound { region: "eu-west-1".into(), ..bucket() })),
        (Level::Warning, true)
    );
    assert_eq!(judge(Found::Unknown("AccessDenied: no".into())), (Level::Warning, true));
    assert_eq!(
        judge(Found::Unknown("connection refused".into())),
        (Level::Unknown, true),
        "no answer is not well"
    );
    assert_eq!(
        level_and_cure(&judge_writing("jobs", &Err("AccessDenied".into()))),
        (Level::Failure, true)
    );
}

/// S3 has answered: with no cure, whoever was given a name that is taken would look for the fault
/// in the network.
#[test]
fn bucket_of_another_account_is_a_failure_with_a_cure() {
    let told = judge_bucket(
        &names(),
        &Found::Unknown(
            "`jobs` is another account's, or we may not look at it; choose another --bucket".into(),
        ),
    );
    assert_eq!(level_and_cure(&told), (Level::Failure, true));
    assert!(
        told.fix
            .is_some_and(|fix| fix.contains("--bucket") && fix.contains("`lamp iam controller`"))
    );
}

#[test]
fn absent_image_or_price_list_fails_and_an_unknown_one_does_not() {
    let there = |arch| ImageFound::There { id: "ami-1".into(), name: "trainer".into(), arch };
    let refused = || ImageFound::Refused("`machine.image`: there is no image".into());
    for configured in [None, Some("ssm:/mine")] {
        let image =
            |found| level_and_cure(&judge_image("us-east-2", configured, Arch::X86_64, &found));
        assert_eq!(image(there(Arch::X86_64)), (Level::Ok, false));
        assert_eq!(
            image(there(Arch::Arm64)),
            (Level::Warning, true),
            "no machine that jobs get starts from it"
        );
        assert_eq!(image(refused()), (Level::Failure, true));
        assert_eq!(
            image(ImageFound::Unknown("AccessDeniedException: no".into())),
            (Level::Warning, true)
        );
        assert_eq!(image(ImageFound::Unknown("connection refused".into())), (Level::Unknown, true));
    }
    let said = judge_image("us-east-2", Some("ssm:/mine"), Arch::X86_64, &refused()).said;
    assert_eq!(
        said,
        "`ssm:/mine`, says the configuration, and it cannot be had: there is no image"
    );
    let prices =
        |in_dollars, found| level_and_cure(&judge_price_list("us-east-2", in_dollars, &found));
    assert_eq!(prices(false, Found::Nothing), (Level::Failure, true));
    assert_eq!(prices(true, Found::Nothing), (Level::Warning, true));
    assert_eq!(prices(false, Found::Unknown("connection refused".into())), (Level::Unknown, true));
}

#[test]
fn bucket_with_a_key_that_the_machines_may_not_use_is_broken() {
    let key = "arn:aws:kms:us-east-2:1:key/0a1b";
    let check = judge_bucket(
        &names(),
        &Found::There(BucketFound { own_key: Some(key.into()), ..bucket() }),
    );
    assert_eq!(level_and_cure(&check), (Level::Failure, true));
    assert!(
        check.said.contains(key)
            && check
                .fix
                .as_ref()
                .is_some_and(|fix| fix.contains("put-bucket-encryption --bucket jobs")),
        "{check:?}"
    );
}

#[test]
fn alarm_needs_its_role_where_there_is_an_alarm() {
    let judge = |armed, found: &Found<()>| level_and_cure(&judge_alarm_role(armed, found));
    assert_eq!(judge(true, &Found::There(())), (Level::Ok, false));
    assert_eq!(judge(true, &Found::Nothing), (Level::Warning, true));
    assert_eq!(judge(false, &Found::Nothing), (Level::Skipped, false));
    assert!(
        judge_alarm_role(true, &Found::Nothing)
            .fix
            .unwrap()
            .contains("--aws-service-name events.amazonaws.com")
    );
}

#[test]
fn role_of_the_machines_allows_this_job_root() {
    let policy = Some(names().permissions().policy(PolicyName::Box));
    let role = |policy| Found::There(RoleFound { owner: None, policy, session_policy: None });
    let profile = |roles: &[&str]| {
        Found::There(ProfileFound {
            owner: None,
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        })
    };
    let ours = || profile(&["lamplighter-box"]);
    let judge = |role, profile| level_and_cure(&judge_role(&names(), &role, &profile));
    assert_eq!(judge(role(policy.clone()), ours()), (Level::Ok, false));
    assert_eq!(judge(role(None), ours()), (Level::Warning, true));
    assert_eq!(judge(role(policy.clone()), profile(&[])), (Level::Failure, true));
    assert_eq!(judge(role(policy), Found::Nothing), (Level::Failure, true));
    // Who did not make it by `lamp init aws` does not mend it so.
    let fix = judge_role(&names(), &role(None), &ours()).fix.unwrap();
    assert!(fix.contains("put-role-policy") && !fix.contains("lamp init"), "{fix}");
    // Of another job root.
    let other =
        SetupNames { prefix: String::new(), ..names() }.permissions().policy(PolicyName::Box);
    assert_eq!(
        judge(role(Some(other)), ours()).0,
        Level::Failure,
        "the jobs of another root are not those of this one"
    );
    let of_old = |root: &str| {
        let read = serde_json::json!({ "Effect": "Allow", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{root}*") });
        Some(serde_json::json!({ "Statement": [read] }))
    };
    let bucket = names().bucket;
    assert_eq!(
        judge(role(of_old(&format!("{bucket}/"))), ours()).0,
        Level::Warning,
        "a wider one reaches it"
    );
    assert_eq!(
        judge(role(of_old(&format!("{bucket}/team/"))), ours()).0,
        Level::Warning,
        "as `lamp init aws` wrote it once"
    );
    assert_eq!(judge(role(of_old(&format!("{bucket}/other/"))), ours()).0, Level::Failure);
    let other =
        SetupNames { bucket: "other".into(), ..names() }.permissions().policy(PolicyName::Box);
    assert_eq!(judge(role(Some(other)), ours()).0, Level::Failure);
    // Before there is a bucket, `lamp iam box` cannot print what it should be.
    let none = judge_role(&SetupNames { bucket: String::new(), ..names() }, &role(None), &ours());
    assert!(
        none.level == Level::Warning
            && none.fix.as_ref().is_some_and(|fix| !fix.contains("lamp iam box")),
        "{none:?}"
    );
}

#[test]
fn network_check_wants_egress_and_no_ingress() {
    let region = |vpc, group| RegionFound {
        region: "us-east-2".into(),
        vpc,
        by_subnets: false,
        group,
        gang_group: Found::Nothing,
        elsewhere: vec![],
        stands_in: None,
    };
    let vpc = || Found::There("vpc-1".to_owned());
    let group = |rules_in| Found::There(GroupFound { id: "sg-1".into(), owner: None, rules_in });
    let judge = |region| judge_network(&names(), &region).level;
    assert_eq!(judge(region(vpc(), group(0))), Level::Ok);
    assert_eq!(judge(region(vpc(), group(1))), Level::Warning);
    assert_eq!(judge(region(vpc(), Found::Nothing)), Level::Failure);
    assert_eq!(judge(region(Found::Nothing, Found::Nothing)), Level::Failure);
    // The user names subnets: their network counts, and a region without one buys nothing, which
    // harms no other.
    let of_subnets = |vpc, group| RegionFound { by_subnets: true, ..region(vpc, group) };
    let missing = judge_network(&names(), &of_subnets(vpc(), Found::Nothing));
    assert_eq!(
        (missing.level, missing.check.as_str()),
        (Level::Failure, "network, vpc-1 of us-east-2")
    );
    assert_eq!(judge(of_subnets(Found::Nothing, Found::Nothing)), Level::Warning);
    // It is named by its id, and stands in another network.
    let apart =
        RegionFound { stands_in: Some("vpc-2".into()), ..of_subnets(vpc(), Found::Nothing) };
    let told = judge_network(&SetupNames { group: "sg-0a".into(), ..names() }, &apart);
    assert_eq!(
        (told.level, told.said.as_str()),
        (Level::Failure, "the security group sg-0a is in vpc-2, and machines are bought in vpc-1")
    );
    assert_eq!(
        told.fix.as_deref(),
        Some(
            "name a security group of vpc-1 as `security_group` in [aws], or subnets of vpc-2 as `subnets`"
        )
    );
}

#[test]
fn worst_is_the_end() {
    assert_eq!(worst(&[]), Level::Ok);
    let checks = [
        judge_spot_role(&Found::There(())),
        judge_spot_role(&Found::Nothing),
        judge_price_list("us-east-2", false, &Found::There(())),
    ];
    assert_eq!(worst(&checks), Level::Warning);
    assert_eq!(worst(&[Check::new("x", Level::Skipped, "")]), Level::Skipped);
}

#[test]
fn address_of_this_computer_is_beyond_the_reach_of_machines() {
    for own in
        ["http://127.0.0.1:5000", "http://localhost:4566/", "https://[::1]:1", "http://127.8.0.1"]
    {
        assert!(judge_stand_in(own).said.contains("no machine reaches it"), "{own}");
    }
    for other in ["http://10.0.0.5:5000", "https://moto.example", "nonsense"] {
        assert_eq!(judge_stand_in(other).said, format!("{other} stands in for AWS"));
    }
}
