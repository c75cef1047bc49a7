//! The last hour of a job for its line in the overview: the GPU, else the processor.

use std::sync::Arc;

use crate::app::overview::overview::JobRow;
use crate::app::view::plot_data::{PlotData, Series};
use crate::job::{AttemptNo, JobState};
use crate::jobdir::JobDir;
use crate::wire::Store;

/// A batch has about five minutes.
const BATCHES: usize = 12;

const POINTS: usize = 60;

/// Without values, nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobTrace {
    pub label: &'static str,
    pub values: Vec<Option<f64>>,
    /// The value at the upper edge.
    pub top: f64,
}

impl JobTrace {
    /// `None`: the job has no machine whose samples say anything about now, or they cannot be read.
    pub async fn read(row: &JobRow, store: &Store) -> Option<JobTrace> {
        let summary = &row.summary;
        let is_at_work = matches!(summary.state, JobState::Running | JobState::Draining);
        let attempt = summary.attempt.filter(|_| is_at_work).map(AttemptNo::new)?;
        let dir = JobDir::new(Arc::clone(store), summary.job.parse().ok()?);
        let data = PlotData::recent(&dir, attempt, BATCHES, POINTS).await.ok()?;
        Some(JobTrace::of(&data))
    }

    pub fn of(data: &PlotData) -> JobTrace {
        let named = |name: &str| data.series.iter().find(|series| series.name == name);
        let of = |label: &'static str, series: &Series| {
            let known = series.values.iter().flatten().copied();
            // Processor time of several cores has no fixed top.
            JobTrace { label, values: series.values.clone(), top: known.fold(100.0, f64::max) }
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
