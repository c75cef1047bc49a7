//! How a trial ended, from the receipts of its jobs and its metric.

use crate::job::{
    EndedBecause, GangEnd, GangEndCause, JobOutcome, MetricSeries, RECORD_FORMAT, Receipt,
    TrialFate, TrialPruned, TuneTrialEnd,
};

/// The records of a trial whose jobs have all ended.
pub struct EndedTrial<'a> {
    /// The receipt of its job, or of rank 0.
    pub receipt: &'a Receipt,
    /// The receipts of the other ranks.
    pub others: &'a [Receipt],
    /// Why its gang is over; `None`: it has one machine, or its gang never worked.
    pub gang: Option<&'a GangEnd>,
    pub pruned: Option<&'a TrialPruned>,
}

/// The end of a trial. `series`: the reports of all its attempts.
pub fn end_of_trial(
    number: u32,
    metric: &str,
    trial: &EndedTrial<'_>,
    series: MetricSeries,
) -> TuneTrialEnd {
    let (fate, reason) = fate(metric, trial, &series);
    let others = trial.others.iter();
    TuneTrialEnd {
        format: RECORD_FORMAT,
        number,
        ended: others.clone().map(|of| of.ended).fold(trial.receipt.ended, Ord::max),
        fate,
        value: series.last.and_then(|last| last.value),
        series,
        usd: trial.receipt.total_usd + others.map(|of| of.total_usd).sum(),
        reason,
    }
}

fn fate(metric: &str, trial: &EndedTrial<'_>, series: &MetricSeries) -> (TrialFate, String) {
    let EndedTrial { receipt, gang, pruned, .. } = *trial;
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
        // Rank 0 fails because another rank is missing.
        JobOutcome::Failed if let Some(end) = gang.filter(|end| has_lost_machine(end)) => {
            (TrialFate::Interrupted, end.text.clone())
        }
        // Another rank had read its wish to stop before rank 0 read its own.
        JobOutcome::Failed
            if let Some((pruned, _)) =
                pruned.zip(gang.filter(|end| end.because == GangEndCause::Stopped)) =>
        {
            (TrialFate::Pruned, pruned.reason.clone())
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

/// The gang ended because a machine was lost, or did not come.
fn has_lost_machine(end: &GangEnd) -> bool {
    matches!(end.because, GangEndCause::Interrupted | GangEndCause::Incomplete)
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
            let receipt = receipt(outcome, because);
            let trial = EndedTrial { receipt: &receipt, others: &[], gang: None, pruned };
            let end = end_of_trial(1, "loss", &trial, series(values));
            assert_eq!((end.fate, end.value), (fate, value), "{outcome} {because} {values:?}");
        }
    }

    #[test]
    fn gang_costs_the_sum_and_ends_with_its_last_rank() {
        let leader = receipt("succeeded", "succeeded");
        let late = Receipt { ended: "2026-01-01T02:00:00Z".parse().unwrap(), ..leader.clone() };
        let others = [receipt("succeeded", "succeeded"), late.clone()];
        let trial = EndedTrial { receipt: &leader, others: &others, gang: None, pruned: None };
        let end = end_of_trial(1, "loss", &trial, series(&[1.0]));
        assert_eq!((end.fate, end.ended), (TrialFate::Complete, late.ended));
        assert_eq!(end.usd, "$1.50".parse().unwrap());
    }

    #[test]
    fn rank_0_that_fails_with_its_gang_tells_why_the_gang_ended() {
        let pruned: TrialPruned = serde_json::from_value(json!({ "format": 1, "number": 1,
            "at": "2026-01-01T00:30:00Z", "by": "c", "reason": "median" }))
        .unwrap();
        let fate_of = |cause: &str, pruned: Option<&TrialPruned>| {
            let end: GangEnd =
                serde_json::from_value(json!({ "format": 1, "rank": 1, "exit": null,
                "at": "2026-01-01T00:40:00Z", "because": cause, "missing": [], "text": "gone" }))
                .unwrap();
            let receipt = receipt("failed", "failed");
            let trial = EndedTrial { receipt: &receipt, others: &[], gang: Some(&end), pruned };
            end_of_trial(1, "loss", &trial, series(&[2.0])).fate
        };
        for (cause, pruned, fate) in [
            ("interrupted", None, TrialFate::Interrupted),
            ("incomplete", None, TrialFate::Interrupted),
            ("failed", None, TrialFate::Failed),
            ("stopped", None, TrialFate::Failed),
            ("stopped", Some(&pruned), TrialFate::Pruned),
        ] {
            assert_eq!(fate_of(cause, pruned), fate, "{cause}");
        }
    }
}
