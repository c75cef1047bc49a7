//! Utilisation over an interval, from the driver's buffer of short samples.
//!
//! One reading a second is random for a GPU that waits for data every other moment. The driver
//! measures several times a second, and the mean of all its samples is right.
//!
//! ```text
//!   at each sample, unless the GPU surely works:  buffer -> mean since the last look  -.
//!   while it works, between two looks:                                 the same mean  -+-> percent
//!   buffer missing, or without newer data:                 the driver's latest value  -'
//! ```
//! Not here: calls.

use std::time::Duration;

/// Time between two reads of the buffer of a working GPU. A read took 2.8 ms on an H100 (driver
/// 580), the latest value a fiftieth of that (tests/README.md). The buffer held fourteen seconds.
/// Longer loses samples; shorter costs more.
pub(crate) const BUFFER_EVERY: Duration = Duration::from_secs(10);

/// Above this, by mean and by latest value, a GPU is at work. It is far above a job file's quiet
/// limit (1 % by default). So a mean over ten seconds cannot hide a quiet second from the idle
/// rule, or invent one. Lower blurs light work in bursts; higher only costs more reads.
const AT_WORK_PERCENT: f64 = 25.0;

/// One sample of the driver's buffer: the mean of the period that ends at `at_micros`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UtilisationSample {
    /// On the driver's clock.
    pub at_micros: u64,
    pub percent: f64,
}

/// Drivers measure one to six times a second. A longer gap is unmeasured time (the agent slept
/// longer than the buffer), which an entry must not cover. Smaller underweights a driver that
/// measures once a second; bigger overweights the first entry after a gap.
const ENTRY_MICROS_MAX: u64 = 1_100_000;

/// After this many reads without a newer entry, the driver's clock is taken to have stepped back
/// (some drivers use the wall clock). The position is then looked up again. Fewer does this in vain
/// for slow drivers; more uses the latest value for longer.
const EMPTY_READINGS_MAX: u32 = 5;

/// How much of the time one GPU computes: the buffer's last mean, and when to read again.
#[derive(Debug, Default)]
pub(crate) struct Utilisation {
    cursor: Cursor,
    looked: Duration,
    mean: Option<f64>,
}

impl Utilisation {
    /// Whether to read the buffer now. `latest`: the driver's latest value, if it gives one.
    pub fn is_due(&self, now: Duration, latest: Option<f64>) -> bool {
        let works = |percent: Option<f64>| percent.is_some_and(|percent| percent > AT_WORK_PERCENT);
        !(works(self.mean) && works(latest)) || now.saturating_sub(self.looked) >= BUFFER_EVERY
    }

    /// The position from which to read.
    pub fn last_seen(&self) -> Option<u64> {
        self.cursor.last_seen()
    }

    /// Takes the driver's answer. Slow drivers have nothing newer, and some stop measuring while
    /// the GPU rests. That means neither idle nor unknown: the latest value is used.
    pub fn read(
        &mut self,
        now: Duration,
        entries: impl Iterator<Item = UtilisationSample>,
        latest: Option<f64>,
    ) {
        self.looked = now;
        self.mean = self.cursor.mean(entries);
        if let (None, Some(latest)) = (self.mean, latest) {
            self.cursor.nothing_but(latest);
        }
    }

    /// Percent of the time spent computing between the last two reads; `None`: use the latest
    /// value.
    pub fn mean(&self) -> Option<f64> {
        self.mean
    }
}

/// The position in one buffer.
#[derive(Clone, Debug, Default)]
struct Cursor {
    last_micros: Option<u64>,
    empty: u32,
}

impl Cursor {
    fn last_seen(&self) -> Option<u64> {
        self.last_micros
    }

    /// The mean since the last call, weighted by time; `None` if nothing is new.
    ///
    /// The first call only finds the end of the buffer: its content may be an hour old.
    fn mean(&mut self, entries: impl Iterator<Item = UtilisationSample>) -> Option<f64> {
        let mut fresh: Vec<UtilisationSample> =
            entries.filter(|entry| self.is_fresh(entry)).collect();
        fresh.sort_unstable_by_key(|entry| entry.at_micros);
        let newest = fresh.last()?.at_micros;
        self.empty = 0;
        self.last_micros.replace(newest).and_then(|begin| weighted(begin, &fresh))
    }

