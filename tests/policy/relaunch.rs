//! What is waited for between two machines, told from the records alone.

use jiff::SignedDuration;
use lamplighter::job::{AttemptRecord, EndedBecause, Refusal, Settled};
use lamplighter::market::CloudKind;
use lamplighter::policy::Wishes;
use lamplighter::policy::lifecycle::relaunch::{self, Next};

use crate::lifecycle::reconcile_facts::{now, plan, settled, spec};

/// A machine that was taken so many minutes ago, before any work was done.
fn young(number: u32, minutes: i64) -> AttemptRecord {
    let at = now() - SignedDuration::from_mins(minutes);
    let ended = Settled {
        outcome: None,
        billed_from: Some(at),
        billed_to: Some(at),
        ..settled(number, EndedBecause::Interrupted)
    };
    AttemptRecord {
        plan: plan(CloudKind::Aws, number, 60 * u64::try_from(minutes).unwrap() + 60).into(),
        settled: ended.into(),
    }
}

#[test]
fn hold_after_young_deaths_is_told_until_the_hold_is_over() {
    let (spec, wishes) = (spec().spec, Wishes::default());
    let three = [young(1, 6), young(2, 4), young(3, 2)];
    let (why, until) = relaunch::hold(&spec, &three, &wishes, now()).unwrap();
    assert_eq!(
        why,
        "a better moment: 3 machines ended young within an hour; the next is tried in 8m; after 5 in a row it has failed"
    );
    let Next::Attempt { not_before, .. } = relaunch::next(&spec, &three, &wishes, now()) else {
        panic!("another follows")
    };
    assert_eq!(until, not_before, "the same rule says it and keeps it");
    assert_eq!(relaunch::hold(&spec, &three, &wishes, until), None, "it is over");
    assert_eq!(relaunch::hold(&spec, &three[..2], &wishes, now()), None);
    assert_eq!(relaunch::hold(&spec, &[], &wishes, now()), None);
}

/// The next machine would be refused too, or have the same disk: what is wrong is not the
/// machine's.
#[test]
fn job_that_could_not_be_prepared_is_not_launched_again() {
    let record =
        AttemptRecord { settled: settled(1, EndedBecause::PreflightFailed).into(), ..young(1, 15) };
    let next = relaunch::next(&spec().spec, &[record], &Wishes::default(), now());
    assert!(matches!(next, Next::End { because: EndedBecause::PreflightFailed, .. }), "{next:?}");
}

/// A market that takes a machine every few minutes, each after some work: what a job buys in an
/// hour has a bound.
#[test]
fn eleventh_machine_of_an_hour_waits_until_first_is_an_hour_old() {
    let (spec, wishes) = (spec().spec, Wishes::default());
    let worked = |number: u32, minutes: i64| {
        let taken = settled(number, EndedBecause::Interrupted);
        let at = now() - SignedDuration::from_mins(minutes);
        let ended = Settled {
            instance: Some(format!("i-{number}")),
            billed_from: Some(at),
            billed_to: Some(at),
            ..taken
        };
        let mut record = young(number, minutes);
        std::sync::Arc::make_mut(&mut record.plan).created = at;
        AttemptRecord { settled: ended.into(), ..record }
    };
    let ten: Vec<AttemptRecord> =
        (1..=10).map(|number| worked(number, 54 - 5 * i64::from(number - 1))).collect();
    let until = now() + SignedDuration::from_mins(6);
    let Next::Attempt { not_before, reason, .. } = relaunch::next(&spec, &ten, &wishes, now())
    else {
        panic!("another follows")
    };
    assert_eq!((not_before, reason.verdict.as_str()), (until, "hold"), "{reason:?}");
    assert!(
        reason.text.ends_with("; 10 machines were bought within an hour, so the next waits"),
        "{}",
        reason.text
    );
    let (why, told) = relaunch::hold(&spec, &ten, &wishes, now()).unwrap();
    assert_eq!(
        why,
        "a better moment: 10 machines were bought within an hour, and the market took them; the next is tried in 6m"
    );
    assert_eq!(told, until, "the same rule says it and keeps it");
    assert_eq!(relaunch::hold(&spec, &ten, &wishes, until), None, "it is over");
    assert_eq!(relaunch::hold(&spec, &ten[1..], &wishes, now()), None, "nine are not ten");
    // What found no machine is none, and a plan from a clock that was ahead holds nothing.
    let mut refused = ten.clone();
    refused[0].settled = Settled {
        refusal: Some(Refusal::Capacity),
        instance: None,
        billed_from: None,
        ..settled(1, EndedBecause::LaunchFailed)
    }
    .into();
    assert_eq!(relaunch::hold(&spec, &refused, &wishes, now()), None);
    let mut ahead = ten;
    std::sync::Arc::make_mut(&mut ahead[0].plan).created = now() + SignedDuration::from_hours(24);
    assert_eq!(relaunch::hold(&spec, &ahead, &wishes, now()), None);
}

/// Jobs from before limits were asked for, and those of a schedule from then: they end, and say how
/// they go on.
#[test]
fn job_without_a_limit_ends_where_a_machine_would_be_bought() {
    let mut bought = spec().spec;
    bought.machine.cloud = CloudKind::Aws;
    for history in [&[][..], &[young(1, 15)]] {
        let Next::End { because, reason } =
            relaunch::next(&bought, history, &Wishes::default(), now())
        else {
            panic!("none is bought")
        };
        assert!(
            because == EndedBecause::LaunchFailed
                && reason.text.contains("no `deadline`, and no machine is bought without one"),
            "{reason:?}"
        );
    }
    bought.limits.budget = Some("$5".parse().unwrap());
    assert!(matches!(
        relaunch::next(&bought, &[], &Wishes::default(), now()),
        Next::Attempt { .. }
    ));
}
