//! The environment, read once at the start and handed on as a value. Nothing else in the
//! workstation's program reads it.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `LAMP_JOB_ROOT` | where jobs are kept |
//! | `LAMP_CONFIG` | the user configuration instead of `~/.config/lamplighter/config.toml` |
//! | `LAMP_OWNER` | the owner of the machines, instead of `owner` of the configuration |
//! | `LAMP_SWEEPER_BINARY` | the program of the sweeper in the cloud, instead of this one |
//! | `LAMP_AGENT_BINARY` | the program for machines, instead of `lamp-agent-<arch>` beside `lamp` |
//! | `XDG_CONFIG_HOME`, `XDG_STATE_HOME`, `XDG_CACHE_HOME`, `HOME` | where those are by default |
//! | `NO_COLOR` | no colour |
//! | `COLUMNS` | the width of text that no terminal shows |
//! | `LAMP_WORKLOAD` | set by the agent: a workload of the job `LAMP_JOB` started this program |
//! | `AWS_LAMBDA_RUNTIME_API` | set by AWS Lambda: without arguments this program is the sweeper |

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variables at the start. Empty ones count as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub job_root: Option<String>,
    pub config: Option<PathBuf>,
    pub owner: Option<String>,
    pub agent_binary: Option<PathBuf>,
    pub sweeper_binary: Option<PathBuf>,
    pub config_home: Option<PathBuf>,
    pub state_home: Option<PathBuf>,
    pub cache_home: Option<PathBuf>,
    pub home: Option<PathBuf>,
    pub user: Option<String>,
    pub no_color: bool,
    pub columns: Option<usize>,
    pub path: Option<OsString>,
    /// The folder of the active Python environment: `VIRTUAL_ENV`, else `CONDA_PREFIX` unless it is
    /// conda's `base`.
    pub python: Option<PathBuf>,
    pub lambda_api: Option<String>,
    /// The names of all variables that are set and not empty, for the secrets of jobs. No value is
    /// kept here.
    pub names: BTreeSet<String>,
    /// The workload within which this program runs, in words.
    pub workload: Option<String>,
}

impl Environment {
    /// A path of the user's, with `~` for their home. A relative one is taken as it is.
    pub fn at_home(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), &self.home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(path),
        }
    }

    pub fn read() -> Self {
        let raw = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| raw(name).and_then(|value| value.into_string().ok());
        // The XDG specification: a relative path is invalid and must be ignored.
        let folder = |name: &str| raw(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Environment {
            job_root: text("LAMP_JOB_ROOT"),
            config: raw("LAMP_CONFIG").map(PathBuf::from),
            owner: text("LAMP_OWNER"),
            agent_binary: raw("LAMP_AGENT_BINARY").map(PathBuf::from),
            sweeper_binary: raw("LAMP_SWEEPER_BINARY").map(PathBuf::from),
            config_home: folder("XDG_CONFIG_HOME"),
            state_home: folder("XDG_STATE_HOME"),
            cache_home: folder("XDG_CACHE_HOME"),
            home: folder("HOME"),
            user: text("USER").or_else(|| text("LOGNAME")).or_else(login_of_this_process),
            names: std::env::vars_os()
                .filter(|(_, value)| !value.is_empty())
                .filter_map(|(name, _)| name.into_string().ok())
                .collect(),
            no_color: raw("NO_COLOR").is_some(),
            columns: text("COLUMNS").and_then(|columns| columns.parse().ok()),
            path: raw("PATH"),
            python: active_python(raw),
            lambda_api: text("AWS_LAMBDA_RUNTIME_API"),
            workload: raw("LAMP_WORKLOAD").map(|_| {
                text("LAMP_JOB")
                    .map_or("a workload".to_owned(), |job| format!("the workload of job `{job}`"))
            }),
        }
    }

    /// # Errors
    /// The current folder was removed or may not be read.
    pub fn current_dir(&self) -> std::io::Result<PathBuf> {
        std::env::current_dir()
    }

    pub fn user_config_path(&self) -> Option<PathBuf> {
        let below = |home: &Path| home.join("lamplighter").join("config.toml");
        self.config
            .clone()
            .or_else(|| self.config_home.as_deref().map(below))
            .or_else(|| self.home.as_ref().map(|home| below(&home.join(".config"))))
    }

    /// `~/.local/state/lamplighter`, or where XDG says.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".local").join("state"));
        self.state_home.clone().or_else(home).map(|state| state.join("lamplighter"))
    }

    /// `~/.cache/lamplighter`, or where XDG says.
    pub fn cache_dir(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".cache"));
        self.cache_home.clone().or_else(home).map(|cache| cache.join("lamplighter"))
    }

    /// Whether a program of this name would be found.
    pub fn finds_program(&self, name: &str) -> bool {
        self.program(name).is_some()
    }

    /// Where a program of this name is, as `execvp` looks.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let runs = |path: &Path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        let path = self.path.clone().unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| runs(path))
    }
}

