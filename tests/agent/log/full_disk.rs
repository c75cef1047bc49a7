//! A disk without room: what is started or ended while nothing can be written down.

use std::sync::atomic::Ordering;

use lamplighter::job::{AttemptNo, EndedBecause, Outcome};
use lamplighter::ports::Clock as _;
use lamplighter::sim::SimProcess;

use crate::startup::agent_deaths::Stage;
use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::virtual_clock::simulate;

/// The setup has been started, and nothing more can be written down.
async fn fill_once_it_works(stage: &Stage) {
    while stage.machine.setups() == 0 {
        stage.rig.clock.sleep(secs(1)).await;
    }
    stage.rig.files.full.store(true, Ordering::Relaxed);
}

/// One that is not written down would be made once more by the next agent.
#[test]
fn start_waits_until_it_can_be_written_down() {
    simulate(async |clock| {
        let stage = Stage::limited(clock.clone(), 12, serde_json::json!({}), None).await;
        let room = async {
            fill_once_it_works(&stage).await;
            clock.sleep(secs(300)).await;
            let started = stage.machine.trainings();
            stage.rig.files.full.store(false, Ordering::Relaxed);
            started
        };
        let (died, started) = tokio::join!(stage.live(SimProcess::new(None)), room);
        assert!(!died && stage.machine.is_dark());
        assert_eq!((started, stage.machine.trainings()), (0, 1));
        assert_eq!(stage.rig.outcome().await.because, EndedBecause::Succeeded);
        assert!(
            stage
                .rig
                .attention()
                .await
                .iter()
                .any(|line| line.starts_with("a start cannot be written down on this machine"))
        );
    });
}

#[test]
fn disk_that_stays_full_ends_the_attempt() {
    simulate(async |clock| {
        let stage = Stage::limited(clock.clone(), 12, serde_json::json!({}), None).await;
        let full = async {
            fill_once_it_works(&stage).await;
            clock.mono()
        };
        let (died, since) = tokio::join!(stage.live(SimProcess::new(None)), full);
        assert!(
            !died && stage.machine.is_dark() && clock.mono() - since <= secs(15 * 60),
            "{:?}",
            clock.mono() - since
        );
        assert_eq!(
            (stage.machine.trainings(), stage.rig.outcome().await.because),
            (0, EndedBecause::Failed)
        );
    });
}

/// Nothing on the disk says that the attempt was being ended, and its workload is gone: only the
/// store knows.
#[test]
fn attempt_whose_outcome_is_written_is_not_started_again() {
    simulate(async |clock| {
        let stage = Stage::limited(clock.clone(), 60, serde_json::json!({}), None).await;
        tokio::select! {
            died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
            () = clock.sleep(secs(20)) => {}
        }
        stage.machine.vanish();
        let record = std::fs::read(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1/outcome.json"),
        )
        .expect("a record of ours");
        let outcome: Outcome = serde_json::from_slice(&record).expect("an outcome");
        let outcome =
            Outcome { attempt: AttemptNo::FIRST, because: EndedBecause::UserStopped, ..outcome };
        let _ = stage.rig.dir().create_outcome(&outcome).await.expect("the store works");
        assert!(!stage.live(SimProcess::new(None)).await && stage.machine.is_dark());
        assert_eq!(
            (stage.machine.trainings(), stage.rig.outcome().await.because),
            (1, EndedBecause::UserStopped)
        );
    });
}

/// Before anything is lost, and without a word on that disk: within a minute it is in the
/// heartbeat, once, and it goes when there is room again.
#[test]
fn disk_that_fills_up_is_told_within_a_minute_and_taken_back() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let told = async || {
            rig.status()
                .await
                .attention
                .into_iter()
                .filter(|line| line.contains("the disk of this machine is full"))
                .count()
        };
        let world = async {
            clock.sleep(secs(60)).await;
            assert_eq!(told().await, 0);
            // What is written and removed again in between is one time and not two.
            for (free_mib, expected) in [(10, 1), (100, 1), (10, 1), (500, 0)] {
                machine.show(|now| now.free_bytes = free_mib << 20);
                clock.sleep(secs(60)).await;
                assert_eq!(told().await, expected, "{free_mib} MiB are free");
            }
            assert!(!machine.has_ended(), "nothing is ended for it");
        };
        tokio::select! {
            finish = machine.agent(&rig, "{}").run() => panic!("its work goes on: {finish:?}"),
            () = world => {}
        }
        let events = rig.attention().await;
        assert_eq!(
            events.iter().filter(|text| text.contains("the disk of this machine")).count(),
            1,
            "{events:?}"
        );
    });
}
