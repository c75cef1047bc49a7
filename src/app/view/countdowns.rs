//! Every end that a job is heading for, with its time, the nearest first.

use std::time::Duration;

use jiff::Timestamp;

use super::job_summary::Summary;
use super::next_end::{Countdown, WatchPolicy};
use crate::job::{JobState, LimitsSpec};
use crate::market::{Usd, UsdPerHour};
use crate::policy::Wishes;

/// The records of a job that has not ended. The summary is complete but for its ends.
#[derive(Clone, Copy)]
pub struct EndFacts<'a> {
    pub summary: &'a Summary,
    pub limits: &'a LimitsSpec,
    pub wishes: &'a Wishes,
    /// The time of the last heartbeat.
    pub heard_at: Option<Timestamp>,
    pub now: Timestamp,
}

/// Every face shows these ends. Empty for a job that has ended, or that nothing limits.
pub fn countdowns(facts: &EndFacts<'_>) -> Vec<Countdown> {
    let summary = facts.summary;
    if summary.state.is_final() {
        return Vec::new();
    }
    let mut ends: Vec<Countdown> =
        limit_ends(facts).into_iter().chain(watch_ends(facts)).chain(machine_ends(facts)).collect();
    ends.sort_by_key(|end| end.at);
    ends
}

/// The end of a wait for a machine.
pub fn wait_end(at: Timestamp) -> Countdown {
    Countdown { at, what: "wait", condition: None }
}

fn end(
    at: Option<Timestamp>,
    what: &'static str,
    condition: Option<&'static str>,
) -> Option<Countdown> {
    Some(Countdown { at: at?, what, condition })
}

