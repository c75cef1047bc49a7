//! What the policies of `config/iam` allow, request by request: an evaluator of IAM's rules
//! decides, and not a comparison of texts.
//!
//! A request is as EC2, S3 and the others describe theirs (the Service Authorization Reference): an
//! action, the resource it is about, and what is known of both. A launch asks for each thing that
//! it makes or uses, and all of them must be allowed.

use iam_rs::{
    Arn, Context, ContextValue, Decision, IAMPolicy, IAMRequest, PolicyEvaluator, Principal,
    PrincipalId,
};
use lamplighter::account::permissions::{Permissions, PolicyName};
use proptest::prelude::*;
use proptest::sample::select;

const OWNER_OF: &str = "aws:ResourceTag/lamplighter:owner";
const OWNER_SAID: &str = "aws:RequestTag/lamplighter:owner";

/// One of our programs, with its policy for the owner `alice`, the job root `s3://bucket/team` and
/// two regions.
struct Who(PolicyEvaluator);

impl Who {
    fn is(name: PolicyName) -> Who {
        let permissions = Permissions {
            partition: "aws".into(),
            owner: "alice".into(),
            bucket: "bucket".into(),
            prefix: "team/".into(),
            role: "lamplighter-box".into(),
            regions: vec!["us-east-1".into(), "eu-north-1".into()],
            instance_types: vec!["g5.*".into(), "t3.*".into()],
            secrets: vec![],
        };
        let policy: IAMPolicy =
            serde_json::from_value(permissions.policy(name)).expect("it is a policy");
        Who(PolicyEvaluator::with_policies(vec![policy]))
    }

    fn may(&self, action: &str, resource: &str, known: &[(&str, Known)]) -> bool {
        let mut context = Context::new()
            .with_string("aws:userid", "AIDAEXAMPLE:alice")
            .with_number("ec2:RoleDelivery", 2.0);
        for (key, value) in known {
            context.insert((*key).to_owned(), value.clone().into());
        }
        let who =
            Principal::Aws(PrincipalId::String("arn:aws:iam::123456789012:user/alice".into()));
        let request = IAMRequest::new_with_context(
            who,
            action,
            Arn::parse(resource).expect("an ARN"),
            context,
        );
        self.0
            .evaluate(&request)
            .unwrap_or_else(|error| panic!("{action} on {resource}: {error}"))
            .decision
            == Decision::Allow
    }
}

#[derive(Clone, Debug)]
enum Known {
    Text(&'static str),
    Texts(&'static [&'static str]),
    Number(f64),
}

impl From<Known> for ContextValue {
    fn from(known: Known) -> ContextValue {
        match known {
            Known::Text(text) => ContextValue::String(text.into()),
            Known::Texts(texts) => {
                ContextValue::StringList(texts.iter().map(|text| (*text).to_owned()).collect())
            }
            Known::Number(number) => ContextValue::Number(number),
        }
    }
}

use Known::{Number, Text, Texts};

fn ec2(thing: &str) -> String {
    format!("arn:aws:ec2:us-east-1:123456789012:{thing}")
}

fn object(key: &str) -> String {
    format!("arn:aws:s3:::bucket/{key}")
}

const MACHINE: &str = "instance/i-0123456789abcdef0";

/// As `RunInstances` is asked: of the machine, of what is made with it, and of what it is made
/// from.
fn may_launch(
    who: &Who,
    owner: Option<&'static str>,
    region: &'static str,
    tokens: &'static str,
    of_type: &'static str,
) -> bool {
    let owner = owner.map(|owner| (OWNER_SAID, Text(owner)));
    let place = ("aws:RequestedRegion", Text(region));
    let made: Vec<_> = owner.into_iter().chain([place]).collect();
    let machine = [
        made.clone(),
        vec![("ec2:MetadataHttpTokens", Text(tokens)), ("ec2:InstanceType", Text(of_type))],
    ]
    .concat();
    let run =
        |resource: String, known: &[(&str, Known)]| who.may("ec2:RunInstances", &resource, known);
    run(ec2("instance/*"), &machine)
        && ["volume/*", "network-interface/*", "spot-instances-request/*"]
            .iter()
            .all(|thing| run(ec2(thing), &made))
        && ["subnet/subnet-1", "security-group/sg-1", "key-pair/mine"]
            .iter()
            .all(|thing| run(ec2(thing), &[]))
        && run("arn:aws:ec2:us-east-1::image/ami-1".into(), &[])
}

