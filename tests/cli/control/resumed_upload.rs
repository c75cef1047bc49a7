//! A large workdir on its way up, whose `lamp run` ends in the middle: what the next one sends.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::account::setup::User;
use crate::place::{Running, Words, signal, wait_until};
use lamp_test_support::ec2::{Call, Fault};

const CONFIG: &str = "home/.config/lamplighter/config.toml";

/// Somebody with a bucket and a workdir of three parts, which no packer makes smaller.
fn ready() -> Option<User> {
    let user = User::new()?;
    user.ec2.bucket("jobs");
    user.sandbox.write(CONFIG, format!("job_root = 's3://{}/root'\n", user.ec2.name("jobs")));
    let (mut data, mut x) = (Vec::with_capacity(20 << 20), 0x9e37_79b9_7f4a_7c15_u64);
    while data.len() < 20 << 20 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data.extend_from_slice(&x.to_le_bytes());
    }
    user.sandbox.write("work/data.bin", data);
    user.sandbox.write("work/train.sh", "exit 0\n");
    Some(user)
}

const RUN: [&str; 10] =
    ["run", "--name", "big", "--workdir", "work", "--idle", "off", "--", "sh", "train.sh"];

/// The parts of files that came by since the last time.
fn parts(user: &User) -> Vec<String> {
    let is_part = |call: &Call| call.action.starts_with("PUT ") && call.action.contains("/code/");
    let mut parts: Vec<String> = user
        .ec2
        .take_calls()
        .iter()
        .filter(|call| is_part(call))
        .filter_map(|call| call.params.get("partNumber").cloned())
        .collect();
    parts.sort();
    parts
}

/// Begins, and is ended by this signal once two of the parts are there.
fn is_cut_off(user: &User, by: &str) -> (i32, String) {
    user.ec2.fault(
        Fault::slow("PUT /*/code/*", Duration::from_secs(3600)).when("partNumber", "3").always(),
    );
    let mut command = user.sandbox.command(&RUN);
    let mut run = command
        .envs(user.ec2.env())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lamp was built for this test");
    let words = Words::of(run.stderr.take());
    let run = Running(run);
    assert!(
        words.until("sending the code, ").contains(" of 20.0 MiB"),
        "whoever waits sees how far it is"
    );
    let folder = user.sandbox.path().join("home/.local/state/lamplighter/uploads");
    let arrived = || {
        let folders = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let records = folders
            .flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
        records
            .filter_map(|record| std::fs::read_to_string(record.path()).ok())
            .map(|text| text.lines().count().saturating_sub(1))
            .sum::<usize>()
    };
    wait_until("two parts have arrived", || (arrived() >= 2).then_some(()));
    signal(run.0.id(), by);
    let err = words.rest().join("\n");
    user.ec2.mend();
    parts(user);
    let mut run = run;
    (run.0.wait().expect("it is ours").code().unwrap_or(-1), err)
}

/// Its job, what was said, and the parts that were sent.
fn run(user: &User) -> (String, String, Vec<String>) {
    let ran = user.lamp(&RUN);
    assert_eq!(ran.code, 0, "{ran:?}");
    let job =
        ran.err.lines().find_map(|line| line.strip_prefix("job ")?.split_once("; Ctrl-C detaches"));
    (job.unwrap_or_else(|| panic!("{ran:?}")).0.to_owned(), ran.err, parts(user))
}

#[test]
fn run_after_an_interrupted_upload_sends_only_what_is_missing() {
    let Some(user) = ready() else { return };
    let (code, err) = is_cut_off(&user, "INT");
    assert_eq!(code, 130, "{err}");
    assert!(
        err.contains(
            "the next `lamp run` of this name sends what has not arrived of the same folder"
        ),
        "{err}"
    );
    // Once more, by who says nothing.
    is_cut_off(&user, "KILL");
    let (job, err, sent) = run(&user);
    assert_eq!(sent, ["3"], "{err}");
    assert!(
        err.contains(&format!(
            "cut off while it sent the code of {job}: what has arrived is not sent again"
        )),
        "{err}"
    );
    // What was made is no other's.
    let (next, err, sent) = run(&user);
    assert_eq!((next != job, sent.len()), (true, 3), "{err}");
    assert!(!err.contains("cut off while it sent"), "{err}");
}

#[test]
fn run_uploads_anew_after_a_taken_id_or_a_changed_folder() {
    let Some(user) = ready() else { return };
    is_cut_off(&user, "KILL");
    let only = |folder: &Path| {
        std::fs::read_dir(folder).unwrap().next().expect("there is one").unwrap().path()
    };
    let left = only(&only(&user.sandbox.path().join("home/.local/state/lamplighter/unsent")));
    let text = std::fs::read_to_string(&left).unwrap();
    let job = text.split_once(' ').expect("the id, and what is on its way").0.to_owned();
    // Another content: all of it is sent, and what was there of the first is taken back.
    user.sandbox.write("work/train.sh", "exit 0 # as it is\n");
    let (second, err, sent) = run(&user);
    assert_eq!((&second, sent.len()), (&job, 3));
    assert!(err.contains("a file has changed since: all of it is sent"), "{err}");
    let open = user.ec2.s3("GET", &format!("/{}?uploads", user.ec2.name("jobs")), b"");
    let open = String::from_utf8_lossy(&open.1).into_owned();
    assert!(
        open.contains("ListMultipartUploadsResult") && !open.contains("<UploadId>"),
        "nothing is left behind: {open}"
    );
    // As after a crash between the making of the job and the word that it is made.
    std::fs::write(&left, &text).unwrap();
    let (third, err, _) = run(&user);
    assert!(third != job && !err.contains("cut off while it sent"), "{third}: {err}");
    // Its spec was deleted since, and the rest of it was not.
    let spec = format!("/{}/root/jobs/{job}/spec.json", user.ec2.name("jobs"));
    assert_eq!(user.ec2.s3("DELETE", &spec, b"").0, 204);
    std::fs::write(&left, &text).unwrap();
    let (fourth, err, _) = run(&user);
    assert!(fourth != job && !err.contains("cut off while it sent"), "{fourth}: {err}");
}

/// All of it had arrived, and the answer that says so had not.
#[test]
fn code_that_is_there_is_not_sent_again() {
    let Some(user) = ready() else { return };
    // The first begins the upload.
    user.ec2.fault(Fault::lost("POST /*/code/*").skip(1));
    let (_, err, sent) = run(&user);
    assert_eq!(sent, ["1", "2", "3"], "{err}");
}

/// Whoever was cut off between the two finds code without a job.
#[test]
fn job_that_was_never_made_is_not_called_no_jobs() {
    let Some(user) = ready() else { return };
    let code = format!("/{}/root/jobs/big-222222/code/{:064}.tar.zst", user.ec2.name("jobs"), 0);
    assert_eq!(user.ec2.s3("PUT", &code, b"code").0, 200);
    let status = user.lamp(&["status", "big-222222"]);
    assert!(
        status.code == 101 && status.err.contains("job `big-222222` was never made"),
        "{status:?}"
    );
    assert_eq!(user.lamp(&["status"]).code, 0);
}
