//! An agent that died and its successor: what was learned and what was promised is still there.

use lamplighter::instance::Reading;
use lamplighter::job::{AttemptPhase, EndedBecause, ExitStatus, Wish};
use lamplighter::market::Span;
use lamplighter::ports::Clock as _;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const SUCCESS: ExitStatus = ExitStatus { code: Some(0), signal: None, oom: false };

/// Works for this long, then rests for this long.
async fn spell(rig: &Rig, machine: &Played, works: bool, time: u64) {
    machine.show(|now| now.works = works);
    rig.clock.sleep(secs(time)).await;
}

#[test]
fn restarted_agent_has_not_forgotten_the_rhythm() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let spec = r#"{"watch": {"idle": {"window": "5m", "grace": "1m"}}}"#;
        let first = async {
            // An hour of work with one pause of four minutes in it: the job is known to rest so
            // long.
            spell(&rig, &machine, true, 1800).await;
            spell(&rig, &machine, false, 240).await;
            spell(&rig, &machine, true, 1800).await;
            let before = rig.status().await.reason.expect("a verdict has numbers");
            assert!((230.0..=245.0).contains(&before.numbers["longest_pause_secs"]), "{before:?}");
        };
        tokio::select! {
            finish = machine.agent(&rig, spec).run() => panic!("nothing ends it: {finish:?}"),
            () = first => {}
        }
        // Dead for twenty minutes, in which nothing works: nobody saw it, so nobody counts it.
        machine.show(|now| now.works = false);
        rig.clock.sleep(secs(1200)).await;
        let second = async {
            rig.clock.sleep(secs(600)).await;
            let after = rig.status().await.reason.expect("a verdict has numbers");
            assert_eq!(
                after.verdict, "busy",
                "ten minutes are within three times its own pause: {after:?}"
            );
            assert!((230.0..=245.0).contains(&after.numbers["longest_pause_secs"]), "{after:?}");
            assert!(after.numbers["worked_secs"] >= 3500.0, "{after:?}");
            assert!(
                after.numbers["quiet_secs"] <= 601.0,
                "the time of the dead agent does not count: {after:?}"
            );
        };
        let agent = machine.agent(&rig, spec).run();
        tokio::pin!(agent);
        tokio::select! {
            finish = &mut agent => panic!("ended by a rule that forgot: {finish:?}"),
            () = second => {}
        }
        let finish = agent.await;
        assert_eq!(finish.because, EndedBecause::Idle, "and after twelve minutes it is idle");
        assert_eq!(machine.starts(), 1);
    });
}

/// A person asks to keep a job that would end as idle after six minutes.
#[test]
fn quiet_job_is_kept_for_as_long_as_was_asked() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let spec = r#"{"watch": {"idle": {"window": "5m", "grace": "1m"}}}"#;
        let begun = clock.mono();
        let asks = async {
            spell(&rig, &machine, true, 120).await;
            machine.show(|now| now.works = false);
            let keep = Wish::Keep { time: Span::from_secs(3600) };
            rig.dir().add_request(keep, "me@here", clock.now()).await.expect("the store takes it");
            clock.sleep(secs(3500)).await;
            let status = rig.status().await;
            assert!(status.keeps, "so that `lamp extend --keep` may promise it");
            assert_eq!(status.phase, AttemptPhase::Running);
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, spec).run(), asks);
        let took = clock.mono().saturating_sub(begun).as_secs();
        assert_eq!(finish.because, EndedBecause::Idle);
        assert!((3720..=3790).contains(&took), "it ended {took} s after its start");
    });
}

