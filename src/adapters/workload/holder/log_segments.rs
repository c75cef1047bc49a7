//! The workload's output on disk: numbered segments that the agent uploads and removes.
//!
//! Bytes go to the segment 00000001.log (4 MiB), then 00000002.log, and so on, while the agent
//! removes the oldest. Without room in the log or on the disk, bytes are dropped and counted;
//! later, one line says how many.
//!
//! A segment is complete once a later one exists, or the workload has ended. Not here: anything
//! that waits, because the workload would block on its pipe.

#![expect(
    clippy::disallowed_methods,
    reason = "writes the log, and looks at the disk again after a while"
)]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::adapters::workstation::private_files;

/// The size of a segment. If it is smaller, a chatty job makes thousands of objects. If it is
/// larger, a line appears later in the job directory, and a full disk gets room in larger steps.
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
/// The least number of segments of a log, so that a complete one exists for upload and removal.
const SEGMENTS_MIN: u64 = 4;
/// The smallest limit of a log. With less, the line about a gap would be most of the log.
const TOTAL_BYTES_MIN: u64 = 64 << 10;
/// Room for the lines about gaps, so that they fit in the limit.
const MARK_BYTES_MAX: u64 = 128;
/// The end of dropped output is remembered. If the output ends in a gap, this much is written
/// anyway, even beyond the limit, because error messages are at the end. Each holder may need this
/// much memory.
const TAIL_BYTES_MAX: usize = 64 << 10;
/// How long output is dropped before the next check for room. If this is shorter, each check lists
/// a directory during a flood. If it is longer, output is dropped while there is room.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The segments of one start, and the bytes that did not fit.
#[derive(Debug)]
pub struct SegmentedLog {
    dir: PathBuf,
    segment_bytes_max: u64,
    total_bytes_max: u64,
    current: Option<File>,
    number: u64,
    current_bytes: u64,
    /// The size of the earlier segments at the last look; uploaded ones are still counted.
    earlier_bytes: u64,
    /// Since when there is no room.
    blocked: Option<Instant>,
    ends_with_newline: bool,
    /// Bytes dropped since the last line about them.
    gap_bytes: u64,
    /// The newest bytes of the gap.
    tail: VecDeque<u8>,
    printed_bytes: u64,
    dropped_bytes: u64,
}

impl SegmentedLog {
    /// Continues after the existing segments.
    pub fn new(dir: &Path, total_bytes_max: u64) -> Self {
        let _ = private_files::folder(dir);
        let total = total_bytes_max.max(TOTAL_BYTES_MIN);
        let mut log = SegmentedLog {
            dir: dir.to_owned(),
            segment_bytes_max: SEGMENT_BYTES_MAX.min(total / SEGMENTS_MIN),
            total_bytes_max: total - MARK_BYTES_MAX,
            current: None,
            number: 0,
            current_bytes: 0,
            earlier_bytes: 0,
            blocked: None,
            ends_with_newline: true,
            gap_bytes: 0,
            tail: VecDeque::new(),
            printed_bytes: 0,
            dropped_bytes: 0,
        };
        log.look();
        log
    }

    /// All bytes, and the dropped ones among them.
    pub fn printed(&self) -> (u64, u64) {
        (self.printed_bytes, self.dropped_bytes)
    }

    /// Counts printed bytes, even if they are written in another form.
    pub fn count(&mut self, bytes: usize) {
        self.printed_bytes += bytes as u64;
    }

    /// Writes the bytes that fit, and counts the rest. Never fails.
    pub fn keep(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let part = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            let Some(file) = self.current.as_mut().filter(|_| !part.is_empty()) else {
                self.dropped_bytes += bytes.len() as u64;
                self.gap_bytes += bytes.len() as u64;
                self.remember(bytes);
                return;
            };
            match file.write(part) {
                Ok(written) if written > 0 => {
                    self.current_bytes += written as u64;
                    self.ends_with_newline = part[written - 1] == b'\n';
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => self.blocked = Some(Instant::now()),
            }
        }
    }

