//! Writes a message to the terminals of all logins, as `wall` does.
//!
//! `wall` itself knows only utmp, which newer systems lack, and is set-group-ID, which the agent's
//! sandbox forbids. Not here: the text.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "plays a machine's terminals with files")
)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use super::logins::logins;
use crate::instance::Reading;
use crate::ports::People;

pub struct Terminals {
    root: PathBuf,
}

impl Terminals {
    /// `root` is `/`, except in tests.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Terminals { root: root.into() }
    }
}

impl People for Terminals {
    fn tell(&self, text: &str) {
        let Reading::Known(logins) = logins(&self.root) else { return };
        for login in logins {
            let path = self.root.join("dev").join(&login.terminal);
            // Non-blocking: a terminal stopped by Ctrl-S would block us. NOCTTY: none may become
            // ours.
            let opened = fs::File::options()
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
                .open(&path);
            let told = opened.and_then(|mut terminal| {
                terminal.write_all(format!("\r\n\x07lamplighter: {text}\r\n").as_bytes())
            });
            if let Err(error) = told {
                tracing::debug!("{} is not told: {error}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_terminal_of_a_login_is_told_and_no_other() {
        let root = tempfile::tempdir().expect("a folder can be made");
        for dir in ["run/systemd/sessions", "dev/pts", "proc/77"] {
            fs::create_dir_all(root.path().join(dir)).expect("it can be made");
        }
        for (name, terminal) in [("1", "pts/3"), ("2", "pts/4"), ("3", "pts/gone")] {
            let session = format!("CLASS=user\nSTATE=active\nTTY={terminal}\nLEADER=77\n");
            fs::write(root.path().join("run/systemd/sessions").join(name), session)
                .expect("it can be written");
        }
        for terminal in ["pts/3", "pts/4", "pts/5"] {
            fs::write(root.path().join("dev").join(terminal), "").expect("it can be written");
        }
        Terminals::new(root.path()).tell("train-3 is over");
        let shown = |terminal: &str| {
            fs::read_to_string(root.path().join("dev").join(terminal)).expect("it is there")
        };
        assert_eq!(shown("pts/3"), "\r\n\x07lamplighter: train-3 is over\r\n");
        assert_eq!((shown("pts/4"), shown("pts/5")), (shown("pts/3"), String::new()));
    }
}
