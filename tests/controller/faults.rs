//! Lost replies, outages, death at every call, and two controllers at once.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::DriveError;
use lamplighter::job::{EndedBecause, JobOutcome, Receipt, Wish};
use lamplighter::jobdir::layout;
use lamplighter::market::{self, Usd};
use lamplighter::ports::{Clock, Cloud, Store};

use crate::World;
use crate::cloud::{CloudFault, Life};
use crate::dying_controller;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const TWO_ATTEMPTS: [Life; 2] = [Life::Taken { secs: 3 }, Life::Ends { secs: 2, code: 0 }];

/// What must not depend on faults: the moments may move, the story may not.
fn story(receipt: &Receipt) -> (JobOutcome, Option<i32>, Vec<EndedBecause>) {
    (
        receipt.outcome,
        receipt.exit_code,
        receipt.attempts.iter().map(|attempt| attempt.ended_because).collect(),
    )
}

#[test]
fn death_at_every_call_changes_nothing() {
    let undisturbed =
        simulate(async |clock| story(&World::new(clock, &TWO_ATTEMPTS).await.drive().await));
    assert_eq!(undisturbed.2, [EndedBecause::Interrupted, EndedBecause::Succeeded]);
    let mut deaths = 0;
    for after in [false, true] {
        for calls in 0.. {
            let died = simulate(async |clock| {
                let world = World::new(clock, &TWO_ATTEMPTS).await;
                let life = dying_controller::dying(calls, after);
                let store: Arc<dyn Store> = dying_controller::store(&life, world.store.clone());
                let cloud: Arc<dyn Cloud> = dying_controller::cloud(&life, world.port());
                let first = world.controller_on(store, cloud);
                let died = tokio::select! {
                    biased;
                    () = life.died() => true,
                    receipt = first.drive(world.job()) => {
                        assert_eq!(story(&receipt.unwrap()), undisturbed);
                        false
                    }
                };
                drop(first);
                let receipt = world.drive().await;
                world.check(&receipt).await;
                assert_eq!(
                    story(&receipt),
                    undisturbed,
                    "died at call {calls}, after its effect: {after}"
                );
                died
            });
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 100, "{deaths}");
}

#[test]
fn two_controllers_do_no_harm() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &TWO_ATTEMPTS).await;
        let (one, other) = (world.controller(), world.controller());
        let (first, second) = tokio::join!(one.drive(world.job()), async {
            clock.sleep(Duration::from_millis(250)).await;
            other.drive(world.job()).await
        });
        let receipt = first.unwrap();
        assert_eq!(receipt, second.unwrap());
        world.check(&receipt).await;
        assert_eq!(story(&receipt).2, [EndedBecause::Interrupted, EndedBecause::Succeeded]);
    });
}

#[test]
fn lost_launch_reply_buys_one_machine() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 60, code: 0 }]).await;
        world.cloud.fail_launches(&[
            CloudFault::Down,
            CloudFault::LostReply,
            CloudFault::LostReply,
        ]);
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(story(&receipt).2, [EndedBecause::Succeeded]);
    });
}

#[test]
fn launch_that_can_never_work_ends_the_job() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Endless]).await;
        world.cloud.fail_launches(&[CloudFault::Invalid]);
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(story(&receipt), (JobOutcome::Failed, None, vec![EndedBecause::LaunchFailed]));
        assert_eq!((receipt.reason.as_str(), receipt.total_usd.micros()), ("no such image", 0));
    });
}

/// The repeat never came to the point where EC2 would have known its token: it says nothing of the
/// first.
#[test]
fn refusal_after_a_lost_reply_settles_nothing_that_runs() {
    for refusal in [CloudFault::Invalid, CloudFault::Denied, CloudFault::NoCapacity] {
        for dies in [false, true] {
            simulate(async |clock: Arc<VirtualClock>| {
                let world = World::new(clock.clone(), &[Life::Ends { secs: 900, code: 0 }]).await;
                *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
                world.cloud.invisible_for(Duration::from_secs(299));
                world.cloud.fail_launches(&[CloudFault::LostReply, refusal]);
                if dies {
                    // It had made the plan, and knew that the answer was lost; the one that comes
                    // after it does not.
                    world.controller().look(world.job()).await.unwrap();
                    assert_eq!(world.cloud.launches(), 1);
                }
                let receipt = world.drive().await;
                world.check(&receipt).await;
                assert_eq!(
                    story(&receipt),
                    (JobOutcome::Succeeded, Some(0), vec![EndedBecause::Succeeded]),
                    "{refusal:?}, dies: {dies}"
                );
            });
        }
    }
}

