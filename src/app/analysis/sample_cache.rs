//! The samples of attempts, kept small for all open pages: each batch is read and unpacked once.
//!
//! ```text
//!   batches ─ new ones ─> read, unpack ─> few points and every extreme ─┐
//!       └ known ones: nothing is read ──────────────────────────────────┴─> plot, gaps, load
//! ```
//! A week at one sample a second is 300 MB of rows, and about 10 MB here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use super::bands::{BLIND_SECS, SecsRange};
use super::effective_load::LoadReadings;
use super::gpu_history::{GpuHistory, GpuTrack};
use crate::app::view::plot_data::{
    FIELDS, PlotData, Point, READS_IN_FLIGHT, Series, batch_bytes, batches, began, known, reduced,
    rows,
};
use crate::instance::Rates;
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::market::elapsed;

/// A drawing is a little wider. With more, the data of eight GPUs exceeds 200 KB.
pub(super) const POINTS: usize = 600;

/// The memory of all attempts. One of a week has about 10 MB, and most have less than one MB. A
/// page shows six.
const BYTES_MAX: usize = 128 << 20;

/// Batches that one task unpacks. Fewer, and the tasks cost more than their work; more, and one
/// core does all.
const BATCHES_A_TASK: usize = 64;

/// A batch has about a minute, so that these are the last ten minutes.
const LOAD_BATCHES: usize = 10;

/// The samples of one attempt as the page needs them.
#[derive(Debug, Default)]
pub struct AttemptPlot {
    pub data: PlotData,
    /// Stretches between two samples that are too long.
    pub blind: Vec<SecsRange>,
    pub load: LoadReadings,
    pub gpus: GpuHistory,
    /// The same as rows, for a drawing of several attempts.
    pub track: GpuTrack,
    /// The last sample.
    pub end_secs: f64,
}

/// All attempts that were looked at lately.
#[derive(Default)]
pub struct SampleCache(Mutex<BTreeMap<String, Arc<CachedAttempt>>>);

#[derive(Default)]
struct CachedAttempt {
    samples: tokio::sync::Mutex<AttemptSamples>,
    used: Mutex<Option<Timestamp>>,
    /// As of its last read.
    bytes: AtomicUsize,
}

#[derive(Default)]
struct AttemptSamples {
    batches: BTreeMap<String, BatchPoints>,
    looked: Option<Timestamp>,
    plot: Arc<AttemptPlot>,
}

impl SampleCache {
    /// The samples of an attempt, which may be as old as `every`.
    ///
    /// # Errors
    /// Fails when the store does not answer.
    pub async fn read(
        &self,
        dir: &JobDir,
        attempt: AttemptNo,
        now: Timestamp,
        every: Duration,
    ) -> Result<Arc<AttemptPlot>, JobDirError> {
        let cached = self.cached(layout::samples(dir.job(), attempt), now);
        // Pages of one attempt wait for one read.
        let mut samples = cached.samples.lock().await;
        // A clock that was set back must not keep it.
        if samples.looked.is_none_or(|looked| looked > now || elapsed(looked, now) >= every) {
            if samples.read_new(dir, attempt).await? || samples.looked.is_none() {
                samples.plot = Arc::new(samples.plot());
                cached.bytes.store(samples.bytes(), Ordering::Relaxed);
            }
            samples.looked = Some(now);
        }
        Ok(Arc::clone(&samples.plot))
    }

    fn cached(&self, key: String, now: Timestamp) -> Arc<CachedAttempt> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = Arc::clone(all.entry(key).or_default());
        *cached.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        let used =
            |cached: &CachedAttempt| *cached.used.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = |all: &BTreeMap<String, Arc<CachedAttempt>>| -> usize {
            all.values().map(|cached| cached.bytes.load(Ordering::Relaxed)).sum()
        };
        while bytes(&all) > BYTES_MAX && all.len() > 1 {
            let oldest = all.iter().min_by_key(|(_, cached)| used(cached));
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            all.remove(&oldest);
        }
        cached
    }
}

impl AttemptSamples {
    /// Reads the batches that are not known yet. Returns whether there were any.
    async fn read_new(&mut self, dir: &JobDir, attempt: AttemptNo) -> Result<bool, JobDirError> {
        let listed = batches(dir, attempt).await?;
        let detail = detail(listed.len());
        if detail < self::detail(self.batches.len()) {
            self.batches.values_mut().for_each(|batch| batch.shrink(detail));
        }
        let is_new = |batch: &String| !self.batches.contains_key(batch);
        let new: Vec<String> = listed.into_iter().filter(is_new).collect();
        let tasks: Vec<Vec<String>> = new.chunks(BATCHES_A_TASK).map(<[String]>::to_vec).collect();
        let read = |task: Vec<String>| read_task(dir, task, detail);
        let mut read = std::pin::pin!(stream::iter(tasks).map(read).buffered(4));
        while let Some(found) = read.try_next().await? {
            self.batches.extend(found);
        }
        Ok(!new.is_empty())
    }

