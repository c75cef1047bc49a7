//! The samples of several attempts on one time axis, which begins with the first of them.
//!
//! Not here: reading them (`sample_cache`), or what happened in them (`bands`).

use std::sync::Arc;

use serde::Serialize;

use super::gpu_history::{GpuHistory, GpuTrack};
use super::sample_cache::{AttemptPlot, POINTS, rounded};
use crate::app::view::plot_data::{FIELDS, PlotData, Point, Series};
use crate::app::view::timeline::{Explained, ExplainedAttempt};
use crate::job::AttemptNo;
use crate::jobdir::EventDetail;

/// More attempts make the page slow: each has samples of its own.
const ATTEMPTS_MAX: usize = 6;

/// The part of the time axis that an attempt has. The field names are an interface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct AttemptSpan {
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    pub from_secs: f64,
    pub to_secs: f64,
}

/// One attempt of a joined plot.
#[derive(Clone)]
pub struct PlotPart {
    pub attempt: AttemptNo,
    pub plot: Arc<AttemptPlot>,
}

/// Attempts on one axis.
#[derive(Clone, Default)]
pub struct JoinedPlot {
    pub data: PlotData,
    pub gpus: GpuHistory,
    /// Oldest first.
    pub spans: Vec<AttemptSpan>,
}

impl JoinedPlot {
    /// `parts`: oldest first.
    pub fn of(parts: &[PlotPart]) -> JoinedPlot {
        let spans = spans(parts);
        if let [only] = parts {
            let (data, gpus) = (only.plot.data.clone(), only.plot.gpus.clone());
            return JoinedPlot { data, gpus, spans };
        }
        let placed = || {
            spans.iter().filter_map(|span| {
                let part = parts.iter().find(|part| part.attempt == span.attempt)?;
                Some((part, span.from_secs))
            })
        };
        let series = FIELDS.iter().filter_map(|field| {
            let mut points: Vec<Point> = Vec::new();
            for (part, shift) in placed() {
                // No line from one machine to the next.
                points.extend(points.last().map(|(secs, _)| (*secs, None)));
                points.extend(moved(&part.plot.data, field.name, shift));
            }
            let is_known = points.iter().any(|(_, value)| value.is_some());
            is_known.then(|| rounded(Series::of(field, &points, POINTS)))
        });
        let mut track = GpuTrack::default();
        for (part, shift) in placed() {
            track.cut();
            track.extend(&part.plot.track, shift);
        }
        let first = placed().next();
        let began = first.and_then(|(part, _)| part.plot.data.began);
        let samples = placed().map(|(part, _)| part.plot.data.samples).sum();
        let data = PlotData { began, samples, series: series.collect() };
        JoinedPlot { data, gpus: track.history(), spans }
    }
}

/// The newest attempts that have worked, oldest first. One that waited has no samples.
pub fn worked(explained: &Explained) -> Vec<AttemptNo> {
    let has_worked = |attempt: &&ExplainedAttempt| {
        let mut events = attempt.events.iter();
        events.any(|event| matches!(event.what, EventDetail::WorkloadStarted { .. }))
    };
    let newest = explained.attempts.iter().rev().filter(has_worked).take(ATTEMPTS_MAX);
    let mut attempts: Vec<AttemptNo> = newest.map(|attempt| attempt.attempt).collect();
    attempts.reverse();
    attempts
}

/// The places of the attempts. One of several needs a clock. Time never goes back, whatever the
/// clocks of the machines say.
pub fn spans(parts: &[PlotPart]) -> Vec<AttemptSpan> {
    if let [only] = parts {
        let to_secs = only.plot.end_secs;
        return vec![AttemptSpan { attempt: only.attempt, from_secs: 0.0, to_secs }];
    }
    let mut spans: Vec<AttemptSpan> = Vec::new();
    let known = parts.iter().filter_map(|part| Some((part, part.plot.data.began?)));
    let mut zero = None;
    for (part, began) in known {
        let zero = *zero.get_or_insert(began);
        let after = spans.last().map_or(0.0, |last| last.to_secs);
        let from_secs = began.duration_since(zero).as_secs_f64().max(after);
        let to_secs = from_secs + part.plot.end_secs;
        spans.push(AttemptSpan { attempt: part.attempt, from_secs, to_secs });
    }
    spans
}

fn moved(data: &PlotData, name: &str, shift: f64) -> Vec<Point> {
    let Some(series) = data.series.iter().find(|series| series.name == name) else {
        return Vec::new();
    };
    let points = series.t_secs.iter().zip(&series.values);
    points.map(|(secs, value)| (secs + shift, *value)).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn part(number: u32, began: Option<i64>, busy: f64) -> PlotPart {
        let t_secs: Vec<f64> = (0..60).map(f64::from).collect();
        let values = vec![Some(busy); t_secs.len()];
        let began = began.and_then(|secs| Timestamp::from_second(1_700_000_000 + secs).ok());
        let series = vec![Series { name: "gpu_percent", unit: "%", t_secs, values }];
        let data = PlotData { began, samples: 60, series };
        let plot = AttemptPlot { data, end_secs: 59.0, ..AttemptPlot::default() };
        PlotPart { attempt: AttemptNo::new(number), plot: Arc::new(plot) }
    }

    fn told(joined: &JoinedPlot) -> Vec<(u32, f64, f64)> {
        let one = |span: &AttemptSpan| (span.attempt.number(), span.from_secs, span.to_secs);
        joined.spans.iter().map(one).collect()
    }

    #[test]
    fn attempts_lie_where_the_wall_clock_was_with_a_cut_between() {
        let joined = JoinedPlot::of(&[part(1, Some(0), 90.0), part(3, Some(600), 50.0)]);
        assert_eq!(told(&joined), [(1, 0.0, 59.0), (3, 600.0, 659.0)]);
        let series = &joined.data.series[0];
        assert_eq!(joined.data.samples, 120);
        let cut = series.values.iter().position(Option::is_none).expect("a cut");
        assert_eq!((series.t_secs[cut], series.t_secs[cut + 1]), (59.0, 600.0));
        assert_eq!(series.values.last(), Some(&Some(50.0)));
    }

    #[test]
    fn clock_that_goes_back_keeps_the_order_of_attempts() {
        let parts = [part(1, Some(0), 1.0), part(2, Some(-500), 2.0), part(3, None, 3.0)];
        assert_eq!(told(&JoinedPlot::of(&parts)), [(1, 0.0, 59.0), (2, 59.0, 118.0)]);
        assert_eq!(told(&JoinedPlot::of(&parts[2..])), [(3, 0.0, 59.0)], "it is alone");
        assert!(JoinedPlot::of(&[]).spans.is_empty());
    }
}
