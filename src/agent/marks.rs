//! Signs of life that the workload leaves: progress lines, log lines that match, the done marker, checkpoint marks.
//!
//! ```text
//!   LAMP_PROGRESS file ──> ProgressTail::poll ──┐
//!   log ──────────────────> logship ────────────┼──> Board ──> samples, status, checkpoints
//!   checkpoint folder ────> checkpoints ────────┘
//! ```
//! A line that is not understood is a sign of life too, and said once. What must never live here: whether the signs are
//! enough (that is `policy`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::instance::Marks;
use crate::job::{Progress, ProgressLine};
use crate::jobdir::What;
use crate::ports::{Clock, Files};

use super::journal::Journal;
use super::outbox::Task;

/// Read from the progress file in one poll. A line is about a hundred bytes: this is ten thousand steps a second.
/// What is left is read by the next poll.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// A line longer than this is not a progress line; it is counted once and passed over.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Intervals from which the median step time is taken: enough to outvote an evaluation every ten steps, few enough to
/// follow a change of pace.
const INTERVALS_MAX: usize = 51;

/// What the workload has said of itself so far. Cheap to clone; all clones are one board.
#[derive(Clone, Default)]
pub struct Board {
    inner: Arc<Mutex<Inner>>,
    /// A checkpoint mark was seen: the folder should be looked at before the workload goes on to the next.
    marked: Arc<Notify>,
}

#[derive(Default)]
struct Inner {
    /// When the newest start began.
    began: Option<jiff::Timestamp>,
    marks: Marks,
    progress: Progress,
    /// Seconds for one unit of `step`, newest last.
    intervals: Vec<f64>,
    /// When the step last grew, by the steady clock; `None` until a step was seen as it happened.
    stepped: Option<(Duration, f64)>,
    done: Option<Duration>,
    /// Explicit checkpoint marks: how many, and the step at the newest.
    saved: u64,
    saved_step: Option<f64>,
    /// Marks that were read and are not counted yet, and by when the newest of those that are was made.
    unsettled: u64,
    marked_by: Option<i64>,
    /// A mark was in the file, whenever it was made.
    has_marked: bool,
    /// The newest step that the newest start has told.
    told: Option<f64>,
}

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub mono: Duration,
    pub at: jiff::Timestamp,
}

impl Moment {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Moment { mono: clock.mono(), at: clock.now() }
    }
}

impl Board {
    /// For the sample of this moment.
    pub fn marks(&self) -> Marks {
        self.inner().marks.clone()
    }

    pub fn progress(&self) -> Progress {
        self.inner().progress.clone()
    }

    /// When the workload said that it is done, by the steady clock.
    pub fn done(&self) -> Option<Duration> {
        self.inner().done
    }

    /// Forgets that it is done, before a new start of the workload. A marker file older than this start is not its word:
    /// it came with the workdir, or an earlier start left it.
    pub fn restarted(&self, at: jiff::Timestamp) {
        let mut inner = self.inner();
        (inner.done, inner.told) = (None, None);
        inner.began = Some(at);
    }

    fn is_news(&self, modified_nanos: i64) -> bool {
        self.inner().began.is_none_or(|began| i128::from(modified_nanos) >= began.as_nanosecond())
    }

    pub(super) fn logged(&self, bytes: u64) {
        self.inner().marks.log_bytes += bytes;
    }

    /// A mark without a step: a log line that matches, or a line that is not understood.
    pub(super) fn sign(&self) {
        self.inner().marks.progress += 1;
    }

    pub(super) fn set_done(&self, now: Duration) {
        self.inner().done.get_or_insert(now);
    }

    pub(super) fn checkpoint_changed(&self) {
        self.inner().marks.checkpoints += 1;
    }

    /// Resolves when there is a mark that was not waited for yet.
    pub(super) async fn marked(&self) {
        self.marked.notified().await;
    }

