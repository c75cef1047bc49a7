//! The environment of a login shell on this machine, for the command of a job.
//!
//! Deep learning images set CUDA's paths and PyTorch in profiles, which a service does not read.
//! The agent runs the shell once per boot, as its own user, with a timeout, and saves the result in
//! a file of the state folder. PyTorch on AWS's images is in a Python environment that users
//! activate by hand, so the shell activates it too. Not here: variables that a job adds.

#![expect(clippy::disallowed_methods, reason = "reads files of the system, and bounds a call")]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::saved_environment::{self, Variable};

/// The timeout. A profile may ask a directory service or a slow disk. If this is longer, a profile
/// that hangs delays each boot.
const WITHIN: Duration = Duration::from_secs(20);

/// The name of the file in the state folder.
pub const FILE: &str = "environment";

/// Variables of all logins, one `NAME=value` per line (pam_env(8)).
const OF_THE_SYSTEM: &str = "/etc/environment";

/// AWS's PyTorch images have it in this place, and their greeting asks users to type this line.
const SWITCH_ON: &str =
    "if [ -r /opt/pytorch/bin/activate ]; then . /opt/pytorch/bin/activate; fi; env -0 > \"$1\"";

/// Variables of this shell alone, which the next shell sets itself.
const OF_THE_SHELL: [&str; 5] = ["_", "SHLVL", "PWD", "OLDPWD", "PS1"];

/// Saves the environment of a login shell in a file. Without the file, the command inherits the
/// agent's environment.
pub async fn keep(state: &Path) {
    let file = state.join(FILE);
    // The file may be from an earlier boot.
    let _ = fs::remove_file(&file);
    match ask(state, OF_THE_SYSTEM.as_ref(), SWITCH_ON).await.and_then(|variables| {
        saved_environment::write(&file, variables).map_err(|error| error.to_string())
    }) {
        Ok(()) => {}
        Err(error) => {
            tracing::warn!("the environment of a login shell is not known: {error}");
        }
    }
}

async fn ask(state: &Path, system: &Path, script: &str) -> Result<Vec<Variable>, String> {
    crate::adapters::workstation::private_files::folder(state)
        .map_err(|error| error.to_string())?;
    let answer = state.join(format!("{FILE}.answer"));
    crate::adapters::workstation::private_files::create(&answer)
        .map_err(|error| error.to_string())?;
    let mut shell = Command::new("bash");
    shell.args(["-lc", script, "lamp"]).arg(&answer).current_dir("/");
    shell
        .env_clear()
        .envs(saved_environment::inherited())
        .envs(read_system(system))
        .env("VIRTUAL_ENV_DISABLE_PROMPT", "1");
    for (name, value) in user() {
        shell.env(name, value);
    }
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let ended = timeout(WITHIN, shell.status()).await;
    let said = fs::read(&answer).unwrap_or_default();
    let _ = fs::remove_file(&answer);
    match ended {
        Err(_) => Err(format!("the login shell did not end within {} s", WITHIN.as_secs())),
        Ok(Err(error)) => Err(format!("cannot start bash: {error}")),
        Ok(Ok(_)) => {
            let own = |name: &OsStr| OF_THE_SHELL.iter().any(|own| name == *own);
            let found: Vec<Variable> = saved_environment::parse(&said)
                .into_iter()
                .filter(|(name, _)| !own(name))
                .collect();
            if found.iter().any(|(name, _)| name == "PATH") {
                Ok(found)
            } else {
                Err("the login shell said nothing".into())
            }
        }
    }
}

/// Other lines than `NAME=value` are ignored, as at a login.
fn read_system(file: &Path) -> Vec<Variable> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let variable = |line: &str| {
        let (name, value) = line.trim().trim_start_matches("export ").split_once('=')?;
        let value = value.trim();
        let bare = ['"', '\'']
            .iter()
            .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
            .unwrap_or(value);
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| (name.into(), bare.into()))
    };
    text.lines().filter(|line| !line.trim_start().starts_with('#')).filter_map(variable).collect()
}

/// A service may have no home; a login has one.
fn user() -> Vec<(&'static str, String)> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = text
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid.as_str()) && fields.len() > 6);
    let Some(fields) = line else { return Vec::new() };
    let home = std::env::var("HOME")
        .ok()
        .filter(|home| home.starts_with('/'))
        .unwrap_or_else(|| fields[5].to_owned());
    vec![
        ("HOME", home),
        ("USER", fields[0].to_owned()),
        ("LOGNAME", fields[0].to_owned()),
        ("SHELL", fields[6].to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_login_finds_is_kept_for_the_command() {
        let folder = tempfile::tempdir().expect("a folder");
        let system = folder.path().join("system");
        fs::write(
            &system,
            "# of all logins\nCUDA_HOME=\"/usr/local/cuda\"\nexport PLACE='a b'\nno variable\n",
        )
        .expect("written");
        let script = "echo words of a profile; export LD_LIBRARY_PATH=$CUDA_HOME/lib64 RANK=3; env -0 > \"$1\"";
        let found = ask(folder.path(), &system, script).await.expect("a shell");
        let value = |name: &str| {
            found
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.to_string_lossy().into_owned())
        };
        assert_eq!(value("LD_LIBRARY_PATH").as_deref(), Some("/usr/local/cuda/lib64"));
        assert_eq!((value("PLACE").as_deref(), value("SHLVL")), (Some("a b"), None));
        assert!(value("HOME").is_some() && value("PATH").is_some());
        let silent = ask(folder.path(), &system, "exit 3").await;
        assert_eq!(silent, Err("the login shell said nothing".into()));
        assert!(!folder.path().join("environment.answer").exists());
    }
}
