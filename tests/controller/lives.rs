//! Whole lives of jobs.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::instance::{InstanceState, InstanceView};
use lamplighter::job::{EndedBecause, JobOutcome, Wish};
use lamplighter::market::{self, Span, Usd, elapsed};
use lamplighter::ports::Clock;

use crate::World;
use crate::cloud::Life;
use crate::dying_controller;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

fn becauses(receipt: &lamplighter::job::Receipt) -> Vec<EndedBecause> {
    receipt.attempts.iter().map(|attempt| attempt.ended_because).collect()
}

#[test]
fn job_runs_and_its_receipt_adds_up() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 601, code: 0 }]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.exit_code, receipt.reason.as_str()),
            (JobOutcome::Succeeded, Some(0), "it ended")
        );
        assert_eq!((receipt.attempts.len(), world.cloud.launches()), (1, 1));
        assert_eq!(receipt.attempts[0].billed_seconds, 602.0);
    });
}

#[test]
fn workloads_failure_is_the_jobs_and_is_not_run_again() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 5, code: 7 }]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.exit_code, becauses(&receipt)),
            (JobOutcome::Failed, Some(7), vec![EndedBecause::Failed])
        );
    });
}

#[test]
fn interrupted_job_goes_on_and_the_last_words_are_kept() {
    simulate(async |clock| {
        let world = World::new(
            clock,
            &[Life::Taken { secs: 100 }, Life::Taken { secs: 50 }, Life::Ends { secs: 5, code: 0 }],
        )
        .await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            becauses(&receipt),
            [EndedBecause::Interrupted, EndedBecause::Interrupted, EndedBecause::Succeeded]
        );
        // Of the first two only the heartbeat says anything: 3 s useful, 1 s idle, one checkpoint
        // each.
        assert_eq!(
            (receipt.useful_seconds, receipt.idle_seconds, receipt.checkpoints),
            (16.0, 2.0, 2)
        );
    });
}

#[test]
fn no_more_than_the_interruptions_that_were_allowed() {
    simulate(async |clock| {
        let world =
            World::with(clock, &[Life::Taken { secs: 100 }], |spec| spec.interruptions.max = 2)
                .await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!((receipt.outcome, receipt.attempts.len()), (JobOutcome::Failed, 3));
        assert!(
            receipt.reason.ends_with("interrupted 3 times, and `interruptions.max` is 2"),
            "{}",
            receipt.reason
        );
    });
}

#[test]
fn limit_reached_between_two_attempts_is_why_the_job_ended() {
    simulate(async |clock: Arc<VirtualClock>| {
        let deadline = clock.now() + Duration::from_secs(50);
        let world = World::with(clock.clone(), &[Life::Taken { secs: 100 }], |spec| {
            spec.limits.deadline = Some(deadline)
        })
        .await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.because, becauses(&receipt)),
            (Some(EndedBecause::Deadline), vec![EndedBecause::Interrupted])
        );

        let world = World::with(clock, &[Life::Taken { secs: 100 }], |spec| {
            spec.limits.budget = Some(Usd::ZERO)
        })
        .await;
        let receipt = world.drive().await;
        assert_eq!((receipt.because, becauses(&receipt)), (Some(EndedBecause::Budget), vec![]));
    });
}

#[test]
fn machines_that_die_young_are_held_back_and_then_given_up() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::TakenYoung { secs: 20 }]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!((receipt.outcome, receipt.attempts.len()), (JobOutcome::Failed, 5));
        assert!(clock.mono() > Duration::from_secs(20 * 60), "two holds of ten minutes");
    });
}

#[test]
fn machine_silent_for_its_lease_is_ended_and_its_job_goes_on() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world =
            World::new(clock.clone(), &[Life::FallsSilent, Life::Ends { secs: 5, code: 0 }]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(becauses(&receipt), [EndedBecause::Lost, EndedBecause::Succeeded]);
        let billed = receipt.attempts[0].billed_seconds;
        assert!((1800.0..1830.0).contains(&billed), "{billed}");
    });
}