#[test]
fn refusal_after_silence_ends_the_job_once_no_machine_can_exist() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
        // Asked once more at the end, since others may have asked meanwhile, and settled by that
        // answer.
        world.cloud.fail_launches(&[CloudFault::Down, CloudFault::NoCapacity, CloudFault::Denied]);
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(story(&receipt), (JobOutcome::Failed, None, vec![EndedBecause::LaunchFailed]));
        assert_eq!(
            (receipt.reason.as_str(), receipt.total_usd.micros()),
            ("not allowed to launch a t in ws-test: UnauthorizedOperation", 0)
        );
        let took = clock.mono().as_secs();
        assert!((300..330).contains(&took), "five minutes, two looks: {took} s");
    });
}

/// Who is refused after silence asks once more before it gives the attempt up: another controller
/// may have been given what was refused, and then the token answers with that machine.
#[test]
fn refused_launch_after_silence_is_asked_again_and_runs() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 100, code: 0 }]).await;
        *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
        world.cloud.fail_launches(&[CloudFault::Down, CloudFault::NoCapacity]);
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            story(&receipt).2,
            [EndedBecause::Succeeded],
            "the attempt that was refused is the one that ran"
        );
    });
}

#[test]
fn without_capacity_the_next_attempt_waits() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.cloud.fail_launches(&[CloudFault::NoCapacity, CloudFault::NoCapacity]);
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(
            story(&receipt).2,
            [EndedBecause::LaunchFailed, EndedBecause::LaunchFailed, EndedBecause::Succeeded]
        );
        assert!(clock.mono() >= Duration::from_secs(120));
    });
}

/// Nowhere, and for ever: it waits as long as the job may take, and not longer, and pays nothing
/// for that.
#[test]
fn missing_capacity_ends_the_job_at_its_limit_at_no_cost() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (began, hour) = (clock.mono(), Duration::from_secs(3600));
        let deadline = clock.now() + hour;
        let world =
            World::with(clock.clone(), &[], |spec| spec.limits.deadline = Some(deadline)).await;
        world.cloud.fail_launches(&[CloudFault::NoCapacity; 10_000]);
        let receipt = world.drive().await;
        world.check(&receipt).await;
        let took = clock.mono() - began;
        assert_eq!(
            (receipt.outcome, receipt.because),
            (JobOutcome::Ended, Some(EndedBecause::Deadline))
        );
        assert_eq!((receipt.total_usd, world.cloud.launches()), (Usd::ZERO, 0));
        assert!(
            receipt
                .attempts
                .iter()
                .all(|attempt| attempt.ended_because == EndedBecause::LaunchFailed),
            "{:?}",
            story(&receipt)
        );
        // A look each minute, and the last one before the end.
        assert!(
            (50..=62).contains(&receipt.attempts.len()) && world.cloud.states().is_empty(),
            "{} looks",
            receipt.attempts.len()
        );
        assert!(took > hour - Duration::from_secs(120) && took <= hour, "settled after {took:?}");
    });
}

#[test]
fn a_silent_cloud_means_unknown_and_nothing_is_done() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world =
            World::new(clock.clone(), &[Life::Taken { secs: 5 }, Life::Ends { secs: 5, code: 0 }])
                .await;
        let controller = world.controller();
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(3)).await;
            world.cloud.fail_describes(600);
            clock.sleep(Duration::from_secs(120)).await;
            assert_eq!(world.cloud.launches(), 1, "nothing is launched while nobody knows");
            assert_eq!(world.store.keys("settled.json"), Vec::<String>::new());
            assert_eq!(
                world.store.keys("ending.json"),
                Vec::<String>::new(),
                "nothing is ended either"
            );
        });
        world.check(&receipt.unwrap()).await;
    });
}

#[test]
fn daemon_says_that_it_lives_through_an_outage() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
        world.store.fault("jobs/", Fault::Down, None);
        let lived = std::cell::RefCell::new(vec![clock.mono()]);
        let controller = world.controller();
        tokio::select! {
            () = controller.drive_all(&[], |_| lived.borrow_mut().push(clock.mono())) => panic!("a daemon does not end"),
            () = clock.sleep(Duration::from_secs(1800)) => {}
        }
        let lived = lived.into_inner();
        let longest = lived.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(
            lived.len() > 25 && longest <= Duration::from_secs(60),
            "the watchdog waits 300 s: {longest:?}"
        );
    });
}

