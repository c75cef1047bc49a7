//! Ends that no work stands behind: a store that is gone for good, somebody else's lease, a machine
//! without its GPUs.

use std::sync::atomic::Ordering;

use lamplighter::instance::Reading;
use lamplighter::job::{AttemptNo, EndedBecause, ExitStatus, Lease, RECORD_FORMAT};
use lamplighter::ports::Clock as _;
use lamplighter::sim::SimProcess;

use crate::startup::agent_deaths::Stage;
use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

/// What cannot be sent is waited for, but not for ever: a machine that only waits bills too.
#[test]
fn ended_machine_without_a_store_goes_out_after_half_an_hour() {
    for fault in [Fault::Down, Fault::Denied, Fault::Hang] {
        let named = format!("{fault:?}");
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            std::fs::create_dir_all(rig.path("work")).expect("writable");
            std::fs::write(rig.path("work").join("model.pt"), "weights").expect("writable");
            let ends = async {
                clock.sleep(secs(60)).await;
                rig.store.fault("", fault, None);
                machine.end(ExitStatus { code: Some(0), ..ExitStatus::default() });
                clock.mono()
            };
            let agent = machine.agent(&rig, r#"{"outputs": ["*.pt"]}"#);
            let (finish, ended) = tokio::join!(agent.run(), ends);
            let lit = clock.mono() - ended;
            assert!(
                machine.is_off() && finish.because == EndedBecause::Succeeded,
                "{named}: {finish:?}"
            );
            assert!(lit >= secs(20 * 60), "{named}: it tried for {lit:?}");
            assert!(lit <= secs(32 * 60), "{named}: it bills for {lit:?}");
        });
    }
}

/// The outcome is what everybody else acts on: without it a job that succeeded is taken for lost.
#[test]
fn one_call_that_hangs_does_not_cost_the_outcome() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        rig.store.fault("outcome.json", Fault::Hang, 2);
        let ends = async {
            clock.sleep(secs(60)).await;
            machine.end(ExitStatus { code: Some(0), ..ExitStatus::default() });
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, "{}").run(), ends);
        assert_eq!(finish.because, EndedBecause::Succeeded);
        assert_eq!(rig.outcome().await.because, EndedBecause::Succeeded);
    });
}

/// It is told apart by its id, and not by an address that somebody else may have had before.
#[test]
fn machine_that_finds_a_foreign_lease_runs_nothing_and_goes_out() {
    simulate(async |clock| {
        let stage = Stage::limited(clock.clone(), 12, serde_json::json!({}), None).await;
        let theirs = Lease {
            format: RECORD_FORMAT,
            instance: "i-2".into(),
            nonce: "theirs".into(),
            taken: clock.now(),
        };
        stage.rig.dir().take_lease(AttemptNo::FIRST, &theirs).await.expect("it is free");
        let begun = clock.mono();
        assert!(!stage.live(SimProcess::new(None)).await, "it ends by itself");
        assert!(
            stage.machine.is_dark() && clock.mono() - begun <= secs(15),
            "{:?}",
            clock.mono() - begun
        );
        assert_eq!((stage.machine.setups(), stage.machine.trainings()), (0, 0));
        let lease = stage
            .rig
            .dir()
            .lease(AttemptNo::FIRST)
            .await
            .expect("the store answers")
            .expect("it stands");
        assert_eq!((lease.instance.as_str(), lease.nonce.as_str()), ("i-2", "theirs"));
    });
}

/// A workload that has written its mark and hangs: its loggers have five minutes, `term_grace` is
/// for what ignores SIGTERM, and what it did is a success.
#[test]
fn done_workload_that_hangs_is_a_success_within_seven_minutes() {
    for stubborn in [false, true] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            machine.stubborn.store(stubborn, Ordering::Relaxed);
            std::fs::create_dir_all(rig.path("work")).expect("writable");
            let marks = async {
                clock.sleep(secs(60)).await;
                std::fs::write(rig.path("work").join("finished"), "").expect("writable");
                let marked = clock.mono();
                clock.sleep(secs(299)).await;
                assert!(!machine.has_ended(), "its loggers have five minutes");
                marked
            };
            let agent = machine.agent(&rig, r#"{"watch": {"done_marker": "finished"}}"#);
            let (finish, marked) = tokio::join!(agent.run(), marks);
            let took = clock.mono() - marked;
            assert!(
                machine.is_off()
                    && machine.has_ended()
                    && finish.because == EndedBecause::Succeeded,
                "{finish:?}"
            );
            assert_eq!(rig.outcome().await.because, EndedBecause::Succeeded);
            assert!((secs(300)..=secs(7 * 60)).contains(&took), "out {took:?} after its mark");
            assert_eq!(
                took >= secs(330),
                stubborn,
                "half a minute of grace for what ignores SIGTERM: {took:?}"
            );
        });
    }
}

#[test]
fn machine_without_the_bought_gpus_goes_out_before_any_start() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.show(|now| now.gpus = Reading::Known(Vec::new()));
        let begun = clock.mono();
        let finish = machine
            .agent(&rig, r#"{"machine": {"gpus": "A10G:1"}, "setup": "install"}"#)
            .run()
            .await;
        assert_eq!((finish.because, machine.starts()), (EndedBecause::PreflightFailed, 0));
        let lit = clock.mono() - begun;
        assert!(machine.is_off() && lit <= secs(5 * 60), "{lit:?}");
        let reasons = rig.outcome().await.reasons;
        assert!(
            reasons.iter().any(|reason| reason
                .text
                .contains("the job asks for A10G:1, and this machine has none")),
            "{reasons:?}"
        );
    });
}
