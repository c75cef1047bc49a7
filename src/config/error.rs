//! Why a job or a configuration could not be read.

use std::io;
use std::path::{Path, PathBuf};

use crate::job::{Finding, Severity};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("no {what} `{}`", path.display())]
    NotFound { what: &'static str, path: PathBuf },
    #[error("cannot read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Everything that is wrong with the file, and the warnings.
    #[error("{}", errors_sentence(file, findings))]
    Findings { file: String, findings: Vec<Finding> },
    #[error("`{text}` cannot be the job root: it {problem}")]
    JobRoot { text: String, problem: &'static str },
    #[error("cannot tell the current folder")]
    CurrentDir(#[from] io::Error),
}

impl ConfigError {
    /// With the path as the user would type it from this folder.
    #[must_use]
    pub fn shown_from(self, current_dir: &Path) -> Self {
        let short = |path: PathBuf| path.strip_prefix(current_dir).map_or(path.clone(), Path::to_owned);
        match self {
            ConfigError::NotFound { what, path } => ConfigError::NotFound { what, path: short(path) },
            ConfigError::Read { path, source } => ConfigError::Read { path: short(path), source },
            other => other,
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::NotFound { what: "job file", .. } => Some("`lamp init` writes one, and `lamp run -- python train.py` needs none".to_owned()),
            ConfigError::JobRoot { .. } => Some("write `--job-root ~/lamp-jobs` or `--job-root s3://bucket/prefix`".to_owned()),
            _ => None,
        }
    }
}

fn errors_sentence(file: &str, findings: &[Finding]) -> String {
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        1 => format!("`{file}` has 1 error"),
        errors => format!("`{file}` has {errors} errors"),
    }
}
