//! Processor time, memory and storage used by the workload's processes.
//!
//! ```text
//!   pids -> one `stat` and one `io` file each, kept open -> Usage (sums)
//! ```
//! Only these processes are read. Not here: which processes they are, or rates.

use std::collections::HashMap;
use std::io;

use super::kernel_file::ProcFile;

/// Two descriptors stay open for each of this many processes: well below the usual limit of 1024.
/// Files of further processes are opened at each sample.
const KEPT_OPEN_MAX: usize = 128;

/// The sum over the processes that exist. Each includes its ended and reaped children, so the sums
/// keep their past while the parents run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub cpu_ticks: u64,
    pub resident_pages: u64,
    pub processes: u32,
    pub disk: DiskUsage,
    /// Processes that have ended.
    pub gone: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DiskUsage {
    Bytes {
        read: u64,
        written: u64,
    },
    /// This kernel does not count.
    NotCounted,
    /// One process cannot be read, so the sum would be wrong.
    Unreadable(String),
}

/// The open files of the processes.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    open: HashMap<u32, ProcessMeter>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct ProcessMeter {
    stat: ProcFile,
    io: ProcFile,
}

impl Meters {
    pub fn read(&mut self, pids: &[u32]) -> Usage {
        let mut usage = Usage {
            cpu_ticks: 0,
            resident_pages: 0,
            processes: 0,
            disk: DiskUsage::Bytes { read: 0, written: 0 },
            gone: Vec::new(),
        };
        if self.open.len() > pids.len() {
            self.open.retain(|pid, _| pids.contains(pid));
        }
        for pid in pids {
            let mut meter = self.open.remove(pid).unwrap_or_else(|| ProcessMeter::of(*pid));
            if meter.add(*pid, &mut self.buffer, &mut usage) {
                if self.open.len() < KEPT_OPEN_MAX {
                    self.open.insert(*pid, meter);
                }
            } else {
                usage.gone.push(*pid);
            }
        }
        usage
    }
}

impl ProcessMeter {
    fn of(pid: u32) -> Self {
        ProcessMeter {
            stat: ProcFile::new(format!("/proc/{pid}/stat")),
            io: ProcFile::new(format!("/proc/{pid}/io")),
        }
    }

    /// False: it has ended. A descriptor belongs to one process, so a reused number reads as ended.
    fn add(&mut self, pid: u32, buffer: &mut Vec<u8>, usage: &mut Usage) -> bool {
        let Some(stat) = self.stat.read(buffer).ok().and_then(parse_stat) else { return false };
        usage.cpu_ticks += stat.cpu_ticks;
        usage.resident_pages += stat.resident_pages;
        usage.processes += u32::from(!stat.ended);
        let io = self.io.read(buffer).map(parse_io);
        match (io, &mut usage.disk) {
            (
                Ok(Some((read, written))),
                DiskUsage::Bytes { read: all_read, written: all_written },
            ) => {
                *all_read += read;
                *all_written += written;
            }
            (Err(error), DiskUsage::Bytes { .. }) if !stat.ended => match unreadable(pid, &error) {
                Some(disk) => usage.disk = disk,
                None => return false,
            },
            _ => {}
        }
        true
    }
}

/// `None`: it ended between its two files.
fn unreadable(pid: u32, error: &io::Error) -> Option<DiskUsage> {
    const NO_SUCH_PROCESS: i32 = 3;
    match error.kind() {
        _ if error.raw_os_error() == Some(NO_SUCH_PROCESS) => None,
        io::ErrorKind::NotFound if std::path::Path::new("/proc/self/io").exists() => None,
        io::ErrorKind::NotFound => Some(DiskUsage::NotCounted),
        _ => Some(DiskUsage::Unreadable(format!("/proc/{pid}/io: {error}"))),
    }
}

#[derive(Debug, PartialEq)]
struct ProcStat {
    /// Its own and its reaped children's, user and system.
    cpu_ticks: u64,
    resident_pages: u64,
    /// A zombie: its use still counts, but it is no running process.
    ended: bool,
}

/// The second field, the name, may hold anything. So the fields are counted from its last
/// parenthesis.
fn parse_stat(line: &str) -> Option<ProcStat> {
    let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let mut cpu_ticks: u64 = fields.nth(10)?.parse().ok()?;
    for _ in 0..3 {
        // The kernel prints the times of children as signed numbers.
        cpu_ticks += u64::try_from(fields.next()?.parse::<i64>().ok()?).unwrap_or(0);
    }
    let resident_pages = fields.nth(6)?.parse::<i64>().ok()?;
    Some(ProcStat { cpu_ticks, resident_pages: u64::try_from(resident_pages).unwrap_or(0), ended })
}

pub(crate) fn cpu_ticks(line: &str) -> Option<u64> {
    parse_stat(line).map(|stat| stat.cpu_ticks)
}

fn parse_io(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((field("read_bytes:")?, field("write_bytes:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_last_parenthesis() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 250 18446744073709551615 1";
        assert_eq!(
            parse_stat(line),
            Some(ProcStat { cpu_ticks: 5 + 6 + 7 + 8, resident_pages: 250, ended: false })
        );
        assert_eq!(parse_stat(&line.replace(") S", ") Z")).map(|stat| stat.ended), Some(true));
        assert_eq!(parse_stat("42 (broken"), None);
    }

    #[test]
    fn only_what_reached_storage_counts() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";
        assert_eq!(parse_io(text), Some((4096, 8192)));
        assert_eq!(parse_io("nonsense"), None);
    }

    #[test]
    fn process_that_has_ended_is_told() {
        let usage = Meters::default().read(&[std::process::id(), u32::MAX]);
        assert_eq!(usage.gone, [u32::MAX]);
        assert_eq!(usage.processes, 1);
        assert!(usage.resident_pages > 0);
    }
}
