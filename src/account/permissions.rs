//! The permissions of each of our programs: the policies of `config/iam`, filled in.
//!
//! ```text
//!   config/iam/NAME.json with {{words}}  +  the words of this account  ->  the policy document
//! ```
//! The files are the reviewed text; no other code names a permission. This module makes no calls.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::sweeper;
use crate::job::SecretSource;

/// The user or program that gets the permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// The user who types `lamp`, and the daemon.
    Controller,
    /// The machines.
    Box,
    /// The sweeper in the cloud.
    Sweeper,
    /// The schedule that calls the sweeper.
    SweeperSchedule,
    /// A user who opens a shell on the machines, in addition to `Controller`.
    Session,
    /// Machines on which shells may be opened, in addition to `Box`.
    BoxSession,
    /// The user who sets up the account, or removes the setup.
    Setup,
}

const CONTROLLER: &str = include_str!("../../config/iam/controller.json");
const BOX: &str = include_str!("../../config/iam/box.json");
const BOX_TRUST: &str = include_str!("../../config/iam/box-trust.json");
const SWEEPER: &str = include_str!("../../config/iam/sweeper.json");
const SWEEPER_TRUST: &str = include_str!("../../config/iam/sweeper-trust.json");
const SWEEPER_SCHEDULE: &str = include_str!("../../config/iam/sweeper-schedule.json");
const SWEEPER_SCHEDULE_TRUST: &str = include_str!("../../config/iam/sweeper-schedule-trust.json");
const SESSION: &str = include_str!("../../config/iam/session.json");
const BOX_SESSION: &str = include_str!("../../config/iam/box-session.json");
const SETUP: &str = include_str!("../../config/iam/setup.json");

/// The values that fill in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// `aws`, `aws-cn` or `aws-us-gov`.
    pub partition: String,
    pub owner: String,
    pub bucket: String,
    /// Empty, or with a `/` at its end.
    pub prefix: String,
    /// The role of the machines.
    pub role: String,
    /// Regions where machines may be bought.
    pub regions: Vec<String>,
    /// Patterns of the machine types that may be bought.
    pub instance_types: Vec<String>,
    /// The secrets that machines may read.
    pub secrets: Vec<SecretSource>,
}

impl Permissions {
    pub fn policy(&self, name: PolicyName) -> Value {
        let mut policy = self.filled(match name {
            PolicyName::Controller => CONTROLLER,
            PolicyName::Box => BOX,
            PolicyName::Sweeper => SWEEPER,
            PolicyName::SweeperSchedule => SWEEPER_SCHEDULE,
            PolicyName::Session => SESSION,
            PolicyName::BoxSession => BOX_SESSION,
            PolicyName::Setup => SETUP,
        });
        if name == PolicyName::Box
            && let Some(statements) = policy["Statement"].as_array_mut()
        {
            statements.extend(self.secrets_alone());
        }
        policy
    }

    /// One statement per service that names exactly the secrets that jobs may read.
    fn secrets_alone(&self) -> Vec<Value> {
        let mut resources: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (action, arn) in self.secrets.iter().filter_map(|secret| secret.arn(&self.partition)) {
            resources.entry(action).or_default().insert(arn);
        }
        let sid = |action: &str| {
            if action.starts_with("ssm") { "TheseParametersAlone" } else { "TheseSecretsAlone" }
        };
        resources.into_iter().map(|(action, arns)| json!({ "Sid": sid(action), "Effect": "Allow", "Action": action, "Resource": arns })).collect()
    }

    /// Trust policy: the services that may assume the machines' role.
    pub fn trust(&self) -> Value {
        self.filled(BOX_TRUST)
    }

    /// Trust policy: the services that may assume the sweeper's role.
    pub fn sweeper_trust(&self) -> Value {
        self.filled(SWEEPER_TRUST)
    }