/// The outcome holds the time that two agents watched.
#[test]
fn useful_and_unknown_time_survive_restart_of_agent() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let lives = async || {
            spell(&rig, &machine, true, 600).await;
            machine.show(|now| now.gpus = Reading::unknown("the driver does not answer"));
            spell(&rig, &machine, false, 600).await;
            machine.show(|now| now.gpus = Reading::Absent);
            spell(&rig, &machine, true, 60).await;
        };
        tokio::select! {
            finish = machine.agent(&rig, "{}").run() => panic!("nothing ends it: {finish:?}"),
            () = lives() => {}
        }
        let second = async {
            lives().await;
            machine.end(SUCCESS);
        };
        tokio::join!(machine.agent(&rig, "{}").run(), second);
        let outcome = rig.outcome().await;
        let secs = |span: Span| span.duration().as_secs();
        let (useful, unknown) = (secs(outcome.useful), secs(outcome.unknown));
        assert!(
            (1250..=1350).contains(&useful) && (1100..=1200).contains(&unknown),
            "useful {useful} s, unknown {unknown} s"
        );
    });
}

#[test]
fn kept_machine_stays_as_long_as_promised_over_an_agent_crash() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let spec = r#"{"on": {"success": {"keep": "1h"}}}"#;
        let held = async {
            rig.clock.sleep(secs(60)).await;
            machine.end(SUCCESS);
            rig.clock.sleep(secs(600)).await;
            let status = rig.status().await;
            assert_eq!(status.phase, AttemptPhase::Held);
            status.held_until.expect("it says until when")
        };
        let until = tokio::select! {
            finish = machine.agent(&rig, spec).run() => panic!("not yet: {finish:?}"),
            until = held => until,
        };
        rig.clock.sleep(secs(60)).await;
        let look = async {
            rig.clock.sleep(secs(60)).await;
            let status = rig.status().await;
            assert_eq!(
                (status.phase, status.held_until),
                (AttemptPhase::Held, Some(until)),
                "the promise stands"
            );
            assert_eq!(status.exit, Some(SUCCESS));
        };
        let agent = machine.agent(&rig, spec).run();
        tokio::pin!(agent);
        tokio::select! {
            finish = &mut agent => panic!("the hold is lost: {finish:?}"),
            () = look => {}
        }
        let finish = agent.await;
        let late = rig.clock.now().duration_since(until).as_secs();
        assert!((0..=5).contains(&late), "off when the hour is over, not later: {late} s");
        assert!(machine.is_off());
        assert_eq!((finish.because, finish.exit), (EndedBecause::Succeeded, Some(SUCCESS)));
        assert_eq!((machine.starts(), rig.outcome().await.because), (1, EndedBecause::Succeeded));
    });
}

#[test]
fn granted_time_stays_granted_over_a_crash_and_a_store_outage() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let spec = r#"{"limits": {"max_runtime": "1h"}}"#;
        let extended = async {
            rig.clock.sleep(secs(600)).await;
            let more = Wish::Extend {
                time: Some(Span::from_secs(3600)),
                budget: None,
                fallback_cost: None,
            };
            rig.dir()
                .add_request(more, "me@here", rig.clock.now())
                .await
                .expect("the store takes it");
            rig.clock.sleep(secs(600)).await;
        };
        tokio::select! {
            finish = machine.agent(&rig, spec).run() => panic!("nothing ends it: {finish:?}"),
            () = extended => {}
        }
        rig.store.fault("", Fault::Down, None);
        let agent = machine.agent(&rig, spec).run();
        tokio::pin!(agent);
        tokio::select! {
            finish = &mut agent => panic!("the hour that was granted is forgotten: {finish:?}"),
            () = rig.clock.sleep(secs(4800)) => {}
        }
        rig.store.mend();
        assert_eq!(agent.await.because, EndedBecause::MaxRuntime, "after both hours");
    });
}

/// Time that was granted for the work is not granted once more for the look, where nobody answers
/// when that begins.
#[test]
fn kept_machine_stays_as_long_as_promised_over_a_store_outage() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let spec = r#"{"on": {"success": {"keep": "1h"}}}"#;
        let ends = async {
            clock.sleep(secs(60)).await;
            let more = Wish::Extend {
                time: Some(Span::from_secs(2 * 3600)),
                budget: None,
                fallback_cost: None,
            };
            rig.dir().add_request(more, "me@here", clock.now()).await.expect("the store takes it");
            clock.sleep(secs(60)).await;
            // Its outcome cannot be written yet: the agent dies in the drain.
            rig.store.fault("", Fault::Down, None);
            machine.end(SUCCESS);
            clock.sleep(secs(60)).await;
        };
        tokio::select! {
            finish = machine.agent(&rig, spec).run() => panic!("not yet: {finish:?}"),
            () = ends => {}
        }
        let agent = machine.agent(&rig, spec).run();
        tokio::pin!(agent);
        tokio::select! {
            finish = &mut agent => panic!("it is kept for a look: {finish:?}"),
            () = clock.sleep(secs(2700)) => {}
        }
        rig.store.mend();
        let mended = clock.mono();
        assert_eq!(agent.await.because, EndedBecause::Succeeded);
        let lit = clock.mono() - mended;
        assert!(lit <= secs(3600), "it was kept for {lit:?} more");
    });
}

