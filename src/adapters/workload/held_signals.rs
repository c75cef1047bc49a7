//! Sends a workload its signals, in order: a request to save, or the end of its processes.
//!
//! `tell` stops the shells above the receivers with SIGSTOP, and sends the signal to the processes
//! that handle it. Once these have ended, or their launcher has, the shells and the rest get
//! SIGTERM, then SIGKILL. How the programs of the shells ended counts, because the shells did not
//! choose their end. If no process handles the signal, the whole group gets it. Not here:
//! which processes these are (`workload::signal_targets`), how long the agent waits.

#![expect(
    clippy::disallowed_methods,
    reason = "looks at the checkpoint folder, and waits for processes within bounds"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::held_workload::{HeldWorkload, number};
use super::signal_request::{Listeners, listeners, send, still_copies, writes_below};
use crate::adapters::host::process_tree::{ProcessRef, descendants, stat};
use crate::job::ExitStatus;
use crate::ports::{self, WorkloadError};

/// The time between two looks at processes that were told to end.
const LOOK: Duration = Duration::from_millis(20);
/// A launcher ends soon after its children: `torchrun` and `npm` need less than a second. If this
/// is longer, a launcher that stays delays the end. If it is shorter, a launcher loses its own exit
/// code to a signal.
const LAUNCHER_ENDS_WITHIN: Duration = Duration::from_secs(2);
/// How long asked processes have for the first byte of a save, before their forks are asked too. If
/// this is shorter, data loaders of a trainer in a long step get the signal. If it is longer, ranks
/// wait for each other.
const SAVE_BEGINS_WITHIN: Duration = Duration::from_secs(3);
/// The time between two looks for the beginning of a save.
const SAVE_LOOK: Duration = Duration::from_millis(200);
/// A folder with more files is not searched for a save; its forks are then not asked.
const FILES_MAX: usize = 5000;
/// The time between SIGTERM and SIGKILL for the rest of a tree, after its main process has ended.
const REST_ENDS_WITHIN: Duration = Duration::from_secs(1);

impl HeldWorkload {
    fn listeners(&self, signal: Signal) -> Listeners {
        if !self.this_boot || !self.started.workload.exists() {
            return Listeners::default();
        }
        listeners(self.started.holder, self.started.workload, signal, &self.saves)
    }

    /// See [`ports::Workload::ask`].
    pub(crate) fn ask_listeners(&self, signal: ports::Signal) -> u32 {
        let found = self.listeners(number(signal));
        let asked = send(&found.asked, number(signal));
        if let Some(folder) =
            self.saves.first().filter(|_| !asked.is_empty() && !found.copies.is_empty())
        {
            tokio::spawn(ask_copies_later(
                asked.clone(),
                found.copies,
                number(signal),
                folder.clone(),
            ));
        }
        count(&asked)
    }

    /// See [`ports::Workload::tell`]. A process is told only once: it may be within its save.
    pub(crate) fn tell_listeners(&self, signal: ports::Signal) -> Result<u32, WorkloadError> {
        let found = self.listeners(number(signal));
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|process| process.alive());
        let new: Vec<ProcessRef> =
            found.asked.iter().filter(|process| !told.contains(process)).copied().collect();
        let shells = send(&found.shells, Signal::STOP);
        told.extend(send(&new, number(signal)));
        let (told, main) = (told.clone(), self.started.workload);
        if told.is_empty() {
            return ports::Workload::signal(self, signal).map(|()| 0);
        }
        let all = count(&told);
        let (programs, end) = (found.programs, Arc::clone(&self.end_below_shells));
        tokio::spawn(end_launchers(told, (shells, programs), main, end));
        Ok(all)
    }

    /// See [`ports::Workload::tell_rest`].
    pub(crate) fn tell_all_but_the_told(&self) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rest: Vec<ProcessRef> =
            self.living().into_iter().filter(|process| !told.contains(process)).collect();
        send(&rest, Signal::TERM);
        send(&rest, Signal::CONT);
    }

    /// After the told processes have ended, their children get a moment before SIGKILL.
    pub(crate) async fn end_rest(&self) {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return;
        }
        let rest = self.living();
        send(&rest, Signal::TERM);
        send(&rest, Signal::CONT);
        let end = Instant::now() + REST_ENDS_WITHIN;
        while Instant::now() < end && rest.iter().any(|process| process.alive()) {
            sleep(LOOK).await;
        }
    }

    /// Signals the processes that have left the group of the main process.
    pub(crate) fn signal_outside(&self, signal: Signal) {
        let main = self.started.workload.pid;
        let is_outside =
            |process: &ProcessRef| stat(process.pid).is_some_and(|found| found.group != main);
        let outside: Vec<ProcessRef> =
            descendants(self.started.holder).into_iter().filter(is_outside).collect();
        send(&outside, signal);
    }
}

