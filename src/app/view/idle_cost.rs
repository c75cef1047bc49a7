//! The cost of waiting for an idle verdict, beside the cost of a stop by mistake, from one
//! attempt's records.
//!
//! Not here: the sums (`policy::watch::idle_cost`).

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{Plan, Reason};
use crate::jobdir::{Event, EventDetail};
use crate::market::{UsdPerHour, elapsed};
use crate::policy::watch::idle_cost::{IdleCost, IdleFacts, idle_cost};

/// A checkpoint within this time after a verdict was saved because of it.
const SAVED_WITH_IT: Duration = Duration::from_secs(15 * 60);

/// For the last idle verdict; `None`: there was none, or its quiet time is unknown.
pub fn of(
    plan: Option<&Plan>,
    reasons: &[Reason],
    events: &[Event],
) -> Option<(Timestamp, IdleCost)> {
    let told = events.iter().filter_map(|event| {
        if let EventDetail::Verdict { reason } = &event.what { Some(reason) } else { None }
    });
    let idle = told
        .chain(reasons)
        .filter(|reason| reason.policy == "idle" && reason.verdict == "idle")
        .max_by_key(|reason| reason.at)?;
    let quiet = Duration::try_from_secs_f64(*idle.numbers.get("quiet_secs")?).ok()?;
    let began = events
        .iter()
        .find(|event| matches!(event.what, EventDetail::WorkloadStarted { .. }))
        .map(|event| event.at)?;
    let saves = events.iter().filter_map(|event| {
        if let EventDetail::Checkpoint { .. } = event.what { Some(event.at) } else { None }
    });
    let newest = saves
        .filter(|at| *at <= idle.at.saturating_add(SAVED_WITH_IT).unwrap_or(Timestamp::MAX))
        .max();
    let facts = IdleFacts {
        quiet,
        unsaved: elapsed(newest.unwrap_or(began), idle.at),
        start: plan.map_or(Duration::ZERO, |plan| elapsed(plan.created, began)),
        hourly: plan.map_or(UsdPerHour::ZERO, |plan| plan.offer.hourly()),
    };
    Some((idle.at, idle_cost(&facts)))
}

/// `being sure took 15m of quiet, $0.30; a stop by mistake would have cost $0.80: ...`
pub fn text(cost: &IdleCost) -> String {
    let IdleCost { waited, lost, start, .. } = cost;
    let free = cost.waited_usd.micros() == 0 && cost.lost_usd.micros() == 0;
    let money = |usd: crate::market::Usd, before: &str| {
        if free { String::new() } else { format!("{before}{usd}") }
    };
    let work = if lost.duration().as_secs() == 0 {
        "no work".to_owned()
    } else {
        format!("{lost} of work that was not saved")
    };
    let start = if start.duration().is_zero() {
        String::new()
    } else {
        format!(", and {start} for a start")
    };
    format!(
        "being sure took {waited} of quiet{}; a stop by mistake would have cost{}: {work}{start}",
        money(cost.waited_usd, ", "),
        money(cost.lost_usd, " ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a moment of this century")
    }

    fn event(second: i64, what: EventDetail) -> Event {
        Event { seq: 1, at: at(second), what }
    }

    fn checkpoint() -> EventDetail {
        let what = json!({ "kind": "checkpoint", "checkpoint": { "number": 1, "attempt": 1, "created": at(0), "step": null, "bytes": 1 },
            "save_secs": 1.0, "upload_secs": 1.0, "asked_by": null });
        serde_json::from_value(what).expect("an event")
    }

    fn idle() -> Reason {
        Reason::new(at(4000), "idle", "idle", "idle: nothing for 10m").with("quiet_secs", 600.0)
    }

    #[test]
    fn both_sides_are_told_with_what_was_saved_last() {
        let started =
            event(400, EventDetail::WorkloadStarted { start: 1, pid: 1, command: "train".into() });
        let verdict = event(4000, EventDetail::Verdict { reason: idle() });
        let lost = |events: &[Event]| {
            of(None, &[], events).map(|(_, cost)| (cost.waited.to_string(), cost.lost.to_string()))
        };
        let expected = |lost: &str| Some(("10m".to_owned(), lost.to_owned()));
        assert_eq!(lost(&[started.clone(), verdict.clone()]), expected("50m"));
        assert_eq!(
            lost(&[started.clone(), event(2200, checkpoint()), verdict.clone()]),
            expected("20m")
        );
        // Saved before the end.
        assert_eq!(
            lost(&[started.clone(), event(2200, checkpoint()), verdict, event(4010, checkpoint())]),
            expected("0s")
        );
        assert_eq!(
            lost(&[
                started,
                event(
                    4000,
                    EventDetail::Verdict { reason: Reason::new(at(9), "idle", "busy", "it works") }
                )
            ]),
            None
        );
    }

    #[test]
    fn where_nothing_bills_the_time_is_told() {
        let events = [
            event(0, EventDetail::WorkloadStarted { start: 1, pid: 1, command: "train".into() }),
            event(1000, checkpoint()),
        ];
        let (when, cost) = of(None, &[idle()], &events).expect("it was idle");
        assert_eq!(
            (when, text(&cost).as_str()),
            (
                at(4000),
                "being sure took 10m of quiet; a stop by mistake would have cost: 40m of work that was not saved"
            )
        );
    }
}
