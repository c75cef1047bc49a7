//! Signs of activity from the workload: progress lines, matching log lines, the done marker,
//! checkpoint marks.
//!
//! ```text
//!   LAMP_PROGRESS file ─> ProgressTail::poll ─┐
//!   log ─────────────────> log::scan ─────────┼─> ActivityCounters ─> samples, status, checkpoints
//!   checkpoint folder ───> checkpoints ───────┘
//! ```
//! A line that cannot be parsed is also a sign of activity, and is reported once. `policy` decides
//! whether the signs are enough.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::log::progress_steps::PrintedProgress;
use crate::instance::Marks;
use crate::job::{MetricSeries, Progress, ProgressLine};
use crate::ports::Clock;

/// The number of intervals for the median step time: enough to ignore an evaluation every ten
/// steps, and few enough to follow a change of speed.
const INTERVALS_MAX: usize = 51;

/// Intervals that a spread needs. With fewer, one slow step makes the range.
const SPREAD_MIN: usize = 8;

/// The workload's reports so far. Clones are cheap and share one board.
#[derive(Clone, Default)]
pub struct ActivityCounters {
    inner: Arc<Mutex<CountersInner>>,
    /// A checkpoint mark was seen: look at the folder before the workload starts the next one.
    marked: Arc<Notify>,
}

#[derive(Default)]
struct CountersInner {
    began: Option<jiff::Timestamp>,
    marks: Marks,
    progress: Progress,
    /// Seconds per step, newest last.
    intervals: Vec<f64>,
    /// When the step last grew, by the monotonic clock. `None` until a step was seen as it
    /// happened.
    stepped: Option<(Duration, f64)>,
    done: Option<Duration>,
    /// Explicit checkpoint marks: their number, and the step at the newest.
    saved: u64,
    saved_step: Option<f64>,
    /// Marks that were read but not counted yet. `marked_by`: the newest counted mark was made by
    /// then.
    unsettled: u64,
    marked_by: Option<i64>,
    /// Whether the file had a mark, of whatever age.
    has_marked: bool,
    /// The newest step that the newest start has reported.
    told: Option<f64>,
    /// The number of these reports, and by when the newest was written.
    reports: u64,
    told_by: Option<i64>,
    /// The longest silence of a workload that reports, seconds.
    silent_secs: Option<f64>,
    /// The job reports its own steps, so printed progress bars do not count.
    tells: bool,
    /// The progress file had a line.
    has_written: bool,
    /// The metric of a trial; `None`: the job is no trial.
    metric: Option<MetricSeries>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub mono: Duration,
    pub at: jiff::Timestamp,
}

impl ClockReading {
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        ClockReading { mono: clock.mono(), at: clock.now() }
    }
}

impl ActivityCounters {
    pub fn marks(&self) -> Marks {
        self.inner().marks.clone()
    }

    pub fn progress(&self) -> Progress {
        self.inner().progress.clone()
    }

    /// The reports of a trial of a tuning.
    pub fn metric(&self) -> Option<MetricSeries> {
        self.inner().metric.clone()
    }

    /// The job is a trial: its reports of the metric are kept.
    pub(crate) fn keeps_metric(&self) {
        self.inner().metric.get_or_insert_default();
    }

    pub(crate) fn record_metric(&self, step: Option<f64>, value: f64) {
        if let Some(metric) = &mut self.inner().metric {
            metric.add(step, value);
        }
    }

    /// When the workload reported that it is done, by the monotonic clock.
    pub fn done(&self) -> Option<Duration> {
        self.inner().done
    }

    /// Forgets the done mark before a new start. An older marker file does not count: it came with
    /// the workdir, or from an earlier start.
    pub fn restarted(&self, at: jiff::Timestamp) {
        let mut inner = self.inner();
        (inner.done, inner.told, inner.told_by) = (None, None, None);
        inner.began = Some(at);
    }

    /// The same for the next engine of a rank, whose program goes on. `at`: when it was read;
    /// `None`: it was written before this agent started.
    pub(crate) fn begins_epoch(&self, at: Option<jiff::Timestamp>) {
        let mut inner = self.inner();
        (inner.done, inner.told, inner.told_by) = (None, None, None);
        inner.began = at.or(inner.began);
    }