#[test]
fn machine_whose_agent_never_speaks_is_ended_and_job_goes_on() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world =
            World::new(clock.clone(), &[Life::NeverSpeaks, Life::Ends { secs: 5, code: 0 }]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, becauses(&receipt)),
            (JobOutcome::Succeeded, vec![EndedBecause::Lost, EndedBecause::Succeeded])
        );
        let second = world.dir.plan(lamplighter::job::AttemptNo::new(2)).await.unwrap().unwrap();
        let why = &second.reasons[0];
        assert!(
            why.starts_with("test ended the machine: no word of its agent for 9")
                && why.ends_with(" s, and 900 s is the most"),
            "{why}"
        );
    });
}

#[test]
fn machine_that_stays_lit_after_its_outcome_is_ended() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::NeverDark]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(receipt.outcome, JobOutcome::Succeeded);
        assert!((180.0..200.0).contains(&receipt.attempts[0].billed_seconds));
    });
}

#[test]
fn what_somebody_ends_by_hand_is_not_launched_again() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::EndedByHand { secs: 60 }]).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, becauses(&receipt)),
            (JobOutcome::Stopped, vec![EndedBecause::UserStopped])
        );
    });
}

/// Seed 604 of the false world: a laptop slept for forty minutes over its choice of an offer, and
/// bought the machine on waking.
#[test]
fn who_slept_looks_for_a_cancel_before_the_launch() {
    let (mut asleep_over, mut bought) = (0, Vec::new());
    for calls in 0.. {
        let late = simulate(async |clock: Arc<VirtualClock>| {
            let world = World::new(clock.clone(), &[Life::Endless]).await;
            let life = dying_controller::pausing(calls, false, &clock, Duration::from_secs(600));
            let controller = world.controller_on(
                dying_controller::store(&life, world.store.clone()),
                dying_controller::cloud(&life, world.port()),
            );
            let cancelled = async {
                clock.sleep(Duration::from_secs(300)).await;
                let launched = world.cloud.launches() > 0;
                world.wish(Wish::Cancel).await;
                launched
            };
            let (driven, was_launched) = tokio::join!(controller.drive(world.job()), cancelled);
            assert_eq!(driven.unwrap().outcome, JobOutcome::Cancelled, "call {calls}");
            (!was_launched).then(|| world.cloud.launches() > 0)
        });
        let Some(late) = late else { break };
        asleep_over += 1;
        bought.extend(late.then_some(calls));
    }
    assert!(asleep_over > 5, "{asleep_over}");
    // Nothing can look again between the request and its way through the wire.
    assert!(bought.len() <= 1, "bought after sleeping at the calls {bought:?}");
}

/// A lid is closed over the launch for the night: what is launched in the morning has the whole of
/// its time.
#[test]
fn launch_after_sleep_gives_the_machine_its_whole_time() {
    let night = Duration::from_secs(9 * 3600);
    let short = |calls: u64| {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = World::with(clock.clone(), &[Life::Ends { secs: 60, code: 0 }], |spec| {
                spec.limits.max_runtime = Some(Span::from_secs(12 * 3600));
            });
            let world = world.await;
            *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
            let life = dying_controller::pausing(calls, false, &clock, night);
            let controller = world.controller_on(
                dying_controller::store(&life, world.store.clone()),
                dying_controller::cloud(&life, world.port()),
            );
            let receipt = controller.drive(world.job()).await.unwrap();
            assert_eq!(receipt.outcome, JobOutcome::Succeeded, "call {calls}");
            let slept = clock.mono() >= night;
            let state = world.cloud.state.lock().unwrap();
            let of = |view: &InstanceView| {
                elapsed(view.launched, view.tags.kill_at.unwrap()) < Duration::from_secs(11 * 3600)
            };
            slept.then(|| state.machines.iter().any(|machine| of(&machine.view)))
        })
    };
    let short: Vec<bool> = (0..).map_while(short).collect();
    assert!(short.len() > 5, "{short:?}");
    // Nothing can look again between the request and its way through the wire.
    assert!(short.iter().filter(|short| **short).count() <= 1, "short after sleeping at {short:?}");
}

