//! Two owners on one job root: the plan that is created first says whose a job is.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::{Controller, Ticked, submit};
use lamplighter::instance::OWNER_TAG;
use lamplighter::job::{Applied, AttemptNo, EndedBecause, JobOutcome, Wish};
use lamplighter::ports::{Clock, Cloud, Store};
use lamplighter::sim::SimProcess;

use crate::World;
use crate::cloud::{FakeCloud, Life};
use crate::cloud_port::FakeCloudPort;
use crate::dying_controller;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const LIVES: [Life; 2] = [Life::Taken { secs: 3 }, Life::Ends { secs: 2, code: 0 }];

/// Longer than the other one needs to plan, launch and see its machine.
const PAUSE: Duration = Duration::from_millis(1700);

/// A controller of somebody else, with an account of its own.
fn other(world: &World, cloud: &Arc<FakeCloud>, life: &Arc<SimProcess>) -> Controller {
    let port: Arc<dyn Cloud> = Arc::new(FakeCloudPort(Arc::clone(cloud)));
    let store: Arc<dyn Store> = dying_controller::store(life, world.store.clone());
    let cloud: Arc<dyn Cloud> = dying_controller::cloud(life, port);
    world.controller_of("you", store, cloud)
}

#[test]
fn plan_creator_owns_job_and_its_attempts() {
    let (mut mine, mut yours) = (0, 0);
    for after in [false, true] {
        for calls in 0.. {
            let (reached, won) = simulate(async |clock: Arc<VirtualClock>| {
                let world = World::new(clock.clone(), &LIVES).await;
                let theirs = FakeCloud::new(clock.clone(), world.dir.clone(), &LIVES);
                let life = dying_controller::pausing(calls, after, &clock, PAUSE);
                let (one, two) = (world.controller(), other(&world, &theirs, &life));
                // A little later or earlier, so that each has its turn.
                let late = async |secs, controller: &Controller| {
                    clock.sleep(secs).await;
                    controller.drive(world.job()).await.unwrap()
                };
                let (first, second) = tokio::join!(
                    late(Duration::from_millis(1000), &one),
                    late(Duration::ZERO, &two)
                );
                let what = format!("paused at call {calls}, after its effect: {after}");
                assert_eq!(first, second, "{what}");
                let because: Vec<EndedBecause> =
                    first.attempts.iter().map(|attempt| attempt.ended_because).collect();
                assert_eq!(because, [EndedBecause::Interrupted, EndedBecause::Succeeded], "{what}");
                assert_eq!(first.total_usd, world.cloud.bill() + theirs.bill(), "{what}");
                assert_eq!((world.cloud.running(), theirs.running()), (vec![], vec![]), "{what}");
                assert_eq!(
                    (world.cloud.complaints(), theirs.complaints()),
                    (vec![], vec![]),
                    "{what}"
                );
                let mut owners = Vec::new();
                for number in [1, 2] {
                    let plan = world.dir.plan(AttemptNo::new(number)).await.unwrap().unwrap();
                    owners.push(plan.tags[OWNER_TAG].clone());
                }
                owners.dedup();
                let launches = (world.cloud.launches() > 0, theirs.launches() > 0);
                let expected = if owners == ["me"] { (true, false) } else { (false, true) };
                assert_eq!((owners.len(), launches), (1, expected), "{what}: {owners:?}");
                (life.was_reached(), owners == ["me"])
            });
            if !reached {
                break;
            }
            if won { mine += 1 } else { yours += 1 }
        }
    }
    assert!(mine > 5 && yours > 5, "each of them wins sometimes: {mine}, {yours}");
}

