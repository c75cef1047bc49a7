//! Ships the workload's output: reads the segments that the holder writes, and removes shipped
//! ones.
//!
//! ```text
//!   <start dir>/log/00000001.log 2 3 ... ──> piece (zstd, at most 1 MiB) ──> .../log/<piece>.zst
//!          └ removed once shipped, to free space          └ the frames in order are the log
//! ```
//! The range of a piece is recorded before it is sent. After a crash or a lost reply, the same
//! bytes go under the same number. Beyond `bytes_max`, the start is kept and the middle is skipped.
//! The last 4 MiB come at the end, after a line that says how much is missing. While the store is
//! down, the holder's limit applies. Shipping never delays the workload.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::scan::{self, LineScan, Place};
use super::shipper::{Shipper, State};
use crate::agent::activity_board::Board;
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, Pace, Task};
use crate::jobdir::What;

/// 1 GiB is two days at a line of 60 bytes every 10 ms. A longer log comes from a loop that prints.
pub const BYTES_MAX_DEFAULT: u64 = 1 << 30;

const STARTS: &str = "log.starts.json";

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

/// The handle. Cheap to clone; the tasks run until the last clone is dropped.
#[derive(Clone)]
pub struct LogShip {
    shared: Arc<Shared>,
    _tasks: Arc<[Task; 2]>,
}

/// One start of the workload, whose log is followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Follow {
    pub start: u32,
    pub dir: PathBuf,
    /// Its holder has written everything.
    #[serde(default)]
    pub ended: bool,
    /// Its label in the log. `None`: an older agent wrote this.
    #[serde(default)]
    pub label: Option<String>,
}

pub(crate) struct Shared {
    pub outbox: Outbox,
    /// Shared with its readers: two tasks read it at each tick, and it changes only with a start.
    follows: Mutex<Arc<Vec<Follow>>>,
    scanned: Mutex<Place>,
    pub wake_shipper: Notify,
    pub wake_scan: Notify,
    pub pace: Pace,
    printed: AtomicU64,
    /// A caller waits for the end.
    pub finishing: AtomicBool,
    /// Everything from before the finish request is shipped.
    pub at_end: watch::Sender<bool>,
    lost: Mutex<Lost>,
}

/// Raw bytes that are not in the store: skipped for good, and not yet sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    pub left_out: u64,
    pub unsent: u64,
}

impl LogShip {
    /// Continues from an earlier agent's state. Reports and ignores an invalid pattern.
    pub fn start(outbox: Outbox, journal: Journal, board: Board, settings: LogSettings) -> Self {
        let pattern = settings.pattern.as_ref().and_then(|text| match Regex::new(text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                journal.record(What::Attention {
                    text: format!(
                        "`watch.log_pattern` is not used, it is not a regular expression: {error}"
                    ),
                });
                None
            }
        });
        let state = State::recall(&outbox);
        let follows = outbox.recall(STARTS).unwrap_or_default();
        let shared = Arc::new(Shared {
            outbox,
            follows: Mutex::new(follows),
            scanned: Mutex::default(),
            wake_shipper: Notify::new(),
            wake_scan: Notify::new(),
            pace: Pace::default(),
            printed: AtomicU64::new(0),
            finishing: AtomicBool::new(false),
            at_end: watch::channel(false).0,
            lost: Mutex::default(),
        });
        let scan = Task::spawn(scan::run(
            Arc::clone(&shared),
            board,
            LineScan::new(pattern, settings.done_line.clone()),
        ));
        let shipper = Shipper::new(Arc::clone(&shared), state, &settings);
        LogShip { shared, _tasks: Arc::new([scan, Task::spawn(shipper.run())]) }
    }

    /// Follows this start of the workload (`Launch::dir`). Idempotent, also after a restart of the
    /// agent.
    pub fn follow(&self, start: u32, dir: &Path) {
        self.follow_as(start, dir, &format!("start {start} of the workload"));
    }

    /// The same, with the label that separates it from the log before.
    pub fn follow_as(&self, start: u32, dir: &Path, label: &str) {
        let mut follows = self.shared.lock_follows();
        if !follows.iter().any(|follow| follow.start == start) {
            // An earlier start is over when the next begins.
            let follows = Arc::make_mut(&mut follows);
            follows.iter_mut().for_each(|follow| follow.ended = true);
            follows.push(Follow {
                start,
                dir: dir.to_owned(),
                ended: false,
                label: Some(label.to_owned()),
            });
            // At once: a restarted agent knows only the newest start by itself.
            self.shared.outbox.keep(STARTS, follows);
        }
    }

    /// Called at each tick with the printed bytes so far. New output wakes the tasks at once, so
    /// a timer is not needed. The folder of a silent workload is not listed.
    pub fn look(&self, printed: u64) {
        if self.shared.printed.swap(printed, Ordering::Relaxed) != printed {
            self.shared.wake();
        }
    }

    pub fn ended(&self, start: u32) {
        let mut follows = self.shared.lock_follows();
        Arc::make_mut(&mut follows)
            .iter_mut()
            .filter(|follow| follow.start == start)
            .for_each(|follow| follow.ended = true);
        drop(follows);
        self.shared.wake();
    }

    /// Ships the rest within the time. Returns losses as sentences for the outcome.
    pub async fn finish(&self, within: Duration) -> Vec<String> {
        let mut at_end = self.shared.at_end.subscribe();
        self.shared.at_end.send_replace(false);
        self.shared.finishing.store(true, Ordering::Relaxed);
        self.shared.pace.hurry();
        self.shared.wake();
        let done = self.shared.outbox.within(within, at_end.wait_for(|end| *end)).await.is_some();
        self.shared.finishing.store(false, Ordering::Relaxed);
        self.shared.pace.relax();
        let lost = *self.shared.lost();
        let mut losses = Vec::new();
        if lost.left_out > 0 {
            losses.push(format!(
                "{} bytes in the middle of the log were left out: it is longer than its bound",
                lost.left_out
            ));
        }
        if !done {
            losses.push(format!("the end of the log was not kept, about {} bytes: the store did not take it in time", lost.unsent));
        }
        losses
    }
}

impl Shared {
    pub(crate) fn follows(&self) -> Arc<Vec<Follow>> {
        Arc::clone(&self.lock_follows())
    }

    fn wake(&self) {
        self.wake_shipper.notify_one();
        self.wake_scan.notify_one();
    }

    pub(crate) fn printed(&self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    pub(crate) fn scanned(&self) -> MutexGuard<'_, Place> {
        self.scanned.lock().expect("nobody panics while holding it: it is only read and set")
    }

    fn lock_follows(&self) -> MutexGuard<'_, Arc<Vec<Follow>>> {
        self.follows
            .lock()
            .expect("nobody panics while holding the starts: they are only listed and marked")
    }

    pub(crate) fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost
            .lock()
            .expect("nobody panics while holding the losses: they are only read and set")
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
