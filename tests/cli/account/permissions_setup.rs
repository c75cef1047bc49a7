//! `lamp iam setup`: what making an account ready asks for, and no more, is what it may do.

#![cfg(feature = "aws")]

use std::collections::BTreeSet;

use crate::account::permissions::{
    OTHERWISE, allowed, aws_adapters, calls, camel, is_setup, policy_file,
};
use crate::account::setup::User;

/// Verbs of what is only ever done to make an account ready, or to take that away again.
const SETUP_VERBS: [&str; 2] = ["add", "remove"];

/// Calls whose permission has another name than the call, in the policy of who makes the account
/// ready.
const SETUP_OTHERWISE: &[(&str, &str)] = &[
    ("delete_objects", "s3:DeleteObject"),
    ("list_object_versions", "s3:ListBucketVersions"),
    ("put_bucket_encryption", "s3:PutEncryptionConfiguration"),
    ("put_bucket_lifecycle_configuration", "s3:PutLifecycleConfiguration"),
    ("put_public_access_block", "s3:PutBucketPublicAccessBlock"),
];

/// What reads like a call and is a word of a document.
const SETUP_NO_CALLS: &[&str] = &["abort_incomplete_multipart_upload", "delete_markers"];

#[test]
fn setup_policy_allows_each_call_of_setup() {
    let allowed = allowed(&policy_file("setup.json"));
    let (mut missing, mut seen) = (Vec::new(), 0);
    for (file, text) in aws_adapters().into_iter().filter(|(file, _)| is_setup(file)) {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let others: Vec<String> =
            SETUP_VERBS.iter().flat_map(|verb| verbs_in(text, verb)).collect();
        for call in calls(text)
            .into_iter()
            .chain(others)
            .filter(|call| !SETUP_NO_CALLS.contains(&call.as_str()))
        {
            let named = SETUP_OTHERWISE
                .iter()
                .chain(OTHERWISE)
                .find(|(name, _)| *name == call)
                .map(|(_, action)| (*action).to_owned());
            let action = named.unwrap_or_else(|| format!(":{}", camel(&call)));
            if !allowed.iter().any(|known| known.ends_with(&action)) {
                missing.push(format!("{file}: .{call}() needs {action}"));
            }
            seen += 1;
        }
    }
    assert!(missing.is_empty(), "not in config/iam/setup.json:\n{}", missing.join("\n"));
    assert!(seen >= 25, "only {seen} calls were found: the test looks in the wrong place");
    // A thing that is made with its tags takes the permission to tag; and one that is handed a
    // role, that to pass it.
    for action in [
        "iam:TagRole",
        "iam:TagInstanceProfile",
        "iam:PassRole",
        "ec2:CreateTags",
        "lambda:TagResource",
        "logs:TagResource",
    ] {
        assert!(allowed.contains(action), "{action}");
    }
}

/// `.add_role_to_instance_profile()`: calls that begin with one verb and have an object.
fn verbs_in(text: &str, verb: &str) -> Vec<String> {
    let start = format!(".{verb}_");
    let name = |at: usize| {
        text[at + 1..]
            .split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    text.match_indices(&start).map(|(at, _)| name(at)).collect()
}

/// What the calls without an SDK of their own really are.
#[test]
fn setup_policy_allows_all_that_init_and_uninit_ask() {
    let Some(user) = User::new() else { return };
    // It looks like a program for Lambda's machines. Nobody runs it here.
    let mut program = vec![0; 64];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    program[18] = 62;
    user.sandbox.write("lamp-small", program);
    let lamp = |args: &[&str]| {
        let mut command = user.sandbox.command(args);
        user.sandbox.end(
            command
                .envs(user.ec2.env())
                .env("LAMP_SWEEPER_BINARY", user.sandbox.path().join("lamp-small")),
        )
    };
    for args in [
        &["init", "aws", "--sweeper", "--session-manager", "--yes"][..],
        &["uninit", "aws", "--yes"],
    ] {
        let ended = lamp(args);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let allowed = allowed(&policy_file("setup.json"));
    // Where a call is a path, its permission has a name.
    let named = |action: &str| {
        let (verb, path) = action.split_once(' ').unwrap_or(("", action));
        let known = match (verb, path) {
            ("GET", path) if path.contains("/functions") => "GetFunction",
            ("POST", path) if path.contains("/functions") => "CreateFunction",
            ("DELETE", path) if path.contains("/functions") => "DeleteFunction",
            ("GET", path) if path.contains("/schedules") => "GetSchedule",
            ("POST", path) if path.contains("/schedules") => "CreateSchedule",
            ("DELETE", path) if path.contains("/schedules") => "DeleteSchedule",
            _ => action,
        };
        known.to_owned()
    };
    let calls = user.ec2.take_calls();
    let asked: BTreeSet<String> = calls
        .iter()
        .filter(|call| call.service != "s3")
        .map(|call| format!("{}:{}", call.service, named(&call.action)))
        .collect();
    for action in [
        "lambda:CreateFunction",
        "scheduler:DeleteSchedule",
        "logs:PutRetentionPolicy",
        "iam:AddRoleToInstanceProfile",
    ] {
        assert!(asked.contains(action), "{action} in {asked:?}");
    }
    assert_eq!(
        asked.difference(&allowed).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "not in config/iam/setup.json"
    );
}
