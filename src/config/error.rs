//! Why a job or a configuration could not be read.

use std::io;
use std::path::{Path, PathBuf};

use super::document::JOB_FILE;
use super::key_suggest::did_you_mean;
use crate::job::{Finding, Severity, shell_word};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("no {what} `{}`", path.display())]
    NotFound { what: &'static str, path: PathBuf },
    #[error("no job file `{}`", path.display())]
    NoJobFile {
        path: PathBuf,
        /// The one beside it whose name is near.
        meant: Option<PathBuf>,
        /// All that are beside it.
        others: Vec<PathBuf>,
    },
    #[error("`{}` is a folder, not a job file", path.display())]
    Folder {
        path: PathBuf,
        /// It has a job file of its own.
        has_file: bool,
    },
    /// A pipe or a device, whose end may never come.
    #[error("`{}` is no file: a job is read from a file alone", path.display())]
    NoFile { path: PathBuf },
    #[error("`{}` is a script, not a job file", path.display())]
    Script { path: PathBuf, runner: &'static str },
    #[error("the {what} `{}` is larger than 1 MB", path.display())]
    TooLarge { what: &'static str, path: PathBuf },
    #[error("cannot read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// All errors of the file, and the warnings.
    #[error("{}", errors_sentence(file, findings))]
    Findings { file: String, findings: Vec<Finding> },
    #[error("`{text}` cannot be the job root: it {problem}")]
    JobRoot { text: String, problem: &'static str, meant: Option<String> },
    #[error(
        "`job_root = \"{text}\"` of the configuration is not a whole path: it would be another place in each folder"
    )]
    RelativeJobRoot { text: String },
    #[error("LAMP_OWNER is blank: everything that is launched carries whose it is")]
    BlankOwner,
    #[error("nothing says where the home folder is, and so where jobs are kept")]
    NoHome,
    #[error("the current folder is gone, or may not be read")]
    CurrentDir(#[from] io::Error),
}

impl ConfigError {
    /// With the path as the user would type it from this folder.
    #[must_use]
    pub fn shown_from(self, current_dir: &Path) -> Self {
        let short = |path: PathBuf| match path.strip_prefix(current_dir) {
            Ok(below) if below.as_os_str().is_empty() => PathBuf::from("."),
            Ok(below) => below.to_owned(),
            Err(_) => path,
        };
        match self {
            ConfigError::NotFound { what, path } => {
                ConfigError::NotFound { what, path: short(path) }
            }
            ConfigError::NoJobFile { path, meant, others } => ConfigError::NoJobFile {
                path: short(path),
                meant: meant.map(short),
                others: others.into_iter().map(short).collect(),
            },
            ConfigError::Folder { path, has_file } => {
                ConfigError::Folder { path: short(path), has_file }
            }
            ConfigError::NoFile { path } => ConfigError::NoFile { path: short(path) },
            ConfigError::Script { path, runner } => {
                ConfigError::Script { path: short(path), runner }
            }
            ConfigError::Read { path, source } => ConfigError::Read { path: short(path), source },
            ConfigError::TooLarge { what, path } => {
                ConfigError::TooLarge { what, path: short(path) }
            }
            other => other,
        }
    }

    /// With the first error of the file, for a line of a log.
    pub fn in_a_line(&self) -> String {
        let errors = |findings: &[Finding]| {
            findings.iter().find(|finding| finding.severity == Severity::Error).cloned()
        };
        match self {
            ConfigError::Findings { file, findings } if let Some(first) = errors(findings) => {
                let line = first.line.map(|line| format!("{line}:")).unwrap_or_default();
                format!("{self}: {file}:{line} {first}")
            }
            ConfigError::Read { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }

    /// The command or change that helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::NoJobFile { meant: Some(meant), .. } => Some(did_you_mean(&plain(meant))),
            ConfigError::NoJobFile { others, .. } if !others.is_empty() => Some(named(others)),
            ConfigError::NoJobFile { .. } => Some("`lamp init` writes one, and `lamp run -- python train.py` needs none".to_owned()),
            ConfigError::Folder { path, has_file: true } => {
                Some(format!("its job file is `{0}`: name that, as in `lamp run {1}`", plain(&path.join(JOB_FILE)), word(&path.join(JOB_FILE))))
            }
            ConfigError::Folder { path, has_file: false } => Some(format!("`lamp init {}` writes a job file into it", word(path))),
            ConfigError::NoFile { .. } => Some("write it into a file that ends in `.toml` or `.json`, and name that".to_owned()),
            ConfigError::Script { path, runner } => {
                Some(format!("`lamp run -- {runner} {}` runs it, and `lamp init` writes a job file for it", word(path)))
            }
            ConfigError::JobRoot { meant: Some(meant), .. } => {
                Some(format!("did you mean `{meant}`? a folder of that name is `./{}`", self.text_of_root()))
            }
            ConfigError::JobRoot { .. } => Some("write `--job-root ~/lamp-jobs` or `--job-root s3://bucket/prefix`".to_owned()),
            ConfigError::RelativeJobRoot { text } => Some(format!(
                "write `job_root = \"~/{}\"`, a path that begins with `/`, or `s3://bucket/prefix`; LAMP_JOB_ROOT and --job-root come before it",
                text.trim_start_matches("./")
            )),
            ConfigError::BlankOwner => Some("unset it: then `owner` of the configuration counts, or the login name".to_owned()),
            ConfigError::CurrentDir(_) => Some("cd somewhere else, or into the folder again: `cd ~`".to_owned()),
            ConfigError::NoHome => Some("set HOME, or name a place with `--job-root /folder` or `--job-root s3://bucket/prefix`".to_owned()),
            _ => None,
        }
    }
}

impl ConfigError {
    fn text_of_root(&self) -> &str {
        match self {
            ConfigError::JobRoot { text, .. } => text,
            _ => "",
        }
    }
}

/// How many job files the hint names, if no name is near.
const NAMED_MAX: usize = 3;

/// The job files that are there.
fn named(others: &[PathBuf]) -> String {
    let names: Vec<String> =
        others.iter().take(NAMED_MAX).map(|path| format!("`{}`", plain(path))).collect();
    let more = match others.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("beside it there is {}{more}", names.join(", "))
}

/// Without the `./` in front.
fn plain(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

/// As it is typed in a shell.
fn word(path: &Path) -> String {
    let path = plain(path);
    // This folder.
    shell_word(if path.is_empty() { "." } else { &path })
}

fn errors_sentence(file: &str, findings: &[Finding]) -> String {
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        1 => format!("`{file}` has 1 error"),
        errors => format!("`{file}` has {errors} errors"),
    }
}
