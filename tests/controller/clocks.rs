//! A workstation whose clock is wrong.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use lamplighter::controller::{Controller, submit};
use lamplighter::job::{AttemptNo, JobOutcome, Lease, RECORD_FORMAT};
use lamplighter::market::{self, Zone};
use lamplighter::ports::{Clock, Store};

use crate::cloud::Life;
use crate::{OWNER, World};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// So many seconds beside the store's.
pub(super) struct Beside(pub Arc<VirtualClock>, pub AtomicI64);

#[async_trait]
impl Clock for Beside {
    fn now(&self) -> Timestamp {
        self.0.now() + SignedDuration::from_secs(self.1.load(Ordering::Relaxed))
    }
    fn mono(&self) -> Duration {
        self.0.mono()
    }
    fn boot(&self) -> String {
        self.0.boot()
    }
    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }
}

pub(super) fn controller(world: &World, clock: &Arc<Beside>) -> Controller {
    let clouds =
        [(market::CloudKind::Local, world.port()), (market::CloudKind::Aws, world.port())].into();
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    Controller::new(
        world.store.clone(),
        clouds,
        clock,
        OWNER.into(),
        "test".into(),
        Zone::new("ws-test"),
    )
}

/// The job is driven for so long, and does not end.
async fn goes_on<T: Debug>(
    drive: &mut (impl Future<Output = T> + Unpin),
    clock: &VirtualClock,
    secs: u64,
) {
    tokio::select! {
        biased;
        receipt = drive => panic!("{receipt:?}"),
        () = clock.sleep(Duration::from_secs(secs)) => {}
    }
}

/// A job whose first attempt another controller has planned just now.
async fn planned_by_another(clock: &Arc<VirtualClock>) -> World {
    let mut world = World::unmade(clock.clone(), &[Life::Ends { secs: 2, code: 0 }]).await;
    world.spec.spec.machine.cloud = market::CloudKind::Aws;
    *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
    let planned = world.controller().first_plan(&world.spec).await.unwrap();
    submit(&(world.store.clone() as Arc<dyn Store>), &world.spec, None).await.unwrap();
    let _ = world.dir.create_plan(&planned.plan).await.unwrap();
    world
}

/// Seed 4632 of the false world: a machine was launched beyond its own hard end, a day behind.
#[test]
fn wrong_clock_launches_nothing_and_a_person_is_told() {
    for (off, said) in [(-86_400, "1d behind"), (86_400, "1d ahead of"), (-301, "5m 1s behind")] {
        simulate(async |clock| {
            let world = World::new(clock.clone(), &[Life::Ends { secs: 2, code: 0 }]).await;
            let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(off)));
            let controller = controller(&world, &beside);
            let drive = controller.drive(world.job());
            tokio::pin!(drive);
            goes_on(&mut drive, &clock, 1800).await;
            assert_eq!(world.store.keys("plan.json"), Vec::<String>::new(), "{off}");
            let told = world
                .dir
                .attention()
                .await
                .unwrap()
                .and_then(|attention| attention.text)
                .unwrap_or_default();
            assert!(
                told.contains(said)
                    && told.contains("nothing is launched until one of them is right"),
                "{told}"
            );
            beside.1.store(0, Ordering::Relaxed);
            let receipt = drive.await.unwrap();
            assert_eq!(receipt.outcome, JobOutcome::Succeeded);
            world.check(&receipt).await;
        });
    }
}

/// Seed 4004436 of the false world: a store that lost its answers did not say what time it was, and
/// a workstation that was a day ahead launched a machine whose hard end was a day late.
#[test]
fn unchecked_clock_plans_nothing_until_the_store_gives_the_time() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 2, code: 0 }]).await;
        world.store.fault("clock", Fault::Down, None);
        let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(86_400)));
        let controller = controller(&world, &beside);
        let drive = controller.drive(world.job());
        tokio::pin!(drive);
        goes_on(&mut drive, &clock, 600).await;
        assert_eq!(world.store.keys("plan.json"), Vec::<String>::new());
        world.store.mend();
        beside.1.store(0, Ordering::Relaxed);
        let receipt = drive.await.unwrap();
        assert_eq!(receipt.outcome, JobOutcome::Succeeded);
        world.check(&receipt).await;
    });
}

