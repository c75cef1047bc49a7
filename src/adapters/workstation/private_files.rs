//! Files and folders of their owner alone, whatever the umask. For what the programs keep; what a job writes is its own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder and those above it; one that is there stays as it is.
///
/// # Errors
/// As the file system says.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// To be opened for what it says further; a file that it makes is private.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// An empty file, in the place of one that is there.
///
/// # Errors
/// As the file system says.
pub fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// # Errors
/// As the file system says.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(bytes.as_ref())
}

/// Whether a folder that is not there yet could be made: the first part of its path that is missing is made, and removed again.
///
/// # Errors
/// As the file system says.
pub fn can_be_made(path: &Path) -> io::Result<()> {
    match path.ancestors().take_while(|path| std::fs::symlink_metadata(path).is_err()).last().filter(|path| !path.as_os_str().is_empty()) {
        None => Ok(()),
        Some(missing) => std::fs::create_dir(missing).and_then(|()| std::fs::remove_dir(missing)),
    }
}

/// The owner of a folder or a file: a login name, else a number.
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

/// When a file of ours was last written.
pub fn modified(path: &Path) -> Option<jiff::Timestamp> {
    std::fs::metadata(path).ok()?.modified().ok()?.try_into().ok()
}