    /// Writes the line about a gap now, and the end of the gap, even beyond our own limit: the
    /// output has ended.
    pub fn finish(&mut self) {
        if self.gap_bytes == 0 || !(self.current.is_some() || self.open_next()) {
            return;
        }
        let mut tail = Vec::from(std::mem::take(&mut self.tail));
        if self.gap_bytes > tail.len() as u64 {
            // From the first whole line, unless it is all one line.
            let from = tail.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            tail.drain(..from);
        }
        self.gap_bytes -= tail.len() as u64;
        if self.tell_gap()
            && self.current.as_mut().is_some_and(|file| file.write_all(&tail).is_ok())
        {
            self.dropped_bytes -= tail.len() as u64;
            self.current_bytes += tail.len() as u64;
            self.ends_with_newline = tail.last().is_none_or(|byte| *byte == b'\n');
        }
        self.gap_bytes = 0;
    }

    fn remember(&mut self, bytes: &[u8]) {
        let newest = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        let too_many = (self.tail.len() + newest.len()).saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..too_many);
        self.tail.extend(newest);
    }

    /// How many bytes may be written to the current segment now; zero while blocked.
    fn room(&mut self) -> u64 {
        if self.blocked.is_some_and(|since| since.elapsed() < LOOK_AGAIN || !self.unblock()) {
            return 0;
        }
        if (self.current.is_none() || self.current_bytes >= self.segment_bytes_max)
            && !self.open_next()
        {
            self.blocked = Some(Instant::now());
            return 0;
        }
        let used = self.earlier_bytes + self.current_bytes;
        let room = self
            .total_bytes_max
            .saturating_sub(used)
            .min(self.segment_bytes_max - self.current_bytes);
        if room == 0 {
            self.blocked = Some(Instant::now());
        }
        room
    }

    /// Checks whether there is room again. Our own limit must allow a whole segment, or every few
    /// uploaded bytes would make a new gap. The disk must take the line about the gap.
    fn unblock(&mut self) -> bool {
        self.blocked = Some(Instant::now());
        self.look();
        let free = self.total_bytes_max.saturating_sub(self.earlier_bytes + self.current_bytes);
        if free < self.segment_bytes_max
            || (self.current.is_none() && !self.open_next())
            || !self.tell_gap()
        {
            return false;
        }
        self.blocked = None;
        true
    }

    /// Writes the one line about dropped bytes; a line that fits only in part is removed again.
    fn tell_gap(&mut self) -> bool {
        if self.gap_bytes == 0 {
            return true;
        }
        let Some(file) = self.current.as_mut() else { return false };
        let newline = if self.ends_with_newline { "" } else { "\n" };
        let line =
            format!("{newline}[lamp: {} bytes of output were not kept here]\n", self.gap_bytes);
        if file.write_all(line.as_bytes()).is_err() {
            let _ = file.set_len(self.current_bytes);
            return false;
        }
        self.current_bytes += line.len() as u64;
        self.ends_with_newline = true;
        self.gap_bytes = 0;
        self.tail.clear();
        true
    }

    fn open_next(&mut self) -> bool {
        let _ = private_files::folder(&self.dir);
        let path = self.dir.join(segment_name(self.number + 1));
        match private_files::options().append(true).create_new(true).open(path) {
            Ok(file) => {
                self.current = Some(file);
                self.number += 1;
                self.earlier_bytes += self.current_bytes;
                self.current_bytes = 0;
                // Uploads only make room, so the sum is checked only if it seems too large: a
                // listing for every segment of a long spool would cost more than the segment.
                if self.earlier_bytes + self.segment_bytes_max > self.total_bytes_max {
                    self.look();
                }
                true
            }
            Err(error) => {
                // A file of another program stays; the next call tries the next number.
                self.number += u64::from(error.kind() == ErrorKind::AlreadyExists);
                false
            }
        }
    }

    /// Sums the segments before the current one.
    fn look(&mut self) {
        let segments = segments(&self.dir);
        if self.current.is_none() {
            self.number = self.number.max(segments.last().map_or(0, |(number, _)| *number));
        }
        let current = if self.current.is_some() { self.number } else { u64::MAX };
        self.earlier_bytes =
            segments.iter().filter(|(number, _)| *number != current).map(|(_, bytes)| bytes).sum();
    }
}

/// The file name of a segment; numbers begin with 1.
pub fn segment_name(number: u64) -> String {
    format!("{number:08}.log")
}

