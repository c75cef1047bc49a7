//! Agents that die young, one after the other: they must not hold a lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::job::{AttemptNo, AttemptPhase};
use lamplighter::ports::{Clock, Store};
use lamplighter::sim::SimProcess;
use serde_json::json;

use crate::secs;
use crate::startup::agent_deaths::Stage;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

/// When it beat last, and the deadline of its switch.
async fn signs(stage: &Stage) -> (Timestamp, String) {
    let beat = stage
        .rig
        .store
        .head("jobs/digits-222222/attempts/0001/status.json")
        .await
        .expect("the store answers")
        .expect("it has beaten");
    (
        beat.modified,
        std::fs::read_to_string(&stage.switch_files.as_ref().expect("it has a switch").deadline)
            .expect("it was told"),
    )
}

/// So many lives, each as long as that, with two seconds between them.
async fn lives(stage: &Stage, clock: &VirtualClock, many: u32, each: Duration) {
    for _ in 0..many {
        tokio::select! {
            died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
            () = clock.sleep(each) => {}
        }
        clock.sleep(secs(2)).await;
    }
}

/// Seed 911134: 2,800 agents died, each of them beat, and the machine billed for three hours of
/// idle work.
#[test]
fn agents_that_keep_dying_let_the_lease_and_the_deadline_lapse() {
    simulate(async |clock: Arc<VirtualClock>| {
        let stage = Stage::limited(
            clock.clone(),
            20_000,
            json!({}),
            Some(clock.now() + Duration::from_secs(5 * 3600)),
        )
        .await;
        lives(&stage, &clock, 9, secs(20)).await;
        let (before, _) = signs(&stage).await;
        assert!(
            clock.now().duration_since(before).unsigned_abs() < secs(30),
            "a few lives are no row"
        );
        lives(&stage, &clock, 1, secs(20)).await;
        let file = stage.switch_files.clone().expect("it has a switch").deadline;
        std::fs::write(&file, "1\n").expect("its folder is there");
        let (last, _) = signs(&stage).await;
        lives(&stage, &clock, 10, secs(55)).await;
        lives(&stage, &clock, 30, secs(9 * 60)).await;
        assert_eq!(
            signs(&stage).await,
            (last, "1\n".to_owned()),
            "nobody takes them for one that lives"
        );
        // One that lives for longer is heard again, and after ten minutes the row is forgotten.
        lives(&stage, &clock, 1, secs(11 * 60)).await;
        let (heard, deadline) = signs(&stage).await;
        assert!(
            clock.now().duration_since(heard).unsigned_abs() < secs(30) && deadline != "1\n",
            "{heard}: {deadline}"
        );
        let quick = clock.now();
        lives(&stage, &clock, 1, secs(20)).await;
        assert!(signs(&stage).await.0 > quick);
        assert_eq!(stage.machine.trainings(), 1, "its work was never begun anew");
    });
}

/// Seed 65021981 of 24 h: a machine was rebooted while it powered itself off, the agent after that
/// was quiet, and its minute was billed beside the receipt.
#[test]
fn quiet_agent_has_a_last_word_before_the_power_switch() {
    simulate(async |clock: Arc<VirtualClock>| {
        let stage = Stage::limited(
            clock.clone(),
            300,
            json!({}),
            Some(clock.now() + Duration::from_secs(5 * 3600)),
        )
        .await;
        lives(&stage, &clock, 12, secs(20)).await;
        let quiet_from = clock.now();
        assert!(signs(&stage).await.0 < quiet_from - secs(30), "it is quiet");
        assert!(!stage.live(SimProcess::new(None)).await, "its work ends, and it with it");
        let told = stage
            .rig
            .dir()
            .status(AttemptNo::FIRST)
            .await
            .expect("the store works")
            .expect("it has told");
        assert_eq!(told.phase, AttemptPhase::Ended);
        assert!(clock.now() < quiet_from + secs(60), "it was quiet to its end");
        assert!(signs(&stage).await.0 > quiet_from);
    });
}
