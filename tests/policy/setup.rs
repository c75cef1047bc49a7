//! From what stands in an account to the steps that make it ready, and that take it away again.

use lamplighter::account::lookup::{
    BucketFound, Found, GroupFound, ProfileFound, RegionFound, RoleFound, SetupFound,
};
use lamplighter::account::permissions::PolicyName;
use lamplighter::account::setup::{InUse, SetupNames, SetupStep};
use lamplighter::policy::account::setup_plan::{
    Lack, ReadyFound, Rebind, SetupLine, lacking, lacking_for_gang, plan_removal, plan_setup,
};

pub fn names() -> SetupNames {
    SetupNames {
        owner: "alice".into(),
        regions: vec!["us-east-2".into()],
        bucket: "lamplighter-1-us-east-2".into(),
        bucket_is_ours_by_name: true,
        prefix: String::new(),
        role: "lamplighter-box".into(),
        group: "lamplighter".into(),
        session_manager: false,
        gangs: false,
        secrets: vec![],
    }
}

fn region(group: Found<GroupFound>) -> RegionFound {
    RegionFound {
        region: "us-east-2".into(),
        vpc: Found::There("vpc-1".into()),
        by_subnets: false,
        group,
        gang_group: Found::Nothing,
        elsewhere: vec![],
        stands_in: None,
    }
}

fn empty() -> SetupFound {
    SetupFound {
        bucket: Found::Nothing,
        role: Found::Nothing,
        profile: Found::Nothing,
        regions: vec![region(Found::Nothing)],
        spot_role: Found::Nothing,
        alarm_role: Found::Nothing,
    }
}

/// As `lamp init aws` leaves an account.
fn ready(owner: &str) -> SetupFound {
    let owner = Some(owner.to_owned());
    let policy = Some(names().permissions().policy(PolicyName::Box));
    SetupFound {
        bucket: Found::There(BucketFound {
            owner: owner.clone(),
            region: "us-east-2".into(),
            versioned: true,
            private: true,
            encrypted: true,
            own_key: None,
            tidy: true,
        }),
        role: Found::There(RoleFound { owner: owner.clone(), policy, session_policy: None }),
        profile: Found::There(ProfileFound {
            owner: owner.clone(),
            roles: vec!["lamplighter-box".into()],
        }),
        regions: vec![region(Found::There(GroupFound { id: "sg-1".into(), owner, rules_in: 0 }))],
        spot_role: Found::There(()),
        alarm_role: Found::There(()),
    }
}

fn steps(lines: &[SetupLine]) -> Vec<SetupStep> {
    lines.iter().flat_map(|line| line.steps.clone()).collect()
}

#[test]
fn empty_account_gets_everything_and_a_ready_one_nothing() {
    let all = plan_setup(&names(), &empty(), Rebind::Refused);
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|line| !line.steps.is_empty() && !line.blocks), "{all:?}");
    assert_eq!(steps(&all).len(), 6 + 2 + 2 + 1 + 2);
    let none = plan_setup(&names(), &ready("alice"), Rebind::Refused);
    assert!(
        none.iter()
            .all(|line| line.steps.is_empty() && line.remark.is_none() && line.will() == "nothing"),
        "{none:?}"
    );
}

#[test]
fn what_somebody_else_made_stays_as_it_is() {
    let mut theirs = ready("bob");
    let Found::There(bucket) = &mut theirs.bucket else { unreachable!() };
    bucket.private = false;
    let Found::There(role) = &mut theirs.role else { unreachable!() };
    role.policy = None;
    let lines = plan_setup(&names(), &theirs, Rebind::Refused);
    assert_eq!(steps(&lines), []);
    assert!(
        lines[0]
            .remark
            .as_ref()
            .is_some_and(|said| said.contains("bob") && said.contains("not private")),
        "{lines:?}"
    );
    assert!(
        lines[1].remark.as_ref().is_some_and(|said| said.contains("lamp iam box")),
        "{lines:?}"
    );
    assert_eq!(steps(&plan_removal(&names(), &theirs, &InUse::default(), true)), []);
}

/// Whoever made it: no policy of ours names the key, and no machine would reach its job.
#[test]
fn bucket_with_a_key_of_its_own_stands_in_the_way() {
    for owner in ["alice", "bob"] {
        let mut found = ready(owner);
        let Found::There(bucket) = &mut found.bucket else { unreachable!() };
        bucket.own_key = Some("arn:aws:kms:us-east-2:1:key/0a1b".into());
        let line = &plan_setup(&names(), &found, Rebind::Refused)[0];
        assert!(line.blocks && line.steps.is_empty(), "{line:?}");
        assert!(
            line.remark.as_ref().is_some_and(
                |said| said.contains("key/0a1b") && said.contains("put-bucket-encryption")
            ),
            "{line:?}"
        );
    }
}

