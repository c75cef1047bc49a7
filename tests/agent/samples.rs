//! A batch a minute, a bound, and what did not fit is said.

use lamplighter::agent::report::samples::Samples;
use lamplighter::instance::{Rates, Reading};
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{simulate, until};

fn rates(secs: u64) -> Rates {
    // Different digits in each row, so that they compress as real ones do.
    let wild = |salt: f64| Reading::Known((secs as f64 * salt).sin().abs() * 100.0);
    Rates {
        t_secs: secs as f64,
        interval_secs: 1.0,
        gpu_percent: wild(1.1),
        cpu_percent: wild(2.3),
        disk_bytes_per_sec: wild(3.7),
        ..Rates::default()
    }
}

/// The times of all rows in the store, in order.
fn rows(rig: &Rig) -> Vec<u64> {
    let batches = rig
        .store
        .keys("/samples/")
        .into_iter()
        .map(|key| zstd::decode_all(&rig.store.object(&key).unwrap()[..]).unwrap());
    batches
        .flat_map(|text| {
            String::from_utf8(text)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str::<Rates>(line).unwrap().t_secs as u64)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn minute_is_one_object_and_the_end_is_flushed() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let samples = Samples::start(rig.outbox());
        for second in 0..150 {
            samples.push(&rates(second));
            clock.sleep(secs(1)).await;
        }
        assert_eq!(rig.store.keys("/samples/").len(), 2);
        assert!(samples.finish(secs(5)).await.is_empty());
        assert_eq!(rows(&rig), (0..150).collect::<Vec<_>>());
        // A new agent goes on with the next number.
        drop(samples);
        let samples = Samples::start(rig.outbox());
        samples.push(&rates(150));
        assert!(samples.finish(secs(5)).await.is_empty());
        assert_eq!(rows(&rig).len(), 151);
    });
}

#[test]
fn twenty_minutes_down_lose_nothing_and_a_day_loses_the_oldest() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let samples = Samples::start(rig.outbox());
        rig.store.fault("", Fault::Down, None);
        for second in 0..1200 {
            samples.push(&rates(second));
            clock.sleep(secs(1)).await;
        }
        rig.store.mend();
        until(&clock, "all minutes are sent", secs(70), || rig.store.keys("/samples/").len() == 19)
            .await;
        rig.store.fault("", Fault::Full, None);
        for second in 1200..86_400 {
            samples.push(&rates(second));
            if second % 60 == 0 {
                clock.sleep(secs(60)).await;
            }
        }
        rig.store.mend();
        let losses = samples.finish(secs(60)).await;
        assert_eq!(losses.len(), 1, "{losses:?}");
        let lost: u64 = losses[0].split(' ').next().unwrap().parse().unwrap();
        let kept = rows(&rig);
        assert_eq!(kept.len() as u64 + lost, 86_400);
        assert_eq!(kept.last(), Some(&86_399), "the newest are kept");
        assert!(lost < 80_000, "{lost}");
    });
}
