//! A machine that the cloud does not show: not yet, not any more, or never; and by whose clock.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{AttemptPhase, Lease, RECORD_FORMAT};
use lamplighter::policy::lifecycle::reconcile::{Act, AttemptFacts, Unshown, Watched};

use crate::lifecycle::reconcile_facts::{acts, ago, attempt, known, now, status};

/// Seed 201556: a laptop whose clock was a day ahead took machines for gone that another controller
/// had just launched, and that the cloud did not show yet.
#[test]
fn new_launch_by_another_is_not_gone_by_a_clock_a_day_ahead() {
    let a_day_old = || attempt(1, 86_400);
    let secs = Duration::from_secs;
    for (age, gone) in [(100, false), (301, true)] {
        let unshown = Some(Unshown {
            now: a_day_old().plan.created + secs(age),
            planned: None,
            outcome: None,
            ending: None,
        });
        let watched =
            Watched { unshown, missing_for: secs(61), silent_for: secs(61), ..Watched::default() };
        let heard = AttemptFacts {
            status: Some(status(AttemptPhase::Running, ago(30))),
            watched,
            ..a_day_old()
        };
        assert_eq!(
            matches!(acts(&[heard], &[], known(&[])).as_slice(), [Act::Settle(_)]),
            gone,
            "{age} s old by the store's clock"
        );
    }
    // Nothing was heard of it yet: by this clock its token is too old, by every other it may be on
    // its way.
    for (missing_for, gone) in [(61, false), (419, false), (420, true)] {
        let unheard = AttemptFacts {
            watched: Watched { missing_for: secs(missing_for), ..Watched::default() },
            ..a_day_old()
        };
        assert_eq!(
            matches!(acts(&[unheard], &[], known(&[])).as_slice(), [Act::Settle(_)]),
            gone,
            "missing for {missing_for} s"
        );
    }
}

/// Seed 13000375 of 24 h: planned an hour ago, launched by another two minutes ago, shown late, and
/// silent since its kernel hung.
#[test]
fn machine_with_a_fresh_lease_is_not_gone_however_old_its_plan() {
    let secs = Duration::from_secs;
    for (taken, launched_at, gone) in [
        (Some(120), None, false),
        (Some(301), None, true),
        (None, None, true),
        (Some(120), Some(ago(150)), true),
    ] {
        let lease = taken.map(|secs| Lease {
            format: RECORD_FORMAT,
            instance: "i-1".into(),
            nonce: "n".into(),
            taken: ago(secs),
        });
        let watched = Watched {
            missing_for: secs(61),
            silent_for: secs(61),
            launched_at,
            ..Watched::default()
        };
        let heard = AttemptFacts {
            lease,
            status: Some(status(AttemptPhase::Running, ago(61))),
            watched,
            ..attempt(1, 3600)
        };
        let acts = acts(&[heard], &[], known(&[]));
        assert_eq!(
            matches!(acts.as_slice(), [Act::Settle(_)]),
            gone,
            "{taken:?} {launched_at:?}: {acts:?}"
        );
    }
    // A machine whose clock is a day ahead holds nothing up.
    let ahead = now() + secs(86_400);
    let lease = Some(Lease {
        format: RECORD_FORMAT,
        instance: "i-1".into(),
        nonce: "n".into(),
        taken: ahead,
    });
    let watched = Watched { missing_for: secs(61), silent_for: secs(61), ..Watched::default() };
    let heard = AttemptFacts {
        lease,
        status: Some(status(AttemptPhase::Running, ago(61))),
        watched,
        ..attempt(1, 3600)
    };
    assert!(matches!(acts(&[heard], &[], known(&[])).as_slice(), [Act::Settle(_)]));
}

/// A plan that a throttled cloud held up for twenty minutes, launched by another, seen once, and
/// hidden by an answer of before that.
#[test]
fn new_launch_shown_once_is_not_gone_however_old_its_plan() {
    for (launched, gone) in [(90, false), (301, true)] {
        let (shown, missing_for) = (Some("i-1".into()), Duration::from_secs(61));
        let watched = Watched {
            shown,
            launched_at: Some(ago(launched)),
            missing_for,
            unclear: true,
            ..Watched::default()
        };
        let acts = acts(&[AttemptFacts { watched, ..attempt(1, 1200) }], &[], known(&[]));
        assert_eq!(
            matches!(acts.as_slice(), [Act::Settle(_)]),
            gone,
            "launched {launched} s ago: {acts:?}"
        );
        assert!(gone || matches!(acts.as_slice(), [Act::Wait { .. }]), "{acts:?}");
    }
}

/// Seed 627 of the false world: the laptop's clock was set a day ahead while EC2 did not show the
/// machine yet.
#[test]
fn own_new_launch_is_not_gone_whatever_the_wall_clock_says() {
    for (asked_for, gone) in [(Some(100), false), (Some(301), true), (None, true)] {
        let watched = Watched {
            launched: Some("i-1".into()),
            asked_for: asked_for.map(Duration::from_secs),
            missing_for: Duration::from_secs(61),
            ..Watched::default()
        };
        let acts = acts(&[AttemptFacts { watched, ..attempt(1, 86_400) }], &[], known(&[]));
        assert_eq!(matches!(acts.as_slice(), [Act::Settle(_)]), gone, "{asked_for:?}: {acts:?}");
    }
}

/// Seed 23000075 of 24 h of the false world: a workstation whose clock was a day ahead planned a
/// machine, which worked, ended, and was forgotten by the cloud; by a clock that is right its plan
/// was made tomorrow, and it was waited for until then.
#[test]
fn plan_from_a_clock_a_day_ahead_is_gone_once_unshown_for_long() {
    let secs = Duration::from_secs;
    let planned = |planned: Option<u64>, missing_for| {
        let mut ahead = attempt(1, 0);
        Arc::make_mut(&mut ahead.plan).created = now() + secs(86_400);
        let unshown =
            Some(Unshown { now: now(), planned: planned.map(ago), outcome: None, ending: None });
        ahead.watched = Watched {
            unshown,
            missing_for: secs(missing_for),
            silent_for: secs(missing_for),
            ..Watched::default()
        };
        AttemptFacts { status: Some(status(AttemptPhase::Running, ago(3600))), ..ahead }
    };
    for (by_the_store, missing_for, gone) in
        [(Some(7200), 61, true), (Some(200), 61, false), (None, 299, false), (None, 301, true)]
    {
        let acts = acts(&[planned(by_the_store, missing_for)], &[], known(&[]));
        assert_eq!(
            matches!(acts.as_slice(), [Act::Settle(_)]),
            gone,
            "planned {by_the_store:?}, missing for {missing_for}: {acts:?}"
        );
    }
}