/// The segments in a log folder, oldest first, with their sizes.
pub fn segments(dir: &Path) -> Vec<(u64, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(u64, u64)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()?;
            Some((number, entry.metadata().ok()?.len()))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SegmentedLog {
        fn take(&mut self, bytes: &[u8]) {
            self.count(bytes.len());
            self.keep(bytes);
        }
    }

    /// Everything on disk, in order.
    fn kept(dir: &Path) -> String {
        segments(dir)
            .iter()
            .map(|(number, _)| fs::read_to_string(dir.join(segment_name(*number))).expect("text"))
            .collect()
    }

    fn until_it_looks_again(log: &mut SegmentedLog) {
        log.blocked = log
            .blocked
            .map(|since| since.checked_sub(LOOK_AGAIN).expect("the machine runs for longer"));
    }

    #[test]
    fn output_goes_into_segments_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = SegmentedLog::new(folder.path(), 256 << 10);
        let text: String = (0..20_000).map(|line| format!("{line}\n")).collect();
        for piece in text.as_bytes().chunks(10_000) {
            log.take(piece);
        }
        assert_eq!(kept(folder.path()), text);
        assert_eq!(log.printed(), (text.len() as u64, 0));
        assert_eq!(
            segments(folder.path()).iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [1, 2]
        );
    }

    #[test]
    fn what_does_not_fit_is_counted_and_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let bound = 128 << 10;
        let mut log = SegmentedLog::new(folder.path(), bound);
        log.take(&vec![b'x'; 300 << 10]);
        log.take(b"lost\n");
        let (printed, dropped) = log.printed();
        let on_disk: u64 = segments(folder.path()).iter().map(|(_, bytes)| bytes).sum();
        assert_eq!((printed, on_disk + dropped), ((300 << 10) + 5, printed));
        assert!(on_disk <= bound && on_disk >= bound - MARK_BYTES_MAX, "{on_disk}");

        until_it_looks_again(&mut log);
        log.take(b"still no room\n");
        fs::remove_file(folder.path().join(segment_name(1))).expect("shipped");
        log.take(b"not looked yet\n");
        until_it_looks_again(&mut log);
        log.take(b"back\n");
        let lost = dropped + "still no room\n".len() as u64 + "not looked yet\n".len() as u64;
        assert_eq!(log.printed().1, lost);
        assert!(
            kept(folder.path()).ends_with(&format!(
                "x\n[lamp: {lost} bytes of output were not kept here]\nback\n"
            ))
        );
    }

    #[test]
    fn gap_at_the_end_is_told_and_the_very_end_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let bound = 128 << 10;
        let mut log = SegmentedLog::new(folder.path(), bound);
        let flood = "a line of a flood\n".repeat(100_000);
        log.take(flood.as_bytes());
        log.take(b"Traceback: the reason\n");
        log.finish();
        log.finish();
        let (printed, dropped) = log.printed();
        let kept = kept(folder.path());
        assert_eq!(
            kept.matches(&format!("[lamp: {dropped} bytes of output were not kept here]\na line"))
                .count(),
            1
        );
        assert!(kept.ends_with("a line of a flood\nTraceback: the reason\n"));
        assert!(kept.len() as u64 <= bound + TAIL_BYTES_MAX as u64, "{}", kept.len());
        let line =
            kept.lines().find(|line| line.starts_with("[lamp")).expect("the gap is told").len()
                as u64
                + 1;
        assert!(
            printed - dropped == kept.len() as u64 - line
                || printed - dropped == kept.len() as u64 - line - 1,
            "every byte is counted once"
        );
    }

    #[test]
    fn small_gap_at_the_end_is_no_gap() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = SegmentedLog::new(folder.path(), 64 << 10);
        let text: String = (0..20_000).map(|line| format!("{line}\n")).collect();
        log.take(text.as_bytes());
        assert!(log.printed().1 > 0);
        log.finish();
        assert_eq!((kept(folder.path()), log.printed().1), (text, 0));
    }

    #[test]
    fn earlier_holders_segments_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(segment_name(7)), "earlier\n").expect("written");
        fs::write(folder.path().join("notes.txt"), "not a segment").expect("written");
        let mut log = SegmentedLog::new(folder.path(), 64 << 10);
        log.take(b"later\n");
        assert_eq!(kept(folder.path()), "earlier\nlater\n");
        assert_eq!(segments(folder.path()), [(7, 8), (8, 6)]);
    }
}
