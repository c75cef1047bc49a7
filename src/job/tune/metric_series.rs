//! The metric that a trial reported, step by step.

use serde::{Deserialize, Serialize};

/// Points kept of one trial. More make each heartbeat longer: this many are about 20 kB. Fewer
/// give early stopping less to compare.
const POINTS_MAX: usize = 400;

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct MetricPoint {
    pub step: f64,
    /// `None`: it was not a number.
    pub value: Option<f64>,
}

/// The reports of one trial, ordered by step. Above 400 points, every second point is dropped,
/// so that equal trials keep equal steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct MetricSeries {
    pub points: Vec<MetricPoint>,
    /// The newest report, which thinning never drops.
    pub last: Option<MetricPoint>,
    /// How many reports there were.
    pub reports: u64,
}

impl MetricSeries {
    /// Adds a report. Without a step, the number of the report is its step. A second report of a
    /// step replaces the first.
    pub fn add(&mut self, step: Option<f64>, value: f64) {
        self.reports += 1;
        let step = step.filter(|step| step.is_finite()).unwrap_or(self.reports as f64);
        let point = MetricPoint { step, value: Some(value).filter(|value| value.is_finite()) };
        self.last = Some(point);
        self.put(point);
    }

    fn put(&mut self, point: MetricPoint) {
        match self.points.binary_search_by(|other| other.step.total_cmp(&point.step)) {
            Ok(at) => self.points[at] = point,
            Err(at) => self.points.insert(at, point),
        }
        if self.points.len() > POINTS_MAX {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// Joins the series of a later attempt of the same trial.
    pub fn join(&mut self, later: &MetricSeries) {
        for point in &later.points {
            self.put(*point);
        }
        self.reports += later.reports;
        self.last = later.last.or(self.last);
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_same_steps_of_trials_and_the_last_report() {
        let mut one = MetricSeries::default();
        let mut other = MetricSeries::default();
        for step in 0..1001 {
            one.add(Some(f64::from(step)), 1.0);
            other.add(Some(f64::from(step)), 2.0);
        }
        let steps = |series: &MetricSeries| {
            series.points.iter().map(|point| point.step).collect::<Vec<_>>()
        };
        assert!(one.points.len() <= POINTS_MAX);
        assert_eq!(steps(&one), steps(&other));
        assert_eq!(one.last, Some(MetricPoint { step: 1000.0, value: Some(1.0) }));
    }

    #[test]
    fn report_without_step_counts_and_nan_is_kept_as_none() {
        let mut series = MetricSeries::default();
        series.add(None, 0.5);
        series.add(None, f64::NAN);
        assert_eq!(series.last, Some(MetricPoint { step: 2.0, value: None }));
        series.add(Some(1.0), 0.25);
        assert_eq!(series.points[0], MetricPoint { step: 1.0, value: Some(0.25) });
    }
}
