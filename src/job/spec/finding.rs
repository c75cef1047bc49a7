//! One problem in a spec, with its place and its cure.

use std::fmt;

use serde::Serialize;

/// One problem in a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The dotted path of the key, `machine.gpus`; empty if it concerns the whole.
    pub path: String,
    /// Its place, if other than the job file: a file with a secret in the workdir, or the command
    /// line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of the file, from 1, if it came from one.
    pub line: Option<usize>,
    /// The rule that found it, if the user may want to allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    pub message: String,
    pub hint: Option<String>,
    /// For decisions about the finding: they never compare its sentences.
    #[serde(skip)]
    pub cause: FindingCause,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FindingCause {
    #[default]
    Other,
    /// The setting has no effect in this job. In the configuration of all jobs, it needs no
    /// message.
    NoEffect,
    /// No table of the file has this key; with the key that is near.
    UnknownKey(Option<KeySuggestion>),
    /// The workdir is probably another folder: it lacks the script that is run.
    WrongWorkdir,
    /// A file or folder of the workdir stays here, as the message shows it.
    DoesNotShip(String),
    /// An ignore file could not be read, so the workdir was not read.
    IgnoreFileUnread,
}

/// The key that the user probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySuggestion {
    pub name: String,
    /// The other tables that have it; empty: it belongs to the same table, or above all tables.
    pub tables: Vec<String>,
}

impl fmt::Display for KeySuggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "did you mean `{}`", self.name)?;
        for (index, table) in self.tables.iter().enumerate() {
            write!(f, " {} `[{table}]`", if index == 0 { "in" } else { "or" })?;
        }
        f.write_str("?")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Likely a mistake; the job can run.
    Warning,
    /// The job cannot run like this.
    Error,
}

impl Finding {
    pub fn error(path: &str, message: impl Into<String>) -> Self {
        Finding {
            severity: Severity::Error,
            path: path.into(),
            file: None,
            line: None,
            rule: None,
            message: message.into(),
            hint: None,
            cause: FindingCause::Other,
        }
    }

    pub fn warning(path: &str, message: impl Into<String>) -> Self {
        Finding { severity: Severity::Warning, ..Finding::error(path, message) }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// In another file than the job's, by a rule with a name.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>, rule: &'static str) -> Self {
        self.file = Some(file.into());
        self.rule = Some(rule);
        self
    }

    #[must_use]
    pub fn because(mut self, cause: FindingCause) -> Self {
        self.cause = cause;
        self
    }

    /// A job that buys machines lacks a limit. Other jobs may lack one.
    pub fn is_of_no_limit(&self) -> bool {
        self.severity == Severity::Error && self.path == "limits"
    }

    #[must_use]
    pub fn at_line(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
