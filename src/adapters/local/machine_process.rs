//! The process that acts as a machine of the local cloud: its init and its hypervisor.
//!
//! ```text
//!   agent machine <dir>                    own session, reaps every orphan below it
//!     └─ agent boot --local <dir>          restarted after a crash; killed with the machine
//!          └─ holder ── workload           outlives a crash of the agent, not of the machine
//!
//!   poweroff.json   (agent)          ─┐
//!   kill-at         (hard cap)        ├─> kill everything below, write ended.json, exit
//!   notice.json     (its time came)   │
//!   terminate.json  (owner)          ─┘
//! ```
//! It polls its folder ten times a second: four system calls, about a third of a CPU second an
//! hour. A poll cannot miss an event; an inotify queue can. It never touches the workstation
//! itself.
//!
//! Not here: a decision about the job.

#![expect(
    clippy::disallowed_methods,
    reason = "it is a machine: it has a clock, a disk and processes"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, WaitOptions};

use super::job_workdir;
use super::machine_folder::{EndedRecord, InstanceRecord, LocalFolder, MachineRecord, STOP};
use crate::adapters::host::process_tree::{ProcessRef, tree, with_environment};
use crate::adapters::host::system_clock::since_boot;
use crate::adapters::workload::holder::records::boot_id;
use crate::instance::{Notice, NoticeKind, Tags};
use crate::market::elapsed;

/// Longer delays the end of every attempt by as much. Shorter costs CPU all day.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often the machine touches `alive`. After a crash of the workstation its bill ends at the
/// last touch.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// Pause before a restart of the agent. Shorter spins on an agent that cannot start. Longer leaves
/// the workload unwatched.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A process that survives SIGKILL this long hangs in the kernel; more waiting does not help.
const KILL_WITHIN: Duration = Duration::from_secs(30);

/// A log longer than this starts anew: a crash loop must not fill the disk.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The environment variable that marks every process of a machine.
pub const INSTANCE_VARIABLE: &str = "LAMP_INSTANCE";

/// Runs the machine of this folder until it ends.
pub fn main(dir: &Path) -> ExitCode {
    match MachineProcess::boot(LocalFolder::new(dir)) {
        Ok(Some(machine)) => machine.run(),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("cannot boot: {error}"));
            ExitCode::FAILURE
        }
    }
}

struct MachineProcess {
    folder: LocalFolder,
    record: InstanceRecord,
    /// The wall clock at the boot, and the monotonic clock at that moment.
    booted: (Timestamp, Duration),
    agent: Option<Child>,
    restart_at: Duration,
    alive_at: Duration,
    /// Deadlines use the monotonic clock, which does not step.
    kill_at: Deadline,
    /// The highest cap seen. Caps only rise, so a failed read must not lower it.
    raised: Option<Timestamp>,
    reclaim_at: Deadline,
    /// Held until the process ends: two processes never run one machine.
    _lock: File,
}

/// A wall-clock deadline, converted to the monotonic clock when first seen.
#[derive(Default)]
struct Deadline {
    wall: Option<Timestamp>,
    steady: Duration,
}

impl Deadline {
    fn set(&mut self, wall: Option<Timestamp>, now: Timestamp) {
        if self.wall != wall {
            self.wall = wall;
            let left = wall.map(|wall| elapsed(now, wall));
            self.steady = since_boot() + left.unwrap_or_default();
        }
    }

    fn passed(&self) -> bool {
        self.wall.is_some() && since_boot() >= self.steady
    }
}