/// Seed 28000341 of the false world: between the question and the plan the clock was set a day
/// back, and the machine was launched beyond its own hard end: the job was over, and had done
/// nothing.
#[test]
fn clock_set_wrong_after_its_check_launches_nothing() {
    simulate(async |clock| {
        let lives = [Life::Ends { secs: 2, code: 0 }];
        for set in [1_u64, 3, 30] {
            let world = World::new(clock.clone(), &lives).await;
            let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(0)));
            let controller = controller(&world, &beside);
            controller.check_clock().await.unwrap();
            clock.sleep(Duration::from_secs(set)).await;
            beside.1.store(-86_400, Ordering::Relaxed);
            let drive = controller.drive(world.job());
            tokio::pin!(drive);
            goes_on(&mut drive, &clock, 300).await;
            assert_eq!(world.store.keys("plan.json"), Vec::<String>::new(), "{set} s after");
            beside.1.store(0, Ordering::Relaxed);
            assert_eq!(drive.await.unwrap().outcome, JobOutcome::Succeeded);
        }
        // While it is planned: the cloud takes its time to say what it has.
        let world = World::new(clock.clone(), &lives).await;
        *world.cloud.supply_takes.lock().unwrap() = Duration::from_secs(10);
        let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(0)));
        let controller = controller(&world, &beside);
        let drive = controller.drive(world.job());
        tokio::pin!(drive);
        goes_on(&mut drive, &clock, 5).await;
        beside.1.store(-86_400, Ordering::Relaxed);
        goes_on(&mut drive, &clock, 300).await;
        assert_eq!(world.store.keys("plan.json"), Vec::<String>::new());
        beside.1.store(0, Ordering::Relaxed);
        assert_eq!(drive.await.unwrap().outcome, JobOutcome::Succeeded);
    });
}

#[test]
fn clock_that_a_person_has_set_is_good_enough() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 2, code: 0 }]).await;
        let beside = Arc::new(Beside(clock, AtomicI64::new(-290)));
        let receipt = controller(&world, &beside).drive(world.job()).await.unwrap();
        assert_eq!(receipt.outcome, JobOutcome::Succeeded);
    });
}

/// The lid was closed between the question and the answer.
#[test]
fn clock_check_interrupted_by_sleep_reports_no_wrong_clock() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 2, code: 0 }]).await;
        world.store.fault("clock", Fault::Slow(Duration::from_secs(2)), None);
        let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(0)));
        let controller = controller(&world, &beside);
        let sleeps = async {
            // It asked at once, is answered with the time of its question after four seconds, and
            // it is eight hours later.
            clock.sleep(Duration::from_secs(1)).await;
            beside.1.store(8 * 3600, Ordering::Relaxed);
            clock.sleep(Duration::from_secs(4)).await;
            beside.1.store(0, Ordering::Relaxed);
            // A clock that has gone so far beside the steady one is asked about again.
            clock.sleep(Duration::from_secs(8)).await;
            assert_eq!(
                world.store.keys("plan.json").len(),
                1,
                "it was planned by one of its answers"
            );
            assert_eq!(
                world.dir.attention().await.unwrap().and_then(|attention| attention.text),
                None
            );
        };
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), sleeps);
        assert_eq!(receipt.unwrap().outcome, JobOutcome::Succeeded);
    });
}

/// By a clock that is ahead, the plan that another controller has just made looks old, and nobody
/// seems to be about to launch it: were it launched here and refused there, a machine would run
/// that no record knows. Nor is it too old for its token by a clock that is a day ahead (seed
/// 23002818 of 24 h: settled, while its maker was throttled for seven minutes, and launched it
/// then).
#[test]
fn fresh_plan_of_another_is_left_alone_by_a_clock_hours_ahead() {
    for ahead in [301, 3600, 19 * 3600, 24 * 3600] {
        simulate(async |clock| {
            let world = planned_by_another(&clock).await;
            let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(ahead)));
            let controller = controller(&world, &beside);
            let looks = async {
                clock.sleep(Duration::from_secs(45)).await;
                assert_eq!(world.cloud.launches(), 0, "{ahead} s ahead");
            };
            let (receipt, ()) = tokio::join!(controller.drive(world.job()), looks);
            // Whoever made it is gone, and nobody is waited for longer than that.
            let receipt = receipt.unwrap();
            assert_eq!(
                (receipt.outcome, receipt.attempts.len(), world.cloud.launches()),
                (JobOutcome::Succeeded, 1, 1),
                "{ahead} s ahead"
            );
        });
    }
}

/// Seed 7010096 of 24 h of the false world: another controller's machine had just said its first
/// word, the cloud did not show it yet, and a workstation a day ahead settled it as gone and bought
/// another.
#[test]
fn new_machine_not_yet_shown_is_not_gone_by_a_clock_a_day_ahead() {
    simulate(async |clock| {
        let world = planned_by_another(&clock).await;
        let beside = Arc::new(Beside(clock.clone(), AtomicI64::new(86_400)));
        let controller = controller(&world, &beside);
        let mut drive = Box::pin(controller.drive(world.job()));
        goes_on(&mut drive, &clock, 62).await;
        let lease = Lease {
            format: RECORD_FORMAT,
            instance: "i-theirs".into(),
            nonce: "theirs".into(),
            taken: clock.now(),
        };
        world.dir.take_lease(AttemptNo::FIRST, &lease).await.unwrap();
        goes_on(&mut drive, &clock, 120).await;
        assert_eq!(
            world.store.keys("settled.json"),
            Vec::<String>::new(),
            "it was asked for three minutes ago at the most"
        );
        assert_eq!(world.cloud.launches(), 0);
    });
}
