//! Reads the instances that a user wants predictions for.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A larger request is a batch job. The limit keeps a wrong path from filling the memory.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The content of a file; `-`: of standard input.
///
/// # Errors
/// When it cannot be read, or is too large.
#[expect(clippy::disallowed_methods, reason = "reads a file that the user names")]
pub fn read_instances(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 64 MiB"));
    }
    Ok(bytes)
}
