//! Replies that are lost on their way to somebody who waits: what was done is done once, and nobody
//! says that it was not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lamplighter::controller::{SubmitError, submit};
use lamplighter::job::{JobOutcome, Wish};
use lamplighter::jobdir::{JobDir, JobDirError, jobs};
use lamplighter::market::{Span, Usd};
use lamplighter::ports::{Clock, Store, StoreError};

use crate::World;
use crate::cloud::Life;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const ENDS: Life = Life::Ends { secs: 2, code: 0 };

/// Longer, and somebody waits at a terminal for a store that is down.
const HANDFUL: Duration = Duration::from_secs(10);

const MORE: Wish = Wish::Extend {
    time: Some(Span::from_secs(3600)),
    budget: Some(Usd::ZERO),
    fallback_cost: None,
};

#[test]
fn job_whose_reply_was_lost_is_made_and_launched_once() {
    simulate(async |clock| {
        for lost in [1, 3] {
            let world = World::unmade(clock.clone(), &[ENDS]).await;
            let controller = world.controller();
            let planned = controller.first_plan(&world.spec).await.unwrap();
            world.store.fault("spec.json", Fault::LostReply, lost);
            let (memory, begun) = controller.begin(&world.dir, &world.spec, planned).await.unwrap();
            begun.unwrap();
            assert_eq!(
                (world.cloud.launches(), jobs(&*world.store).await.unwrap()),
                (1, vec![world.job().clone()]),
                "{lost} lost"
            );
            let receipt = controller.drive_on(world.job(), memory).await.unwrap();
            world.check(&receipt).await;
            assert_eq!(
                (receipt.outcome, world.cloud.launches()),
                (JobOutcome::Succeeded, 1),
                "{lost} lost"
            );
        }
    });
}

/// What waits for a machine is made by the other door (`lamp apply`).
#[test]
fn job_that_is_only_submitted_is_made_once_too() {
    simulate(async |clock| {
        let world = World::unmade(clock, &[ENDS]).await;
        world.store.fault("spec.json", Fault::LostReply, 2);
        world.controller().submit(&world.spec, &Path::new("it has no code").into()).await.unwrap();
        assert_eq!(world.dir.spec().await.unwrap(), Some(world.spec.clone()));
        let again =
            world.controller().submit(&world.spec, &Path::new("it has no code").into()).await;
        assert!(again.is_ok(), "the same words are the same job");
    });
}

#[test]
fn unanswered_submit_does_not_claim_that_no_job_was_made() {
    simulate(async |clock| {
        for fault in [Fault::LostReply, Fault::Down] {
            let world = World::unmade(clock.clone(), &[ENDS]).await;
            let (began, controller) = (clock.mono(), world.controller());
            let planned = controller.first_plan(&world.spec).await.unwrap();
            world.store.fault("spec.json", fault, None);
            let unsure = controller
                .begin(&world.dir, &world.spec, planned)
                .await
                .expect_err("nobody has answered");
            assert!(
                matches!(&unsure, SubmitError::Unsure { job, .. } if job == world.job()),
                "{unsure}"
            );
            assert_eq!(
                unsure.to_string(),
                format!("nobody has answered whether job `{}` was made", world.job())
            );
            assert!(clock.mono() - began < HANDFUL, "{:?}", clock.mono() - began);
            assert_eq!(world.cloud.launches(), 0, "by this process");
            world.store.mend();
            // Whoever drives it finds a whole job, or none.
            match world.dir.spec().await.unwrap() {
                Some(_) => assert_eq!(
                    (fault, world.drive().await.outcome),
                    (Fault::LostReply, JobOutcome::Succeeded)
                ),
                None => assert_eq!(fault, Fault::Down),
            }
        }
    });
}

