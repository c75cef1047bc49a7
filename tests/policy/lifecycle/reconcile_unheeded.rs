//! A stop that an agent does not heed, though it beats.

use std::time::Duration;

use lamplighter::instance::InstanceState;
use lamplighter::job::{AttemptPhase, EndedBecause, Wish};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, Watched};

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, ago, attempt, known, outcome, status, view, wish, words,
};

/// Asked for so many minutes ago, and beating for so many.
fn asked(phase: AttemptPhase, wished: u64, beats: u64) -> AttemptFacts {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let watched =
        Watched { wished_for: minutes(wished), beats_for: minutes(beats), ..Watched::default() };
    AttemptFacts { status: Some(status(phase, ago(10))), watched, ..attempt(1, 7200) }
}

#[test]
fn stop_that_an_agent_ignores_for_15_minutes_ends_its_machine() {
    let running = view(1, OWNER, InstanceState::Running, None);
    let ended = || AttemptFacts {
        outcome: Some(outcome(1, EndedBecause::UserStopped)),
        ..asked(AttemptPhase::Running, 20, 20)
    };
    for (what, facts, asks, expected) in [
        ("it has time", asked(AttemptPhase::Running, 14, 60), Wish::Stop, "wait"),
        ("it had its time", asked(AttemptPhase::Running, 15, 15), Wish::Stop, "terminate"),
        ("before its work, too", asked(AttemptPhase::Preparing, 20, 20), Wish::Stop, "terminate"),
        (
            "it was offline until now, and is about to read it",
            asked(AttemptPhase::Running, 60, 0),
            Wish::Stop,
            "wait",
        ),
        (
            "it saves and uploads, which may take half an hour",
            asked(AttemptPhase::Draining, 25, 25),
            Wish::Stop,
            "wait",
        ),
        ("it is kept for a look", asked(AttemptPhase::Held, 25, 25), Wish::Stop, "wait"),
        ("it has ended", ended(), Wish::Stop, "wait"),
        ("nobody asked for that", asked(AttemptPhase::Running, 0, 600), Wish::Checkpoint, "wait"),
    ] {
        assert_eq!(
            words(&[facts], &[wish(asks, 3600)], known(std::slice::from_ref(&running))),
            [expected],
            "{what}"
        );
    }
    let told =
        acts(&[asked(AttemptPhase::Running, 16, 60)], &[wish(Wish::Stop, 960)], known(&[running]));
    let [Act::Terminate { why, ends: Some(_), .. }] = told.as_slice() else { panic!("{told:?}") };
    assert!(
        why.starts_with("asked to stop by ")
            && why.contains("16 min ago, and its agent, which lives, has not begun"),
        "{why}"
    );
}
