//! The samples of an attempt as series for a plot: few points, and every extreme.

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::Serialize;

use crate::app::unpack::{UNPACKED_MAX, unpacked};
use crate::instance::{Rates, Reading, sample_rows};
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::wire::StoreError;

/// Reads in parallel: a day has about 300 batches.
pub(crate) const READS_IN_FLIGHT: usize = 16;

/// One series. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Series {
    /// The field of `instance::Rates`, for example `gpu_percent`.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub name: &'static str,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub unit: &'static str,
    /// Seconds since the work began, ascending.
    pub t_secs: Vec<f64>,
    /// `null`: the value is missing, or could not be read.
    pub values: Vec<Option<f64>>,
}

/// The samples of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct PlotData {
    /// The wall clock at zero seconds, if a sample has it.
    pub began: Option<Timestamp>,
    /// Number of samples that were read.
    pub samples: usize,
    /// Series without a single known value are left out.
    pub series: Vec<Series>,
}

/// A series: its name, its unit, and its value in a sample.
pub(crate) struct PlotField {
    pub name: &'static str,
    pub unit: &'static str,
    pub value: fn(&Rates) -> Option<f64>,
}

const fn field(
    name: &'static str,
    unit: &'static str,
    value: fn(&Rates) -> Option<f64>,
) -> PlotField {
    PlotField { name, unit, value }
}

pub(crate) const FIELDS: [PlotField; 16] = [
    field("gpu_percent", "%", |rates| known(&rates.gpu_percent)),
    field("gpu_power_percent", "% of the limit", power_percent),
    field("gpu_memory_percent", "%", |rates| known(&rates.gpu_memory_percent)),
    field("gpu_memory_used_mib", "MiB", |rates| known(&rates.gpu_memory_used_mib)),
    field("gpu_power_watts", "W", |rates| known(&rates.gpu_power_watts)),
    field("gpu_clock_mhz", "MHz", |rates| known(&rates.gpu_clock_mhz)),
    field("gpu_temperature_celsius", "°C", |rates| known(&rates.gpu_temperature_celsius)),
    field("cpu_percent", "% of a core", |rates| known(&rates.cpu_percent)),
    field("machine_cpu_percent", "% of all cores", |rates| known(&rates.machine_cpu_percent)),
    field("memory_bytes", "B", |rates| known(&rates.memory_bytes)),
    field("machine_memory_percent", "%", |rates| known(&rates.machine_memory_percent)),
    field("disk_bytes_per_sec", "B/s", |rates| known(&rates.disk_bytes_per_sec)),
    field("disk_free_bytes", "B", |rates| known(&rates.disk_free_bytes)),
    field("net_bytes_per_sec", "B/s", |rates| known(&rates.net_bytes_per_sec)),
    field("net_received_bytes_per_sec", "B/s", |rates| known(&rates.net_received_bytes_per_sec)),
    field("net_sent_bytes_per_sec", "B/s", net_sent),
];

fn net_sent(rates: &Rates) -> Option<f64> {
    let (all, received) =
        (known(&rates.net_bytes_per_sec)?, known(&rates.net_received_bytes_per_sec)?);
    Some((all - received).max(0.0))
}

/// The power of the counted GPUs, as a share of what the driver lets them draw.
fn power_percent(rates: &Rates) -> Option<f64> {
    let limit = known(&rates.gpu_power_limit_watts).filter(|limit| *limit > 0.0)?;
    Some(known(&rates.gpu_power_watts)? / limit * 100.0)
}

/// A point of a series. `None`: the value is missing.
pub(crate) type Point = (f64, Option<f64>);

impl PlotData {
    /// Reads an attempt, and reduces each series to about `points` points.
    ///
    /// # Errors
    /// Fails when the store does not answer.
    pub async fn read(
        dir: &JobDir,
        attempt: AttemptNo,
        points: usize,
    ) -> Result<Self, JobDirError> {
        Ok(PlotData::of(&samples(dir, attempt, usize::MAX).await?, points))
    }

    /// The same for the newest batches only.
    ///
    /// # Errors
    /// As [`PlotData::read`].
    pub async fn recent(
        dir: &JobDir,
        attempt: AttemptNo,
        batches: usize,
        points: usize,
    ) -> Result<Self, JobDirError> {
        Ok(PlotData::of(&samples(dir, attempt, batches).await?, points))
    }

    pub fn of(samples: &[Rates], points: usize) -> Self {
        let series = FIELDS.iter().filter_map(|field| {
            let all: Vec<Point> =
                samples.iter().map(|rates| (rates.t_secs, (field.value)(rates))).collect();
            all.iter().any(|(_, value)| value.is_some()).then(|| Series::of(field, &all, points))
        });
        PlotData {
            began: samples.iter().find_map(began),
            samples: samples.len(),
            series: series.collect(),
        }
    }
}

impl Series {
    pub(crate) fn of(field: &PlotField, all: &[Point], points: usize) -> Series {
        let (t_secs, values) = reduced(all, points).into_iter().unzip();
        Series { name: field.name, unit: field.unit, t_secs, values }
    }
}

/// The wall clock at zero seconds.
pub(crate) fn began(rates: &Rates) -> Option<Timestamp> {
    let since = std::time::Duration::try_from_secs_f64(rates.t_secs).ok()?;
    rates.at?.checked_sub(since).ok()
}

pub(crate) fn known(reading: &Reading<f64>) -> Option<f64> {
    match reading {
        Reading::Known(value) => Some(*value).filter(|value| value.is_finite()),
        Reading::Absent | Reading::Unknown(_) => None,
    }
}

