//! The holder: the small process between the agent and the workload.
//!
//! The agent may be killed, upgraded or restarted at any moment; the holder stays. It starts the
//! command, keeps its output, adopts what forks away, and writes down how the main process ended.
//! One thread, no runtime, bounded memory.
//!
//! ```text
//!   agent ── launch.json ──> holder ── fork, exec ──> workload (own process group)
//!     ^                      |  ^  ^                     |  └── children, adopted when orphaned
//!     └── started.json ──────┘  |  └───── stdout+stderr ─┘
//!     └── exit.json, log/ ──────┘
//! ```
//!
//! It ends when the whole tree has ended. If the process that represents its local machine dies, it
//! kills the tree and ends at once: the local cloud simulates a power cut in this way. Not here:
//! anything that needs a running agent, or waits for anything but the workload.

#![expect(clippy::disallowed_methods, reason = "counts time, and looks at the state folder")]

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, set_child_subreaper, setsid, wait};

use super::cgroup::{self, Groups, OomWatch};
use super::echo::Echo;
use super::log_segments::SegmentedLog;
use super::records;
use super::records::{Exit, FORMAT, Printed, Reserved, Started, WorkloadEnd};
use super::redrawn_lines::Redraw;
use super::signals::Signals;
use super::spawn::{PIPE_BYTES, Spawned, spawn};
use crate::adapters::host::process_tree::{ProcessRef, descendants, stat};
use crate::adapters::workload::saved_environment::{self, Variable};
use crate::adapters::workstation::private_files;
use crate::job::ExitStatus;
use crate::ports::{Ended, Launch};

/// The size of one read from the pipe. If it is smaller, a flood costs system calls. If it is
/// larger than the processor's cache, it costs time. Measured: 64 KiB to 1 MiB are equal.
const READ_BYTES: usize = 64 << 10;
/// The most that is read before the loop checks other events: a flood must not hide the end of the
/// machine. A terminal gives 4 KiB at a time.
const BYTES_IN_A_ROW: usize = 64 * READ_BYTES;
/// The greatest age of the counters in `printed`. The agent looks about once a second, and no
/// decision depends on them alone.
const COUNTERS_AGE_MAX: Duration = Duration::from_millis(250);
/// How long the end of the workload waits for a slow reader of the echo. It delays the power-off
/// too.
const ECHO_PATIENCE: Duration = Duration::from_millis(200);
/// How long processes may outlive a successful command before they count as left behind: shells,
/// loggers and pools need some hundredths of a second. If this is longer, it delays the end of
/// every job with a daemon.
const ENDING_ORPHANS: Duration = Duration::from_millis(500);
/// The time between two looks at them.
const ORPHANS_LOOK: Duration = Duration::from_millis(20);
/// A stopped unit ends within this time: `TimeoutStopSec` of the unit, twice, for a busy machine.
/// If this is longer, a stray signal changes the meaning of a later end.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
/// The time between two rounds of SIGKILL.
const KILL_ROUND: Duration = Duration::from_millis(20);

/// The exit code of a failed holder. Codes from 64 on are for a program's own use (`sysexits.h`).
const EXIT_CANNOT_HOLD: i32 = 70;
/// The exit code of a power cut.
const EXIT_POWER_CUT: i32 = 137;

/// Runs the holder for the state folder `dir` and returns its exit code. With `machine_pid` it ends
/// with that process. `environment`: the file with the environment of the command.
pub fn main(dir: &Path, machine_pid: Option<u32>, environment: Option<&Path>) -> i32 {
    match hold(dir, machine_pid, environment) {
        Ok(Over::TreeGone) => 0,
        Ok(Over::PowerCut) => EXIT_POWER_CUT,
        Err(error) => {
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("lamp holder: {error}\n"));
            EXIT_CANNOT_HOLD
        }
    }
}

/// Why the holder has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    TreeGone,
    PowerCut,
}

