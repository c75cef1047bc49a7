//! Two who make one account ready at the same moment: what the second one does when its look was of
//! before the first one's calls.

#![cfg(feature = "aws")]

use crate::account::setup::User;
use lamp_test_support::ec2::Fault;

const CONFIG: &str = "home/.config/lamplighter/config.toml";

/// The looks of this many calls are of before the role, and the instance profile, were made.
fn looked_too_early(user: &User, profiles: u32) {
    user.ec2.fault(
        Fault::code("GetRole", "NoSuchEntity").status(404).when("RoleName", "lamplighter-box"),
    );
    user.ec2.fault(Fault::code("GetInstanceProfile", "NoSuchEntity").status(404).times(profiles));
}

/// Who makes the role says which job root it is for. The second one's policy over it would take the
/// jobs of the first away from his machines, and nobody would have been told.
#[test]
fn init_that_makes_the_role_first_decides_its_job_root() {
    let Some(user) = User::new() else { return };
    let other = user.ec2.bucket("other");
    assert_eq!(user.lamp(&["init", "aws", "--yes", "--bucket", &other]).code, 0);
    // The second is at another workstation.
    user.sandbox.write(CONFIG, "");
    user.changes();
    for instead in [&[][..], &["--instead"]] {
        looked_too_early(&user, 1);
        let second = user.lamp(&[&["init", "aws", "--yes"], instead].concat());
        assert_eq!(second.code, 102, "{second:?}");
        assert!(
            second.err.contains("role lamplighter-box: another user has just made it"),
            "{second:?}"
        );
        assert!(
            second.err.contains(&format!(
                "it is for the job root s3://{other}, and s3://{} is asked for",
                user.bucket()
            )),
            "{second:?}"
        );
        assert!(
            second.err.contains("what this one made before stays")
                && second.err.contains("`lamp init aws --dry-run`"),
            "{second:?}"
        );
        let changes = user.changes();
        assert!(
            changes.iter().any(|change| change == "CreateRole")
                && !changes.iter().any(|change| change == "PutRolePolicy"),
            "{changes:?}"
        );
        assert_eq!(user.sandbox.read(CONFIG), "");
        user.ec2.mend();
    }
}

/// For the same job root it is no more than one who is helped.
#[test]
fn two_that_make_the_same_account_ready_at_once_both_end_well() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    user.sandbox.write(CONFIG, "");
    user.changes();
    looked_too_early(&user, 2);
    let (code, second) = user.json(&["init", "aws", "--yes"]);
    assert_eq!((code, second["done"].as_bool()), (0, Some(true)), "{second}");
    let changes = user.changes();
    for action in ["CreateRole", "CreateInstanceProfile", "AddRoleToInstanceProfile"] {
        assert!(changes.iter().any(|change| change == action), "{action} in {changes:?}");
    }
    assert!(
        !changes.iter().any(|change| change == "PutRolePolicy"),
        "it is as it should be: {changes:?}"
    );
    assert!(user.sandbox.read(CONFIG).contains(&format!("job_root = \"s3://{}\"", user.bucket())));
    let third = user.lamp(&["init", "aws", "--yes"]);
    assert!(third.code == 0 && third.err.contains("everything is ready"), "{third:?}");
}

/// A bucket that got an owner meanwhile keeps him.
#[test]
fn bucket_that_another_owner_has_just_made_stays_his() {
    let Some(user) = User::new() else { return };
    let bob = user.sandbox.end(
        user.sandbox
            .command(&["init", "aws", "--yes"])
            .envs(user.ec2.env())
            .env("LAMP_OWNER", "bob"),
    );
    assert_eq!(bob.code, 0, "{bob:?}");
    user.sandbox.write(CONFIG, "");
    user.changes();
    user.ec2.fault(Fault::code(&format!("HEAD /{}*", user.bucket()), "NotFound").status(404));
    let alice = user.lamp(&["init", "aws", "--yes"]);
    assert_eq!(alice.code, 0, "{alice:?}");
    assert!(
        alice.err.contains("another user has just made it")
            && alice.err.contains("it is bob's and stays as it is"),
        "{alice:?}"
    );
    let tags = user.ec2.s3("GET", &format!("/{}?tagging", user.bucket()), b"");
    assert!(String::from_utf8_lossy(&tags.1).contains("<Value>bob</Value>"), "{tags:?}");
}
