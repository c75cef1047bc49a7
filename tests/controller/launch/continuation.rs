//! A job that has ended goes on: on its kept machine, or from its checkpoint; and the controller
//! dies at any call of it.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::{Controller, Kept, continuation_of, submit};
use lamplighter::instance::InstanceState;
use lamplighter::job::{
    AttemptNo, EndedBecause, JobOutcome, LimitsSpec, Reaction, Receipt, ResolvedSpec, Wish,
};
use lamplighter::jobdir::JobDir;
use lamplighter::market::Market;
use lamplighter::ports::{Clock, Cloud, Store};

use crate::World;
use crate::cloud::{CloudFault, Life};
use crate::dying_controller;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const STOPS: Life = Life::Stops { secs: 30, code: 3 };

/// A job that has failed, and whose machine was stopped and kept.
pub(crate) async fn stopped(clock: Arc<VirtualClock>, life: Life) -> (World, Receipt) {
    // By a deadline, which a plan that waits comes no nearer to than a new one would.
    let deadline = clock.now() + Duration::from_secs(7 * 24 * 3600);
    let limits = LimitsSpec { deadline: Some(deadline), ..LimitsSpec::default() };
    let world = World::with(clock, &[life], |spec| {
        (spec.on.failure, spec.limits) = (Reaction::Stop, limits)
    })
    .await;
    let receipt = world.drive().await;
    assert_eq!(receipt.outcome, JobOutcome::Failed);
    (world, receipt)
}

pub(crate) async fn kept(world: &World) -> Kept {
    world.controller().kept(&world.dir).await.unwrap().expect("it has ended")
}

/// Makes the job that goes on, as `lamp start` does.
pub(crate) async fn go_on(world: &World, kept: &Kept) -> (JobDir, ResolvedSpec) {
    let job = continuation_of(world.job(), "digits");
    let spec = ResolvedSpec { job, continues: Some(kept.continues.clone()), ..kept.spec.clone() };
    (submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap(), spec)
}

/// Drives the job to its end, beside what happens meanwhile.
async fn driven_beside(
    world: &World,
    dir: &JobDir,
    meanwhile: impl Future<Output = ()>,
) -> Receipt {
    let controller = world.controller();
    tokio::join!(async { controller.drive(dir.job()).await.unwrap() }, meanwhile).0
}

fn becauses(receipt: &Receipt) -> Vec<EndedBecause> {
    receipt.attempts.iter().map(|attempt| attempt.ended_because).collect()
}

fn adds_up(world: &World, receipts: &[&Receipt]) {
    assert_eq!(world.cloud.complaints(), Vec::<String>::new());
    assert_eq!(world.cloud.running(), Vec::<String>::new(), "nothing is left running");
    assert_eq!(
        receipts.iter().map(|receipt| receipt.total_usd).sum::<lamplighter::market::Usd>(),
        world.cloud.bill(),
        "two receipts, one ledger"
    );
}