#[test]
fn store_that_refuses_has_made_no_job_and_is_asked_once() {
    simulate(async |clock| {
        for fault in [Fault::Denied, Fault::Full] {
            let world = World::unmade(clock.clone(), &[ENDS]).await;
            let (began, controller) = (clock.mono(), world.controller());
            let planned = controller.first_plan(&world.spec).await.unwrap();
            world.store.fault("spec.json", fault, None);
            let refused = controller
                .begin(&world.dir, &world.spec, planned)
                .await
                .expect_err("it is refused");
            assert!(matches!(refused, SubmitError::Record(JobDirError::Store(_))), "{refused}");
            assert_eq!(clock.mono(), began, "at once");
        }
        // It refuses now; what it did before it was silent nobody knows.
        let world = World::unmade(clock, &[ENDS]).await;
        world.store.fault("spec.json", Fault::LostReply, 1);
        world.store.fault("spec.json", Fault::Denied, None);
        let unsure = world
            .controller()
            .submit(&world.spec, &Path::new("it has no code").into())
            .await
            .err()
            .expect("it is refused");
        assert!(
            matches!(unsure, SubmitError::Unsure { cause: StoreError::Denied { .. }, .. }),
            "{unsure}"
        );
    });
}

#[test]
fn wish_whose_reply_was_lost_is_left_once() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[ENDS]).await;
        let wish = async || world.dir.insist_on(MORE, "somebody", &*clock).await;
        for number in [1, 2] {
            world.store.fault(&format!("requests/{number:04}"), Fault::LostReply, 2);
            assert_eq!(wish().await.unwrap().number, number);
            world.store.mend();
        }
        let left = world.dir.requests().await.unwrap();
        assert_eq!(
            left.iter().map(|request| (request.number, request.wish)).collect::<Vec<_>>(),
            [(1, MORE), (2, MORE)],
            "each adds once"
        );
    });
}

/// Another takes the number while nobody answers: ours comes after it, and both are there.
#[test]
fn wish_that_is_repeated_takes_nobodys_place() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[ENDS]).await;
        world.store.fault("requests/0001", Fault::Down, 1);
        let other = async {
            clock.sleep(Duration::from_millis(1)).await;
            JobDir::new(world.store.clone(), world.job().clone())
                .add_request(Wish::Stop, "another", clock.now())
                .await
                .unwrap();
        };
        let (ours, ()) = tokio::join!(world.dir.insist_on(MORE, "somebody", &*clock), other);
        assert_eq!(ours.unwrap().number, 2);
        let left = world.dir.requests().await.unwrap();
        assert_eq!(left.iter().map(|request| request.wish).collect::<Vec<_>>(), [Wish::Stop, MORE]);
    });
}

#[test]
fn unanswered_wish_does_not_claim_that_nothing_changed() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[ENDS]).await;
        let began = clock.mono();
        world.store.fault("requests/0", Fault::LostReply, None);
        let unsure = world.dir.insist_on(MORE, "somebody", &*clock).await.unwrap_err();
        assert!(matches!(unsure, JobDirError::Unsure(_)), "{unsure}");
        assert!(clock.mono() - began < HANDFUL, "{:?}", clock.mono() - began);
        world.store.mend();
        assert_eq!(world.dir.requests().await.unwrap().len(), 1, "it was left, once");
        // Before anything is written nothing can have been.
        world.store.fault("requests/", Fault::Down, None);
        let read = world.dir.insist_on(MORE, "somebody", &*clock).await.unwrap_err();
        assert!(matches!(read, JobDirError::Store(_)), "{read}");
    });
}

/// A tick is a retry: nothing of a controller waits inside it while a store is down.
#[test]
fn who_does_not_wait_for_an_answer_is_told_at_once() {
    simulate(async |clock| {
        let world = World::new(clock.clone(), &[ENDS]).await;
        let began = clock.mono();
        world.store.fault("", Fault::Down, None);
        assert!(matches!(
            world.dir.add_request(MORE, "a controller", clock.now()).await,
            Err(JobDirError::Store(_))
        ));
        assert!(submit(&(world.store.clone() as Arc<dyn Store>), &world.spec, None).await.is_err());
        assert_eq!(clock.mono(), began);
    });
}
