//! Where a job has moved, and why: shown when a new attempt begins, since it may cost more.

use crate::app::text::times;
use crate::policy::lifecycle::reconcile::{AttemptFacts, history};
use crate::policy::lifecycle::relaunch;

/// For an attempt after others; `None`: it is the first, or has ended.
pub fn moved(attempts: &[AttemptFacts]) -> Option<String> {
    let (last, before) = attempts.split_last().filter(|(last, _)| last.settled.is_none())?;
    let first = before.first()?;
    let offer = &last.plan.offer;
    let none = relaunch::found_none(&history(before));
    let why = none
        .or_else(|| last.plan.reasons.first().cloned())
        .map(|why| format!(": {why}"))
        .unwrap_or_default();
    let (price, shown) = (offer.hourly(), first.plan.offer.hourly());
    let dearer = if price > shown {
        let number = first.plan.attempt.number();
        format!(
            "; an hour costs {} with its disk and address, {} that of attempt {number}",
            price.per_hour(),
            times(price, shown)
        )
    } else {
        String::new()
    };
    Some(format!(
        "attempt {}: {}, {}{why}{dearer}",
        last.plan.attempt.number(),
        offer.describe(),
        offer.price
    ))
}

/// Why the attempt before the current one ended; `None`: there is none, or the last has ended too.
pub fn before(attempts: &[AttemptFacts]) -> Option<String> {
    let (_, before) = attempts.split_last().filter(|(last, _)| last.settled.is_none())?;
    let record = history(before).pop()?;
    let settled = &record.settled;
    let why = relaunch::why_ended(&record).map(|why| format!(": {why}")).unwrap_or_default();
    let (number, word) = (settled.attempt.number(), settled.because.word().replace('_', " "));
    Some(format!("attempt {number} ended, {word}{why}; billed {}, {}", settled.billed, settled.usd))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::lifecycle::reconcile::{CheckpointSummaries, Watched};

    fn attempt(number: u32, kind: &str, dollars: f64, refused: Option<&str>) -> AttemptFacts {
        let offer = json!({ "cloud": "aws", "region": "r", "zone": "r1a", "instance_type": kind, "gpus": 1, "gpu_model": "A10G",
            "market": "on-demand", "price": dollars });
        let plan = json!({ "format": 1, "job": "x-222222", "attempt": number, "created": "2026-11-21T12:00:00Z", "controller": "c",
            "offer": offer, "reasons": ["the cloud took the machine back"], "most_usd": null, "client_token": "t", "lease": "30m", "tags": {} });
        let settled = refused.map(|refusal| {
            json!({ "format": 1, "attempt": number, "instance": null, "because": "launch_failed", "billed_from": null, "billed_to": null,
                "billed": "0s", "usd": 0.0, "refusal": refusal, "cloud_reason": "t", "outcome": null })
        });
        AttemptFacts {
            plan: serde_json::from_value(plan).unwrap(),
            lease: None,
            status: None,
            outcome: None,
            settled: settled.map(|settled| serde_json::from_value(settled).unwrap()),
            journal: CheckpointSummaries::default(),
            watched: Watched::default(),
        }
    }

    #[test]
    fn new_attempt_shows_place_reason_and_cost_against_the_first() {
        let refused = || attempt(1, "g5.xlarge", 1.0, Some("capacity"));
        assert_eq!(moved(&[attempt(1, "g5.xlarge", 1.0, None)]), None);
        assert_eq!(before(&[attempt(1, "g5.xlarge", 1.0, None)]), None);
        assert_eq!(
            before(&[refused(), attempt(2, "g5.2xlarge", 1.2, None)]).unwrap(),
            format!(
                "attempt 1 ended, launch failed: {}; billed 0s, $0.00",
                crate::policy::cloud_text(crate::market::CloudKind::Aws, "t")
            )
        );
        assert_eq!(
            moved(&[refused(), attempt(2, "g5.2xlarge", 1.2, Some("capacity"))]),
            None,
            "it has ended already"
        );
        assert_eq!(
            moved(&[refused(), attempt(2, "g5.2xlarge", 1.2, None)]).unwrap(),
            "attempt 2: g5.2xlarge in r1a, on-demand, $1.20/h: no capacity, g5.xlarge in r1a, on-demand; \
             an hour costs $1.20 with its disk and address, 1.2 times that of attempt 1"
        );
        assert_eq!(
            moved(&[attempt(1, "g5.xlarge", 1.0, None), attempt(2, "g5.xlarge", 1.0, None)])
                .unwrap(),
            "attempt 2: g5.xlarge in r1a, on-demand, $1.00/h: the cloud took the machine back"
        );
    }
}
