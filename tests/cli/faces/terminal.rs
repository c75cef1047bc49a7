//! A terminal of its own for a verb that asks: `script` of util-linux makes it.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use crate::place::{Place, wait_until};

/// One verb on it; what it shows is written to a file.
pub(crate) struct Terminal {
    child: Child,
    screen: std::path::PathBuf,
}

impl Terminal {
    pub(crate) fn is_there() -> bool {
        Command::new("script").arg("--version").output().is_ok()
    }

    pub(crate) fn of(place: &Place, verb: &[&str]) -> Terminal {
        let lamp = place.0.command(&[]);
        let mut script = Command::new("script");
        script
            .args([
                "-qfec",
                &format!("{} {}", lamp.get_program().to_string_lossy(), verb.join(" ")),
                "screen",
            ])
            .current_dir(place.0.path());
        script
            .env_clear()
            .envs(lamp.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("SHELL", "/bin/sh");
        let child =
            script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it is there");
        Terminal { child, screen: place.0.path().join("screen") }
    }

    pub(crate) fn screen(&self) -> String {
        std::fs::read_to_string(&self.screen).unwrap_or_default()
    }

    pub(crate) fn until(&self, text: &str) {
        wait_until(text, || self.screen().contains(text).then_some(()));
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.child
            .stdin
            .as_mut()
            .expect("it is piped")
            .write_all(keys.as_bytes())
            .expect("it listens");
    }

    /// The exit code of the verb.
    pub(crate) fn end(&mut self) -> Option<i32> {
        wait_until("it ends", || self.child.try_wait().expect("it was started here")).code()
    }
}
