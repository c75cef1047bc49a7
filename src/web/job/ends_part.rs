//! Each end of a job as a countdown, the nearest first.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::app::text::{countdown, local_time};
use crate::app::view::next_end::Countdown;

pub fn ends_part(ends: &[Countdown], now: Timestamp) -> Markup {
    html! {
        @if !ends.is_empty() {
            h2 #ends { "Ends, the nearest first" }
            dl.facts.ends {
                @for end in ends {
                    div {
                        dt { (capital(end.what)) @if let Some(condition) = end.condition { ", " (condition) } }
                        dd { strong { (countdown(end.at, now)) } " " span.muted { (local_time(end.at)) } }
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