/// The limits of the spec, with all extensions. A job whose machine is kept is over.
fn limit_ends(facts: &EndFacts<'_>) -> Vec<Countdown> {
    let EndFacts { summary, limits, wishes, now, .. } = *facts;
    if summary.state == JobState::Held {
        return Vec::new();
    }
    let more = wishes.more_time.duration();
    // Run time and money are spent on a machine only.
    let has_machine = !matches!(summary.state, JobState::Submitted | JobState::Interrupted)
        && summary.waiting.is_none();
    let planned = summary.plan.as_ref().filter(|_| has_machine).map(|plan| plan.created);
    let run_time = limits.max_runtime.zip(planned);
    let run_time =
        run_time.and_then(|(time, from)| later(from, time.duration().saturating_add(more)));
    let deadline = limits.deadline.and_then(|deadline| later(deadline, more));
    let budget = limits.budget.map(|budget| budget + wishes.more_budget);
    let spent = budget
        .zip(summary.usd_per_hour)
        .and_then(|(budget, hour)| later(now, time_left(budget, summary.usd, hour)?));
    let rate = Some("at the rate of now");
    [
        end(run_time, "run time", None),
        end(deadline, "deadline", None),
        end(spent.filter(|_| planned.is_some()), "budget", rate),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn time_left(budget: Usd, spent: Usd, hour: UsdPerHour) -> Option<Duration> {
    if hour <= UsdPerHour::ZERO {
        return None;
    }
    hour.time_for((budget - spent).max(Usd::ZERO))
}

/// The ends that the watching policies would bring if nothing changes.
fn watch_ends(facts: &EndFacts<'_>) -> Option<Countdown> {
    let watch = facts.summary.watch_end.as_ref()?;
    match watch.policy {
        WatchPolicy::Idle => end(Some(watch.at), "idle", Some("if it stays quiet")),
        WatchPolicy::Stall => end(Some(watch.at), "stall", Some("if no progress comes")),
    }
}

fn machine_ends(facts: &EndFacts<'_>) -> Vec<Countdown> {
    let EndFacts { summary, heard_at, .. } = *facts;
    let plan = summary.plan.as_ref();
    let lease = plan.zip(heard_at).and_then(|(plan, heard)| later(heard, plan.lease.duration()));
    let boot = plan.filter(|_| summary.is_unheard());
    let boot = boot.and_then(|plan| later(plan.created, plan.boot.duration()));
    let silent = Some("if its agent stays silent");
    let all = [
        end(plan.and_then(|plan| plan.kill_at), "hard cap", None),
        end(lease.filter(|_| summary.silence.is_some()), "lease", silent),
        end(boot, "boot", silent),
        end(summary.held.as_ref().map(|held| held.until), "kept machine", None),
        summary.waiting_until.map(wait_end),
    ];
    all.into_iter().flatten().collect()
}

fn later(from: Timestamp, by: Duration) -> Option<Timestamp> {
    from.checked_add(by).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::app::view::next_end::WatchEnd;
    use crate::instance::Status;
    use crate::job::{OnSpec, Plan};

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + minute * 60).expect("a moment")
    }

    fn summary(state: JobState) -> Summary {
        let offer = json!({ "cloud": "aws", "region": "r", "zone": "r1a", "instance_type": "t", "gpus": 1,
            "gpu_model": "A10G", "market": "spot", "price": 1.0 });
        let plan = json!({ "format": 1, "job": "x-222222", "attempt": 1, "created": at(0), "controller": "c",
            "offer": offer, "reasons": [], "most_usd": null, "client_token": "t", "kill_at": at(125), "lease": "30m", "tags": {} });
        let plan: Plan = serde_json::from_value(plan).expect("a plan");
        Summary {
            job: "x-222222".into(),
            name: "x".into(),
            instance: Some("i".into()),
            usd: "$1".parse().expect("money"),
            usd_per_hour: Some(UsdPerHour::new("$1".parse().expect("money"))),
            started: at(0),
            plan: Some(plan),
            ..Summary::example(state)
        }
    }

    fn status(policy: &str, numbers: &Value) -> Status {
        let reason = json!({ "at": at(60), "policy": policy, "verdict": "busy", "text": "t", "numbers": numbers });
        let status = json!({ "format": 1, "instance": "i", "sequence": 1, "at": at(60), "phase": "running", "started": at(0),
            "verdict": "busy", "reason": reason, "useful": "1s", "idle": "0s" });
        serde_json::from_value(status).expect("a heartbeat")
    }

    fn told(summary: &Summary, status: &Status, limits: Value, wishes: &Wishes) -> Vec<String> {
        let limits: LimitsSpec = serde_json::from_value(limits).expect("limits");
        let watch_end = WatchEnd::seen(status, &OnSpec::default(), wishes.kept_until);
        let summary = &Summary { watch_end, ..summary.clone() };
        let heard_at = Some(status.at);
        let facts = EndFacts { summary, limits: &limits, wishes, heard_at, now: at(60) };
        let one =
            |end: &Countdown| format!("{} {}", end.what, end.at.duration_since(at(0)).as_mins());
        countdowns(&facts).iter().map(one).collect()
    }

    #[test]
    fn nearest_end_comes_first_and_extensions_count() {
        let limits = || json!({ "max_runtime": "2h", "budget": 2.5, "deadline": at(300) });
        let quiet = status("idle", &json!({ "quiet_secs": 120.0, "window_secs": 720.0 }));
        let running = summary(JobState::Running);
        let none = Wishes::default();
        assert_eq!(
            told(&running, &quiet, limits(), &none),
            ["idle 70", "run time 120", "hard cap 125", "budget 150", "deadline 300"]
        );
        let more = Wishes {
            more_time: crate::market::Span::from_secs(3600),
            more_budget: "$1".parse().expect("money"),
            ..Wishes::default()
        };
        let told_more = told(&running, &quiet, limits(), &more);
        assert_eq!(told_more[2..], ["run time 180", "budget 210", "deadline 360"]);
        assert!(told(&summary(JobState::Failed), &quiet, limits(), &none).is_empty());
    }

    #[test]
    fn job_without_a_machine_spends_no_run_time_and_no_budget() {
        let limits = || json!({ "max_runtime": "2h", "budget": 2.5, "deadline": at(300) });
        let heard = status("idle", &json!({ "quiet_secs": 0.0, "window_secs": 600.0 }));
        let told = |state: JobState| {
            let mut summary = summary(state);
            summary.plan.as_mut().expect("a plan").kill_at = None;
            told(&summary, &heard, limits(), &Wishes::default())
        };
        assert_eq!(told(JobState::Interrupted), ["deadline 300"]);
        assert_eq!(told(JobState::Held), Vec::<String>::new());
        assert_eq!(told(JobState::Running), ["run time 120", "budget 150", "deadline 300"]);
    }

    #[test]
    fn clock_that_stands_or_has_run_out_counts_nothing_down() {
        let running = summary(JobState::Running);
        for numbers in [
            json!({ "quiet_secs": 0.0, "window_secs": 600.0 }),
            json!({ "quiet_secs": 900.0, "window_secs": 600.0 }),
            json!({ "quiet_secs": 300.0 }),
        ] {
            let status = status("idle", &numbers);
            assert_eq!(told(&running, &status, json!({}), &Wishes::default()), ["hard cap 125"]);
        }
        let silent = status("stall", &json!({ "silent_secs": 600.0, "window_secs": 1200.0 }));
        assert_eq!(
            told(&running, &silent, json!({}), &Wishes::default()),
            ["stall 70", "hard cap 125"]
        );
        let kept = Wishes { kept_until: Some(at(100)), ..Wishes::default() };
        let idle = status("idle", &json!({ "quiet_secs": 900.0, "window_secs": 600.0 }));
        assert_eq!(told(&running, &idle, json!({}), &kept), ["idle 100", "hard cap 125"]);
    }
}
