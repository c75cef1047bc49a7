//! How a trial ended, from its job's receipt and its metric.

use crate::job::{
    EndedBecause, JobOutcome, MetricSeries, RECORD_FORMAT, Receipt, TrialFate, TrialPruned,
    TuneTrialEnd,
};

/// The end of a trial whose job has ended. `series`: the reports of all its attempts.
pub fn end_of_trial(
    number: u32,
    metric: &str,
    receipt: &Receipt,
    pruned: Option<&TrialPruned>,
    series: MetricSeries,
) -> TuneTrialEnd {
    let (fate, reason) = fate(metric, receipt, pruned, &series);
    TuneTrialEnd {
        format: RECORD_FORMAT,
        number,
        ended: receipt.ended,
        fate,
        value: series.last.and_then(|last| last.value),
        series,
        usd: receipt.total_usd,
        reason,
    }
}

fn fate(
    metric: &str,
    receipt: &Receipt,
    pruned: Option<&TrialPruned>,
    series: &MetricSeries,
) -> (TrialFate, String) {
    match receipt.outcome {
        JobOutcome::Succeeded => match series.last {
            None => {
                let reason = format!("it reported no `{metric}`");
                (TrialFate::Failed, reason)
            }
            Some(last) if last.value.is_none() => {
                (TrialFate::Pruned, format!("its last `{metric}` is not a number"))
            }
            Some(_) => (TrialFate::Complete, receipt.reason.clone()),
        },
        JobOutcome::Stopped | JobOutcome::Cancelled => match pruned {
            Some(pruned) => (TrialFate::Pruned, pruned.reason.clone()),
            None => (TrialFate::Stopped, receipt.reason.clone()),
        },
        JobOutcome::Failed if is_interrupted(receipt) => {
            (TrialFate::Interrupted, receipt.reason.clone())
        }
        JobOutcome::Failed | JobOutcome::Ended => (TrialFate::Failed, receipt.reason.clone()),
    }
}

/// The machine ended it, and not its program or its limits.
fn is_interrupted(receipt: &Receipt) -> bool {
    let last = receipt.attempts.last().map(|attempt| attempt.ended_because);
    matches!(
        receipt.because.or(last),
        Some(
            EndedBecause::Interrupted
                | EndedBecause::Lost
                | EndedBecause::HardwareLost
                | EndedBecause::Moved
        )
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(outcome: &str, because: &str) -> Receipt {
        let receipt = json!({ "format": 1, "job": "x-222222", "name": "x", "outcome": outcome,
            "exit_code": null, "because": because, "reason": "r", "started": "2026-01-01T00:00:00Z",
            "ended": "2026-01-01T01:00:00Z", "attempts": [], "total_usd": 0.5,
            "useful_seconds": 0.0, "idle_seconds": 0.0, "checkpoints": 0 });
        serde_json::from_value(receipt).unwrap()
    }

    fn series(values: &[f64]) -> MetricSeries {
        let mut series = MetricSeries::default();
        values.iter().for_each(|value| series.add(None, *value));
        series
    }

    #[test]
    fn fate_follows_from_receipt_and_metric() {
        let pruned: TrialPruned = serde_json::from_value(json!({ "format": 1, "number": 1,
            "at": "2026-01-01T00:30:00Z", "by": "c", "reason": "median" }))
        .unwrap();
        let cases = [
            ("succeeded", "succeeded", None, &[1.0, 0.5][..], TrialFate::Complete, Some(0.5)),
            ("succeeded", "succeeded", None, &[][..], TrialFate::Failed, None),
            ("succeeded", "succeeded", None, &[1.0, f64::NAN][..], TrialFate::Pruned, None),
            ("stopped", "user_stopped", Some(&pruned), &[2.0][..], TrialFate::Pruned, Some(2.0)),
            ("stopped", "user_stopped", None, &[2.0][..], TrialFate::Stopped, Some(2.0)),
            ("failed", "interrupted", None, &[2.0][..], TrialFate::Interrupted, Some(2.0)),
            ("failed", "lost", None, &[][..], TrialFate::Interrupted, None),
            ("failed", "failed", None, &[2.0][..], TrialFate::Failed, Some(2.0)),
            ("ended", "max_runtime", None, &[2.0][..], TrialFate::Failed, Some(2.0)),
            // It ended by itself before the stop reached it.
            ("succeeded", "succeeded", Some(&pruned), &[2.0][..], TrialFate::Complete, Some(2.0)),
        ];
        for (outcome, because, pruned, values, fate, value) in cases {
            let end = end_of_trial(1, "loss", &receipt(outcome, because), pruned, series(values));
            assert_eq!((end.fate, end.value), (fate, value), "{outcome} {because} {values:?}");
        }
    }
}