#[test]
fn half_a_set_up_is_finished() {
    let mut half = ready("alice");
    half.bucket = Found::There(BucketFound {
        region: "us-east-2".into(),
        versioned: true,
        ..BucketFound::default()
    });
    half.role = Found::There(RoleFound { owner: Some("alice".into()), ..RoleFound::default() });
    half.profile = Found::There(ProfileFound { owner: Some("alice".into()), roles: Vec::new() });
    let expected = [
        SetupStep::TagBucket,
        SetupStep::CloseBucket,
        SetupStep::EncryptBucket,
        SetupStep::TidyBucket,
        SetupStep::WriteRolePolicy,
        SetupStep::PutRoleInProfile,
    ];
    assert_eq!(steps(&plan_setup(&names(), &half, Rebind::Refused)), expected);
    // The same bucket under a name that anybody could have chosen.
    let chosen = SetupNames { bucket: "mine".into(), bucket_is_ours_by_name: false, ..names() };
    assert_eq!(plan_setup(&chosen, &half, Rebind::Refused)[0].steps, []);
}

#[test]
fn session_policy_is_written_on_request_and_goes_with_the_role() {
    let asked = SetupNames { session_manager: true, ..names() };
    assert_eq!(
        steps(&plan_setup(&asked, &ready("alice"), Rebind::Refused)),
        [SetupStep::WriteSessionPolicy]
    );
    assert!(
        steps(&plan_setup(&asked, &empty(), Rebind::Refused))
            .contains(&SetupStep::WriteSessionPolicy)
    );
    assert!(
        !steps(&plan_setup(&names(), &empty(), Rebind::Refused))
            .contains(&SetupStep::WriteSessionPolicy),
        "it costs permissions"
    );
    let mut with = ready("alice");
    let Found::There(role) = &mut with.role else { unreachable!() };
    role.session_policy = Some(asked.permissions().policy(PolicyName::BoxSession));
    // What is there stays, also where it is not asked for again.
    for names in [&asked, &names()] {
        assert_eq!(steps(&plan_setup(names, &with, Rebind::Refused)), []);
    }
    let removed = steps(&plan_removal(&names(), &with, &InUse::default(), true));
    let at = |step: &SetupStep| removed.iter().position(|one| one == step);
    assert!(
        at(&SetupStep::DeleteSessionPolicy).is_some()
            && at(&SetupStep::DeleteSessionPolicy) < at(&SetupStep::DeleteRole),
        "{removed:?}"
    );
    // Another's role is not ours to open.
    let lines = plan_setup(&asked, &ready("bob"), Rebind::Refused);
    assert!(
        lines[1].steps.is_empty()
            && lines[1]
                .remark
                .as_ref()
                .is_some_and(|remark| remark.contains("lamp iam box-session")),
        "{lines:?}"
    );
}

/// Machines that run would lose their job, and who looks into the old bucket sees nothing of the
/// new one.
#[test]
fn role_of_another_job_root_is_not_bound_anew_unless_asked() {
    let moved = SetupNames {
        bucket: "mine".into(),
        bucket_is_ours_by_name: false,
        prefix: "team/".into(),
        ..names()
    };
    let line = |rebind| plan_setup(&moved, &ready("alice"), rebind).remove(1);
    let refused = line(Rebind::Refused);
    assert!(refused.blocks && refused.steps.is_empty(), "{refused:?}");
    let why = refused.remark.unwrap();
    assert!(
        why.contains("s3://lamplighter-1-us-east-2, and s3://mine/team is asked for")
            && why.contains("--instead"),
        "{why}"
    );
    let asked = line(Rebind::Asked);
    assert_eq!(
        (asked.blocks, asked.steps, asked.remark.is_some()),
        (false, vec![SetupStep::WriteRolePolicy], true)
    );
    // The same job root with an older policy is brought up to date.
    let mut older = ready("alice");
    let Found::There(role) = &mut older.role else { unreachable!() };
    role.policy.as_mut().unwrap()["Statement"].as_array_mut().unwrap().pop();
    assert_eq!(steps(&plan_setup(&names(), &older, Rebind::Refused)), [SetupStep::WriteRolePolicy]);
}

