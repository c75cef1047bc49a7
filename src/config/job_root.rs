//! Where jobs are kept: the flag, else the environment, else the user configuration, else the state folder.

use std::path::{Path, PathBuf};

use super::{ConfigError, Environment, UserConfig};

/// The job root and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRoot {
    pub url: String,
    pub origin: &'static str,
}

/// # Errors
/// The text is neither a folder nor a `file://` or `s3://` URL, or nothing says where the home folder is.
pub fn job_root(flag: Option<&str>, environment: &Environment, user: &UserConfig) -> Result<JobRoot, ConfigError> {
    let said = [(flag, "flag"), (environment.job_root.as_deref(), "environment"), (user.job_root.as_deref(), "user config")];
    for (text, origin) in said {
        if let Some(text) = text {
            return Ok(JobRoot { url: to_url(text, environment)?, origin });
        }
    }
    let folder = environment.state_dir().ok_or(ConfigError::NoHome)?;
    Ok(JobRoot { url: file_url(&folder), origin: "default" })
}

fn to_url(text: &str, environment: &Environment) -> Result<String, ConfigError> {
    let wrong = |problem| ConfigError::JobRoot { text: text.to_owned(), problem };
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("s3://") {
        let bucket = rest.split('/').next().unwrap_or_default();
        return if bucket.is_empty() { Err(wrong("has no bucket")) } else { Ok(text.trim_end_matches('/').to_owned()) };
    }
    if let Some(path) = text.strip_prefix("file://") {
        return if path.starts_with('/') { Ok(format!("file://{}", trim(path))) } else { Err(wrong("is not an absolute path")) };
    }
    if text.contains("://") {
        return Err(wrong("is not a kind of place that is known"));
    }
    if text.is_empty() {
        return Err(wrong("is empty"));
    }
    let path = match (text.strip_prefix("~/"), &environment.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    };
    let folder = std::path::absolute(&path).map_err(|_| wrong("is not a path"))?;
    Ok(file_url(&folder))
}

fn file_url(folder: &Path) -> String {
    format!("file://{}", trim(&folder.to_string_lossy()))
}

fn trim(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(flag: Option<&str>) -> Result<JobRoot, ConfigError> {
        let environment = Environment { home: Some("/home/a".into()), job_root: Some("s3://bucket/jobs/".into()), ..Environment::default() };
        job_root(flag, &environment, &UserConfig::default())
    }

    #[test]
    fn the_flag_comes_before_the_environment() {
        assert_eq!(root(Some("/tmp/x/")).unwrap(), JobRoot { url: "file:///tmp/x".into(), origin: "flag" });
        assert_eq!(root(None).unwrap(), JobRoot { url: "s3://bucket/jobs".into(), origin: "environment" });
    }

    #[test]
    fn the_default_is_the_state_folder() {
        let environment = Environment { home: Some("/home/a".into()), ..Environment::default() };
        let choice = job_root(None, &environment, &UserConfig::default()).unwrap();
        assert_eq!(choice, JobRoot { url: "file:///home/a/.local/state/lamplighter".into(), origin: "default" });
        assert!(job_root(None, &Environment::default(), &UserConfig::default()).is_err());
    }

    #[test]
    fn places_that_are_none_are_refused() {
        for wrong in ["", "gs://bucket", "s3://", "file://relative"] {
            assert!(root(Some(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(root(Some("~/jobs")).unwrap().url, "file:///home/a/jobs");
    }
}