    /// About as many bytes as it takes in memory.
    fn bytes(&self) -> usize {
        self.batches.values().map(BatchPoints::bytes).sum()
    }

    /// Puts the batches on one time axis.
    fn plot(&self) -> AttemptPlot {
        let mut axis = Axis::default();
        let mut all: Vec<Vec<Point>> = vec![Vec::new(); FIELDS.len()];
        let mut gpus = GpuTrack::default();
        for batch in self.batches.values().filter(|batch| batch.samples > 0) {
            let (last, gaps) = (axis.time.last_secs, axis.blind.len());
            let shift = axis.take(batch);
            gpus.extend(&batch.gpus, shift);
            // A line over a gap would claim values that were not measured.
            let is_cut = axis.blind.get(gaps).is_some_and(|gap| gap.from <= last);
            for (field, points) in all.iter_mut().zip(&batch.points) {
                field.extend(is_cut.then_some((last, None)));
                field.extend(points.iter().map(|(secs, value)| (secs + shift, *value)));
            }
        }
        let is_known = |points: &[Point]| points.iter().any(|(_, value)| value.is_some());
        let fields = FIELDS.iter().zip(&all).filter(|(_, points)| is_known(points));
        let series = fields.map(|(field, points)| rounded(Series::of(field, points, POINTS)));
        let samples = self.batches.values().map(|batch| batch.samples).sum();
        AttemptPlot {
            data: PlotData { began: axis.time.began, samples, series: series.collect() },
            blind: axis.blind,
            load: self.load(),
            gpus: gpus.history(),
            track: gpus.few(),
            end_secs: axis.time.last_secs,
        }
    }

    fn load(&self) -> LoadReadings {
        let newest: Vec<&BatchPoints> = self.batches.values().rev().take(LOAD_BATCHES).collect();
        let mean = |of: fn(&BatchPoints) -> Mean| {
            newest.iter().map(|batch| of(batch)).fold(Mean::default(), Mean::with).value()
        };
        let secs: f64 = newest.iter().map(|batch| batch.to_secs - batch.from_secs).sum();
        LoadReadings {
            busy_percent: mean(|batch| batch.busy),
            watts: mean(|batch| batch.watts),
            limit_watts: mean(|batch| batch.limit_watts),
            highest_watts: self
                .batches
                .values()
                .filter_map(|batch| batch.highest_watts)
                .max_by(f64::total_cmp),
            minutes: ((secs / 60.0).round() as u32).max(1),
        }
    }
}

/// How many points of each series a batch keeps, for so many batches.
fn detail(batches: usize) -> usize {
    match batches {
        0..=20 => usize::MAX,
        21..=200 => 16,
        _ => DETAIL_OF_MANY,
    }
}

/// Points of each series in a batch that is one of hundreds.
const DETAIL_OF_MANY: usize = 4;

async fn read_task(
    dir: &JobDir,
    task: Vec<String>,
    detail: usize,
) -> Result<Vec<(String, BatchPoints)>, JobDirError> {
    let read = |batch: String| async move {
        Ok::<_, JobDirError>((batch_bytes(dir, &batch).await?, batch))
    };
    let read: Vec<(Option<Bytes>, String)> =
        stream::iter(task).map(read).buffered(READS_IN_FLIGHT).try_collect().await?;
    let unpack = move || {
        let one = |(bytes, key): (Option<Bytes>, String)| {
            (key, BatchPoints::of(&rows(&bytes.unwrap_or_default()), detail))
        };
        read.into_iter().map(one).collect::<Vec<_>>()
    };
    // It takes both cores for a second when a week is opened, and must not hold up other pages.
    Ok(tokio::task::spawn_blocking(unpack).await.unwrap_or_default())
}

