//! Reads the workload's log piece by piece from the job directory, byte for byte.
//!
//! ```text
//!   list after the last piece ──> names ──> a few pieces at once ──> one at a time, in order
//!        only when both are empty  <─────────────────────────────────┘
//! ```
//!
//! A day of output has some twenty thousand pieces. To list them again for each would need a third
//! of a million pages.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::unpack::unpacked;
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::wire::StoreError;

/// A piece has at most a megabyte before compression: eight fill a home connection with a latency
/// of 0.1 s.
const READS_IN_FLIGHT: usize = 8;

/// Words of failing programs, in small letters.
const ERROR_WORDS: [&str; 9] = [
    "traceback (most recent",
    "error",
    "exception",
    "fatal",
    "panic",
    "killed",
    "segmentation fault",
    "core dumped",
    "out of memory",
];

/// Whether a line of a log looks like an error.
pub fn is_error(line: &str) -> bool {
    let lowered = line.to_lowercase();
    ERROR_WORDS.iter().any(|word| lowered.contains(word))
}

/// The end of a log.
#[derive(Debug)]
pub struct LogEnd {
    pub bytes: Vec<u8>,
    /// For what follows.
    pub tail: LogTail,
    /// The pieces that were read, oldest first. The first of them may not be wholly in `bytes`.
    pub pieces: Vec<LogPiece>,
}

/// The log around a moment.
#[derive(Debug, PartialEq, Eq)]
pub struct LogAround {
    pub before: Vec<u8>,
    /// The piece with the moment, or the last one.
    pub here: Vec<u8>,
}

/// A piece of a log, which never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// Its name in the job directory; a later piece has a greater one.
    pub name: String,
    /// The line ends in it.
    pub line_ends: usize,
}

#[derive(Clone, Debug)]
pub struct LogTail {
    pub attempt: AttemptNo,
    last: String,
    /// The piece that was returned last.
    returned: String,
    names: VecDeque<String>,
    /// Read, not returned yet. `None`: deleted since it was listed.
    read: VecDeque<(String, Option<Bytes>)>,
}

impl LogTail {
    pub fn new(attempt: AttemptNo) -> Self {
        LogTail {
            attempt,
            last: String::new(),
            returned: String::new(),
            names: VecDeque::new(),
            read: VecDeque::new(),
        }
    }

    /// When the piece that was returned last came to the job root, by the clock there.
    ///
    /// # Errors
    /// Fails when the store does not answer.
    pub async fn arrived(&self, dir: &JobDir) -> Result<Option<Timestamp>, JobDirError> {
        let key = format!("{}{}", layout::log(dir.job(), self.attempt), self.returned);
        Ok(dir.store().head(&key).await?.map(|piece| piece.modified))
    }

    /// The last lines so far. Reads only the last pieces.
    ///
    /// # Errors
    /// As [`LogTail::next`].
    pub async fn last(
        dir: &JobDir,
        attempt: AttemptNo,
        lines: usize,
    ) -> Result<LogEnd, JobDirError> {
        let mut after = LogTail::new(attempt);
        let found = dir.store().children_after(&layout::log(dir.job(), attempt), "").await?;
        let names: Vec<String> = found.into_iter().filter(|name| name.ends_with(".zst")).collect();
        after.last = names.last().cloned().unwrap_or_default();
        let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
        for name in names.iter().rev() {
            if lines_in(&bytes) > lines {
                break;
            }
            let mut one = LogTail {
                names: VecDeque::from([name.clone()]),
                last: after.last.clone(),
                ..LogTail::new(attempt)
            };
            let mut piece = one.next(dir).await?;
            pieces.push(LogPiece { name: name.clone(), line_ends: line_ends(&piece) });
            piece.append(&mut bytes);
            bytes = piece;
        }
        pieces.reverse();
        let from = bytes.len() - last_lines(&bytes, lines).len();
        Ok(LogEnd { bytes: bytes.split_off(from), tail: after, pieces })
    }

