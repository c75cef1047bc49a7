//! The controller's one decision, as a table that reads like its rules.

use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView, Notice, NoticeKind, Status};
use lamplighter::job::{
    AttemptPhase, EndedBecause, JobOutcome, JobState, Reason, Request, Settled, Wish,
};
use lamplighter::market::{Span, Usd};
use lamplighter::policy::lifecycle::reconcile::{
    Act, AttemptFacts, CloudAnswer, Damaged, Watched, history, job_state,
};
use lamplighter::policy::lifecycle::relaunch;

use crate::lifecycle::reconcile_facts::{
    OWNER, acts, ago, attempt, known, now, outcome, settled, signed_until, status, unknown, view,
    wish, words,
};

/// What it is about, the facts, and the words of the acts.
type Case = (&'static str, Vec<AttemptFacts>, Vec<Request>, CloudAnswer, Vec<&'static str>);

/// It is the plan that was left lying, and no machine: the next attempt is planned at once, and
/// counts as no interruption.
#[test]
fn plan_left_lying_is_made_anew_and_is_no_interruption() {
    let settled =
        |age| match acts(&[signed_until(attempt(1, age), 60, 421)], &[], known(&[])).as_slice() {
            [Act::Settle(settled)] => settled.clone(),
            acts => panic!("{acts:?}"),
        };
    // So long ago that a machine of it would be shown no more: nobody can be certain, and the
    // receipt says so.
    let unsure = settled(3600 * 5);
    assert!(
        unsure.billed_from.is_some()
            && unsure
                .cloud_reason
                .unwrap()
                .starts_with("whether its machine was ever launched is not known")
    );
    let settled = settled(600);
    assert_eq!(
        (settled.because, settled.instance.as_ref(), settled.usd),
        (EndedBecause::Lost, None, Usd::ZERO)
    );
    assert!(
        settled
            .cloud_reason
            .as_ref()
            .is_some_and(|reason| reason.starts_with("it was not launched in time")),
        "{settled:?}"
    );
    // Not after any number of them: `interruptions.max` and the breaker of young deaths are of
    // machines. But five in a row are no accident: the next waits half an hour from the plan before
    // it.
    let of = |number| Settled { attempt: attempt(number, 0).plan.attempt, ..(*settled).clone() };
    for (lying, age, word) in [
        (4, 600, "plan"),
        (5, 600, "wait"),
        (5, 1799, "wait"),
        (5, 1801, "plan"),
        (30, 600, "wait"),
        (30, 1801, "plan"),
    ] {
        let all: Vec<AttemptFacts> = (1..=lying)
            .map(|number| AttemptFacts { settled: Some(of(number).into()), ..attempt(number, age) })
            .collect();
        assert_eq!(words(&all, &[], known(&[])), [word], "{lying} plans, the last {age} s ago");
    }
    let all: Vec<AttemptFacts> = (1..=5)
        .map(|number| AttemptFacts { settled: Some(of(number).into()), ..attempt(number, 600) })
        .collect();
    let told = relaunch::left_lying(&history(&all)).expect("somebody is told");
    assert!(
        told.starts_with("5 attempts in a row never had a machine")
            && told.contains("it was not launched in time"),
        "{told}"
    );
    // One that had a machine ends the row.
    let mut mixed = all;
    mixed[3].settled =
        Some(crate::lifecycle::reconcile_facts::settled(4, EndedBecause::Interrupted).into());
    assert_eq!(
        (words(&mixed, &[], known(&[])), relaunch::left_lying(&history(&mixed))),
        (vec!["plan"], None)
    );
}