    pub(crate) fn is_news(&self, modified_nanos: i64) -> bool {
        self.inner().began.is_none_or(|began| i128::from(modified_nanos) >= began.as_nanosecond())
    }

    pub(crate) fn record_log_bytes(&self, bytes: u64) {
        self.inner().marks.log_bytes += bytes;
    }

    /// A matching log line, or a line that cannot be parsed.
    pub(crate) fn record_sign(&self) {
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

    pub(crate) fn longest_silence(&self) -> Option<f64> {
        self.inner().silent_secs
    }

    /// Resolves when there is a new mark since the last call.
    pub(crate) async fn wait_for_mark(&self) {
        self.marked.notified().await;
    }

    /// The number of marks seen as they came, and the step at the newest, also one of an earlier
    /// agent.
    pub(crate) fn marks_seen(&self) -> (u64, Option<f64>) {
        let inner = self.inner();
        (inner.saved, inner.saved_step)
    }

    /// When the newest of them was made at the latest, nanoseconds since 1970, by the progress
    /// file's file system. It covers files written before.
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

    /// Whether its steps are known only from its output. Such a job marks no checkpoints.
    pub(crate) fn prints_steps(&self) -> bool {
        let inner = self.inner();
        inner.tells && !inner.has_written
    }

    pub(crate) fn has_marked(&self) -> bool {
        self.inner().has_marked
    }

    /// The newest step of this start that was seen as it happened. Older steps do not tell what is
    /// saved now.
    pub(crate) fn live_step(&self) -> Option<f64> {
        self.inner().told
    }

    /// The number of steps reported so far. With it, the time by which the newest was written:
    /// nanoseconds since 1970, by its file system. `None`: unknown.
    pub fn reports(&self) -> (u64, Option<i64>) {
        let inner = self.inner();
        (inner.reports, inner.told_by)
    }

    /// The newest reported step was written by this time of its file system.
    pub(crate) fn told_by(&self, modified_nanos: Option<i64>) {
        self.inner().told_by = modified_nanos;
    }

    /// `timed`: the step was seen as it happened, so it may count for the speed.
    pub(crate) fn record_step(&self, step: f64, now: ClockReading, timed: bool) {
        self.inner().told(step, now, timed);
    }

    /// The step that the job itself reported. Progress bars may count differently.
    pub(crate) fn own_step(&self) -> Option<f64> {
        let inner = self.inner();
        inner.progress.step.filter(|_| inner.tells)
    }

    pub(crate) fn has_own_steps(&self) -> bool {
        self.inner().tells
    }

    /// Shows a progress bar or line. It never names a checkpoint. Without a total there is no time
    /// left.
    pub(crate) fn record_printed(
        &self,
        stand: PrintedProgress,
        loss: Option<f64>,
        now: ClockReading,
        timed: bool,
    ) {
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
            inner.forget_speed();
        }
    }

    pub(crate) fn record_line(&self, line: ProgressLine, now: ClockReading, timed: bool) {
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
            // A mark that was seen as it was made cannot have the step of an earlier start.
            (inner.has_marked, inner.saved_step) = (
                true,
                if timed { inner.told } else { inner.progress.step.filter(|_| inner.tells) },
            );
        }
        if line.checkpoint.is_some() && timed {
            inner.unsettled += 1;
        }
    }

    fn inner(&self) -> MutexGuard<'_, CountersInner> {
        self.inner.lock().expect("no code panics while it holds the board: it only adds numbers")
    }
}

impl CountersInner {
    fn told(&mut self, step: f64, now: ClockReading, timed: bool) {
        if !step.is_finite() {
            return;
        }
        self.begins_to_tell();
        self.step(step, now, timed);
        if timed {
            self.told = Some(step);
            (self.reports, self.told_by) = (self.reports + 1, None);
        }
    }

    fn begins_to_tell(&mut self) {
        if !std::mem::replace(&mut self.tells, true) {
            (self.progress.total, self.progress.loss) = (None, None);
            self.forget_pace();
        }
    }

    /// Earlier steps had another unit.
    fn forget_pace(&mut self) {
        self.intervals.clear();
        self.stepped = None;
        self.forget_speed();
    }