fn hold(dir: &Path, machine_pid: Option<u32>, environment: Option<&Path>) -> io::Result<Over> {
    // With another process name, ending the agent by name does not end the holder.
    let _ = rustix::thread::set_name(c"lamp-holder");
    // It fails for a session leader, which is fine.
    let _ = setsid();
    let lock = private_files::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(records::LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let machine = match machine_pid.map(open_machine).transpose()? {
        Some(None) => return Ok(Over::PowerCut),
        machine => machine.flatten(),
    };
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = Signals::install()?;
    // A restarted unit runs the same holder again; the command must not run twice.
    if [records::STARTED, records::EXIT]
        .iter()
        .any(|record| std::fs::exists(dir.join(record)).unwrap_or(true))
    {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "this state folder had its start"));
    }
    let launch: Launch = records::read(dir, records::LAUNCH)?
        .ok_or_else(|| io::Error::new(ErrorKind::NotFound, "there is no `launch.json`"))?;
    Holder::start(dir, &launch, machine, signals, base(environment))?
        .map_or(Ok(Over::TreeGone), Holder::run)
}

/// The environment of the command: the saved one, else the environment of this process.
fn base(environment: Option<&Path>) -> Vec<Variable> {
    match environment.map(saved_environment::read) {
        Some(Ok(kept)) => kept,
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => {
            let _ = io::Write::write_fmt(
                &mut io::stderr(),
                format_args!("lamp holder: the kept environment cannot be read: {error}\n"),
            );
            saved_environment::inherited()
        }
        _ => saved_environment::inherited(),
    }
}

/// A descriptor for the process that represents the machine; `None` if it has ended already.
fn open_machine(pid: u32) -> io::Result<Option<OwnedFd>> {
    match ProcessRef::of(pid) {
        Some(process) if process.alive() => process.open(),
        _ => Ok(None),
    }
}

struct Holder {
    dir: PathBuf,
    this: ProcessRef,
    main: Pid,
    machine: Option<OwnedFd>,
    signals: Signals,
    /// `None` once every writer has closed it.
    output: Option<File>,
    log: SegmentedLog,
    /// `None`: the log has each byte.
    redraw: Option<Redraw>,
    echo: Option<Echo>,
    printed: Printed,
    /// Since when the counters on disk are outdated.
    counters_old_since: Option<Instant>,
    groups: Option<Groups>,
    oom: OomWatch,
    /// When a service manager last told the unit to end.
    told: Option<Instant>,
    /// Both are released after the main process has ended: the agent then reads the record.
    exit: Option<(Reserved, OwnedFd)>,
    buffer: Vec<u8>,
}

/// The events that woke the loop.
#[derive(Clone, Copy, Debug, Default)]
struct HolderEvents {
    signal: bool,
    output: bool,
    power_cut: bool,
}

impl Holder {
    /// Starts the workload. `None`: it could not be started, and the record says so.
    fn start(
        dir: &Path,
        launch: &Launch,
        machine: Option<OwnedFd>,
        signals: Signals,
        base: Vec<Variable>,
    ) -> io::Result<Option<Self>> {
        let mut log = SegmentedLog::new(&dir.join(records::LOG), launch.log_bytes_max);
        let (started, exit) =
            (Reserved::new(dir, records::STARTED), Reserved::new(dir, records::EXIT));
        let running = records::open_running_as_holder(dir)?;
        let groups = Groups::of_unit(&cgroup::unit_name(&launch.name));
        let this = ProcessRef::of(std::process::id()).ok_or(ErrorKind::NotFound)?;
        let oom = OomWatch::begin(groups.as_ref());
        let Spawned { pid, output, no_terminal } = match spawn(dir, launch, groups.as_ref(), base) {
            Ok(spawned) => spawned,
            Err(end) => {
                exit.write(&Exit { format: FORMAT, end, told: false })?;
                return Ok(None);
            }
        };
        if let Some(error) = no_terminal {
            log.keep(
                format!(
                    "[lamp: no terminal is to be had ({error}): what is printed may come late]\n"
                )
                .as_bytes(),
            );
        }
        let mut holder = Holder {
            dir: dir.to_owned(),
            this,
            main: i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?,
            machine,
            signals,
            output: Some(output),
            log,
            redraw: launch.terminal.then(Redraw::default),
            echo: launch.echo.then(Echo::to_stdout).flatten(),
            printed: Printed::create(dir),
            counters_old_since: None,
            groups,
            oom,
            told: None,
            exit: None,
            buffer: vec![0; READ_BYTES],
        };
        if let Err(error) = holder.record_start(started, pid) {
            // An agent finds a workload only by its record, so this one must end.
            holder.kill_everything()?;
            return Err(error);
        }
        rustix::io::write(&running, b"s")?;
        holder.exit = Some((exit, running));
        Ok(Some(holder))
    }

