//! An environment in a file: what a command of a job finds, the same in every attempt, whoever
//! drives the job.
//!
//! ```text
//!   lamp run (a job of this workstation) ── keep ──> <state>/local/environments/<job>   0600, once
//!   agent of a deep learning image ── login shell ──> <state>/environment              0600, each boot
//!                                                          └── read by the holder, for the command alone
//! ```
//! A file as `/proc/PID/environ` is: `NAME=value`, each with a zero byte behind it. It may hold the
//! user's secrets, so it stays on this machine and belongs to its user alone; nothing of it goes
//! into a record of the job. Not here: what a job adds.

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

/// What a service manager told a process about that process: a workload that believed it would
/// speak in its name.
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

/// What a shell says of itself, and what marks a process as one of a workload or a machine of ours.
const OF_ONE_PROCESS: [&str; 6] = ["_", "SHLVL", "PWD", "OLDPWD", "LAMP_WORKLOAD", "LAMP_INSTANCE"];

/// Whether a command inherits a variable of this name.
pub fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_none_or(|name| !MANAGERS_OWN.contains(&name) && !is_launchers(name))
}

/// The environment of this process, as far as a command inherits it.
pub fn inherited() -> Vec<Variable> {
    std::env::vars_os().filter(|(name, _)| is_inherited(name)).collect()
}

/// Keeps the environment of this process with these secrets, unless one is kept there already.
///
/// # Errors
/// As the file system says.
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

/// The value of a secret of a local job; `None`: the command inherits it, or it is not on this
/// workstation.
///
/// # Errors
/// As the file system says.
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

/// Writes an environment; readers see the old or the new, whole.
///
/// # Errors
/// As the file system says.
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

/// The kept environment, as far as a command inherits it.
///
/// # Errors
/// As the file system says.
pub fn read(file: &Path) -> io::Result<Vec<Variable>> {
    let found = parse(&fs::read(file)?);
    Ok(found.into_iter().filter(|(name, _)| is_inherited(name)).collect())
}

/// The form of `/proc/PID/environ`, and of `env -0`.
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
    fn an_environment_comes_back_as_it_was_and_is_its_users_alone() {
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
    fn a_secret_of_a_file_is_its_text_without_the_line_end() {
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
