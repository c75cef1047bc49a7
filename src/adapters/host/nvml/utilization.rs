//! Utilisation over an interval, from the driver's buffer of short samples.
//!
//! One reading a second of a GPU that waits for its data every other moment is a coin toss; the driver keeps what it
//! measured several times a second, and the mean of all of it is what happened.
//!
//! ```text
//!   at each sample, unless the GPU is surely at work:   buffer -> mean since the last look  -.
//!   at work, between two looks:                                              the same mean  -+-> percent
//!   no buffer, or nothing newer in it:                            the driver's latest value -'
//! ```
//! Not here: calls.

use std::time::Duration;

/// Between two looks at the buffer of a GPU that is at work. To fetch it took 2.8 ms of a processor on an H100 (driver 580), however
/// little of it was asked for, and the latest value a fiftieth of that (docs/checks.md): what a training pays for is knowing in
/// each second how much it computes, where that it computes is known anyway. That buffer held fourteen seconds. Longer, and something
/// is lost between two looks; shorter costs more.
pub(crate) const BUFFER_EVERY: Duration = Duration::from_secs(10);

/// Above this a GPU is at work, by its mean and by its latest value: far above what a job file calls quiet (1 % unless it says
/// otherwise), so that no mean over ten seconds can hide a second for which the idle rule would have waited, nor show one that it
/// would not. Lower, and light work in bursts is not told second by second; higher only costs more looks.
const AT_WORK_PERCENT: f64 = 25.0;

/// One entry of the driver's buffer: what went on in the time that it ends, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    /// On the driver's clock.
    pub at_micros: u64,
    pub percent: f64,
}

/// Drivers measure between 6 times and once a second. A longer gap before an entry is time that nobody measured (the agent
/// slept longer than the buffer is long), and an entry must not stand for it. Smaller, and a driver that measures once a
/// second would lose weight; bigger, and the first entry after a gap would outweigh the others.
const ENTRY_MICROS_MAX: u64 = 1_100_000;

/// After so many looks at the buffer of a working GPU without a newer entry the driver's clock is taken to have stepped back (on some
/// drivers it is the wall clock), and the place in the buffer is looked up again. Fewer, and a driver that measures slowly
/// would be looked up for nothing; more only prolongs the time in which the latest value has to do.
const EMPTY_READINGS_MAX: u32 = 5;

/// How much of the time one GPU computes: the mean that its buffer gave last, and whether to look again.
#[derive(Debug, Default)]
pub(crate) struct Utilisation {
    cursor: Cursor,
    looked: Duration,
    mean: Option<f64>,
}

impl Utilisation {
    /// Whether the buffer is to be asked for now. `latest`: the driver's latest value, `None` where it gives none.
    pub fn is_due(&self, now: Duration, latest: Option<f64>) -> bool {
        let works = |percent: Option<f64>| percent.is_some_and(|percent| percent > AT_WORK_PERCENT);
        !(works(self.mean) && works(latest)) || now.saturating_sub(self.looked) >= BUFFER_EVERY
    }

    /// What the driver is to be asked for.
    pub fn last_seen(&self) -> Option<u64> {
        self.cursor.last_seen()
    }

    /// What it has answered. A driver that measures slower than it is asked has nothing newer, and some stop measuring while the
    /// GPU rests: so that means neither idle nor unknown. The latest value is the mean of the driver's own last period, and stands.
    pub fn read(&mut self, now: Duration, entries: impl Iterator<Item = Entry>, latest: Option<f64>) {
        self.looked = now;
        self.mean = self.cursor.mean(entries);
        if let (None, Some(latest)) = (self.mean, latest) {
            self.cursor.nothing_but(latest);
        }
    }

    /// Percent of the time that something was computed, between the last two looks; `None`: the latest value has to do.
    pub fn mean(&self) -> Option<f64> {
        self.mean
    }
}

/// Where we are in one buffer.
#[derive(Clone, Debug, Default)]
struct Cursor {
    last_micros: Option<u64>,
    empty: u32,
}

impl Cursor {
    fn last_seen(&self) -> Option<u64> {
        self.last_micros
    }

    /// The mean since the previous call, each entry weighted by the time it stands for; `None` if nothing is new.
    ///
    /// The first call only looks up where the buffer ends: some drivers stop measuring while the GPU rests, and what is in
    /// the buffer then may be an hour old.
    fn mean(&mut self, entries: impl Iterator<Item = Entry>) -> Option<f64> {
        let mut fresh: Vec<Entry> = entries.filter(|entry| self.is_fresh(entry)).collect();
        fresh.sort_unstable_by_key(|entry| entry.at_micros);
        let newest = fresh.last()?.at_micros;
        self.empty = 0;
        self.last_micros.replace(newest).and_then(|begin| weighted(begin, &fresh))
    }