/// A mean that grows.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn of(values: impl Iterator<Item = f64>) -> Mean {
        values.fold(Mean::default(), |mean, value| mean.with(Mean { sum: value, count: 1 }))
    }

    fn with(self, other: Mean) -> Mean {
        Mean { sum: self.sum + other.sum, count: self.count + other.count }
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// The part of one batch that the cache keeps.
#[derive(Debug, Default)]
struct BatchPoints {
    samples: usize,
    began: Option<Timestamp>,
    from_secs: f64,
    to_secs: f64,
    /// One row for each of [`FIELDS`].
    points: Vec<Vec<Point>>,
    gpus: GpuTrack,
    blind: Vec<SecsRange>,
    busy: Mean,
    watts: Mean,
    limit_watts: Mean,
    highest_watts: Option<f64>,
}

impl BatchPoints {
    fn of(samples: &[Rates], detail: usize) -> BatchPoints {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return BatchPoints::default();
        };
        let points = |value: fn(&Rates) -> Option<f64>| {
            let mut all: Vec<Point> = Vec::with_capacity(samples.len());
            for rates in samples {
                let before = all.last().map_or(rates.t_secs, |(secs, _)| *secs);
                all.extend(gap(before, rates.t_secs).map(|gap| (gap.from, None)));
                all.push((rates.t_secs, value(rates)));
            }
            kept(&all, detail)
        };
        let mut gpus = GpuTrack::of(samples);
        if detail <= DETAIL_OF_MANY {
            gpus.shrink();
        }
        let pairs = samples.iter().zip(samples.iter().skip(1));
        let blind = pairs.filter_map(|(one, other)| gap(one.t_secs, other.t_secs));
        let watts = || samples.iter().filter_map(|rates| known(&rates.gpu_power_watts));
        BatchPoints {
            samples: samples.len(),
            began: samples.iter().find_map(began),
            from_secs: first.t_secs,
            to_secs: last.t_secs,
            points: match detail {
                DETAIL_OF_MANY if samples.len() > DETAIL_OF_MANY => extremes(samples),
                _ => FIELDS.iter().map(|field| points(field.value)).collect(),
            },
            gpus,
            blind: blind.collect(),
            busy: Mean::of(samples.iter().filter_map(|rates| known(&rates.gpu_percent))),
            watts: Mean::of(watts()),
            limit_watts: Mean::of(
                samples.iter().filter_map(|rates| known(&rates.gpu_power_limit_watts)),
            ),
            highest_watts: watts().max_by(f64::total_cmp),
        }
    }

    fn bytes(&self) -> usize {
        let points: usize = self.points.iter().map(Vec::len).sum();
        size_of::<BatchPoints>() + points * size_of::<Point>() + self.gpus.bytes()
    }

    fn shrink(&mut self, detail: usize) {
        for points in &mut self.points {
            *points = kept(points, detail);
        }
        if detail <= DETAIL_OF_MANY {
            self.gpus.shrink();
        }
    }
}

/// The points that [`kept`] keeps for [`DETAIL_OF_MANY`], in one pass over the rows. A week has
/// ten million values.
fn extremes(samples: &[Rates]) -> Vec<Vec<Point>> {
    let mut fields = [FieldExtremes::default(); FIELDS.len()];
    let mut before = samples.first().map_or(0.0, |rates| rates.t_secs);
    let mut place = 0;
    for rates in samples {
        if let Some(gap) = gap(before, rates.t_secs) {
            fields.iter_mut().for_each(|field| field.take(place, gap.from, None));
            place += 1;
        }
        for (extremes, field) in fields.iter_mut().zip(&FIELDS) {
            extremes.take(place, rates.t_secs, (field.value)(rates));
        }
        place += 1;
        before = rates.t_secs;
    }
    fields.iter().map(FieldExtremes::points).collect()
}

/// The place of a point in its batch, with its time and its value.
#[derive(Clone, Copy, Default)]
struct PlacedPoint {
    place: usize,
    secs: f64,
    value: f64,
}

/// The points of one field that a drawing needs.
#[derive(Clone, Copy, Default)]
struct FieldExtremes {
    first: Option<(PlacedPoint, bool)>,
    last: Option<(PlacedPoint, bool)>,
    lowest: Option<PlacedPoint>,
    highest: Option<PlacedPoint>,
    gap: Option<PlacedPoint>,
}

impl FieldExtremes {
    fn take(&mut self, place: usize, secs: f64, value: Option<f64>) {
        let point = PlacedPoint { place, secs, value: value.unwrap_or_default() };
        let is_known = value.is_some();
        self.first.get_or_insert((point, is_known));
        self.last = Some((point, is_known));
        if !is_known {
            self.gap.get_or_insert(point);
            return;
        }
        if self.lowest.is_none_or(|lowest| point.value < lowest.value) {
            self.lowest = Some(point);
        }
        if self.highest.is_none_or(|highest| point.value >= highest.value) {
            self.highest = Some(point);
        }
    }