/// A service that was started without `USER` is still of the same user, and must have the same
/// owner: what another owner launched is not its to drive.
fn login_of_this_process() -> Option<String> {
    login_in(&std::fs::read_to_string("/etc/passwd").ok()?, rustix::process::getuid().as_raw())
}

fn login_in(passwd: &str, uid: u32) -> Option<String> {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    };
    passwd.lines().find_map(name)
}

/// The Python environment that a person has activated. Conda activates `base` in every shell,
/// without being asked.
fn active_python(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let conda = || {
        variable("CONDA_PREFIX")
            .filter(|_| variable("CONDA_DEFAULT_ENV").is_none_or(|name| name != "base"))
    };
    variable("VIRTUAL_ENV").or_else(conda).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdg_homes_come_before_the_home_folder() {
        let mut environment =
            Environment { home: Some("/home/a".into()), ..Environment::default() };
        assert_eq!(
            environment.user_config_path(),
            Some("/home/a/.config/lamplighter/config.toml".into())
        );
        assert_eq!(environment.state_dir(), Some("/home/a/.local/state/lamplighter".into()));
        environment.config_home = Some("/c".into());
        environment.state_home = Some("/s".into());
        assert_eq!(environment.user_config_path(), Some("/c/lamplighter/config.toml".into()));
        assert_eq!(environment.state_dir(), Some("/s/lamplighter".into()));
        environment.config = Some("/x.toml".into());
        assert_eq!(environment.user_config_path(), Some("/x.toml".into()));
    }

    #[test]
    fn active_python_is_one_that_a_person_chose() {
        let found = |names: &[(&str, &str)]| {
            active_python(|name| {
                names
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(found(&[("CONDA_PREFIX", "/opt/conda"), ("CONDA_DEFAULT_ENV", "base")]), None);
        assert_eq!(
            found(&[("CONDA_PREFIX", "/opt/conda/envs/x"), ("CONDA_DEFAULT_ENV", "x")]),
            Some("/opt/conda/envs/x".into())
        );
        assert_eq!(
            found(&[
                ("VIRTUAL_ENV", "/v"),
                ("CONDA_PREFIX", "/opt/conda"),
                ("CONDA_DEFAULT_ENV", "base")
            ]),
            Some("/v".into())
        );
    }

    #[test]
    fn process_without_user_has_the_login_of_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000:Alice,,,:/home/alice:/bin/bash\nbroken\n";
        assert_eq!(login_in(passwd, 1000).as_deref(), Some("alice"));
        assert_eq!(login_in(passwd, 0).as_deref(), Some("root"));
        assert_eq!(login_in(passwd, 7), None);
    }

    #[test]
    fn programs_are_looked_up_as_execvp_does() {
        let environment =
            Environment { path: Some("/usr/bin:/bin".into()), ..Environment::default() };
        assert!(environment.finds_program("sh"));
        assert!(!environment.finds_program("no-such-program-anywhere"));
    }
}