#[test]
fn from_submission_to_the_receipt() {
    let ahead =
        |secs: u64| Request { at: now() + Duration::from_secs(secs), ..wish(Wish::Cancel, 0) };
    let running = |watched| AttemptFacts {
        status: Some(status(AttemptPhase::Running, ago(30))),
        watched,
        ..attempt(1, 600)
    };
    let alive = || known(&[view(1, OWNER, InstanceState::Running, None)]);
    let gone = |reason| known(&[view(1, OWNER, InstanceState::Terminated, Some(reason))]);
    let stopped = |reason| known(&[view(1, OWNER, InstanceState::Stopped, Some(reason))]);
    let wished = |secs| Watched {
        missing_for: Duration::from_secs(500),
        wished_for: Duration::from_secs(secs),
        ..Watched::default()
    };
    let over =
        |because| AttemptFacts { settled: Some(settled(1, because).into()), ..attempt(1, 600) };
    let cases: Vec<Case> = vec![
        ("submitted", vec![], vec![], known(&[]), vec!["plan"]),
        ("a plan does not need the cloud's answer", vec![], vec![], unknown(), vec!["plan"]),
        ("planned", vec![attempt(1, 5)], vec![], known(&[]), vec!["launch"]),
        ("nobody knows", vec![attempt(1, 5)], vec![], unknown(), vec!["wait"]),
        (
            "boots",
            vec![attempt(1, 5)],
            vec![],
            known(&[view(1, OWNER, InstanceState::Pending, None)]),
            vec!["wait"],
        ),
        ("runs", vec![running(Watched::default())], vec![], alive(), vec!["wait"]),
        (
            "silent for its lease",
            vec![running(Watched { silent_for: Duration::from_secs(1801), ..Watched::default() })],
            vec![],
            alive(),
            vec!["terminate"],
        ),
        (
            "silent for ten minutes, and its host is dead",
            vec![running(Watched {
                silent_for: Duration::from_secs(601),
                host_fails_for: Duration::from_secs(600),
                ..Watched::default()
            })],
            vec![],
            alive(),
            vec!["terminate"],
        ),
        (
            "its host fails not for long enough",
            vec![running(Watched {
                silent_for: Duration::from_secs(1799),
                host_fails_for: Duration::from_secs(599),
                ..Watched::default()
            })],
            vec![],
            alive(),
            vec!["wait"],
        ),
        (
            "it speaks, whatever the cloud says of its host",
            vec![running(Watched {
                silent_for: Duration::from_secs(599),
                host_fails_for: Duration::from_secs(3600),
                ..Watched::default()
            })],
            vec![],
            alive(),
            vec!["wait"],
        ),
        (
            "dark is late",
            vec![AttemptFacts {
                outcome: Some(outcome(1, EndedBecause::Succeeded)),
                ..running(Watched { outcome_for: Duration::from_secs(181), ..Watched::default() })
            }],
            vec![],
            alive(),
            vec!["terminate"],
        ),
        (
            "kept for a look",
            vec![AttemptFacts {
                outcome: Some(outcome(1, EndedBecause::Succeeded)),
                status: Some(status(AttemptPhase::Held, ago(30))),
                ..running(Watched { outcome_for: Duration::from_secs(1000), ..Watched::default() })
            }],
            vec![],
            alive(),
            vec!["wait"],
        ),
        (
            "asked to stop, the agent obeys",
            vec![running(Watched::default())],
            vec![wish(Wish::Stop, 1000)],
            alive(),
            vec!["wait"],
        ),
        (
            "stopped while it boots",
            vec![attempt(1, 60)],
            vec![wish(Wish::Stop, 29)],
            alive(),
            vec!["wait"],
        ),
        (
            "stopped, and its agent has not said a word",
            vec![attempt(1, 60)],
            vec![wish(Wish::Stop, 31)],
            alive(),
            vec!["terminate"],
        ),
        (
            "cancelled just now",
            vec![running(Watched::default())],
            vec![wish(Wish::Cancel, 100)],
            alive(),
            vec!["wait"],
        ),
        // Seed 30000589 of the false world: a cancel that a workstation a day ahead had written was
        // obeyed by no other for a day.
        (
            "cancelled tomorrow, and not obeyed",
            vec![running(Watched::default())],
            vec![ahead(86_400)],
            alive(),
            vec!["terminate"],
        ),
        (
            "cancelled a minute ahead",
            vec![running(Watched::default())],
            vec![ahead(60)],
            alive(),
            vec!["wait"],
        ),
        (
            "cancelled, and not obeyed",
            vec![running(Watched::default())],
            vec![wish(Wish::Cancel, 181)],
            alive(),
            vec!["terminate"],
        ),
        (
            "stuck in its shutdown",
            vec![running(Watched {
                dark_for: Some(Duration::from_secs(601)),
                ..Watched::default()
            })],
            vec![],
            known(&[view(1, OWNER, InstanceState::ShuttingDown, None)]),
            vec!["terminate"],
        ),
        (
            "shutting down, and for a day by a wall clock",
            vec![running(Watched { dark_for: Some(Duration::from_secs(5)), ..Watched::default() })],
            vec![],
            known(&[InstanceView {
                ended: Some(ago(86_400)),
                ..view(1, OWNER, InstanceState::ShuttingDown, None)
            }]),
            vec!["wait"],
        ),
        (
            "gone",
            vec![running(Watched::default())],
            vec![],
            gone("Server.SpotInstanceTermination"),
            vec!["settle"],
        ),
        ("taken away", vec![over(EndedBecause::Interrupted)], vec![], unknown(), vec!["plan"]),
        (
            "taken away, and unwanted",
            vec![over(EndedBecause::Interrupted)],
            vec![wish(Wish::Stop, 5)],
            unknown(),
            vec!["receipt"],
        ),
        ("done", vec![over(EndedBecause::Succeeded)], vec![], unknown(), vec!["receipt"]),
        (
            "ended by hand",
            vec![over(EndedBecause::UserStopped)],
            vec![],
            unknown(),
            vec!["receipt"],
        ),
        (
            "cancelled before the plan",
            vec![],
            vec![wish(Wish::Cancel, 5)],
            unknown(),
            vec!["receipt"],
        ),
        (
            "cancelled between plan and launch",
            vec![attempt(1, 60)],
            vec![wish(Wish::Cancel, 5)],
            known(&[]),
            vec!["wait"],
        ),
        (
            "cancelled, and surely never launched",
            vec![AttemptFacts { watched: wished(420), ..attempt(1, 500) }],
            vec![wish(Wish::Cancel, 421)],
            known(&[]),
            vec!["settle"],
        ),
        (
            "stopped seven minutes ago, by the clock of whoever did it: another controller may have launched it since",
            vec![AttemptFacts { watched: wished(419), ..attempt(1, 5000) }],
            vec![wish(Wish::Stop, 4000)],
            known(&[]),
            vec!["wait"],
        ),
        (
            "stopped, and somebody else made the plan",
            vec![AttemptFacts {
                watched: Watched { unclear: true, ..wished(61) },
                ..attempt(1, 100)
            }],
            vec![wish(Wish::Stop, 61)],
            known(&[]),
            vec!["wait"],
        ),
        (
            "launched, not shown yet",
            vec![AttemptFacts {
                watched: Watched {
                    launched: Some("i-1".into()),
                    missing_for: Duration::from_secs(290),
                    ..Watched::default()
                },
                ..attempt(1, 299)
            }],
            vec![],
            known(&[]),
            vec!["wait"],
        ),
        (
            "launched, and not shown any more",
            vec![AttemptFacts {
                status: Some(status(AttemptPhase::Running, ago(4000))),
                watched: Watched { missing_for: Duration::from_secs(61), ..Watched::default() },
                ..attempt(1, 5000)
            }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "a plan too old for its token",
            vec![AttemptFacts {
                watched: Watched { missing_for: Duration::from_secs(420), ..Watched::default() },
                ..attempt(1, 80_000)
            }],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "planned by another controller, a moment ago as far as this one can say",
            vec![AttemptFacts {
                watched: Watched {
                    unclear: true,
                    missing_for: Duration::from_secs(45),
                    ..Watched::default()
                },
                ..attempt(1, 70)
            }],
            vec![],
            known(&[]),
            vec!["wait"],
        ),
        (
            "made an hour ago, by a clock that may be an hour ahead",
            vec![AttemptFacts {
                watched: Watched {
                    unclear: true,
                    missing_for: Duration::from_secs(45),
                    ..Watched::default()
                },
                ..attempt(1, 3600)
            }],
            vec![],
            known(&[]),
            vec!["wait"],
        ),
        (
            "and it was not launched for a minute",
            vec![AttemptFacts {
                watched: Watched {
                    unclear: true,
                    missing_for: Duration::from_secs(61),
                    ..Watched::default()
                },
                ..attempt(1, 70)
            }],
            vec![],
            known(&[]),
            vec!["launch"],
        ),
        (
            "planned by somebody else, and what its machine would fetch is still signed",
            vec![signed_until(attempt(1, 3000), -60, 421)],
            vec![],
            known(&[]),
            vec!["launch"],
        ),
        (
            "signed for a shorter time, and launched before that, perhaps",
            vec![signed_until(attempt(1, 3000), 60, 419)],
            vec![],
            known(&[]),
            vec!["wait"],
        ),
        (
            "signed for a shorter time, and nobody was shown it",
            vec![signed_until(attempt(1, 3000), 60, 421)],
            vec![],
            known(&[]),
            vec!["settle"],
        ),
        (
            "the same, and nobody knows",
            vec![signed_until(attempt(1, 3000), 60, 421)],
            vec![],
            unknown(),
            vec!["wait"],
        ),
        (
            "launched in time, and it runs",
            vec![signed_until(running(Watched::default()), 60, 0)],
            vec![],
            alive(),
            vec!["wait"],
        ),
        (
            "somebody else's machine has our names",
            vec![attempt(1, 5)],
            vec![],
            known(&[view(1, "you", InstanceState::Running, None)]),
            vec!["launch"],
        ),
        (
            "stopped by hand",
            vec![running(Watched::default())],
            vec![],
            stopped("Client.UserInitiatedShutdown: User initiated"),
            vec!["settle"],
        ),
        (
            "stopped without a word",
            vec![running(Watched::default())],
            vec![],
            stopped("Client.InstanceInitiatedShutdown"),
            vec!["terminate"],
        ),
        (
            "stopped, and its disk not wanted",
            vec![AttemptFacts {
                outcome: Some(outcome(1, EndedBecause::Succeeded)),
                ..running(Watched::default())
            }],
            vec![],
            stopped("Client.InstanceInitiatedShutdown"),
            vec!["terminate"],
        ),
        (
            "a launch that came through late",
            vec![over(EndedBecause::UserCancelled)],
            vec![],
            alive(),
            vec!["terminate", "receipt"],
        ),
    ];
    for (what, attempts, requests, cloud, expected) in cases {
        assert_eq!(words(&attempts, &requests, cloud), expected, "{what}");
    }
}

#[test]
fn why_it_ended_when_the_agent_could_not_say() {
    let notice = Notice { kind: NoticeKind::Interruption, at: ago(61), detail: "terminate".into() };
    let with_notice = Status { notice: Some(notice), ..status(AttemptPhase::Held, ago(62)) };
    let plain = status(AttemptPhase::Running, ago(90));
    let silent = status(AttemptPhase::Running, ago(3000));
    let cases = [
        ("Server.SpotInstanceTermination: x", &plain, EndedBecause::Interrupted),
        ("Server.HostLost: x", &with_notice, EndedBecause::Interrupted),
        ("Server.HostLost: x", &plain, EndedBecause::Lost),
        ("Client.UserInitiatedShutdown: x", &plain, EndedBecause::UserStopped),
        ("Client.UserInitiatedShutdown: x", &silent, EndedBecause::Lost),
        ("Client.InstanceInitiatedShutdown: x", &plain, EndedBecause::Lost),
        ("Client.InternalError: x", &plain, EndedBecause::LaunchFailed),
        ("Client.VolumeLimitExceeded: x", &plain, EndedBecause::LaunchFailed),
    ];
    for (reason, status, expected) in cases {
        let attempt = AttemptFacts { status: Some(status.clone()), ..attempt(1, 600) };
        let acts = acts(
            &[attempt],
            &[],
            known(&[view(1, OWNER, InstanceState::Terminated, Some(reason))]),
        );
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(settled.because, expected, "{reason}");
        // 540 s at $1 an hour, to the micro-dollar above; a spot machine that EC2 takes in its
        // first hour is free.
        let usd =
            if reason.starts_with("Server.Spot") { Usd::ZERO } else { Usd::from_micros(150_000) };
        assert_eq!((settled.usd, settled.billed), (usd, Span::from_secs(540)));
        let outcome = settled.outcome.as_ref().unwrap();
        assert_eq!(
            (outcome.useful, outcome.idle, outcome.checkpoints),
            (Span::from_secs(100), Span::from_secs(5), 2)
        );
    }
}

#[test]
fn unreadable_outcome_ends_nothing_and_a_later_heartbeat_counts() {
    let damaged = |phase, verdict: &str| {
        let reason =
            Reason::new(ago(70), "workload", verdict, "the workload ended with exit code 0");
        let status = Status { reason: Some(reason), ..status(phase, ago(65)) };
        let watched =
            Watched { damaged: Damaged { outcome: true, lease: true }, ..Watched::default() };
        AttemptFacts { status: Some(status), watched, ..attempt(1, 600) }
    };
    let alive = || known(&[view(1, OWNER, InstanceState::Running, None)]);
    assert_eq!(words(&[damaged(AttemptPhase::Running, "busy")], &[], alive()), ["wait"]);
    assert_eq!(words(&[damaged(AttemptPhase::Ended, "succeeded")], &[], alive()), ["wait"]);
    assert_eq!(
        words(&[damaged(AttemptPhase::Ended, "succeeded")], &[], known(&[])),
        ["wait"],
        "it existed, so it is not launched again"
    );
    let cases = [
        (AttemptPhase::Ended, "succeeded", EndedBecause::Succeeded),
        (AttemptPhase::Held, "max_runtime", EndedBecause::MaxRuntime),
        (AttemptPhase::Ended, "go_on", EndedBecause::Lost),
        // Draining, it was not written yet: what this heartbeat says may have changed.
        (AttemptPhase::Draining, "succeeded", EndedBecause::Lost),
    ];
    for (phase, verdict, expected) in cases {
        let gone = known(&[view(
            1,
            OWNER,
            InstanceState::Terminated,
            Some("Client.InstanceInitiatedShutdown: x"),
        )]);
        let acts = acts(&[damaged(phase, verdict)], &[], gone);
        let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!(settled.because, expected, "{phase:?} {verdict}");
        let outcome = settled.outcome.as_ref().unwrap();
        assert_eq!(outcome.losses.len(), 1);
        assert!(outcome.reasons.last().unwrap().text.contains("could not be read"), "{outcome:?}");
    }
}

#[test]
fn state_is_read_from_the_records() {
    let with_status =
        |phase| AttemptFacts { status: Some(status(phase, now())), ..attempt(1, 600) };
    let cases = [
        (None, JobState::Submitted),
        (Some(attempt(1, 5)), JobState::Provisioning),
        (Some(with_status(AttemptPhase::Setup)), JobState::Preparing),
        (Some(with_status(AttemptPhase::Running)), JobState::Running),
        (Some(with_status(AttemptPhase::Held)), JobState::Held),
        (
            Some(AttemptFacts {
                outcome: Some(outcome(1, EndedBecause::Failed)),
                ..with_status(AttemptPhase::Running)
            }),
            JobState::Terminating,
        ),
        (
            Some(AttemptFacts {
                settled: Some(settled(1, EndedBecause::Interrupted).into()),
                ..attempt(1, 5)
            }),
            JobState::Interrupted,
        ),
        (
            Some(AttemptFacts {
                settled: Some(settled(1, EndedBecause::Failed).into()),
                ..attempt(1, 5)
            }),
            JobState::Terminating,
        ),
    ];
    for (last, expected) in cases {
        assert_eq!(job_state(None, last.as_ref()), expected);
    }
    let over =
        AttemptFacts { settled: Some(settled(1, EndedBecause::Succeeded).into()), ..attempt(1, 5) };
    let acts = acts(std::slice::from_ref(&over), &[], unknown());
    let [Act::WriteReceipt(receipt)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!(
        (receipt.outcome, job_state(Some(receipt), Some(&over))),
        (JobOutcome::Succeeded, JobState::Succeeded)
    );
}

/// Found by the false world: a machine whose own clock was an hour off, and that the cloud no
/// longer showed.
#[test]
fn machine_no_longer_shown_is_billed_by_the_clock_of_the_store() {
    let mut gone = attempt(1, 7200);
    gone.status = Some(status(AttemptPhase::Running, ago(3600 + 600)));
    gone.watched = Watched {
        missing_for: Duration::from_secs(61),
        heard_at: Some(ago(600)),
        ..Watched::default()
    };
    let acts = acts(&[gone], &[], CloudAnswer::Known(vec![]));
    let [Act::Settle(settled)] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!((settled.billed_from, settled.billed_to), (Some(ago(7200)), Some(ago(600))));
}

/// The same files, applied to two job roots by an older version, are jobs of one id: each sees the
/// machine of the other.
#[test]
fn machine_of_another_launch_under_the_same_name_is_not_ended() {
    let over = || AttemptFacts {
        settled: Some(settled(1, EndedBecause::LaunchFailed).into()),
        ..attempt(1, 600)
    };
    for (token, ends) in [(Some("of-another-root"), false), (Some("token-1"), true), (None, true)] {
        let runs = InstanceView {
            client_token: token.map(str::to_owned),
            ..view(1, OWNER, InstanceState::Running, None)
        };
        let acts = acts(&[over()], &[], known(&[runs]));
        assert_eq!(
            acts.iter().any(|act| matches!(act, Act::Terminate { .. })),
            ends,
            "{token:?}: {acts:?}"
        );
    }
}
