//! A machine of the local cloud is a folder: its records and who writes them.
//!
//! ```text
//!   <state>/local/<instance>/
//!     instance.json   LocalCloud     who it is; created once, which makes a launch idempotent
//!     machine.json    the machine    its process; created once: a machine boots once
//!     alive           the machine    touched every few seconds
//!     kill-at.json    LocalCloud     a later hard cap
//!     notice.json     LocalCloud     what the metadata serves; at its time the power is cut
//!     terminate.json  LocalCloud     the owner ends it
//!     poweroff.json   the agent      it ends itself
//!     ended.json      the machine, or LocalCloud when the machine was killed; once
//!     released.json   LocalCloud     the attempt is settled: nobody needs the rest any more
//!     start.lock      LocalCloud     held while a stopped machine is started again
//!     machine.log  agent.log
//!     work            the agent      a link to the work of its job: one path for all attempts (`workload::local_workdir`)
//! ```
//! Anything else in it belongs to the agent and goes when the attempt is settled; but a machine that was stopped keeps all of
//! it, as its disk, until it is started again: then the records of its last run make room for those of the next. What must
//! never live here: a process.

#![expect(clippy::disallowed_methods, reason = "reads and writes the machine's folder, which is what this adapter is for")]

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
use crate::adapters::host::remove_tree::remove_tree;
use crate::adapters::workload::local_workdir;
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
    /// Of the boot in which it was launched: the machine does not survive the workstation.
    pub boot_id: String,
    pub usd_per_hour: UsdPerHour,
    /// How the agent's program is called: the path, and words before its own.
    pub agent: Vec<String>,
    /// Who the agent is to a job root on S3, by name; what stands behind the names, each process of ours asks for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<LocalAws>,
}

/// What the user's configuration says of the way to S3. Never a key, nor anything that one could be made of.
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
    /// In EC2's words: `Server.SpotInstanceTermination`, and a sentence after a colon.
    pub state_reason: String,
    /// It was stopped, and can be started again; else it is gone for good.
    #[serde(default)]
    pub stopped: bool,
}

/// `kill-at.json`, `terminate.json` and `released.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    pub at: Timestamp,
}

/// Beside the machines: what the command of a job inherits, as it was when the job was submitted.
pub const ENVIRONMENTS: &str = "environments";

/// The file of a job there.
pub fn environment_of(machines: &Path, job: &JobId) -> PathBuf {
    machines.join(ENVIRONMENTS).join(job.as_str())
}

/// The folder of one machine.
#[derive(Clone, Debug)]
pub struct LocalFolder {
    dir: PathBuf,
}

/// What a machine asks for that powers itself off and keeps its disk.
pub const STOP: &str = "stop";

/// Held by whoever starts a stopped machine again.
const START_LOCK: &str = "start.lock";

/// Of one run of a machine; the next one begins without them.
const OF_A_RUN: [&str; 6] = ["machine.json", "poweroff.json", "kill-at.json", "notice.json", "terminate.json", "alive"];

/// Written when the attempt was settled.
pub const RELEASED: &str = "released.json";

/// What stays when the rest is cleared away.
const KEPT: [&str; 8] = [RELEASED, "instance.json", "machine.json", "ended.json", "notice.json", "alive", "machine.log", "agent.log"];

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
    /// When it is not there, or is not ours.
    pub fn instance(&self) -> io::Result<InstanceRecord> {
        self.read("instance.json")?.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("no instance.json in {}", self.dir.display())))
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

    /// When the machine last said that it lives.
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

    /// What the command of this machine's job inherits, where that is kept.
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

    /// Writes or overwrites; readers see the old or the new.
    pub fn write<T: Serialize>(&self, name: &str, record: &T) -> io::Result<()> {
        let staged = self.stage(record)?;
        fs::rename(&staged, self.path(name))
    }

    /// Writes only if nothing is there, and says whether it did. On the disk when it returns.
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
        let path = self.path(&format!(".tmp-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        Ok(path)
    }

    /// The first and the last step in the progress file of the workload, which the agent keeps in its own folder.
    pub fn steps(&self) -> Option<(f64, f64)> {
        let text = fs::read(self.path("agent/progress.jsonl")).ok()?;
        let mut steps = text.split(|byte| *byte == b'\n').filter_map(|line| ProgressLine::parse(std::str::from_utf8(line).ok()?).ok()?.step);
        let first = steps.next()?;
        Some((first, steps.next_back().unwrap_or(first)))
    }

    /// The attempt is settled: clears, and notes it, so that the records may go one day.
    pub fn release(&self) -> io::Result<()> {
        self.clear()?;
        self.create(RELEASED, &At { at: Timestamp::now() }).map(drop)
    }

    /// Begins another run of a stopped machine, as this instance; whether its process is to be started now. May be repeated: the
    /// end of the last run goes last, and until then the machine is stopped.
    pub fn begin_again(&self, record: &InstanceRecord) -> io::Result<bool> {
        let lock = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.path(START_LOCK))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let begun = self.instance()?.tags == record.tags;
        let Some(ended) = self.ended()? else { return if begun { Ok(false) } else { Err(io::Error::other("it runs for another attempt")) } };
        if !ended.stopped {
            return Err(io::Error::other("it has ended for good"));
        }
        // An end of this very run is no older one.
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

    /// A stopped machine is given up, with its disk.
    pub fn give_up(&self, state_reason: &str) -> io::Result<()> {
        let Some(ended) = self.ended()?.filter(|ended| ended.stopped) else { return Ok(()) };
        self.write("ended.json", &EndedRecord { state_reason: state_reason.to_owned(), stopped: false, ..ended })
    }

    /// Removes the agent's work; the records and the logs stay.
    pub fn clear(&self) -> io::Result<()> {
        local_workdir::give_up(self)?;
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if KEPT.iter().any(|kept| entry.file_name() == *kept) {
                continue;
            }
            if entry.file_type()?.is_dir() { remove_tree(&entry.path())? } else { fs::remove_file(entry.path())? }
        }
        Ok(())
    }
}
