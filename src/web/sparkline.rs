//! The last hour of a job as a small drawing in text: the GPU, else the processor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::app::overview::overview::JobRow;
use crate::app::view::plot_data::PlotData;
use crate::job::{AttemptNo, JobState};
use crate::jobdir::JobDir;
use crate::market::elapsed;
use crate::wire::Store;

/// A batch has about five minutes.
const BATCHES: usize = 12;

const POINTS: usize = 60;

const WIDTH: f64 = 120.0;

const HEIGHT: f64 = 24.0;

/// What is drawn. Without values, nothing is known.
#[derive(Debug, Default)]
pub struct Trend {
    name: &'static str,
    unit: &'static str,
    values: Vec<Option<f64>>,
}

/// A newer trend would look the same.
const OLD: Duration = Duration::from_secs(60);

/// The trends that were read in the last minute.
#[derive(Default)]
pub struct Trends(Mutex<BTreeMap<String, (Timestamp, Arc<Trend>)>>);

impl Trends {
    /// `None`: the job has no machine whose samples say anything about now.
    pub async fn of(&self, row: &JobRow, store: &Store, now: Timestamp) -> Option<Arc<Trend>> {
        let summary = &row.summary;
        let is_at_work = matches!(summary.state, JobState::Running | JobState::Draining);
        let attempt = summary.attempt.filter(|_| is_at_work).map(AttemptNo::new)?;
        let known = self.known().get(&summary.job).cloned();
        if let Some((read, trend)) = known
            && elapsed(read, now) < OLD
        {
            return Some(trend);
        }
        let dir = JobDir::new(Arc::clone(store), summary.job.parse().ok()?);
        let data = PlotData::recent(&dir, attempt, BATCHES, POINTS).await.ok()?;
        let trend = Arc::new(Trend::of(&data));
        self.known().insert(summary.job.clone(), (now, Arc::clone(&trend)));
        Some(trend)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, (Timestamp, Arc<Trend>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trend {
    fn of(data: &PlotData) -> Trend {
        let series = ["gpu_percent", "cpu_percent"]
            .iter()
            .find_map(|name| data.series.iter().find(|series| series.name == *name));
        series.map_or_else(Trend::default, |series| Trend {
            name: series.name,
            unit: series.unit,
            values: series.values.clone(),
        })
    }
}

pub fn draw(trend: &Trend) -> Markup {
    let known = || trend.values.iter().flatten().copied();
    let Some(last) = known().next_back() else {
        return html! { span.muted { "no samples yet" } };
    };
    // A percentage of one GPU has a fixed scale. Processor time of several cores has none.
    let top = known().fold(100.0_f64, f64::max);
    let label = if trend.name == "gpu_percent" { "GPU" } else { "CPU" };
    html! {
        svg.spark viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
            aria-label=(format!("{label} in the last hour, now {last:.0} {}", trend.unit)) {
            @for part in lines(&trend.values, top) { polyline points=(part) {} }
        }
        span.muted { (format!("{label} {last:.0}%")) }
    }
}

/// One line for each stretch without a gap: an unknown value is not zero.
fn lines(values: &[Option<f64>], top: f64) -> Vec<String> {
    let step = WIDTH / (values.len().max(2) - 1) as f64;
    let stretches = values.iter().enumerate().collect::<Vec<_>>();
    stretches
        .split(|(_, value)| value.is_none())
        .filter(|stretch| !stretch.is_empty())
        .map(|stretch| {
            let point = |(at, value): &(usize, &Option<f64>)| {
                let share = value.unwrap_or_default() / top.max(1e-9);
                let y = HEIGHT - 1.0 - share.clamp(0.0, 1.0) * (HEIGHT - 2.0);
                format!("{:.1},{y:.1}", *at as f64 * step)
            };
            stretch.iter().map(point).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_breaks_the_line() {
        let drawn = lines(&[Some(0.0), Some(100.0), None, Some(50.0), Some(50.0)], 100.0);
        assert_eq!(drawn, ["0.0,23.0 30.0,1.0", "90.0,12.0 120.0,12.0"]);
        assert!(lines(&[], 100.0).is_empty());
    }
}