    fn record_start(&self, started: Reserved, pid: u32) -> io::Result<()> {
        started.write(&Started {
            format: FORMAT,
            boot_id: records::boot_id(),
            holder: self.this,
            // An ended process keeps its id until it is waited for.
            workload: ProcessRef::of(pid).ok_or(ErrorKind::NotFound)?,
            cgroup: self.groups.as_ref().map(|groups| groups.workload.clone()),
        })
    }

    fn run(mut self) -> io::Result<Over> {
        loop {
            let wake = self.wait_for_something()?;
            if wake.power_cut {
                self.kill_everything()?;
                return Ok(Over::PowerCut);
            }
            if wake.output {
                self.pump(BYTES_IN_A_ROW);
            }
            if let Some(redraw) = &mut self.redraw {
                redraw.write_due(Instant::now(), &mut |bytes| self.log.keep(bytes));
            }
            if self.echo.as_mut().is_some_and(|echo| !echo.flush()) {
                self.echo = None;
            }
            if self.counters_old_since.is_some_and(|since| since.elapsed() >= COUNTERS_AGE_MAX) {
                self.write_counters();
            }
            if wake.signal {
                self.signals.clear();
                self.is_told();
                if self.reap()? {
                    break;
                }
                if std::fs::exists(self.dir.join(records::KILL_TREE)).unwrap_or(false) {
                    self.kill_round();
                }
            }
        }
        // All writers have ended, so the pipe holds the rest.
        self.settle_output(usize::MAX);
        Ok(Over::TreeGone)
    }

