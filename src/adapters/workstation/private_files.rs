//! Files and folders that only their owner can read, whatever the umask. They are for our programs;
//! a job's files are its own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder and its parents. An existing folder keeps its mode.
///
/// # Errors
/// When the file system refuses.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Options for opening; a new file is private.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes an empty file, or empties an existing one.
///
/// # Errors
/// When the file system refuses.
pub fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// # Errors
/// When the file system refuses.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(bytes.as_ref())
}

/// Whether a missing folder could be made: makes its first missing parent, and removes it again.
///
/// # Errors
/// When the file system refuses.
pub fn can_be_made(path: &Path) -> io::Result<()> {
    match path
        .ancestors()
        .take_while(|path| std::fs::symlink_metadata(path).is_err())
        .last()
        .filter(|path| !path.as_os_str().is_empty())
    {
        None => Ok(()),
        Some(missing) => std::fs::create_dir(missing).and_then(|()| std::fs::remove_dir(missing)),
    }
}

/// The owner of a folder or file: a login name, else a number.
#[expect(clippy::disallowed_methods, reason = "reads the names of logins")]
pub fn owner(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let uid = std::fs::metadata(path).ok()?.uid();
    let logins = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = logins.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    });
    Some(named.unwrap_or_else(|| format!("user {uid}")))
}

/// When a file was last written.
pub fn modified(path: &Path) -> Option<jiff::Timestamp> {
    std::fs::metadata(path).ok()?.modified().ok()?.try_into().ok()
}