#[test]
fn unknown_is_not_absent() {
    let mut found = empty();
    found.role = Found::Unknown("AccessDenied".into());
    found.regions[0].vpc = Found::Unknown("AccessDenied".into());
    let lines = plan_setup(&names(), &found, Rebind::Refused);
    assert!(lines[1].blocks && lines[1].steps.is_empty() && lines[3].blocks, "{lines:?}");
    let mut elsewhere = ready("alice");
    let Found::There(bucket) = &mut elsewhere.bucket else { unreachable!() };
    bucket.region = "eu-west-1".into();
    assert!(plan_setup(&names(), &elsewhere, Rebind::Refused)[0].blocks);
}

#[test]
fn rules_and_missing_networks_are_told_and_not_mended() {
    let mut found = ready("alice");
    found.regions = vec![
        region(Found::There(GroupFound {
            id: "sg-1".into(),
            owner: Some("alice".into()),
            rules_in: 2,
        })),
        RegionFound { region: "eu-west-1".into(), vpc: Found::Nothing, ..region(Found::Nothing) },
    ];
    let lines = plan_setup(&names(), &found, Rebind::Refused);
    assert!(
        lines[3].remark.is_some() && lines[4].remark.is_some() && steps(&lines).is_empty(),
        "{lines:?}"
    );
}

#[test]
fn group_for_gangs_is_made_when_asked_for_and_taken_away() {
    let asked = SetupNames { gangs: true, ..names() };
    let mut found = ready("alice");
    assert_eq!(steps(&plan_setup(&names(), &found, Rebind::Refused)), []);
    let (at, vpc, id) = ("us-east-2".to_owned(), "vpc-1".to_owned(), "sg-7".to_owned());
    let made = SetupStep::CreateGangGroup { region: at.clone(), vpc };
    assert_eq!(steps(&plan_setup(&asked, &found, Rebind::Refused)), [made]);
    let mut there = |owner: &str, rules_in| {
        let owner = Some(owner.to_owned());
        let group = GroupFound { id: id.clone(), owner, rules_in };
        found.regions[0].gang_group = Found::There(group);
        let planned = steps(&plan_setup(&asked, &found, Rebind::Refused));
        let gone = steps(&plan_removal(&names(), &found, &InUse::default(), false));
        let delete = SetupStep::DeleteGroup { region: at.clone(), id: id.clone() };
        (planned, gone.contains(&delete))
    };
    let opened = SetupStep::OpenGangGroup { region: at.clone(), id: id.clone() };
    assert_eq!(there("alice", 0), (vec![opened], true), "a call between the two was cut off");
    assert_eq!(there("alice", 1), (vec![], true));
    assert_eq!(there("bob", 0), (vec![], false), "it is not ours to change");
}

#[test]
fn each_network_has_its_group_and_groups_elsewhere_go_too() {
    let mut found = ready("alice");
    let of = |vpc: &str, group| RegionFound {
        vpc: Found::There(vpc.into()),
        by_subnets: true,
        ..region(group)
    };
    let group = |id: &str, owner: &str| GroupFound {
        id: id.into(),
        owner: Some(owner.into()),
        rules_in: 0,
    };
    let before = vec![group("sg-0", "alice"), group("sg-9", "bob")];
    found.regions = vec![
        RegionFound { elsewhere: before, ..of("vpc-2", Found::There(group("sg-2", "alice"))) },
        of("vpc-3", Found::Nothing),
    ];
    found.regions.push(RegionFound {
        vpc: Found::Nothing,
        region: "eu-west-1".into(),
        ..of("", Found::Nothing)
    });
    let lines = plan_setup(&names(), &found, Rebind::Refused);
    assert_eq!(
        steps(&lines),
        [SetupStep::CreateGroup { region: "us-east-2".into(), vpc: "vpc-3".into() }]
    );
    assert_eq!(
        (lines[3].thing.as_str(), lines[5].blocks),
        ("security group lamplighter in vpc-2 of us-east-2", false),
        "{lines:?}"
    );
    let removed: Vec<String> = steps(&plan_removal(&names(), &found, &InUse::default(), false))
        .into_iter()
        .filter_map(
            |step| if let SetupStep::DeleteGroup { id, .. } = step { Some(id) } else { None },
        )
        .collect();
    assert_eq!(removed, ["sg-2", "sg-0"], "and nobody else's");
}

