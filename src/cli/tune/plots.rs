//! The plots of a tuning in a terminal, as its page has them: values, curves, parameters, costs.

use textplots::{Chart, LabelBuilder, LabelFormat, Plot, Shape, TickDisplay, TickDisplayBuilder};

use super::table::short;
use crate::app::tune::param_places::param_places;
use crate::app::tune::view::{TrialRow, TuneView};
use crate::job::{ParamValue, TuneGoal};
use crate::market::Usd;

/// In dots: two make a column, four a line. Fits 80 columns with its labels.
const WIDTH: u32 = 120;
const HEIGHT: u32 = 40;

/// More curves or bars are a blot.
const DRAWN_MAX: usize = 20;

/// Letters of the longest bar.
const BAR: f64 = 40.0;

/// Columns of a parameter's row of marks.
const MARKS: usize = 40;

/// All plots that have something to show, one below the other.
pub fn all(view: &TuneView) -> Vec<String> {
    [values(view), curves(view), params(view), costs(view)].into_iter().flatten().collect()
}

/// Dots for the trials, a line for the best so far. `None`: fewer than two trials are complete.
fn values(view: &TuneView) -> Option<String> {
    let so_far = view.best_so_far();
    let (first, last) = (so_far.first()?.0 as f32, so_far.last()?.0 as f32);
    if first >= last {
        return None;
    }
    let dots: Vec<(f32, f32)> =
        so_far.iter().map(|(number, value, _)| (*number as f32, *value as f32)).collect();
    let best: Vec<(f32, f32)> =
        so_far.iter().map(|(number, _, best)| (*number as f32, *best as f32)).collect();
    let title = format!("{} of each trial; the line is the best so far", view.metric);
    let shapes = [Shape::Points(&dots), Shape::Steps(&best)];
    Some(chart(&title, &shapes, (first, last), &dots, |number| format!("trial {number:.0}")))
}

/// The metric over the steps of the best trials. `None`: no trial has two steps.
fn curves(view: &TuneView) -> Option<String> {
    let curve = |trial: &TrialRow| -> Vec<(f32, f32)> {
        let known = trial.points.iter().filter_map(|point| Some((point.step, point.value?)));
        known.map(|(step, value)| (step as f32, value as f32)).collect()
    };
    let curves: Vec<_> = view.trials.iter().map(curve).filter(|curve| curve.len() > 1).collect();
    let drawn = &curves[..curves.len().min(DRAWN_MAX)];
    let points: Vec<(f32, f32)> = drawn.iter().flatten().copied().collect();
    let first = points.iter().map(|(step, _)| *step).fold(f32::INFINITY, f32::min);
    let last = points.iter().map(|(step, _)| *step).fold(f32::NEG_INFINITY, f32::max);
    if first >= last {
        return None;
    }
    let title = format!("{} over the steps of {} trials", view.metric, drawn.len());
    let shapes: Vec<Shape<'_>> = drawn.iter().map(|curve| Shape::Lines(curve)).collect();
    Some(chart(&title, &shapes, (first, last), &points, |step| format!("step {step:.0}")))
}

fn chart(
    title: &str,
    shapes: &[Shape<'_>],
    (first, last): (f32, f32),
    points: &[(f32, f32)],
    across: fn(f32) -> String,
) -> String {
    let low = points.iter().map(|(_, value)| *value).fold(f32::INFINITY, f32::min);
    let high = points.iter().map(|(_, value)| *value).fold(f32::NEG_INFINITY, f32::max);
    let room = ((high - low) * 0.05).max(f32::EPSILON);
    let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, first, last, low - room, high + room);
    let mut chart = chart
        .x_label_format(LabelFormat::Custom(Box::new(across)))
        .y_label_format(LabelFormat::Custom(Box::new(|value| short(f64::from(value)))))
        .y_tick_display(TickDisplay::Sparse);
    for shape in shapes {
        chart = chart.lineplot(shape);
    }
    chart.axis();
    chart.figures();
    let text = chart.to_string().replace('\u{2800}', " ");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{title}\n{}", lines.join("\n").trim_end())
}

/// A row for each parameter: the place of each complete trial between its least and its greatest
/// value, as a digit of its rank. `None`: fewer than two trials are complete.
fn params(view: &TuneView) -> Option<String> {
    let mut complete: Vec<&TrialRow> = view.trials.iter().filter(|trial| trial.is_done()).collect();
    let sign = if view.goal == TuneGoal::Minimize { 1.0 } else { -1.0 };
    let value = |trial: &TrialRow| sign * trial.value.unwrap_or(f64::INFINITY);
    complete.sort_by(|one, other| value(one).total_cmp(&value(other)));
    let best = complete.first().filter(|_| complete.len() > 1)?;
    let names = best.params.keys();
    let width = names.clone().map(|name| name.chars().count()).max()?;
    let rows = names.map(|name| {
        let places = param_places(name, &complete);
        let mut marks = vec![' '; MARKS];
        // The best last, so that nothing hides it.
        for (rank, place) in places.iter().enumerate().rev() {
            let at = (place * (MARKS - 1) as f64).round() as usize;
            marks[at] = if rank == 0 { '#' } else { rank_mark(rank, complete.len()) };
        }
        let marks: String = marks.into_iter().collect();
        let (low, high) = ends(name, &complete);
        format!("{name:width$} |{marks}| {low} to {high}")
    });
    let rows: Vec<String> = rows.collect();
    let told = "# the best, o the better half, . the rest";
    Some(format!("values of the complete trials: {told}\n{}", rows.join("\n")))
}

fn rank_mark(rank: usize, of: usize) -> char {
    if rank * 2 < of { 'o' } else { '.' }
}

/// The values at both ends of the row.
fn ends(name: &str, trials: &[&TrialRow]) -> (String, String) {
    let places = param_places(name, trials);
    let at = |wanted: fn(&f64, &f64) -> bool| {
        let mut found = 0;
        for (trial, place) in places.iter().enumerate() {
            if wanted(place, &places[found]) {
                found = trial;
            }
        }
        match trials[found].params.get(name) {
            Some(ParamValue::Float(number)) => short(*number),
            value => value.map(ToString::to_string).unwrap_or_default(),
        }
    };
    (at(|one, other| one < other), at(|one, other| one > other))
}

/// A bar for the cost of each trial. `None`: nothing has cost anything.
fn costs(view: &TuneView) -> Option<String> {
    let mut rows: Vec<&TrialRow> = view.trials.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.usd));
    let most = rows.first()?.usd;
    if most == Usd::ZERO {
        return None;
    }
    let shown = rows.len().min(DRAWN_MAX);
    let lines = rows[..shown].iter().map(|row| {
        let part = row.usd.dollars() / most.dollars();
        let bar = "█".repeat((part * BAR).round() as usize);
        format!("trial {:<4} {:>9} {bar}", row.number, row.usd.to_string())
    });
    let lines: Vec<String> = lines.collect();
    let title = match rows.len() - shown {
        0 => "cost of each trial".to_owned(),
        more => format!("cost of each trial, the dearest first; {more} cheaper ones follow"),
    };
    Some(format!("{title}\n{}", lines.join("\n")))
}
