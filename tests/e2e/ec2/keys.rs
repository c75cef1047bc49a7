//! Keys that outlive a machine are on none: it has its role, and what a workstation knows stays
//! there.

use super::desk::Desk;
use super::machines::{Ec2, patiently};
use crate::bench::Finish as _;
use crate::jobs::{assert_code, text};

/// In no file of ours but this one.
const KEY: &str = "wJ4lampKeyOfTheDesk7EXAMPLE";

/// Where people keep such keys, but for the key's name, which every presigned URL holds and which
/// opens nothing.
const KEPT_IN: [&str; 5] =
    ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "GITHUB_TOKEN", "DATABASE_URL"];

/// What no folder shows from outside: the words and environments of all processes, and the file
/// systems in memory.
const INSIDE: &str = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > /root/processes; \
    find /run /tmp /dev/shm -xdev -type f -size -4096k -exec cat {} + > /root/memory 2>/root/unread; true";

#[test]
fn no_key_of_the_workstation_is_on_a_machine_that_works() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    let mut run = desk.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    let out = run.envs(KEPT_IN.map(|name| (name, KEY))).finish();
    assert_code(&out, 0);
    let machine = desk.launched(&[]);
    desk.begins(&machine.id);
    patiently("it has done some steps", || (desk.step(&machine.id) > 5).then_some(()));
    desk.ec2.run(&machine.id, &["sh", "-c", INSIDE]);
    let read =
        |path: &str| std::fs::read(desk.ec2.file(&machine.id, path)).expect("it was just written");
    for (path, known) in [
        ("root/processes", "LAMP_ATTEMPT="),
        ("root/processes", "LAMP_JOB_ROOT="),
        ("root/memory", "systemd"),
    ] {
        assert!(holds(&read(path), known), "{path} was not read: no {known}");
    }
    let with_key = files_with(&desk.ec2.file(&machine.id, ""), KEY);
    assert_eq!(with_key, Vec::<String>::new(), "a key of the workstation");
    // The scan sees what is there: the presigned URL, by which the agent was fetched.
    assert!(
        !files_with(&desk.ec2.file(&machine.id, ""), "X-Amz-Signature").is_empty(),
        "{}",
        text(&out.stderr)
    );
    desk.go(&machine.id);
    desk.receipt(&desk.jobs()[0]);
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// The files below a folder that hold a word, as they are or packed. Links lead elsewhere, and the
/// programs are this machine's own.
fn files_with(folder: &std::path::Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(about)) = (entry.path(), entry.path().symlink_metadata()) else { continue };
        if about.is_dir() && entry.file_name() != "usr" {
            found.extend(files_with(&path, word));
        } else if about.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if holds(&bytes, word)
                || zstd::decode_all(&bytes[..]).is_ok_and(|plain| holds(&plain, word))
            {
                found.push(path.display().to_string());
            }
        }
    }
    found
}
