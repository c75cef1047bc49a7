//! The files through which a holder and an agent communicate, in the state folder of one start.
//!
//! | File | Writer | Content |
//! |---|---|---|
//! | `launch.json` | agent | the command; removed if the agent gives up on a silent holder |
//! | `boot` | agent | the boot of the machine |
//! | `lock` | holder | held (flock) as long as it runs: one holder for each folder |
//! | `running` | both | a named pipe that the holder keeps open until the end is recorded |
//! | `started.json` | holder | the processes |
//! | `printed` | holder | bytes printed and dropped, overwritten in place |
//! | `killed` | agent | exists after a SIGKILL of the agent: later deaths are not the kernel's |
//! | `kill` | agent | exists if the whole tree must be killed |
//! | `exit.json` | holder | how the main process ended |
//! | `log/00000001.log`, ... | holder | the output |
//!
//! The agent may be killed between any two of these; the holder never waits for it. Not here: the
//! holder's loop, or the agent's side of it.

#![expect(clippy::disallowed_methods, reason = "reads and writes the state folder")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::adapters::host::process_tree::ProcessRef;
use crate::adapters::workstation::private_files;
use crate::ports::{Ended, WorkloadError};

pub const LAUNCH: &str = "launch.json";
pub const BOOT: &str = "boot";
pub const LOCK: &str = "lock";
pub const RUNNING: &str = "running";
pub const STARTED: &str = "started.json";
pub const PRINTED: &str = "printed";
pub const KILLED: &str = "killed";
pub const KILL_TREE: &str = "kill";
/// Exists if the unit was told to end.
pub const TOLD: &str = "told";
pub const EXIT: &str = "exit.json";
pub const LOG: &str = "log";

/// Space that is reserved on disk for `exit.json`: a full disk must not lose the end of the job.
/// The record needs a few hundred bytes; a file system allocates one block anyway.
const RESERVED_BYTES: usize = 4096;

/// `started.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub format: u32,
    /// The boot of the processes: after another boot their ids mean nothing.
    pub boot_id: String,
    pub holder: ProcessRef,
    pub workload: ProcessRef,
    /// The cgroup (v2) with only the workload.
    pub cgroup: Option<PathBuf>,
}

/// `exit.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    pub format: u32,
    pub end: WorkloadEnd,
    /// The holder was told to end before: the machine shut down, and the workload did not end by
    /// itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadEnd {
    Ended(Ended),
    /// It never ran: the command does not exist or cannot be executed.
    CannotExecute {
        program: String,
        errno: i32,
    },
    /// It never ran, for another reason.
    NotStarted {
        what: String,
        errno: i32,
    },
}

/// The format. Readers accept newer ones, and ignore their additions.
pub const FORMAT: u32 = 1;

/// Reads a record; `None` if there is none. Records are written whole, so one that cannot be parsed
/// is an error.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    match fs::read(dir.join(name)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a record whole or not at all.
pub fn write<T: Serialize>(dir: &Path, name: &str, record: &T) -> io::Result<()> {
    let part = dir.join(format!("{name}.part"));
    private_files::write(&part, serde_json::to_vec(record)?)?;
    fs::rename(part, dir.join(name))
}

/// A record with reserved space on disk.
#[derive(Debug)]
pub struct Reserved {
    file: Option<File>,
    part: PathBuf,
    whole: PathBuf,
}

impl Reserved {
    pub fn new(dir: &Path, name: &str) -> Self {
        let part = dir.join(format!("{name}.part"));
        let file = private_files::create(&part)
            .and_then(|mut file| file.write_all(&[b' '; RESERVED_BYTES]).map(|()| file))
            .ok();
        Reserved { file, part, whole: dir.join(name) }
    }

    pub fn write<T: Serialize>(self, record: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        match self.file {
            Some(file) => {
                file.write_all_at(&bytes, 0)?;
                file.set_len(bytes.len() as u64)?;
            }
            None => private_files::write(&self.part, bytes)?,
        }
        fs::rename(self.part, self.whole)
    }
}

/// Why a holder did not start its workload, if it says so.
pub fn refused(dir: &Path) -> Option<WorkloadError> {
    match read::<Exit>(dir, EXIT).ok()??.end {
        WorkloadEnd::Ended(_) => None,
        WorkloadEnd::CannotExecute { program, errno } => Some(WorkloadError::CannotExecute {
            program,
            cause: io::Error::from_raw_os_error(errno),
        }),
        WorkloadEnd::NotStarted { what, errno } => {
            let cause = io::Error::from_raw_os_error(errno);
            Some(WorkloadError::NotStarted {
                cause: io::Error::new(cause.kind(), format!("cannot {what}: {cause}")),
            })
        }
    }
}

