//! The permissions are those that the program needs: every call of our adapters is in the
//! controller's policy, and the CloudFormation template says the same as `config/iam`.

#![cfg(feature = "aws")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::account::setup::User;
use crate::sandbox::{Sandbox, repository};
use lamp_test_support::skipped;

pub(crate) fn policy_file(name: &str) -> Value {
    let text =
        std::fs::read_to_string(repository().join("config/iam").join(name)).expect("it ships");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn allowed(policy: &Value) -> BTreeSet<String> {
    let statements = policy["Statement"]
        .as_array()
        .expect("statements")
        .iter()
        .filter(|statement| statement["Effect"] == "Allow");
    let of = |statement: &Value| match &statement["Action"] {
        Value::Array(many) => {
            many.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
        }
        one => vec![one.as_str().unwrap_or_default().to_owned()],
    };
    statements.flat_map(of).collect()
}

/// Verbs that a call of an AWS service begins with.
const VERBS: [&str; 17] = [
    "abort",
    "attach",
    "cancel",
    "create",
    "delete",
    "describe",
    "detach",
    "disable",
    "enable",
    "get",
    "head",
    "list",
    "modify",
    "put",
    "run",
    "start",
    "terminate",
];

/// Calls that whoever made the account ready does, and nobody after that.
const ADMIN_ONLY: &[&str] = &["list_object_versions"];

/// Asked of this workstation or of another client.
const NO_CALLS: &[&str] = &["get_credential"];

/// Calls whose permission has another name than the call.
pub(crate) const OTHERWISE: &[(&str, &str)] = &[
    ("create_multipart_upload", "s3:PutObject"),
    ("get_bucket_encryption", "s3:GetEncryptionConfiguration"),
    ("get_bucket_lifecycle_configuration", "s3:GetLifecycleConfiguration"),
    ("get_public_access_block", "s3:GetBucketPublicAccessBlock"),
    ("head_bucket", "s3:ListBucket"),
    ("list_objects_v2", "s3:ListBucket"),
];

fn verb_of(name: &str) -> &str {
    name.split('_').next().unwrap_or_default()
}

/// `.describe_instances()`: how the SDK's calls begin.
pub(crate) fn calls(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("()") {
        let start = text[..at].rfind(|c| !is_name(c)).map_or(0, |start| start + 1);
        let name = &text[start..at];
        if text[..start].ends_with('.')
            && name.contains('_')
            && (VERBS.contains(&verb_of(name)) || verb_of(name) == "stop")
        {
            found.insert(name.to_owned());
        }
    }
    found
}

pub(crate) fn camel(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_')
        .filter(|part| !part.is_empty())
        .map(word)
        .collect::<String>()
        .replace("GetAwsDefault", "GetAWSDefault")
}

/// The files below `src/adapters/aws`, by their paths there, and their texts.
pub(crate) fn aws_adapters() -> Vec<(String, String)> {
    let folder = repository().join("src/adapters/aws");
    ["", "ec2", "account"].iter().flat_map(|below| files_of(&folder, below)).collect()
}

fn files_of(folder: &Path, below: &str) -> Vec<(String, String)> {
    let entries = folder
        .join(below)
        .read_dir()
        .expect("the adapters are there")
        .map(|entry| entry.expect("it can be listed").path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let name =
        |path: &Path| path.strip_prefix(folder).expect("it lies there").display().to_string();
    files
        .map(|path| (name(&path), std::fs::read_to_string(&path).expect("it can be read")))
        .collect()
}

/// What makes an account ready, or takes that away, has an administrator's rights.
pub(crate) fn is_setup(file: &str) -> bool {
    ["setup", "bucket", "security_group", "roles", "sweeper"]
        .iter()
        .any(|name| file == format!("account/{name}.rs"))
}

#[test]
fn every_call_of_our_adapters_is_allowed_to_the_controller() {
    let allowed = allowed(&policy_file("controller.json"));
    let (mut missing, mut seen) = (Vec::new(), BTreeSet::new());
    for (file, text) in aws_adapters() {
        // Making and taking away is done with an administrator's rights; only the doctor's looks
        // are everyday.
        let looks_only = is_setup(&file);
        let calls = calls(&text).into_iter().filter(|call| !NO_CALLS.contains(&call.as_str()));
        for call in calls.filter(|call| {
            !looks_only || ["get", "head", "list", "describe"].contains(&verb_of(call))
        }) {
            let otherwise = OTHERWISE
                .iter()
                .find(|(name, _)| *name == call)
                .map(|(_, action)| (*action).to_owned());
            let action = otherwise.unwrap_or_else(|| format!(":{}", camel(&call)));
            if !ADMIN_ONLY.contains(&call.as_str())
                && !allowed.iter().any(|known| known.ends_with(&action))
            {
                missing.push(format!("{file}: .{call}() needs {action}"));
            }
            seen.insert(call);
        }
    }
    assert!(seen.contains("put_metric_alarm") && seen.contains("run_instances"), "{seen:?}");
    // Tags come with the alarm, and have a permission of their own.
    assert!(allowed.contains("cloudwatch:TagResource"));
    assert!(
        missing.is_empty(),
        "not in config/iam/controller.json:\n{}\nadd it there, bound as tightly as it can be",
        missing.join("\n")
    );
    assert!(
        seen.len() >= 25,
        "only {} calls were found: the test looks in the wrong place",
        seen.len()
    );
    // The job directory goes through another client than the SDK.
    for action in [
        "s3:GetObject",
        "s3:PutObject",
        "s3:ListBucket",
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
    ] {
        assert!(allowed.contains(action), "{action}");
    }
}

/// What is asked otherwise than by a call of that name: of a job directory, within another call, by
/// EC2 or as a plain path.
const WITHOUT_A_CALL: &[&str] = &[
    "cloudwatch:TagResource",
    "iam:PassRole",
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:GetKeyPolicy",
    "kms:ListGrants",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "lambda:GetFunction",
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:GetObject",
    "s3:PutObject",
    "scheduler:GetSchedule",
];

#[test]
fn nothing_is_allowed_to_the_controller_that_it_never_asks() {
    let sources = aws_adapters().into_iter().map(|(_, text)| text).collect::<String>();
    let asked = |action: &str| {
        let name = action.split_once(':').map_or(action, |(_, name)| name).replace("AWS", "Aws");
        let snake = name.chars().fold(String::new(), |all, c| {
            if c.is_ascii_uppercase() {
                all + "_" + &c.to_lowercase().to_string()
            } else {
                all + &c.to_string()
            }
        });
        let other = OTHERWISE
            .iter()
            .filter(|(_, known)| *known == action)
            .map(|(call, _)| format!(".{call}()"));
        other
            .chain([format!(".{}()", snake.trim_start_matches('_'))])
            .any(|call| sources.contains(&call))
    };
    let unused: Vec<String> = allowed(&policy_file("controller.json"))
        .into_iter()
        .filter(|action| !asked(action) && !WITHOUT_A_CALL.contains(&action.as_str()))
        .collect();
    assert!(unused.is_empty(), "allowed in config/iam/controller.json and never asked: {unused:?}");
}

/// What a program really asked, service by service.
#[test]
fn what_the_doctor_asks_is_allowed_to_the_controller() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    user.ec2.take_calls();
    user.lamp(&["doctor"]);
    let allowed = allowed(&policy_file("controller.json"));
    let calls = user.ec2.take_calls();
    // Where a call is a path, its permission has a name.
    let named = |action: &str| match action {
        path if path.starts_with("GET /2015-03-31/functions/") => "GetFunction".to_owned(),
        path if path.starts_with("GET /schedules/") => "GetSchedule".to_owned(),
        other => other.to_owned(),
    };
    let others = calls.iter().filter(|call| call.service != "s3");
    let asked: BTreeSet<String> =
        others.map(|call| format!("{}:{}", call.service, named(&call.action))).collect();
    assert!(
        asked.contains("lambda:GetFunction") && asked.contains("scheduler:GetSchedule"),
        "{asked:?}"
    );
    assert!(asked.len() >= 8, "{asked:?}");
    assert_eq!(
        asked.difference(&allowed).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "not in config/iam/controller.json"
    );
}

#[test]
fn policy_says_whose_machines_it_is_for() {
    let sandbox = Sandbox::new();
    let words = ["iam", "controller", "--bucket", "b", "--region", "us-east-2"];
    let own = sandbox.lamp(&words);
    assert!(
        own.out.contains("\"alice\"")
            && own.err.contains("for the owner `alice`")
            && own.err.contains("--owner"),
        "{own:?}"
    );
    let other = sandbox.lamp(&[&words[..], &["--owner", "bob"]].concat());
    assert!(
        other.out.contains("\"bob\"") && !other.out.contains("alice") && other.err.is_empty(),
        "{other:?}"
    );
    let machines = sandbox.lamp(&["iam", "box", "--bucket", "b", "--region", "us-east-2"]);
    assert!(machines.err.is_empty(), "{machines:?}");
}

/// As a launch takes it: another policy would refuse each one.
#[test]
fn policy_hands_on_the_role_that_the_configuration_names() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "home/.config/lamplighter/config.toml",
        "[aws]\ninstance_profile = 'arn:aws:iam::1:instance-profile/team/trainers'\n",
    );
    let words = ["iam", "controller", "--bucket", "b", "--region", "us-east-2"];
    let own = sandbox.lamp(&words);
    assert!(own.out.contains("role/trainers\"") && !own.out.contains("lamplighter-box"), "{own:?}");
    // A role may be called otherwise than its profile.
    let named = sandbox.lamp(&[&words[..], &["--role", "teachers"]].concat());
    assert!(named.out.contains("role/teachers\"") && !named.out.contains("trainers"), "{named:?}");
    let setup = sandbox.lamp(&["iam", "setup"]);
    assert!(
        setup.out.contains("role/lamplighter-box") && !setup.out.contains("trainers"),
        "`lamp init aws` makes it by its own name: {setup:?}"
    );
}

