//! The last save of an attempt, while one that was asked for earlier is being written.

use std::sync::atomic::Ordering;

use lamplighter::instance::{Notice, NoticeKind};
use lamplighter::job::{AttemptNo, Wish};
use lamplighter::ports::Clock as _;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::virtual_clock::simulate;

const SPEC: &str =
    r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "100s", "signal": "SIGUSR1"}}"#;

/// A machine is to be taken in two minutes. The workload begins to write so many seconds after it
/// was asked, and takes so many over it, the first time; how often it was asked until the machine
/// goes, and how many checkpoints are complete then.
async fn interrupted(rig: &Rig, thinks: u64, writes: u64) -> (u64, u32) {
    let machine = Played::new(rig);
    let folder = rig.path("work").join("ckpt");
    std::fs::create_dir_all(&folder).expect("writable");
    let agent = machine.agent(rig, SPEC).run();
    let world = async {
        rig.clock.sleep(secs(60)).await;
        let at = rig.clock.now() + secs(120);
        let gone = rig.clock.mono() + secs(120);
        machine.notice(NoticeKind::Interruption, at);
        while machine.asked.load(Ordering::Relaxed) == 0 && rig.clock.mono() < gone {
            rig.clock.sleep(secs(1)).await;
        }
        rig.clock.sleep(secs(thinks)).await;
        for second in 0..writes {
            std::fs::write(folder.join("model.pt"), vec![7; 1000 + second as usize])
                .expect("writable");
            rig.clock.sleep(secs(1)).await;
        }
        rig.clock.sleep(gone.saturating_sub(rig.clock.mono())).await;
    };
    tokio::select! {
        finish = agent => panic!("an interruption ends with the power: {finish:?}"),
        () = world => {}
    }
    let manifests = rig.dir().checkpoint_numbers().await.expect("the store answers");
    (machine.asked.load(Ordering::Relaxed), manifests.len() as u32)
}

/// A handler that is entered a second time writes into the file that it is writing.
#[test]
fn running_save_gets_no_second_request() {
    simulate(async |clock| {
        let rig = Rig::new(clock);
        assert_eq!(interrupted(&rig, 1, 80).await, (1, 1));
        assert!(rig.dir().outcome(AttemptNo::FIRST).await.expect("the store answers").is_none());
    });
}

/// What a machine is told while its workload writes for forty seconds what it was asked for: how
/// often it was asked within two minutes, and how many checkpoints are complete by then.
async fn asked_meanwhile(
    rig: &Rig,
    machine: &Played,
    first: impl AsyncFnOnce(),
    second: impl AsyncFnOnce(),
    spec: &str,
) -> (u64, usize) {
    let folder = rig.path("work").join("ckpt");
    std::fs::create_dir_all(&folder).expect("writable");
    let asked = || machine.asked.load(Ordering::Relaxed);
    let world = async {
        rig.clock.sleep(secs(60)).await;
        let begun = rig.clock.mono();
        first().await;
        while asked() == 0 {
            rig.clock.sleep(secs(1)).await;
        }
        let writes = async {
            let mut saved = 0;
            while rig.clock.mono() < begun + secs(100) {
                for second in 0..40 {
                    std::fs::write(
                        folder.join("model.pt"),
                        vec![7; 1000 * asked() as usize + second],
                    )
                    .expect("writable");
                    rig.clock.sleep(secs(1)).await;
                    assert!(
                        second == 39 || asked() == saved + 1,
                        "its handler was entered a second time after {second} s"
                    );
                }
                saved += 1;
                while asked() == saved && rig.clock.mono() < begun + secs(100) {
                    rig.clock.sleep(secs(1)).await;
                }
            }
        };
        let tells = async {
            rig.clock.sleep(secs(10)).await;
            second().await;
        };
        tokio::join!(writes, tells);
    };
    tokio::select! {
        finish = machine.agent(rig, spec).run() => panic!("nothing ends it: {finish:?}"),
        () = world => {}
    }
    (asked(), rig.dir().checkpoint_numbers().await.expect("the store answers").len())
}

/// A recommendation, and ten seconds later the notice: the save that is under way counts for both.
#[test]
fn notice_while_a_save_is_under_way_asks_for_no_other() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let says = |kind, left| machine.notice(kind, clock.now() + secs(left));
        let first = async || says(NoticeKind::Rebalance, 0);
        let found = asked_meanwhile(
            &rig,
            &machine,
            first,
            async || says(NoticeKind::Interruption, 120),
            SPEC,
        )
        .await;
        assert_eq!(found, (1, 1), "and the last save is still to come");
        let alarms = rig.attention().await;
        assert!(
            !alarms.iter().any(|text| text.contains("no complete checkpoint came")),
            "{alarms:?}"
        );
    });
}

/// Two people ask for a checkpoint: the second has theirs once the first is whole.
#[test]
fn checkpoint_wished_for_during_another_is_made_after_it() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let wishes = async || {
            rig.dir()
                .add_request(Wish::Checkpoint, "somebody", clock.now())
                .await
                .expect("the store takes it");
        };
        assert_eq!(asked_meanwhile(&rig, &machine, wishes, wishes, SPEC).await, (2, 2));
        assert_eq!(rig.attention().await, [""; 0]);
    });
}

