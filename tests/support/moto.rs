//! moto's server, an S3 that is right about conditional puts: `#[path = "../support/moto.rs"] mod moto;`
//!
//! Not installed is said and skipped: `pip install 'moto[server]'`, or `LAMP_TEST_MOTO` names the program. The gate installs it.

#![allow(clippy::disallowed_methods, reason = "a test's stand-in for the world")]

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::skipped::skipped;

pub struct Moto {
    server: Child,
    pub endpoint: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// `None`, with a word, where it is not installed.
pub fn moto() -> Option<Moto> {
    let program = std::env::var("LAMP_TEST_MOTO").unwrap_or_else(|_| "moto_server".into());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(&program);
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec, only a system call. A test that is killed leaves no server behind.
    unsafe { command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)) };
    let Ok(server) = command.spawn() else {
        skipped(format!("`{program}` is not installed (pip install 'moto[server]')"));
        return None;
    };
    let mut moto = Moto { server, endpoint: format!("http://127.0.0.1:{port}") };
    let until = Instant::now() + Duration::from_secs(300);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Ok(Some(status)) = moto.server.try_wait() {
            skipped(format!("`{program}` ended at once with {status} (pip install 'moto[server]')"));
            return None;
        }
        assert!(Instant::now() < until, "moto does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(moto)
}
