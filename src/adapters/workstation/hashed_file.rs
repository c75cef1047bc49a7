//! Files and their SHA-256, in one pass and in bounded memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::adapters::store::noatime::open_unnoted;
use crate::adapters::workload::foreign_links::refuse_foreign_links;

/// Buffer for large files. Smaller costs system calls, larger only memory.
const CHUNK_BYTES: usize = 256 * 1024;

/// A local file that this process cannot read, or a device or pipe in its place. The store is not
/// the cause.
#[derive(Debug, thiserror::Error)]
#[error("the file cannot be read")]
pub(crate) struct Unreadable(#[source] io::Error);

impl Unreadable {
    #[cfg(test)]
    pub fn of(error: io::Error) -> Self {
        Unreadable(error)
    }

    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Unreadable>())
    }
}

/// Opens a file for upload. It refuses pipes and devices: reading one may never end.
///
/// # Errors
/// When it cannot be read; with [`Unreadable`] inside if a retry cannot help.
pub(crate) fn open_source(path: &Path) -> io::Result<File> {
    let denied = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied => {
            io::Error::new(ErrorKind::PermissionDenied, Unreadable(error))
        }
        _ => error,
    };
    refuse_foreign_links(path).map_err(denied)?;
    let file = open_unnoted(path, libc::O_NONBLOCK).map_err(denied)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        ErrorKind::InvalidInput,
        Unreadable(io::Error::other("it is not a regular file")),
    ))
}

/// Copies all of a source; returns its size and SHA-256. `after` runs after each chunk and can stop
/// the copy.
///
/// # Errors
/// When the source cannot be read, the target cannot be written, or `after` fails.
pub(crate) fn copy(
    source: &mut impl Read,
    target: &mut impl Write,
    after: impl Fn(u64) -> io::Result<()>,
) -> io::Result<(u64, String)> {
    let (mut buffer, mut hash, mut total) = (vec![0; CHUNK_BYTES], Sha256::new(), 0);
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => return Ok((total, hex::encode(hash.finalize()))),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        target.write_all(&buffer[..read])?;
        hash.update(&buffer[..read]);
        total += read as u64;
        after(read as u64)?;
    }
}