    fn points(&self) -> Vec<Point> {
        let told = |(point, is_known): (PlacedPoint, bool)| {
            (point.place, (point.secs, is_known.then_some(point.value)))
        };
        if self.lowest.is_none() {
            return self.first.map(told).map(|(_, point)| point).into_iter().collect();
        }
        let ends = self.first.into_iter().chain(self.last);
        let known = self.lowest.into_iter().chain(self.highest).map(|point| (point, true));
        let gap = self.gap.into_iter().map(|point| (point, false));
        let mut placed: Vec<(usize, Point)> = ends.chain(known).chain(gap).map(told).collect();
        placed.sort_by_key(|(place, _)| *place);
        placed.dedup_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, point)| point).collect()
    }
}

/// A series that this batch does not have is one gap.
fn kept(all: &[Point], detail: usize) -> Vec<Point> {
    match all.iter().any(|(_, value)| value.is_some()) {
        true => reduced(all, detail),
        false => all.first().copied().into_iter().collect(),
    }
}

fn gap(from: f64, to: f64) -> Option<SecsRange> {
    (to - from > BLIND_SECS).then_some(SecsRange { from, to })
}

/// The time axis of an attempt. An agent that starts again counts from zero again, so its samples
/// are moved by the wall clock.
#[derive(Default)]
pub struct TimeAxis {
    began: Option<Timestamp>,
    shift: f64,
    /// The last sample, before and after the move.
    last_raw: Option<f64>,
    last_secs: f64,
}

impl TimeAxis {
    /// Takes samples from `first` to `last`, in seconds of their agent, whose zero was at `began`.
    /// Returns by how many seconds they are moved.
    pub fn take(&mut self, first: f64, last: f64, began: Option<Timestamp>) -> f64 {
        self.began = self.began.or(began);
        if self.last_raw.is_some_and(|last| first < last) {
            let later = self.began.zip(began);
            let later = later.map(|(first, this)| this.duration_since(first).as_secs_f64());
            // Time never goes back, whatever the clock says.
            self.shift = later.unwrap_or(0.0).max(self.last_secs - first);
        }
        self.last_raw = Some(last);
        self.last_secs = last + self.shift;
        self.shift
    }
}

/// The axis, and the stretches of it without a sample.
#[derive(Default)]
struct Axis {
    time: TimeAxis,
    blind: Vec<SecsRange>,
}

impl Axis {
    /// Returns by how much the batch is moved.
    fn take(&mut self, batch: &BatchPoints) -> f64 {
        let before = self.time.last_raw.map(|_| self.time.last_secs);
        let shift = self.time.take(batch.from_secs, batch.to_secs, batch.began);
        self.blind.extend(before.and_then(|before| gap(before, batch.from_secs + shift)));
        let moved = |gap: &SecsRange| SecsRange { from: gap.from + shift, to: gap.to + shift };
        self.blind.extend(batch.blind.iter().map(moved));
        shift
    }
}

