//! Each end of a job as a countdown, the nearest first.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::app::analysis::countdowns::Countdown;
use crate::app::overview::job_sentence::NextEnd;
use crate::app::text::local_time;

pub fn ends_part(ends: &[Countdown], now: Timestamp) -> Markup {
    let left = |end: &Countdown| NextEnd { at: end.at, what: end.what }.countdown(now);
    html! {
        @if !ends.is_empty() {
            h3 #ends { "Ends, the nearest first" }
            dl.facts.ends {
                @for end in ends {
                    div {
                        dt { (capital(end.what)) @if let Some(condition) = end.condition { ", " (condition) } }
                        dd { strong { (left(end)) } " " span.muted { (local_time(end.at)) } }
                    }
                }
            }
        }
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
