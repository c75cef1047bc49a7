//! Files of the user's cache folder that only grow. Each can be deleted at any time.
//!
//! Not here: what is in them.

#![expect(clippy::disallowed_methods, reason = "reads and writes the user's cache folder")]

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::{private_files, process_env};

/// A reader parses it all at its start. A larger file would take seconds, and is begun anew.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The content of a file. Empty: there is none, or it cannot be read.
pub fn read_cached(name: &str) -> Vec<u8> {
    read(&process_env::cache_folder(), name)
}

/// Adds bytes in one write, so that two programs may do so at once.
///
/// # Errors
/// When the file system refuses.
pub fn append_cached(name: &str, bytes: &[u8]) -> io::Result<()> {
    append(&process_env::cache_folder(), name, bytes)
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(folder.join(name))
        .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => bytes,
        Err(_) => Vec::new(),
    }
}

fn append(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    private_files::folder(folder)?;
    let path = folder.join(name);
    let is_full = std::fs::metadata(&path)
        .is_ok_and(|found| found.len().saturating_add(bytes.len() as u64) > BYTES_MAX);
    if is_full {
        std::fs::remove_file(&path)?;
    }
    private_files::options().append(true).create(true).open(&path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_grows_and_is_begun_anew_when_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path(), "a"), b"");
        append(folder.path(), "a", b"one").unwrap();
        append(folder.path(), "a", b"two").unwrap();
        assert_eq!(read(folder.path(), "a"), b"onetwo");
        let file = std::fs::File::options().write(true).open(folder.path().join("a")).unwrap();
        file.set_len(BYTES_MAX).unwrap();
        append(folder.path(), "a", b"three").unwrap();
        assert_eq!(read(folder.path(), "a"), b"three");
    }
}
