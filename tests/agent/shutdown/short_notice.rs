//! What shortens an end while it takes its time: a notice of the cloud, and the hard end of the
//! machine.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use lamplighter::instance::{Notice, NoticeKind};
use lamplighter::job::{EndedBecause, ExitStatus, Outcome, Wish};
use lamplighter::ports::Clock as _;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const OUTPUTS: &str = r#"{"outputs": ["*.pt"]}"#;

fn exit(code: i32) -> ExitStatus {
    ExitStatus { code: Some(code), ..ExitStatus::default() }
}

fn notice(kind: NoticeKind, at: Timestamp) -> Notice {
    Notice { kind, at, detail: "terminate".into() }
}

fn says(machine: &Played, notices: Vec<Notice>) {
    *machine.notices.lock().expect("nobody panics with it") = notices;
}

/// A minute of work, and what it leaves.
async fn works(rig: &Rig) {
    rig.clock.sleep(secs(60)).await;
    std::fs::write(rig.path("work").join("model.pt"), "weights").expect("writable");
}

/// A machine whose outputs do not arrive, until its power goes in the middle of it; what is told of
/// its attempt then.
async fn cut(rig: &Rig, machine: &Played, spec: &str, world: impl AsyncFnOnce()) -> Outcome {
    rig.store.fault("outputs/", Fault::Hang, None);
    tokio::select! {
        biased;
        () = world() => {}
        // It may have been quicker than the cloud.
        finish = machine.agent(rig, spec).run() => assert!(machine.is_off(), "{finish:?}"),
    }
    rig.outcome().await
}

/// Without an outcome it would be done again.
#[test]
fn done_work_keeps_its_outcome_when_notice_comes_during_uploads() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let outcome = cut(&rig, &machine, OUTPUTS, async || {
            works(&rig).await;
            machine.end(exit(0));
            clock.sleep(secs(60)).await;
            says(&machine, vec![notice(NoticeKind::Interruption, clock.now() + secs(120))]);
            clock.sleep(secs(30)).await;
            assert!(rig.status().await.notice.is_some(), "whoever looks sees it");
            clock.sleep(secs(70)).await;
            assert!(!machine.is_off(), "the time is used");
            clock.sleep(secs(20)).await;
        })
        .await;
        assert_eq!((outcome.because, outcome.exit), (EndedBecause::Succeeded, Some(exit(0))));
        assert!(
            outcome.losses.iter().any(|loss| loss == "output `model.pt` was not kept"),
            "{:?}",
            outcome.losses
        );
    });
}

/// A job that failed is not launched again, and one that nobody knows of is.
#[test]
fn work_that_ends_after_a_notice_keeps_its_outcome() {
    for (code, because) in [(0, EndedBecause::Succeeded), (3, EndedBecause::Failed)] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            let outcome = cut(&rig, &machine, OUTPUTS, async || {
                works(&rig).await;
                let gone = clock.mono() + secs(120);
                says(&machine, vec![notice(NoticeKind::Interruption, clock.now() + secs(120))]);
                clock.sleep(secs(20)).await;
                machine.end(exit(code));
                clock.sleep(gone - clock.mono()).await;
            })
            .await;
            assert_eq!((outcome.because, outcome.exit), (because, Some(exit(code))));
            assert!(
                outcome.losses.iter().any(|loss| loss == "output `model.pt` was not kept"),
                "{:?}",
                outcome.losses
            );
        });
    }
}

#[test]
fn work_done_before_the_hard_end_keeps_its_outcome_and_losses() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let mut machine = Played::new(&rig);
        machine.kill_at = Some(clock.now() + secs(240));
        let outcome = cut(&rig, &machine, OUTPUTS, async || {
            works(&rig).await;
            machine.end(exit(0));
            clock.sleep(secs(180)).await;
        })
        .await;
        assert_eq!(outcome.because, EndedBecause::Succeeded);
        assert!(
            outcome.losses.iter().any(|loss| loss == "output `model.pt` was not kept"),
            "{:?}",
            outcome.losses
        );
    });
}

/// The grace of a save may be longer than what the cloud leaves.
#[test]
fn stop_whose_last_save_a_notice_cuts_short_keeps_its_outcome() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.stubborn.store(true, Ordering::Relaxed);
        let spec = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "10m", "signal": "SIGUSR1"}, "watch": {"term_grace": "10m"}}"#;
        let outcome = cut(&rig, &machine, spec, async || {
            works(&rig).await;
            rig.dir()
                .add_request(Wish::Stop, "somebody", clock.now())
                .await
                .expect("the store takes it");
            clock.sleep(secs(30)).await;
            says(&machine, vec![notice(NoticeKind::Interruption, clock.now() + secs(120))]);
            clock.sleep(secs(120)).await;
        })
        .await;
        assert_eq!(outcome.because, EndedBecause::UserStopped);
        assert!(
            outcome.losses.iter().any(|loss| loss.starts_with("the last checkpoint is not kept")),
            "{:?}",
            outcome.losses
        );
    });
}

/// What was scheduled and is called off takes no time from the uploads.
#[test]
fn event_that_is_called_off_cuts_no_uploads() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        rig.store.fault("outputs/", Fault::Down, None);
        let world = async {
            works(&rig).await;
            says(&machine, vec![notice(NoticeKind::Maintenance, clock.now() + secs(1200))]);
            clock.sleep(secs(10)).await;
            machine.end(exit(0));
            clock.sleep(secs(60)).await;
            says(&machine, Vec::new());
            clock.sleep(secs(1440)).await;
            rig.store.mend();
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, OUTPUTS).run(), world);
        assert_eq!(
            (finish.because, rig.store.keys("outputs/").len()),
            (EndedBecause::Succeeded, 1)
        );
        assert_eq!(rig.outcome().await.losses, [""; 0]);
    });
}
