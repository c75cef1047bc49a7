//! A job in one sentence: its state, its verdict, why, and until when.

use jiff::Timestamp;
use serde::Serialize;

use crate::app::text::{countdown, in_local_time, local_time, waits_text};
use crate::app::view::job_summary::Summary;
use crate::app::view::next_end::{Countdown, WatchPolicy};
use crate::app::view::summary_text::judged;
use crate::job::JobState;

/// The next moment at which something ends. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct NextEnd {
    pub at: Timestamp,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub what: &'static str,
}

impl NextEnd {
    /// The first of [`Summary::ends`]. `None`: the job has ended, or nothing limits it.
    pub fn of(summary: &Summary) -> Option<NextEnd> {
        summary.ends.first().map(NextEnd::from)
    }

    /// The nearest end that comes in any case.
    fn certain(summary: &Summary) -> Option<NextEnd> {
        summary.ends.iter().find(|end| end.condition.is_none()).map(NextEnd::from)
    }

    /// `in 2h 3m`, or `now` once it is due.
    pub fn countdown(&self, now: Timestamp) -> String {
        countdown(self.at, now)
    }
}

impl From<&Countdown> for NextEnd {
    fn from(end: &Countdown) -> Self {
        let what = match end.what {
            "run time" => "its run time ends at",
            "deadline" => "its deadline is at",
            "budget" => "its budget is spent, at the rate of now, at",
            "idle" => WatchPolicy::Idle.what(),
            "stall" => WatchPolicy::Stall.what(),
            "lease" => "its agent is silent, and its lease ends at",
            "boot" => "its agent must report by",
            "kept machine" => "its machine is kept until",
            "wait" => "it stops waiting at",
            _ => "its machine ends at the latest at",
        };
        NextEnd { at: end.at, what }
    }
}

/// `running, busy: the GPU works; its machine ends at the latest at 2026-11-29 21:40:00 CET`
pub fn job_sentence(summary: &Summary) -> String {
    let mut said = vec![state_part(summary)];
    if let Some(gang) = &summary.gang {
        let reason = gang.reason.iter().map(|reason| format!(": {reason}"));
        said.push(format!("{} machines{}", gang.ranks.len(), reason.collect::<String>()));
    }
    if let Some(asked) = &summary.end_asked {
        said.push(format!("{} asked it to {}", asked.by, asked.wish));
    }
    said.extend(summary.kept_until.map(|until| format!("kept until {}", local_time(until))));
    let nearest = NextEnd::of(summary);
    // A silence may end, so the certain end is said too.
    let certain = NextEnd::certain(summary);
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
    if let Some(reason) = summary.reason.as_ref().filter(|_| runs_on(summary)) {
        return format!("{state}, {reason}; it runs on, as `[on]` asks only to be told");
    }
    let (verdict, reason) = judged(summary);
    let verdict = verdict.map(|verdict| format!(", {}", verdict.replace('_', " ")));
    let reason = reason.filter(|_| summary.state != JobState::Held);
    let word = summary.verdict.as_deref().unwrap_or(&state);
    let reason = reason.map(|reason| format!(": {}", once(&reason, word))).unwrap_or_default();
    format!("{state}{}{reason}", verdict.unwrap_or_default())
}

/// It is quiet, and that does not end it. A verdict says the rest itself.
fn runs_on(summary: &Summary) -> bool {
    let is_running = summary.state == JobState::Running && !summary.alone;
    is_running && summary.is_quiet && summary.verdict.as_deref() == Some("busy")
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
    fn quiet_job_that_does_not_end_says_that_it_runs_on() {
        let summary = Summary {
            verdict: Some("busy".to_owned()),
            reason: Some("quiet for 4m of 12m".to_owned()),
            is_quiet: true,
            ..Summary::example(JobState::Running)
        };
        let sentence = job_sentence(&summary);
        let words = "running, quiet for 4m of 12m; it runs on, as `[on]` asks only to be told";
        assert!(sentence.starts_with(words), "{sentence}");
    }

    #[test]
    fn verdict_is_said_once() {
        assert_eq!(once("idle: nothing for 15m", "idle"), "nothing for 15m");
        assert_eq!(once("the GPU works", "busy"), "the GPU works");
    }
}