    /// The buffer had nothing newer than this latest value. A resting GPU may leave its buffer
    /// unchanged.
    fn nothing_but(&mut self, latest: f64) {
        self.empty = if latest > 0.0 { self.empty + 1 } else { 0 };
        if self.empty >= EMPTY_READINGS_MAX {
            *self = Cursor::default();
        }
    }

    /// Drivers pad the buffer with empty entries.
    fn is_fresh(&self, entry: &UtilisationSample) -> bool {
        entry.at_micros > self.last_micros.unwrap_or(0) && (0.0..=100.0).contains(&entry.percent)
    }
}

fn weighted(begin: u64, entries: &[UtilisationSample]) -> Option<f64> {
    let mut before = begin;
    let (mut sum, mut time) = (0.0, 0.0);
    for entry in entries {
        let weight = (entry.at_micros - before).min(ENTRY_MICROS_MAX) as f64;
        sum += entry.percent * weight;
        time += weight;
        before = entry.at_micros;
    }
    (time > 0.0).then(|| sum / time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn entry(at_micros: u64, percent: f64) -> UtilisationSample {
        UtilisationSample { at_micros, percent }
    }

    #[test]
    fn entry_weighs_as_much_as_the_time_it_stands_for() {
        let mut cursor = Cursor { last_micros: Some(10 * SECOND), empty: 0 };
        let mean = cursor
            .mean([entry(10 * SECOND + 250_000, 100.0), entry(11 * SECOND, 20.0)].into_iter())
            .unwrap();
        assert!((mean - 40.0).abs() < 1e-9, "{mean}");
        assert_eq!(cursor.last_seen(), Some(11 * SECOND));
    }

    #[test]
    fn first_look_believes_nothing_old() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.mean([entry(SECOND, 100.0), entry(2 * SECOND, 100.0)].into_iter()), None);
        assert_eq!(cursor.mean([entry(3 * SECOND, 20.0)].into_iter()), Some(20.0));
    }

    #[test]
    fn entry_after_a_gap_stands_for_one_period_only() {
        let mut cursor = Cursor { last_micros: Some(SECOND), empty: 0 };
        let entries = [entry(100 * SECOND, 100.0), entry(101 * SECOND, 0.0)];
        let mean = cursor.mean(entries.into_iter()).unwrap();
        assert!((45.0..55.0).contains(&mean), "{mean}");
    }

    #[test]
    fn padding_and_nonsense_are_not_measurements() {
        let mut cursor = Cursor { last_micros: Some(SECOND), empty: 0 };
        let entries = [entry(0, 0.0), entry(2 * SECOND, 4_294_967_295.0), entry(2 * SECOND, 80.0)];
        assert_eq!(cursor.mean(entries.into_iter()), Some(80.0));
    }

    #[test]
    fn after_a_step_of_the_clock_the_place_is_looked_up_again() {
        let mut cursor = Cursor { last_micros: Some(500 * SECOND), empty: 0 };
        for _ in 0..EMPTY_READINGS_MAX {
            assert_eq!(cursor.mean(std::iter::empty()), None);
            cursor.nothing_but(70.0);
        }
        assert_eq!(cursor.last_seen(), None);
        cursor.mean([entry(100 * SECOND, 70.0)].into_iter());
        assert_eq!(cursor.mean([entry(101 * SECOND, 70.0)].into_iter()), Some(70.0));
    }

    /// Plays the given percents of each second; the last is the driver's latest value. Returns the
    /// reported value per second, and the number of reads.
    fn told(counted: &[Vec<f64>]) -> (Vec<f64>, usize) {
        let (mut utilisation, mut waiting, mut told, mut looks) =
            (Utilisation::default(), Vec::new(), Vec::new(), 0);
        for (second, percents) in counted.iter().enumerate() {
            let period = SECOND / percents.len() as u64;
            waiting.extend(
                (1..)
                    .zip(percents)
                    .map(|(at, percent)| entry(second as u64 * SECOND + at * period, *percent)),
            );
            let (now, latest) = (Duration::from_secs(second as u64), percents.last().copied());
            if utilisation.is_due(now, latest) {
                utilisation.read(now, waiting.drain(..), latest);
                looks += 1;
            }
            told.push(utilisation.mean().or(latest).expect("there is one"));
        }
        (told, looks)
    }

    fn mean(of: &[f64]) -> f64 {
        of.iter().sum::<f64>() / of.len() as f64
    }

    proptest::proptest! {
        /// For the idle rule: no working second reads as quiet, at a limit of one or five percent.
        /// From the second quiet second on, quiet reads exactly.
        #[test]
        fn no_work_is_told_to_be_quiet_and_quiet_is_told_as_it_was(counted in proptest::collection::vec(proptest::collection::vec(0.0..100.0_f64, 5..6), 2..60),
                                                 weak in proptest::collection::vec(0..4_u8, 60)) {
            let weaker = |(percents, kind): (Vec<f64>, &u8)| match kind {
                0 => vec![0.0; 5],
                1 => percents.iter().enumerate().map(|(at, percent)| if at == 2 { percent / 4.0 } else { 0.0 }).collect(),
                2 => percents.iter().map(|percent| 60.0 + percent * 0.4).collect(),
                _ => percents,
            };
            let counted: Vec<Vec<f64>> = counted.into_iter().zip(&weak).map(weaker).collect();
            let (told, _) = told(&counted);
            // The first read only finds the position.
            for (at, two) in counted.windows(2).enumerate() {
                let ([before, was], told) = ([mean(&two[0]), mean(&two[1])], told[at + 1]);
                for quiet in [1.0, 5.0] {
                    proptest::prop_assert!(told > quiet || was <= quiet + 1e-9, "{told} for {was} in second {}: {counted:?}", at + 1);
                }
                if at > 0 && before <= 5.0 && was <= 5.0 {
                    proptest::prop_assert!((told - was).abs() < 1e-6, "{told} for {was} in second {}: {counted:?}", at + 1);
                }
            }
        }
    }

    /// Counts of an NVIDIA H100 during a training, per second (tests/README.md).
    #[test]
    fn gpu_use_of_a_recorded_training_is_right_with_few_reads() {
        let packed =
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpu/train.jsonl.zst"));
        let text = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
        let percent = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["gpu_percent"]
                .as_f64()
                .unwrap()
        };
        let counted: Vec<f64> = text.lines().map(percent).collect();
        let (told, looks) = told(&counted.iter().map(|percent| vec![*percent]).collect::<Vec<_>>());
        assert!((mean(&told) - mean(&counted)).abs() < 2.0, "{told:?} instead of {counted:?}");
        let at_work = counted.iter().filter(|percent| **percent > AT_WORK_PERCENT).count();
        let resting = counted.len() - at_work;
        assert!(
            at_work > 25 && looks <= resting + at_work / 5,
            "{looks} looks in {resting} seconds at rest and {at_work} at work"
        );
    }

    #[test]
    fn busy_gpu_is_read_every_ten_seconds_and_resting_one_at_once() {
        let at = Duration::from_secs;
        let mut gpu = Utilisation::default();
        assert!(gpu.is_due(at(0), Some(90.0)));
        gpu.read(at(0), [entry(SECOND, 90.0)].into_iter(), Some(90.0));
        assert!(gpu.is_due(at(1), Some(90.0)), "the first look has only found the place");
        gpu.read(at(1), [entry(2 * SECOND, 90.0)].into_iter(), Some(90.0));
        assert!(
            !gpu.is_due(at(2), Some(90.0))
                && !gpu.is_due(at(10), Some(26.0))
                && gpu.is_due(at(11), Some(90.0))
        );
        assert!(gpu.is_due(at(2), Some(25.0)), "it may rest");
        assert!(gpu.is_due(at(2), None), "the driver does not say");
        gpu.read(at(2), std::iter::empty(), None);
        assert_eq!(gpu.mean(), None, "the old value is dropped, and the new one is unknown");
    }

    #[test]
    fn gpu_at_rest_keeps_its_place() {
        let mut cursor = Cursor { last_micros: Some(500 * SECOND), empty: 0 };
        for _ in 0..100 {
            cursor.nothing_but(0.0);
        }
        assert_eq!(cursor.last_seen(), Some(500 * SECOND));
    }
}