/// Held back by a cap of its owner, say: nobody else buys its machine with their own money.
#[test]
fn job_without_a_plan_is_launched_by_its_owner_alone() {
    let applied = |owner: &str| Applied {
        set: "jobs".into(),
        file: "a.toml".into(),
        sha256: "0a".into(),
        owner: owner.into(),
        due: None,
    };
    // What its spec says; and whether `you` may launch it.
    let cases = [
        (Some("me"), None, false),
        (None, Some(applied("me")), false),
        (Some("you"), None, true),
        (None, None, true),
    ];
    for (owner, applied, is_theirs) in cases {
        simulate(async |clock: Arc<VirtualClock>| {
            let mut world = World::unmade(clock.clone(), &[Life::Ends { secs: 2, code: 0 }]).await;
            (world.spec.owner, world.spec.applied) = (owner.map(str::to_owned), applied.clone());
            submit(&(world.store.clone() as Arc<dyn Store>), &world.spec, None).await.unwrap();
            let theirs = FakeCloud::new(
                clock.clone(),
                world.dir.clone(),
                &[Life::Ends { secs: 2, code: 0 }],
            );
            let you = other(&world, &theirs, &SimProcess::new(None));
            let hour = clock.sleep(Duration::from_secs(3600));
            let jobs = [world.job().clone()];
            if is_theirs {
                you.drive(world.job()).await.unwrap();
                assert_eq!((theirs.launches(), world.cloud.launches()), (1, 0), "{owner:?}");
                return;
            }
            let ticked = you.look(world.job()).await.unwrap();
            let Ticked::Elsewhere(why) = ticked else { panic!("{ticked:?}") };
            assert_eq!(why, "it is a job of the owner `me`, and this is `you`");
            tokio::select! {
                () = you.drive_all(&jobs, |_| {}) => panic!("it is not over"),
                receipt = you.drive(world.job()) => panic!("it is not over: {receipt:?}"),
                () = hour => {}
            }
            assert_eq!(
                (theirs.launches(), world.store.keys("plan.json")),
                (0, Vec::<String>::new())
            );
            let receipt = world.drive().await;
            assert_eq!((theirs.launches(), world.cloud.launches()), (0, 1));
            world.check(&receipt).await;
        });
    }
}

/// What ends it costs nobody anything: whoever drives it may write that.
#[test]
fn cancel_of_anothers_job_without_a_plan_ends_it() {
    simulate(async |clock: Arc<VirtualClock>| {
        let mut world = World::unmade(clock.clone(), &[Life::Endless]).await;
        world.spec.owner = Some("me".to_owned());
        submit(&(world.store.clone() as Arc<dyn Store>), &world.spec, None).await.unwrap();
        let theirs = FakeCloud::new(clock.clone(), world.dir.clone(), &[Life::Endless]);
        world.wish(Wish::Cancel).await;
        let receipt =
            other(&world, &theirs, &SimProcess::new(None)).drive(world.job()).await.unwrap();
        assert_eq!(
            (receipt.outcome, theirs.launches(), world.cloud.launches()),
            (JobOutcome::Cancelled, 0, 0)
        );
    });
}

#[test]
fn loser_says_whose_the_job_is_and_does_nothing() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        let winner = world.controller();
        let theirs = FakeCloud::new(clock.clone(), world.dir.clone(), &[Life::Endless]);
        let loser = other(&world, &theirs, &SimProcess::new(None));
        let watching = async {
            clock.sleep(Duration::from_secs(5)).await;
            for _ in 0..600 {
                let ticked = loser.look(world.job()).await.unwrap();
                let Ticked::Elsewhere(why) = ticked else { panic!("{ticked:?}") };
                assert_eq!(why, "its machine is of the owner `me`, and this is `you`");
                clock.sleep(Duration::from_secs(15)).await;
            }
        };
        tokio::select! {
            receipt = winner.drive(world.job()) => panic!("nobody ends it: {receipt:?}"),
            () = watching => {}
        }
        assert_eq!((theirs.launches(), world.cloud.launches()), (0, 1));
        assert_eq!(world.store.keys("settled.json"), Vec::<String>::new());
    });
}