#[test]
fn launch_is_allowed_only_with_our_owner_region_tokens_and_type() {
    let controller = Who::is(PolicyName::Controller);
    assert!(may_launch(&controller, Some("alice"), "eu-north-1", "required", "g5.xlarge"));
    for (owner, region, tokens, of_type) in [
        (None, "us-east-1", "required", "g5.xlarge"),
        (Some("bob"), "us-east-1", "required", "g5.xlarge"),
        (Some("alice"), "us-west-2", "required", "g5.xlarge"),
        (Some("alice"), "us-east-1", "optional", "g5.xlarge"),
        (Some("alice"), "us-east-1", "required", "p5.48xlarge"),
    ] {
        assert!(
            !may_launch(&controller, owner, region, tokens, of_type),
            "{owner:?} {region} {tokens} {of_type}"
        );
    }
    for name in [
        PolicyName::Box,
        PolicyName::BoxSession,
        PolicyName::Sweeper,
        PolicyName::SweeperSchedule,
        PolicyName::Session,
    ] {
        assert!(
            !may_launch(&Who::is(name), Some("alice"), "us-east-1", "required", "g5.xlarge"),
            "{name:?}"
        );
    }
}

#[test]
fn tag_makes_nothing_ours_that_was_not() {
    let controller = Who::is(PolicyName::Controller);
    let tag = |known: &[(&str, Known)]| controller.may("ec2:CreateTags", &ec2(MACHINE), known);
    let (keys, owner) =
        (("aws:TagKeys", Texts(&["lamplighter:owner"])), (OWNER_SAID, Text("alice")));
    assert!(
        tag(&[("ec2:CreateAction", Text("RunInstances")), keys.clone(), owner.clone()]),
        "within a launch"
    );
    assert!(
        tag(&[(OWNER_OF, Text("alice")), ("aws:TagKeys", Texts(&["lamplighter:kill-at"]))]),
        "more time"
    );
    assert!(!tag(&[keys.clone(), owner.clone()]), "nobody's machine");
    assert!(!tag(&[(OWNER_OF, Text("bob")), keys.clone(), owner]), "another's machine");
    assert!(
        !tag(&[(OWNER_OF, Text("alice")), keys, (OWNER_SAID, Text("bob"))]),
        "ours is given to nobody"
    );
    assert!(
        !tag(&[(OWNER_OF, Text("alice")), ("aws:TagKeys", Texts(&["Name", "team"]))]),
        "a tag of somebody else's"
    );
    let untag = |known: &[(&str, Known)]| controller.may("ec2:DeleteTags", &ec2(MACHINE), known);
    assert!(untag(&[(OWNER_OF, Text("alice")), ("aws:TagKeys", Texts(&["lamplighter:kill-at"]))]));
    assert!(
        !untag(&[(OWNER_OF, Text("alice")), ("aws:TagKeys", Texts(&["lamplighter:owner"]))]),
        "ours stays ours"
    );
    assert!(!untag(&[
        (OWNER_OF, Text("alice")),
        ("aws:TagKeys", Texts(&["lamplighter:kill-at", "lamplighter:owner"]))
    ]));
    assert!(!untag(&[(OWNER_OF, Text("alice"))]), "all of its tags at once");
    assert!(!untag(&[(OWNER_OF, Text("bob")), ("aws:TagKeys", Texts(&["lamplighter:kill-at"]))]));
}

#[test]
fn controller_may_reach_only_its_job_root_alarms_and_role() {
    let controller = Who::is(PolicyName::Controller);
    assert!(controller.may("ec2:TerminateInstances", &ec2(MACHINE), &[(OWNER_OF, Text("alice"))]));
    let key = object("team/jobs/x-222222/spec.json");
    for action in ["s3:GetObject", "s3:PutObject"] {
        assert!(controller.may(action, &key, &[]));
        for other in
            [object("other/x"), object("teams/x"), "arn:aws:s3:::buckets/team/x".to_owned()]
        {
            assert!(!controller.may(action, &other, &[]), "{action} {other}");
        }
    }
    assert!(controller.may("s3:DeleteObject", &object("team/news/x"), &[]));
    for (action, resource) in [
        ("s3:DeleteObject", key.clone()),
        ("s3:DeleteObjectVersion", key.clone()),
        ("s3:PutBucketPolicy", "arn:aws:s3:::bucket".into()),
        ("s3:PutLifecycleConfiguration", "arn:aws:s3:::bucket".into()),
        ("iam:CreateUser", "arn:aws:iam::123456789012:user/eve".into()),
        ("iam:PutRolePolicy", "arn:aws:iam::123456789012:role/lamplighter-box".into()),
        ("ec2:AuthorizeSecurityGroupIngress", ec2("security-group/sg-1")),
        ("ec2:GetPasswordData", ec2(MACHINE)),
        (
            "lambda:UpdateFunctionCode",
            "arn:aws:lambda:us-east-1:123456789012:function:lamplighter-sweeper-alice".into(),
        ),
        (
            "ssm:GetParameter",
            "arn:aws:ssm:us-east-1:123456789012:parameter/database/password".into(),
        ),
    ] {
        assert!(
            !controller.may(action, &resource, &[(OWNER_OF, Text("alice"))]),
            "{action} {resource}"
        );
    }
    let pass = |role: &str, to| {
        controller.may(
            "iam:PassRole",
            &format!("arn:aws:iam::123456789012:role/{role}"),
            &[("iam:PassedToService", Text(to))],
        )
    };
    assert!(pass("lamplighter-box", "ec2.amazonaws.com"));
    assert!(
        !pass("admin", "ec2.amazonaws.com") && !pass("lamplighter-box", "lambda.amazonaws.com")
    );
    let alarm = |action, name: &str, known: &[(&str, Known)]| {
        controller.may(
            action,
            &format!("arn:aws:cloudwatch:us-east-1:123456789012:alarm:{name}"),
            known,
        )
    };
    assert!(alarm("cloudwatch:PutMetricAlarm", "lamplighter-i-1", &[(OWNER_SAID, Text("alice"))]));
    assert!(!alarm("cloudwatch:PutMetricAlarm", "prod-is-down", &[(OWNER_SAID, Text("alice"))]));
    assert!(
        !alarm(
            "cloudwatch:PutMetricAlarm",
            "lamplighter-i-1",
            &[(OWNER_SAID, Text("alice")), (OWNER_OF, Text("bob"))]
        ),
        "another's alarm"
    );
    assert!(alarm("cloudwatch:DeleteAlarms", "lamplighter-i-1", &[(OWNER_OF, Text("alice"))]));
    assert!(
        !alarm("cloudwatch:DeleteAlarms", "lamplighter-i-1", &[])
            && !alarm("cloudwatch:DeleteAlarms", "x", &[(OWNER_OF, Text("alice"))])
    );
}

