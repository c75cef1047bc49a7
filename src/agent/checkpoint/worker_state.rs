//! The state that the worker shares with the handles of the agent's loop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::persisted_state::CheckpointState;
use super::upload::CheckpointFolder;
use crate::agent::activity_counters::ActivityCounters;
use crate::agent::report::retry_sender::{Outbox, RetryDelay};
use crate::job::ExitStatus;
use crate::ports::Workload;

pub(crate) struct WorkerState {
    pub outbox: Outbox,
    pub board: ActivityCounters,
    pub folder: CheckpointFolder,
    pub kept: Mutex<CheckpointState>,
    pub ends: Mutex<WorkloadEnds>,
    /// The running workload, which is asked which files it has open.
    pub writer: Mutex<Option<Arc<dyn Workload>>>,
    pub wake: Notify,
    pub pace: Arc<RetryDelay>,
    /// Uploads do not wait for the interval: the machine may be gone before it ends.
    pub hurry: AtomicBool,
    /// The one who asked for an upload that does not wait for the interval.
    pub wished: Mutex<Option<&'static str>>,
    /// When the present upload began, if no save was asked for.
    pub uploading: Mutex<Option<Duration>>,
    /// Size of the folder at the last look.
    pub bytes: AtomicU64,
    /// Why saves are not kept now, in sentences for people. Each is removed when its cause is gone.
    pub troubles: Mutex<BTreeMap<SaveTrouble, String>>,
    /// Nothing is uploaded: after a rollback, the workload has not made progress yet.
    pub held: AtomicBool,
    pub looks: watch::Sender<LookCount>,
    /// When a file of a save was last seen open for writing.
    pub writing: Mutex<Option<Duration>>,
    /// A save that is not kept although the work went on, in a sentence: the first of them.
    pub lost: Mutex<Option<String>>,
}

/// The looks at the folder so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookCount {
    pub begun: u64,
    /// The number of the newest that is over.
    pub over: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SaveTrouble {
    /// The folder cannot be read.
    Blind,
    /// The job root does not accept it.
    Unsent,
    /// It changes too fast.
    Torn,
    /// It is written without a pause.
    Restless,
    /// Some files cannot be sent.
    Unfit,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct WorkloadEnds {
    /// The last one, if none runs.
    pub now: Option<(ExitStatus, Duration)>,
    /// The newest killed process: the next may start before the worker has looked.
    pub killed: Option<Duration>,
    /// How often a process was started.
    pub life: u64,
}

impl WorkerState {
    pub(crate) fn kept(&self) -> MutexGuard<'_, CheckpointState> {
        self.kept
            .lock()
            .expect("no code panics while it holds what is kept: fields are only read and set")
    }

    pub(crate) fn troubles(&self) -> MutexGuard<'_, BTreeMap<SaveTrouble, String>> {
        self.troubles.lock().expect("they are only read and set")
    }

    pub(crate) fn is_uploading(&self, since: Option<Duration>) {
        *self.uploading.lock().expect("it is only read and set") = since;
    }

    pub(crate) fn writer(&self) -> Option<Arc<dyn Workload>> {
        self.writer
            .lock()
            .expect("no code panics while it holds it: it is only set and cloned")
            .clone()
    }

    pub(crate) fn writing(&self) -> MutexGuard<'_, Option<Duration>> {
        self.writing.lock().expect("it is only read and set")
    }

    pub(crate) fn wished(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.wished.lock().expect("it is only read and set")
    }

    pub(crate) fn ends(&self) -> MutexGuard<'_, WorkloadEnds> {
        self.ends.lock().expect("no code panics while it holds the end: it is only read and set")
    }
}
