//! What is waited for between two machines, told from the records alone.

use jiff::SignedDuration;
use lamplighter::job::{AttemptRecord, EndedBecause, Settled};
use lamplighter::market::Cloud;
use lamplighter::policy::Wishes;
use lamplighter::policy::relaunch::{self, Next};

use super::reconcile_facts::{now, plan, settled, spec};

/// A machine that was taken so many minutes ago, before any work was done.
fn young(number: u32, minutes: i64) -> AttemptRecord {
    let at = now() - SignedDuration::from_mins(minutes);
    let ended = Settled { outcome: None, billed_from: Some(at), billed_to: Some(at), ..settled(number, EndedBecause::Interrupted) };
    AttemptRecord { plan: plan(Cloud::Aws, number, 60 * u64::try_from(minutes).unwrap() + 60).into(), settled: ended.into() }
}

#[test]
fn a_hold_after_machines_that_died_young_is_told_until_it_is_over() {
    let (spec, wishes) = (spec().spec, Wishes::default());
    let three = [young(1, 6), young(2, 4), young(3, 2)];
    let (why, until) = relaunch::hold(&spec, &three, &wishes, now()).unwrap();
    assert_eq!(why, "a better moment: 3 machines ended young within an hour; the next is tried in 8m; after 5 in a row it has failed");
    let Next::Attempt { not_before, .. } = relaunch::next(&spec, &three, &wishes, now()) else { panic!("another follows") };
    assert_eq!(until, not_before, "the same rule says it and keeps it");
    assert_eq!(relaunch::hold(&spec, &three, &wishes, until), None, "it is over");
    assert_eq!(relaunch::hold(&spec, &three[..2], &wishes, now()), None);
    assert_eq!(relaunch::hold(&spec, &[], &wishes, now()), None);
}

/// The next machine would be refused too, or have the same disk: what is wrong is not the machine's.
#[test]
fn a_job_that_could_not_be_prepared_is_not_launched_again() {
    let record = AttemptRecord { settled: settled(1, EndedBecause::PreflightFailed).into(), ..young(1, 15) };
    let next = relaunch::next(&spec().spec, &[record], &Wishes::default(), now());
    assert!(matches!(next, Next::End { because: EndedBecause::PreflightFailed, .. }), "{next:?}");
}
