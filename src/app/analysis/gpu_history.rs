//! Each GPU of a machine over time: few points, with the highest and the lowest of each stretch.
//!
//! All GPUs share one time axis, because one sample has all of them.

use serde::Serialize;

use super::bands::BLIND_SECS;
use crate::instance::{GpuStatus, Rates};

/// Points of a line. Eight GPUs with five values each are then about 60 KB.
const GPU_POINTS: usize = 200;

/// The stretch of the small drawing in the table.
const RECENT_SECS: f64 = 3600.0;

/// Rows of a batch that is one of many.
const ROWS_OF_MANY: usize = 2;

/// A value of a GPU that has a plot.
pub struct GpuField {
    pub name: &'static str,
    pub unit: &'static str,
    pub value: fn(&GpuStatus) -> Option<f64>,
}

pub const GPU_FIELDS: [GpuField; 5] = [
    GpuField { name: "util_percent", unit: "%", value: |gpu| gpu.util_percent },
    GpuField {
        name: "memory_used_mib",
        unit: "MiB",
        value: |gpu| gpu.memory_used_mib.map(|mib| mib as f64),
    },
    GpuField { name: "power_watts", unit: "W", value: |gpu| gpu.power_watts },
    GpuField { name: "clock_mhz", unit: "MHz", value: |gpu| gpu.clock_mhz },
    GpuField { name: "temperature_celsius", unit: "°C", value: |gpu| gpu.temperature_celsius },
];

/// Each GPU of an attempt. The field names are an interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GpuHistory {
    /// Seconds since the work began, ascending.
    pub t_secs: Vec<f64>,
    /// A plot has one line for each GPU.
    pub plots: Vec<GpuPlot>,
    /// The utilisation of the last hour.
    #[serde(skip)]
    pub recent: Vec<GpuLine>,
}

/// One value of all GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GpuPlot {
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub name: &'static str,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub unit: &'static str,
    pub lines: Vec<GpuLine>,
}

/// One GPU of a plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GpuLine {
    pub gpu: u32,
    /// `null`: the value is missing, or could not be read.
    pub values: Vec<Option<f64>>,
}

/// One value of one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GpuValue {
    gpu: u32,
    values: [Option<f32>; GPU_FIELDS.len()],
}

/// All GPUs at one moment. A row without GPUs is a cut: no line crosses it.
#[derive(Clone, Debug, PartialEq)]
struct GpuRow {
    secs: f64,
    gpus: Vec<GpuValue>,
}

/// The rows of one batch or of an attempt, oldest first.
#[derive(Clone, Debug, Default)]
pub struct GpuTrack(Vec<GpuRow>);

impl GpuTrack {
    pub fn of(samples: &[Rates]) -> GpuTrack {
        let value = |gpu: &GpuStatus| GpuValue {
            gpu: gpu.index,
            values: std::array::from_fn(|at| (GPU_FIELDS[at].value)(gpu).map(|value| value as f32)),
        };
        let row = |rates: &Rates| GpuRow {
            secs: rates.t_secs,
            gpus: rates.gpus.iter().map(value).collect(),
        };
        let mut track = GpuTrack::default();
        // Only some samples have GPUs, so that one without them is no cut.
        for row in samples.iter().filter(|rates| !rates.gpus.is_empty()).map(row) {
            track.cut_before(row.secs);
            track.0.push(row);
        }
        track
    }

    /// About as many bytes as it takes in memory.
    pub fn bytes(&self) -> usize {
        let values: usize = self.0.iter().map(|row| row.gpus.len()).sum();
        self.0.len() * size_of::<GpuRow>() + values * size_of::<GpuValue>()
    }

    /// Adds rows that began `shift` seconds later.
    pub fn extend(&mut self, later: &GpuTrack, shift: f64) {
        let moved = |row: &GpuRow| GpuRow { secs: row.secs + shift, gpus: row.gpus.clone() };
        // Few rows of a long batch are far apart, so only its beginning is looked at.
        if let Some(first) = later.0.first() {
            self.cut_before(first.secs + shift);
        }
        self.0.extend(later.0.iter().map(moved));
    }

