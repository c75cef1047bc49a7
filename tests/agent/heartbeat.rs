//! One a minute while the loop lives, at once when something changes, and never a queue.

use lamplighter::agent::report::heartbeat::Heartbeat;
use lamplighter::instance::Status;
use lamplighter::job::{AttemptNo, AttemptPhase, RECORD_FORMAT};
use lamplighter::market::Span;
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

fn status(phase: AttemptPhase, verdict: &str, clock: &dyn Clock) -> Status {
    Status {
        format: RECORD_FORMAT,
        instance: "i-1".into(),
        sequence: 0,
        at: clock.now(),
        phase,
        started: clock.now(),
        verdict: verdict.into(),
        metric: None,
        reason: None,
        progress: None,
        gpus: Vec::new(),
        cpu_percent: None,
        memory_bytes: None,
        useful: Span::ZERO,
        idle: Span::ZERO,
        last_checkpoint: None,
        checkpoints: 0,
        working_since: None,
        saved: Span::ZERO,
        notice: None,
        starts: 1,
        held_until: None,
        unmeasured: false,
        keeps: true,
        doubts: false,
        attention_kinds: Vec::new(),
        attention: Vec::new(),
        exit: None,
    }
}

#[test]
fn it_beats_every_fifteen_seconds_and_stops_with_the_loop() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        for _ in 0..600 {
            heartbeat.update(status(AttemptPhase::Running, "busy", &*clock));
            clock.sleep(secs(1)).await;
        }
        let beats = rig.store.writes("status.json").len();
        assert!((40..=41).contains(&beats), "{beats} in ten minutes");
        // The loop hangs: no more news, no more beats.
        clock.sleep(secs(600)).await;
        assert!(rig.store.writes("status.json").len() <= beats + 1);
        let last = rig.dir().status(AttemptNo::FIRST).await.unwrap().unwrap();
        assert_eq!(last.sequence, rig.store.writes("status.json").len() as u64);
    });
}

#[test]
fn heartbeat_change_is_written_at_once_but_at_most_each_second() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        for number in 0..100 {
            heartbeat.update(status(
                AttemptPhase::Running,
                if number % 2 == 0 { "busy" } else { "idle" },
                &*clock,
            ));
            clock.sleep(std::time::Duration::from_millis(100)).await;
        }
        let beats = rig.store.writes("status.json").len();
        assert!((9..=11).contains(&beats), "{beats} in ten seconds of flapping");
    });
}

#[test]
fn slow_store_gets_the_newest_beat_and_numbers_survive_a_crash() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        rig.store.fault("status.json", Fault::Down, None);
        for number in 0..1200 {
            heartbeat.update(status(
                AttemptPhase::Running,
                if number % 2 == 0 { "busy" } else { "idle" },
                &*clock,
            ));
            clock.sleep(secs(1)).await;
        }
        assert_eq!(heartbeat.written_at(), None);
        rig.store.mend();
        heartbeat.update(status(AttemptPhase::Draining, "busy", &*clock));
        assert!(heartbeat.flush(secs(5)).await);
        let writes = rig.store.writes("status.json");
        assert_eq!(writes.len(), 1, "nothing was queued");
        let first = rig.dir().status(AttemptNo::FIRST).await.unwrap().unwrap();
        assert_eq!(first.phase, AttemptPhase::Draining);
        drop(heartbeat);
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        heartbeat.update(status(AttemptPhase::Ended, "busy", &*clock));
        assert!(heartbeat.flush(secs(5)).await);
        let second = rig.dir().status(AttemptNo::FIRST).await.unwrap().unwrap();
        assert!(second.sequence > first.sequence);
    });
}

/// Seed 7007445 of 24 h of the false world: a store was down for longer than a lease. Who swept
/// after that looked twice, a minute apart, and ended useful work, because its agent was still
/// waiting to try again.
#[test]
fn heartbeat_after_a_long_outage_comes_before_a_second_look() {
    for fault in [Fault::Down, Fault::Hang, Fault::Denied] {
        for outage in [2280, 2297, 2311, 2334] {
            simulate(async |clock| {
                let rig = Rig::new(clock.clone());
                let heartbeat = Heartbeat::start(rig.outbox(), true);
                rig.store.fault("", fault, None);
                let second = async || {
                    heartbeat.update(status(AttemptPhase::Running, "busy", &*clock));
                    clock.sleep(secs(1)).await;
                };
                for _ in 0..outage {
                    second().await;
                }
                rig.store.mend();
                for _ in 0..40 {
                    second().await;
                }
                assert!(!rig.store.writes("status.json").is_empty(), "{fault:?} for {outage} s");
            });
        }
    }
}

#[test]
fn numbers_that_a_full_disk_did_not_keep_are_not_used_again() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        for number in 0..250 {
            rig.files.full.store(number > 50, std::sync::atomic::Ordering::Relaxed);
            heartbeat.update(status(
                AttemptPhase::Running,
                if number % 2 == 0 { "busy" } else { "idle" },
                &*clock,
            ));
            clock.sleep(secs(1)).await;
        }
        drop(heartbeat);
        // Seed 1449 of the false world: and the first look at what the store holds fails.
        for fails in [0, 1] {
            let first = rig.dir().status(AttemptNo::FIRST).await.unwrap().unwrap();
            if fails > 0 {
                rig.store.fault("status.json", Fault::Down, fails);
            }
            let heartbeat = Heartbeat::start(rig.outbox(), true);
            heartbeat.update(status(AttemptPhase::Ended, "busy", &*clock));
            assert!(heartbeat.flush(secs(5)).await);
            let second = rig.dir().status(AttemptNo::FIRST).await.unwrap().unwrap();
            assert!(
                second.sequence > first.sequence,
                "{} after {}",
                second.sequence,
                first.sequence
            );
            drop(heartbeat);
        }
    });
}

#[test]
fn flush_ends_at_its_deadline() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        rig.store.fault("status.json", Fault::Hang, None);
        heartbeat.update(status(AttemptPhase::Ended, "busy", &*clock));
        let before = clock.mono();
        assert!(!heartbeat.flush(secs(3)).await);
        assert_eq!(clock.mono() - before, secs(3));
    });
}

#[test]
fn what_a_controller_acts_on_is_in_the_news_and_nothing_else() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), true);
        let tell = async |phase, verdicts: [&str; 2]| {
            for number in 0..300 {
                heartbeat.update(status(phase, verdicts[number % 2], &*clock));
                clock.sleep(secs(1)).await;
            }
        };
        tell(AttemptPhase::Running, ["busy", "idle"]).await;
        assert_eq!(
            rig.store.writes("0001-phase").len(),
            1,
            "what the verdict is makes nobody read it"
        );
        assert!((5..=6).contains(&rig.store.writes("0001-beat").len()), "one a minute");
        tell(AttemptPhase::Draining, ["busy", "busy"]).await;
        assert_eq!(rig.store.writes("0001-phase").len(), 2);
        let news = lamplighter::jobdir::news(rig.store.as_ref()).await.unwrap();
        assert!(news[rig.dir().job()].beat(AttemptNo::FIRST).is_some());
    });
}

#[test]
fn undriven_agent_writes_no_news() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let heartbeat = Heartbeat::start(rig.outbox(), false);
        heartbeat.update(status(AttemptPhase::Running, "busy", &*clock));
        clock.sleep(secs(60)).await;
        assert_eq!(rig.store.writes("status.json").len(), 1);
        assert_eq!(rig.store.keys("news/"), Vec::<String>::new());
    });
}
