//! The job root of before `lamp init aws`, and one that is not there.

#![cfg(feature = "aws")]

use crate::account::setup::User;

#[test]
fn init_names_the_jobs_that_stay_in_the_previous_job_root() {
    let Some(user) = User::new() else { return };
    user.sandbox.write("job.sh", "true");
    assert_eq!(user.lamp(&["run", "-q", "--idle", "off", "--", "sh", "job.sh"]).code, 0);
    let made = user.lamp(&["init", "aws", "--yes"]);
    let said = "1 job stays in file://[DIR]/home/.local/state/lamplighter (0 under way); \
                `lamp --job-root file://[DIR]/home/.local/state/lamplighter status` shows it";
    assert!(made.code == 0 && made.err.matches(said).count() == 2, "before and after: {made:?}");
    // And whoever looks in the new one alone finds them.
    let empty = user.lamp(&["status"]);
    let lies = "1 job lies in file://[DIR]/home/.local/state/lamplighter, where jobs are kept unless a job root is said";
    assert!(
        empty.code == 0 && empty.err.contains("no jobs in s3://") && empty.err.contains(lies),
        "{empty:?}"
    );
}

#[test]
fn missing_bucket_is_reported_alike_by_run_and_status() {
    let Some(user) = User::new() else { return };
    user.sandbox.write("job.sh", "true");
    let root = ["--job-root", "s3://nosuch-bucket-x"];
    for words in [&["run", "--detach", "--idle", "off", "--", "sh", "job.sh"][..], &["status"]] {
        let ended = user.lamp(&[&root[..], words].concat());
        let said =
            ended.err.lines().any(|line| line == "error: there is no bucket `nosuch-bucket-x`");
        let hinted = ended.err.contains("init aws` makes a bucket")
            && !ended.err.contains("<Error>")
            && !ended.err.contains("packed");
        assert!(ended.code == 103 && said && hinted, "{words:?}: {ended:?}");
    }
}
