//! A wall clock that is set, and a machine that is started again: what was to happen after so long
//! happens after so long, and what was to happen at a time happens at that time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::NoticeKind;
use lamplighter::job::{AttemptNo, EndedBecause, ExitStatus, Outcome};
use lamplighter::ports::Clock;
use lamplighter::sim::SimProcess;
use serde_json::json;

use crate::startup::agent_deaths::Stage;
use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::{Fault, FaultyStore};
use lamp_test_support::virtual_clock::{VirtualClock, simulate, until};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Longer than any of these attempts may last.
const STEPS: u64 = 20_000;

async fn outcome(stage: &Stage) -> Outcome {
    stage
        .rig
        .dir()
        .outcome(AttemptNo::FIRST)
        .await
        .expect("the store answers")
        .expect("there is an outcome")
}

#[test]
fn last_save_before_a_limit_keeps_its_time_over_clock_changes() {
    for set in [SignedDuration::ZERO, DAY, -DAY] {
        simulate(async |clock: Arc<VirtualClock>| {
            let stage =
                Stage::limited(clock.clone(), STEPS, json!({"max_runtime": "200s"}), None).await;
            let (died, ()) = tokio::join!(stage.live(SimProcess::new(None)), async {
                clock.sleep(secs(60)).await;
                clock.set(set);
            });
            assert!(!died && stage.machine.is_dark());
            let mono = clock.mono();
            assert!((secs(180)..=secs(200)).contains(&mono), "{set:#}: over after {mono:?}");
            let outcome = outcome(&stage).await;
            assert_eq!(
                (outcome.because, &outcome.losses),
                (EndedBecause::MaxRuntime, &vec![]),
                "{set:#}"
            );
            assert_eq!(
                outcome.exit,
                Some(ExitStatus { code: Some(143), ..ExitStatus::default() }),
                "{set:#}: asked, not killed"
            );
            // It trains on until it is told to end: a step at most.
            let (saved, done) = (
                outcome.last_checkpoint.unwrap().step.unwrap(),
                outcome.progress.unwrap().step.unwrap(),
            );
            assert!(done >= 150.0 && done - saved <= 1.0, "{set:#}: {saved} of {done}");
        });
    }
}

/// After a reboot the steady clock says little of the one before: by chance it may stand beyond
/// where that one began.
#[test]
fn reboot_time_counts_and_the_hard_end_stays_where_it_was() {
    simulate(async |clock: Arc<VirtualClock>| {
        let hard_end = clock.now() + SignedDuration::from_hours(5);
        let stage = Stage::limited(clock.clone(), STEPS, json!({}), Some(hard_end)).await;
        let deadline = || -> Timestamp {
            let text = std::fs::read_to_string(
                &stage.switch_files.as_ref().expect("it has a switch").deadline,
            )
            .expect("it was told");
            Timestamp::from_second(text.trim().parse().expect("seconds")).expect("a time")
        };
        for hours in [2, 1] {
            tokio::select! {
                died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
                () = clock.sleep(secs(60)) => {}
            }
            assert_eq!(deadline(), hard_end, "{hours} hours before the next boot");
            clock.reboot(Duration::from_secs(hours * 3600));
        }
        tokio::select! {
            died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
            () = clock.sleep(secs(60)) => {}
        }
        assert_eq!(deadline(), hard_end, "a deadline is a time of day");
        clock.reboot(Duration::from_secs(3 * 3600));
        let again = clock.mono();
        assert!(!stage.live(SimProcess::new(None)).await);
        assert_eq!(outcome(&stage).await.because, EndedBecause::HardEnd);
        assert!(clock.mono() - again < secs(120), "at once: {:?}", clock.mono() - again);
    });
}

