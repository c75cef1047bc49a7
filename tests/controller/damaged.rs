//! Records that a power cut has torn.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::job::{AttemptNo, EndedBecause};
use lamplighter::jobdir::layout;
use lamplighter::ports::Clock;

use super::World;
use super::cloud::Life;
use super::support::virtual_clock::{VirtualClock, simulate};

#[test]
fn a_torn_heartbeat_and_a_torn_journal_do_not_make_a_job_immortal() {
    simulate(async |clock: Arc<VirtualClock>| {
        let world = World::new(clock.clone(), &[Life::Taken { secs: 100 }, Life::Ends { secs: 5, code: 0 }]).await;
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
        let becauses: Vec<EndedBecause> = receipt.attempts.iter().map(|attempt| attempt.ended_because).collect();
        assert_eq!(becauses, [EndedBecause::Interrupted, EndedBecause::Succeeded]);
        assert_eq!(world.dir.events(first).await.unwrap().len(), 1, "the whole line is still told");
    });
}