#[test]
fn bucket_with_jobs_stays_unless_that_is_said() {
    let used = InUse { jobs: 3, objects: 70, ..InUse::default() };
    let kept = plan_removal(&names(), &ready("alice"), &used, false);
    assert!(
        !steps(&kept).contains(&SetupStep::DeleteBucket)
            && steps(&kept).contains(&SetupStep::DeleteRole),
        "{kept:?}"
    );
    let all = steps(&plan_removal(&names(), &ready("alice"), &used, true));
    assert!(all.ends_with(&[SetupStep::EmptyRoot, SetupStep::DeleteBucket]), "{all:?}");
    let own = InUse { objects: 7, house_objects: 7, ..InUse::default() };
    let own = steps(&plan_removal(&names(), &ready("alice"), &own, false));
    assert!(
        own.ends_with(&[SetupStep::ForgetHouse, SetupStep::DeleteBucket]),
        "its clock and its news are no jobs: {own:?}"
    );
    let other = InUse { objects: 7, house_objects: 6, ..InUse::default() };
    let other = plan_removal(&names(), &ready("alice"), &other, false);
    assert!(
        !steps(&other).contains(&SetupStep::DeleteBucket)
            && !steps(&other).contains(&SetupStep::ForgetHouse),
        "{other:?}"
    );
    // A profile is emptied before it goes, and the role goes after it.
    let at = |step: &SetupStep| all.iter().position(|one| one == step);
    assert!(
        at(&SetupStep::TakeRoleFromProfile) < at(&SetupStep::DeleteProfile)
            && at(&SetupStep::DeleteProfile) < at(&SetupStep::DeleteRole)
    );
    let running = InUse { machines: vec!["i-1".into()], ..InUse::default() };
    assert!(plan_removal(&names(), &ready("alice"), &running, true)[0].blocks);
}

/// Another job root of the bucket, perhaps a colleague's, or a file of somebody's.
#[test]
fn what_is_not_of_the_job_root_stays_and_keeps_the_bucket() {
    let bucket = |used: &InUse, delete_jobs| {
        let names = SetupNames { prefix: "b/".into(), ..names() };
        plan_removal(&names, &ready("alice"), used, delete_jobs)
            .into_iter()
            .find(|line| line.thing.starts_with("bucket "))
            .unwrap()
    };
    let others = |jobs, objects, house_objects| InUse {
        jobs,
        objects,
        house_objects,
        other_objects: 4,
        others: vec!["a/".into()],
        ..InUse::default()
    };
    let keeps = "what is not of s3://lamplighter-1-us-east-2/b stays, and keeps it: 4 objects (a/)";
    let jobs = bucket(&others(2, 70, 1), true);
    assert_eq!((jobs.steps, jobs.remark.as_deref()), (vec![SetupStep::EmptyRoot], Some(keeps)));
    assert_eq!(jobs.found, "ours, 2 jobs, 70 objects, 4 not of this job root");
    let kept = bucket(&others(2, 70, 1), false);
    let said = format!("it holds jobs, and stays; `--delete-jobs` deletes them; {keeps}");
    assert_eq!((kept.steps, kept.remark), (vec![], Some(said)));
    let house = bucket(&others(0, 3, 3), true);
    assert_eq!((house.steps, house.remark.as_deref()), (vec![SetupStep::ForgetHouse], Some(keeps)));
    for (nothing, delete_jobs) in
        [(others(0, 3, 3), false), (others(0, 0, 0), false), (others(0, 0, 0), true)]
    {
        let line = bucket(&nothing, delete_jobs);
        assert_eq!((line.steps, line.remark.as_deref()), (vec![], Some(keeps)), "{nothing:?}");
    }
}

