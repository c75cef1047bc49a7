//! Measurements, from a whole agent in virtual time to a meter that listens, fails or hangs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lamplighter::ports::{Clock, Datum, Meter, MeterError, Stat};

use crate::Rig;
use crate::world::Played;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Listens,
    Refuses,
    Hangs,
}

struct TestMeter {
    clock: Arc<VirtualClock>,
    mood: Mood,
    heard: Mutex<Vec<(Duration, String, Vec<Datum>)>>,
}

#[async_trait]
impl Meter for TestMeter {
    async fn publish(&self, instance: &str, data: &[Datum]) -> Result<(), MeterError> {
        self.heard.lock().unwrap().push((self.clock.mono(), instance.to_owned(), data.to_vec()));
        match self.mood {
            Mood::Listens => Ok(()),
            Mood::Refuses => Err(MeterError("no".into())),
            Mood::Hangs => std::future::pending().await,
        }
    }
}

/// Five minutes of an agent; what its meter heard, and the number of heartbeats in the store by
/// then.
fn five_minutes(mood: Mood, spec: &str) -> (Vec<(Duration, String, Vec<Datum>)>, u64) {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let meter = Arc::new(TestMeter { clock: clock.clone(), mood, heard: Mutex::default() });
        let mut played = Played::new(&rig);
        played.meter = Some(meter.clone());
        tokio::select! {
            finish = played.agent(&rig, spec).run() => panic!("nothing ends it: {finish:?}"),
            () = clock.sleep(Duration::from_secs(5 * 60 + 5)) => {}
        }
        let heard = meter.heard.lock().unwrap().clone();
        (heard, rig.status().await.sequence)
    })
}

#[test]
fn one_batch_a_minute_with_a_heartbeat_and_what_is_known() {
    let (heard, _) = five_minutes(Mood::Listens, "{}");
    assert_eq!(heard.len(), 6, "{heard:?}");
    let secs: Vec<u64> = heard.iter().map(|(at, ..)| at.as_secs()).collect();
    assert!(secs[0] <= 1 && secs.windows(2).all(|pair| pair[1] - pair[0] == 60), "{secs:?}");
    assert!(heard.iter().all(|(_, instance, _)| instance == "i-1"));
    let (.., first) = &heard[0];
    assert_eq!(
        first.iter().map(|datum| datum.name).collect::<Vec<_>>(),
        ["Heartbeat"],
        "before anything is measured"
    );
    let (.., batch) = &heard[3];
    let stat = |name: &str| batch.iter().find(|datum| datum.name == name).map(|datum| datum.stat);
    assert_eq!(stat("Heartbeat"), Some(Stat::one(1.0)));
    let cpu = stat("WorkloadCPU").expect("a whole core");
    assert!(
        (55.0..=65.0).contains(&cpu.count) && (cpu.sum / cpu.count - 100.0).abs() < 1.0,
        "{cpu:?}"
    );
    assert!(stat("IdleSeconds").is_some());
    assert_eq!(stat("GPUUtilization"), None, "this machine has none");
}

/// Whatever becomes of it, the loop, its heartbeat in the store and the next minute do not wait.
#[test]
fn meter_that_fails_or_hangs_delays_nothing() {
    let (_, beats) = five_minutes(Mood::Listens, "{}");
    for mood in [Mood::Refuses, Mood::Hangs] {
        let (heard, others) = five_minutes(mood, "{}");
        assert_eq!(heard.len(), 6, "one try for each minute");
        assert!(
            others.abs_diff(beats) <= 1,
            "{others} heartbeats in the store, and {beats} with a meter that listens"
        );
    }
}

#[test]
fn it_can_be_turned_off() {
    assert!(five_minutes(Mood::Listens, r#"{"watch": {"metrics": false}}"#).0.is_empty());
}

/// It refuses all that comes in this span.
struct OutFor {
    clock: Arc<VirtualClock>,
    out: std::ops::Range<u64>,
}

#[async_trait]
impl Meter for OutFor {
    async fn publish(&self, _instance: &str, _data: &[Datum]) -> Result<(), MeterError> {
        if self.out.contains(&self.clock.mono().as_secs()) {
            Err(MeterError("no".into()))
        } else {
            Ok(())
        }
    }
}

/// The controller relies on this: an alarm without measurements would end a machine that works.
#[test]
fn heartbeat_says_unmeasured_while_no_measurements_are_taken() {
    simulate(async |clock: Arc<VirtualClock>| {
        let rig = Rig::new(clock.clone());
        let mut played = Played::new(&rig);
        // One minute that is lost is nothing.
        played.meter = Some(Arc::new(OutFor { clock: clock.clone(), out: 290..590 }));
        let look = async {
            let mut seen = Vec::new();
            for secs in [280, 345, 395, 560, 640] {
                clock.sleep(Duration::from_secs(secs).saturating_sub(clock.mono())).await;
                let status = rig.status().await;
                seen.push((
                    secs,
                    status.unmeasured,
                    status.attention.iter().any(|line| line.contains("do not reach CloudWatch")),
                ));
            }
            seen
        };
        let seen = tokio::select! {
            finish = played.agent(&rig, "{}").run() => panic!("nothing ends it: {finish:?}"),
            seen = look => seen,
        };
        assert_eq!(
            seen,
            [
                (280, false, false),
                (345, false, false),
                (395, true, true),
                (560, true, true),
                (640, false, false)
            ]
        );
    });
}
