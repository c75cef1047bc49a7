//! This process and its user: program file, folders, environment variables.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the adapter that reads the environment of the agent"
)]

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::adapters::host::files::LocalFiles;
use crate::ports::Files as _;

/// This program's file, to start it again in another role.
pub fn exe() -> io::Result<PathBuf> {
    std::env::current_exe()
}

pub fn current_folder() -> io::Result<PathBuf> {
    std::env::current_dir()
}

/// Folder for state that survives a restart: the user's (XDG); without a home, the machine's.
pub fn state_folder() -> PathBuf {
    folder("XDG_STATE_HOME", ".local/state", "/var/lib")
}

/// Folder for data that can be made again.
pub fn cache_folder() -> PathBuf {
    folder("XDG_CACHE_HOME", ".cache", "/var/cache")
}

fn folder(variable: &str, below_home: &str, without_home: &str) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named
        .or_else(|| home.map(|home| home.join(below_home)))
        .unwrap_or_else(|| without_home.into());
    base.join("lamplighter")
}

/// An environment variable, if it is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A random name, drawn at the first call and kept in a file, also across a power cut. The lease
/// holds this name, so another name means another machine.
pub fn nonce(file: &Path) -> io::Result<String> {
    if let Ok(kept) = std::fs::read_to_string(file)
        && !kept.trim().is_empty()
    {
        return Ok(kept.trim().to_owned());
    }
    let drawn = uuid::Uuid::new_v4().simple().to_string();
    private_folder_of(file)?;
    LocalFiles.replace_durable(file, drawn.as_bytes())?;
    Ok(drawn)
}

/// Makes the folder private, whatever the umask.
fn private_folder_of(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |folder| {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
    })
}

/// Six random bytes, for a job id.
pub fn random() -> [u8; 6] {
    let drawn = uuid::Uuid::new_v4();
    let bytes = drawn.as_bytes();
    [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]
}

/// Locks a file for as long as the handle exists; `None`: another process holds it.
pub fn lock(file: &Path) -> io::Result<Option<std::fs::File>> {
    private_folder_of(file)?;
    let handle = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(file)?;
    match rustix::fs::flock(&handle, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(handle)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes into a locked file which process holds it.
pub fn sign(mut held: &std::fs::File, what: &str) -> io::Result<()> {
    held.set_len(0)?;
    write!(held, "{} {what}", std::process::id())
}

/// Whether this is a container: there the kernel's counters are for the whole host.
pub fn is_container() -> bool {
    ["/run/systemd/container", "/run/.containerenv", "/.dockerenv"]
        .iter()
        .any(|mark| Path::new(mark).exists())
}

/// How long ago a file was written; `None`: it does not exist, or its time is in the future.
pub fn age(file: &Path) -> Option<std::time::Duration> {
    std::fs::metadata(file).and_then(|found| found.modified()).ok()?.elapsed().ok()
}

/// The folders directly below one, sorted by name; empty if it does not exist.
pub fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_is_kept_and_never_written_in_place() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (file, torn) = (folder.path().join("state/nonce"), folder.path().join("torn"));
        std::fs::create_dir(folder.path().join("state")).expect("a folder can be made");
        // A power cut may leave an empty file.
        std::fs::write(&file, "").expect("it can be written");
        std::fs::hard_link(&file, &torn).expect("it can be linked");
        let drawn = nonce(&file).expect("it can be drawn");
        assert_eq!(nonce(&file).expect("it can be read"), drawn);
        assert_eq!(
            std::fs::read_to_string(&torn).expect("it can be read"),
            "",
            "a new file has taken its place, whole"
        );
        assert_eq!(
            std::fs::read_dir(folder.path().join("state")).expect("listed").count(),
            1,
            "nothing else is left"
        );
    }
}
