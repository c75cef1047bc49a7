//! Follows the progress file of the workload, and waits for its done marker.
//!
//! ```text
//!   LAMP_PROGRESS ──every second──> new bytes ──> lines ──> ActivityCounters: steps, marks, signs
//!                                    └ marks count once their time is known
//! ```
//! Not here: the sum of the signs ([`crate::agent::activity_counters`]), or which files a mark
//! covers (the module `completeness::declared`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::metric_watch::MetricWatch;
use crate::agent::activity_counters::{ActivityCounters, ClockReading};
use crate::agent::report::journal::Journal;
use crate::agent::report::retry_sender::Task;
use crate::job::ProgressLine;
use crate::jobdir::EventDetail;
use crate::ports::{Clock, Files};

/// Bytes read in one poll: with a hundred bytes a line, ten thousand steps a second. The next poll
/// reads the rest.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// A longer line is not a progress line. It counts as one sign and is skipped.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The time after the loop's last poll, usually a second ago. A loop that is busy, as in a drain,
/// must not delay a mark. Shorter than a tick would wake the processor twice.
const POLL: Duration = Duration::from_millis(1500);

/// Follows the progress file and waits for the done marker, until it is dropped.
pub struct ProgressTail {
    tail: Arc<Mutex<Tail>>,
    /// The loop has just polled: the task may sleep longer.
    polled: Arc<Notify>,
    _task: Task,
}

struct Tail {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    board: ActivityCounters,
    journal: Journal,
    path: PathBuf,
    done_marker: Option<PathBuf>,
    /// The metric of a trial; `None`: the job is no trial.
    metric: Option<MetricWatch>,
    offset: u64,
    inode: Option<u64>,
    rest: Vec<u8>,
    /// Skips the rest of a line that is too long.
    skipping: bool,
    /// The newest line was a mark.
    ends_with_mark: bool,
    /// The size at the first poll: that part was written at an unknown time, also if later polls
    /// read it.
    old: Option<u64>,
    complained: bool,
    named_lost: bool,
}

impl ProgressTail {
    /// `done_marker`: a file that appears when the work is done.
    pub fn new(
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        board: ActivityCounters,
        journal: Journal,
        path: PathBuf,
        done_marker: Option<PathBuf>,
    ) -> Self {
        Self::of_trial(files, clock, board, journal, path, done_marker, None)
    }

    /// The same for a trial, whose metric is read too.
    pub(crate) fn of_trial(
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        board: ActivityCounters,
        journal: Journal,
        path: PathBuf,
        done_marker: Option<PathBuf>,
        metric: Option<MetricWatch>,
    ) -> Self {
        let tail = Arc::new(Mutex::new(Tail {
            files,
            clock: Arc::clone(&clock),
            board,
            journal,
            path,
            done_marker,
            metric,
            offset: 0,
            inode: None,
            rest: Vec::new(),
            skipping: false,
            ends_with_mark: false,
            old: None,
            complained: false,
            named_lost: false,
        }));
        let polled = Arc::new(Notify::new());
        let (tail_of_task, by_loop) = (Arc::clone(&tail), Arc::clone(&polled));
        let task = Task::spawn(async move {
            lock(&tail_of_task).poll();
            loop {
                tokio::select! {
                    biased;
                    () = clock.sleep(POLL) => lock(&tail_of_task).poll(),
                    () = by_loop.notified() => {}
                }
            }
        });
        ProgressTail { tail, polled, _task: task }
    }

    /// Reads new lines now, with a few small reads. Call it before a decision or the final record.
    pub fn poll(&self) {
        lock(&self.tail).poll();
        self.polled.notify_one();
    }
}

fn lock(tail: &Mutex<Tail>) -> MutexGuard<'_, Tail> {
    tail.lock().expect("no code panics while it holds the tail: it only parses and adds")
}

