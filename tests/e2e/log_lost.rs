//! An agent whose log goes nowhere: its terminal was closed, the disk of its log is full. It goes
//! on.

use std::fs::OpenOptions;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::Stdio;

use crate::bench::{Bench, Running, wait_until};

fn full() -> Stdio {
    Stdio::from(OpenOptions::new().write(true).open("/dev/full").expect("Linux has one"))
}

/// SIGABRT before: the log complained of itself on standard error, and panicked where that could
/// not be written either.
#[test]
fn agent_whose_log_has_no_room_goes_on() {
    let bench = Bench::new();
    let script = "echo $$ > pid; while [ ! -e go ]; do echo line; sleep 0.05; done; exit 4";
    let mut run = Running::start(
        bench
            .agent()
            .args(["run", "--", "sh", "-c", script])
            .env("LAMP_LOG", "debug")
            .stdout(full())
            .stderr(full()),
    );
    wait_until("the command runs", || bench.file("pid").exists().then_some(()));
    bench.write("go", "");
    assert_eq!(run.wait().code(), Some(4), "it is there until the end, which is the command's own");
    assert_eq!(bench.json("state", "outcome.json")["because"], "failed");

    let mut watch = bench.agent();
    watch
        .args(["watch", "--idle", "1h", "--then", "exit"])
        .env("LAMP_LOG", "debug")
        .stdout(full())
        .stderr(full());
    let watch = Running::start(&mut watch);
    wait_until("it has looked for a while", || {
        (bench.find("state", "status.json").len() > 1).then_some(())
    });
    crate::bench::kill(watch.pid(), "TERM");
}

/// A pseudo-terminal whose other end is closed: writes fail with EIO, and the kernel sends SIGHUP.
#[test]
fn agent_whose_terminal_is_closed_goes_on() {
    let bench = Bench::new();
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: two numbers are written, and both descriptors are ours then.
    let (master, slave) = unsafe {
        let made = libc::openpty(
            &mut master,
            &mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        );
        assert_eq!(made, 0, "a terminal");
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    };
    for end in [&master, &slave] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)
            .expect("the agent must not hold its own terminal up");
    }
    let terminal = || slave.try_clone().expect("a handle");
    let script = "echo $$ > pid; while [ ! -e go ]; do echo line; sleep 0.05; done; exit 4";
    let mut run = Running::start(
        bench
            .agent()
            .args(["run", "--", "sh", "-c", script])
            .env("LAMP_LOG", "debug")
            .stdin(terminal())
            .stdout(terminal())
            .stderr(terminal()),
    );
    wait_until("the command runs", || bench.file("pid").exists().then_some(()));
    drop((master, slave));
    crate::bench::kill(run.pid(), "HUP");
    bench.write("go", "");
    assert_eq!(run.wait().code(), Some(4));
}
