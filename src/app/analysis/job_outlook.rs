//! The figures ahead of a running job: the money to its end, the work at risk, its disk and memory.

use std::time::Duration;

use serde::Serialize;

use crate::app::text::{measure, range_text};
use crate::app::view::job_summary::Summary;
use crate::app::view::plot_data::{PlotData, Series};
use crate::instance::Status;
use crate::market::{Span, Usd, UsdPerHour};

/// The free space is compared with the one this long ago. Shorter makes one download look like a
/// habit; longer notices a new one late.
const DISK_SECS: f64 = 1800.0;

/// Two samples of one minute say little.
const DISK_SECS_MIN: f64 = 120.0;

/// A disk that is full in more than a month is no news.
const DISK_HOURS_MAX: f64 = 720.0;

/// The figures of a job that runs. `None`: unknown, or there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct JobOutlook {
    /// From its progress.
    pub secs_to_end: Option<f64>,
    #[cfg_attr(feature = "web", schema(value_type = Option<f64>))]
    pub usd_to_end: Option<Usd>,
    /// The same at the speed of its faster and of its slower recent steps.
    #[cfg_attr(feature = "web", schema(value_type = Option<Vec<f64>>))]
    pub secs_to_end_range: Option<(f64, f64)>,
    #[cfg_attr(feature = "web", schema(value_type = Option<Vec<f64>>))]
    pub usd_to_end_range: Option<(Usd, Usd)>,
    /// Useful work that no checkpoint covers.
    pub secs_at_risk: Option<f64>,
    #[cfg_attr(feature = "web", schema(value_type = Option<f64>))]
    pub usd_at_risk: Option<Usd>,
    pub disk_free_bytes: Option<f64>,
    /// Until the disk is full, at the rate of the last half hour.
    pub disk_hours_left: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub machine_memory_percent: Option<f64>,
}

impl JobOutlook {
    pub fn of(summary: &Summary, status: Option<&Status>, data: &PlotData) -> JobOutlook {
        let series = |name: &str| data.series.iter().find(|series| series.name == name);
        let last = |name: &str| series(name).and_then(last_known).map(|(_, value)| value);
        let hour = summary.usd_per_hour.filter(|hour| *hour > UsdPerHour::ZERO);
        let cost = |secs: f64| Some(hour?.cost_of(Duration::try_from_secs_f64(secs).ok()?));
        let ahead = summary.progress.as_ref().and_then(|progress| progress.secs_left());
        let range = summary.progress.as_ref().and_then(|progress| progress.secs_left_range());
        let at_risk = status.map(|status| {
            let unsaved = status.useful.duration().saturating_sub(status.saved.duration());
            unsaved.as_secs_f64()
        });
        JobOutlook {
            secs_to_end: ahead,
            usd_to_end: ahead.and_then(cost),
            secs_to_end_range: range,
            usd_to_end_range: range.and_then(|(low, high)| Some((cost(low)?, cost(high)?))),
            secs_at_risk: at_risk,
            usd_at_risk: at_risk.and_then(cost),
            disk_free_bytes: last("disk_free_bytes"),
            disk_hours_left: series("disk_free_bytes").and_then(hours_left),
            memory_bytes: last("memory_bytes"),
            machine_memory_percent: last("machine_memory_percent"),
        }
    }

    /// `$1.20 in 2h 10m`, or `$1.20 to $1.40 in 2h 10m to 2h 30m`
    pub fn to_end_text(&self) -> Option<String> {
        let secs = self.secs_to_end.filter(|secs| *secs >= 1.0)?;
        let time = |secs: f64| Span::from_secs(secs as u64).to_string();
        let times = self.secs_to_end_range.map(|(low, high)| (time(low), time(high)));
        let usd = self.usd_to_end_range.map(|(low, high)| (low.to_string(), high.to_string()));
        let money = usd.map(range_text).or_else(|| self.usd_to_end.map(|usd| usd.to_string()));
        let time = times.map_or_else(|| time(secs), range_text);
        Some(match money {
            Some(usd) => format!("{usd} in {time}, by its progress"),
            None => format!("{time}, by its progress"),
        })
    }

    /// `12m of work, $0.40`
    pub fn at_risk_text(&self) -> Option<String> {
        let secs = self.secs_at_risk?;
        if secs < 1.0 {
            return Some("nothing".to_owned());
        }
        let time = Span::from_secs(secs as u64);
        let usd = self.usd_at_risk.map(|usd| format!(", {usd}")).unwrap_or_default();
        Some(format!("{time} of work{usd}"))
    }

