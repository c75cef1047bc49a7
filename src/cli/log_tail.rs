//! The workload's log, read piece by piece from the job directory, byte for byte.

use std::io;

use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError, layout};

/// Reads the log of one attempt as it grows.
#[derive(Clone, Debug)]
pub struct LogTail {
    pub attempt: AttemptNo,
    /// The name of the last piece that was read.
    last: Option<String>,
}

impl LogTail {
    pub fn new(attempt: AttemptNo) -> Self {
        LogTail { attempt, last: None }
    }

    /// The bytes that have come since the last call, at most one piece; empty when there are none.
    ///
    /// # Errors
    /// When the store does not answer. A piece that is not what we write is told in its place and passed over.
    pub async fn next(&mut self, dir: &JobDir) -> Result<Vec<u8>, JobDirError> {
        let prefix = layout::log(dir.job(), self.attempt);
        let names = dir.store().children(&prefix).await?;
        let next = names.into_iter().find(|name| name.ends_with(".zst") && self.last.as_ref().is_none_or(|last| name > last));
        let Some(name) = next else { return Ok(Vec::new()) };
        let Some(piece) = dir.store().get(&format!("{prefix}{name}")).await? else { return Ok(Vec::new()) };
        let bytes = unpacked(&piece).unwrap_or_else(|error| format!("\n[lamp: piece {name} of the log cannot be read: {error}]\n").into_bytes());
        self.last = Some(name);
        Ok(bytes)
    }
}

fn unpacked(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    zstd::stream::copy_decode(piece, &mut bytes)?;
    Ok(bytes)
}