#[test]
fn kept_machine_is_started_again_after_a_death_at_any_call() {
    let mut deaths = 0;
    for after in [false, true] {
        for calls in 0.. {
            let died = simulate(async |clock| {
                let what = format!("died at call {calls}, after its effect: {after}");
                let (world, first) = stopped(clock, STOPS).await;
                let (next, _) = go_on(&world, &kept(&world).await).await;
                let life = dying_controller::dying(calls, after);
                let store: Arc<dyn Store> = dying_controller::store(&life, world.store.clone());
                let cloud: Arc<dyn Cloud> = dying_controller::cloud(&life, world.port());
                let mortal: Controller = world.controller_on(store, cloud);
                let died = tokio::select! {
                    biased;
                    () = life.died() => true,
                    _ = mortal.drive(next.job()) => false,
                };
                let second = world.controller().drive(next.job()).await.unwrap();
                assert_eq!(
                    (second.outcome, becauses(&second)),
                    (JobOutcome::Succeeded, vec![EndedBecause::Succeeded]),
                    "{what}"
                );
                assert_eq!(
                    second.attempts[0].instance, first.attempts[0].instance,
                    "the same machine: {what}"
                );
                assert_eq!(world.cloud.launches(), 1, "nothing was bought: {what}");
                let plan = next.plan(AttemptNo::FIRST).await.unwrap().unwrap();
                assert_eq!(plan.resume_from.map(|number| number.number()), Some(1), "{what}");
                adds_up(&world, &[&first, &second]);
                assert_eq!(
                    world.dir.receipt().await.unwrap().as_ref(),
                    Some(&first),
                    "what has ended stays as it was: {what}"
                );
                died
            });
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 60, "{deaths}");
}

#[test]
fn start_whose_answer_is_lost_is_one_start() {
    for faults in [&[CloudFault::Down, CloudFault::Down][..], &[CloudFault::LostReply]] {
        simulate(async |clock| {
            let (world, first) = stopped(clock, STOPS).await;
            let (next, _) = go_on(&world, &kept(&world).await).await;
            world.cloud.fail_starts(faults);
            let second = world.controller().drive(next.job()).await.unwrap();
            assert_eq!(
                (becauses(&second), world.cloud.launches()),
                (vec![EndedBecause::Succeeded], 1),
                "{faults:?}"
            );
            adds_up(&world, &[&first, &second]);
        });
    }
}

#[test]
fn continuation_without_room_resumes_from_checkpoint_elsewhere() {
    simulate(async |clock| {
        let (world, first) = stopped(clock, STOPS).await;
        let (next, _) = go_on(&world, &kept(&world).await).await;
        world.cloud.fail_starts(&[CloudFault::NoCapacity]);
        *world.cloud.second_life.lock().unwrap() = STOPS;
        let second = world.controller().drive(next.job()).await.unwrap();
        // The life of the second attempt is that of every machine of this world: it fails again.
        assert_eq!(becauses(&second), [EndedBecause::LaunchFailed, EndedBecause::Failed]);
        assert_eq!(
            (second.attempts[0].instance.as_ref(), second.attempts[0].usd.micros()),
            (None, 0),
            "it never ran for this job"
        );
        assert_eq!(world.cloud.launches(), 2);
        adds_up(&world, &[&first, &second]);
        // The disk that it could not go on with still stands, and carries its name: who cancels
        // that job gives it up.
        let controller = world.controller();
        assert_eq!(
            controller.kept_machine(&world.dir).await.unwrap().map(|view| view.id),
            None,
            "no more the first one's"
        );
        let mine = controller.kept_machine(&next).await.unwrap().expect("it is there");
        assert_eq!(
            (mine.id.as_str(), mine.state),
            ("i-2", InstanceState::Stopped),
            "the one that it ran on, first"
        );
        controller.give_up(&next, &mine.machine()).await.unwrap();
        let other = controller
            .kept_machine(&next)
            .await
            .unwrap()
            .expect("and the one that it was to start");
        assert_eq!((other.id.as_str(), other.state), ("i-1", InstanceState::Stopped));
        assert!(controller.give_up(&next, &other.machine()).await.unwrap().is_gone);
        assert_eq!(controller.kept_machine(&next).await.unwrap().map(|view| view.id), None);
    });
}

/// A laptop without a line, or an EC2 that errs, for longer than a boot may take.
#[test]
fn start_that_nobody_could_ask_for_is_asked_for_again() {
    simulate(async |clock| {
        let (world, first) = stopped(clock.clone(), STOPS).await;
        let mut kept = kept(&world).await;
        kept.continues.checkpoint = None;
        let (next, _) = go_on(&world, &kept).await;
        world.cloud.fail_starts(&[CloudFault::Down; 10_000]);
        let back = async {
            clock.sleep(std::time::Duration::from_secs(3 * 3600)).await;
            world.cloud.fail_starts(&[]);
        };
        let second = driven_beside(&world, &next, back).await;
        assert_eq!(
            (second.outcome, becauses(&second)),
            (JobOutcome::Succeeded, vec![EndedBecause::Succeeded]),
            "{}",
            second.reason
        );
        adds_up(&world, &[&first, &second]);
    });
}

/// Two jobs in a row that could not start it: it still carries the first one's name, and the third
/// finds it and can be cancelled.
#[test]
fn machine_that_carries_an_earlier_jobs_name_is_found() {
    simulate(async |clock| {
        let (world, _) = stopped(clock.clone(), STOPS).await;
        let mut from = kept(&world).await;
        from.continues.checkpoint = None;
        let (next, spec) = go_on(&world, &from).await;
        world.cloud.fail_starts(&[CloudFault::Invalid]);
        world.controller().drive(next.job()).await.unwrap();
        let mut again = world.controller().kept(&next).await.unwrap().expect("it has ended");
        assert_eq!(
            again.continues.machine.as_ref().map(|machine| machine.instance.as_str()),
            Some("i-1")
        );
        again.continues.checkpoint = None;
        let job = continuation_of(next.job(), "digits");
        let spec = ResolvedSpec { job, continues: Some(again.continues.clone()), ..spec };
        let third = submit(&(world.store.clone() as Arc<dyn Store>), &spec, None).await.unwrap();
        world.cloud.fail_starts(&[CloudFault::Down; 10_000]);
        let wish = async {
            clock.sleep(std::time::Duration::from_secs(600)).await;
            third.add_request(Wish::Cancel, "somebody", spec.created).await.unwrap();
        };
        let receipt = driven_beside(&world, &third, wish).await;
        assert_eq!(receipt.outcome, JobOutcome::Cancelled, "{}", receipt.reason);
        assert_eq!(world.cloud.states()[0].1, InstanceState::Stopped, "its disk is still there");
    });
}

#[test]
fn without_a_checkpoint_its_own_disk_is_waited_for() {
    simulate(async |clock| {
        let (world, first) = stopped(clock, STOPS).await;
        let mut kept = kept(&world).await;
        kept.continues.checkpoint = None;
        let (next, _) = go_on(&world, &kept).await;
        world.cloud.fail_starts(&[CloudFault::NoCapacity, CloudFault::NoCapacity]);
        let second = world.controller().drive(next.job()).await.unwrap();
        assert_eq!(
            becauses(&second),
            [EndedBecause::LaunchFailed, EndedBecause::LaunchFailed, EndedBecause::Succeeded]
        );
        assert_eq!(world.cloud.launches(), 1, "never another machine");
        adds_up(&world, &[&first, &second]);
    });
}

#[test]
fn kept_machine_that_cannot_start_fails_job_and_buys_nothing() {
    simulate(async |clock| {
        let (world, first) = stopped(clock, STOPS).await;
        let (next, _) = go_on(&world, &kept(&world).await).await;
        world.cloud.fail_starts(&[CloudFault::Invalid]);
        let second = world.controller().drive(next.job()).await.unwrap();
        assert_eq!(
            (second.outcome, becauses(&second)),
            (JobOutcome::Failed, vec![EndedBecause::LaunchFailed])
        );
        assert_eq!(second.reason, "cannot be started");
        assert_eq!(world.cloud.states()[0].1, InstanceState::Stopped, "its disk is still there");
        adds_up(&world, &[&first, &second]);
    });
}

#[test]
fn kept_machine_that_somebody_has_ended_is_not_replaced() {
    simulate(async |clock| {
        let (world, first) = stopped(clock, STOPS).await;
        let mut kept = kept(&world).await;
        kept.continues.checkpoint = None;
        let view = world
            .port()
            .describe("me", &lamplighter::market::Region::new("local"))
            .await
            .unwrap()
            .remove(0);
        world.port().terminate(&view.machine()).await.unwrap();
        world.cloud.fail_starts(&[CloudFault::Down]);
        let (next, _) = go_on(&world, &kept).await;
        let second = world.controller().drive(next.job()).await.unwrap();
        assert_eq!(
            (second.outcome, becauses(&second)),
            (JobOutcome::Failed, vec![EndedBecause::LaunchFailed])
        );
        assert_eq!(second.reason, "the kept machine is terminated");
        adds_up(&world, &[&first, &second]);
    });
}

#[test]
fn wish_to_stop_before_the_start_leaves_the_machine_as_it_is() {
    simulate(async |clock| {
        let (world, first) = stopped(clock, STOPS).await;
        let (next, _) = go_on(&world, &kept(&world).await).await;
        next.add_request(Wish::Stop, "somebody", first.ended).await.unwrap();
        let second = world.controller().drive(next.job()).await.unwrap();
        assert_eq!(second.outcome, JobOutcome::Stopped);
        assert_eq!(world.cloud.states()[0].1, InstanceState::Stopped);
        adds_up(&world, &[&first, &second]);
    });
}

#[test]
fn what_is_kept_is_seen() {
    simulate(async |clock| {
        let (world, first) = stopped(clock.clone(), STOPS).await;
        let kept = kept(&world).await;
        assert_eq!(
            kept.continues.machine.as_ref().map(|machine| &machine.instance),
            first.attempts[0].instance.as_ref()
        );
        assert_eq!(kept.continues.checkpoint.as_ref().map(|from| &from.job), Some(world.job()));
        assert_eq!(kept.continues.machine.unwrap().offer.market, Market::Spot, "of the plan");
        // A machine that is gone leaves the checkpoint.
        let (world, _) = stopped(clock, Life::Ends { secs: 5, code: 3 }).await;
        let gone = self::kept(&world).await;
        assert_eq!((gone.continues.machine, gone.continues.checkpoint), (None, None));
    });
}

/// One was throttled for longer than a boot may take, and another has started the machine
/// meanwhile.
#[test]
fn kept_machine_started_by_another_is_not_silent_before_start() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (world, _) = stopped(clock.clone(), STOPS).await;
        let (next, _) = go_on(&world, &kept(&world).await).await;
        world.cloud.fail_starts(&[CloudFault::Throttled; 1000]);
        *world.cloud.second_life.lock().unwrap() = Life::NeverSpeaks;
        let controller = world.controller();
        let another = async {
            clock.sleep(Duration::from_secs(40 * 60)).await;
            let plan = next.plan(AttemptNo::FIRST).await.unwrap().unwrap();
            world.cloud.start_again(&plan.starts.as_ref().unwrap().instance, &plan);
            clock.sleep(Duration::from_secs(10 * 60)).await;
            world.cloud.running().len()
        };
        let running = tokio::select! {
            receipt = controller.drive(next.job()) => panic!("{receipt:?}"),
            running = another => running,
        };
        assert_eq!(running, 1, "it had a quarter of an hour for its first word");
    });
}
