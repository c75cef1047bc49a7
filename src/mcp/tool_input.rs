//! The inputs of the tools, and the words of the command line that each becomes.
//!
//! Each value is one word behind its flag, so that no value can become a flag of its own.

use schemars::JsonSchema;
use serde::Deserialize;

use super::purse::{MARK, MARK_VALUE};
use crate::app::{ExitCode, Fault};

/// One job, or the newest.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobChoice {
    /// The id of a job, the beginning of it, or its name. Without it, the newest job.
    pub job: Option<String>,
}

/// One job that must be named.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedJob {
    /// The id of a job, the beginning of it, or its name.
    pub job: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusInput {
    /// Also jobs that have ended.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogInput {
    /// The id of a job, the beginning of it, or its name. Without it, the newest job.
    pub job: Option<String>,
    /// How many of the last lines. Default: 100.
    pub lines: Option<u32>,
}

/// A job: a job file, or a command; the other values come before the values of the file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobInput {
    /// The job file. Without file and command: lamp.toml of the server's folder.
    pub file: Option<String>,
    /// The command and its arguments, in place of the job file's.
    #[serde(default)]
    pub command: Vec<String>,
    /// Name of the job.
    pub name: Option<String>,
    /// `local` (this workstation) or `aws`.
    pub cloud: Option<String>,
    /// GPUs, like `A10G:1` or `at least 24GiB`.
    pub gpus: Option<String>,
    /// `on-demand`, `spot` or `auto`.
    pub market: Option<String>,
    /// The longest one attempt may run, like `2h`.
    pub max_runtime: Option<String>,
    /// The most that all attempts together may cost, in dollars.
    pub budget_usd: Option<f64>,
}

impl JobInput {
    /// The words after the verb. `more`: further flags.
    ///
    /// # Errors
    /// Fails when the file looks like a flag.
    pub fn words(&self, more: &[String]) -> Result<Vec<String>, Fault> {
        let flags = [
            ("name", &self.name),
            ("cloud", &self.cloud),
            ("gpus", &self.gpus),
            ("market", &self.market),
            ("max-runtime", &self.max_runtime),
        ];
        let mut words: Vec<String> = flags
            .into_iter()
            .filter_map(|(flag, value)| value.as_ref().map(|value| format!("--{flag}={value}")))
            .collect();
        words.extend(self.budget_usd.map(|usd| format!("--budget={usd}")));
        // A later flag of the same name is an error of clap, so ours replaces the agent's.
        for flag in more {
            let name = flag.split_inclusive('=').next().unwrap_or(flag);
            words.retain(|word| !word.starts_with(name));
            words.push(flag.clone());
        }
        words.extend(self.file.as_deref().map(not_a_flag).transpose()?);
        if !self.command.is_empty() {
            words.push("--".to_owned());
            words.extend(self.command.iter().cloned());
        }
        Ok(words)
    }
}

/// The flag that marks a job as started by a coding agent.
pub fn mark() -> String {
    format!("--env={MARK}={MARK_VALUE}")
}

/// A job or a file as one word.
///
/// # Errors
/// Fails when it would be read as a flag.
pub fn not_a_flag(word: &str) -> Result<String, Fault> {
    if word.starts_with('-') || word.is_empty() {
        return Err(Fault::new(ExitCode::USAGE, format!("`{word}` is not a name"))
            .meaning("nothing was changed")
            .hint("give the id or the name of a job, or the path of a file"));
    }
    Ok(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_behind_their_flags() {
        let input = JobInput {
            file: Some("lamp.toml".into()),
            command: vec!["python".into(), "--unproven".into()],
            name: Some("--unproven".into()),
            budget_usd: Some(5.0),
            ..JobInput::default()
        };
        let words = input.words(&["--detach".into(), "--budget=2".into()]).unwrap();
        assert_eq!(
            words,
            [
                "--name=--unproven",
                "--detach",
                "--budget=2",
                "lamp.toml",
                "--",
                "python",
                "--unproven"
            ]
        );
        let flag = JobInput { file: Some("--unproven".into()), ..JobInput::default() };
        assert!(flag.words(&[]).is_err());
    }
}
