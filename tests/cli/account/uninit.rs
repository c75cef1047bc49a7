//! `lamp uninit aws` of one job root: another one in its bucket stays, and who drives it here is
//! told of.

use std::process::Stdio;

use crate::account::setup::User;
use crate::place::{Running, wait_until};

/// It would ask for a bucket that is gone as long as this workstation is on.
#[test]
fn uninit_is_refused_while_a_daemon_runs_on_this_workstation() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let mut command = user.sandbox.command(&["daemon"]);
    let daemon = Running(
        command
            .envs(user.ec2.env())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("lamp was built for this test"),
    );
    wait_until("the daemon is seen", || {
        user.lamp(&["uninit", "aws", "--dry-run"]).err.contains("daemon").then_some(())
    });
    let refused = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(refused.code, 102, "{refused:?}");
    for said in [
        "error: daemon on this workstation: the job root would go from under it",
        "`systemctl --user stop lamp-controller`",
        "nothing was changed",
    ] {
        assert!(refused.err.contains(said), "{said}: {refused:?}");
    }
    let (code, dry) = user.json(&["uninit", "aws", "--dry-run"]);
    assert_eq!(
        (code, &dry["lines"][0]["blocks"], &dry["done"]),
        (102, &true.into(), &false.into()),
        "{dry}"
    );
    drop(daemon);
    let gone = user.lamp(&["uninit", "aws", "--yes"]);
    assert_eq!(gone.code, 0, "{gone:?}");
}

/// A prefix is a job root of its own, perhaps a colleague's: it is in no number that is typed, and
/// stays.
#[test]
fn uninit_keeps_the_other_job_root_of_a_shared_bucket() {
    let Some(user) = User::new() else { return };
    let bucket = user.bucket();
    let keys = |prefix: &str| {
        let listed = user.ec2.s3("GET", &format!("/{bucket}?versions&prefix={prefix}"), b"").1;
        String::from_utf8_lossy(&listed).matches("<Key>").count()
    };
    for (prefix, more) in [("a", &[][..]), ("b", &["--instead"])] {
        let made = user.lamp(
            &[&["init", "aws", "--yes", "--bucket", &bucket, "--prefix", prefix], more].concat(),
        );
        assert_eq!(made.code, 0, "{made:?}");
    }
    for (key, body) in [
        ("a/jobs/digits-222222/spec.json", b"{}".as_slice()),
        ("a/jobs/digits-222222/receipt.json", b"{}"),
        ("a/jobs/digits-222222/checkpoints/0001/manifest.json", b"{}"),
        ("a/jobs/words-333333/receipt.json", b"{}"),
        ("a/clock", b""),
        ("b/jobs/digits-444444/receipt.json", b"{}"),
        ("b/jobs/digits-444444/receipt.json", b"{ }"),
        ("b/jobs/digits-555555/receipt.json", b"{}"),
        ("b/jobs/jobs/digits-666666/receipt.json", b"{}"),
        ("b/clock", b""),
        ("notes.txt", b"mine"),
    ] {
        user.ec2.s3("PUT", &format!("/{bucket}/{key}"), body);
    }
    let others = keys("a/");
    let (code, dry) = user.json(&["uninit", "aws", "--dry-run", "--delete-jobs"]);
    assert_eq!(
        (code, &dry["in_use"]["jobs"], &dry["in_use"]["other_objects"]),
        (0, &2.into(), &7.into()),
        "{dry}"
    );
    assert_eq!(dry["in_use"]["others"], serde_json::json!(["a/", "b/jobs/", "notes.txt"]), "{dry}");
    let all = user.lamp(&["uninit", "aws", "--yes", "--delete-jobs", "--count", "4"]);
    assert!(
        all.code == 102
            && all
                .err
                .contains(&format!("there are 2 jobs with 4 objects in s3://{bucket}/b, not 4")),
        "{all:?}"
    );
    let gone = user.lamp(&["uninit", "aws", "--yes", "--delete-jobs", "--count", "2"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    let said = format!(
        "what is not of s3://{bucket}/b stays, and keeps it: 7 objects (a/, b/jobs/, notes.txt)"
    );
    assert!(
        gone.err.contains(&said) && gone.out.contains("delete all jobs of the job root"),
        "{gone:?}"
    );
    assert_eq!(
        (keys("a/"), keys("b/jobs/digits"), keys("b/jobs/jobs/"), keys("notes.txt")),
        (others, 0, 1, 1)
    );
    assert!(
        !user.sandbox.read("home/.config/lamplighter/config.toml").contains("job_root"),
        "nothing is read there any more"
    );
}
