//! Where jobs are kept: the flag, else the environment, else the user configuration, else the state
//! folder.

use std::path::{Path, PathBuf};

use super::{ConfigError, Environment, UserConfig};

/// The job root and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRoot {
    pub url: String,
    pub origin: &'static str,
}

const USER_CONFIG: &str = "user config";

/// # Errors
/// The text is neither a folder nor a `file://` or `s3://` URL, the configuration names a relative
/// folder, or nothing says where the home folder is.
pub fn job_root(
    flag: Option<&str>,
    environment: &Environment,
    user: &UserConfig,
) -> Result<JobRoot, ConfigError> {
    let said = [
        (flag, "flag"),
        (environment.job_root.as_deref(), "environment"),
        (user.job_root.as_deref(), USER_CONFIG),
    ];
    for (text, origin) in said {
        if let Some(text) = text {
            // A flag and a variable are of the folder where they were typed; a file for all folders
            // is of none.
            if origin == USER_CONFIG && is_relative(text) {
                return Err(ConfigError::RelativeJobRoot { text: text.to_owned() });
            }
            return Ok(JobRoot { url: to_url(text, environment)?, origin });
        }
    }
    let folder = environment.state_dir().ok_or(ConfigError::NoHome)?;
    Ok(JobRoot { url: file_url(&folder), origin: "default" })
}

/// Whether it is a folder relative to the current one. Other texts and near URLs get their own
/// errors.
fn is_relative(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && !text.contains("://")
        && nearly_url(text).is_none()
        && !text.starts_with('/')
        && !text.starts_with("~/")
}

