//! `lamp ssh`: which way in is taken, seen by programs that only write down how they were called.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::{Ended, Sandbox, repository};
use lamp_test_support::ec2::{FalseEc2, Fault, IMAGE, Options};

const JOBS: &str = "home/.local/state/lamplighter/jobs/digits-7f3k2q";

/// A job with a machine that was launched with this key pair; and an `ssh` and an `aws` on the
/// path.
fn place(ec2: &FalseEc2, key: &str) -> Sandbox {
    let params =
        [("ImageId", IMAGE), ("InstanceType", "g5.xlarge"), ("MinCount", "1"), ("MaxCount", "1")];
    let id = ec2.ask("RunInstances", &params).expect("launched").all("instanceId")[0].text.clone();
    let record = |name: &str| {
        std::fs::read_to_string(repository().join("tests/data/v1").join(name)).expect("a record")
    };
    let sandbox = Sandbox::new();
    sandbox.write(&format!("{JOBS}/spec.json"), record("spec.json"));
    let mut plan: Value = serde_json::from_str(&record("plan.json")).expect("JSON");
    (plan["attempt"], plan["offer"]["region"], plan["launch"]["key_name"]) =
        (1.into(), "us-east-1".into(), key.into());
    sandbox.write(&format!("{JOBS}/attempts/0001/plan.json"), plan.to_string());
    sandbox.write(
        &format!("{JOBS}/attempts/0001/lease.json"),
        record("lease.json").replace("i-0123456789abcdef0", &id),
    );
    for program in ["ssh", "aws"] {
        sandbox.write(
            &format!("bin/{program}"),
            format!("#!/bin/sh\necho {program}\nfor word; do echo \"$word\"; done\n"),
        );
        let path = sandbox.path().join("bin").join(program);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .expect("a script of ours");
    }
    sandbox
}

fn ssh(ec2: &FalseEc2, sandbox: &Sandbox, args: &[&str]) -> Ended {
    let path = format!("{}:/usr/bin:/bin", sandbox.path().join("bin").display());
    sandbox.end(sandbox.command(&[&["ssh"], args].concat()).envs(ec2.env()).env("PATH", path))
}

#[test]
fn ssh_uses_a_named_key_that_is_here_and_else_session_manager() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let sandbox = place(&ec2, "lab");
    let without = ssh(&ec2, &sandbox, &[]);
    assert!(
        without.code == 0 && without.out.starts_with("aws\nssm\nstart-session\n--target\ni-"),
        "{without:?}"
    );
    assert!(
        without.err.contains("the key pair `lab` has no file ~/.ssh/lab.pem here"),
        "{}",
        without.err
    );

    sandbox.write("home/.ssh/lab.pem", "a key");
    let with = ssh(&ec2, &sandbox, &["--", "echo", "a b"]);
    let words: Vec<&str> = with.out.lines().collect();
    assert_eq!(
        (with.code, &words[..3]),
        (0, &["ssh", "-i", "[DIR]/home/.ssh/lab.pem"][..]),
        "{with:?}"
    );
    assert!(
        words.iter().any(|word| word.starts_with("ubuntu@")) && words.last() == Some(&"echo 'a b'"),
        "{with:?}"
    );
    assert!(with.err.contains("port 22") && with.err.contains("--session-manager"), "{}", with.err);

    let asked = ssh(&ec2, &sandbox, &["--session-manager"]);
    assert!(asked.out.starts_with("aws\nssm\n") && !asked.err.contains("key pair"), "{asked:?}");
    let named = ssh(&ec2, &sandbox, &["--key", "other.pem", "--user", "me", "--print"]);
    assert!(named.out.starts_with("ssh -i other.pem ") && named.out.contains(" me@"), "{named:?}");
}

#[test]
fn without_an_answer_of_the_cloud_it_says_what_to_do() {
    let Some(ec2) = FalseEc2::start(Options { pending: Duration::ZERO, ..Options::default() })
    else {
        return;
    };
    let sandbox = place(&ec2, "lab");
    sandbox.write("home/.ssh/lab.pem", "a key");
    ec2.fault(Fault::code("DescribeInstances", "UnauthorizedOperation").always());
    let refused = ssh(&ec2, &sandbox, &[]);
    assert_eq!((refused.code, &*refused.out), (103, ""), "{refused:?}");
    assert!(
        refused.err.contains("is not known")
            && refused.err.contains("--session-manager needs no address"),
        "{}",
        refused.err
    );
    // And what is not there cannot be started.
    std::fs::remove_file(sandbox.path().join("bin/aws")).expect("it was written");
    let missing = sandbox.end(
        sandbox.command(&["ssh", "--session-manager"]).env("PATH", sandbox.path().join("bin")),
    );
    assert!(
        missing.code == 103 && missing.err.contains("install it with its Session Manager plugin"),
        "{missing:?}"
    );
}
