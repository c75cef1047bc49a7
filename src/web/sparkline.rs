//! The last hour of a job as a small drawing in text: the GPU, else the processor.

use maud::{Markup, html};

use crate::app::overview::usage_trend::UsageTrend;

const WIDTH: f64 = 120.0;

const HEIGHT: f64 = 24.0;

pub fn draw(trend: &UsageTrend) -> Markup {
    let Some(last) = trend.last() else {
        return html! { span.muted { "no samples yet" } };
    };
    let label = trend.label;
    html! {
        svg.spark viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
            aria-label=(format!("{label} in the last hour, now {last:.0} {}", trend.unit)) {
            @for part in lines(&trend.values, trend.top) { polyline points=(part) {} }
        }
        span.muted { (format!("{label} {last:.0}%")) }
    }
}

/// Values on their own, with the words for a reader who does not see them.
pub fn of_values(values: &[Option<f64>], top: f64, spoken: &str) -> Markup {
    html! {
        svg.spark viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(spoken) {
            @for part in lines(values, top) { polyline points=(part) {} }
        }
    }
}

/// One line for each stretch without a gap: an unknown value is not zero.
fn lines(values: &[Option<f64>], top: f64) -> Vec<String> {
    let step = WIDTH / (values.len().max(2) - 1) as f64;
    let stretches = values.iter().enumerate().collect::<Vec<_>>();
    stretches
        .split(|(_, value)| value.is_none())
        .filter(|stretch| !stretch.is_empty())
        .map(|stretch| {
            let point = |(at, value): &(usize, &Option<f64>)| {
                let share = value.unwrap_or_default() / top.max(1e-9);
                let y = HEIGHT - 1.0 - share.clamp(0.0, 1.0) * (HEIGHT - 2.0);
                format!("{:.1},{y:.1}", *at as f64 * step)
            };
            stretch.iter().map(point).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_breaks_the_line() {
        let drawn = lines(&[Some(0.0), Some(100.0), None, Some(50.0), Some(50.0)], 100.0);
        assert_eq!(drawn, ["0.0,23.0 30.0,1.0", "90.0,12.0 120.0,12.0"]);
        assert!(lines(&[], 100.0).is_empty());
    }
}