fn to_url(text: &str, environment: &Environment) -> Result<String, ConfigError> {
    let wrong = |problem| ConfigError::JobRoot { text: text.to_owned(), problem, meant: None };
    let text = text.trim();
    let meant = nearly_url(text);
    if let Some(scheme) = scheme_before_a_secret(meant.as_deref().unwrap_or(text)) {
        let problem =
            "has a password, a key or a signature in it, which would be kept with every job";
        return Err(ConfigError::JobRoot { text: format!("{scheme}://***"), problem, meant: None });
    }
    if let Some(rest) = text.strip_prefix("s3://") {
        let bucket = rest.split('/').next().unwrap_or_default();
        return if bucket.is_empty() {
            Err(wrong("has no bucket"))
        } else {
            Ok(text.trim_end_matches('/').to_owned())
        };
    }
    if let Some(path) = text.strip_prefix("file://") {
        return if path.starts_with('/') {
            Ok(format!("file://{}", trim(path)))
        } else {
            Err(wrong("is not an absolute path"))
        };
    }
    if let Some(meant) = meant {
        return Err(ConfigError::JobRoot {
            text: text.to_owned(),
            problem: "is nearly a URL",
            meant: Some(meant),
        });
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

/// The scheme of a URL with a part before `@` or after `?`. That part may be a secret: the URL is
/// refused and not shown.
fn scheme_before_a_secret(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://").filter(|(scheme, _)| *scheme != "file")?;
    let host = rest.split('/').next().unwrap_or_default();
    (host.contains('@') || rest.contains('?')).then_some(scheme)
}

/// The URL that was meant by what is none: `s3//x`, `s3:/x`, `S3://x`, `file:/x`. Without this it
/// would be a folder here.
fn nearly_url(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    ["s3", "file"].into_iter().find_map(|scheme| {
        let rest = lower.strip_prefix(scheme)?;
        let slashes = rest.strip_prefix(':').unwrap_or(rest);
        let path = slashes.trim_start_matches('/');
        let is_near = rest.starts_with(':') || slashes.starts_with("//");
        // The path as it was typed: buckets and folders know case.
        let path = &text[text.len() - path.len()..];
        let root = if scheme == "file" { "/" } else { "" };
        (is_near && !path.is_empty()).then(|| format!("{scheme}://{root}{path}"))
    })
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
        let environment = Environment {
            home: Some("/home/a".into()),
            job_root: Some("s3://bucket/jobs/".into()),
            ..Environment::default()
        };
        job_root(flag, &environment, &UserConfig::default())
    }

    #[test]
    fn flag_comes_before_the_environment() {
        assert_eq!(
            root(Some("/tmp/x/")).unwrap(),
            JobRoot { url: "file:///tmp/x".into(), origin: "flag" }
        );
        assert_eq!(
            root(None).unwrap(),
            JobRoot { url: "s3://bucket/jobs".into(), origin: "environment" }
        );
    }

    #[test]
    fn default_is_the_state_folder() {
        let environment = Environment { home: Some("/home/a".into()), ..Environment::default() };
        let choice = job_root(None, &environment, &UserConfig::default()).unwrap();
        assert_eq!(
            choice,
            JobRoot { url: "file:///home/a/.local/state/lamplighter".into(), origin: "default" }
        );
        assert!(job_root(None, &Environment::default(), &UserConfig::default()).is_err());
    }

    /// From another folder, lamp would not see, limit or drive these jobs.
    #[test]
    fn relative_job_root_is_refused_in_the_config_but_not_if_typed() {
        let environment = Environment { home: Some("/home/a".into()), ..Environment::default() };
        let said = |text: &str| {
            job_root(
                None,
                &environment,
                &UserConfig { job_root: Some(text.into()), ..UserConfig::default() },
            )
        };
        for relative in ["jobs", "./jobs", "../x", "~", " jobs "] {
            let refused = said(relative).unwrap_err();
            assert!(
                matches!(refused, ConfigError::RelativeJobRoot { .. }) && refused.hint().is_some(),
                "{relative}: {refused}"
            );
        }
        for (whole, url) in [
            ("/srv/jobs", "file:///srv/jobs"),
            ("~/jobs", "file:///home/a/jobs"),
            ("s3://b/x", "s3://b/x"),
        ] {
            assert_eq!(said(whole).unwrap().url, url);
        }
        assert!(matches!(said("s3:/b").unwrap_err(), ConfigError::JobRoot { meant: Some(_), .. }));
        assert!(job_root(Some("jobs"), &environment, &UserConfig::default()).is_ok());
    }

    #[test]
    fn password_in_it_is_refused_and_not_shown() {
        for text in [
            "s3://key:hunter2@bucket/jobs",
            "https://me:hunter2@host/x",
            "s3:/key:hunter2@bucket",
            "s3://b/x?X-Amz-Signature=hunter2",
        ] {
            let refused = root(Some(text)).unwrap_err();
            let said = format!("{refused} {:?}", refused.hint());
            assert!(
                said.contains("://***` cannot be the job root: it has a password")
                    && !said.contains("hunter2"),
                "{said}"
            );
        }
        assert_eq!(root(Some("s3://bucket/jobs@home")).unwrap().url, "s3://bucket/jobs@home");
    }

    #[test]
    fn places_that_are_none_are_refused() {
        for wrong in ["", "gs://bucket", "s3://", "file://relative"] {
            assert!(root(Some(wrong)).is_err(), "{wrong}");
        }
        for (wrong, meant) in [
            ("s3//x", "s3://x"),
            ("s3:/Bucket/x", "s3://Bucket/x"),
            ("s3:x", "s3://x"),
            ("S3://bucket", "s3://bucket"),
            ("file:/x/y", "file:///x/y"),
            ("FILE:///x", "file:///x"),
            ("file//x", "file:///x"),
        ] {
            let refused = root(Some(wrong)).unwrap_err();
            assert!(
                refused
                    .hint()
                    .is_some_and(|hint| hint.starts_with(&format!("did you mean `{meant}`?"))),
                "{wrong}: {:?}",
                refused.hint()
            );
        }
        for folder in ["s3", "s3/x", "./s3//x", "files", "s3-jobs"] {
            assert!(root(Some(folder)).is_ok(), "{folder}");
        }
        assert_eq!(root(Some("~/jobs")).unwrap().url, "file:///home/a/jobs");
    }
}
