//! What cannot be read: one job among others, and pipes and devices in the place of files.

use crate::place::{Place, end};
use crate::sandbox::{Sandbox, soon};

fn pipe(sandbox: &Sandbox, path: &str) {
    let made = std::process::Command::new("mkfifo").arg(sandbox.path().join(path)).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is of every system");
}

#[test]
fn unreadable_job_is_named_with_its_owner_and_hides_no_other() {
    let place = Place::new("exit 0");
    for name in ["one", "two"] {
        assert_eq!(end(place.start(&["run", "-q", "--name", name, "--", "sh", "job.sh"])).0, 0);
    }
    let bad = place.receipt("one")["job"].as_str().expect("an id").to_owned();
    let folder = place.0.path().join("home/.local/state/lamplighter/jobs").join(&bad);
    for record in ["spec.json", "receipt.json"] {
        std::fs::remove_file(folder.join(record)).unwrap();
        // Nobody can read a folder as a file, not even root.
        std::fs::create_dir_all(folder.join(record).join("x")).unwrap();
    }
    let status = place.0.lamp(&["status", "--all"]);
    assert!(
        status.code == 0 && status.out.contains("two-") && !status.out.contains("one-"),
        "{status:?}"
    );
    assert!(
        status.err.contains(&format!("left out: job `{bad}` (its folder belongs to `")),
        "{status:?}"
    );
    let (code, document) = place.0.json(&["status", "-o", "json"]);
    assert_eq!((code, &document["left_out"][0]["job"]), (0, &bad.as_str().into()), "{document}");
    let discard = place.0.lamp(&["discard", "--older", "1s", "--dry-run"]);
    assert!(
        discard.code == 0 && discard.err.contains(&format!("left out: job `{bad}`")),
        "{discard:?}"
    );
    place.0.write("jobs/k.toml", "command = ['sh', 'job.sh']\nworkdir = '..'\n");
    let apply = place.0.lamp(&["apply", "jobs", "--dry-run"]);
    assert!(apply.code == 0 && apply.out.contains("k.toml"), "{apply:?}");
}

#[test]
fn pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    for name in [".gitignore", ".lampignore", "sub/.gitignore"] {
        let sandbox = Sandbox::with_script();
        sandbox.write("sub/x.py", "");
        pipe(&sandbox, name);
        let ended = soon(move || sandbox.lamp(&["check", "--", "sh", "train.py"]))
            .expect("it does not wait");
        assert!(
            ended.code == 100 && ended.out.contains(&format!("`{name}` is no regular file")),
            "{ended:?}"
        );
    }
    for config in ["pipe", "/dev/zero"] {
        let sandbox = Sandbox::with_script();
        pipe(&sandbox, "pipe");
        let mut command = sandbox.command(&["status"]);
        command.env("LAMP_CONFIG", config);
        let ended = soon(move || sandbox.end(&mut command)).expect("it does not wait");
        assert!(ended.code != 0 && ended.err.contains("it is no regular file"), "{ended:?}");
    }
}

#[test]
fn doctor_tells_a_job_root_that_cannot_be_made() {
    let sandbox = Sandbox::new();
    let doctor = sandbox.lamp(&["--job-root", "/proc/nowhere/jobs", "doctor"]);
    assert!(doctor.out.contains("is not there and cannot be made"), "{doctor:?}");
    let fine = sandbox.lamp(&["--job-root", "new/jobs", "doctor"]);
    assert!(
        fine.out.contains("0 jobs") && !sandbox.path().join("new").exists(),
        "it leaves nothing: {fine:?}"
    );
}