    /// A line over a gap would claim values that were not measured.
    fn cut_before(&mut self, secs: f64) {
        let last = self.0.last().map_or(secs, |row| row.secs);
        if secs - last > BLIND_SECS {
            self.0.push(GpuRow { secs: last, gpus: Vec::new() });
        }
    }

    /// No line goes on from here.
    pub fn cut(&mut self) {
        let last = self.0.last().map(|row| row.secs);
        self.0.extend(last.map(|secs| GpuRow { secs, gpus: Vec::new() }));
    }

    /// The rows of a drawing.
    pub fn few(&self) -> GpuTrack {
        self.reduced(GPU_POINTS)
    }

    /// One batch of thousands keeps its extremes.
    pub fn shrink(&mut self) {
        *self = self.reduced(ROWS_OF_MANY);
    }

    pub fn history(&self) -> GpuHistory {
        let few = self.few();
        let last = self.0.last().map_or(0.0, |row| row.secs);
        let recent = GpuTrack(
            self.0.iter().filter(|row| row.secs >= last - RECENT_SECS).cloned().collect::<Vec<_>>(),
        );
        let plots = GPU_FIELDS.iter().enumerate().map(|(at, field)| GpuPlot {
            name: field.name,
            unit: field.unit,
            lines: few.lines(at),
        });
        let has_value =
            |plot: &GpuPlot| plot.lines.iter().any(|line| line.values.iter().any(Option::is_some));
        GpuHistory {
            t_secs: few.0.iter().map(|row| (row.secs * 10.0).round() / 10.0).collect(),
            plots: plots.filter(has_value).collect(),
            recent: recent.reduced(GPU_POINTS).lines(0),
        }
    }

