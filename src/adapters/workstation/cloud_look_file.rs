//! The last look at the clouds, kept in the state folder, so that each program can show it.

#![expect(clippy::disallowed_methods, reason = "a file of our own")]

use std::io;
use std::path::{Path, PathBuf};

use super::driver_process::hash;
use super::private_files;

/// A look with this many bytes tells of thousands of machines.
const BYTES_MAX: u64 = 4 << 20;

fn file(state: &Path, job_root: &str) -> PathBuf {
    state.join(format!("cloud-look-{}.json", hash(job_root)))
}

/// `None`: there was no look yet, or it cannot be read.
pub fn read(state: &Path, job_root: &str) -> Option<Vec<u8>> {
    let file = file(state, job_root);
    let is_small = std::fs::metadata(&file).is_ok_and(|meta| meta.len() <= BYTES_MAX);
    is_small.then(|| std::fs::read(file).ok()).flatten()
}

/// # Errors
/// When the state folder cannot be written.
pub fn write(state: &Path, job_root: &str, look: &[u8]) -> io::Result<()> {
    private_files::folder(state)?;
    let file = file(state, job_root);
    // A reader sees the old look or the new one.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    private_files::write(&new, look)?;
    std::fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_of_one_job_root_replaces_only_its_own() {
        let state = tempfile::tempdir().expect("a folder");
        let state = state.path().join("lamplighter");
        assert_eq!(read(&state, "file:///a"), None);
        write(&state, "file:///a", b"one").expect("written");
        write(&state, "file:///a", b"two").expect("written");
        assert_eq!(read(&state, "file:///a").as_deref(), Some(&b"two"[..]));
        assert_eq!(read(&state, "file:///b"), None);
    }
}
