//! A gang for its page: its ranks and epochs, and how busy each rank was, by time.

use std::sync::Arc;

use super::usage_trend::{UsageTrend, UsageTrends};
use crate::app::gang::gang_report::GangReport;
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError};
use crate::wire::{ClockHandle, StoreHandle};

/// The facts of a gang and its heat map.
#[derive(Debug)]
pub struct GangView {
    pub report: GangReport,
    pub heat: Vec<HeatRow>,
}

/// How busy one rank was.
#[derive(Debug)]
pub struct HeatRow {
    pub rank: u32,
    pub trend: Arc<UsageTrend>,
}

/// The steps of the scale, from nothing to everything.
pub const HEAT_STEPS: usize = 5;

impl GangView {
    /// `None`: its job has one machine.
    ///
    /// # Errors
    /// When the job root does not answer.
    pub async fn read(
        dir: &JobDir,
        trends: &UsageTrends,
        store: &StoreHandle,
        clock: &ClockHandle,
    ) -> Result<Option<GangView>, JobDirError> {
        let Some(report) = GangReport::read(dir, clock.now()).await? else { return Ok(None) };
        let mut heat = Vec::new();
        for rank in report.ranks.iter().filter(|rank| rank.attempts > 0) {
            let attempt = AttemptNo::new(u32::try_from(rank.attempts).unwrap_or(u32::MAX));
            let trend = trends.of_attempt(rank.job.as_str(), attempt, store, clock).await;
            heat.extend(trend.map(|trend| HeatRow { rank: rank.rank, trend }));
        }
        Ok(Some(GangView { report, heat }))
    }
}

impl HeatRow {
    /// The step of each moment, below [`HEAT_STEPS`]. `None`: unknown.
    pub fn steps(&self) -> Vec<Option<usize>> {
        let step = |value: f64| {
            let share = (value / self.trend.top.max(1e-9)).clamp(0.0, 1.0);
            ((share * HEAT_STEPS as f64) as usize).min(HEAT_STEPS - 1)
        };
        self.trend.values.iter().map(|value| value.map(step)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_has_five_steps_and_unknown_is_none_of_them() {
        let values = vec![Some(0.0), None, Some(55.0), Some(100.0)];
        let trend = UsageTrend { label: "GPU", unit: "%", values, top: 100.0 };
        let row = HeatRow { rank: 1, trend: Arc::new(trend) };
        assert_eq!(row.steps(), [Some(0), None, Some(2), Some(4)]);
    }
}
