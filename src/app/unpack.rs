//! Unpacks a batch that an agent has packed: a piece of the log, or samples.

use std::io::{self, Read as _};

/// Far above any batch that an agent writes. A longer one is cut.
pub const UNPACKED_MAX: u64 = 64 * 1024 * 1024;

/// # Errors
/// Fails when the bytes are not zstd, or are torn.
pub fn unpacked(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    zstd::stream::Decoder::new(piece)?.take(UNPACKED_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
