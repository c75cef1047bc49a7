//! The agent's side of a holder: one started workload, found by its state folder.
//!
//! It reads everything from the folder, so a restarted agent finds a workload again. Waiting costs
//! nothing: the holder keeps a named pipe open until the end is recorded. The kernel reports when
//! the pipe closes, even if the holder was killed.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until, timeout};

use super::containers;
use super::holder::records;
use super::holder::records::{Exit, Printed, Started, WorkloadEnd};
use crate::adapters::host::process_tree::{self, ProcessRef};
use crate::adapters::host::watched_fd::{opened, watch};
use crate::adapters::workstation::private_files;
use crate::job::ExitStatus;
use crate::ports::{Ended, Launch, Scope, Signal, Workload, WorkloadError};

/// How long a holder may take to record the end of its main process. It empties a pipe and writes
/// one record. Only a dead disk takes longer, and then the machine must not wait.
const RECORD_WAIT: Duration = Duration::from_secs(30);
/// The timeout of killing: a process that remains is stuck in the kernel, and only the power-off
/// ends it. If this is longer, it delays that power-off. If it is shorter, it fails on a machine
/// that swaps.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(10);
/// How long a holder without processes may take to end, before the tree is searched anyway. It
/// needs a millisecond. The search reads the environment of every process, which delays the
/// power-off more.
const HOLDER_GONE_WAIT: Duration = Duration::from_millis(50);

/// Variables of a launch that name the places of saves.
const SAVES: [&str; 2] = ["LAMP_CHECKPOINT_DIR", "LAMP_PROGRESS"];

const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();

/// A workload behind its holder.
#[derive(Debug)]
pub struct HeldWorkload {
    pub(crate) dir: PathBuf,
    workdir: PathBuf,
    is_alone: bool,
    pub(crate) started: Started,
    /// The process ids in the record belong to this boot.
    pub(crate) this_boot: bool,
    /// The checkpoint folder, then the progress file: a process that has one open for writing is
    /// the trainer.
    pub(crate) saves: Vec<PathBuf>,
    /// Processes that were told to end, and may be in their last save.
    pub(crate) told: Mutex<Vec<ProcessRef>>,
    /// How the programs of shells ended that were ended here; `None`: unknown, or no shell was.
    pub(crate) end_below_shells: Arc<Mutex<Option<ExitStatus>>>,
    /// The reading end of `running`; `None` if the pipe does not exist.
    running: Option<AsyncFd<OwnedFd>>,
    /// The main process, opened at the first wait: the agent waits anew each second.
    main: OnceLock<io::Result<Option<AsyncFd<OwnedFd>>>>,
    /// When the main process was first seen dead. After an end without a record, also how many
    /// processes it left and their deadline. The agent waits anew each second, and these limits
    /// apply to all waits together.
    died: OnceLock<Instant>,
    unrecorded: OnceLock<(usize, Instant)>,
    record_wait: Duration,
    /// The counters at their last complete reading.
    printed: Mutex<(u64, u64)>,
    /// The file of the counters, which the holder overwrites in place.
    counters: OnceLock<File>,
}