    /// Sleeps until an event; there are no timers while it is idle.
    fn wait_for_something(&self) -> io::Result<HolderEvents> {
        let mut descriptors = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut place = |descriptor| {
            descriptors.push(descriptor);
            descriptors.len() - 1
        };
        let output = self.output.as_ref().map(|output| place(PollFd::new(output, PollFlags::IN)));
        let machine =
            self.machine.as_ref().map(|machine| place(PollFd::new(machine, PollFlags::IN)));
        if let Some(echo) = self.echo.as_ref().filter(|echo| echo.wants_to_write()) {
            place(PollFd::new(echo.file(), PollFlags::OUT));
        }
        let counters =
            self.counters_old_since.map(|since| COUNTERS_AGE_MAX.saturating_sub(since.elapsed()));
        let redraw = self
            .redraw
            .as_ref()
            .and_then(Redraw::due)
            .map(|due| due.saturating_duration_since(Instant::now()));
        let patience = counters.into_iter().chain(redraw).min();
        let patience =
            patience.map(Timespec::try_from).transpose().map_err(|_| ErrorKind::InvalidData)?;
        match poll(&mut descriptors, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = |at: Option<usize>| at.is_some_and(|at| !descriptors[at].revents().is_empty());
        Ok(HolderEvents {
            signal: ready(Some(0)),
            output: ready(output),
            power_cut: ready(machine),
        })
    }

    /// Reads the pipe or terminal until it is empty, or slightly more than this limit.
    fn pump(&mut self, bytes_max: usize) {
        let mut taken: usize = 0;
        while taken < bytes_max {
            let filled = self.fill();
            if filled == 0 {
                return;
            }
            taken = taken.saturating_add(filled);
            self.keep(filled);
        }
    }

    /// Reads until the buffer is full or nothing is left. A terminal gives at most 4 KiB a read,
    /// and each write to the log costs as much as a read.
    fn fill(&mut self) -> usize {
        let mut filled = 0;
        while filled < READ_BYTES {
            let Some(output) = self.output.as_mut() else { break };
            match output.read(&mut self.buffer[filled..]) {
                Ok(0) => self.output = None,
                // No writer has the terminal open any more.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
                {
                    self.output = None
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Empty for now.
                Err(_) => break,
            }
        }
        filled
    }

    /// Keeps the first bytes of the buffer.
    fn keep(&mut self, filled: usize) {
        let bytes = &self.buffer[..filled];
        self.log.count(filled);
        match &mut self.redraw {
            Some(redraw) => redraw.take(bytes, Instant::now(), &mut |bytes| self.log.keep(bytes)),
            None => self.log.keep(bytes),
        }
        if self.echo.as_mut().is_some_and(|echo| !echo.offer(bytes)) {
            self.echo = None;
        }
        self.counters_old_since.get_or_insert_with(Instant::now);
    }

    /// Waits for all ended processes, including adopted ones. `true` when none are left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.record_end(status)?,
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                Err(rustix::io::Errno::CHILD) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The main process has ended: handles its output, then the record, then the pipe that the
    /// agent waits on.
    fn record_end(&mut self, status: WaitStatus) -> io::Result<()> {
        // Only the present content of the pipe: orphans may write for ever.
        self.settle_output(PIPE_BYTES + READ_BYTES);
        let signal = status.terminating_signal();
        let sent_by_us = std::fs::exists(self.dir.join(records::KILLED)).unwrap_or(false);
        let died_of_sigkill = signal == Some(Signal::KILL.as_raw());
        let exit = ExitStatus {
            code: status.exit_status(),
            signal,
            oom: self.oom.killed(died_of_sigkill, sent_by_us),
        };
        let (orphans, behind) =
            self.left_behind(if exit.success() { ENDING_ORPHANS } else { Duration::ZERO });
        let end = WorkloadEnd::Ended(Ended { exit, orphans, behind, told: false });
        match self.exit.take() {
            Some((record, _running)) => {
                record.write(&Exit { format: FORMAT, end, told: self.is_told() })
            }
            None => Ok(()),
        }
    }

    /// The processes that outlive the main one. A process that is about to end, such as the `tee`
    /// of a shell's redirection, gets a moment. Returns how many there are, and how many are in the
    /// command's own session.
    fn left_behind(&mut self, patience: Duration) -> (u32, u32) {
        let until = Instant::now() + patience;
        loop {
            let orphans: Vec<ProcessRef> =
                descendants(self.this).into_iter().filter(|process| process.alive()).collect();
            if orphans.is_empty() || Instant::now() >= until {
                // Read from `/proc`, because the session id is zero if its leader is outside this
                // PID namespace.
                let session = |pid| stat(pid).map(|found| found.session);
                let own = session(self.this.pid);
                let is_in_it = |process: &&ProcessRef| session(process.pid) == own;
                let number = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
                return (number(orphans.len()), number(orphans.iter().filter(is_in_it).count()));
            }
            std::thread::sleep(ORPHANS_LOOK);
            self.pump(PIPE_BYTES.div_ceil(READ_BYTES) + 1);
        }
    }

    /// Whether a service manager is ending the unit. A single stray signal, hours ago, does not
    /// count.
    fn is_told(&mut self) -> bool {
        if Signals::take_told() {
            self.told = Some(Instant::now());
            // A unit that does not end in time is killed with its holder: the agent then finds this
            // file and no record.
            let _ = private_files::create(&self.dir.join(records::TOLD));
        }
        self.told.is_some_and(|since| since.elapsed() < TOLD_WITHIN)
    }

    /// Brings the log, the echo and the counters up to date.
    fn settle_output(&mut self, bytes_max: usize) {
        self.pump(bytes_max);
        if let Some(redraw) = &mut self.redraw {
            redraw.finish(&mut |bytes| self.log.keep(bytes));
        }
        self.log.finish();
        self.write_counters();
        if let Some(echo) = &mut self.echo {
            echo.finish(ECHO_PATIENCE);
        }
    }

    fn write_counters(&mut self) {
        let (printed, dropped) = self.log.printed();
        self.printed.set(printed, dropped);
        self.counters_old_since = None;
    }

    /// SIGKILL to all processes of the tree.
    fn kill_round(&self) {
        if let Some(groups) = &self.groups {
            // Older kernels cannot do this; the loop below kills each process too.
            let _ = cgroup::kill(&groups.workload);
        }
        for process in descendants(self.this) {
            let _ = process.signal(Signal::KILL);
        }
    }

    /// SIGKILL to the whole tree until nothing is left. There is no record, as after a power cut.
    fn kill_everything(&mut self) -> io::Result<()> {
        loop {
            self.kill_round();
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                    Ok(None) => break,
                    Err(rustix::io::Errno::CHILD) => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
            }
            self.signals.clear();
            let round = Timespec::try_from(KILL_ROUND).map_err(|_| ErrorKind::InvalidData)?;
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&round));
        }
    }
}
