//! Where a job's secret is read. Records hold its name and its place, never its value.
//!
//! ```text
//!   env, env:NAME, file:PATH ─> on this workstation, when the job is submitted (cloud = "local")
//!   ssm:, secretsmanager:    ─> on the machine, by its own role, before each start (cloud = "aws")
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The place of one secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum SecretSource {
    /// An environment variable of `lamp`; `None`: the variable of the same name.
    Env(Option<String>),
    /// A user's file, without the newlines at its end.
    File(String),
    /// A parameter of Systems Manager.
    Ssm(String),
    /// A secret of Secrets Manager; `key`: the field of a JSON secret.
    SecretsManager { name: String, key: Option<String> },
}

/// A token has some hundred bytes, a service account some thousand. A larger file does not fit a
/// variable.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// The forms of a place, for people.
pub const SECRET_WORDS: &str =
    "\"env\", \"env:NAME\", \"file:PATH\", \"ssm:NAME\" or \"secretsmanager:NAME\"";

impl SecretSource {
    /// Whether a machine at AWS reads it by its role.
    pub fn is_at_aws(&self) -> bool {
        matches!(self, SecretSource::Ssm(_) | SecretSource::SecretsManager { .. })
    }

    /// The resource that a role must be allowed to read, for every region and account: only the
    /// name is known.
    pub fn arn(&self, partition: &str) -> Option<(&'static str, String)> {
        match self {
            SecretSource::Ssm(name) if name.starts_with("arn:") => {
                Some(("ssm:GetParameter", name.clone()))
            }
            SecretSource::Ssm(name) => Some((
                "ssm:GetParameter",
                format!("arn:{partition}:ssm:*:*:parameter/{}", name.trim_start_matches('/')),
            )),
            SecretSource::SecretsManager { name, .. } if name.starts_with("arn:") => {
                Some(("secretsmanager:GetSecretValue", name.clone()))
            }
            // Secrets Manager adds a hyphen and six letters to each name.
            SecretSource::SecretsManager { name, .. } => Some((
                "secretsmanager:GetSecretValue",
                format!("arn:{partition}:secretsmanager:*:*:secret:{name}-??????"),
            )),
            SecretSource::Env(_) | SecretSource::File(_) => None,
        }
    }

    /// Without the field: a role reads the whole secret.
    #[must_use]
    pub fn whole(&self) -> SecretSource {
        match self {
            SecretSource::SecretsManager { name, .. } => {
                SecretSource::SecretsManager { name: name.clone(), key: None }
            }
            other => other.clone(),
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env(None) => f.write_str("env"),
            SecretSource::Env(Some(name)) => write!(f, "env:{name}"),
            SecretSource::File(path) => write!(f, "file:{path}"),
            SecretSource::Ssm(name) => write!(f, "ssm:{name}"),
            SecretSource::SecretsManager { name, key: None } => write!(f, "secretsmanager:{name}"),
            SecretSource::SecretsManager { name, key: Some(key) } => {
                write!(f, "secretsmanager:{name}#{key}")
            }
        }
    }
}

impl FromStr for SecretSource {
    type Err = String;

    /// The error does not repeat the text: the user may have written the secret itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 2048
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"/_+=.@-:".contains(&byte))
        };
        let wrong = || {
            Err(format!(
                "is not where a secret is read: {SECRET_WORDS}; the secret itself does not belong in the job file"
            ))
        };
        match text.split_once(':') {
            None if text == "env" => Ok(SecretSource::Env(None)),
            Some(("env", name)) if is_variable(name) => {
                Ok(SecretSource::Env(Some(name.to_owned())))
            }
            Some(("file", path)) if !path.is_empty() && !path.contains(char::is_control) => {
                Ok(SecretSource::File(path.to_owned()))
            }
            Some(("ssm", name)) if is_name(name) => Ok(SecretSource::Ssm(name.to_owned())),
            Some(("secretsmanager", rest)) => {
                let (name, key) = rest
                    .split_once('#')
                    .map_or((rest, None), |(name, key)| (name, Some(key.to_owned())));
                if is_name(name)
                    && key
                        .as_ref()
                        .is_none_or(|key| !key.is_empty() && !key.contains(char::is_control))
                {
                    Ok(SecretSource::SecretsManager { name: name.to_owned(), key })
                } else {
                    wrong()
                }
            }
            _ => wrong(),
        }
    }
}

impl From<SecretSource> for String {
    fn from(source: SecretSource) -> String {
        source.to_string()
    }
}

impl TryFrom<String> for SecretSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Whether this can be the name of a shell variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.starts_with(|letter: char| letter.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_secrets_read_as_they_are_written() {
        for text in [
            "env",
            "env:MY_TOKEN",
            "file:~/.cache/huggingface/token",
            "ssm:/secrets/HF_TOKEN",
            "secretsmanager:wandb",
            "secretsmanager:wandb#key",
        ] {
            assert_eq!(text.parse::<SecretSource>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "hf_abcdefghijklmnopqrstuvwxyz",
            "env:",
            "env:1x",
            "file:",
            "ssm:",
            "ssm:a b",
            "ssm:*",
            "secretsmanager:",
            "secretsmanager:a#",
            "vault:x",
        ] {
            let error = wrong.parse::<SecretSource>().unwrap_err();
            assert!(
                error.contains("ssm:NAME") && !error.contains("hf_abc"),
                "the text may be a secret: {error}"
            );
        }
    }

    #[test]
    fn role_reads_the_named_secrets_alone() {
        let arn = |text: &str| text.parse::<SecretSource>().unwrap().arn("aws");
        assert_eq!(
            arn("ssm:/secrets/HF"),
            Some(("ssm:GetParameter", "arn:aws:ssm:*:*:parameter/secrets/HF".into()))
        );
        assert_eq!(
            arn("ssm:HF"),
            Some(("ssm:GetParameter", "arn:aws:ssm:*:*:parameter/HF".into()))
        );
        assert_eq!(
            arn("secretsmanager:wandb#key"),
            Some((
                "secretsmanager:GetSecretValue",
                "arn:aws:secretsmanager:*:*:secret:wandb-??????".into()
            ))
        );
        assert_eq!(arn("env"), None);
    }
}