impl Tail {
    /// Never fails: a file that cannot be read is reported once.
    fn poll(&mut self) {
        if let Err(error) = self.read() {
            self.complain(&format!("cannot read the progress file: {error}"));
        }
        self.old.get_or_insert(0);
        if let Some(metric) = &mut self.metric {
            metric.poll(&*self.files);
        }
        if let Some(marker) = &self.done_marker
            && let Ok(Some(stamp)) = self.files.stamp(marker)
            && self.board.is_news(stamp.modified_nanos)
        {
            self.board.set_done(self.clock.mono());
        }
    }

    fn read(&mut self) -> std::io::Result<()> {
        let Some(stamp) = self.files.stamp(&self.path)? else { return Ok(()) };
        if self.inode.is_some_and(|inode| inode != stamp.inode) || stamp.bytes < self.offset {
            // Replaced or truncated: the workload started a new file.
            (self.offset, self.skipping) = (0, false);
            self.old = self.old.and(Some(0));
            self.rest.clear();
        }
        self.inode = Some(stamp.inode);
        let old = *self.old.get_or_insert(stamp.bytes);
        if stamp.bytes == self.offset {
            return Ok(());
        }
        let bytes =
            self.files.read_from(&self.path, self.offset, READ_BYTES_MAX)?.unwrap_or_default();
        let now = ClockReading::now(&*self.clock);
        let reports = self.board.reports().0;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.offset += part.len() as u64;
            self.part(part, now, self.offset > old);
        }
        // More lines may have come since: then only the present time covers what was read.
        let written = if self.offset == stamp.bytes {
            Some(stamp)
        } else {
            self.files.stamp(&self.path).ok().flatten()
        };
        // Later lines without a step say nothing about when the newest step was written.
        if self.board.reports().0 > reports {
            self.board.told_by(written.map(|stamp| stamp.modified_nanos));
        }
        if self.board.is_unsettled() {
            let written = self.files.stamp(&self.path).ok().flatten();
            // A line after the mark may be the last before the next save, and both may have one
            // file system time. So files with exactly that line's time came after the mark.
            let is_newest = self.ends_with_mark
                && self.rest.is_empty()
                && !self.skipping
                && written.is_some_and(|stamp| stamp.bytes == self.offset);
            self.board.settle(written.map(|stamp| stamp.modified_nanos - i64::from(!is_newest)));
        }
        Ok(())
    }

    fn part(&mut self, part: &[u8], now: ClockReading, timed: bool) {
        let ends = part.ends_with(b"\n");
        if !self.skipping {
            self.rest.extend_from_slice(part);
            if ends {
                let line = std::mem::take(&mut self.rest);
                self.line(&line, now, timed);
            } else if self.rest.len() > LINE_BYTES_MAX {
                self.rest.clear();
                self.skipping = true;
                self.board.record_sign();
                self.complain("a line of the progress file is longer than 64 KiB");
            }
        }
        if ends {
            self.skipping = false;
        }
    }

    fn line(&mut self, line: &[u8], now: ClockReading, timed: bool) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let text = String::from_utf8_lossy(line);
        if let Some(metric) = &mut self.metric {
            metric.progress_line(&text);
        }
        match ProgressLine::parse(&text) {
            Ok(line) => {
                if !line.lost.is_empty() && !std::mem::replace(&mut self.named_lost, true) {
                    let text = format!(
                        "the progress file holds a value that cannot be taken: `{}` (said once)",
                        line.lost.join("`, `")
                    );
                    self.journal.record(EventDetail::Attention { text });
                }
                self.ends_with_mark = line.checkpoint.is_some();
                if line.gang_epoch.is_some() {
                    return self.board.begins_epoch(timed.then_some(now.at));
                }
                self.board.record_line(line, now, timed);
            }
            Err(error) => {
                self.ends_with_mark = false;
                self.board.record_sign();
                let shown: String = String::from_utf8_lossy(line).trim().chars().take(80).collect();
                self.complain(&format!("{error}: `{shown}`"));
            }
        }
    }

    fn complain(&mut self, text: &str) {
        if !self.complained {
            self.complained = true;
            self.journal.record(EventDetail::Attention { text: format!("{text} (said once)") });
        }
    }
}
