//! The cost of each day as a bar. Each part has a colour, a pattern and a letter.

use maud::{Markup, html};

use crate::app::costs::day_bars::{BarParts, DayBar, DayBars, REST, UNKNOWN};
use crate::market::Usd;

/// A narrower part has no room for its letter, in percent of the width.
const LETTER_MIN: f64 = 4.0;

/// The pattern of what is unknown, and of the jobs without one of their own.
const PLAIN: usize = 7;

pub fn bars_part(bars: &DayBars, by: BarParts) -> Markup {
    let most = bars.days.iter().map(|day| day.usd.dollars()).fold(1e-6, f64::max);
    html! {
        section aria-labelledby="bars" {
            h2 #bars { "Each day" }
            p.presets {
                span { "Parts by" }
                @for one in BarParts::ALL {
                    a href=(format!("/costs?parts={}", one.word())) aria-current=[(one == by).then_some("true")] { (one.word()) }
                }
            }
            @if bars.days.is_empty() { p.muted { "Nothing was spent." } } @else {
                (patterns())
                ul.legend.bars {
                    @for (at, (key, usd)) in bars.parts.iter().enumerate() {
                        li {
                            svg.key aria-hidden="true" { rect width="100%" height="100%" fill=(fill(bars, at)) {} }
                            " " strong { (letter(at)) } " " (name(key, by)) " " span.muted { (usd) }
                        }
                    }
                }
                div.wide tabindex="0" role="group" aria-labelledby="bars" {
                    table.bars { tbody { @for day in &bars.days { (row(bars, day, by, most)) } } }
                }
            }
        }
    }
}

fn name(key: &str, by: BarParts) -> Markup {
    html! {
        @if by == BarParts::Job && key != REST { a href=(format!("/job/{key}")) { (key) } } @else { (key) }
    }
}

fn letter(at: usize) -> char {
    char::from(b'A' + u8::try_from(at % 26).unwrap_or_default())
}

fn fill(bars: &DayBars, at: usize) -> String {
    let is_plain = bars.parts.get(at).is_some_and(|(key, _)| key == REST || key == UNKNOWN);
    format!("url(#part-{})", if is_plain { PLAIN } else { at })
}

fn row(bars: &DayBars, day: &DayBar, by: BarParts, most: f64) -> Markup {
    let mut x = 0.0;
    let mut drawn = Vec::new();
    for (at, usd) in day.parts.iter().enumerate().filter(|(_, usd)| **usd > Usd::ZERO) {
        let width = usd.dollars() / most * 100.0;
        drawn.push((at, x, width, *usd));
        x += width;
    }
    let told: Vec<String> =
        drawn.iter().map(|(at, .., usd)| format!("{} {usd}", bars.parts[*at].0)).collect();
    let told = if told.is_empty() { "nothing".to_owned() } else { told.join(", ") };
    html! {
        tr {
            th scope="row" { (day.day) }
            td.number { (day.usd) }
            td {
                svg.day role="img" aria-label=(format!("{} by {}: {told}", day.day, by.word())) {
                    @for (at, x, width, usd) in &drawn {
                        rect x=(format!("{x:.2}%")) width=(format!("{width:.2}%")) height="100%" fill=(fill(bars, *at)) {
                            title { (bars.parts[*at].0) ": " (usd) }
                        }
                        @if *width >= LETTER_MIN {
                            text x=(format!("{:.2}%", x + width / 2.0)) y="15" { (letter(*at)) }
                        }
                    }
                }
            }
        }
    }
}

/// Lines of another direction or distance for each part, so that no two look alike in grey.
fn patterns() -> Markup {
    let lines: [&[&str]; 8] = [
        &[],
        &["M0 8L8 0", "M-2 2L2 -2", "M6 10L10 6"],
        &["M0 4H8"],
        &["M4 0V8"],
        &["M0 0L8 8", "M-2 6L2 10", "M6 -2L10 2"],
        &["M4 0V8", "M0 4H8"],
        &["M3 4H5"],
        &["M1 1H3", "M5 5H7"],
    ];
    html! {
        svg.defs aria-hidden="true" width="0" height="0" {
            defs {
                @for (at, lines) in lines.iter().enumerate() {
                    pattern id=(format!("part-{at}")) width="8" height="8" patternUnits="userSpaceOnUse" {
                        rect.{ "gpu-" (at) } width="8" height="8" {}
                        @for line in *lines { path d=(line) {} }
                    }
                }
            }
        }
    }
}