/// Every program on a machine has the role of that machine. It may write data, and requests, by which
/// a rank asks another to save or to end. It may write no plan, specification or code.
#[test]
fn machine_writes_what_an_agent_writes_and_touches_no_machine() {
    let machine = Who::is(PolicyName::Box);
    let attempt = |name: &str| object(&format!("team/jobs/x-222222/attempts/0001/{name}"));
    for name in [
        "lease.json",
        "status.json",
        "outcome.json",
        "log/000001",
        "samples/000001",
        "events/000001",
    ] {
        assert!(machine.may("s3:PutObject", &attempt(name), &[]), "{name}");
    }
    let request = object("team/jobs/x-222222/requests/0001.json");
    assert!(machine.may("s3:PutObject", &request, &[]));
    assert!(machine.may("s3:GetObject", &object("team/jobs/x-222222/code/code.tar.zst"), &[]));
    for name in ["plan.json", "settled.json"] {
        assert!(!machine.may("s3:PutObject", &attempt(name), &[]), "{name}");
    }
    for key in [
        "jobs/x-222222/spec.json",
        "jobs/x-222222/receipt.json",
        "agents/x",
        "clock",
        "sweeper/visit.json",
    ] {
        assert!(!machine.may("s3:PutObject", &object(&format!("team/{key}")), &[]), "{key}");
    }
    assert!(
        !machine.may("s3:GetObject", &object("team/agents/x"), &[])
            && !machine.may("s3:GetObject", &object("other/x"), &[])
    );
    assert!(!machine.may("s3:DeleteObject", &attempt("status.json"), &[]));
    let list = |prefix| {
        machine.may("s3:ListBucket", "arn:aws:s3:::bucket", &[("s3:prefix", Text(prefix))])
    };
    assert!(
        list("team/jobs/x-222222/checkpoints/") && !list("") && !list("other/") && !list("team/")
    );
    let metric = |namespace| {
        machine.may(
            "cloudwatch:PutMetricData",
            "arn:aws:cloudwatch:us-east-1:123456789012:*",
            &[("cloudwatch:namespace", Text(namespace))],
        )
    };
    assert!(metric("Lamplighter") && !metric("AWS/Billing"));
    for action in [
        "ec2:TerminateInstances",
        "ec2:StopInstances",
        "ec2:DescribeInstances",
        "ec2:CreateTags",
        "iam:PassRole",
        "sts:AssumeRole",
    ] {
        assert!(!machine.may(action, &ec2(MACHINE), &[(OWNER_OF, Text("alice"))]), "{action}");
    }
    assert!(
        !machine.may("s3:PutObject", &attempt("status.json"), &[("ec2:RoleDelivery", Number(1.0))]),
        "by the first metadata service"
    );
}