/// Seed 18000253 of 24 h: a machine came up that was launched with what had been added to a limit,
/// and judged the limit before it had read of that.
#[test]
fn limit_waits_until_what_was_added_to_it_is_read() {
    simulate(async |clock| {
        for is_down in [false, true] {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            let spec =
                format!(r#"{{"limits": {{"deadline": "{}"}}}}"#, rig.clock.now() + secs(3600));
            let more = Wish::Extend {
                time: Some(Span::from_secs(4 * 3600)),
                budget: None,
                fallback_cost: None,
            };
            rig.dir()
                .add_request(more, "me@here", rig.clock.now())
                .await
                .expect("the store takes it");
            // Its time would be over by now.
            rig.clock.sleep(secs(2 * 3600)).await;
            if is_down {
                rig.store.fault("requests", Fault::Down, None);
            }
            let begun = rig.clock.mono();
            tokio::select! {
                finish = machine.agent(&rig, &spec).run() => {
                    assert!(is_down && finish.because == EndedBecause::Deadline, "its hours were granted: {finish:?}");
                    let took = rig.clock.mono() - begun;
                    assert!((secs(60)..=secs(180)).contains(&took), "where nobody says what was added, a minute: {took:?}");
                }
                () = rig.clock.sleep(secs(1800)) => assert!(!is_down, "nobody has granted it that"),
            }
        }
    });
}

/// Nothing runs while a retry is waited for, so that nothing is saved or stopped: but it is paid
/// for.
#[test]
fn wait_before_a_retry_ends_at_a_limit_and_at_a_wish() {
    for is_stopped in [false, true] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            let fails = async {
                clock.sleep(secs(60)).await;
                machine.end(ExitStatus { code: Some(3), signal: None, oom: false });
                if is_stopped {
                    clock.sleep(secs(120)).await;
                    rig.dir()
                        .add_request(Wish::Stop, "somebody", clock.now())
                        .await
                        .expect("the store works");
                }
            };
            let spec =
                r#"{"retries": {"max": 1, "delay": "2h"}, "limits": {"max_runtime": "10m"}}"#;
            let (finish, ()) = tokio::join!(machine.agent(&rig, spec).run(), fails);
            let (because, within) = if is_stopped {
                (EndedBecause::UserStopped, secs(240))
            } else {
                (EndedBecause::MaxRuntime, secs(600))
            };
            assert_eq!((finish.because, machine.starts()), (because, 1), "{finish:?}");
            assert!(machine.is_off() && clock.mono() <= within, "{:?}", clock.mono());
        });
    }
}

/// The retry itself is made, and its own end counts.
#[test]
fn retry_comes_after_its_delay_and_not_before() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let failed = ExitStatus { code: Some(3), signal: None, oom: false };
        let fails = async {
            clock.sleep(secs(60)).await;
            machine.end(failed);
            clock.sleep(secs(1790)).await;
            assert_eq!(machine.starts(), 1);
            clock.sleep(secs(20)).await;
            assert_eq!(machine.starts(), 2);
            machine.end(failed);
        };
        let (finish, ()) = tokio::join!(
            machine.agent(&rig, r#"{"retries": {"max": 1, "delay": "30m"}}"#).run(),
            fails
        );
        assert_eq!(
            (finish.because, finish.exit, machine.starts()),
            (EndedBecause::Failed, Some(failed), 2)
        );
    });
}
