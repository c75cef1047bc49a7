//! Our own program as a child process, with JSON output and without a terminal.
//!
//! Not here: which words a tool may pass (`tool_input`).

use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

#[derive(Clone, Debug)]
pub struct OwnProgram {
    file: PathBuf,
    job_root: String,
}

/// How a child ended, and all that it printed.
#[derive(Clone, Debug)]
pub struct ProgramEnd {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl OwnProgram {
    /// # Errors
    /// Fails when the path of the program is unknown.
    pub fn new(job_root: String) -> io::Result<Self> {
        Ok(OwnProgram { file: std::env::current_exe()?, job_root })
    }

    /// Runs one verb to its end. A cancelled call does not kill it: a launch must not be cut short.
    ///
    /// # Errors
    /// Fails when the process cannot be started.
    pub async fn run(&self, verb: &str, words: &[String]) -> io::Result<ProgramEnd> {
        let mut command = Command::new(&self.file);
        command.args(["-o", "json", "--color", "never", "--job-root", &self.job_root, verb]);
        let ended = command.args(words).stdin(Stdio::null()).output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(ProgramEnd {
            code: ended.status.code(),
            out: text(&ended.stdout),
            err: text(&ended.stderr),
        })
    }
}

impl ProgramEnd {
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    pub fn document(&self) -> Option<Value> {
        serde_json::from_str(&self.out).ok()
    }

    /// The error for people: the fault of stderr as sentences, or stderr as it is.
    pub fn fault_text(&self) -> String {
        let fault = self.err.lines().rev().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            line.get("error").cloned()
        });
        fault.as_ref().map_or_else(|| self.err.trim().to_owned(), sentences)
    }
}

/// A fault of `-o json` (docs/exit-codes.md) as lines of text.
fn sentences(fault: &Value) -> String {
    let text = |key: &str| fault[key].as_str().map(str::to_owned);
    let causes = fault["causes"].as_array().into_iter().flatten();
    let what: Vec<String> = text("what")
        .into_iter()
        .chain(causes.filter_map(|cause| cause.as_str().map(str::to_owned)))
        .collect();
    let mut lines = vec![format!("error: {}", what.join(": "))];
    lines.extend(text("meaning"));
    for finding in fault["findings"].as_array().into_iter().flatten() {
        let part = |key: &str| finding[key].as_str().unwrap_or_default();
        lines.push(format!("{}: {}; {}", part("path"), part("message"), part("hint")));
    }
    lines.extend(text("hint").map(|hint| format!("hint: {hint}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_of_a_child_is_told_in_lines() {
        let err = "note: x\n{\"error\":{\"what\":\"no job\",\"causes\":[\"gone\"],\"meaning\":\"nothing was changed\",\"hint\":\"`lamp status`\"}}\n";
        let ended = ProgramEnd { code: Some(101), out: String::new(), err: err.into() };
        assert_eq!(
            ended.fault_text(),
            "error: no job: gone\nnothing was changed\nhint: `lamp status`"
        );
    }
}