#[test]
fn machine_that_cannot_be_read_is_not_gone() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 900, code: 0 }]).await;
        let controller = world.controller();
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(60)).await;
            world.cloud.unreadable(true);
            clock.sleep(Duration::from_secs(600)).await;
            assert_eq!(
                (world.cloud.launches(), world.store.keys("settled.json")),
                (1, vec![]),
                "nobody knows"
            );
            world.cloud.unreadable(false);
        });
        let receipt = receipt.unwrap();
        world.check(&receipt).await;
        assert_eq!(story(&receipt).2, [EndedBecause::Succeeded]);
    });
}

#[test]
fn store_that_fails_delays_and_breaks_nothing() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &TWO_ATTEMPTS).await;
        // Of the controller's keys only: the agents of this test do not bear it.
        for (part, fault) in [
            ("plan.json", Fault::LostReply),
            ("plan.json", Fault::Down),
            ("settled.json", Fault::LostReply),
            ("receipt.json", Fault::Down),
        ] {
            world.store.fault(part, fault, 2);
        }
        let receipt = world.drive().await;
        world.store.mend();
        world.check(&receipt).await;
        assert_eq!(story(&receipt).2, [EndedBecause::Interrupted, EndedBecause::Succeeded]);
    });
}

#[test]
fn machine_that_does_not_show_up_yet_is_not_gone() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock, &[Life::Ends { secs: 900, code: 0 }]).await;
        *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
        world.cloud.invisible_for(Duration::from_secs(240));
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!(story(&receipt).2, [EndedBecause::Succeeded]);
    });
}

#[test]
fn nothing_of_anybody_elses_is_touched() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock, &[Life::Ends { secs: 5, code: 0 }]).await;
        world.cloud.add_foreign();
        let receipt = world.drive().await;
        assert_eq!(world.cloud.complaints(), Vec::<String>::new());
        assert_eq!(world.cloud.running(), ["i-foreign"]);
        assert_eq!(receipt.outcome, JobOutcome::Succeeded);
    });
}

/// One plans its first machine for ten seconds; meanwhile somebody cancels, and whoever drives
/// beside it writes the receipt.
#[test]
fn nothing_is_launched_for_a_job_that_has_its_receipt_by_then() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        *world.cloud.supply_takes.lock().unwrap() = Duration::from_secs(10);
        let cancels = async {
            clock.sleep(Duration::from_secs(3)).await;
            world.wish(Wish::Cancel).await;
            world.drive().await
        };
        let controller = world.controller();
        let (driven, cancelled) = tokio::join!(controller.drive(world.job()), cancels);
        assert_eq!(
            (driven.unwrap(), cancelled.outcome),
            (cancelled.clone(), JobOutcome::Cancelled)
        );
        world.check(&cancelled).await;
        assert_eq!(world.cloud.launches(), 0);
    });
}

/// Its driver slept while somebody cancelled the job, read its receipt and deleted its records, as
/// docs/aws.md says: it bought a machine.
#[test]
fn job_whose_records_were_deleted_launches_nothing() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        *world.cloud.supply_takes.lock().unwrap() = Duration::from_secs(10);
        let deletes = async {
            clock.sleep(Duration::from_secs(3)).await;
            world.store.set(&layout::spec(world.job()), None);
        };
        let controller = world.controller();
        let (driven, ()) = tokio::join!(controller.drive(world.job()), deletes);
        assert!(matches!(driven, Err(DriveError::NoJob { .. })), "{driven:?}");
        assert_eq!(
            (
                world.cloud.launches(),
                world.store.keys("plan.json"),
                world.store.keys("receipt.json")
            ),
            (0, vec![], vec![])
        );
    });
}

/// The same, with a machine that is gone by then: no second history of the job is written.
#[test]
fn job_whose_records_were_deleted_gets_no_receipt() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        let deletes = async {
            clock.sleep(Duration::from_secs(600)).await;
            world.wish(Wish::Cancel).await;
            world.store.set(&layout::spec(world.job()), None);
        };
        let controller = world.controller();
        let (driven, ()) = tokio::join!(controller.drive(world.job()), deletes);
        assert!(matches!(driven, Err(DriveError::NoJob { .. })), "{driven:?}");
        assert_eq!(
            (world.cloud.launches(), world.store.keys("receipt.json")),
            (1, vec![]),
            "its machine is ended all the same"
        );
    });
}