fn count(processes: &[ProcessRef]) -> u32 {
    u32::try_from(processes.len()).unwrap_or(u32::MAX)
}

/// After the told processes have ended, ends the shells before their scripts continue, and a
/// launcher that stays. A stopped shell does not wait for its programs, so they show how they
/// ended.
async fn end_launchers(
    told: Vec<ProcessRef>,
    (shells, programs): (Vec<ProcessRef>, Vec<ProcessRef>),
    main: ProcessRef,
    end_below: Arc<Mutex<Option<ExitStatus>>>,
) {
    while main.alive() && told.iter().any(|process| process.alive()) {
        sleep(LOOK).await;
    }
    let end = Instant::now() + LAUNCHER_ENDS_WITHIN;
    while main.alive() && Instant::now() < end && programs.iter().any(|program| program.alive()) {
        sleep(LOOK).await;
    }
    let ends: Option<Vec<ExitStatus>> = programs.iter().map(|program| program.end()).collect();
    *end_below.lock().unwrap_or_else(PoisonError::into_inner) = ends.and_then(|ends| of_all(&ends));
    // Waiting shells get both signals: a stopped shell cannot act between them.
    send(&shells, Signal::TERM);
    send(&shells, Signal::CONT);
    let end = Instant::now() + LAUNCHER_ENDS_WITHIN;
    while main.alive() {
        if Instant::now() >= end {
            send(&[main], Signal::TERM);
            return;
        }
        sleep(LOOK).await;
    }
}

/// The first failure, else the success of all. `None`: of nobody.
fn of_all(ends: &[ExitStatus]) -> Option<ExitStatus> {
    ends.iter().find(|end| end.code != Some(0)).or(ends.first()).copied()
}

/// Asks the forks later: a joint save of all ranks cannot begin before every rank has the signal.
async fn ask_copies_later(
    asked: Vec<ProcessRef>,
    copies: Vec<ProcessRef>,
    signal: Signal,
    folder: PathBuf,
) {
    let (before, end) = (times_below(&folder), Instant::now() + SAVE_BEGINS_WITHIN);
    let folders = [folder];
    while Instant::now() < end {
        sleep(SAVE_LOOK).await;
        let begins = asked.iter().chain(&copies).any(|process| writes_below(process.pid, &folders))
            || before.is_none()
            || times_below(&folders[0]) != before;
        if begins || !asked.iter().any(|process| process.alive()) {
            return;
        }
    }
    let late = send(&still_copies(&copies, signal), signal).len();
    tracing::info!(late, "no save has begun: the forks of those that were asked are asked too");
}

/// The entries below a folder with their times, by the clock of its file system. `None`: it is too
/// large to search.
fn times_below(folder: &Path) -> Option<BTreeMap<PathBuf, SystemTime>> {
    let (mut folders, mut times) = (vec![folder.to_owned()], BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if times.len() >= FILES_MAX {
                return None;
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            }
            times.extend(found.modified().map(|at| (entry.path(), at)));
        }
    }
    Some(times)
}