impl HeldWorkload {
    /// The workload of a state folder; `None` if its holder has recorded no start (yet).
    pub fn open(dir: &Path) -> Result<Option<Self>, WorkloadError> {
        let failed = |cause| WorkloadError::Failed { act: "find", cause };
        let Some(launch) = records::read::<Launch>(dir, records::LAUNCH).map_err(failed)? else {
            return Ok(None);
        };
        let Some(started) = records::read::<Started>(dir, records::STARTED).map_err(failed)? else {
            return records::refused(dir).map_or(Ok(None), Err);
        };
        let running = match records::open_running_as_agent(dir) {
            Ok(running) => Some(watch(running).map_err(failed)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let mut workload = HeldWorkload {
            dir: dir.to_owned(),
            saves: SAVES
                .iter()
                .filter_map(|name| launch.env.get(*name))
                .map(PathBuf::from)
                .collect(),
            told: Mutex::default(),
            end_below_shells: Arc::default(),
            workdir: launch.cwd,
            is_alone: launch.echo,
            started,
            this_boot: true,
            running,
            main: OnceLock::new(),
            died: OnceLock::new(),
            unrecorded: OnceLock::new(),
            record_wait: RECORD_WAIT,
            printed: Mutex::new((0, 0)),
            counters: OnceLock::new(),
        };
        // In a container, two views of one boot may have two ids. A held pipe or the mark then
        // decides.
        workload.this_boot = workload.started.boot_id == records::boot_id()
            || workload.held()
            || workload.main_has_the_mark();
        Ok(Some(workload))
    }

    fn main_has_the_mark(&self) -> bool {
        let (name, value) = records::mark(&self.dir);
        process_tree::with_environment(name, &value).contains(&self.started.workload)
    }

    fn recorded(&self) -> Option<Ended> {
        match records::read::<Exit>(&self.dir, records::EXIT) {
            Ok(Some(Exit { end: WorkloadEnd::Ended(ended), told, .. })) => {
                Some(Ended { told, exit: self.own_exit(ended.exit), ..ended })
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "the record of the workload's end cannot be read");
                None
            }
        }
    }

    /// The exit of a shell that was ended here is our doing: its program's own exit counts.
    fn own_exit(&self, exit: ExitStatus) -> ExitStatus {
        let is_ours = exit.signal == Some(SIGTERM) || exit.code == Some(128 + SIGTERM);
        let below = self.end_below_shells.lock().unwrap_or_else(PoisonError::into_inner);
        below.filter(|_| is_ours).unwrap_or(exit)
    }

    /// Whether the holder has not recorded the end yet: it keeps the pipe open.
    fn held(&self) -> bool {
        let Some(running) = &self.running else { return false };
        // The bytes are the word "started", for an earlier agent.
        loop {
            match rustix::io::read(running.get_ref(), &mut [0; 16]) {
                Ok(0) => return false,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Waits until the holder closes the pipe.
    async fn released(&self) {
        let Some(running) = &self.running else { return };
        while self.held() {
            match running.readable().await {
                Ok(mut readiness) if self.held() => readiness.clear_ready(),
                _ => return,
            }
        }
    }

    /// Waits until a process is dead; waits for ever if it cannot be watched.
    async fn dead(&self, process: &io::Result<Option<AsyncFd<OwnedFd>>>) {
        match process {
            Ok(Some(process)) => drop(process.readable().await),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "a process cannot be watched");
                pending().await
            }
        }
    }

    async fn main_dead(&self) {
        if !self.this_boot {
            return;
        }
        self.dead(self.main.get_or_init(|| opened(self.started.workload))).await;
    }

    async fn holder_dead(&self) {
        if !self.this_boot {
            return;
        }
        self.dead(&opened(self.started.holder)).await;
    }

    /// How the containers of this workload are recognised. For a run in the foreground, the folder
    /// and the machine belong to the user.
    fn containers_of(&self) -> containers::ContainerOwner {
        let is_alone = self.is_alone;
        let since = private_files::modified(&self.dir.join(records::LAUNCH))
            .filter(|_| self.started.cgroup.is_some() && !is_alone);
        containers::ContainerOwner {
            folders: if is_alone { Vec::new() } else { vec![self.workdir.clone()] },
            all_since: since,
        }
    }

    async fn kill_processes(&self) -> Result<(), WorkloadError> {
        // The usual end: only the main process existed, and the holder has ended too.
        let nothing_outlived = self.recorded().is_some_and(|ended| ended.orphans == 0);
        if nothing_outlived && timeout(HOLDER_GONE_WAIT, self.holder_dead()).await.is_ok() {
            return Ok(());
        }
        self.end_rest().await;
        self.mark_killed();
        self.ask_holder_to_kill();
        self.kill_until_nothing_is_left(Instant::now() + KILL_WAIT).await?;
        // Its record of the end and the rest of the log are read next, so wait for them.
        if timeout(RECORD_WAIT, self.holder_dead()).await.is_err() {
            tracing::warn!(dir = %self.dir.display(), "the holder still runs after its workload has ended");
        }
        Ok(())
    }
}

#[async_trait]
impl Workload for HeldWorkload {
    fn scope(&self) -> Scope {
        let pid = |process: ProcessRef| self.this_boot.then_some(process.pid);
        Scope {
            root_pid: pid(self.started.workload),
            holder_pid: pid(self.started.holder),
            cgroup: self.started.cgroup.clone(),
            workdir: self.workdir.clone(),
            ..Scope::default()
        }
    }

    async fn ended(&self) -> Ended {
        let late = async {
            self.main_dead().await;
            sleep_until(*self.died.get_or_init(Instant::now) + self.record_wait).await;
        };
        tokio::select! {
            () = self.released() => {}
            () = late => {}
        }
        if let Some(ended) = self.recorded() {
            return ended;
        }
        let (orphans, until) = *self.unrecorded.get_or_init(|| {
            tracing::error!(dir = %self.dir.display(), "the holder has left no record of the workload's end; killing what is left");
            (self.kill_round(), Instant::now() + KILL_WAIT)
        });
        if let Err(error) = self.kill_until_nothing_is_left(until).await {
            tracing::error!(%error, "the rest of the workload stays");
        }
        // A unit that does not end in time is killed as a whole.
        let told = std::fs::exists(self.dir.join(records::TOLD)).unwrap_or(false);
        Ended {
            exit: ExitStatus::default(),
            orphans: u32::try_from(orphans).unwrap_or(u32::MAX),
            behind: 0,
            told,
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), WorkloadError> {
        // The group has the id of the main process. While that process exists, even as a zombie,
        // the id is its own. Once the holder has waited for it, another process may get the id.
        let main = self.started.workload;
        let Some(group) = i32::try_from(main.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        if !self.this_boot || !main.exists() {
            return Ok(());
        }
        if signal == Signal::Kill {
            self.mark_killed();
        }
        let sent = rustix::process::kill_process_group(group, number(signal));
        if signal == Signal::Term {
            self.signal_outside(number(signal));
            // A stopped process receives the signal only when it continues.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::CONT);
        }
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(WorkloadError::Failed { act: "signal", cause: errno.into() }),
        }
    }

    fn ask(&self, signal: Signal) -> Result<u32, WorkloadError> {
        Ok(self.ask_listeners(signal))
    }

    fn tell(&self, signal: Signal) -> Result<u32, WorkloadError> {
        self.tell_listeners(signal)
    }

    fn tell_rest(&self) {
        self.tell_all_but_the_told();
    }

    async fn kill_tree(&self) -> Result<(), WorkloadError> {
        // A client's words tell which containers it started; they end with the client.
        let below = if self.this_boot {
            process_tree::descendants(if self.started.holder.exists() {
                self.started.holder
            } else {
                self.started.workload
            })
        } else {
            Vec::new()
        };
        let clients = containers::clients(below.into_iter().map(|process| process.pid));
        let killed = self.kill_processes().await;
        let stopped = containers::end(clients, self.containers_of()).await;
        killed.and(
            stopped.map_err(|cause| WorkloadError::Failed { act: "stop a container of", cause }),
        )
    }

    async fn open_for_writing(&self, folder: &Path) -> Option<BTreeSet<String>> {
        let (holder, folder) = (self.started.holder, folder.to_owned());
        if !self.this_boot {
            return Some(BTreeSet::new());
        }
        tokio::task::spawn_blocking(move || super::open_files::below(holder, &folder))
            .await
            .ok()
            .flatten()
    }

    fn printed(&self) -> (u64, u64) {
        let mut last = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.counters.get().is_none()
            && let Some(file) = Printed::open(&self.dir)
        {
            let _ = self.counters.set(file);
        }
        if let Some(now) = self.counters.get().and_then(Printed::read) {
            *last = now;
        }
        *last
    }
}

pub(crate) fn number(signal: Signal) -> rustix::process::Signal {
    use rustix::process::Signal as Number;
    match signal {
        Signal::Term => Number::TERM,
        Signal::Kill => Number::KILL,
        Signal::Usr1 => Number::USR1,
        Signal::Usr2 => Number::USR2,
        Signal::Int => Number::INT,
        Signal::Hup => Number::HUP,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that does nothing, until it is dropped.
    struct Asleep(Child);

    impl Asleep {
        fn new() -> (Self, ProcessRef) {
            let child = Command::new("sleep").arg("1000").spawn().expect("`sleep` is installed");
            let process = ProcessRef::of(child.id()).expect("nobody has waited for it");
            (Asleep(child), process)
        }
    }

    impl Drop for Asleep {
        fn drop(&mut self) {
            let _ = (self.0.kill(), self.0.wait());
        }
    }

    #[tokio::test]
    async fn hanging_holder_is_given_up_also_by_repeated_short_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        let ((_holder, holder), (mut main, workload)) = (Asleep::new(), Asleep::new());
        let launch = serde_json::json!({"name": "n", "argv": ["sleep"], "cwd": dir, "env": {}, "dir": dir, "log_bytes_max": 1, "echo": false});
        records::write(dir, records::LAUNCH, &launch).expect("written");
        let started = Started {
            format: records::FORMAT,
            boot_id: records::boot_id(),
            holder,
            workload,
            cgroup: None,
        };
        records::write(dir, records::STARTED, &started).expect("written");
        let _held = records::open_running_as_holder(dir).expect("a pipe");
        holder.signal(rustix::process::Signal::STOP).expect("it is ours");

        let mut asked = HeldWorkload::open(dir).expect("readable").expect("it was started");
        asked.record_wait = Duration::from_millis(500);
        let slice = Duration::from_millis(50);
        assert!(timeout(slice, asked.ended()).await.is_err(), "it runs");
        main.0.kill().expect("it is ours");
        let end = Instant::now() + Duration::from_secs(30);
        let ended = loop {
            if let Ok(ended) = timeout(slice, asked.ended()).await {
                break ended;
            }
            assert!(Instant::now() < end, "it is waited for without end");
        };
        assert_eq!(ended, Ended::default(), "nobody knows how");
        assert!(holder.alive(), "it hangs still");
    }
}
