//! Measurements for CloudWatch: one batch a minute, from the loop's samples.
//!
//! ```text
//!   a row a second ──> the current minute ──> the newest full minute ──> ports::Meter, once
//! ```
//! The loop closes the minute, not a timer, so a hung loop falls silent. Then the alarm on the
//! missing heartbeat fires as intended. A meter that fails or is slow loses minutes and delays
//! nothing.
//!
//! A batch is sent within seconds of its minute or dropped, so it needs no timestamp. The rule of
//! PutMetricData: a data point without a `Timestamp` counts from its arrival. With one, it may be
//! two weeks old or two hours ahead, and an alarm looks at that time. With a clock that is minutes
//! off, the alarm would miss it. Not here: a verdict, a retry, a time of day.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::retry_sender::{TRY_SECS_MAX, Task, chain, within};
use crate::instance::{Rates, Reading};
use crate::ports::{Clock, Datum, Meter, Stat, Unit};

/// CloudWatch keeps minutes for 15 days. More often costs more, and alarms count minutes.
const BATCH: Duration = Duration::from_secs(60);

/// This many lost minutes in a row are reported. One may be lost at any time. An alarm waits for at
/// least five, and removing it takes a heartbeat and a tick.
const LOST_MINUTES: u32 = 2;

/// The sender; its task runs as long as this.
pub struct Metrics {
    inner: Arc<MetricsInner>,
    _task: Task,
}

struct MetricsInner {
    meter: Arc<dyn Meter>,
    clock: Arc<dyn Clock>,
    instance: String,
    hand: Mutex<Hand>,
    wake: Notify,
    unheard: AtomicBool,
}

#[derive(Default)]
struct Hand {
    /// By the monotonic clock. `None`: before the first tick.
    begun: Option<Duration>,
    minute: Minute,
    /// The newest full minute, until it is taken.
    full: Option<Vec<Datum>>,
}

/// The samples of one minute. Pure.
#[derive(Debug, Default)]
pub struct Minute {
    stats: BTreeMap<&'static str, (Unit, Stat)>,
}

impl Minute {
    /// Adds a row. Unknown values are left out, never counted as zero.
    pub fn add(&mut self, rates: &Rates, quiet_secs: Option<f64>) {
        for (name, unit, reading) in [
            ("GPUUtilization", Unit::Percent, &rates.gpu_percent),
            ("GPUMemoryUsed", Unit::Mebibytes, &rates.gpu_memory_used_mib),
            ("GPUPower", Unit::Plain, &rates.gpu_power_watts),
            ("WorkloadCPU", Unit::Percent, &rates.cpu_percent),
            ("MachineCPU", Unit::Percent, &rates.machine_cpu_percent),
        ] {
            if let Reading::Known(value) = reading {
                self.put(name, unit, *value);
            }
        }
        if let Some(secs) = quiet_secs {
            self.put("IdleSeconds", Unit::Seconds, secs);
        }
    }

    fn put(&mut self, name: &'static str, unit: Unit, value: f64) {
        if value.is_finite() {
            let stat = &mut self
                .stats
                .entry(name)
                .or_insert((unit, Stat { count: 0.0, sum: 0.0, least: value, most: value }))
                .1;
            *stat = stat.and(value);
        }
    }

    /// The batch: the measurements, and a heartbeat of the loop.
    fn close(&mut self) -> Vec<Datum> {
        let stats = std::mem::take(&mut self.stats);
        let heartbeat = Datum { name: "Heartbeat", unit: Unit::Count, stat: Stat::one(1.0) };
        stats
            .into_iter()
            .map(|(name, (unit, stat))| Datum { name, unit, stat })
            .chain([heartbeat])
            .collect()
    }
}

impl Metrics {
    pub fn start(meter: Arc<dyn Meter>, clock: Arc<dyn Clock>, instance: String) -> Self {
        let inner = Arc::new(MetricsInner {
            meter,
            clock,
            instance,
            hand: Mutex::default(),
            wake: Notify::new(),
            unheard: AtomicBool::default(),
        });
        let _task = Task::spawn(run(Arc::clone(&inner)));
        Metrics { inner, _task }
    }

    pub fn add(&self, rates: &Rates, quiet_secs: Option<f64>) {
        self.inner.hand().minute.add(rates, quiet_secs);
    }

