//! The user's configuration file, replaced atomically: a reader sees the old text or the new one.

#![expect(
    clippy::disallowed_methods,
    reason = "reads and writes the file that the user asked to have changed"
)]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The text; empty if there is no file.
///
/// # Errors
/// When it exists and cannot be read.
pub fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Replaces the file and keeps its permissions. A link stays; its target is replaced.
///
/// # Errors
/// When the folder cannot be made or written to.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mode = fs::metadata(&path).map_or(0o600, |found| found.permissions().mode() & 0o777);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    // A half-written file must not stay.
    write().inspect_err(|_| drop(fs::remove_file(&beside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_followed_and_rights_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().join("dotfiles.toml");
        fs::write(&real, "a = 1\n").expect("written");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("set");
        let link = folder.path().join("config.toml");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        replace(&link, "a = 2\n").expect("replaced");
        assert_eq!(read(&real).expect("read"), "a = 2\n");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::metadata(&real).expect("there").permissions().mode() & 0o777, 0o640);
        let new = folder.path().join("new/config.toml");
        assert_eq!(read(&new).expect("none is empty"), "");
        replace(&new, "b = 1\n").expect("made");
        assert_eq!(fs::metadata(&new).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(folder.path().join("new")).expect("listed").count(),
            1,
            "nothing is left beside it"
        );
    }
}
