//! The folder of a machine of the local cloud: its records, and the writer of each.
//!
//! ```text
//!   <state>/local/<instance>/
//!     instance.json   LocalCloud     its identity; created once, which makes a launch idempotent
//!     machine.json    the machine    its process; created once: a machine boots once
//!     alive           the machine    touched every few seconds
//!     kill-at.json    LocalCloud     a later hard cap
//!     notice.json     LocalCloud     notices for the metadata; the machine ends at their time
//!     terminate.json  LocalCloud     the owner ends it
//!     poweroff.json   the agent      it ends itself
//!     ended.json      the machine, or LocalCloud when the machine was killed; once
//!     released.json   LocalCloud     the attempt is settled: the rest can be removed
//!     start.lock      LocalCloud     held while a stopped machine is started again
//!     machine.log  agent.log
//!     work            the agent      a link to its job's work, one path for all attempts
//! ```
//! Everything else belongs to the agent and is removed when the attempt is settled. A stopped
//! machine keeps all of it, as its disk. When it starts again, the records of its last run are
//! removed. Not here: a process.

#![expect(
    clippy::disallowed_methods,
    reason = "reads and writes the machine's folder, which is what this adapter is for"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::adapters::host::process_tree::ProcessRef;
use crate::instance::{Notice, Tags};
use crate::job::{JobId, ProgressLine};
use crate::market::UsdPerHour;

/// `instance.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceRecord {
    pub instance: String,
    pub tags: BTreeMap<String, String>,
    pub launched: Timestamp,
    pub client_token: String,
    /// The URL of the job directory's root.
    pub job_root: String,
    /// The boot of its launch: a restart of the workstation ends the machine.
    pub boot_id: String,
    pub usd_per_hour: UsdPerHour,
    /// How to call the agent: the program's path, and words before the agent's own.
    pub agent: Vec<String>,
    /// The names under which the agent reaches a job root on S3. Each process resolves the names
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<LocalAws>,
}

/// The part of the user's configuration that says how to reach S3. It never holds a key or a
/// secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAws {
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub region: Option<String>,
    #[serde(default)]
    pub endpoint_url: Option<String>,
}

/// `machine.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRecord {
    pub process: ProcessRef,
    pub boot_id: String,
    pub started: Timestamp,
}

/// `poweroff.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerOffRecord {
    /// `terminate` or `stop`.
    pub how: String,
    pub why: String,
}

/// `ended.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRecord {
    pub at: Timestamp,
    /// In EC2's words: a code such as `Server.SpotInstanceTermination`, a colon, a sentence.
    pub state_reason: String,
    /// It was stopped and can start again; otherwise it is gone for good.
    #[serde(default)]
    pub stopped: bool,
}

/// `kill-at.json`, `terminate.json` and `released.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    pub at: Timestamp,
}

/// Folder beside the machines: the environment for each job's command, saved at submission.
pub const ENVIRONMENTS: &str = "environments";

/// The environment file of a job.
pub fn environment_of(machines: &Path, job: &JobId) -> PathBuf {
    machines.join(ENVIRONMENTS).join(job.as_str())
}

/// The folder of one machine.
#[derive(Clone, Debug)]
pub struct LocalFolder {
    dir: PathBuf,
}

/// The value of `how` for a machine that powers off and keeps its disk.
pub const STOP: &str = "stop";

/// Held while a stopped machine is started again.
const START_LOCK: &str = "start.lock";

/// Records of one run. The next run starts without them.
const OF_A_RUN: [&str; 6] =
    ["machine.json", "poweroff.json", "kill-at.json", "notice.json", "terminate.json", "alive"];

/// Written when the attempt is settled.
pub const RELEASED: &str = "released.json";

/// The folder of what is being removed.
const GONE: &str = "gone";

/// Files that stay when the rest is removed.
const KEPT: [&str; 8] = [
    RELEASED,
    "instance.json",
    "machine.json",
    "ended.json",
    "notice.json",
    "alive",
    "machine.log",
    "agent.log",
];

impl LocalFolder {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        LocalFolder { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// # Errors
    /// When it does not exist or cannot be read.
    pub fn instance(&self) -> io::Result<InstanceRecord> {
        self.read("instance.json")?.ok_or_else(|| {
            io::Error::new(
                ErrorKind::NotFound,
                format!("no instance.json in {}", self.dir.display()),
            )
        })
    }

    pub fn machine(&self) -> io::Result<Option<MachineRecord>> {
        self.read("machine.json")
    }

