//! Compresses repeated batches with one zstd context.
//!
//! A new context queries the processor, which is slow on a virtual machine, and takes some hundred
//! kilobytes. For a few log lines that cost more than the compression.

use std::io;

use zstd::bulk::Compressor;

/// Keeps its context between calls. The output depends only on the bytes, not on earlier calls.
pub(crate) struct Packer {
    level: i32,
    context: Option<Compressor<'static>>,
}

impl Packer {
    pub(crate) fn new(level: i32) -> Self {
        Packer { level, context: None }
    }

    /// One frame.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut context = match self.context.take() {
            Some(context) => context,
            None => Compressor::new(self.level)?,
        };
        let packed = context.compress(bytes)?;
        // A context that failed is not used again.
        self.context = Some(context);
        Ok(packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_do_not_depend_on_earlier_calls() {
        let line = |n: u64| format!("step {n} loss {:.4}\n", 1.0 / (n + 1) as f64);
        let piece =
            |from: u64, lines: u64| (from..from + lines).map(line).collect::<String>().into_bytes();
        for level in [1, 3] {
            let mut packer = Packer::new(level);
            for (from, lines) in
                [(0, 1), (0, 1), (7, 3), (0, 40_000), (2, 1), (0, 2000), (0, 0), (5, 200)]
            {
                let bytes = piece(from, lines);
                let packed = packer.pack(&bytes).unwrap();
                assert_eq!(
                    packed,
                    zstd::bulk::compress(&bytes, level).unwrap(),
                    "level {level}, {lines} lines from {from}"
                );
                assert_eq!(zstd::bulk::decompress(&packed, bytes.len()).unwrap(), bytes);
            }
        }
    }
}