/// The first, lowest, highest and last point of each of `points / 4` equal spans of samples (M4:
/// Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014). A line
/// through them looks the same at that width. A span without a known value keeps one gap.
pub(crate) fn reduced(all: &[Point], points: usize) -> Vec<Point> {
    if all.len() <= points.max(4) {
        return all.to_vec();
    }
    let span = all.len().div_ceil((points / 4).max(1));
    let mut kept = Vec::with_capacity(points + 4);
    for chunk in all.chunks(span) {
        let known =
            || chunk.iter().enumerate().filter_map(|(at, (_, value))| Some((at, (*value)?)));
        let lowest = known().min_by(|one, other| one.1.total_cmp(&other.1));
        let highest = known().max_by(|one, other| one.1.total_cmp(&other.1));
        let gap = chunk.iter().position(|(_, value)| value.is_none());
        let mut places = vec![0, chunk.len() - 1];
        places.extend(lowest.map(|(at, _)| at));
        places.extend(highest.map(|(at, _)| at));
        places.extend(gap);
        places.sort_unstable();
        places.dedup();
        kept.extend(places.into_iter().map(|at| chunk[at]));
    }
    kept
}

/// Rows of a table for people.
const ROWS: usize = 200;

/// A table for people has few rows, with the extremes.
pub(crate) fn thinned(series: &Series) -> Series {
    let points: Vec<_> = series.t_secs.iter().copied().zip(series.values.clone()).collect();
    let (t_secs, values) = reduced(&points, ROWS).into_iter().unzip();
    Series { t_secs, values, ..series.clone() }
}

/// The wall clock at a place of the axis. `None`: no sample has the clock.
pub(crate) fn moment(began: Option<Timestamp>, secs: f64) -> Option<Timestamp> {
    began?.checked_add(std::time::Duration::try_from_secs_f64(secs).ok()?).ok()
}

/// The samples of the newest batches of an attempt, in order. A batch or a line that cannot be read
/// is left out.
///
/// # Errors
/// Fails when the store does not answer.
pub async fn samples(
    dir: &JobDir,
    attempt: AttemptNo,
    newest: usize,
) -> Result<Vec<Rates>, JobDirError> {
    let mut samples = Vec::new();
    each_sample(dir, attempt, newest, |rates| samples.push(rates)).await?;
    Ok(samples)
}

/// The same, one after the other: a week of samples does not fit in memory.
///
/// # Errors
/// As [`samples`].
pub async fn each_sample(
    dir: &JobDir,
    attempt: AttemptNo,
    newest: usize,
    mut take: impl FnMut(Rates),
) -> Result<(), JobDirError> {
    let mut batches = batches(dir, attempt).await?;
    batches.drain(..batches.len().saturating_sub(newest));
    let read = |batch: String| async move { batch_bytes(dir, &batch).await };
    let mut read = std::pin::pin!(stream::iter(batches).map(read).buffered(READS_IN_FLIGHT));
    while let Some(piece) = read.try_next().await? {
        rows(&piece.unwrap_or_default()).into_iter().for_each(&mut take);
    }
    Ok(())
}

/// The keys of the batches of an attempt, oldest first. A batch never changes.
pub(crate) async fn batches(dir: &JobDir, attempt: AttemptNo) -> Result<Vec<String>, JobDirError> {
    let folder = layout::samples(dir.job(), attempt);
    let names = dir.store().children(&folder).await?;
    Ok(names.into_iter().map(|name| format!("{folder}{name}")).collect())
}

/// The packed bytes. `None`: it is gone, or is not a batch.
pub(crate) async fn batch_bytes(dir: &JobDir, batch: &str) -> Result<Option<Bytes>, JobDirError> {
    match dir.store().get_at_most(batch, UNPACKED_MAX).await {
        Err(StoreError::Unfit { .. }) => Ok(None),
        read => Ok(read?),
    }
}

pub(crate) fn rows(piece: &[u8]) -> Vec<Rates> {
    unpacked(piece).map(|text| sample_rows(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = Reading<f64>>) -> Vec<Rates> {
        let rates = |(at, gpu_percent): (usize, Reading<f64>)| Rates {
            t_secs: at as f64,
            gpu_percent,
            at: Some(Timestamp::from_second(1_700_000_000 + at as i64).expect("a moment")),
            ..Rates::default()
        };
        values.into_iter().enumerate().map(rates).collect()
    }

    #[test]
    fn week_of_samples_keeps_its_only_peak_and_its_only_gap() {
        let samples = series((0..604_800).map(|at| match at {
            300_001 => Reading::Known(99.0),
            400_001 => Reading::unknown("the driver does not answer"),
            _ => Reading::Known(50.0),
        }));
        let data = PlotData::of(&samples, 1_000);
        let [gpu] = data.series.as_slice() else { panic!("{} series", data.series.len()) };
        assert!(gpu.values.len() <= 1_300, "{} points", gpu.values.len());
        let at = |wanted| gpu.values.iter().position(|value| *value == wanted);
        assert_eq!(at(Some(99.0)).map(|at| gpu.t_secs[at]), Some(300_001.0));
        assert_eq!(at(None).map(|at| gpu.t_secs[at]), Some(400_001.0));
        assert!(gpu.t_secs.is_sorted(), "time never goes back");
        assert_eq!(data.began.map(Timestamp::as_second), Some(1_700_000_000));
    }

    #[test]
    fn few_samples_are_kept_as_they_are_and_absent_series_left_out() {
        let samples = series([Reading::Known(1.0), Reading::Absent, Reading::Known(f64::NAN)]);
        let data = PlotData::of(&samples, 1_000);
        assert_eq!(data.series.len(), 1);
        assert_eq!(data.series[0].values, [Some(1.0), None, None]);
        assert_eq!(PlotData::of(&[], 10), PlotData::default());
    }
}
