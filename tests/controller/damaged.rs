//! Records that a power cut has torn.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{AttemptNo, EndedBecause, JobOutcome, Wish};
use lamplighter::jobdir::layout;
use lamplighter::ports::Clock;

use crate::World;
use crate::cloud::Life;
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

#[test]
fn job_with_torn_heartbeat_and_torn_journal_still_ends() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(
            clock.clone(),
            &[Life::Taken { secs: 100 }, Life::Ends { secs: 5, code: 0 }],
        )
        .await;
        let (controller, first) = (world.controller(), AttemptNo::FIRST);
        let torn = async {
            clock.sleep(Duration::from_secs(50)).await;
            world.store.set(&layout::status(world.job(), first), Some(b""));
            world.store.set(
                &layout::event_batch(world.job(), first, 1),
                Some(b"{\"seq\": 1, \"at\": \"2026-01-01T00:00:00Z\", \"kind\": \"loss\", \"text\": \"whole\"}\n{\"seq\": 2, \"at\""),
            );
            clock.sleep(Duration::from_secs(3600)).await;
        };
        let receipt = tokio::select! {
            receipt = controller.drive(world.job()) => receipt.unwrap(),
            () = torn => panic!("the job never ends"),
        };
        world.check(&receipt).await;
        let becauses: Vec<EndedBecause> =
            receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
        assert_eq!(becauses, [EndedBecause::Interrupted, EndedBecause::Succeeded]);
        assert_eq!(world.dir.events(first).await.unwrap().len(), 1, "the whole line is still told");
    });
}

/// Seed 6003105 of 24 h: an agent that died every few seconds for hours left 6,000 batches, and the
/// end of its job waited 13 minutes for them.
#[test]
fn journal_of_thousands_of_batches_does_not_hold_up_the_end() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(
            clock.clone(),
            &[Life::Taken { secs: 100 }, Life::Ends { secs: 5, code: 0 }],
        )
        .await;
        for batch in 1..=6000 {
            let line = b"{\"seq\": 1, \"at\": \"2026-01-01T00:00:00Z\", \"kind\": \"loss\", \"text\": \"again\"}";
            world.store.set(&layout::event_batch(world.job(), AttemptNo::FIRST, batch), Some(line));
        }
        world.store.fault("/events/", Fault::Slow(Duration::from_millis(30)), None);
        let began = clock.mono();
        let receipt = world.drive().await;
        world.check(&receipt).await;
        let took = clock.mono().saturating_sub(began);
        assert!(took < Duration::from_secs(180), "{took:?}");
    });
}

/// As power cuts and other programs leave them.
const DAMAGED: [&[u8]; 4] =
    [b"", b"{\"format\": 1, \"instance\": \"i-", b"\0\0\0\0\0\0\0\0", b"[\"not\", \"ours\"]"];

const FIRST_OUTCOME: &str = "attempts/0001/outcome.json";
const FIRST_LEASE: &str = "attempts/0001/lease.json";

#[test]
fn unreadable_outcome_of_a_gone_machine_is_told_in_the_receipt() {
    for damage in DAMAGED {
        simulate(async |clock: Arc<VirtualClock>| {
            let world = World::new(clock, &[Life::Ends { secs: 60, code: 0 }]).await;
            world.store.tear(FIRST_OUTCOME, damage);
            let receipt = world.drive().await;
            world.check(&receipt).await;
            // Whether it succeeded nobody can say, so it goes on from its checkpoint.
            let becauses: Vec<EndedBecause> =
                receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
            assert_eq!(becauses, [EndedBecause::Lost, EndedBecause::Succeeded]);
            assert!(
                receipt.losses[0].starts_with("the outcome of attempt 1 could not be read"),
                "{:?}",
                receipt.losses
            );
            assert_eq!(
                (receipt.attempts[0].billed_seconds, receipt.checkpoints),
                (61.0, 1),
                "the heartbeat's part is told"
            );
            let settled = world.dir.settled(AttemptNo::FIRST).await.unwrap().unwrap();
            assert!(
                settled
                    .outcome
                    .unwrap()
                    .reasons
                    .last()
                    .unwrap()
                    .text
                    .contains("the outcome that its agent left could not be read")
            );
        });
    }
}

#[test]
fn receipt_comes_with_lease_heartbeat_and_outcome_damaged() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::with(clock, &[Life::Ends { secs: 60, code: 0 }], |spec| {
            spec.interruptions.max = 0
        })
        .await;
        for part in [FIRST_LEASE, FIRST_OUTCOME, "attempts/0001/status.json"] {
            world.store.tear(part, b"");
        }
        let receipt = world.drive().await;
        world.check(&receipt).await;
        assert_eq!((receipt.outcome, receipt.attempts.len()), (JobOutcome::Failed, 1));
        assert!(
            receipt.reason.contains("the outcome that its agent left could not be read"),
            "{}",
            receipt.reason
        );
        assert_eq!(receipt.losses.len(), 1);
    });
}

#[test]
fn damaged_outcome_ends_no_machine_that_lives() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Endless]).await;
        let controller = world.controller();
        let (receipt, ()) = tokio::join!(controller.drive(world.job()), async {
            clock.sleep(Duration::from_secs(100)).await;
            world.store.set(&layout::outcome(world.job(), AttemptNo::FIRST), Some(b"garbage"));
            clock.sleep(Duration::from_secs(7200)).await;
            assert_eq!(world.cloud.running(), ["i-1"], "it is heard");
            assert_eq!(world.store.keys("settled.json"), Vec::<String>::new());
            world.wish(Wish::Stop).await;
        });
        let receipt = receipt.unwrap();
        world.check(&receipt).await;
        assert_eq!((receipt.outcome, receipt.attempts.len()), (JobOutcome::Stopped, 1));
    });
}

#[test]
fn damaged_lease_counts_as_a_machine_that_came_up() {
    for damage in DAMAGED {
        simulate(async |clock: Arc<VirtualClock>| {
            let world =
                World::new(clock.clone(), &[Life::FallsSilent, Life::Ends { secs: 5, code: 0 }])
                    .await;
            world.store.tear(FIRST_LEASE, damage);
            let receipt = world.drive().await;
            world.check(&receipt).await;
            assert_eq!(receipt.attempts.len(), 2);
            // Not the quarter of an hour of a machine that never came up.
            let billed = receipt.attempts[0].billed_seconds;
            assert!((1800.0..1830.0).contains(&billed), "{billed}");
            assert_eq!(world.cloud.launches(), 2);
        });
    }
}
