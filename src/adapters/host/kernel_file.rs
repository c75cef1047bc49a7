//! Reading the small files of the kernel, over and over, without paying for it each time.
//!
//! A file under `/proc` is made anew at each read, so one descriptor, kept open, gives fresh numbers: no path to look up,
//! nothing to allocate. Not here: what the numbers mean.

#![expect(clippy::disallowed_methods, reason = "reads /proc and /sys, which is what this adapter is for")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// No file that we read this way needs more: a line of a process, a few lines of a cgroup, the interfaces of a machine.
/// Too small, and the end of a list is missing; too big only costs memory, once.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// A kernel file that is read at each sample.
#[derive(Debug)]
pub(crate) struct ProcFile {
    path: PathBuf,
    file: Option<File>,
}

impl ProcFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ProcFile { path: path.into(), file: None }
    }

    /// What it says now.
    pub fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        let length = self.with(buffer, fill)?;
        std::str::from_utf8(&buffer[..length]).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Its first line, for files of which the rest is long and of no use.
    pub fn first_line<'a>(&mut self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        let length = self.with(buffer, |file, buffer| {
            buffer.resize(buffer.len().max(1024), 0);
            file.read_at(&mut buffer[..1024], 0)
        })?;
        let line = buffer[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
        std::str::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// A descriptor that stopped working (the process is gone, the cgroup was made anew) is dropped.
    fn with(&mut self, buffer: &mut Vec<u8>, read: impl Fn(&File, &mut Vec<u8>) -> io::Result<usize>) -> io::Result<usize> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        let length = read(&file, buffer)?;
        self.file = Some(file);
        Ok(length)
    }
}

/// The kernel hands out lists in pages of whole records; a read that gives less than this, though there was room, was the
/// last one, and the read that would say so can be spared. Above a page less one record, the end of a list could be lost.
const LAST_READ_BYTES: usize = 2048;

/// The whole file from its beginning into the buffer, which grows to what was needed and stays so.
fn fill(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.resize(buffer.len().max(1024), 0);
    let mut length = 0;
    loop {
        let read = match file.read_at(&mut buffer[length..], length as u64) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        length += read;
        if read == 0 || (length < buffer.len() && read < LAST_READ_BYTES) {
            return Ok(length);
        }
        if length == buffer.len() {
            if length >= FILE_BYTES_MAX {
                return Ok(length);
            }
            buffer.resize(length * 2, 0);
        }
    }
}