/// Tenths of a second and four digits: a screen shows no more, and the answer is half as long.
pub(super) fn rounded(series: Series) -> Series {
    let digits = |value: f64| {
        if value == 0.0 {
            return 0.0;
        }
        let places = 3 - value.abs().log10().floor() as i32;
        match places {
            0.. => {
                let scale = 10_f64.powi(places);
                (value * scale).round() / scale
            }
            _ => {
                let scale = 10_f64.powi(-places);
                (value / scale).round() * scale
            }
        }
    };
    Series {
        t_secs: series.t_secs.iter().map(|secs| (secs * 10.0).round() / 10.0).collect(),
        values: series.values.iter().map(|value| value.map(digits)).collect(),
        ..series
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Reading;

    fn batch(began: i64, from: i64, busy: f64) -> BatchPoints {
        let rates = |second: i64| Rates {
            t_secs: second as f64,
            gpu_percent: Reading::Known(busy),
            gpu_power_watts: Reading::Known(busy * 2.0),
            at: Timestamp::from_second(1_700_000_000 + began + second).ok(),
            ..Rates::default()
        };
        let samples: Vec<Rates> = (from..from + 60).map(rates).collect();
        BatchPoints::of(&samples, detail(1))
    }

    fn samples(batches: Vec<BatchPoints>) -> AttemptSamples {
        let keyed = batches.into_iter().enumerate().map(|(at, batch)| (format!("{at:08}"), batch));
        AttemptSamples { batches: keyed.collect(), ..AttemptSamples::default() }
    }

    #[test]
    fn one_pass_keeps_the_points_of_the_long_way() {
        let mut state = 7_u64;
        let mut drawn = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32
        };
        for _ in 0..200 {
            let mut t_secs = 0.0;
            let samples: Vec<Rates> = (0..60)
                .map(|_| {
                    t_secs += if drawn() % 40 == 0 { 200.0 } else { 1.0 };
                    let mut value = |odds: u32| match drawn() % odds {
                        0 => Reading::unknown("silent"),
                        _ => Reading::Known(f64::from(drawn() % 5) - 2.0),
                    };
                    let (gpu_percent, cpu_percent) = (value(3), value(50));
                    Rates { t_secs, gpu_percent, cpu_percent, ..Rates::default() }
                })
                .collect();
            let long = |value: fn(&Rates) -> Option<f64>| {
                let mut all: Vec<Point> = Vec::new();
                for rates in &samples {
                    let before = all.last().map_or(rates.t_secs, |(secs, _)| *secs);
                    all.extend(gap(before, rates.t_secs).map(|gap| (gap.from, None)));
                    all.push((rates.t_secs, value(rates)));
                }
                kept(&all, DETAIL_OF_MANY)
            };
            let wanted: Vec<Vec<Point>> = FIELDS.iter().map(|field| long(field.value)).collect();
            assert_eq!(extremes(&samples), wanted);
        }
    }

    #[test]
    fn agent_that_starts_again_goes_on_where_the_wall_clock_is() {
        // The second agent began 600 s after the first, and counts from zero.
        let plot = samples(vec![batch(0, 0, 50.0), batch(0, 60, 50.0), batch(600, 0, 80.0)]).plot();
        let gpu = &plot.data.series[0];
        assert!(gpu.t_secs.is_sorted(), "{:?}", gpu.t_secs);
        assert_eq!((plot.data.samples, plot.end_secs), (180, 659.0));
        assert_eq!(plot.blind, [SecsRange { from: 119.0, to: 600.0 }]);
        assert_eq!(gpu.values.iter().position(Option::is_none), Some(120), "the line is cut");
        assert_eq!(plot.load.highest_watts, Some(160.0));
        assert_eq!(plot.load.busy_percent, Some(60.0));
        assert_eq!(plot.load.limit_watts, None);
    }

    #[test]
    fn attempt_that_was_read_longest_ago_goes_when_memory_is_full() {
        let cache = SampleCache::default();
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).expect("a moment");
        for (second, key) in ["a", "b", "c"].into_iter().enumerate() {
            let cached = cache.cached(key.into(), at(second as i64));
            cached.bytes.store(BYTES_MAX / 2, Ordering::Relaxed);
        }
        let _used = cache.cached("b".into(), at(9));
        let keys: Vec<String> = cache.0.lock().expect("no panic").keys().cloned().collect();
        assert_eq!(keys, ["b", "c"]);
        let hour = samples((0..60).map(|minute| batch(0, minute * 60, 50.0)).collect());
        let values = 2 * 3600 * size_of::<Point>();
        assert!((values..values * 10).contains(&hour.bytes()), "{} bytes", hour.bytes());
    }

    #[test]
    fn week_stays_small_and_keeps_its_peak() {
        let mut all: Vec<BatchPoints> =
            (0..10_080).map(|minute| batch(0, minute * 60, 50.0)).collect();
        all[7_000] = batch(0, 7_000 * 60, 99.0);
        all.iter_mut().for_each(|batch| batch.shrink(detail(10_080)));
        let points: usize = all.iter().flat_map(|batch| &batch.points).map(Vec::len).sum();
        assert!(points < 10_080 * FIELDS.len() * 6, "{points} points");
        let plot = samples(all).plot();
        let text = serde_json::to_string(&plot.data).expect("JSON");
        assert!(text.len() < 100_000, "{} bytes for two series", text.len());
        assert!(plot.data.series[0].values.contains(&Some(99.0)));
        assert!(plot.blind.is_empty());
    }

    #[test]
    fn numbers_keep_four_digits() {
        let values = vec![Some(0.0), Some(123_456.0), Some(0.012_345_6), Some(99.96), None];
        let series = Series { name: "x", unit: "y", t_secs: vec![1.26; 5], values };
        let series = rounded(series);
        assert_eq!(series.t_secs[0], 1.3);
        assert_eq!(series.values, [Some(0.0), Some(123_500.0), Some(0.012_35), Some(99.96), None]);
    }
}
