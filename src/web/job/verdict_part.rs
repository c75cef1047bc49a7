//! The newest verdict of a watching policy: what was measured, for how long, and the threshold.

use maud::{Markup, html};

use crate::app::view::reason_text::reason_text;
use crate::job::Reason;
use crate::market::Span;

pub fn verdict_part(reason: &Reason) -> Markup {
    let span = |secs: f64| Span::from_secs(secs.round() as u64);
    html! {
        h2 #verdict { "Verdict of the " (reason.policy) " rule" }
        p { (reason_text(reason)) }
        @if let Some((counted, window)) = reason.clock().filter(|(_, window)| *window > 0.0) {
            p {
                meter min="0" max=(format!("{window:.0}")) value=(format!("{:.0}", counted.min(window)))
                    aria-label="time without work, of the time that ends the job" {}
                " " (span(counted)) " without work; the threshold is " (span(window))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn verdict_has_its_time_and_its_threshold() {
        let reason = Reason::new(Timestamp::UNIX_EPOCH, "idle", "busy", "quiet: GPU 0 %")
            .with("gpu_percent", 0.0)
            .with("quiet_secs", 240.0)
            .with("window_secs", 900.0);
        let text = verdict_part(&reason).into_string();
        assert!(text.contains("4m without work; the threshold is 15m"), "{text}");
        assert!(text.contains("GPU 0%") && text.contains("value=\"240\""), "{text}");
        let without = Reason::new(Timestamp::UNIX_EPOCH, "limits", "near", "80 % of the way");
        assert!(!verdict_part(&without).into_string().contains("<meter"));
    }
}
