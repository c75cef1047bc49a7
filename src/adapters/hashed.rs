//! Files and their SHA-256, in one pass and in bounded memory.

use std::io::{self, ErrorKind, Read, Write};

use sha2::{Digest, Sha256};

/// Between a read and a write of a large file. Smaller costs system calls, larger only memory.
const CHUNK_BYTES: usize = 256 * 1024;

/// Copies all of a source; gives its size and its SHA-256. `after` each piece decides whether to go on.
///
/// # Errors
/// The source cannot be read, the target cannot be written, or `after` says so.
pub(super) fn copy(source: &mut impl Read, target: &mut impl Write, after: impl Fn(u64) -> io::Result<()>) -> io::Result<(u64, String)> {
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
