//! Credentials that a program hands out and that end: how often it is run, and what is signed with
//! the last of them.

use std::process::Command;

use serde_json::Value;

use crate::account::setup::User;
use crate::sandbox::Ended;
use lamp_test_support::small_agent::small_agent;

/// Somebody with a named profile, whose program says who they are for so long.
struct Session<'a>(&'a User);

impl<'a> Session<'a> {
    fn lasting(user: &'a User, secs: u32) -> Self {
        let path = user.sandbox.path();
        let script = format!(
            "#!/bin/sh\necho x >> {path}/asked\nat=$(date -u -d '+{secs} seconds' +%Y-%m-%dT%H:%M:%SZ)\n\
             echo '{{\"Version\": 1, \"AccessKeyId\": \"test\", \"SecretAccessKey\": \"test\", \"SessionToken\": \"t\", \"Expiration\": \"'$at'\"}}'\n",
            path = path.display()
        );
        user.sandbox.write("who.sh", script);
        let profile = format!(
            "[profile research]\nregion = us-east-1\ncredential_process = /bin/sh {}/who.sh\n",
            path.display()
        );
        user.sandbox.write("aws-config", profile);
        user.sandbox.write("asked", "");
        Session(user)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.sandbox.command(args);
        command
            .envs(self.0.ec2.env())
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY");
        command
            .env("AWS_CONFIG_FILE", self.0.sandbox.path().join("aws-config"))
            .env("AWS_PROFILE", "research");
        // It is never fetched.
        command.env("LAMP_AGENT_BINARY", small_agent(&self.0.sandbox.path()));
        command
    }

    fn lamp(&self, args: &[&str]) -> Ended {
        self.0.sandbox.end(&mut self.command(args))
    }

    /// How often it was asked since the last time.
    fn asked(&self) -> usize {
        let asked = self.0.sandbox.read("asked").lines().count();
        self.0.sandbox.write("asked", "");
        asked
    }
}

fn ready() -> Option<User> {
    let user = User::new()?;
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    Some(user)
}

#[test]
fn program_that_says_who_we_are_is_run_once_for_a_command() {
    let Some(user) = ready() else { return };
    let spec: Value =
        serde_json::from_str(include_str!("../../data/v1/spec.json")).expect("a record");
    for job in ["one-222222", "two-222222"] {
        let mut spec = spec.clone();
        spec["job"] = job.into();
        let root = user.sandbox.read("home/.config/lamplighter/config.toml");
        let root = root
            .lines()
            .find_map(|line| line.split_once("s3://"))
            .expect("init wrote it")
            .1
            .trim_matches(['"', '\'']);
        let (status, _) = user.ec2.s3(
            "PUT",
            &format!("/{root}/jobs/{job}/spec.json"),
            spec.to_string().as_bytes(),
        );
        assert_eq!(status, 200, "{root}");
    }
    let session = Session::lasting(&user, 3600);
    let status = session.lamp(&["status", "-o", "json"]);
    assert!(
        status.code == 0 && status.out.contains("one-222222") && status.out.contains("two-222222"),
        "{status:?}"
    );
    assert_eq!(
        session.asked(),
        1,
        "every request to the bucket and to EC2 is signed with the same"
    );
    // With less than a minute of life they are no reason to ask for every object either.
    let session = Session::lasting(&user, 55);
    assert_eq!(session.lamp(&["status", "-o", "json"]).code, 0);
    assert!(session.asked() <= 3, "once, and again after a quarter of a minute on a slow computer");
}

#[test]
fn session_that_ends_before_a_machine_has_booted_buys_none() {
    let Some(user) = ready() else { return };
    let session = Session::lasting(&user, 40);
    let job =
        ["--cloud", "aws", "--instance-type", "t3.micro", "--max-runtime", "1h", "--", "true"];
    let run = session.lamp(&[&["run", "--detach", "--unproven"], &job[..]].concat());
    assert_eq!(run.code, 104, "{run:?}");
    for words in [
        "the AWS credentials end in ",
        "17m are needed",
        "nothing was started or billed",
        "`aws sso login`",
    ] {
        assert!(run.err.contains(words), "{words} in {run:?}");
    }
    assert!(user.ec2.calls_of("RunInstances").is_empty() && user.ec2.instances().is_empty());
    let plan = session.lamp(&[&["plan"], &job[..]].concat());
    assert!(
        plan.err.contains("the machine could not run its agent: the AWS credentials end in "),
        "{plan:?}"
    );
    let session = Session::lasting(&user, 3600);
    let plan = session.lamp(&[&["plan"], &job[..]].concat());
    assert!(plan.code == 0 && !plan.err.contains("credentials end"), "{plan:?}");
}
