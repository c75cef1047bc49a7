//! Copies the workload's output to the terminal or pipe of an agent in the foreground.
//!
//! A slow reader has a bounded buffer; text beyond it is skipped with a note, and the log has all
//! of it. Not here: a write that could block.

#![expect(clippy::disallowed_methods, reason = "opens its own view of standard output")]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The buffer for a slow reader. If it is smaller, `| less` loses lines. If it is larger, it only
/// costs memory.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// A ready pipe takes this much without blocking (`PIPE_BUF`).
const SAFE_WRITE_BYTES: usize = 4096;

#[derive(Debug)]
pub struct Echo {
    out: File,
    /// The descriptor never blocks; otherwise each write is small and the descriptor is polled
    /// first.
    nonblocking: bool,
    pending: VecDeque<u8>,
    skipped: bool,
}

impl Echo {
    /// Copies to this process's standard output; `None` if there is none.
    pub fn to_stdout() -> Option<Self> {
        let shared = File::from(io::stdout().as_fd().try_clone_to_owned().ok()?);
        let kind = shared.metadata().ok()?.file_type();
        // A second open file, because the flag would otherwise apply to every user of the terminal.
        // A regular file is written through the shared descriptor, which has the common position;
        // it never blocks.
        let own = || {
            OpenOptions::new()
                .write(true)
                .custom_flags(
                    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
                        | rustix::fs::OFlags::NOCTTY.bits().cast_signed(),
                )
                .open("/proc/self/fd/1")
        };
        if kind.is_file() {
            return Some(Echo::new(shared, true));
        }
        match own() {
            Ok(own) if kind.is_fifo() || kind.is_char_device() => Some(Echo::new(own, true)),
            _ => Some(Echo::new(shared, false)),
        }
    }

    fn new(out: File, nonblocking: bool) -> Self {
        Echo { out, nonblocking, pending: VecDeque::new(), skipped: false }
    }

    pub fn file(&self) -> &File {
        &self.out
    }

    pub fn wants_to_write(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Buffers the bytes that fit, and writes as much as possible. `false`: the reader has gone for
    /// good.
    pub fn offer(&mut self, bytes: &[u8]) -> bool {
        let room = PENDING_BYTES_MAX - self.pending.len().min(PENDING_BYTES_MAX);
        if self.skipped && room < PENDING_BYTES_MAX / 2 {
            return self.flush();
        }
        if std::mem::take(&mut self.skipped) {
            self.pending.extend(b"\n[lamp: output was skipped here; the log has all of it]\n");
        }
        let part = bytes.len().min(room);
        self.pending.extend(&bytes[..part]);
        self.skipped = part < bytes.len();
        self.flush()
    }

    /// Writes until the reader takes no more.
    pub fn flush(&mut self) -> bool {
        while !self.pending.is_empty() {
            if !self.nonblocking && !self.ready(Duration::ZERO) {
                return true;
            }
            let (front, _) = self.pending.as_slices();
            let part =
                if self.nonblocking { front } else { &front[..front.len().min(SAFE_WRITE_BYTES)] };
            match self.out.write(part) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives a slow reader a moment to take the rest.
    pub fn finish(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        while self.flush() && self.wants_to_write() && Instant::now() < end {
            self.ready(end.saturating_duration_since(Instant::now()));
        }
    }

    fn ready(&self, patience: Duration) -> bool {
        let Ok(patience) = Timespec::try_from(patience) else { return false };
        poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], Some(&patience))
            .is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn stalled_reader_delays_no_output() {
        for nonblocking in [true, false] {
            let (mut reader, writer) = io::pipe().expect("a pipe");
            if nonblocking {
                rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can");
            }
            let mut echo = Echo::new(File::from(std::os::fd::OwnedFd::from(writer)), nonblocking);
            for _ in 0..40 {
                assert!(echo.offer(&[b'x'; 100_000]), "the reader is only slow");
            }
            assert!(echo.wants_to_write() && echo.pending.len() <= PENDING_BYTES_MAX);

            let collector = std::thread::spawn(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).map(|_| text)
            });
            echo.finish(Duration::from_secs(30));
            assert!(!echo.wants_to_write(), "all that was kept is out");
            assert!(echo.offer(b"after\n"));
            echo.finish(Duration::from_secs(30));
            drop(echo);
            let text = collector.join().expect("no panic").expect("text");
            assert!(
                text.ends_with(
                    "x\n[lamp: output was skipped here; the log has all of it]\nafter\n"
                )
            );
        }
    }

    #[test]
    fn reader_that_left_is_noticed() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut echo = Echo::new(File::from(std::os::fd::OwnedFd::from(writer)), false);
        drop(reader);
        assert!(!echo.offer(b"hello"));
    }
}