impl MachineProcess {
    /// `None`: another process runs this machine, or this run of it has ended.
    fn boot(folder: LocalFolder) -> io::Result<Option<MachineProcess>> {
        let record = folder.instance()?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.path("machine.lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
            || folder.ended()?.is_some()
        {
            return Ok(None);
        }
        let me = ProcessRef::of(std::process::id()).ok_or_else(|| io::Error::other("no /proc"))?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let booted = (Timestamp::now(), since_boot());
        if !folder.create(
            "machine.json",
            &MachineRecord { process: me, boot_id: boot_id(), started: booted.0 },
        )? {
            return Ok(None);
        }
        folder.touch_alive()?;
        let machine = MachineProcess {
            folder,
            record,
            booted,
            agent: None,
            restart_at: Duration::ZERO,
            alive_at: Duration::ZERO,
            kill_at: Deadline::default(),
            raised: None,
            reclaim_at: Deadline::default(),
            _lock: lock,
        };
        machine.log(&format!("{} boots", machine.record.instance));
        Ok(Some(machine))
    }

    /// The wall clock at the boot plus the monotonic time since. A step of the wall clock must not
    /// change the bill or the hard cap.
    fn now(&self) -> Timestamp {
        let (wall, then) = self.booted;
        wall.saturating_add(since_boot().saturating_sub(then)).unwrap_or(wall)
    }

    fn run(mut self) -> ExitCode {
        loop {
            if let Some((reason, stopped)) = self.end_reason() {
                return self.end(&reason, stopped);
            }
            self.reap();
            let now = since_boot();
            if self.agent.is_none() && now >= self.restart_at {
                self.start_agent();
            }
            if now >= self.alive_at {
                self.alive_at = now + ALIVE_EVERY;
                if let Err(error) = self.folder.touch_alive() {
                    self.log(&format!("cannot say that I live: {error}"));
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Why the machine ends now, in EC2's words, and whether it can start again. An unreadable
    /// record ends no machine.
    fn end_reason(&mut self) -> Option<(String, bool)> {
        if let Ok(Some(_)) = self.folder.terminate() {
            return Some(("Client.UserInitiatedShutdown: terminated by its owner".into(), false));
        }
        if let Ok(Some(record)) = self.folder.power_off() {
            return Some((
                format!("Client.InstanceInitiatedShutdown: {}", record.why),
                record.how == STOP,
            ));
        }
        let tagged = Tags::from_map(&self.record.tags).ok().and_then(|tags| tags.kill_at);
        self.raised = self.raised.max(self.folder.kill_at().ok().flatten().map(|record| record.at));
        self.kill_at.set(tagged.max(self.raised), self.now());
        if self.kill_at.passed() {
            return Some((
                "Client.InstanceInitiatedShutdown: the hard cap kill-at has passed".into(),
                false,
            ));
        }
        let notices = self.folder.notices().unwrap_or_default();
        let interruption =
            notices.iter().find(|notice: &&Notice| notice.kind == NoticeKind::Interruption);
        self.reclaim_at.set(interruption.map(|notice| notice.at), self.now());
        self.reclaim_at
            .passed()
            .then(|| ("Server.SpotInstanceTermination: rehearsed".into(), false))
    }

    fn start_agent(&mut self) {
        self.restart_at = since_boot() + RESTART_PAUSE;
        match self.spawn_agent() {
            Ok(child) => {
                self.log(&format!("agent started, pid {}", child.id()));
                self.agent = Some(child);
            }
            Err(error) => self.log(&format!("cannot start the agent: {error}")),
        }
    }

    fn spawn_agent(&self) -> io::Result<Child> {
        let (program, words) = self
            .record
            .agent
            .split_first()
            .ok_or_else(|| io::Error::other("instance.json names no agent"))?;
        let log = log_file(&self.folder.path("agent.log"))?;
        let mut command = Command::new(program);
        command.args(words).args(["boot", "--local"]).arg(self.folder.dir());
        command.env(INSTANCE_VARIABLE, &self.record.instance).current_dir(self.folder.dir());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // SAFETY: prctl(2) is one system call; it touches no memory of ours between fork and exec.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        command.spawn()
    }

    /// Reaps all ended processes below: the agent and, as subreaper, every orphan.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if self
                .agent
                .as_ref()
                .is_some_and(|agent| i64::from(agent.id()) == i64::from(pid.as_raw_nonzero().get()))
            {
                self.agent = None;
                self.restart_at = since_boot() + RESTART_PAUSE;
                self.log(&format!("agent ended ({status:?}), starting it again"));
            }
        }
    }

    fn end(&mut self, reason: &str, stopped: bool) -> ExitCode {
        self.log(&format!("ends: {reason}"));
        // The bill ends with the decision, as when EC2 leaves `running`.
        let record = EndedRecord { at: self.now(), state_reason: reason.to_owned(), stopped };
        self.kill_everything();
        // With a full disk the record waits. All processes that cost anything are already killed.
        while let Err(error) = self.folder.create("ended.json", &record) {
            self.log(&format!("cannot write ended.json: {error}"));
            if error.kind() == io::ErrorKind::StorageFull
                && !stopped
                && let Err(error) = job_workdir::empty(&self.folder)
            {
                self.log(&format!("cannot make room: {error}"));
            }
            std::thread::sleep(RESTART_PAUSE);
        }
        ExitCode::SUCCESS
    }

    fn kill_everything(&mut self) {
        let until = since_boot() + KILL_WITHIN;
        while since_boot() < until {
            self.reap();
            let left = kill_below(Some(std::process::id()), &self.record.instance);
            if left == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.log("something survives SIGKILL, most likely in a broken driver or file system");
    }

    fn log(&self, text: &str) {
        say(&format!("machine: {text}"));
    }
}

/// Writes one line to the machine's log. `eprintln!` would panic on a full disk and end the
/// machine.
fn say(text: &str) {
    let _lost =
        std::io::Write::write_fmt(&mut io::stderr(), format_args!("{} {text}\n", Timestamp::now()));
}

/// Sends SIGKILL to all descendants of a process and to all that carry the instance in their
/// environment. Spares the process itself and this one. Returns how many there were.
pub(crate) fn kill_below(root: Option<u32>, instance: &str) -> usize {
    let mut pids = root.map(tree).unwrap_or_default();
    pids.extend(
        with_environment(INSTANCE_VARIABLE, instance).into_iter().map(|process| process.pid),
    );
    pids.sort_unstable();
    pids.dedup();
    let spared = |pid: &u32| Some(*pid) == root || *pid == std::process::id();
    let alive = pids
        .into_iter()
        .filter(|pid| !spared(pid))
        .filter_map(ProcessRef::of)
        .filter(|process| process.alive());
    // A failed signal means that the process is gone, or the next round sees it again.
    alive.map(|process| drop(process.signal(Signal::KILL))).count()
}

/// Opens a log for appending. A log that is too long starts anew.
pub(crate) fn log_file(path: &Path) -> io::Result<File> {
    let long = std::fs::metadata(path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
    if long {
        File::create(path)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}
