//! What the programs make is its owner's alone, whatever the umask: job root, state, cache,
//! configuration, temporary files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::bench::{Bench, Finish as _, wait_until};
use crate::jobs::{assert_code, text};

/// With a umask that hides nothing.
fn open_handed(bench: &Bench, program: &str, words: &[&str]) -> Output {
    let mut command: Command = bench.command("/bin/sh");
    command.args(["-c", "umask 000; exec \"$@\"", "sh", program]).args(words);
    command.env("LAMP_JOB_ROOT", bench.root()).env("TMPDIR", bench.file("tmp")).finish()
}

/// Everything below a folder that somebody else could read, write or enter.
fn open_to_others(folder: &Path, seen: &mut usize) -> Vec<String> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, about) = (entry.path(), entry.metadata().expect("it is there"));
        if about.is_symlink() {
            continue;
        }
        *seen += 1;
        let mode = about.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            open.push(format!("{mode:o} {}", path.display()));
        }
        if about.is_dir() {
            open.extend(open_to_others(&path, seen));
        }
    }
    open
}

fn made(bench: &Bench) -> [PathBuf; 5] {
    ["jobs-root", "state", "cache", "config", "tmp"].map(|name| bench.file(name))
}

#[test]
fn files_of_the_programs_are_private_under_a_umask_of_zero() {
    let bench = Bench::new();
    let (lamp, agent) = (env!("CARGO_BIN_EXE_lamp"), env!("CARGO_BIN_EXE_lamp-agent"));
    // The command's own files are its own business: this one keeps them to itself too.
    bench.shell(
        "umask 077; echo line; mkdir -p ckpt; echo 1 > ckpt/a; echo '{\"step\": 1}' >> \"$LAMP_PROGRESS\"; mkdir -p \"$LAMP_OUTPUT_DIR\"; echo 2 > \"$LAMP_OUTPUT_DIR/o\"",
        "[checkpoint]\npath = 'ckpt'\ninterval = '1s'\n[limits]\nmax_runtime = '10m'\n[watch]\nidle = 'off'\n",
    );
    // The checked-out workdir is packed with the permissions that it has.
    for (path, mode) in [("w", 0o700), ("w/job.sh", 0o600)] {
        std::fs::set_permissions(bench.file(path), std::fs::Permissions::from_mode(mode))
            .expect("ours");
    }
    bench.write(
        "set/later.toml",
        "command = 'true'\nworkdir = '../w'\n[schedule]\ncron = '0 3 * * *'\n",
    );
    std::fs::create_dir(bench.file("tmp")).expect("writable");
    std::fs::set_permissions(bench.file("tmp"), std::fs::Permissions::from_mode(0o1777))
        .expect("ours");

    let ran = open_handed(&bench, lamp, &["run", "job.toml"]);
    assert_code(&ran, 0);
    let detached = open_handed(&bench, lamp, &["run", "--detach", "--name", "second", "job.toml"]);
    assert_code(&detached, 0);
    let job = text(&detached.stdout).trim().to_owned();
    wait_until("the second job has its receipt", || {
        bench.file(&format!("jobs-root/jobs/{job}/receipt.json")).exists().then_some(())
    });
    assert_code(&open_handed(&bench, lamp, &["apply", "set"]), 0);
    assert_code(&open_handed(&bench, lamp, &["status"]), 0);
    assert_code(
        &open_handed(&bench, agent, &["run", "--", "sh", "-c", "umask 077; echo alone"]),
        0,
    );
    let mut seen = 0;
    let open: Vec<String> =
        made(&bench).iter().flat_map(|folder| open_to_others(folder, &mut seen)).collect();
    assert_eq!(open, Vec::<String>::new());
    assert!(seen > 60, "{seen} files and folders were looked at");
    for folder in made(&bench).iter().take(3) {
        let mode = std::fs::metadata(folder).map(|about| about.permissions().mode() & 0o777);
        assert!(
            mode.as_ref().is_ok_and(|mode| mode & 0o077 == 0),
            "{} is {mode:?}",
            folder.display()
        );
    }
    wait_until("what drove them is gone", || bench.processes().is_empty().then_some(()));
}
