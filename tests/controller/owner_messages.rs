//! Somebody is told once, whoever drives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lamplighter::account::sweeper;
use lamplighter::account::sweeper_visit::Visit;
use lamplighter::job::{EndedBecause, JobOutcome};
use lamplighter::jobdir::SweeperDir;
use lamplighter::market;
use lamplighter::ports::{Clock, Notification, Notifier, NotifierError};

use crate::World;
use crate::cloud::{CloudFault, Life};
use lamp_test_support::virtual_clock::simulate;

#[derive(Default)]
struct Ear(Mutex<Vec<Notification>>);

#[async_trait]
impl Notifier for Ear {
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError> {
        self.0.lock().unwrap().push(notification.clone());
        Err(NotifierError { what: "an ear that complains harms nothing".into() })
    }
}

#[test]
fn end_is_told_once_also_when_two_controllers_saw_it() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 5, code: 3 }]).await;
        let ear = Arc::new(Ear::default());
        let (one, two) =
            (world.controller().notifying(ear.clone()), world.controller().notifying(ear.clone()));
        let (first, second) = tokio::join!(one.drive(world.dir.job()), two.drive(world.dir.job()));
        assert_eq!(first.unwrap(), second.unwrap());
        let told = ear.0.lock().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].kind, told[0].text.as_str()), ("ended", "failed: it ended"));
        assert_eq!(told[0].receipt.as_ref().unwrap().exit_code, Some(3));
    });
}

#[test]
fn job_that_had_ended_before_is_no_news() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Ends { secs: 5, code: 0 }]).await;
        world.drive().await;
        let ear = Arc::new(Ear::default());
        world.controller().notifying(ear.clone()).drive(world.dir.job()).await.unwrap();
        assert!(ear.0.lock().unwrap().is_empty());
    });
}

impl Ear {
    fn attention(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|told| told.kind == "attention")
            .map(|told| told.text.clone())
            .collect()
    }
}

async fn stands(world: &World) -> Option<String> {
    world.dir.attention().await.unwrap().and_then(|attention| attention.text)
}

#[test]
fn machine_we_may_not_end_is_told_once_and_tried_until_it_ends() {
    simulate(async |clock| {
        let world =
            World::new(clock.clone(), &[Life::FallsSilent, Life::Ends { secs: 5, code: 0 }]).await;
        let ear = Arc::new(Ear::default());
        let controller = world.controller().notifying(ear.clone());
        world.cloud.deny(20, 0);
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(1900)).await;
            let text = stands(&world).await.expect("it stands in the job directory");
            assert!(text.starts_with("i-1 in local may still run and bill: not allowed to terminate i-1: UnauthorizedOperation"), "{text}");
            assert!(world.cloud.denied_ends() < 18, "it is tried again and again");
        });
        let receipt = receipt.unwrap();
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.attempts[0].ended_because),
            (JobOutcome::Succeeded, EndedBecause::Lost)
        );
        let told = ear.attention();
        assert!(told.len() == 1 && told[0].contains("may still run and bill"), "{told:?}");
        assert_eq!(stands(&world).await, None, "it is over");
    });
}

#[test]
fn what_another_process_found_in_the_way_is_cleared_by_the_next() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::FallsSilent, Life::Endless]).await;
        world.cloud.deny(10_000, 0);
        let (first, second) = (world.controller(), world.controller());
        tokio::select! {
            receipt = first.drive(world.job()) => panic!("{receipt:?}"),
            () = clock.sleep(Duration::from_secs(2000)) => {}
        }
        assert!(stands(&world).await.is_some(), "also without anybody to tell");
        world.cloud.deny(0, 0);
        tokio::select! {
            receipt = second.drive(world.job()) => panic!("{receipt:?}"),
            () = clock.sleep(Duration::from_secs(2400)) => {}
        }
        assert_eq!(stands(&world).await, None);
    });
}

/// Row 57 of docs/promises.md: somebody hears of it within a day and an hour, once; without a
/// sweeper there is nothing to hear.
#[test]
fn a_sweeper_that_comes_no_more_is_told_after_a_day() {
    for was_there in [true, false] {
        simulate(async |clock| {
            let world = World::new(clock.clone(), &[Life::Endless]).await;
            let ear = Arc::new(Ear::default());
            let controller = world.controller().notifying(ear.clone());
            let sweeper = SweeperDir::new(world.dir.store().clone(), &sweeper::name("me"));
            if was_there {
                sweeper.put_visit(&Visit::new(clock.now(), "0.1.0", "me")).await.unwrap();
            }
            tokio::select! {
                receipt = controller.drive(world.job()) => panic!("{receipt:?}"),
                () = clock.sleep(Duration::from_secs(23 * 3600)) => {}
            }
            assert_eq!(ear.attention(), Vec::<String>::new(), "a day is not over");
            tokio::select! {
                receipt = controller.drive(world.job()) => panic!("{receipt:?}"),
                () = clock.sleep(Duration::from_secs(2 * 3600)) => {}
            }
            let told = ear.attention();
            assert_eq!(told.len(), usize::from(was_there), "{told:?}");
            assert!(
                told.iter().all(
                    |told| told.starts_with("the sweeper in the cloud has not come for 1d, so")
                ),
                "{told:?}"
            );
        });
    }
}

