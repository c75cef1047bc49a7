//! What is measured, for CloudWatch: one batch a minute, from the loop's own samples.
//!
//! ```text
//!   a row a second ──> the minute in hand ──> the newest full minute ──> ports::Meter, once
//! ```
//! The minute is closed by the loop and not by a clock of its own, so that a loop that hangs falls silent: an alarm on the
//! missing heartbeat then does what it was armed for. A meter that fails or is slow loses minutes and delays nothing.
//! A batch is sent within seconds of its minute or not at all, so it carries no date: CloudWatch dates it on arrival. Its rule for
//! PutMetricData: without a `Timestamp` a data point counts from when it was received; with one, it may be two weeks old or two hours
//! ahead, and an alarm looks for it where it was dated. By a clock that is minutes off, that is where the alarm does not look.
//! What must never live here: a verdict, a retry, a time of day.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::retry_sender::{TRY_SECS_MAX, Task, chain, within};
use crate::instance::{Rates, Reading};
use crate::ports::{Clock, Datum, Meter, Stat, Unit};

/// What CloudWatch keeps for 15 days; more often costs more and says no more to an alarm that counts minutes.
const BATCH: Duration = Duration::from_secs(60);

/// So many minutes in a row that nobody has taken are told of. One may be lost at any time; an alarm waits for five at least, and who
/// takes it off needs a heartbeat and a tick for that.
const LOST_MINUTES: u32 = 2;

/// The sending end; the sender lives as long as this.
pub struct Metrics {
    inner: Arc<Inner>,
    _task: Task,
}

struct Inner {
    meter: Arc<dyn Meter>,
    clock: Arc<dyn Clock>,
    instance: String,
    hand: Mutex<Hand>,
    wake: Notify,
    unheard: AtomicBool,
}

#[derive(Default)]
struct Hand {
    /// By the steady clock; `None`: before the first tick.
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
    /// Takes in a row; what is unknown in it is left out, and never zero.
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
            let stat = &mut self.stats.entry(name).or_insert((unit, Stat { count: 0.0, sum: 0.0, least: value, most: value })).1;
            *stat = stat.and(value);
        }
    }

    /// The batch: what was measured, and that the loop is alive.
    fn close(&mut self) -> Vec<Datum> {
        let stats = std::mem::take(&mut self.stats);
        let heartbeat = Datum { name: "Heartbeat", unit: Unit::Count, stat: Stat::one(1.0) };
        stats.into_iter().map(|(name, (unit, stat))| Datum { name, unit, stat }).chain([heartbeat]).collect()
    }
}

impl Metrics {
    pub fn start(meter: Arc<dyn Meter>, clock: Arc<dyn Clock>, instance: String) -> Self {
        let inner = Arc::new(Inner { meter, clock, instance, hand: Mutex::default(), wake: Notify::new(), unheard: AtomicBool::default() });
        let _task = Task::spawn(run(Arc::clone(&inner)));
        Metrics { inner, _task }
    }

    /// A row of measurements.
    pub fn add(&self, rates: &Rates, quiet_secs: Option<f64>) {
        self.inner.hand().minute.add(rates, quiet_secs);
    }

    /// Whether the last minutes were taken by nobody.
    pub fn is_unheard(&self) -> bool {
        self.inner.unheard.load(Ordering::Relaxed)
    }

    /// The loop is alive; it says so at every tick. The first beat goes out at once, so that an alarm has something to miss.
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

impl Inner {
    fn hand(&self) -> MutexGuard<'_, Hand> {
        self.hand.lock().expect("nobody panics while holding it: numbers are only added")
    }
}

async fn run(inner: Arc<Inner>) {
    let mut failures = 0_u32;
    loop {
        let full = inner.hand().full.take();
        let Some(batch) = full else {
            inner.wake.notified().await;
            continue;
        };
        let problem = match within(&*inner.clock, TRY_SECS_MAX, inner.meter.publish(&inner.instance, &batch)).await {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(chain(&error)),
            None => Some(format!("no answer within {} s", TRY_SECS_MAX.as_secs())),
        };
        match problem {
            None if failures > 0 => {
                tracing::info!("measurements are published again, after {failures} minutes without");
                failures = 0;
            }
            None => {}
            Some(problem) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!("{problem}; the work goes on without, and `watch.metrics = false` turns this off");
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
    fn a_minute_is_what_was_known_in_it() {
        let mut minute = Minute::default();
        let row = |gpu: Reading<f64>| Rates { gpu_percent: gpu, cpu_percent: Reading::Known(50.0), ..Rates::default() };
        minute.add(&row(Reading::Known(90.0)), Some(0.0));
        minute.add(&row(Reading::unknown("lost")), None);
        minute.add(&row(Reading::Known(f64::NAN)), Some(2.0));
        minute.add(&row(Reading::Known(30.0)), None);
        let batch = minute.close();
        let stat = |name: &str| batch.iter().find(|datum| datum.name == name).map(|datum| datum.stat);
        assert_eq!(stat("GPUUtilization"), Some(Stat { count: 2.0, sum: 120.0, least: 30.0, most: 90.0 }));
        assert_eq!(stat("WorkloadCPU").map(|stat| stat.count), Some(4.0));
        assert_eq!(stat("IdleSeconds").map(|stat| stat.most), Some(2.0));
        assert_eq!((stat("Heartbeat"), stat("GPUPower")), (Some(Stat::one(1.0)), None));
        assert_eq!(minute.close().len(), 1, "the next begins anew, and still says that we live");
    }

    /// Whoever reads them in the console, or sets an alarm on one, goes by these names and units.
    #[test]
    fn all_that_is_known_is_published_by_its_name_and_unit() {
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
        let mut batch: Vec<_> = minute.close().into_iter().map(|datum| (datum.name, datum.unit, datum.stat)).collect();
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