/// Its metadata came late, and its store does not answer: a boot has a quarter of an hour, and what
/// follows may take minutes.
#[test]
fn agent_that_is_late_after_a_reboot_tells_its_switch_at_once() {
    simulate(async |clock: Arc<VirtualClock>| {
        let hard_end = clock.now() + SignedDuration::from_hours(5);
        let stage = Stage::limited(clock.clone(), STEPS, json!({}), Some(hard_end)).await;
        let live = async |time| {
            tokio::select! {
                died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
                () = clock.sleep(time) => {}
            }
        };
        live(secs(60)).await;
        clock.reboot(secs(45));
        let file = stage.switch_files.clone().expect("it has a switch").deadline;
        std::fs::write(&file, format!("{}\n", (clock.now() + secs(60)).as_second()))
            .expect("its folder is there");
        stage.rig.store.fault("", Fault::Hang, None);
        // Before the second in which it says that it lives, whatever it waits for.
        live(Duration::from_millis(500)).await;
        assert_eq!(
            std::fs::read_to_string(&file).expect("it is there").trim(),
            hard_end.as_second().to_string()
        );
    });
}

/// After a reboot there is nothing to go by but the wall clock, and what was reached before it.
#[test]
fn clock_that_was_set_back_gives_no_more_time_at_each_reboot() {
    const BOOT: Duration = Duration::from_secs(45);
    simulate(async |clock: Arc<VirtualClock>| {
        let (began, most) = (clock.mono(), secs(2 * 3600));
        let stage = Stage::limited(clock.clone(), STEPS, json!({}), Some(clock.now() + most)).await;
        for _ in 0..2 {
            tokio::select! {
                died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
                () = clock.sleep(secs(1800)) => {}
            }
            clock.set(SignedDuration::from_hours(-1));
            clock.reboot(BOOT);
        }
        assert!(!stage.live(SimProcess::new(None)).await);
        assert_eq!(outcome(&stage).await.because, EndedBecause::HardEnd);
        // The steady clock of these tests stands still while the machine boots.
        let late = clock.mono() + 2 * BOOT - began - most;
        assert!(late < secs(150), "half a minute and its boot for each: {late:?}");
    });
}

/// Nor does one that was fast when the agent began take any from it, once it is right: only lengths
/// of time are carried over.
#[test]
fn fast_clock_that_is_put_right_costs_no_time_after_a_reboot() {
    simulate(async |clock: Arc<VirtualClock>| {
        let (began, most) = (clock.mono(), secs(2 * 3600));
        let stage = Stage::limited(clock.clone(), STEPS, json!({}), Some(clock.now() + most)).await;
        let fast = SignedDuration::from_hours(1);
        clock.set(fast);
        tokio::select! {
            died = stage.live(SimProcess::new(None)) => panic!("it ends too early: {died}"),
            () = clock.sleep(secs(900)) => {}
        }
        clock.set(-fast);
        clock.reboot(Duration::ZERO);
        assert!(!stage.live(SimProcess::new(None)).await);
        assert_eq!(outcome(&stage).await.because, EndedBecause::HardEnd);
        let lived = clock.mono() - began;
        assert!(lived > most - secs(600) && lived < most + secs(150), "{lived:?}");
    });
}