/// It comes every five minutes, and nothing that it needs can be read: a fresh record is no sign of
/// health.
#[test]
fn sweeper_that_can_judge_nobody_is_told_after_a_day() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        let ear = Arc::new(Ear::default());
        let controller = world.controller().notifying(ear.clone());
        let sweeper = SweeperDir::new(world.dir.store().clone(), &sweeper::name("me"));
        let since = clock.now();
        let comes = async {
            for _ in 0..25 * 4 {
                let visit = Visit {
                    regions: 1,
                    machines: 1,
                    judged_at: Some(since),
                    ..Visit::new(clock.now(), "0.1.0", "me")
                };
                sweeper.put_visit(&visit).await.unwrap();
                clock.sleep(Duration::from_secs(15 * 60)).await;
                let early = clock.now().duration_since(since).as_hours() < 24;
                assert!(
                    !early || ear.attention().is_empty(),
                    "a day is not over: {:?}",
                    ear.attention()
                );
            }
        };
        tokio::select! {
            receipt = controller.drive(world.job()) => panic!("{receipt:?}"),
            () = comes => {}
        }
        let told = ear.attention();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("the sweeper in the cloud could judge no machine for 1d, so"),
            "{told:?}"
        );
    });
}

#[test]
fn credentials_that_expire_are_told_once_and_harm_no_machine() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[Life::Ends { secs: 1800, code: 0 }]).await;
        let ear = Arc::new(Ear::default());
        let controller = world.controller().notifying(ear.clone());
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(60)).await;
            world.cloud.deny(0, 200);
            clock.sleep(Duration::from_secs(90)).await;
            let told = ear.attention();
            assert_eq!(
                told,
                ["not allowed to look at the machines in local: ExpiredToken"],
                "within two minutes"
            );
            assert_eq!(stands(&world).await.as_ref(), told.first());
        });
        world.check(&receipt.unwrap()).await;
        assert_eq!((ear.attention().len(), stands(&world).await), (1, None));
    });
}

#[test]
fn launch_refused_for_good_and_a_quota_by_name_are_told() {
    for (fault, told) in [
        (
            CloudFault::Denied,
            "attempt 1 cannot be launched: not allowed to launch a t in ws-test: UnauthorizedOperation",
        ),
        (CloudFault::Invalid, "attempt 1 cannot be launched: no such image"),
        (
            CloudFault::Quota,
            "the quota is used up for VcpuLimitExceeded; ask for more of `All T Spot Instance Requests` (L-T) in local, which is 0 vCPUs",
        ),
        (
            CloudFault::Verifying,
            "the account is still being verified for the region for PendingVerification; that takes minutes mostly, and four hours at most; \
             nothing bills, and it is asked again",
        ),
        (
            CloudFault::Disks,
            "the limit of disks is reached for VolumeLimitExceeded; delete disks in local, or ask for more of its quotas for EBS",
        ),
    ] {
        simulate(async |clock| {
            let world = World::new(clock.clone(), &[Life::Ends { secs: 5, code: 0 }]).await;
            *world.cloud.kind.lock().unwrap() = market::CloudKind::Aws;
            world.cloud.fail_launches(&[fault, fault]);
            let ear = Arc::new(Ear::default());
            world.controller().notifying(ear.clone()).drive(world.job()).await.unwrap();
            assert_eq!(ear.attention(), [told], "{fault:?}");
        });
    }
}

/// Nobody has refused the machine: the same plan is launched as soon as somebody has signed in
/// again.
#[test]
fn session_over_before_the_launch_is_trouble_and_fails_no_job() {
    for kind in [market::CloudKind::Local, market::CloudKind::Aws] {
        simulate(async |clock| {
            let world = World::with(clock.clone(), &[Life::Ends { secs: 90, code: 0 }], |spec| {
                spec.machine.cloud = kind
            })
            .await;
            *world.cloud.kind.lock().unwrap() = kind;
            world.cloud.fail_launches(&[CloudFault::SignedOut; 10_000]);
            let ear = Arc::new(Ear::default());
            let controller = world.controller().notifying(ear.clone());
            let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
                clock.sleep(Duration::from_secs(600)).await;
                let said = "nothing can be launched: the AWS session is over (ExpiredToken); `aws sso login` signs in again";
                assert_eq!(
                    (stands(&world).await.as_deref(), ear.attention()),
                    (Some(said), vec![said.to_owned()]),
                    "once, and it stands"
                );
                world.cloud.fail_launches(&[]);
            });
            let receipt = receipt.unwrap();
            world.check(&receipt).await;
            assert_eq!(
                (receipt.outcome, receipt.attempts.len(), world.cloud.launches()),
                (JobOutcome::Succeeded, 1, 1),
                "{kind:?}"
            );
            assert_eq!(stands(&world).await, None, "it is over");
        });
    }
}

/// The token of a plan was used with another request, which only a fault of ours can do: the
/// machine is the plan's, one alone, and somebody hears of it; also where the cloud shows it only
/// later.
#[test]
fn machine_of_another_request_is_adopted_and_told() {
    for (faults, kind) in [
        (vec![CloudFault::Mismatch { shown: true }], "adopted"),
        (vec![CloudFault::Mismatch { shown: false }], "hidden"),
    ] {
        simulate(async |clock| {
            let world = World::new(clock, &[Life::Ends { secs: 600, code: 0 }]).await;
            let ear = Arc::new(Ear::default());
            world.cloud.fail_launches(&faults);
            let receipt =
                world.controller().notifying(ear.clone()).drive(world.job()).await.unwrap();
            world.check(&receipt).await;
            assert_eq!(
                (receipt.outcome, receipt.attempts.len()),
                (JobOutcome::Succeeded, 1),
                "{kind}"
            );
            assert_eq!(world.cloud.states().len(), 1, "{kind}: one machine");
            let told = ear.attention();
            assert!(
                told.len() == 1 && told[0].contains("IdempotentParameterMismatch"),
                "{kind}: {told:?}"
            );
            assert_eq!(
                told[0].starts_with("i-1 was adopted by attempt 1"),
                kind == "adopted",
                "{told:?}"
            );
            assert_eq!(stands(&world).await, None, "{kind}: it is over");
        });
    }
}
