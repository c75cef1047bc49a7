//! Machines that this controller cannot see: another workstation's, or another owner's.

use std::time::Duration;

use lamplighter::instance::OWNER_TAG;
use lamplighter::job::{AttemptPhase, EndedBecause, Request, Wish};
use lamplighter::market::{self, Zone};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, Watched};

use crate::lifecycle::reconcile_facts::{
    acts, ago, attempt, known, outcome, plan, settled, status, wish, word,
};

/// A running attempt of a plan that is not ours to launch: of another workstation, or of another
/// owner here.
fn theirs(owner: bool) -> AttemptFacts {
    let mut plan = plan(market::CloudKind::Local, 1, 90_000);
    if owner {
        plan.tags.insert(OWNER_TAG.into(), "you".into());
    } else {
        plan.offer.zone = Zone::new("ws-other");
    }
    AttemptFacts {
        plan: plan.into(),
        status: Some(status(AttemptPhase::Running, ago(30))),
        ..attempt(1, 90_000)
    }
}

fn silent(secs: u64) -> Watched {
    Watched {
        silent_for: Duration::from_secs(secs),
        missing_for: Duration::from_secs(90_000),
        ..Watched::default()
    }
}

#[test]
fn attempt_not_visible_from_here_ends_only_by_its_own_records() {
    let held = AttemptFacts { status: Some(status(AttemptPhase::Held, ago(5))), ..theirs(false) };
    let done = |attempt: AttemptFacts, secs| {
        let ended =
            lamplighter::job::Outcome { ended: ago(secs), ..outcome(1, EndedBecause::Succeeded) };
        AttemptFacts { outcome: Some(ended), ..attempt }
    };
    for owner in [false, true] {
        let cases: Vec<(&str, AttemptFacts, Vec<Request>, &str)> = vec![
            ("it runs", theirs(owner), vec![], "wait"),
            (
                "it is quiet",
                AttemptFacts { watched: silent(1790), ..theirs(owner) },
                vec![],
                "wait",
            ),
            (
                "silent for its lease",
                AttemptFacts { watched: silent(1801), ..theirs(owner) },
                vec![],
                "settle",
            ),
            (
                "it has just ended, and its own controller is nearer",
                done(theirs(owner), 10),
                vec![],
                "wait",
            ),
            ("it has ended, and nobody came", done(theirs(owner), 200), vec![], "settle"),
            ("it is kept for a look", done(held.clone(), 200), vec![], "wait"),
            (
                "asked to stop, and it is heard",
                AttemptFacts { watched: silent(60), ..theirs(owner) },
                vec![wish(Wish::Stop, 600)],
                "wait",
            ),
            (
                "asked to stop, and nobody is there",
                AttemptFacts { watched: silent(181), ..theirs(owner) },
                vec![wish(Wish::Stop, 200)],
                "settle",
            ),
            (
                "never launched",
                AttemptFacts { status: None, watched: silent(100), ..theirs(owner) },
                vec![],
                "wait",
            ),
            (
                "never launched, and never will be",
                AttemptFacts { status: None, watched: silent(1801), ..theirs(owner) },
                vec![],
                "settle",
            ),
        ];
        for (what, attempt, requests, expected) in cases {
            let acts = acts(&[attempt], &requests, known(&[]));
            assert_eq!(
                acts.iter().map(word).collect::<Vec<_>>(),
                [expected],
                "{what}, another owner: {owner}"
            );
        }
    }
}

#[test]
fn foreign_job_between_attempts_waits_or_gets_its_receipt() {
    for owner in [false, true] {
        let over =
            |because| AttemptFacts { settled: Some(settled(1, because).into()), ..theirs(owner) };
        let words = |because, requests: &[Request]| {
            acts(&[over(because)], requests, known(&[])).iter().map(word).collect::<Vec<_>>()
        };
        assert_eq!(words(EndedBecause::Interrupted, &[]), ["wait"]);
        assert_eq!(words(EndedBecause::Lost, &[wish(Wish::Stop, 5)]), ["receipt"]);
        assert_eq!(words(EndedBecause::Succeeded, &[]), ["receipt"]);
    }
}

#[test]
fn why_it_waits_is_said() {
    let why = |owner| match acts(&[theirs(owner)], &[], known(&[])).as_slice() {
        [Act::Wait { why, .. }] => why.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(why(false), "its machine is on the workstation ws-other, and this is z");
    assert_eq!(why(true), "its machine is of the owner `you`, and this is `me`");
}
