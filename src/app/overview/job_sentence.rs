//! A job in one sentence: its state, its verdict, why, and until when.

use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::{in_local_time, local_time, waits_text};
use crate::app::view::job_summary::Summary;
use crate::app::view::next_end::WatchPolicy;
use crate::app::view::summary_text::judged;
use crate::job::JobState;
use crate::market::Span;

/// The next moment at which something ends. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct NextEnd {
    pub at: Timestamp,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub what: &'static str,
}

const KEPT: &str = "its machine is kept until";
const HARD_CAP: &str = "its machine ends at the latest at";
const WAIT: &str = "it stops waiting at";

impl NextEnd {
    /// `None`: the job has ended, or nothing limits it.
    pub fn of(summary: &Summary) -> Option<NextEnd> {
        let watch = summary.watch_end.as_ref();
        let ends = [
            (summary.held.as_ref().map(|held| held.until), KEPT),
            (summary.plan.as_ref().and_then(|plan| plan.kill_at), HARD_CAP),
            (summary.waiting_until, WAIT),
            watch.map_or((None, ""), |watch| (Some(watch.at), watch.policy.what())),
        ];
        ends.into_iter()
            .filter_map(|(at, what)| Some(NextEnd { at: at?, what }))
            .filter(|_| !summary.state.is_final())
            .min_by_key(|end| end.at)
    }

    /// The same without the end that a silence would bring.
    fn certain(summary: &Summary) -> Option<NextEnd> {
        NextEnd::of(&Summary { watch_end: None, ..summary.clone() })
    }

    /// The end in a word or two, for a table.
    pub fn word(&self) -> &'static str {
        match self.what {
            KEPT => "kept",
            HARD_CAP => "hard cap",
            WAIT => "wait",
            what if what == WatchPolicy::Idle.what() => "idle",
            _ => "stall",
        }
    }

    /// `in 2h 3m`, or `now` once it is due.
    pub fn countdown(&self, now: Timestamp) -> String {
        let left = self.at.duration_since(now).as_secs();
        match u64::try_from(left) {
            // Seconds would only flicker.
            Ok(secs @ 3600..) => format!("in {}", Span::from_secs(secs - secs % 60)),
            Ok(secs @ 1..) => format!("in {}", Span::from_secs(secs)),
            _ => "now".to_owned(),
        }
    }
}

/// `running, busy: the GPU works; its machine ends at the latest at 2026-11-29 21:40:00 CET`
pub fn job_sentence(summary: &Summary) -> String {
    let mut said = vec![state_part(summary)];
    if let Some(asked) = &summary.end_asked {
        said.push(format!("{} asked it to {}", asked.by, asked.wish));
    }
    let nearest = NextEnd::of(summary);
    // A silence may end, so the certain end is said too.
    let certain = summary.watch_end.as_ref().and_then(|_| NextEnd::certain(summary));
    let certain = certain.filter(|certain| nearest.as_ref() != Some(certain));
    let ends = nearest.into_iter().chain(certain);
    said.extend(ends.map(|end| format!("{} {}", end.what, local_time(end.at))));
    in_local_time(&said.join("; ")).into_owned()
}

fn state_part(summary: &Summary) -> String {
    let state = summary.state_told();
    if let Some(silence) = &summary.silence {
        return format!("{}: {}", silence.state(), silence.sentence(summary.plan.as_ref()));
    }
    if let Some(waiting) = &summary.waiting {
        return format!("{state}, waits for {}", waits_text(waiting, None));
    }
    if summary.is_unheard() {
        return format!("{state}: its machine boots, and its agent has not reported");
    }
    if let Some((_, reason)) = summary.watch_end.as_ref().zip(summary.reason.as_ref()) {
        // `busy: quiet for 12m` would be a contradiction.
        return format!("{state}, {reason}");
    }
    let (verdict, reason) = judged(summary);
    let verdict = verdict.map(|verdict| format!(", {}", verdict.replace('_', " ")));
    let reason = reason.filter(|_| summary.state != JobState::Held);
    let word = summary.verdict.as_deref().unwrap_or(&state);
    let reason = reason.map(|reason| format!(": {}", once(&reason, word))).unwrap_or_default();
    format!("{state}{}{reason}", verdict.unwrap_or_default())
}

/// `idle: nothing for 15m`, not `idle: idle: nothing for 15m`.
fn once<'a>(reason: &'a str, word: &str) -> &'a str {
    reason.strip_prefix(word).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countdown_counts_seconds_only_near_the_end() {
        let now = Timestamp::from_second(1_700_000_000).expect("a moment");
        let left = |secs: i64| {
            let at = Timestamp::from_second(1_700_000_000 + secs).expect("a moment");
            NextEnd { at, what: "" }.countdown(now)
        };
        assert_eq!(
            [left(-1), left(0), left(59), left(7259)],
            ["now", "now", "in 59s", "in 2h"].map(str::to_owned)
        );
    }

    #[test]
    fn verdict_is_said_once() {
        assert_eq!(once("idle: nothing for 15m", "idle"), "nothing for 15m");
        assert_eq!(once("the GPU works", "busy"), "the GPU works");
    }
}