#[test]
fn sweeper_reads_records_says_why_and_ends_what_is_ours() {
    let sweeper = Who::is(PolicyName::Sweeper);
    let ours = [(OWNER_OF, Text("alice"))];
    for action in ["ec2:TerminateInstances", "ec2:StopInstances"] {
        assert!(sweeper.may(action, &ec2(MACHINE), &ours));
        assert!(
            !sweeper.may(action, &ec2(MACHINE), &[(OWNER_OF, Text("bob"))])
                && !sweeper.may(action, &ec2(MACHINE), &[])
        );
    }
    assert!(
        !sweeper.may("ec2:StartInstances", &ec2(MACHINE), &ours)
            && !sweeper.may("ec2:CreateTags", &ec2(MACHINE), &ours)
    );
    assert!(!sweeper.may("ec2:DeleteVolume", &ec2("volume/vol-1"), &ours));
    assert!(sweeper.may(
        "s3:GetObject",
        &object("team/jobs/x-222222/attempts/0001/status.json"),
        &[]
    ));
    assert!(sweeper.may(
        "s3:PutObject",
        &object("team/jobs/x-222222/attempts/0001/ending.json"),
        &[]
    ));
    for key in [
        "jobs/x-222222/attempts/0001/outcome.json",
        "jobs/x-222222/receipt.json",
        "jobs/x-222222/spec.json",
        "agents/x",
    ] {
        assert!(!sweeper.may("s3:PutObject", &object(&format!("team/{key}")), &[]), "{key}");
    }
    assert!(!sweeper.may("s3:DeleteObject", &object("team/jobs/x-222222/receipt.json"), &[]));
    let function = |name| {
        Who::is(PolicyName::SweeperSchedule).may(
            "lambda:InvokeFunction",
            &format!("arn:aws:lambda:us-east-1:123456789012:function:{name}"),
            &[],
        )
    };
    assert!(
        function("lamplighter-sweeper-alice")
            && !function("lamplighter-sweeper-bob")
            && !function("payroll")
    );
}

#[test]
fn shell_is_opened_on_ours_alone() {
    let session = Who::is(PolicyName::Session);
    let open = |known: &[(&str, Known)]| session.may("ssm:StartSession", &ec2(MACHINE), known);
    assert!(open(&[("ssm:resourceTag/lamplighter:owner", Text("alice"))]));
    assert!(!open(&[("ssm:resourceTag/lamplighter:owner", Text("bob"))]) && !open(&[]));
    let own = |id: &str| {
        session.may(
            "ssm:TerminateSession",
            &format!("arn:aws:ssm:us-east-1:123456789012:session/{id}"),
            &[],
        )
    };
    assert!(own("AIDAEXAMPLE:alice-0a1b") && !own("AIDAOTHER:bob-0a1b"));
    let document = |name: &str| {
        session.may("ssm:StartSession", &format!("arn:aws:ssm:us-east-1::document/{name}"), &[])
    };
    assert!(
        document("SSM-SessionManagerRunShell")
            && !document("AWS-StartPortForwardingSessionToRemoteHost")
    );
}

/// What changes something that is there. What a launch makes has its own test.
const CHANGES: [&str; 14] = [
    "ec2:AssociateAddress",
    "ec2:AttachVolume",
    "ec2:CancelSpotInstanceRequests",
    "ec2:CreateImage",
    "ec2:CreateSnapshot",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteVolume",
    "ec2:ModifyInstanceAttribute",
    "ec2:RebootInstances",
    "ec2:ReleaseAddress",
    "ec2:StartInstances",
    "ec2:StopInstances",
    "ec2:TerminateInstances",
    "ec2:UnmonitorInstances",
];

const THINGS: [&str; 5] = [
    MACHINE,
    "volume/vol-1",
    "network-interface/eni-1",
    "elastic-ip/eipalloc-1",
    "spot-instances-request/sir-1",
];

/// Owners of others, some of which look like ours.
const OTHERS: [&str; 8] = ["bob", "Alice", "alice ", " alice", "alice*", "alicea", "*", ""];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The cloud itself refuses it, whatever our code decides.
    #[test]
    fn nothing_foreign_is_changed_by_any_of_our_programs(
        action in select(&CHANGES[..]),
        thing in select(&THINGS[..]),
        owner in proptest::option::of(select(&OTHERS[..])),
        region in select(&["us-east-1", "eu-north-1", "ap-south-1"][..]),
        said in proptest::option::of(select(&["alice", "bob"][..])),
        name in select(&[PolicyName::Controller, PolicyName::Box, PolicyName::Sweeper, PolicyName::Session, PolicyName::BoxSession, PolicyName::Setup][..]),
    ) {
        let known: Vec<(&str, Known)> = owner
            .map(|owner| (OWNER_OF, Text(owner)))
            .into_iter()
            .chain(said.map(|said| (OWNER_SAID, Text(said))))
            .chain([("aws:RequestedRegion", Text(region))])
            .collect();
        let resource = format!("arn:aws:ec2:{region}:123456789012:{thing}");
        prop_assert!(!Who::is(name).may(action, &resource, &known), "{name:?} may {action} {resource} of {owner:?}");
    }
}