    /// The log around a moment, by the times at which its pieces came to the job root.
    ///
    /// # Errors
    /// As [`LogTail::next`].
    pub async fn around(
        dir: &JobDir,
        attempt: AttemptNo,
        at: Timestamp,
    ) -> Result<LogAround, JobDirError> {
        let prefix = layout::log(dir.job(), attempt);
        let mut pieces = dir.store().list(&prefix).await?;
        pieces.retain(|piece| piece.key.ends_with(".zst"));
        let read = async |at: Option<usize>| {
            let Some(piece) = at.and_then(|at| pieces.get(at)) else { return Ok(Vec::new()) };
            let name = piece.key.strip_prefix(&prefix).unwrap_or_default().to_owned();
            let last = name.clone();
            LogTail { names: VecDeque::from([name]), last, ..LogTail::new(attempt) }.next(dir).await
        };
        // A piece has what was printed since the one before it.
        let after = pieces.iter().position(|piece| piece.modified >= at);
        let here = after.or(pieces.len().checked_sub(1));
        let before = here.and_then(|here| here.checked_sub(1));
        Ok(LogAround { before: read(before).await?, here: read(here).await? })
    }

    /// The bytes since the last call, at most one piece; empty when there are none.
    ///
    /// # Errors
    /// Fails when the store does not answer. A piece in another format is reported in its place and
    /// skipped.
    pub async fn next(&mut self, dir: &JobDir) -> Result<Vec<u8>, JobDirError> {
        let prefix = layout::log(dir.job(), self.attempt);
        loop {
            while let Some((name, piece)) = self.read.pop_front() {
                let bytes = piece.map(|piece| {
                    let torn = |error| {
                        format!("\n[lamp: piece {name} of the log cannot be read: {error}]\n")
                            .into_bytes()
                    };
                    unpacked(&piece).unwrap_or_else(torn)
                });
                if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
                    self.returned = name;
                    return Ok(bytes);
                }
            }
            if self.names.is_empty() {
                let found = dir.store().children_after(&prefix, &self.last).await?;
                self.names.extend(found.into_iter().filter(|name| name.ends_with(".zst")));
                let Some(last) = self.names.back() else { return Ok(Vec::new()) };
                self.last.clone_from(last);
            }
            self.fetch(dir, &prefix).await?;
        }
    }

    /// Fetches the next few pieces. A name is removed only once all of them were read.
    async fn fetch(&mut self, dir: &JobDir, prefix: &str) -> Result<(), JobDirError> {
        let few: Vec<String> = self.names.iter().take(READS_IN_FLIGHT).cloned().collect();
        let reads = few.into_iter().map(|name| async move {
            let piece = match dir.store().get(&format!("{prefix}{name}")).await {
                Err(StoreError::Unfit { .. }) => None,
                piece => piece?,
            };
            Ok::<_, JobDirError>((name, piece))
        });
        let read: Vec<_> = stream::iter(reads).buffered(READS_IN_FLIGHT).try_collect().await?;
        self.names.drain(..read.len());
        self.read.extend(read);
        Ok(())
    }
}

fn line_ends(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Counts lines, also one without a line end.
pub fn lines_in(bytes: &[u8]) -> usize {
    line_ends(bytes) + usize::from(bytes.last().is_some_and(|byte| *byte != b'\n'))
}

/// The last lines of a text, which may end inside a line.
pub fn last_lines(bytes: &[u8], lines: usize) -> &[u8] {
    let ends = bytes
        .iter()
        .enumerate()
        .filter(|(at, byte)| **byte == b'\n' && at + 1 < bytes.len())
        .map(|(at, _)| at + 1);
    let skipped = lines_in(bytes).saturating_sub(lines);
    match skipped {
        0 => bytes,
        _ => ends.take(skipped).last().filter(|_| lines > 0).map_or(&[], |from| &bytes[from..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_counted_with_and_without_line_end() {
        let cases: [(&str, usize, &str); 8] = [
            ("", 2, ""),
            ("a\n", 0, ""),
            ("a\nb\nc\n", 1, "c\n"),
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\nc", 1, "c"),
            ("a\nb\nc", 2, "b\nc"),
            ("\n\n", 1, "\n"),
        ];
        for (text, lines, last) in cases {
            assert_eq!(
                str::from_utf8(last_lines(text.as_bytes(), lines)),
                Ok(last),
                "{lines} of {text:?}"
            );
        }
    }
}
