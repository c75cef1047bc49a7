//! What the service manager hears from us.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use lamplighter::adapters::host::service_manager::Notify;
use lamplighter::ports::Service;

#[test]
fn service_manager_hears_every_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("it can");
    let mut service = Command::new(std::env::current_exe().expect("this test"));
    service
        .args(["--exact", "notify::a_service_that_speaks", "--ignored"])
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null());
    assert!(service.status().expect("it runs").success());
    let mut heard = Vec::new();
    for _ in 0..4 {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).expect("a message");
        heard.push(String::from_utf8_lossy(&message[..length]).trim().to_owned());
    }
    assert_eq!(
        heard,
        ["READY=1", "WATCHDOG=1", "STATUS=epoch 3 WATCHDOG=trigger", "STOPPING=1"],
        "a status cannot bring in another word"
    );
}

/// The other process of the test above.
#[test]
#[ignore = "the service of another test"]
fn a_service_that_speaks() {
    Notify.ready();
    Notify.alive();
    Notify.status("epoch 3\nWATCHDOG=trigger");
    Notify.stopping();
}

#[test]
fn without_a_manager_nothing_happens() {
    Notify.ready();
    Notify.alive();
    Notify.status("nobody hears this");
    Notify.stopping();
}