    /// Trust policy of the role that calls the sweeper: only schedules of this account.
    pub fn schedule_trust(&self, account: &str) -> Value {
        self.filled(&SWEEPER_SCHEDULE_TRUST.replace("{{account}}", account))
    }

    fn filled(&self, text: &str) -> Value {
        let mut policy =
            serde_json::from_str(text).expect("the shipped policies are JSON: a test reads them");
        self.fill(&mut policy);
        policy
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.said(text),
            Value::Object(fields) => {
                let known = std::mem::take(fields);
                fields.extend(known.into_iter().map(|(key, mut value)| {
                    self.fill(&mut value);
                    (self.said(&key), value)
                }));
            }
            Value::Array(items) => {
                let list = |word: &Value| match word.as_str() {
                    Some("{{regions}}") => Some(&self.regions),
                    Some("{{instance_types}}") => Some(&self.instance_types),
                    _ => None,
                };
                *items = std::mem::take(items)
                    .into_iter()
                    .flat_map(|mut item| match list(&item) {
                        Some(words) => {
                            words.iter().map(|word| Value::from(word.as_str())).collect()
                        }
                        None => {
                            self.fill(&mut item);
                            vec![item]
                        }
                    })
                    .collect();
            }
            _ => {}
        }
    }

    fn said(&self, text: &str) -> String {
        let sweeper = sweeper::name(&self.owner);
        let words = [
            ("{{sweeper}}", &sweeper),
            ("{{partition}}", &self.partition),
            ("{{bucket}}", &self.bucket),
            ("{{prefix}}", &self.prefix),
            ("{{role}}", &self.role),
            ("{{owner}}", &self.owner),
        ];
        words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    }
}

