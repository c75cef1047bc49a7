//! The state that the scan and the shipper of the log share, and the segments that both read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use crate::agent::report::retry_sender::{Outbox, RetryDelay};

#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Raw bytes shipped per attempt. Beyond it, the start and the last 4 MiB are kept.
    pub bytes_max: u64,
    pub pattern: Option<String>,
    /// A line of the log that means: done.
    pub done_line: Option<String>,
    pub pace: LogPace,
}

/// Whether users read the log while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPace {
    /// A user may follow it in the job directory.
    Followed,
    /// It is for later: the user sees the output directly.
    Kept,
}

/// One start of the workload, whose log is followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FollowedStart {
    pub start: u32,
    pub dir: PathBuf,
    /// Its holder has written everything.
    #[serde(default)]
    pub ended: bool,
    /// Its label in the log. `None`: an older agent wrote this.
    #[serde(default)]
    pub label: Option<String>,
}

/// A position in the log of one start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogPosition {
    pub start: u32,
    pub segment: u64,
    pub offset: u64,
}

pub(crate) struct ShippingState {
    pub outbox: Outbox,
    /// Shared with its readers: two tasks read it at each tick, and it changes only with a start.
    pub follows: Mutex<Arc<Vec<FollowedStart>>>,
    pub scanned: Mutex<LogPosition>,
    pub wake_shipper: Notify,
    pub wake_scan: Notify,
    pub pace: RetryDelay,
    pub printed: AtomicU64,
    /// A caller waits for the end.
    pub finishing: AtomicBool,
    /// Everything from before the finish request is shipped.
    pub at_end: watch::Sender<bool>,
    pub lost: Mutex<LogLosses>,
}

/// Raw bytes that are not in the store: skipped for good, and not yet sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogLosses {
    pub left_out: u64,
    pub unsent: u64,
}

impl ShippingState {
    pub(crate) fn follows(&self) -> Arc<Vec<FollowedStart>> {
        Arc::clone(&self.lock_follows())
    }

    pub(crate) fn wake(&self) {
        self.wake_shipper.notify_one();
        self.wake_scan.notify_one();
    }

    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    pub(crate) fn scanned(&self) -> MutexGuard<'_, LogPosition> {
        self.scanned.lock().expect("no code panics while it holds it: it is only read and set")
    }

    pub(crate) fn lock_follows(&self) -> MutexGuard<'_, Arc<Vec<FollowedStart>>> {
        self.follows
            .lock()
            .expect("no code panics while it holds the starts: they are only listed and marked")
    }

    pub(crate) fn lost(&self) -> MutexGuard<'_, LogLosses> {
        self.lost
            .lock()
            .expect("no code panics while it holds the losses: they are only read and set")
    }
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:08}.log")
}

pub(crate) fn segments(outbox: &Outbox, dir: &Path) -> Vec<(u64, u64)> {
    let listed = outbox
        .files
        .list(dir)
        .inspect_err(|error| tracing::warn!("cannot list {}: {error}", dir.display()))
        .unwrap_or_default();
    let mut found: Vec<(u64, u64)> = listed
        .into_iter()
        .filter_map(|(name, stamp)| Some((name.strip_suffix(".log")?.parse().ok()?, stamp.bytes)))
        .collect();
    found.sort_unstable();
    found
}
