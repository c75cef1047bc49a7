//! `lamp daemon` as systemd's service (systemd/lamp-controller.service): what its manager hears of
//! it, and ends it for not hearing.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use crate::place::{Place, end, signal};

/// The manager's end of the socket.
struct Manager(UnixDatagram);

impl Manager {
    fn hears(&self) -> String {
        let mut message = [0; 512];
        let length = self
            .0
            .recv(&mut message)
            .expect("a message, long before a manager would end the service");
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    }

    /// What it hears until it has heard this.
    fn until(&self, word: &str) -> Vec<String> {
        let mut heard = vec![self.hears()];
        while !heard.last().is_some_and(|last| last.starts_with(word)) {
            heard.push(self.hears());
        }
        heard
    }
}

/// Without READY a unit of `Type=notify` never begins, without WATCHDOG it is killed every five
/// minutes.
#[test]
fn daemon_notifies_its_manager_when_ready_alive_and_stopping() {
    let place = Place::new("true");
    let path = place.0.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).expect("a socket"));
    manager.0.set_read_timeout(Some(Duration::from_secs(60))).expect("it can");
    let second = place.0.path().join("second");
    let mut daemon = place.0.command(&[
        "--job-root",
        &place.0.path().join("first").display().to_string(),
        "--job-root",
    ]);
    daemon.arg(&second).arg("daemon").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000000");
    let daemon = daemon
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lamp was built for this test");
    let pid = daemon.id();
    assert_eq!(manager.hears(), "READY=1", "before anything else");
    let begins = manager.until("WATCHDOG=1");
    assert!(
        begins.iter().all(|word| word.starts_with("STATUS=") || word == "WATCHDOG=1"),
        "{begins:?}"
    );
    // At rest it goes on saying so.
    let goes_on = [begins, manager.until("WATCHDOG=1"), manager.until("WATCHDOG=1")].concat();
    assert!(goes_on.contains(&"STATUS=0 jobs under way".to_owned()), "{goes_on:?}");
    signal(pid, "TERM");
    let ends = manager.until("STOPPING=1");
    assert!(ends.iter().all(|word| word != "READY=1"), "{ends:?}");
    let (code, _, err) = end(daemon);
    assert_eq!(code, 0, "{err}");
}
