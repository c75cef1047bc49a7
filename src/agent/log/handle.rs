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

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use regex_lite::Regex;
use tokio::sync::{Notify, watch};

use super::scan::{self, LineScan};
use super::shipper::{LogShipper, ShipperState};
use super::shipping_state::{FollowedStart, LogSettings, ShippingState};
use crate::agent::activity_counters::ActivityCounters;
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::{Outbox, RetryDelay, Task};
use crate::jobdir::EventDetail;

/// 1 GiB is two days at a line of 60 bytes every 10 ms. A longer log comes from a loop that prints.
pub const BYTES_MAX_DEFAULT: u64 = 1 << 30;

const STARTS: &str = "log.starts.json";

/// The handle. Cheap to clone; the tasks run until the last clone is dropped.
#[derive(Clone)]
pub struct LogShip {
    shared: Arc<ShippingState>,
    _tasks: Arc<[Task; 2]>,
}

impl LogShip {
    /// Continues from an earlier agent's state. Reports and ignores an invalid pattern.
    pub fn start(
        outbox: Outbox,
        journal: Journal,
        board: ActivityCounters,
        settings: LogSettings,
    ) -> Self {
        let pattern = settings.pattern.as_ref().and_then(|text| match Regex::new(text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                journal.record(EventDetail::Attention {
                    text: format!(
                        "`watch.log_pattern` is not used, it is not a regular expression: {error}"
                    ),
                });
                None
            }
        });
        let state = ShipperState::recall(&outbox);
        let follows = outbox.recall(STARTS).unwrap_or_default();
        let shared = Arc::new(ShippingState {
            outbox,
            follows: Mutex::new(follows),
            scanned: Mutex::default(),
            wake_shipper: Notify::new(),
            wake_scan: Notify::new(),
            pace: RetryDelay::default(),
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
        let shipper = LogShipper::new(Arc::clone(&shared), state, &settings);
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
            follows.push(FollowedStart {
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