/// Seed 12001547 of 24 h: a laptop slept for an hour between what the cloud showed it and what it
/// made of that. Meanwhile another had settled the job, and its machine was started again for the
/// next.
#[test]
fn controller_that_slept_asks_again_before_it_ends_a_machine() {
    let blind = |calls: u64| {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = World::new(clock.clone(), &[Life::FallsSilent]).await;
            let first = world.controller();
            tokio::select! {
                receipt = first.drive(world.job()) => panic!("{receipt:?}"),
                () = clock.sleep(Duration::from_secs(60)) => {}
            }
            // It has not obeyed: whoever looks ends it at once.
            world.wish(Wish::Cancel).await;
            clock.sleep(Duration::from_secs(2400)).await;
            let life = dying_controller::pausing(calls, false, &clock, Duration::from_secs(3600));
            let controller = world.controller_on(
                dying_controller::store(&life, world.store.clone()),
                dying_controller::cloud(&life, world.port()),
            );
            controller.drive(world.job()).await.unwrap();
            let complaints = world.cloud.complaints();
            assert!(world.cloud.running().is_empty());
            complaints.iter().any(|complaint| complaint.contains("long ago"))
        })
    };
    let blind: Vec<u64> = (0..60).filter(|calls| blind(*calls)).collect();
    // Nothing can look again between the request and its way through the wire.
    assert_eq!(blind.len(), 1, "ended blindly after sleeping at the calls {blind:?}");
}

#[test]
fn a_cancel_before_any_machine_wins() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Endless]).await;
        world.wish(Wish::Cancel).await;
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.attempts.len(), world.cloud.launches()),
            (JobOutcome::Cancelled, 0, 0)
        );
    });
}

#[test]
fn stop_ends_a_running_job() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Endless]).await;
        let receipt = world.drive_asked(600, Wish::Stop).await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, becauses(&receipt)),
            (JobOutcome::Stopped, vec![EndedBecause::UserStopped])
        );
    });
}

#[test]
fn cancel_that_no_agent_obeys_ends_the_machine() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::FallsSilent]).await;
        let receipt = world.drive_asked(60, Wish::Cancel).await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, becauses(&receipt)),
            (JobOutcome::Cancelled, vec![EndedBecause::UserCancelled])
        );
        assert!(
            (240.0..250.0).contains(&receipt.attempts[0].billed_seconds),
            "a minute, and three to end by itself"
        );
    });
}

#[test]
fn extension_reaches_the_machine() {
    simulate(async |clock: Arc<VirtualClock>| {
        let limits = |spec: &mut lamplighter::job::Spec| {
            spec.limits.max_runtime = Some(Span::from_secs(3600))
        };
        let world = World::with(clock.clone(), &[Life::Ends { secs: 600, code: 0 }], limits).await;
        let controller = world.controller();
        let (receipt, before) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(60)).await;
            let before = world
                .dir
                .plan(lamplighter::job::AttemptNo::FIRST)
                .await
                .unwrap()
                .unwrap()
                .kill_at
                .unwrap();
            world
                .wish(Wish::Extend {
                    time: Some(Span::from_secs(7200)),
                    budget: None,
                    fallback_cost: None,
                })
                .await;
            before
        });
        world.check(&receipt.unwrap()).await;
        let tags = world.cloud.kill_at();
        assert_eq!(tags, Some(before + Duration::from_secs(7200)));
    });
}

#[test]
fn daemon_drives_every_job_and_forgets_the_finished() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        let controller = world.controller();
        tokio::select! {
            () = controller.drive_all(&[], |_| {}) => panic!("a daemon does not end"),
            () = clock.sleep(Duration::from_secs(600)) => {}
        }
        world.check(&world.dir.receipt().await.unwrap().unwrap()).await;
        let before = world.store.calls();
        tokio::select! {
            () = controller.drive_all(&[], |_| {}) => panic!("a daemon does not end"),
            () = clock.sleep(Duration::from_secs(1500)) => {}
        }
        // A fresh loop reads the receipt once; then there is one listing every 15 s, one of the
        // schedules every minute, and one of the names of all jobs every five.
        assert!(
            world.store.calls() - before <= 1500 / 15 + 1500 / 60 + 1500 / 300 + 6,
            "{}",
            world.store.calls() - before
        );
    });
}

