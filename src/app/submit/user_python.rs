//! The Python of the user: where it is, and what it lacks.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::app::{ExitCode, Fault};
use crate::config::Environment;

/// A Python program of this workstation.
#[derive(Clone, Debug)]
pub struct UserPython {
    pub program: PathBuf,
}

impl UserPython {
    /// `python3` of the search path, else `python`.
    ///
    /// # Errors
    /// Fails when there is neither.
    pub fn find(environment: &Environment) -> Result<UserPython, Fault> {
        let found = ["python3", "python"].iter().find_map(|name| environment.program(name));
        found.map(|program| UserPython { program }).ok_or_else(|| {
            Fault::new(
                ExitCode::NOT_FOUND,
                "Python is missing: neither `python3` nor `python` is in PATH",
            )
            .meaning("nothing was started or billed")
            .hint("install it, as `apt install python3 python3-venv`, or activate its environment")
        })
    }

    /// Whether a module can be imported.
    pub fn has_module(&self, name: &str) -> bool {
        let words = ["-c", &format!("import {name}")].map(str::to_owned);
        self.output(&words, Path::new("/")).is_ok_and(|output| output.status.success())
    }

    /// The version of an installed package, without an import of it.
    pub fn version_of(&self, package: &str) -> Option<String> {
        let script = format!("from importlib.metadata import version; print(version({package:?}))");
        let output = self.output(&["-c".to_owned(), script], Path::new("/")).ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    }

    pub fn output(&self, words: &[String], folder: &Path) -> std::io::Result<Output> {
        Command::new(&self.program).args(words).current_dir(folder).stdin(Stdio::null()).output()
    }

    /// Runs it to its end. `what` names the act in the error.
    ///
    /// # Errors
    /// Fails when it cannot start, or with its last line when it fails.
    pub fn run(&self, words: &[String], folder: &Path, what: &str) -> Result<(), Fault> {
        let output = self.output(words, folder).map_err(|error| {
            Fault::new(ExitCode::UNREACHABLE, format!("cannot start `{}`", self.program.display()))
                .because(&error)
                .meaning("nothing was started or billed")
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8_lossy(&said).into_owned();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or("it printed nothing", str::trim);
        Err(Fault::new(ExitCode::FINDINGS, format!("{what} failed: {last}"))
            .meaning("nothing was started or billed"))
    }
}
