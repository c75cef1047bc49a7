//! Files at the target of a download: what exists already, and whether it is the same.
//!
//! A downloaded file gets the time of its object, so that the next download need not read it. Not
//! here: whether to overwrite a file (`cli::control::outputs`).

#![expect(
    clippy::disallowed_methods,
    reason = "reads and dates the user's own copies, which is what this adapter is for"
)]

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::hashed_file;

/// A file of the user.
#[derive(Clone, Debug)]
pub struct KeptFile {
    path: PathBuf,
    pub bytes: u64,
    modified: Timestamp,
}

impl KeptFile {
    /// The file at this path; `None`: there is none.
    ///
    /// # Errors
    /// When something other than a file is there, or it cannot be read.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let found = match fs::metadata(path) {
            Ok(found) => found,
            // A broken link counts too: the user made it.
            Err(error)
                if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if !found.is_file() {
            return Err(io::Error::other("something that is not a file stands there"));
        }
        let modified = Timestamp::try_from(found.modified()?).map_err(io::Error::other)?;
        Ok(Some(KeptFile { path: path.to_owned(), bytes: found.len(), modified }))
    }

    /// Whether it has the object's time. Some file systems keep only microseconds.
    pub fn is_dated(&self, at: Timestamp) -> bool {
        self.modified.as_microsecond() == at.as_microsecond()
    }

    /// Its SHA-256, computed on another thread.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn sha256(&self) -> io::Result<String> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || sha256(&path)).await.map_err(io::Error::other)?
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    hashed_file::copy(&mut File::open(path)?, &mut io::sink(), |_| Ok(())).map(|(_, sha256)| sha256)
}

/// Sets the modification time of a file.
///
/// # Errors
/// When the file system does not allow it.
pub fn date(path: &Path, at: Timestamp) -> io::Result<()> {
    File::options().append(true).open(path)?.set_modified(at.into())
}

/// Free bytes at this folder, which need not exist yet; `None`: unknown.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|path| path.is_dir())?;
    let found = rustix::fs::statvfs(there).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Makes the folder and checks that it is writable.
///
/// # Errors
/// When it cannot be made or written to.
pub fn make_writable(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(io::Error::from)
}

/// A temporary file beside a file, for a comparison. It is removed on drop.
#[derive(Debug)]
pub struct TemporaryFile(PathBuf);

impl TemporaryFile {
    pub fn of(path: &Path) -> Self {
        let mut name = std::ffi::OsString::from(format!(".lamp-compared-{}-", std::process::id()));
        name.push(path.file_name().unwrap_or_default());
        TemporaryFile(path.with_file_name(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Usually it never existed, or was moved into place.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dated_copy_is_known_again_and_a_changed_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.pt");
        assert!(KeptFile::at(&path).expect("nothing is no error").is_none());
        fs::write(&path, b"abc").expect("written");
        let at: Timestamp = "2026-01-02T03:04:05.678901Z".parse().expect("a moment");
        assert!(!KeptFile::at(&path).expect("seen").expect("there").is_dated(at));
        date(&path, at).expect("dated");
        let kept = KeptFile::at(&path).expect("seen").expect("there");
        assert!(kept.is_dated(at) && kept.bytes == 3);
        assert_eq!(
            kept.sha256().await.expect("read"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(KeptFile::at(folder.path()).is_err(), "a folder is no file");
        assert!(free_bytes(&folder.path().join("not/there/yet")).is_some_and(|free| free > 0));
    }

    #[test]
    fn what_is_only_compared_does_not_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let beside = TemporaryFile::of(&folder.path().join("model.pt"));
        fs::write(beside.path(), b"x").expect("written");
        drop(beside);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
    }
}
