//! When the alarm of a machine is armed, and when it is taken off.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::instance::{InstanceState, Status};
use lamplighter::job::AttemptPhase;
use lamplighter::policy::lifecycle::reconcile::{Act, GuardLeft, Watched};

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, attempt, known, launch_request, now, status, view, words,
};

/// What watches a machine from outside is armed once, while it runs, and its failure stops nothing.
#[test]
fn running_machine_is_guarded_once_where_an_alarm_is_asked_for() {
    let running = known(&[view(1, OWNER, InstanceState::Running, None)]);
    let mut guarded = attempt(1, 5);
    assert_eq!(words(&[guarded.clone()], &[], running.clone()), ["wait"], "no alarm is asked for");
    Arc::make_mut(&mut guarded.plan).launch = Some(launch_request("heartbeat"));
    assert_eq!(words(&[guarded.clone()], &[], running.clone()), ["guard", "wait"]);
    assert_eq!(
        words(&[guarded.clone()], &[], known(&[view(1, OWNER, InstanceState::Pending, None)])),
        ["wait"],
        "not yet"
    );
    guarded.watched.guard_waits = true;
    assert_eq!(words(&[guarded.clone()], &[], running.clone()), ["wait"], "it failed a moment ago");
    guarded.watched = Watched { guard: GuardLeft::Armed, ..Default::default() };
    assert_eq!(words(&[guarded.clone()], &[], running.clone()), ["wait"]);
    // Its metrics alone are lost: by its word of now, and by no older one.
    guarded.status = Some(Status { unmeasured: true, ..status(AttemptPhase::Running, now()) });
    let secs = Duration::from_secs;
    for (watched, armed) in [
        (
            Watched {
                guard: GuardLeft::Armed,
                beats_on: true,
                silent_for: secs(20),
                ..Default::default()
            },
            Some(false),
        ),
        (Watched { beats_on: true, silent_for: secs(20), ..Default::default() }, Some(false)),
        (
            Watched {
                guard: GuardLeft::Armed,
                beats_on: true,
                silent_for: secs(20),
                guard_waits: true,
                ..Default::default()
            },
            None,
        ),
        (
            Watched {
                guard: GuardLeft::Armed,
                beats_on: true,
                silent_for: secs(120),
                ..Default::default()
            },
            None,
        ),
        (
            Watched {
                guard: GuardLeft::Armed,
                beats_on: false,
                silent_for: secs(0),
                ..Default::default()
            },
            None,
        ),
        (
            Watched {
                guard: GuardLeft::Off,
                beats_on: true,
                silent_for: secs(20),
                ..Default::default()
            },
            None,
        ),
    ] {
        guarded.watched = watched;
        let acts = acts(&[guarded.clone()], &[], running.clone());
        let guards = acts
            .iter()
            .find_map(|act| if let Act::Guard { armed, .. } = act { Some(*armed) } else { None });
        assert_eq!(guards, armed, "{:?}", guarded.watched);
    }
    guarded.status = Some(status(AttemptPhase::Running, now()));
    assert_eq!(
        words(&[guarded.clone()], &[], running.clone()),
        ["guard", "wait"],
        "they arrive again"
    );
    guarded.status = Some(Status { unmeasured: true, ..status(AttemptPhase::Running, now()) });
    guarded.watched = Watched { guard: GuardLeft::Armed, beats_on: true, ..Default::default() };
    Arc::make_mut(&mut guarded.plan).launch = Some(launch_request("cpu<=0.3 for 5m"));
    assert_eq!(
        words(&[guarded], &[], running),
        ["wait"],
        "what EC2 measures needs no word of ours"
    );
}