    pub fn ended(&self) -> io::Result<Option<EndedRecord>> {
        self.read("ended.json")
    }

    pub fn power_off(&self) -> io::Result<Option<PowerOffRecord>> {
        self.read("poweroff.json")
    }

    pub fn terminate(&self) -> io::Result<Option<At>> {
        self.read("terminate.json")
    }

    pub fn kill_at(&self) -> io::Result<Option<At>> {
        self.read("kill-at.json")
    }

    pub fn notices(&self) -> io::Result<Vec<Notice>> {
        Ok(self.read("notice.json")?.unwrap_or_default())
    }

    /// The last time that the machine touched `alive`.
    pub fn last_alive(&self) -> Option<Timestamp> {
        let found = fs::metadata(self.path("alive")).ok()?;
        Timestamp::try_from(found.modified().ok()?).ok()
    }

    pub fn touch_alive(&self) -> io::Result<()> {
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path("alive"))?
            .set_modified(std::time::SystemTime::now())
    }

    /// The saved environment for the command of this machine's job, if there is one.
    pub fn environment(&self, record: &InstanceRecord) -> Option<PathBuf> {
        let job = Tags::from_map(&record.tags).ok()?.job;
        Some(environment_of(self.dir.parent()?, &job)).filter(|file| file.exists())
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes or overwrites. Readers see the old or the new content, never a part.
    pub fn write<T: Serialize>(&self, name: &str, record: &T) -> io::Result<()> {
        let staged = self.stage(record)?;
        fs::rename(&staged, self.path(name))
    }

    /// Writes only if the file does not exist; returns whether it did. The data is on disk on
    /// return.
    pub fn create<T: Serialize>(&self, name: &str, record: &T) -> io::Result<bool> {
        let staged = self.stage(record)?;
        let linked = fs::hard_link(&staged, self.path(name));
        let _ = fs::remove_file(&staged);
        match linked {
            Ok(()) => fs::File::open(&self.dir)?.sync_all().map(|()| true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn stage<T: Serialize>(&self, record: &T) -> io::Result<PathBuf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = self.path(&format!(
            ".tmp-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        Ok(path)
    }

    /// The first and last step in the workload's progress file, which the agent keeps.
    pub fn steps(&self) -> Option<(f64, f64)> {
        let text = fs::read(self.path("agent/progress.jsonl")).ok()?;
        let mut steps = text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| ProgressLine::parse(std::str::from_utf8(line).ok()?).ok()?.step);
        let first = steps.next()?;
        Some((first, steps.next_back().unwrap_or(first)))
    }

    /// Begins another run of a stopped machine; returns whether to start its process now. It can be
    /// repeated: `ended.json` is removed last, and until then the machine is stopped.
    pub fn begin_again(&self, record: &InstanceRecord) -> io::Result<bool> {
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path(START_LOCK))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let begun = self.instance()?.tags == record.tags;
        let Some(ended) = self.ended()? else {
            return if begun {
                Ok(false)
            } else {
                Err(io::Error::other("it runs for another attempt"))
            };
        };
        if !ended.stopped {
            return Err(io::Error::other("it has ended for good"));
        }
        // This end belongs to the current run, not to an older one.
        if begun && ended.at >= self.instance()?.launched {
            return Ok(false);
        }
        if !begun {
            for name in OF_A_RUN {
                match fs::remove_file(self.path(name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.write("instance.json", record)?;
        }
        fs::remove_file(self.path("ended.json"))?;
        fs::File::open(&self.dir)?.sync_all()?;
        Ok(true)
    }

    /// Gives up a stopped machine and its disk.
    pub fn give_up(&self, state_reason: &str) -> io::Result<()> {
        let Some(ended) = self.ended()?.filter(|ended| ended.stopped) else { return Ok(()) };
        self.write(
            "ended.json",
            &EndedRecord { state_reason: state_reason.to_owned(), stopped: false, ..ended },
        )
    }

    /// The folder for what is to be removed; made if it is missing.
    pub fn gone(&self) -> io::Result<PathBuf> {
        let gone = self.path(GONE);
        fs::create_dir_all(&gone)?;
        Ok(gone)
    }

    /// Moves the agent's files into `gone`. Records and logs stay.
    pub fn clear(&self, gone: &Path) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            if KEPT.iter().chain([&GONE]).all(|kept| name != *kept) {
                fs::rename(self.dir.join(&name), gone.join(&name))?;
            }
        }
        Ok(())
    }
}