/// The partition of a region: the second word of every ARN there.
pub fn partition(region: &str) -> &'static str {
    match region {
        region if region.starts_with("cn-") => "aws-cn",
        region if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [PolicyName; 7] = [
        PolicyName::Controller,
        PolicyName::Box,
        PolicyName::Sweeper,
        PolicyName::SweeperSchedule,
        PolicyName::Session,
        PolicyName::BoxSession,
        PolicyName::Setup,
    ];

    fn permissions() -> Permissions {
        Permissions {
            partition: "aws".into(),
            owner: "alice \"a\"".into(),
            bucket: "jobs".into(),
            prefix: "team/".into(),
            role: "lamplighter-box".into(),
            regions: vec!["us-east-2".into(), "eu-north-1".into()],
            instance_types: vec!["g*".into()],
            secrets: Vec::new(),
        }
    }

    fn actions(policy: &Value, effect: &str) -> Vec<String> {
        let of = |statement: &Value| match &statement["Action"] {
            Value::String(one) => vec![one.clone()],
            many => many
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one.as_str().map(str::to_owned))
                .collect(),
        };
        policy["Statement"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|statement| statement["Effect"] == effect)
            .flat_map(of)
            .collect()
    }

    #[test]
    fn nothing_is_left_open_and_nothing_is_a_wildcard() {
        let permissions = permissions();
        for name in ALL {
            let policy = permissions.policy(name);
            let text = policy.to_string();
            assert!(!text.contains("{{"), "{name:?}: {text}");
            for action in actions(&policy, "Allow") {
                assert!(!action.contains('*'), "{name:?} allows {action}");
            }
            // AWS's limit for a managed policy, without blanks.
            assert!(text.len() < 6144, "{name:?}: {} characters", text.len());
        }
        let controller = permissions.policy(PolicyName::Controller).to_string();
        assert!(
            controller.contains(r#"["us-east-2","eu-north-1"]"#)
                && controller.contains(r#"alice \"a\""#),
            "{controller}"
        );
        assert!(controller.contains("arn:aws:s3:::jobs/team/*"), "{controller}");
        assert_eq!(partition("cn-north-1"), "aws-cn");
    }

    /// The setup policy covers only things with our names, and no machine.
    #[test]
    fn setting_up_touches_our_own_things_only() {
        let policy = permissions().policy(PolicyName::Setup);
        for statement in policy["Statement"].as_array().unwrap() {
            assert!(statement["Resource"] != "*" || statement["Sid"] == "Look", "{statement}");
        }
        let looks = |action: &String| {
            ["Describe", "Get", "List"].iter().any(|verb| action.contains(&format!(":{verb}")))
        };
        let of_ec2: Vec<String> = actions(&policy, "Allow")
            .into_iter()
            .filter(|action| action.starts_with("ec2:") && !looks(action))
            .collect();
        assert_eq!(
            of_ec2,
            [
                "ec2:CreateSecurityGroup",
                "ec2:CreateTags",
                "ec2:AuthorizeSecurityGroupIngress",
                "ec2:DeleteSecurityGroup",
            ]
        );
    }

    /// No EC2 actions: an intruder on one machine cannot touch another.
    #[test]
    fn a_machine_may_do_nothing_to_machines() {
        let policy = permissions().policy(PolicyName::Box);
        let allowed = actions(&policy, "Allow");
        let expected = [
            "s3:GetObject",
            "s3:ListBucket",
            "s3:AbortMultipartUpload",
            "s3:PutObject",
            "cloudwatch:PutMetricData",
        ];
        assert_eq!(allowed, expected, "think twice: every process on the machine may do this");
        assert_eq!(actions(&policy, "Deny"), ["*"]);
        let text = policy.to_string();
        assert!(
            text.contains(r#""NumericLessThan":{"ec2:RoleDelivery":"2.0"}"#)
                && text.contains(r#""cloudwatch:namespace":"Lamplighter""#),
            "{text}"
        );
    }

    #[test]
    fn machine_reads_the_named_secrets_and_no_other() {
        let secrets = ["ssm:/secrets/HF_TOKEN", "secretsmanager:wandb", "env"]
            .map(|text| text.parse().unwrap())
            .into();
        let policy = Permissions { secrets, ..permissions() }.policy(PolicyName::Box);
        let statements = policy["Statement"].as_array().unwrap();
        let of = |action: &str| {
            statements.iter().find(|one| one["Action"] == action).map(|one| one["Resource"].clone())
        };
        assert_eq!(
            of("ssm:GetParameter"),
            Some(json!(["arn:aws:ssm:*:*:parameter/secrets/HF_TOKEN"]))
        );
        assert_eq!(
            of("secretsmanager:GetSecretValue"),
            Some(json!(["arn:aws:secretsmanager:*:*:secret:wandb-??????"]))
        );
    }

    /// A shell opens only on our machines, and a machine gets only the channels that its agent
    /// needs.
    #[test]
    fn shell_is_opened_on_our_machines_only() {
        let policy = permissions().policy(PolicyName::Session);
        let of_ssm = ["StartSession", "StartSession", "ResumeSession", "TerminateSession"]
            .map(|name| format!("ssm:{name}"));
        let channel = "ssmmessages:OpenDataChannel".to_owned();
        assert_eq!(actions(&policy, "Allow"), [&of_ssm[..], &[channel]].concat());
        for statement in policy["Statement"].as_array().unwrap() {
            let text = statement.to_string();
            let ours = &statement["Condition"]["StringEquals"]["ssm:resourceTag/lamplighter:owner"];
            assert_eq!(ours == "alice \"a\"", text.contains(":instance/"), "{text}");
            assert!(!text.contains("SendCommand") && statement["Resource"] != "*", "{text}");
        }
        assert!(
            policy.to_string().contains("session/${aws:userid}-*"),
            "only one's own session is ended"
        );
        let machine = actions(&permissions().policy(PolicyName::BoxSession), "Allow");
        let channels =
            ["CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel"]
                .map(|name| format!("ssmmessages:{name}"));
        assert_eq!(
            machine,
            [&["ssm:UpdateInstanceInformation".to_owned()][..], &channels].concat(),
            "think twice: every process there may do this"
        );
    }

    /// It ends its owner's machines and writes its own records. It cannot launch, change or read
    /// more.
    #[test]
    fn sweeper_ends_owned_machines_and_schedule_calls_the_sweeper() {
        let policy = permissions().policy(PolicyName::Sweeper);
        let expected = [
            "ec2:DescribeInstances",
            "ec2:DescribeRegions",
            "ec2:DescribeSpotInstanceRequests",
            "ec2:CancelSpotInstanceRequests",
            "ec2:ModifyInstanceAttribute",
            "ec2:StopInstances",
            "ec2:TerminateInstances",
            "s3:GetObject",
            "s3:PutObject",
            "s3:ListBucket",
            "logs:CreateLogStream",
            "logs:PutLogEvents",
        ];
        assert_eq!(
            actions(&policy, "Allow"),
            expected,
            "think twice: a program that nobody watches may do this"
        );
        for statement in policy["Statement"].as_array().unwrap() {
            let text = statement.to_string();
            let changes = ["ec2:Terminate", "ec2:Stop", "ec2:Modify", "ec2:Cancel"]
                .iter()
                .any(|word| text.contains(word));
            assert_eq!(
                statement["Condition"]["StringEquals"]["aws:ResourceTag/lamplighter:owner"]
                    == "alice \"a\"",
                changes,
                "{text}"
            );
            assert!(statement["Resource"] != "*" || statement["Sid"] == "Look", "{text}");
            if text.contains("s3:PutObject") {
                assert!(
                    !text.contains("team/*") && !text.contains("jobs/*\""),
                    "its own records, and why a machine ended: {text}"
                );
            }
        }
        let sweeper = sweeper::name("alice \"a\"");
        let call = permissions().policy(PolicyName::SweeperSchedule);
        assert_eq!(actions(&call, "Allow"), ["lambda:InvokeFunction"]);
        assert_eq!(
            call["Statement"][0]["Resource"],
            format!("arn:aws:lambda:*:*:function:{sweeper}")
        );
        let (function, schedule) =
            (permissions().sweeper_trust(), permissions().schedule_trust("123456789012"));
        assert_eq!(function["Statement"][0]["Principal"]["Service"], "lambda.amazonaws.com");
        assert_eq!(schedule["Statement"][0]["Principal"]["Service"], "scheduler.amazonaws.com");
        assert_eq!(
            schedule["Statement"][0]["Condition"]["StringEquals"]["aws:SourceAccount"],
            "123456789012"
        );
    }

    /// Each changing EC2 action requires or sets our tag. The exceptions are free and
    /// end no machine.
    #[test]
    fn what_changes_anything_at_ec2_is_bound_to_the_owner() {
        let unbound = [
            (PolicyName::Controller, "LaunchFromWhatIsThere", "ec2:RunInstances"),
            (PolicyName::Controller, "TagWithinALaunchOnly", "ec2:CreateTags"),
            (PolicyName::Setup, "TheSecurityGroup", "ec2:CreateSecurityGroup"),
            (PolicyName::Setup, "TagTheSecurityGroupWhenItIsMade", "ec2:CreateTags"),
        ];
        let mut found = Vec::new();
        for name in ALL {
            let policy = permissions().policy(name);
            for statement in policy["Statement"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|statement| statement["Effect"] == "Allow")
            {
                let alone = serde_json::json!({"Statement": [statement]});
                let changes = actions(&alone, "Allow").into_iter().filter(|action| {
                    action.starts_with("ec2:")
                        && !["ec2:Describe", "ec2:Get"].iter().any(|look| action.starts_with(look))
                });
                let equals = &statement["Condition"]["StringEquals"];
                let bound = ["ResourceTag", "RequestTag"]
                    .iter()
                    .any(|of| equals[format!("aws:{of}/lamplighter:owner")] == "alice \"a\"");
                found.extend(
                    changes.filter(|_| !bound).map(|action| {
                        (name, statement["Sid"].as_str().unwrap().to_owned(), action)
                    }),
                );
            }
        }
        let found: Vec<_> = found
            .iter()
            .map(|(name, sid, action)| (*name, sid.as_str(), action.as_str()))
            .collect();
        assert_eq!(found, unbound, "think twice: this may be done to what is another's");
    }

    /// A parameter may hold another user's secret, and an alarm ends a machine.
    #[test]
    fn parameters_are_read_and_alarms_touched_where_they_are_ours() {
        let policy = permissions().policy(PolicyName::Controller);
        let of = |action: &str| {
            let holds = |statement: &&Value| {
                actions(&serde_json::json!({"Statement": [statement]}), "Allow")
                    .iter()
                    .any(|one| one == action)
            };
            policy["Statement"]
                .as_array()
                .unwrap()
                .iter()
                .filter(holds)
                .cloned()
                .collect::<Vec<Value>>()
        };
        let public_or_ours = serde_json::json!([
            "arn:aws:ssm:*::parameter/aws/service/*",
            "arn:aws:ssm:*:*:parameter/lamplighter/*"
        ]);
        assert_eq!(
            of("ssm:GetParameter").iter().map(|one| &one["Resource"]).collect::<Vec<_>>(),
            [&public_or_ours]
        );
        assert!(!policy.to_string().contains("ssm:GetParameters"));
        let owner = |of: &str| format!("aws:{of}/lamplighter:owner");
        for (action, key) in [
            ("cloudwatch:DeleteAlarms", owner("ResourceTag")),
            ("cloudwatch:PutMetricAlarm", owner("RequestTag")),
            ("cloudwatch:TagResource", owner("RequestTag")),
        ] {
            let [statement] = &of(action)[..] else { panic!("one statement for {action}") };
            assert_eq!(statement["Condition"]["StringEquals"][key], "alice \"a\"", "{statement}");
            // Another owner's alarm must not be overwritten; a new alarm has no tag yet.
            let again = &statement["Condition"]["StringEqualsIfExists"][owner("ResourceTag")];
            assert!(action == "cloudwatch:DeleteAlarms" || again == "alice \"a\"", "{statement}");
        }
    }

    /// Each action that ends or changes a machine requires our tag, and a launch sets it.
    #[test]
    fn what_costs_or_ends_is_bound_to_the_owner() {
        let policy = permissions().policy(PolicyName::Controller);
        for statement in policy["Statement"].as_array().unwrap() {
            let text = statement.to_string();
            let touches =
                |words: &[&str]| words.iter().any(|word| text.contains(&format!("\"ec2:{word}")));
            // A tag in a request is not a tag on the machine.
            if touches(&[
                "Terminate",
                "Stop",
                "Start",
                "Reboot",
                "Modify",
                "Cancel",
                "Delete",
                "Release",
            ]) {
                assert_eq!(
                    statement["Condition"]["StringEquals"]["aws:ResourceTag/lamplighter:owner"],
                    "alice \"a\"",
                    "{text}"
                );
            }
            if touches(&["RunInstances"]) && text.contains(":instance/*") {
                assert_eq!(
                    statement["Condition"]["StringEquals"]["ec2:MetadataHttpTokens"], "required",
                    "{text}"
                );
                assert_eq!(
                    statement["Condition"]["StringEquals"]["aws:RequestTag/lamplighter:owner"],
                    "alice \"a\"",
                    "{text}"
                );
            }
            if touches(&["CreateTags"]) {
                assert!(!statement["Condition"].is_null(), "{text}");
            }
            assert!(
                !text.contains("iam:PassRole")
                    || statement["Condition"]["StringEquals"]["iam:PassedToService"]
                        == "ec2.amazonaws.com",
                "{text}"
            );
        }
    }
}
