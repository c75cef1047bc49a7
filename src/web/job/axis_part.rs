//! The axes of a drawing without a script: where its time begins and ends, and its highest value.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::app::text::local_time;
use crate::app::view::plot_data::moment;
use crate::market::Span;

/// `began`: the time of its left edge. `secs`: its width. `highest`: the value at its top.
pub fn axis(began: Option<Timestamp>, secs: f64, highest: &str) -> Markup {
    let ends = began.zip(moment(began, secs));
    html! {
        p.axis {
            @match ends {
                Some((began, ended)) => {
                    span { (local_time(began)) } span { "0 to " (highest) } span { (local_time(ended)) }
                }
                None => {
                    span { "begin" } span { "0 to " (highest) } span { (Span::from_secs(secs as u64)) " later" }
                }
            }
        }
    }
}
