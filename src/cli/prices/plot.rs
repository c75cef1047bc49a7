//! A plot of one pool's prices over time; the bid, if any, is a horizontal line.

use jiff::Timestamp;
use textplots::{Chart, LabelBuilder, LabelFormat, Plot, Shape, TickDisplay, TickDisplayBuilder};

use crate::market::{PriceHistory, UsdPerHour};

/// In dots: two make a column, four a line. Fits 80 columns with its labels.
const WIDTH: u32 = 120;
const HEIGHT: u32 = 40;

pub fn text(
    history: &PriceHistory,
    bid: Option<UsdPerHour>,
    from: Timestamp,
    now: Timestamp,
) -> String {
    let days_ago = |at: Timestamp| -(now.duration_since(at).as_secs_f64() / 86_400.0) as f32;
    let dollars = |price: UsdPerHour| price.per_hour().dollars() as f32;
    let mut at = from.max(history.points().first().map_or(from, |point| point.at));
    let mut steps = Vec::new();
    for (price, secs) in history.held(from, now) {
        steps.push((days_ago(at), dollars(price)));
        at = at.saturating_add(std::time::Duration::from_secs_f64(secs)).unwrap_or(now);
        steps.push((days_ago(at), dollars(price)));
    }
    let days = days_ago(from);
    let ceiling: Vec<(f32, f32)> =
        bid.iter().flat_map(|bid| [(days, dollars(*bid)), (0.0, dollars(*bid))]).collect();
    let top = steps.iter().chain(&ceiling).map(|(_, price)| *price).fold(0.0, f32::max) * 1.05;
    let digits = digits(top);
    let (prices, line) = (Shape::Lines(&steps), Shape::Lines(&ceiling));
    let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, days, 0.0, 0.0, top);
    let chart = chart
        .x_label_format(LabelFormat::Custom(Box::new(|days| {
            if days == 0.0 { "now".into() } else { format!("{:.0} days ago", -days) }
        })))
        .y_label_format(LabelFormat::Custom(Box::new(move |price| format!("${price:.digits$}"))))
        .y_tick_display(TickDisplay::Sparse)
        .lineplot(&line)
        .lineplot(&prices);
    chart.axis();
    chart.figures();
    // Plain blanks can be copied and cut.
    let text = chart.to_string().replace('\u{2800}', " ");
    let plot: Vec<&str> = text.lines().map(str::trim_end).collect();
    let line = bid
        .map(|bid| format!("; the line across is the bid of ${:.4}", dollars(bid)))
        .unwrap_or_default();
    format!(
        "{} in {}, dollars an hour{line}\n{}",
        history.instance_type,
        history.zone,
        plot.join("\n").trim_end()
    )
}

/// Enough decimals that no two axis labels are equal: a small machine costs a third of a cent.
fn digits(top: f32) -> usize {
    // Labels stand at eighths of the axis.
    let step = f64::from(top.max(f32::MIN_POSITIVE)) / 8.0;
    let digits = (1.0 - step.log10().floor()).clamp(3.0, 6.0);
    digits as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_a_cheap_machine_differ() {
        assert_eq!([24.0, 1.0, 0.0033].map(digits), [3, 3, 5]);
    }
}