    fn gpus(&self) -> Vec<u32> {
        let mut gpus: Vec<u32> =
            self.0.iter().flat_map(|row| &row.gpus).map(|value| value.gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    fn lines(&self, field: usize) -> Vec<GpuLine> {
        let tenths = |value: f32| (f64::from(value) * 10.0).round() / 10.0;
        let value = |row: &GpuRow, gpu: u32| {
            let found = row.gpus.iter().find(|value| value.gpu == gpu);
            found.and_then(|found| found.values[field]).map(tenths)
        };
        let line =
            |gpu: u32| GpuLine { gpu, values: self.0.iter().map(|row| value(row, gpu)).collect() };
        self.gpus().into_iter().map(line).collect()
    }

    /// Two rows for each stretch: the lowest and the highest of each value. A stretch with a cut
    /// has two before it and two after it. The newest row is the last one.
    fn reduced(&self, rows: usize) -> GpuTrack {
        if self.0.len() <= rows {
            return self.clone();
        }
        let span = self.0.len().div_ceil((rows / 2).max(1));
        let mut few: Vec<GpuRow> = Vec::new();
        for chunk in self.0.chunks(span) {
            // Many cuts in one stretch count as one, so that the number of rows has a limit.
            let cut = chunk.iter().position(GpuRow::is_cut);
            let (before, after) = chunk.split_at(cut.unwrap_or(chunk.len()));
            few.extend(both_extremes(before));
            few.extend(after.first().cloned());
            few.extend(both_extremes(after));
        }
        few.dedup();
        // The extremes of the last stretch hide the newest values.
        let newest = self.0.last().filter(|newest| few.last() != Some(*newest)).cloned();
        few.extend(newest);
        GpuTrack(few)
    }
}

impl GpuRow {
    fn is_cut(&self) -> bool {
        self.gpus.is_empty()
    }
}

/// The lowest and the highest values, at the first and the last row with GPUs, if there is one.
fn both_extremes(rows: &[GpuRow]) -> Vec<GpuRow> {
    let first = rows.iter().find(|row| !row.is_cut());
    let last = rows.iter().rfind(|row| !row.is_cut());
    let ends = first.zip(last).map(|(first, last)| {
        [extreme(rows, first.secs, f32::min), extreme(rows, last.secs, f32::max)]
    });
    ends.into_iter().flatten().collect()
}

/// A value that is unknown in one row is known from the others.
fn extreme(chunk: &[GpuRow], secs: f64, better: fn(f32, f32) -> f32) -> GpuRow {
    let mut gpus: Vec<GpuValue> = Vec::new();
    for value in chunk.iter().flat_map(|row| &row.gpus) {
        let Some(best) = gpus.iter_mut().find(|best| best.gpu == value.gpu) else {
            gpus.push(*value);
            continue;
        };
        for (best, other) in best.values.iter_mut().zip(value.values) {
            *best = match (*best, other) {
                (Some(one), Some(other)) => Some(better(one, other)),
                (one, other) => one.or(other),
            };
        }
    }
    GpuRow { secs, gpus }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(number: u32, busy: impl Fn(u32) -> f64) -> Vec<Rates> {
        let gpu = |index: u32, busy: f64| GpuStatus {
            index,
            util_percent: Some(busy),
            power_watts: (index == 0).then_some(200.0),
            ..GpuStatus::default()
        };
        let sample = |at: u32| Rates {
            t_secs: f64::from(at) * 10.0,
            gpus: vec![gpu(0, 100.0), gpu(1, busy(at))],
            ..Rates::default()
        };
        (0..number).map(sample).collect()
    }

    #[test]
    fn each_gpu_has_its_line_and_keeps_its_only_dip() {
        let all = samples(60_000, |at| if at == 40_001 { 3.0 } else { 97.0 });
        let history = GpuTrack::of(&all).history();
        assert!(history.t_secs.len() <= GPU_POINTS && history.t_secs.is_sorted());
        let names: Vec<&str> = history.plots.iter().map(|plot| plot.name).collect();
        assert_eq!(names, ["util_percent", "power_watts"], "what no GPU tells has no plot");
        let [first, second] = history.plots[0].lines.as_slice() else { panic!("two GPUs") };
        assert!(!first.values.contains(&Some(3.0)) && second.values.contains(&Some(3.0)));
        assert_eq!(history.plots[1].lines[1].values[0], None, "unknown is not zero");
        assert_eq!(history.recent[1].values.len(), history.recent[0].values.len());
        assert!(!history.recent[1].values.contains(&Some(3.0)), "longer ago than an hour");
    }

    #[test]
    fn samples_of_older_agents_have_no_gpus() {
        assert_eq!(GpuTrack::of(&[Rates::default()]).history(), GpuHistory::default());
    }

    #[test]
    fn batches_are_moved_to_one_axis() {
        let mut rows = GpuTrack::of(&samples(2, |_| 50.0));
        let again = rows.clone();
        rows.extend(&again, 600.0);
        let history = rows.history();
        assert_eq!(history.t_secs, [0.0, 10.0, 10.0, 600.0, 610.0]);
        let values = &history.plots[0].lines[1].values;
        assert_eq!(*values, [Some(50.0), Some(50.0), None, Some(50.0), Some(50.0)], "a cut");
    }

    #[test]
    fn last_values_are_those_of_now() {
        let all = samples(6_000, |at| if at == 5_999 { 7.0 } else { 97.0 });
        let mut rows = GpuTrack::of(&all);
        rows.shrink();
        rows.shrink();
        for history in [GpuTrack::of(&all).history(), rows.history()] {
            assert!(history.t_secs.is_sorted());
            assert_eq!(history.plots[0].lines[1].values.last(), Some(&Some(7.0)));
        }
    }

    #[test]
    fn no_line_crosses_a_stretch_without_gpus() {
        let mut all = samples(6_000, |at| if at < 3_000 { 20.0 } else { 80.0 });
        // One sample without GPUs is no gap.
        all[100].gpus.clear();
        all[3_000..3_010].iter_mut().for_each(|rates| rates.gpus.clear());
        let history = GpuTrack::of(&all).history();
        assert!(history.t_secs.is_sorted());
        let values = &history.plots[0].lines[1].values;
        let parts: Vec<&[Option<f64>]> = values.split(Option::is_none).collect();
        let [before, after] = parts.as_slice() else { panic!("{} parts", parts.len()) };
        assert!(before.iter().all(|value| *value == Some(20.0)), "{before:?}");
        assert!(after.iter().all(|value| *value == Some(80.0)), "{after:?}");
    }
}
