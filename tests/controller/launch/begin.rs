//! `lamp run`: the job is made and launched at once, by a process that may die at any call of it.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::Ticked;
use lamplighter::job::{AttemptNo, EndedBecause, JobOutcome, Wish};
use lamplighter::jobdir::JobDir;
use lamplighter::market;
use lamplighter::ports::{Clock, Cloud, Store};

use crate::World;
use crate::cloud::{CloudFault, Life};
use crate::dying_controller;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const ENDS: Life = Life::Ends { secs: 2, code: 0 };

#[test]
fn new_job_is_launched_without_a_look() {
    simulate(async |clock| {
        let world = World::unmade(clock, &[ENDS]).await;
        let controller = world.controller();
        let planned = controller.first_plan(&world.spec).await.unwrap();
        let (memory, begun) = controller.begin(&world.dir, &world.spec, planned).await.unwrap();
        begun.unwrap();
        assert_eq!(world.cloud.launches(), 1, "before anybody looked at it");
        let receipt = controller.drive_on(world.job(), memory).await.unwrap();
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.attempts.len(), world.cloud.launches()),
            (JobOutcome::Succeeded, 1, 1)
        );
    });
}

/// `lamp run --detach`: another process drives it, and cannot know that nothing was launched before
/// the refusal.
#[test]
fn refused_first_launch_is_settled_before_another_drives_a_job() {
    simulate(async |clock| {
        let world = World::unmade(clock, &[ENDS]).await;
        world.cloud.fail_launches(&[CloudFault::NoCapacity]);
        let controller = world.controller();
        let planned = controller.first_plan(&world.spec).await.unwrap();
        let (_, begun) = controller.begin(&world.dir, &world.spec, planned).await.unwrap();
        begun.unwrap();
        let settled = world.dir.settled(AttemptNo::FIRST).await.unwrap().expect("settled");
        assert_eq!((settled.because, settled.instance), (EndedBecause::LaunchFailed, None));
        assert_eq!(world.drive().await.outcome, JobOutcome::Succeeded);
    });
}