#[test]
fn policy_is_printed_filled_in() {
    let Some(user) = User::new() else { return };
    let ended = user.lamp(&["iam", "controller"]);
    assert_eq!((ended.code, ended.err.contains("lamp init aws")), (2, true), "{ended:?}");
    let ended = user.lamp(&[
        "iam",
        "controller",
        "--bucket",
        "b/team",
        "--region",
        "us-east-2,eu-north-1",
        "--types",
        "g5.*",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for words in
        ["arn:aws:s3:::b/team/*", "\"eu-north-1\"", "\"g5.*\"", "\"alice\"", "role/lamplighter-box"]
    {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    assert!(!ended.out.contains("{{"), "{}", ended.out);
    // Whoever makes the account ready has neither a bucket nor a region yet.
    let ended = user.lamp(&["iam", "setup"]);
    assert_eq!(
        (ended.code, ended.out.contains("arn:aws:s3:::lamplighter-*\"")),
        (0, true),
        "{ended:?}"
    );
}

// CloudFormation.

const TEMPLATE: &str = "config/cloudformation/lamplighter.yaml";

/// A policy as CloudFormation writes it: what is open comes from the stack's own words.
fn yaml(value: &Value, depth: usize, out: &mut String) {
    let indent = " ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                // A bare `Null` is no text in YAML.
                let key = if key.contains(':') || key == "Null" {
                    format!("{key:?}")
                } else {
                    key.clone()
                };
                field(&format!("{indent}{key}:"), value, depth, out);
            }
        }
        other => panic!("a document is a table: {other}"),
    }
}