/// The laptop is closed after the launch, and EC2 interrupts the machine meanwhile. In the morning a
/// daemon starts. EC2 may or may not still show the machine.
#[test]
fn job_with_unwatched_first_attempt_resumes_from_checkpoint() {
    for (forgotten, because) in [(false, EndedBecause::Interrupted), (true, EndedBecause::Lost)] {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = World::new(
                clock.clone(),
                &[Life::Taken { secs: 600 }, Life::Ends { secs: 60, code: 0 }],
            )
            .await;
            if forgotten {
                *world.cloud.kind.lock().unwrap() = lamplighter::market::CloudKind::Aws;
                world.cloud.forget_after(Duration::from_secs(3600));
            }
            world.controller().look(world.job()).await.unwrap();
            assert_eq!(world.cloud.launches(), 1);
            clock.sleep(Duration::from_secs(12 * 3600)).await;
            let daemon = world.controller();
            tokio::select! {
                () = daemon.drive_all(&[], |_| {}) => panic!("a daemon does not end"),
                () = clock.sleep(Duration::from_secs(600)) => {}
            }
            let receipt =
                world.dir.receipt().await.unwrap().expect("ten minutes after the daemon's start");
            assert_eq!(
                (receipt.outcome, becauses(&receipt)),
                (JobOutcome::Succeeded, vec![because, EndedBecause::Succeeded])
            );
            let second =
                world.dir.plan(lamplighter::job::AttemptNo::new(2)).await.unwrap().unwrap();
            assert_eq!(second.resume_from, Some(lamplighter::job::CheckpointNo::FIRST));
            if !forgotten {
                world.check(&receipt).await;
                assert_eq!(receipt.attempts[0].billed_seconds, 601.0, "not for the night");
            }
        });
    }
}

/// A stop request keeps the work first. The controller lets a machine finish its save, however long
/// that takes. It ends the machine when the checkpoint is complete and the machine still runs.
#[test]
fn machine_is_terminated_only_when_its_checkpoint_is_complete() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::SavesLong { secs: 1500 }]).await;
        let controller = world.controller();
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(120)).await;
            world.wish(Wish::Stop).await;
            clock.sleep(Duration::from_secs(1200)).await;
            assert_eq!(world.cloud.running(), ["i-1"], "it saves");
            assert_eq!(
                world.dir.newest_checkpoint().await.unwrap().map(|found| found.number),
                None,
                "and has not finished"
            );
        });
        let receipt = receipt.unwrap();
        // No complaint of the cloud among what is checked: it was not terminated while it saved.
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.attempts[0].ended_because),
            (JobOutcome::Stopped, EndedBecause::UserStopped)
        );
        assert!(world.dir.newest_checkpoint().await.unwrap().is_some(), "its work is there");
        let states = world.cloud.states();
        assert!(states.len() == 1 && states[0].1.is_terminated(), "and it is gone: {states:?}");
    });
}

/// It stopped at its end, and whoever wakes eight hours later terminates it: the cloud dates it by
/// that, and has billed until it stood.
#[test]
fn machine_that_stopped_unseen_is_billed_until_it_stopped() {
    for dies in [false, true] {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = World::new(clock.clone(), &[Life::Stops { secs: 600, code: 7 }]).await;
            tokio::select! {
                receipt = world.drive() => panic!("{receipt:?}"),
                () = clock.sleep(Duration::from_secs(300)) => {}
            }
            clock.sleep(Duration::from_secs(8 * 3600)).await;
            let terminated = async {
                while world.cloud.states()[0].1 != InstanceState::Terminated {
                    clock.sleep(Duration::from_millis(10)).await;
                }
            };
            if dies {
                tokio::select! {
                    biased;
                    () = terminated => {}
                    receipt = world.drive() => panic!("settled before it died: {receipt:?}"),
                }
            }
            let receipt = world.drive().await;
            world.check(&receipt).await;
            assert_eq!(
                (receipt.outcome, receipt.attempts[0].billed_seconds),
                (JobOutcome::Failed, 601.0)
            );
        });
    }
}
