//! The last hour of a job for its line in the overview: the GPU, else the processor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;

use super::overview::JobRow;
use crate::app::view::plot_data::{PlotData, Series};
use crate::job::{AttemptNo, JobState};
use crate::jobdir::JobDir;
use crate::market::elapsed;
use crate::wire::{ClockHandle, StoreHandle};

/// A batch has about five minutes.
const BATCHES: usize = 12;

const POINTS: usize = 60;

/// A newer trend would look the same.
const OLD: Duration = Duration::from_secs(60);

/// A page waits so long for new trends, and then shows the old ones. A batch takes much less.
const PATIENCE: Duration = Duration::from_secs(2);

/// Jobs whose last hour is read at once. Each has up to a dozen objects.
const JOBS_IN_FLIGHT: usize = 8;

/// Without values, nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageTrend {
    /// `GPU` or `CPU`.
    pub label: &'static str,
    pub unit: &'static str,
    pub values: Vec<Option<f64>>,
    /// The value at the upper edge.
    pub top: f64,
}

/// The trends that were read in the last minute.
#[derive(Default)]
pub struct UsageTrends(Mutex<BTreeMap<String, (Timestamp, Arc<UsageTrend>)>>);

impl UsageTrends {
    /// The trends of these jobs, in order: all together within `PATIENCE`. `None`: the job has no
    /// machine whose samples say anything about now, or they cannot be read.
    pub async fn of(
        &self,
        rows: &[&JobRow],
        store: &StoreHandle,
        clock: &ClockHandle,
    ) -> Vec<Option<Arc<UsageTrend>>> {
        let until = clock.mono() + PATIENCE;
        let asked = rows.iter().map(|row| {
            let summary = &row.summary;
            let is_at_work = matches!(summary.state, JobState::Running | JobState::Draining);
            let attempt = summary.attempt.filter(|_| is_at_work).map(AttemptNo::new);
            (summary.job.clone(), attempt)
        });
        let asked: Vec<(String, Option<AttemptNo>)> = asked.collect();
        let read = |(job, attempt): (String, Option<AttemptNo>)| async move {
            self.read(&job, attempt?, store, clock, until).await
        };
        stream::iter(asked).map(read).buffered(JOBS_IN_FLIGHT).collect().await
    }

    /// The end of an attempt, also of one that has ended. `None`: its samples cannot be read.
    pub async fn of_attempt(
        &self,
        job: &str,
        attempt: AttemptNo,
        store: &StoreHandle,
        clock: &ClockHandle,
    ) -> Option<Arc<UsageTrend>> {
        self.read(job, attempt, store, clock, clock.mono() + PATIENCE).await
    }

    async fn read(
        &self,
        job: &str,
        attempt: AttemptNo,
        store: &StoreHandle,
        clock: &ClockHandle,
        until: Duration,
    ) -> Option<Arc<UsageTrend>> {
        let (now, known) = (clock.now(), self.known().get(job).cloned());
        if let Some((read, trend)) = &known
            // A clock that was set back must not keep it.
            && *read <= now
            && elapsed(*read, now) < OLD
        {
            return Some(Arc::clone(trend));
        }
        let dir = JobDir::new(Arc::clone(store), job.parse().ok()?);
        let data = tokio::select! {
            read = PlotData::recent(&dir, attempt, BATCHES, POINTS) => read.ok()?,
            // A silent job root must not hold up a page that knows an old trend.
            () = clock.sleep(until.saturating_sub(clock.mono())) => {
                return known.map(|(_, trend)| trend);
            }
        };
        let trend = Arc::new(UsageTrend::of(&data));
        self.known().insert(job.to_owned(), (now, Arc::clone(&trend)));
        Some(trend)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, (Timestamp, Arc<UsageTrend>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsageTrend {
    fn of(data: &PlotData) -> UsageTrend {
        let named = |name: &str| data.series.iter().find(|series| series.name == name);
        let of = |label: &'static str, series: &Series| {
            let known = series.values.iter().flatten().copied();
            // A percentage of one GPU has a fixed scale. Processor time of several cores has none.
            let top = known.fold(100.0, f64::max);
            UsageTrend { label, unit: series.unit, values: series.values.clone(), top }
        };
        named("gpu_percent")
            .map(|series| of("GPU", series))
            .or_else(|| named("cpu_percent").map(|series| of("CPU", series)))
            .unwrap_or_default()
    }

    pub fn last(&self) -> Option<f64> {
        self.values.iter().flatten().next_back().copied()
    }
}