/// A machine whose clock was fast when its agent began, and was put right since: what the cloud
/// says by the right time is no old news.
#[test]
fn notice_counts_when_the_clock_was_wrong_at_the_beginning() {
    let fast = SignedDuration::from_mins(10);
    for (at_first, set) in
        [(SignedDuration::ZERO, SignedDuration::ZERO), (fast, -fast), (-fast, fast)]
    {
        simulate(async |clock: Arc<VirtualClock>| {
            let rig = Rig::new(clock.clone());
            let played = Played::new(&rig);
            // Nobody else says what time it is.
            rig.store.fault("status.json", Fault::Down, None);
            clock.set(at_first);
            let agent = played.agent(&rig, "{}");
            let told = async {
                clock.sleep(secs(30)).await;
                clock.set(set);
                clock.sleep(secs(30)).await;
                let at = clock.now() + secs(120);
                played.notice(NoticeKind::Interruption, at);
                until(&clock, "the workload is told to end", secs(120), || played.has_ended())
                    .await;
                let left = at.duration_since(clock.now());
                assert!((10..=40).contains(&left.as_secs()), "{at_first:#}: with {left:#} left");
                // The waiting for the end, too, is counted in steady time.
                clock.set(DAY);
                clock.sleep(Duration::try_from(left).unwrap() + secs(170)).await;
                assert_eq!(played.starts(), 1, "{at_first:#}: it may still be taken");
                until(&clock, "it was not taken, and the work goes on", secs(30), || {
                    played.starts() == 2
                })
                .await;
            };
            tokio::select! {
                finish = agent.run() => panic!("it ends: {finish:?}"),
                () = told => {}
            }
        });
    }
}

/// The time of the cloud, and of a bucket in it, whatever a machine's clock is set to.
struct TrueTime(Arc<VirtualClock>);

#[async_trait]
impl Clock for TrueTime {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        start + self.0.mono()
    }
    fn mono(&self) -> Duration {
        self.0.mono()
    }
    fn boot(&self) -> String {
        self.0.boot()
    }
    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }
}

/// The notice is by the cloud's time, and so is what the store says of a heartbeat.
#[test]
fn notice_counts_by_store_time_whatever_the_clock_is_set_to() {
    let [none, little, hour] = [0, 4, 60].map(SignedDuration::from_mins);
    for (at_first, set) in [
        (none, hour),
        (none, -hour),
        (little, none),
        (hour, none),
        (-hour, none),
        (hour, -hour),
        (-little, hour),
    ] {
        simulate(async |clock: Arc<VirtualClock>| {
            let true_time = Arc::new(TrueTime(clock.clone()));
            let rig = Rig { store: FaultyStore::new(true_time.clone()), ..Rig::new(clock.clone()) };
            let played = Played::new(&rig);
            clock.set(at_first);
            let agent = played.agent(&rig, "{}");
            let told = async {
                clock.sleep(secs(30)).await;
                clock.set(set);
                clock.sleep(secs(30)).await;
                let at = true_time.now() + secs(120);
                played.notice(NoticeKind::Interruption, at);
                until(&clock, "the workload is told to end", secs(120), || played.has_ended())
                    .await;
                let left = at.duration_since(true_time.now());
                assert!(
                    (10..=40).contains(&left.as_secs()),
                    "{at_first:#} and {set:#}: with {left:#} left"
                );
            };
            tokio::select! {
                finish = agent.run() => panic!("it ends: {finish:?}"),
                () = told => {}
            }
        });
    }
}

/// A first boot by a clock that is an hour ahead: whoever fetches the work for longer than a second
/// looks at its limits meanwhile.
#[test]
fn fast_clock_ends_no_attempt_before_the_store_tells_the_time() {
    simulate(async |clock: Arc<VirtualClock>| {
        let true_time = Arc::new(TrueTime(clock.clone()));
        let rig = Rig { store: FaultyStore::new(true_time.clone()), ..Rig::new(clock.clone()) };
        let mut played = Played::new(&rig);
        played.launched = Some(true_time.now());
        rig.store.fault("checkpoints/", Fault::Slow(secs(10)), None);
        // Slower than the first look at the limits, and not than fetching.
        rig.store.fault("status.json", Fault::Slow(Duration::from_millis(900)), None);
        clock.set(SignedDuration::from_hours(1));
        let spec = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "30s"}, "limits": {"max_runtime": "45m"}}"#;
        let finish = played.agent(&rig, spec).run().await;
        assert_eq!((finish.because, played.starts()), (EndedBecause::MaxRuntime, 1), "{finish:?}");
        assert!((secs(2400)..=secs(2700)).contains(&clock.mono()), "after {:?}", clock.mono());
    });
}