fn field(start: &str, value: &Value, depth: usize, out: &mut String) {
    let deeper = " ".repeat(depth + 2);
    let mut line = |text: &str| writeln!(out, "{text}").expect("a String takes everything");
    match value {
        Value::Array(items) if items.len() == 1 && list(&items[0]).is_some() => {
            line(&format!("{start} {}", list(&items[0]).expect("it is one")))
        }
        Value::Array(items) => {
            line(start);
            for item in items {
                match item {
                    Value::Object(_) => {
                        let mut block = String::new();
                        yaml(item, depth + 4, &mut block);
                        out.push_str(&format!("{deeper}- {}", &block[depth + 4..]));
                    }
                    scalar => writeln!(out, "{deeper}- {}", text(scalar))
                        .expect("a String takes everything"),
                }
            }
        }
        Value::Object(_) => {
            line(start);
            yaml(value, depth + 2, out);
        }
        scalar => line(&format!("{start} {}", text(scalar))),
    }
}

fn list(item: &Value) -> Option<&'static str> {
    match item.as_str()? {
        "{{regions}}" => Some("!Ref Regions"),
        "{{instance_types}}" => Some("!Ref InstanceTypes"),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    let words = [
        ("{{partition}}", "${AWS::Partition}"),
        ("{{bucket}}", "${JobRoot}"),
        ("{{prefix}}", "${Prefix}"),
        ("{{owner}}", "${Owner}"),
        ("{{role}}", "lamplighter-box"),
        ("{{sweeper}}", "lamplighter-sweeper-${Owner}"),
        ("{{account}}", "${AWS::AccountId}"),
    ];
    let plain = value.as_str().expect("policies hold texts");
    // What IAM itself fills in is left alone by a `!Sub`.
    let plain = plain.replace("${aws:", "${!aws:");
    let filled = words.iter().fold(plain, |text, (word, ours)| text.replace(word, ours));
    if filled.contains("${") { format!("!Sub {filled:?}") } else { format!("{filled:?}") }
}

/// `LAMP_UPDATE=1` writes the policies into the template.
#[test]
fn template_has_the_policies_of_config_iam() {
    let path = repository().join(TEMPLATE);
    let read = || std::fs::read_to_string(&path).expect("it ships");
    let found = read();
    let mut expected = String::new();
    let (mut inside, mut policies) = (false, 0);
    for line in found.lines() {
        inside &= line.trim() != "# end of policy";
        if !inside {
            expected.push_str(line);
            expected.push('\n');
        }
        if let Some((indent, name)) = line.split_once("# policy: ") {
            (inside, policies) = (true, policies + 1);
            yaml(&policy_file(name), indent.len(), &mut expected);
        }
    }
    assert_eq!(policies, 9);
    if std::env::var_os("LAMP_UPDATE").is_some() {
        std::fs::write(&path, &expected).expect("the repository is writable");
    }
    assert!(
        read() == expected,
        "`{TEMPLATE}` is not what config/iam says; `LAMP_UPDATE=1 cargo test --test cli permissions` writes it anew"
    );
}