    /// The buffer had nothing newer, and this is the driver's latest value. A GPU at rest may leave its buffer as it is.
    fn nothing_but(&mut self, latest: f64) {
        self.empty = if latest > 0.0 { self.empty + 1 } else { 0 };
        if self.empty >= EMPTY_READINGS_MAX {
            *self = Cursor::default();
        }
    }

    /// Drivers pad the buffer with empty entries.
    fn is_fresh(&self, entry: &Entry) -> bool {
        entry.at_micros > self.last_micros.unwrap_or(0) && (0.0..=100.0).contains(&entry.percent)
    }
}

fn weighted(begin: u64, entries: &[Entry]) -> Option<f64> {
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

    fn entry(at_micros: u64, percent: f64) -> Entry {
        Entry { at_micros, percent }
    }

    #[test]
    fn an_entry_weighs_as_much_as_the_time_it_stands_for() {
        let mut cursor = Cursor { last_micros: Some(10 * SECOND), empty: 0 };
        let mean = cursor.mean([entry(10 * SECOND + 250_000, 100.0), entry(11 * SECOND, 20.0)].into_iter()).unwrap();
        assert!((mean - 40.0).abs() < 1e-9, "{mean}");
        assert_eq!(cursor.last_seen(), Some(11 * SECOND));
    }

    #[test]
    fn the_first_look_believes_nothing_old() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.mean([entry(SECOND, 100.0), entry(2 * SECOND, 100.0)].into_iter()), None);
        assert_eq!(cursor.mean([entry(3 * SECOND, 20.0)].into_iter()), Some(20.0));
    }

    #[test]
    fn an_entry_after_a_gap_stands_for_one_period_only() {
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

    /// Plays counted percents, some a second, of which the last is the driver's latest value. What was told of each second, and how
    /// often it was looked.
    fn told(counted: &[Vec<f64>]) -> (Vec<f64>, usize) {
        let (mut utilisation, mut waiting, mut told, mut looks) = (Utilisation::default(), Vec::new(), Vec::new(), 0);
        for (second, percents) in counted.iter().enumerate() {
            let period = SECOND / percents.len() as u64;
            waiting.extend((1..).zip(percents).map(|(at, percent)| entry(second as u64 * SECOND + at * period, *percent)));
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
        /// What the idle rule sees: no second of work is told to be quiet, by a limit of one percent or of five; and quiet is told to
        /// the last digit, from the second quiet second on.
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
            // The first look only finds the place.
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

    /// What the driver of an NVIDIA H100 counted of a training, second by second (docs/checks.md).
    #[test]
    fn a_real_training_is_told_as_it_was_and_hardly_looked_at_while_it_works() {
        let packed = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpu/train.jsonl.zst"));
        let text = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
        let percent = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["gpu_percent"].as_f64().unwrap();
        let counted: Vec<f64> = text.lines().map(percent).collect();
        let (told, looks) = told(&counted.iter().map(|percent| vec![*percent]).collect::<Vec<_>>());
        assert!((mean(&told) - mean(&counted)).abs() < 2.0, "{told:?} instead of {counted:?}");
        let at_work = counted.iter().filter(|percent| **percent > AT_WORK_PERCENT).count();
        let resting = counted.len() - at_work;
        assert!(at_work > 25 && looks <= resting + at_work / 5, "{looks} looks in {resting} seconds at rest and {at_work} at work");
    }

    #[test]
    fn a_gpu_at_work_is_looked_at_again_after_ten_seconds_and_at_once_when_it_may_rest() {
        let at = Duration::from_secs;
        let mut gpu = Utilisation::default();
        assert!(gpu.is_due(at(0), Some(90.0)));
        gpu.read(at(0), [entry(SECOND, 90.0)].into_iter(), Some(90.0));
        assert!(gpu.is_due(at(1), Some(90.0)), "the first look has only found the place");
        gpu.read(at(1), [entry(2 * SECOND, 90.0)].into_iter(), Some(90.0));
        assert!(!gpu.is_due(at(2), Some(90.0)) && !gpu.is_due(at(10), Some(26.0)) && gpu.is_due(at(11), Some(90.0)));
        assert!(gpu.is_due(at(2), Some(25.0)), "it may rest");
        assert!(gpu.is_due(at(2), None), "the driver does not say");
        gpu.read(at(2), std::iter::empty(), None);
        assert_eq!(gpu.mean(), None, "and then nothing is known, not what was known before");
    }

    #[test]
    fn a_gpu_at_rest_keeps_its_place() {
        let mut cursor = Cursor { last_micros: Some(500 * SECOND), empty: 0 };
        for _ in 0..100 {
            cursor.nothing_but(0.0);
        }
        assert_eq!(cursor.last_seen(), Some(500 * SECOND));
    }
}