    /// `9.8 GiB free; full in about 14 hours at this rate`
    pub fn disk_text(&self) -> Option<String> {
        let free = measure(self.disk_free_bytes?, "B");
        Some(match self.disk_hours_left {
            Some(hours) if hours < 1.0 => {
                format!("{free} free; full in about {:.0} minutes at this rate", hours * 60.0)
            }
            Some(hours) => format!("{free} free; full in about {hours:.0} hours at this rate"),
            None => format!("{free} free"),
        })
    }

    /// `14.8 MiB; 71 % of the machine's memory is in use`
    pub fn memory_text(&self) -> Option<String> {
        let own = self.memory_bytes.map(|bytes| measure(bytes, "B"));
        let all = self.machine_memory_percent;
        let all = all.map(|percent| format!("{percent:.0} % of the machine's memory is in use"));
        let parts: Vec<String> = own.into_iter().chain(all).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn last_known(series: &Series) -> Option<(f64, f64)> {
    let both = series.t_secs.iter().zip(&series.values).rev();
    both.into_iter().find_map(|(secs, value)| Some((*secs, (*value)?)))
}

/// `None`: it does not fill, or too slowly to matter.
fn hours_left(free: &Series) -> Option<f64> {
    let (end, last) = last_known(free)?;
    let known = free.t_secs.iter().zip(&free.values);
    let mut before = known.filter_map(|(secs, value)| Some((*secs, (*value)?)));
    let (begin, first) = before.find(|(secs, _)| end - secs <= DISK_SECS)?;
    let (secs, filled) = (end - begin, first - last);
    if secs < DISK_SECS_MIN || filled <= 0.0 {
        return None;
    }
    Some(last / filled * secs / 3600.0).filter(|hours| *hours <= DISK_HOURS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(values: &[Option<f64>]) -> Series {
        let t_secs = (0..values.len()).map(|at| at as f64 * 60.0).collect();
        Series { name: "disk_free_bytes", unit: "B", t_secs, values: values.to_vec() }
    }

    const GIB: f64 = (1_u64 << 30) as f64;

    #[test]
    fn disk_that_fills_has_hours_left() {
        // A GiB a minute, 60 are left.
        let filling: Vec<Option<f64>> = (0..41).map(|at| Some((100 - at) as f64 * GIB)).collect();
        let hours = hours_left(&free(&filling)).expect("it fills");
        assert!((hours - 1.0).abs() < 0.01, "{hours}");
        assert_eq!(hours_left(&free(&[Some(GIB), Some(GIB), Some(GIB)])), None, "it stays");
        assert_eq!(hours_left(&free(&[Some(2.0 * GIB), Some(GIB)])), None, "a minute says little");
        assert_eq!(hours_left(&free(&[None, None])), None);
        let outlook = JobOutlook {
            disk_free_bytes: Some(9.8 * GIB),
            disk_hours_left: Some(14.2),
            ..JobOutlook::default()
        };
        let text = "9.8 GiB free; full in about 14 hours at this rate";
        assert_eq!(outlook.disk_text().as_deref(), Some(text));
    }

    #[test]
    fn money_goes_with_the_time_and_unknown_is_left_out() {
        let mut summary = Summary::example(crate::job::JobState::Running);
        let unknown = JobOutlook::of(&summary, None, &PlotData::default());
        assert_eq!(unknown, JobOutlook::default());
        assert_eq!((unknown.at_risk_text(), unknown.memory_text()), (None, None));
        let dollar = Usd::from_micros(1_000_000);
        summary.usd_per_hour = Some(UsdPerHour::new(dollar));
        summary.progress = Some(crate::job::Progress {
            step: Some(100.0),
            total: Some(200.0),
            secs_per_step: Some(36.0),
            ..Default::default()
        });
        let outlook = JobOutlook::of(&summary, None, &PlotData::default());
        assert_eq!(outlook.usd_to_end, Some(dollar), "{outlook:?}");
        assert!(outlook.to_end_text().expect("a text").contains("in 1h"), "{outlook:?}");
        let progress = summary.progress.as_mut().expect("it is there");
        (progress.secs_per_step_low, progress.secs_per_step_high) = (Some(18.0), Some(54.0));
        let outlook = JobOutlook::of(&summary, None, &PlotData::default());
        let told = "$0.50 to $1.50 in 30m to 1h 30m, by its progress";
        assert_eq!(outlook.to_end_text().as_deref(), Some(told));
    }
}
