//! Signs of life that the workload leaves: progress lines, log lines that match, the done marker, checkpoint marks.
//!
//! ```text
//!   LAMP_PROGRESS file ──> ProgressTail::poll ──┐
//!   log ──────────────────> logship ────────────┼──> Board ──> samples, status, checkpoints
//!   checkpoint folder ────> checkpoints ────────┘
//! ```
//! A line that is not understood is a sign of life too, and said once. What must never live here: whether the signs are
//! enough (that is `policy`).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::log::progress_steps::Stand;
use crate::instance::Marks;
use crate::job::{Progress, ProgressLine};
use crate::ports::Clock;

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
    /// The longest silence of a workload that reports, seconds.
    silent_secs: Option<f64>,
    /// The job tells its steps itself, by its progress file or its pattern: what stock programs print says no more then.
    tells: bool,
    /// There was a line of the progress file.
    has_written: bool,
}

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub mono: Duration,
    pub at: jiff::Timestamp,
}

impl Moment {
    pub(crate) fn now(clock: &dyn Clock) -> Self {
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

    pub(crate) fn is_news(&self, modified_nanos: i64) -> bool {
        self.inner().began.is_none_or(|began| i128::from(modified_nanos) >= began.as_nanosecond())
    }

    pub(crate) fn logged(&self, bytes: u64) {
        self.inner().marks.log_bytes += bytes;
    }

    /// A mark without a step: a log line that matches, or a line that is not understood.
    pub(crate) fn sign(&self) {
        self.inner().marks.progress += 1;
    }

    pub(crate) fn set_done(&self, now: Duration) {
        self.inner().done.get_or_insert(now);
    }

    pub(crate) fn checkpoint_changed(&self) {
        self.inner().marks.checkpoints += 1;
    }

    pub(crate) fn has_been_silent(&self, secs: Option<f64>) {
        self.inner().silent_secs = secs;
    }

    /// The longest silence of a workload that reports, seconds.
    pub(crate) fn longest_silence(&self) -> Option<f64> {
        self.inner().silent_secs
    }

    /// Resolves when there is a mark that was not waited for yet.
    pub(crate) async fn marked(&self) {
        self.marked.notified().await;
    }

    /// Explicit checkpoint marks that were seen as they came, and the step at the newest of all, also of those that an agent
    /// before this one has seen.
    pub(crate) fn saved(&self) -> (u64, Option<f64>) {
        let inner = self.inner();
        (inner.saved, inner.saved_step)
    }

    /// By when the newest of those marks was made, in nanoseconds since 1970 by the file system of the progress file. What it
    /// covers was written by then.
    pub(crate) fn marked_by(&self) -> Option<i64> {
        self.inner().marked_by
    }

    pub(crate) fn is_unsettled(&self) -> bool {
        self.inner().unsettled > 0
    }

    /// Counts the marks that were read, all made by then.
    pub(crate) fn settle(&self, by: Option<i64>) {
        let mut inner = self.inner();
        inner.saved += std::mem::take(&mut inner.unsettled);
        inner.marked_by = by;
        drop(inner);
        self.marked.notify_one();
    }

    /// Whether its steps are known from what it prints alone: such a job marks no checkpoint.
    pub(crate) fn prints_steps(&self) -> bool {
        let inner = self.inner();
        inner.tells && !inner.has_written
    }

    pub(crate) fn has_marked(&self) -> bool {
        self.inner().has_marked
    }

    /// The newest step that was seen as it happened and is of the newest start. Those of before say nothing of what is saved now.
    pub(crate) fn told(&self) -> Option<f64> {
        self.inner().told
    }

    /// `timed`: the step was seen as it happened, so that it may count for the pace.
    pub(crate) fn step(&self, step: f64, now: Moment, timed: bool) {
        self.inner().told(step, now, timed);
    }

    /// The step that the job itself has told: what is shown for people may be counted otherwise.
    pub(crate) fn told_ever(&self) -> Option<f64> {
        let inner = self.inner();
        inner.progress.step.filter(|_| inner.tells)
    }

    pub(crate) fn tells(&self) -> bool {
        self.inner().tells
    }

    /// A bar or a line for people shows this. It never names a checkpoint. Without a total no time left is given.
    pub(crate) fn shown(&self, stand: Stand, loss: Option<f64>, now: Moment, timed: bool) {
        let mut inner = self.inner();
        if inner.tells {
            return;
        }
        if inner.progress.total != stand.total {
            inner.forget_pace();
        }
        inner.progress.total = stand.total;
        inner.progress.loss = loss.or(inner.progress.loss);
        inner.step(stand.step, now, timed);
        if stand.total.is_none() {
            inner.progress.secs_per_step = None;
        }
    }

    pub(crate) fn line(&self, line: ProgressLine, now: Moment, timed: bool) {
        let mut inner = self.inner();
        inner.marks.progress += 1;
        inner.has_written = true;
        if line.step.is_some_and(f64::is_finite) {
            inner.begins_to_tell();
        }
        let progress = &mut inner.progress;
        progress.total = line.total.filter(|total| total.is_finite()).or(progress.total);
        progress.loss = line.loss.filter(|loss| loss.is_finite()).or(progress.loss);
        progress.message = line.message.or(progress.message.take());
        if let Some(step) = line.step {
            inner.told(step, now, timed);
        }
        if line.done == Some(true) {
            inner.done.get_or_insert(now.mono);
        }
        if line.checkpoint.is_some() {
            // One that was seen as it was made has no step of an earlier start.
            (inner.has_marked, inner.saved_step) = (true, if timed { inner.told } else { inner.progress.step.filter(|_| inner.tells) });
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
    /// By the job itself.
    fn told(&mut self, step: f64, now: Moment, timed: bool) {
        if !step.is_finite() {
            return;
        }
        self.begins_to_tell();
        self.step(step, now, timed);
        if timed {
            self.told = Some(step);
        }
    }

    /// From now on the job's own steps count alone.
    fn begins_to_tell(&mut self) {
        if !std::mem::replace(&mut self.tells, true) {
            (self.progress.total, self.progress.loss) = (None, None);
            self.forget_pace();
        }
    }

    /// Steps of another kind.
    fn forget_pace(&mut self) {
        self.intervals.clear();
        (self.stepped, self.progress.secs_per_step) = (None, None);
    }

    fn step(&mut self, step: f64, now: Moment, timed: bool) {
        if self.progress.step != Some(step) {
            self.progress.at = Some(now.at);
        }
        self.progress.step = Some(step);
        self.marks.step = Some(step);
        if !timed {
            return;
        }
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

    #[test]
    fn the_jobs_own_steps_go_before_those_of_a_bar() {
        let (board, at) = (Board::default(), jiff::Timestamp::UNIX_EPOCH);
        let moment = |secs| Moment { mono: Duration::from_secs(secs), at };
        board.shown(Stand { step: 400.0, total: Some(500.0) }, Some(1.0), moment(1), true);
        assert_eq!((board.progress().step, board.told(), board.told_ever()), (Some(400.0), None, None));
        board.line(ProgressLine { step: Some(3.0), ..ProgressLine::default() }, moment(2), true);
        board.shown(Stand { step: 410.0, total: Some(500.0) }, None, moment(3), true);
        let progress = board.progress();
        assert_eq!((progress.step, progress.total, progress.loss, board.told()), (Some(3.0), None, None, Some(3.0)));
    }
}