/// Before a launch: everything at once, and never what nobody could see.
#[test]
fn all_that_a_launch_would_miss_is_told_together() {
    let unknown = || "AccessDenied".to_owned();
    let nothing = ReadyFound {
        root_is_folder: false,
        bucket: Found::Nothing,
        profile: Found::Nothing,
        role: Found::Nothing,
        regions: vec![region(Found::Nothing)],
    };
    let words = |lacks: &[Lack]| lacks.iter().map(|lack| lack.what.clone()).collect::<Vec<_>>();
    let lacks = lacking(&names(), &nothing);
    assert_eq!(
        words(&lacks),
        [
            "no bucket `lamplighter-1-us-east-2`",
            "no instance profile `lamplighter-box`",
            "no security group `lamplighter` in us-east-2"
        ]
    );
    assert!(lacks.iter().all(|lack| lack.cure.is_none()), "one command mends it all: {lacks:?}");
    let folder = ReadyFound { root_is_folder: true, ..nothing.clone() };
    assert!(words(&lacking(&names(), &folder))[0].contains("folder of this workstation"));

    let unseen = ReadyFound {
        root_is_folder: false,
        bucket: Found::Unknown(unknown()),
        profile: Found::Unknown(unknown()),
        role: Found::Unknown(unknown()),
        regions: vec![RegionFound {
            vpc: Found::Unknown(unknown()),
            ..region(Found::Unknown(unknown()))
        }],
    };
    assert_eq!(lacking(&names(), &unseen), []);
    let ready = ReadyFound {
        root_is_folder: false,
        bucket: Found::There(()),
        profile: Found::There(ProfileFound { owner: None, roles: vec!["any".into()] }),
        role: Found::Unknown(unknown()),
        regions: Vec::new(),
    };
    assert_eq!(lacking(&names(), &ready), []);
    // A role for another job root: each machine would boot, reach nothing and bill.
    let bound = |bucket: &str| {
        let policy =
            SetupNames { bucket: bucket.into(), ..names() }.permissions().policy(PolicyName::Box);
        let role = Found::There(RoleFound {
            owner: Some("alice".into()),
            policy: Some(policy),
            session_policy: None,
        });
        let profile =
            Found::There(ProfileFound { owner: None, roles: vec!["lamplighter-box".into()] });
        lacking(&names(), &ReadyFound { role, profile, ..ready.clone() })
    };
    assert_eq!(bound("lamplighter-1-us-east-2"), []);
    let lacks = bound("other");
    let said = "the role `lamplighter-box` may use s3://other, and not s3://lamplighter-1-us-east-2: no machine would reach its job";
    assert_eq!(words(&lacks), [said]);
    assert!(
        lacks[0]
            .cure
            .as_ref()
            .is_some_and(|cure| cure
                .starts_with("`lamp init aws --bucket lamplighter-1-us-east-2 --instead`")),
        "{lacks:?}"
    );

    // What has a name of the user's own, `lamp init aws` does not make.
    let own = SetupNames { role: "theirs".into(), group: "sg-0a".into(), ..names() };
    let cures: Vec<bool> = lacking(&own, &nothing).iter().map(|lack| lack.cure.is_some()).collect();
    assert_eq!(cures, [false, true, true]);
    let apart = RegionFound { stands_in: Some("vpc-2".into()), ..region(Found::Nothing) };
    let lacks = lacking(&own, &ReadyFound { regions: vec![apart], ..ready.clone() });
    assert_eq!(
        (lacks.len(), lacks[0].what.as_str()),
        (1, "no security group `sg-0a` in vpc-1 of us-east-2 (it is in vpc-2)"),
        "{lacks:?}"
    );
    assert!(
        lacks[0].cure.as_ref().is_some_and(
            |cure| cure.starts_with("name a security group of vpc-1 as `security_group`")
        ),
        "{lacks:?}"
    );
    let no_network =
        RegionFound { region: "us-east-2".into(), vpc: Found::Nothing, ..region(Found::Nothing) };
    let lacks = lacking(&names(), &ReadyFound { regions: vec![no_network], ..ready });
    assert!(
        lacks.len() == 1
            && lacks[0].cure.as_ref().is_some_and(|cure| cure.contains("create-default-vpc")),
        "{lacks:?}"
    );
}

/// A role of an earlier version writes no records of a gang: its ranks would wait and bill.
#[test]
fn gang_needs_a_role_that_writes_its_records() {
    let policy = names().permissions().policy(PolicyName::Box).to_string();
    let without = |key: &str| policy.replace(key, "jobs/*/checkpoints/*");
    let with = |policy: &str| {
        let role = RoleFound {
            owner: Some("alice".into()),
            policy: serde_json::from_str(policy).ok(),
            session_policy: None,
        };
        let found = ReadyFound {
            root_is_folder: false,
            bucket: Found::There(()),
            profile: Found::Nothing,
            role: Found::There(role),
            regions: Vec::new(),
        };
        lacking_for_gang(&names(), &found).map(|lack| lack.what)
    };
    assert_eq!(with(&policy), None);
    let said = "the role `lamplighter-box` may not write the records of a gang";
    for key in ["jobs/*/gang/*", "jobs/*/requests/*"] {
        assert_eq!(with(&without(key)).as_deref(), Some(said), "{key}");
    }
}