/// A recommendation of whose save nothing came says nothing of the notice that followed on it.
#[test]
fn notice_asks_for_a_save_where_the_save_under_way_gave_nothing() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let says = |kind, left| machine.notice(kind, clock.now() + secs(left));
        let world = async {
            clock.sleep(secs(60)).await;
            says(NoticeKind::Rebalance, 0);
            clock.sleep(secs(10)).await;
            says(NoticeKind::Interruption, 240);
            clock.sleep(secs(10)).await;
            assert_eq!(machine.asked.load(Ordering::Relaxed), 1);
            clock.sleep(secs(20)).await;
            assert_eq!(
                machine.asked.load(Ordering::Relaxed),
                2,
                "thirty seconds of grace are over"
            );
        };
        let spec = SPEC.replace("100s", "30s");
        tokio::select! {
            finish = machine.agent(&rig, &spec).run() => panic!("nothing ends it: {finish:?}"),
            () = world => {}
        }
    });
}

/// Somebody stops the job while a save that was asked for earlier is being written: what a job can
/// cost at most has room for one grace, and not for what is left of the first and a second whole
/// one.
#[test]
fn stop_while_a_save_is_under_way_takes_one_grace_in_all() {
    simulate(async |clock| {
        let rig = Rig::new(clock);
        let machine = Played::new(&rig);
        let folder = rig.path("work").join("ckpt");
        std::fs::create_dir_all(&folder).expect("writable");
        let agent = machine.agent(&rig, SPEC).run();
        let world = async {
            rig.clock.sleep(secs(60)).await;
            let notice = Notice {
                kind: NoticeKind::Rebalance,
                at: rig.clock.now(),
                detail: "rebalance".into(),
            };
            machine.notices.lock().expect("nobody panics with it").push(notice);
            while machine.asked.load(Ordering::Relaxed) == 0 {
                rig.clock.sleep(secs(1)).await;
            }
            let mut stopped_at = None;
            for second in 0..90 {
                if second == 50 {
                    rig.dir()
                        .add_request(Wish::Stop, "somebody", rig.clock.now())
                        .await
                        .expect("the store takes it");
                    stopped_at = Some(rig.clock.mono());
                }
                std::fs::write(folder.join("model.pt"), vec![7; 1000 + second]).expect("writable");
                rig.clock.sleep(secs(1)).await;
            }
            stopped_at.expect("it was stopped")
        };
        let ended = async {
            let finish = agent.await;
            (finish, rig.clock.mono())
        };
        let ((finish, at), stopped) = tokio::join!(ended, world);
        assert_eq!(finish.because, lamplighter::job::EndedBecause::UserStopped);
        let took = at.saturating_sub(stopped).as_secs();
        assert!((40..125).contains(&took), "one grace is 100 s: {took} s");
        assert_eq!(
            rig.dir().checkpoint_numbers().await.expect("the store answers").len(),
            1,
            "what was under way is whole"
        );
    });
}

/// A reboot or a retirement that the cloud has scheduled, in half an hour: an early save, then
/// work, and the last save ten minutes before. What is called off is forgotten, and the work goes
/// on.
#[test]
fn scheduled_event_is_saved_for_at_once_and_ten_minutes_before() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let folder = rig.path("work").join("ckpt");
        std::fs::create_dir_all(&folder).expect("writable");
        let asked = || machine.asked.load(Ordering::Relaxed);
        let event = |minutes: u64| Notice {
            kind: NoticeKind::Maintenance,
            at: clock.now() + secs(60 * minutes),
            detail: "instance-reboot".into(),
        };
        let says = |notices: Vec<Notice>| {
            *machine.notices.lock().expect("nobody panics with it") = notices
        };
        // Writes a checkpoint each time it is asked; gives when that was.
        let saves = async {
            let mut saved = Vec::new();
            loop {
                if asked() > saved.len() as u64 {
                    saved.push(clock.mono());
                    std::fs::write(folder.join("model.pt"), vec![7; 1000 + saved.len()])
                        .expect("writable");
                }
                if machine.has_ended() {
                    break saved;
                }
                clock.sleep(secs(1)).await;
            }
        };
        let cloud = async {
            clock.sleep(secs(60)).await;
            says(vec![event(15)]);
            clock.sleep(secs(120)).await;
            says(Vec::new());
            clock.sleep(secs(1800)).await;
            assert!(!machine.has_ended() && asked() == 1, "it was called off: {} saves", asked());
            says(vec![event(30)]);
            clock.mono() + secs(1800)
        };
        let world = async {
            let (at, saved) = tokio::join!(cloud, saves);
            // Nobody takes it: the agent waits for that, and does not put it out.
            clock.sleep((at + secs(5)).saturating_sub(clock.mono())).await;
            assert!(!machine.is_off(), "the cloud has said that it will");
            (at, saved)
        };
        let (at, saved) = tokio::select! {
            finish = machine.agent(&rig, SPEC).run() => panic!("it ends with the power: {finish:?}"),
            found = world => found,
        };
        let left: Vec<u64> =
            saved.iter().map(|saved| at.saturating_sub(*saved).as_secs()).collect();
        assert_eq!(saved.len(), 3, "{left:?} s before the event");
        assert!((1790..=1800).contains(&left[1]), "at once: {left:?}");
        // Seen a second after the asking.
        assert!((595..=605).contains(&left[2]), "and ten minutes before: {left:?}");
        assert_eq!(
            rig.dir().checkpoint_numbers().await.expect("the store answers").len(),
            3,
            "all of them whole"
        );
    });
}
