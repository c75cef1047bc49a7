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

/// When a file of ours was last written.
pub fn modified(path: &Path) -> Option<jiff::Timestamp> {
    std::fs::metadata(path).ok()?.modified().ok()?.try_into().ok()
}