    /// Explicit checkpoint marks that were seen as they came, and the step at the newest of all, also of those that an agent
    /// before this one has seen.
    pub(super) fn saved(&self) -> (u64, Option<f64>) {
        let inner = self.inner();
        (inner.saved, inner.saved_step)
    }

    /// By when the newest of those marks was made, in nanoseconds since 1970 by the file system of the progress file.
    pub(super) fn marked_by(&self) -> Option<i64> {
        self.inner().marked_by
    }

    fn is_unsettled(&self) -> bool {
        self.inner().unsettled > 0
    }

    /// Counts the marks that were read, all made by then.
    fn settle(&self, by: Option<i64>) {
        let mut inner = self.inner();
        inner.saved += std::mem::take(&mut inner.unsettled);
        inner.marked_by = by;
        drop(inner);
        self.marked.notify_one();
    }

    pub(super) fn has_marked(&self) -> bool {
        self.inner().has_marked
    }

    /// The newest step that was seen as it happened and is of the newest start. Those of before say nothing of what is saved now.
    pub(super) fn told(&self) -> Option<f64> {
        self.inner().told
    }

    /// `timed`: the step was seen as it happened, so that it may count for the pace.
    pub(super) fn step(&self, step: f64, now: Moment, timed: bool) {
        self.inner().step(step, now, timed);
    }

    fn line(&self, line: ProgressLine, now: Moment, timed: bool) {
        let mut inner = self.inner();
        inner.marks.progress += 1;
        let progress = &mut inner.progress;
        progress.total = line.total.filter(|total| total.is_finite()).or(progress.total);
        progress.loss = line.loss.filter(|loss| loss.is_finite()).or(progress.loss);
        progress.message = line.message.or(progress.message.take());
        if let Some(step) = line.step {
            inner.step(step, now, timed);
        }
        if line.done == Some(true) {
            inner.done.get_or_insert(now.mono);
        }
        if line.checkpoint.is_some() {
            // One that was seen as it was made has no step of an earlier start.
            (inner.has_marked, inner.saved_step) = (true, if timed { inner.told } else { inner.progress.step });
        }
        if line.checkpoint.is_some() && timed {
            inner.unsettled += 1;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics while holding the board: it only adds numbers")
    }
}

impl Inner {
    fn step(&mut self, step: f64, now: Moment, timed: bool) {
        if !step.is_finite() {
            return;
        }
        if self.progress.step != Some(step) {
            self.progress.at = Some(now.at);
        }
        self.progress.step = Some(step);
        self.marks.step = Some(step);
        if !timed {
            return;
        }
        self.told = Some(step);
        match self.stepped {
            Some((then, from)) if step > from => {
                let secs = now.mono.saturating_sub(then).as_secs_f64();
                if secs > 0.0 {
                    self.pace(secs / (step - from));
                    self.stepped = Some((now.mono, step));
                }
            }
            // The first step, or one that went back: a workload that resumed.
            Some((_, from)) if step == from => {}
            _ => self.stepped = Some((now.mono, step)),
        }
    }

