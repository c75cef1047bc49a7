//! A series as a small plot in letters. An unknown value is a dot, never zero.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Sparkline, Widget as _};

const UNKNOWN: &str = "·";

/// Steps of the scale: a plot has at most 8 lines with 8 steps each, and more is not seen.
const STEPS: f64 = 1000.0;

/// The plot in `height` lines of `width` columns, the newest value at the right. `top` is the value
/// at the upper edge.
pub fn plot(values: &[Option<f64>], top: f64, width: usize, height: usize) -> Vec<String> {
    let (columns, rows) = (narrow(width), narrow(height));
    let step = |value: Option<f64>| {
        value.map(|value| ((value / top.max(1e-9)).clamp(0.0, 1.0) * STEPS).round() as u64)
    };
    let data: Vec<Option<u64>> = squeezed(values, width).into_iter().map(step).collect();
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    Sparkline::default()
        .data(&data)
        .max(STEPS as u64)
        .absent_value_symbol(UNKNOWN)
        .render(area, &mut buffer);
    let letter = |x: u16, y: u16| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol()).to_owned();
    (0..rows).map(|y| (0..columns).map(|x| letter(x, y)).collect()).collect()
}

fn narrow(cells: usize) -> u16 {
    u16::try_from(cells).unwrap_or(u16::MAX)
}

/// One value for each column: the highest of its part. Fewer values than columns stand at the
/// right.
fn squeezed(values: &[Option<f64>], width: usize) -> Vec<Option<f64>> {
    if values.len() <= width {
        return values.to_vec();
    }
    let highest = |part: &[Option<f64>]| part.iter().flatten().copied().reduce(f64::max);
    let edge = |column: usize| column * values.len() / width;
    (0..width).map(|column| highest(&values[edge(column)..edge(column + 1)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero_and_peaks_stay() {
        let values = [Some(0.0), Some(50.0), None, Some(100.0)];
        assert_eq!(plot(&values, 100.0, 4, 1), [" ▄·█"]);
        let long: Vec<Option<f64>> =
            (0..100).map(|at| Some(if at == 42 { 100.0 } else { 0.0 })).collect();
        assert_eq!(plot(&long, 100.0, 10, 1), ["    █     "]);
        assert_eq!(plot(&values, 100.0, 4, 2).len(), 2);
        assert!(plot(&[], 100.0, 3, 1)[0].trim().is_empty());
    }
}
