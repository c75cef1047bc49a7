//! A machine of ours whose job's records are gone: `lamp sweep` tells of it apart, and ends it
//! where a person names it.

use crate::place::{Place, wait_until};
use crate::sandbox::{Ended, Sandbox};

const WAITS: &str = "trap '' TERM; while :; do sleep 0.1; done";

/// Nobody to AWS, without a second of waiting for it.
fn lamp(place: &Place, words: &[&str]) -> Ended {
    place.0.end(place.0.command(words).env("AWS_EC2_METADATA_DISABLED", "true"))
}

#[test]
fn machine_without_records_is_listed_apart_and_ended_by_its_id() {
    let place = Place::new(WAITS);
    assert_eq!(
        place
            .0
            .lamp(&[
                "run", "-q", "--detach", "--name", "lost", "--idle", "off", "--", "sh", "job.sh"
            ])
            .code,
        0
    );
    let status = place.until("lost", "running");
    let (job, machine) =
        (status["job"].as_str().unwrap(), status["instance"].as_str().unwrap().to_owned());
    // Its job is known: nobody ends it by the machine's id.
    let known = lamp(&place, &["sweep", "--machine", &machine, "--yes"]);
    assert!(
        known.code == 102
            && known.err.contains("which is in this job root")
            && known.err.contains(&format!("`lamp cancel {job}`")),
        "{known:?}"
    );
    std::fs::remove_dir_all(place.0.path().join("home/.local/state/lamplighter/jobs").join(job))
        .unwrap();

    let shown = lamp(&place, &["sweep", "--dry-run"]);
    let said = "the job of 1 machine of yours is unknown here";
    assert!(
        shown.out.contains(said)
            && shown.out.contains(&machine)
            && shown.out.contains("ENDS WITHIN"),
        "{shown:?}"
    );
    assert!(
        shown.err.contains(&format!("`lamp sweep --machine {machine}` ends it for good")),
        "{shown:?}"
    );
    let document = lamp(&place, &["sweep", "--dry-run", "-o", "json"]);
    let document: serde_json::Value = serde_json::from_str(&document.out).unwrap();
    let stray = &document["machines"][0];
    assert_eq!(
        (&stray["verdict"], &stray["usd_per_hour"]),
        (&"stray".into(), &0.0.into()),
        "{document}"
    );
    assert!(stray["kill_at"].is_string() || stray["kill_at"].is_null(), "{document}");

    // Neither by a sweep, nor unasked, nor by a name that is none.
    assert!(lamp(&place, &["sweep", "--yes"]).out.contains(said));
    let asked = lamp(&place, &["sweep", "--machine", &machine]);
    assert!(
        asked.code == 102
            && asked.err.contains(&format!("this ends {machine} for good"))
            && asked.err.contains("`--yes`"),
        "{asked:?}"
    );
    let nobody = lamp(&place, &["sweep", "--machine", "i-0", "--yes"]);
    assert!(
        nobody.err.contains("no machine `i-0`") && nobody.err.contains("nothing was ended"),
        "{nobody:?}"
    );
    let dry = lamp(&place, &["sweep", "--machine", &machine, "--dry-run"]);
    assert!(
        dry.code == 0
            && dry.err.contains(&format!(
                "nothing was done; without `--dry-run` this ends {machine} for good"
            )),
        "{dry:?}"
    );
    assert!(lamp(&place, &["sweep", "--dry-run"]).out.contains(&machine), "it runs on");

    let ended = lamp(&place, &["sweep", "--machine", &machine, "--yes"]);
    assert!(
        ended.code == 0 && ended.err.contains(&format!("asked the cloud to end {machine}")),
        "{ended:?}"
    );
    wait_until("it is gone", || {
        (!lamp(&place, &["sweep", "--dry-run"]).out.contains(&machine)).then_some(())
    });
    place.nothing_is_left();
}

/// Nobody here can have a machine at AWS: a timer of this job root need not fail. Where a job was
/// for AWS, or an account is named, it is not known what runs there.
#[test]
#[cfg(feature = "aws")]
fn sweep_without_credentials_is_quiet_if_no_job_was_for_aws() {
    let sandbox = Sandbox::new();
    let sweep = |words: &[&str]| {
        sandbox.end(
            sandbox.command(&[&["sweep"], words].concat()).env("AWS_EC2_METADATA_DISABLED", "true"),
        )
    };
    let spec = |job: &str, cloud: &str| {
        let mut spec: serde_json::Value =
            serde_json::from_str(include_str!("../../data/v1/spec.json")).expect("a record");
        (spec["job"], spec["spec"]["machine"]["cloud"]) = (job.into(), cloud.into());
        sandbox.write(
            &format!("home/.local/state/lamplighter/jobs/{job}/spec.json"),
            spec.to_string(),
        );
    };
    spec("here-222222", "local");
    let quiet = sweep(&[]);
    assert!(
        quiet.code == 0
            && quiet.out == "no machine of yours runs\n"
            && !quiet.err.contains("warning"),
        "{quiet:?}"
    );
    assert!(
        quiet.err.contains(
            "aws was not asked: this job root never had a job for it: no AWS credentials were found"
        ),
        "{quiet:?}"
    );
    let document: serde_json::Value =
        serde_json::from_str(&sweep(&["-o", "json"]).out).expect("a document");
    assert_eq!(
        (&document["unknown"], &document["unasked"][0]["place"]),
        (&serde_json::json!([]), &"aws".into()),
        "{document}"
    );
    // Whoever asks for a machine by its id, or for those of others, asks of AWS.
    for no_id in ["banana", "i-", "i-xyz", "i-local-"] {
        let nobody = sweep(&["--machine", no_id]);
        assert!(
            nobody.code == 2
                && nobody.err.contains("no machine has an id like that")
                && !nobody.err.contains("looking in"),
            "{nobody:?}"
        );
    }
    assert_eq!(
        (sweep(&["--machine", "i-0123456789abcdef0"]).code, sweep(&["--foreign"]).code),
        (103, 103)
    );

    spec("there-333333", "aws");
    let loud = sweep(&[]);
    assert!(
        loud.code == 103
            && loud.err.contains("warning: aws is unknown: no AWS credentials were found"),
        "{loud:?}"
    );
    std::fs::remove_dir_all(sandbox.path().join("home/.local/state/lamplighter/jobs/there-333333"))
        .unwrap();
    assert_eq!(sweep(&[]).code, 0);
    sandbox.write("home/.config/lamplighter/config.toml", "[aws]\nregions = ['us-east-1']\n");
    assert_eq!(sweep(&[]).code, 103);
}
