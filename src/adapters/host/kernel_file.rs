//! Reads small kernel files again and again, cheaply.
//!
//! The kernel makes a file under `/proc` anew at each read. So one open descriptor gives fresh
//! numbers, without a path lookup. Not here: the meaning of the numbers.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc and /sys, which is what this adapter is for"
)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// No file that we read is longer. Too small cuts off the end of a list; too big costs memory once.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// The name of a process, as the kernel has it. `None`: the process is gone or hidden.
pub(crate) fn process_name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

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

    /// The content now.
    pub fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        let length = self.with(buffer, fill)?;
        std::str::from_utf8(&buffer[..length]).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The first line, for long files.
    pub fn first_line<'a>(&mut self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        let length = self.with(buffer, |file, buffer| {
            buffer.resize(buffer.len().max(1024), 0);
            file.read_at(&mut buffer[..1024], 0)
        })?;
        let line = buffer[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
        std::str::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// A descriptor that fails (the process ended, the cgroup was replaced) is dropped.
    fn with(
        &mut self,
        buffer: &mut Vec<u8>,
        read: impl Fn(&File, &mut Vec<u8>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        let length = read(&file, buffer)?;
        self.file = Some(file);
        Ok(length)
    }
}

/// The kernel returns lists in pages of whole records. A read below this size, with room left, was
/// the last one, so the read that confirms it is spared. Above a page less one record, the end of a
/// list could be lost.
const LAST_READ_BYTES: usize = 2048;

/// Reads the whole file into the buffer, which grows as needed and stays so.
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