/// `printed`: two counters and their check word, overwritten in place so that a full disk cannot
/// stop them.
#[derive(Debug)]
pub struct Printed(Option<File>);

/// Distinguishes a torn or empty counter file from one that counts zero.
const CHECK: u64 = 0x6c61_6d70_6c6f_6731;

impl Printed {
    /// Never fails: a holder works without counters too.
    pub fn create(dir: &Path) -> Self {
        let printed = Printed(
            private_files::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(dir.join(PRINTED))
                .ok(),
        );
        printed.set(0, 0);
        printed
    }

    pub fn set(&self, printed: u64, dropped: u64) {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&printed.to_le_bytes());
        bytes[8..16].copy_from_slice(&dropped.to_le_bytes());
        bytes[16..].copy_from_slice(&(printed ^ dropped.rotate_left(1) ^ CHECK).to_le_bytes());
        if let Some(file) = &self.0 {
            // The next update repairs a failed write.
            let _ = file.write_all_at(&bytes, 0);
        }
    }

    /// Opens the counters in a state folder for reading; `None` if there are none yet.
    pub fn open(dir: &Path) -> Option<File> {
        File::open(dir.join(PRINTED)).ok()
    }

    /// The counters of an open file; `None` if they are incomplete.
    pub fn read(file: &File) -> Option<(u64, u64)> {
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (printed, dropped) = (word(0)?, word(8)?);
        (word(16)? == printed ^ dropped.rotate_left(1) ^ CHECK).then_some((printed, dropped))
    }
}

/// Opens `running` for the holder. It is opened for reading and writing, so that it needs no agent.
pub fn open_running_as_holder(dir: &Path) -> io::Result<OwnedFd> {
    make_running(dir)?;
    Ok(File::options().read(true).write(true).open(dir.join(RUNNING))?.into())
}

/// Opens `running` for the agent; it does not wait for a holder.
pub fn open_running_as_agent(dir: &Path) -> io::Result<OwnedFd> {
    Ok(File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(dir.join(RUNNING))?
        .into())
}

/// Makes the pipe if it is missing.
pub fn make_running(dir: &Path) -> io::Result<()> {
    match mkfifoat(CWD, dir.join(RUNNING), Mode::RUSR | Mode::WUSR) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The environment variable that marks all processes of a start, even without their parents.
pub fn mark(dir: &Path) -> (&'static str, String) {
    (
        "LAMP_WORKLOAD",
        fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()).display().to_string(),
    )
}

/// Identifies this boot of the machine, as this process sees it. The kernel's boot id is not enough
/// in a container, where a sandbox may see the host's. The start of the first process differs
/// there.
pub fn boot() -> String {
    let first = fs::read_to_string("/proc/1/stat").unwrap_or_default();
    let ticks = first
        .rsplit(')')
        .next()
        .and_then(|fields| fields.split_ascii_whitespace().nth(19))
        .unwrap_or_default()
        .to_owned();
    format!("{} {ticks}", boot_id())
}

/// Differs after every boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ExitStatus;

    #[test]
    fn reserved_record_reads_like_any_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let reserved = Reserved::new(folder.path(), EXIT);
        assert_eq!(
            read::<Exit>(folder.path(), EXIT).expect("readable"),
            None,
            "not there before it is written"
        );
        let record = Exit {
            format: FORMAT,
            end: WorkloadEnd::Ended(Ended {
                exit: ExitStatus { code: Some(3), ..Default::default() },
                orphans: 2,
                ..Default::default()
            }),
            told: false,
        };
        reserved.write(&record).expect("written");
        assert_eq!(read(folder.path(), EXIT).expect("readable"), Some(record));
        assert_eq!(
            fs::read_to_string(folder.path().join(EXIT)).expect("there"),
            r#"{"format":1,"end":{"ended":{"exit":{"code":3,"signal":null,"oom":false},"orphans":2}}}"#
        );
    }

    #[test]
    fn torn_counters_are_no_counters() {
        let read = |dir: &Path| Printed::open(dir).and_then(|file| Printed::read(&file));
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), None);
        let printed = Printed::create(folder.path());
        assert_eq!(read(folder.path()), Some((0, 0)));
        printed.set(10, 4);
        assert_eq!(read(folder.path()), Some((10, 4)));
        let mut bytes = fs::read(folder.path().join(PRINTED)).expect("there");
        bytes[3] ^= 1;
        fs::write(folder.path().join(PRINTED), &bytes).expect("written");
        assert_eq!(read(folder.path()), None);
    }
}
