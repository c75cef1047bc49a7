//! Unpacks a batch that an agent has packed: a piece of the log, or samples.

use std::io::{self, Read as _};

/// Far above any batch that an agent writes. A longer one is cut.
pub const UNPACKED_MAX: u64 = 64 * 1024 * 1024;

/// # Errors
/// Fails when the bytes are not zstd, or are torn.
pub fn unpacked(piece: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(bytes) = at_once(piece) {
        return Ok(bytes);
    }
    let mut bytes = Vec::new();
    zstd::stream::Decoder::new(piece)?.take(UNPACKED_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Agents write how long a batch is. Without a stream, it needs two thirds of the time.
fn at_once(piece: &[u8]) -> Option<Vec<u8>> {
    let length = zstd::zstd_safe::get_frame_content_size(piece).ok().flatten()?;
    let length = usize::try_from(length).ok().filter(|_| length <= UNPACKED_MAX)?;
    zstd::bulk::decompress(piece, length).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn batches_of_known_and_unknown_length_are_unpacked() {
        let text = b"a line of the log\n".repeat(1000);
        let known = zstd::bulk::compress(&text, 3).unwrap();
        assert_eq!(at_once(&known), Some(text.clone()));
        let mut stream = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        stream.write_all(&text).unwrap();
        let unknown = stream.finish().unwrap();
        assert_eq!(at_once(&unknown), None);
        let two = [known.clone(), known.clone()].concat();
        for (piece, times) in [(&known, 1), (&unknown, 1), (&two, 2)] {
            assert_eq!(unpacked(piece).unwrap(), text.repeat(times));
        }
        for torn in [&known[..known.len() - 1], &unknown[..unknown.len() - 1], b"no zstd"] {
            assert!(unpacked(torn).is_err());
        }
    }
}