/// Every place has refused for a quota. The records say "tried again in 10m", and the controller
/// waits for that moment too.
#[test]
fn job_refused_by_every_place_waits_and_does_not_fail() {
    simulate(async |clock| {
        let mut world = World::unmade(clock.clone(), &[ENDS]).await;
        world.spec.spec.machine.cloud = market::CloudKind::Aws;
        *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
        world.cloud.fail_launches(&[CloudFault::Quota]);
        let controller = world.controller();
        let (began, planned) = (clock.mono(), controller.first_plan(&world.spec).await.unwrap());
        let (mut memory, begun) = controller.begin(&world.dir, &world.spec, planned).await.unwrap();
        begun.unwrap();
        while clock.mono() - began < Duration::from_secs(9 * 60) {
            let answers = controller.describe(memory.places()).await;
            let ticked = controller.tick(world.job(), &mut memory, answers).await.unwrap();
            assert!(
                matches!(ticked, Ticked::Active),
                "after {:?}: {ticked:?}",
                clock.mono() - began
            );
            clock.sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(world.dir.attempts().await.unwrap().len(), 1);
        let receipt = controller.drive_on(world.job(), memory).await.unwrap();
        assert_eq!(
            (receipt.outcome, receipt.attempts.len(), world.cloud.launches()),
            (JobOutcome::Succeeded, 2, 1)
        );
    });
}

/// Seven zones in a row have nothing, and the eighth has a machine: no minute is lost, and no
/// refusal is this process's alone.
#[test]
fn many_refusals_are_settled_and_next_place_is_tried_at_once() {
    simulate(async |clock| {
        for (refusals, launched) in [(7, 1), (10, 0)] {
            let mut world = World::unmade(clock.clone(), &[ENDS]).await;
            world.spec.spec.machine.cloud = market::CloudKind::Aws;
            *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
            world.cloud.market.lock().unwrap().more_zones = 9;
            world.cloud.fail_launches(&vec![CloudFault::NoCapacity; refusals]);
            let (began, controller) = (clock.mono(), world.controller());
            let planned = controller.first_plan(&world.spec).await.unwrap();
            let (_, begun) = controller.begin(&world.dir, &world.spec, planned).await.unwrap();
            begun.unwrap();
            assert_eq!(
                (world.cloud.launches(), clock.mono() - began),
                (launched, Duration::ZERO),
                "{refusals} refusals"
            );
            let attempts = world.dir.attempts().await.unwrap();
            assert_eq!(attempts.len(), refusals + launched);
            for attempt in &attempts[..refusals] {
                let settled = world.dir.settled(*attempt).await.unwrap().expect("settled");
                assert_eq!((settled.because, settled.instance), (EndedBecause::LaunchFailed, None));
            }
            // Another process: what it does not know costs it nothing but the time that a refusal
            // is remembered.
            let receipt = world.drive().await;
            assert_eq!((receipt.outcome, world.cloud.launches()), (JobOutcome::Succeeded, 1));
            assert!(
                clock.mono() - began < Duration::from_secs(4 * 60),
                "{refusals} refusals: {:?}",
                clock.mono() - began
            );
        }
    });
}

#[test]
fn death_while_beginning_leaves_whole_job_or_none() {
    let (mut whole, mut none) = (0, 0);
    for after in [false, true] {
        for calls in 0.. {
            let died = simulate(async |clock| {
                let world = World::unmade(clock, &[ENDS]).await;
                let life = dying_controller::dying(calls, after);
                let store: Arc<dyn Store> = dying_controller::store(&life, world.store.clone());
                let cloud: Arc<dyn Cloud> = dying_controller::cloud(&life, world.port());
                let first = world.controller_on(store.clone(), cloud);
                let planned = world.controller().first_plan(&world.spec).await.unwrap();
                let dir = JobDir::new(store, world.job().clone());
                let died = tokio::select! {
                    biased;
                    () = life.died() => true,
                    _ = first.begin(&dir, &world.spec, planned) => false,
                };
                let what = format!("died at call {calls}, after its effect: {after}");
                if world.dir.spec().await.unwrap().is_some() {
                    whole += 1;
                    let receipt = world.drive().await;
                    world.check(&receipt).await;
                    assert_eq!((receipt.attempts.len(), world.cloud.launches()), (1, 1), "{what}");
                } else {
                    none += 1;
                    assert_eq!(world.cloud.launches(), 0, "{what}: no job, no machine");
                    assert!(world.controller().look(world.job()).await.is_err(), "{what}");
                    let planned = world.dir.plan(AttemptNo::FIRST).await.unwrap().is_some();
                    assert!(!planned || after || calls > 0, "{what}");
                }
                died
            });
            if !died {
                break;
            }
        }
    }
    assert!(whole >= 3 && none >= 1, "{whole} whole, {none} none");
}

/// A lid is closed between the choice of an offer and the launch: somebody may have cancelled
/// meanwhile, and prices moved.
#[test]
fn controller_that_slept_before_the_first_launch_looks_again() {
    simulate(async |clock| {
        let world = World::unmade(clock.clone(), &[ENDS]).await;
        let controller = world.controller();
        let planned = controller.first_plan(&world.spec).await.unwrap();
        world.store.fault("plan.json", Fault::Slow(Duration::from_secs(3600)), 1);
        let cancels = async {
            clock.sleep(Duration::from_secs(1800)).await;
            world.dir.add_request(Wish::Cancel, "somebody", clock.now()).await.unwrap();
        };
        let (begun, ()) = tokio::join!(controller.begin(&world.dir, &world.spec, planned), cancels);
        let (memory, begun) = begun.unwrap();
        begun.unwrap();
        assert_eq!(world.cloud.launches(), 0, "the decision is an hour old");
        let receipt = controller.drive_on(world.job(), memory).await.unwrap();
        assert_eq!(
            (receipt.outcome, world.cloud.launches()),
            (JobOutcome::Cancelled, 0),
            "{}",
            receipt.reason
        );
    });
}

/// The plan takes ten seconds on its way, and the job is there: somebody cancels it, and whoever
/// drives beside it writes the receipt.
#[test]
fn what_has_ended_while_its_plan_was_written_is_not_launched() {
    simulate(async |clock| {
        let world = World::unmade(clock.clone(), &[Life::Endless]).await;
        let controller = world.controller();
        let planned = controller.first_plan(&world.spec).await.unwrap();
        world.store.fault("plan.json", Fault::Slow(Duration::from_secs(10)), 1);
        let cancels = async {
            clock.sleep(Duration::from_secs(3)).await;
            world.dir.add_request(Wish::Cancel, "somebody", clock.now()).await.unwrap();
            world.drive().await
        };
        let (begun, receipt) =
            tokio::join!(controller.begin(&world.dir, &world.spec, planned), cancels);
        begun.unwrap().1.unwrap();
        assert_eq!(
            (receipt.outcome, world.cloud.launches()),
            (JobOutcome::Cancelled, 0),
            "{}",
            receipt.reason
        );
        world.check(&receipt).await;
    });
}