    pub fn is_unheard(&self) -> bool {
        self.inner.unheard.load(Ordering::Relaxed)
    }

    /// The loop calls this at every tick. The first beat is sent at once, so that an alarm can miss
    /// it.
    pub fn beat(&self) {
        let now = self.inner.clock.mono();
        let mut hand = self.inner.hand();
        if hand.begun.is_some_and(|begun| now.saturating_sub(begun) < BATCH) {
            return;
        }
        hand.begun = Some(now);
        hand.full = Some(hand.minute.close());
        self.inner.wake.notify_one();
    }
}

impl MetricsInner {
    fn hand(&self) -> MutexGuard<'_, Hand> {
        self.hand.lock().expect("no code panics while it holds it: numbers are only added")
    }
}

async fn run(inner: Arc<MetricsInner>) {
    let mut failures = 0_u32;
    loop {
        let full = inner.hand().full.take();
        let Some(batch) = full else {
            inner.wake.notified().await;
            continue;
        };
        let problem =
            match within(&*inner.clock, TRY_SECS_MAX, inner.meter.publish(&inner.instance, &batch))
                .await
            {
                Some(Ok(())) => None,
                Some(Err(error)) => Some(chain(&error)),
                None => Some(format!("no answer within {} s", TRY_SECS_MAX.as_secs())),
            };
        match problem {
            None if failures > 0 => {
                tracing::info!(
                    "measurements are published again, after {failures} minutes without"
                );
                failures = 0;
            }
            None => {}
            Some(problem) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(
                        "{problem}; the work goes on without, and `watch.metrics = false` turns this off"
                    );
                }
            }
        }
        inner.unheard.store(failures >= LOST_MINUTES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minute_holds_only_known_values() {
        let mut minute = Minute::default();
        let row = |gpu: Reading<f64>| Rates {
            gpu_percent: gpu,
            cpu_percent: Reading::Known(50.0),
            ..Rates::default()
        };
        minute.add(&row(Reading::Known(90.0)), Some(0.0));
        minute.add(&row(Reading::unknown("lost")), None);
        minute.add(&row(Reading::Known(f64::NAN)), Some(2.0));
        minute.add(&row(Reading::Known(30.0)), None);
        let batch = minute.close();
        let stat =
            |name: &str| batch.iter().find(|datum| datum.name == name).map(|datum| datum.stat);
        assert_eq!(
            stat("GPUUtilization"),
            Some(Stat { count: 2.0, sum: 120.0, least: 30.0, most: 90.0 })
        );
        assert_eq!(stat("WorkloadCPU").map(|stat| stat.count), Some(4.0));
        assert_eq!(stat("IdleSeconds").map(|stat| stat.most), Some(2.0));
        assert_eq!((stat("Heartbeat"), stat("GPUPower")), (Some(Stat::one(1.0)), None));
        assert_eq!(minute.close().len(), 1, "the next begins anew, and still says that we live");
    }

    /// Users see these names and units in the console and set alarms on them.
    #[test]
    fn known_values_are_published_with_name_and_unit() {
        let mut minute = Minute::default();
        let rates = Rates {
            gpu_percent: Reading::Known(91.0),
            gpu_memory_used_mib: Reading::Known(20_480.0),
            gpu_power_watts: Reading::Known(287.5),
            cpu_percent: Reading::Known(140.0),
            machine_cpu_percent: Reading::Known(37.5),
            ..Rates::default()
        };
        minute.add(&rates, Some(12.0));
        let mut batch: Vec<_> =
            minute.close().into_iter().map(|datum| (datum.name, datum.unit, datum.stat)).collect();
        batch.sort_by_key(|(name, ..)| *name);
        let expected = [
            ("GPUMemoryUsed", Unit::Mebibytes, 20_480.0),
            ("GPUPower", Unit::Plain, 287.5),
            ("GPUUtilization", Unit::Percent, 91.0),
            ("Heartbeat", Unit::Count, 1.0),
            ("IdleSeconds", Unit::Seconds, 12.0),
            ("MachineCPU", Unit::Percent, 37.5),
            ("WorkloadCPU", Unit::Percent, 140.0),
        ];
        assert_eq!(batch, expected.map(|(name, unit, value)| (name, unit, Stat::one(value))));
    }
}