    fn forget_speed(&mut self) {
        let progress = &mut self.progress;
        progress.secs_per_step = None;
        (progress.secs_per_step_low, progress.secs_per_step_high) = (None, None);
    }

    fn step(&mut self, step: f64, now: ClockReading, timed: bool) {
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
        let median = sorted[sorted.len() / 2];
        self.progress.secs_per_step = Some(median);
        let spread = (self.intervals.len() >= SPREAD_MIN).then(|| mean_of(&self.intervals));
        // A few slow steps, as an evaluation, make the mean more than the median.
        self.progress.secs_per_step_low = spread.map(|(mean, error)| median.min(mean - error));
        self.progress.secs_per_step_high = spread.map(|(mean, error)| median.max(mean + error));
    }
}

/// The mean, and the standard deviation of the mean. `values`: at least two.
fn mean_of(values: &[f64]) -> (f64, f64) {
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (number - 1.0) / number).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 775 of the simulation: after a reboot, step 0 was saved as step 17.
    #[test]
    fn step_of_earlier_start_is_not_step_of_this_start() {
        let (board, at) = (ActivityCounters::default(), jiff::Timestamp::UNIX_EPOCH);
        board.record_step(17.0, ClockReading { mono: Duration::ZERO, at }, true);
        board.restarted(at);
        assert_eq!((board.live_step(), board.progress().step), (None, Some(17.0)));
    }

    /// Seeds 1572 and 1588 of the false gangs: step 0 of epoch 3 was saved as step 15 of epoch 1.
    #[test]
    fn step_of_earlier_epoch_is_not_step_of_this_epoch() {
        let (board, at) = (ActivityCounters::default(), jiff::Timestamp::UNIX_EPOCH);
        board.record_step(15.0, ClockReading { mono: Duration::ZERO, at }, true);
        board.set_done(Duration::ZERO);
        board.begins_epoch(Some(at));
        assert_eq!((board.live_step(), board.progress().step), (None, Some(15.0)));
        assert_eq!(board.done(), None, "the next engine has not said it");
    }

    #[test]
    fn spread_of_recent_steps_needs_some_of_them() {
        let (board, at) = (ActivityCounters::default(), jiff::Timestamp::UNIX_EPOCH);
        let mut mono = Duration::ZERO;
        let mut step = |number: u32, secs: u64| {
            mono += Duration::from_secs(secs);
            board.record_step(f64::from(number), ClockReading { mono, at }, true);
        };
        (0..8).for_each(|number| step(number, 10));
        assert_eq!(board.progress().secs_per_step_low, None, "seven intervals");
        [20, 20, 30, 10].into_iter().zip(8..).for_each(|(secs, number)| step(number, secs));
        let progress = board.progress();
        let told =
            [progress.secs_per_step_low, progress.secs_per_step, progress.secs_per_step_high];
        let rounded = told.map(|secs| secs.map(|secs| (secs * 10.0).round()));
        assert_eq!(rounded, [Some(100.0), Some(100.0), Some(157.0)], "the mean is 13.6 s");
        board.record_printed(
            PrintedProgress { step: 12.0, total: None },
            None,
            ClockReading { mono, at },
            true,
        );
        assert!(board.progress().secs_per_step_high.is_some(), "its own steps win");
    }

    #[test]
    fn own_steps_win_over_progress_bar() {
        let (board, at) = (ActivityCounters::default(), jiff::Timestamp::UNIX_EPOCH);
        let moment = |secs| ClockReading { mono: Duration::from_secs(secs), at };
        board.record_printed(
            PrintedProgress { step: 400.0, total: Some(500.0) },
            Some(1.0),
            moment(1),
            true,
        );
        assert_eq!(
            (board.progress().step, board.live_step(), board.own_step()),
            (Some(400.0), None, None)
        );
        board.record_line(
            ProgressLine { step: Some(3.0), ..ProgressLine::default() },
            moment(2),
            true,
        );
        board.record_printed(
            PrintedProgress { step: 410.0, total: Some(500.0) },
            None,
            moment(3),
            true,
        );
        let progress = board.progress();
        assert_eq!(
            (progress.step, progress.total, progress.loss, board.live_step()),
            (Some(3.0), None, None, Some(3.0))
        );
    }
}
