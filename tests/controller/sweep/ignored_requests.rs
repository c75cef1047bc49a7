//! Stops that an agent does not heed.

use lamplighter::job::{AttemptNo, EndedBecause, JobOutcome, Wish};

use crate::World;
use crate::cloud::Life;
use lamp_test_support::virtual_clock::simulate;

/// It beats to the end of its work, and hears of nothing.
#[test]
fn stop_that_an_agent_ignores_still_ends_its_machine() {
    simulate(async |clock| {
        let world = World::new(clock, &[Life::Deaf]).await;
        let receipt = world.drive_asked(600, Wish::Stop).await;
        world.check(&receipt).await;
        assert_eq!(
            (receipt.outcome, receipt.attempts[0].ended_because),
            (JobOutcome::Stopped, EndedBecause::UserStopped)
        );
        assert!(
            (1500.0..1600.0).contains(&receipt.attempts[0].billed_seconds),
            "ten minutes, and a quarter of an hour: {receipt:?}"
        );
        let ending = world.dir.ending(AttemptNo::FIRST).await.unwrap().expect("it is recorded why");
        assert!(
            ending.why.contains("its agent, which lives, has not begun to end its work"),
            "{}",
            ending.why
        );
    });
}