    fn pace(&mut self, secs_per_step: f64) {
        if self.intervals.len() == INTERVALS_MAX {
            self.intervals.remove(0);
        }
        self.intervals.push(secs_per_step);
        let mut sorted = self.intervals.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        self.progress.secs_per_step = Some(sorted[sorted.len() / 2]);
    }
}

/// After the last poll of the file. The loop polls at each of its ticks, about once a second; a loop that is busy with
/// something else, a drain above all, must not hold a mark up. Shorter than a tick, and the processor wakes twice for it.
const POLL: Duration = Duration::from_millis(1500);

/// Follows the progress file and waits for the done marker; ends when it is dropped.
pub struct ProgressTail {
    tail: Arc<Mutex<Tail>>,
    /// Somebody has just polled: the task may sleep on.
    polled: Arc<Notify>,
    _task: Task,
}

struct Tail {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    board: Board,
    journal: Journal,
    path: PathBuf,
    done_marker: Option<PathBuf>,
    offset: u64,
    inode: Option<u64>,
    rest: Vec<u8>,
    /// The rest of a line that is too long is passed over.
    skipping: bool,
    /// What the file held at the first poll was written at an unknown time, however many polls it takes to read it.
    old: Option<u64>,
    complained: bool,
}

impl ProgressTail {
    /// `done_marker`: a file whose appearance says that the work is done.
    pub fn new(files: Arc<dyn Files>, clock: Arc<dyn Clock>, board: Board, journal: Journal, path: PathBuf, done_marker: Option<PathBuf>) -> Self {
        let tail = Arc::new(Mutex::new(Tail {
            files,
            clock: Arc::clone(&clock),
            board,
            journal,
            path,
            done_marker,
            offset: 0,
            inode: None,
            rest: Vec::new(),
            skipping: false,
            old: None,
            complained: false,
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

    /// Takes in what is new, now: a few small reads. For whoever is about to decide, or to write down the end.
    pub fn poll(&self) {
        lock(&self.tail).poll();
        self.polled.notify_one();
    }
}

fn lock(tail: &Mutex<Tail>) -> MutexGuard<'_, Tail> {
    tail.lock().expect("nobody panics while holding the tail: it only parses and adds")
}

impl Tail {
    /// Never fails: a file that cannot be read is said once.
    fn poll(&mut self) {
        if let Err(error) = self.read() {
            self.complain(&format!("cannot read the progress file: {error}"));
        }
        self.old.get_or_insert(0);
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
            // Replaced or cut: a workload that began its file anew.
            (self.offset, self.skipping) = (0, false);
            self.old = self.old.and(Some(0));
            self.rest.clear();
        }
        self.inode = Some(stamp.inode);
        let old = *self.old.get_or_insert(stamp.bytes);
        if stamp.bytes == self.offset {
            return Ok(());
        }
        let bytes = self.files.read_from(&self.path, self.offset, READ_BYTES_MAX)?.unwrap_or_default();
        let now = Moment::now(&*self.clock);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.offset += part.len() as u64;
            self.part(part, now, self.offset > old);
        }
        if self.board.is_unsettled() {
            let written = self.files.stamp(&self.path).ok().flatten();
            self.board.settle(written.map(|stamp| stamp.modified_nanos));
        }
        Ok(())
    }

    fn part(&mut self, part: &[u8], now: Moment, timed: bool) {
        let ends = part.ends_with(b"\n");
        if !self.skipping {
            self.rest.extend_from_slice(part);
            if ends {
                let line = std::mem::take(&mut self.rest);
                self.line(&line, now, timed);
            } else if self.rest.len() > LINE_BYTES_MAX {
                self.rest.clear();
                self.skipping = true;
                self.board.sign();
                self.complain("a line of the progress file is longer than 64 KiB");
            }
        }
        if ends {
            self.skipping = false;
        }
    }

    fn line(&mut self, line: &[u8], now: Moment, timed: bool) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match ProgressLine::parse(&String::from_utf8_lossy(line)) {
            Ok(line) => self.board.line(line, now, timed),
            Err(error) => {
                self.board.sign();
                let shown: String = String::from_utf8_lossy(line).trim().chars().take(80).collect();
                self.complain(&format!("{error}: `{shown}`"));
            }
        }
    }

    fn complain(&mut self, text: &str) {
        if !self.complained {
            self.complained = true;
            self.journal.record(What::Attention { text: format!("{text} (said once)") });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 775 of the false world: after a reboot, step 0 was saved and called 17.
    #[test]
    fn what_an_earlier_start_has_told_is_not_the_step_of_this_one() {
        let (board, at) = (Board::default(), jiff::Timestamp::UNIX_EPOCH);
        board.step(17.0, Moment { mono: Duration::ZERO, at }, true);
        board.restarted(at);
        assert_eq!((board.told(), board.progress().step), (None, Some(17.0)));
    }
}
