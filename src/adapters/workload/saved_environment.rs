//! An environment in a file, which the command of a job inherits in every attempt.
//!
//! For a local job, `lamp run` saves it once in `<state>/local/environments/<job>`. On a deep
//! learning image, the agent saves the one of a login shell in `<state>/environment` at each boot.
//! Both have the mode 0600. The holder reads the file for the command alone.
//!
//! The format follows `/proc/PID/environ`: `NAME=value` with a zero byte behind each. It may
//! hold the user's secrets, so it stays on this machine, belongs to its user alone, and is never
//! part of a job's records. Not here: variables that a job adds.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the environment and a file of the state folder"
)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use crate::adapters::workstation::private_files;
use crate::job::{SECRET_BYTES_MAX, SecretSource, is_launchers};

/// A name and its value.
pub type Variable = (OsString, OsString);

/// Variables that a service manager sets for one process: a workload could speak for the agent with
/// them.
const MANAGERS_OWN: [&str; 9] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
];

/// Variables that a shell sets for itself, or that mark a process of a workload or a local machine.
const OF_ONE_PROCESS: [&str; 6] = ["_", "SHLVL", "PWD", "OLDPWD", "LAMP_WORKLOAD", "LAMP_INSTANCE"];

/// Whether a command inherits a variable of this name.
pub fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_none_or(|name| !MANAGERS_OWN.contains(&name) && !is_launchers(name))
}

/// The part of this process's environment that a command inherits.
pub fn inherited() -> Vec<Variable> {
    std::env::vars_os().filter(|(name, _)| is_inherited(name)).collect()
}

/// Saves the environment of this process with these secrets, unless the file exists.
///
/// # Errors
/// If the file system refuses.
pub fn keep(file: &Path, secrets: &[Variable]) -> io::Result<()> {
    if fs::exists(file)? {
        return Ok(());
    }
    let is_own = |name: &OsString| {
        OF_ONE_PROCESS.iter().any(|own| name == own)
            || secrets.iter().any(|(secret, _)| secret == name)
    };
    let variables = inherited().into_iter().filter(|(name, _)| !is_own(name));
    write(file, variables.chain(secrets.iter().cloned()))
}

/// The value of a secret of a local job. `None`: the command inherits it, or this workstation does
/// not have it.
///
/// # Errors
/// If the file system refuses.
pub fn secret(name: &str, source: &SecretSource) -> io::Result<Option<OsString>> {
    match source {
        SecretSource::Env(Some(other)) if other != name => Ok(std::env::var_os(other)),
        SecretSource::File(path) => {
            let below_home = path
                .strip_prefix("~/")
                .and_then(|below| Some(Path::new(&std::env::var_os("HOME")?).join(below)));
            let file = fs::File::open(below_home.unwrap_or_else(|| path.into()))?;
            if !file.metadata()?.is_file() {
                return Err(ErrorKind::InvalidInput.into());
            }
            let mut bytes = Vec::new();
            file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
                bytes.pop();
            }
            if bytes.is_empty() || bytes.contains(&0) || bytes.len() as u64 > SECRET_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            Ok(Some(OsString::from_vec(bytes)))
        }
        _ => Ok(None),
    }
}

/// Writes an environment; a reader sees the complete old or new one.
///
/// # Errors
/// If the file system refuses.
pub fn write(file: &Path, variables: impl IntoIterator<Item = Variable>) -> io::Result<()> {
    let folder = file.parent().ok_or(ErrorKind::InvalidInput)?;
    private_files::folder(folder)?;
    let staged = folder.join(format!(
        ".{}-{}",
        std::process::id(),
        file.file_name().unwrap_or_default().to_string_lossy()
    ));
    let mut bytes = Vec::new();
    for (name, value) in variables {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    let mut written = private_files::create(&staged)?;
    written.write_all(&bytes)?;
    written.sync_all()?;
    fs::rename(&staged, file)
}

/// The part of the saved environment that a command inherits.
///
/// # Errors
/// If the file system refuses.
pub fn read(file: &Path) -> io::Result<Vec<Variable>> {
    let found = parse(&fs::read(file)?);
    Ok(found.into_iter().filter(|(name, _)| is_inherited(name)).collect())
}

/// Parses the format of `/proc/PID/environ` and of `env -0`.
pub fn parse(bytes: &[u8]) -> Vec<Variable> {
    let entries = bytes.split(|byte| *byte == 0);
    let variable = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        Some((
            OsString::from_vec(entry[..at].to_vec()),
            OsString::from_vec(entry[at + 1..].to_vec()),
        ))
    };
    entries.filter_map(variable).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn environment_comes_back_as_it_was_and_is_its_users_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("environments/digits-222222");
        let variables = [("GREETING", "two\nlines=and more"), ("EMPTY", ""), ("RANK", "3")]
            .map(|(name, value)| (name.into(), value.into()));
        write(&file, variables).expect("written");
        let found = read(&file).expect("readable");
        let expected: [Variable; 2] =
            [("GREETING".into(), "two\nlines=and more".into()), ("EMPTY".into(), "".into())];
        assert_eq!(found, expected, "a launcher's names are not inherited");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        keep(&file, &[]).expect("it is there");
        assert_eq!(read(&file).expect("readable"), expected, "the first one stays");
        assert_eq!(parse(b"=x\0no sign\0A=1"), [("A".into(), "1".into())]);
    }
    #[test]
    fn secret_of_a_file_is_its_text_without_the_line_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let source = SecretSource::File(path.display().to_string());
        fs::write(&path, "hf_abc\r\n").expect("written");
        assert_eq!(secret("HF_TOKEN", &source).expect("readable"), Some("hf_abc".into()));
        for wrong in [&b"\n"[..], b"a\0b", &[b'x'; 70_000]] {
            fs::write(&path, wrong).expect("written");
            assert!(secret("HF_TOKEN", &source).is_err(), "{} bytes", wrong.len());
        }
        assert!(
            secret("HF_TOKEN", &SecretSource::File(folder.path().display().to_string())).is_err(),
            "a folder"
        );
        assert_eq!(secret("HF_TOKEN", &SecretSource::Env(None)).expect("inherited"), None);
    }
}