/// Where the linter is: beside moto, which brings it.
#[test]
fn template_has_no_lints() {
    let moto = std::env::var("LAMP_TEST_MOTO").unwrap_or_else(|_| "moto_server".into());
    let program = Path::new(&moto).with_file_name("cfn-lint");
    let Ok(ended) = Command::new(&program).arg(repository().join(TEMPLATE)).output() else {
        skipped(
            "cfn-lint",
            format!("`{}` is not installed (pip install cfn-lint)", program.display()),
        );
        return;
    };
    assert!(
        ended.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| match u8::from_str_radix(&part[..2], 16) {
        Ok(byte) => out + &char::from(byte).to_string() + &part[2..],
        Err(_) => out + "%" + part,
    })
}

/// A stack of it is what `lamp init aws` would make: nothing is left to do, and the doctor finds
/// all of it.
#[test]
fn stack_is_a_set_up() {
    let Some(user) = User::new() else { return };
    let body = std::fs::read_to_string(repository().join(TEMPLATE)).expect("it ships");
    let parameter = |at: u32, key: &str, value: &str| {
        [("Key", key), ("Value", value)].map(|(what, text)| {
            (format!("Parameters.member.{at}.Parameter{what}"), text.to_owned())
        })
    };
    let parameters = [
        parameter(1, "Owner", "alice"),
        parameter(2, "Prefix", "team/"),
        parameter(3, "Regions", "us-east-1"),
        parameter(4, "SessionManager", "yes"),
    ]
    .concat();
    let mut params = vec![("StackName", "lamplighter"), ("TemplateBody", body.as_str())];
    params.extend(parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    user.ec2
        .ask_query(("cloudformation", "2010-05-15"), "us-east-1", "CreateStack", &params)
        .expect("created");
    let described = user
        .ec2
        .ask_query(("cloudformation", "2010-05-15"), "us-east-1", "DescribeStacks", &[])
        .expect("described");
    let outputs: Vec<String> =
        described.all("OutputValue").iter().map(|value| value.text.clone()).collect();
    // An id would be of one region only; and both as the configuration writes them.
    for value in ["lamplighter", "[\"us-east-1\"]"] {
        assert!(outputs.iter().any(|output| output == value), "{value}: {outputs:?}");
    }
    let bucket = format!("lamplighter-stack-{}-us-east-1", user.ec2.account());
    user.sandbox.write(
        "home/.config/lamplighter/config.toml",
        format!("job_root = 's3://{bucket}/team'\n[aws]\nregions = ['us-east-1']\n"),
    );
    let (code, dry) = user.json(&["init", "aws", "--dry-run"]);
    assert_eq!(code, 0, "{dry}");
    for line in dry["lines"].as_array().expect("lines") {
        let is_shared =
            line["thing"].as_str().is_some_and(|thing| thing.starts_with("service-linked"));
        assert!(is_shared || line["steps"].as_array().is_some_and(Vec::is_empty), "{line}");
    }
    let (_, found) = user.json(&["doctor"]);
    let check = found["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .find(|check| check["check"] == "network, us-east-1")
        .expect("it is asked");
    assert_eq!(check["level"], "ok", "{check:#}");
    // moto keeps a stack's policies as Python writes them; `lamp doctor` rightly takes that for
    // another policy.
    for (policy, ours) in [("lamplighter-box", "box"), ("lamplighter-session", "box-session")] {
        let role = [("RoleName", "lamplighter-box"), ("PolicyName", policy)];
        let answer = user
            .ec2
            .ask_query(("iam", "2010-05-08"), "us-east-1", "GetRolePolicy", &role)
            .expect("it is there");
        let made = percent_decoded(&answer.all("PolicyDocument")[0].text).replace('\'', "\"");
        let made: Value =
            serde_json::from_str(&made).unwrap_or_else(|error| panic!("{error}: {made}"));
        let (_, printed) = user.json(&["iam", ours]);
        assert_eq!(made, printed, "{policy}");
    }
    // Ours is only what carries our tag: the stack keeps its own.
    let ended = user.lamp(&["uninit", "aws", "--yes"]);
    assert!(
        ended.code == 0 && ended.err.contains("there is nothing of ours to take away"),
        "{ended:?}"
    );
}
