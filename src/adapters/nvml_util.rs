//! Utilisation over an interval, from the driver's buffer of short samples.
//!
//! One reading a second of a GPU that waits for its data every other moment is a coin toss; the driver keeps what it
//! measured several times a second, and the mean of all of it is what happened.
//!
//! ```text
//!   every ten seconds, and sooner where the latest value belies it:   buffer -> mean since the last look  -.
//!   in between:                                                                            the same mean  +-> percent
//!   no buffer, or nothing newer in it:                                          the driver's latest value  -'
//! ```
//! What must never live here: calls.

use std::time::Duration;

/// Between two looks at a driver's buffer. To fetch it took 2.8 ms of a processor on an H100 (driver 580), however little of it is
/// asked for, and every other call a twentieth of a millisecond: once a second it was three quarters of what the agent cost there
/// (docs/gpu-check.md). That buffer holds fourteen seconds. Longer, and something is lost between two looks; shorter costs more.
pub(super) const BUFFER_EVERY: Duration = Duration::from_secs(10);

/// A latest value so far from the mean, in percent, says that the work has changed: then the next look does not wait. Less, and work
/// that fluctuates, as most does, is looked at as often as that is allowed; more, and half a GPU's worth of change is seen late.
const MOVED_PERCENT: f64 = 25.0;

/// But no sooner than this after the last look: of work that fluctuates a third of the looks, and of the cost, of one a second.
const MOVED_EVERY: Duration = Duration::from_secs(3);

/// Up to this a GPU rests: what a job file calls quiet by default. Work that begins on it is looked at at the next sample.
const AT_REST_PERCENT: f64 = 1.0;

/// One entry of the driver's buffer: what went on in the time that it ends, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
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

/// What is known of one GPU's work: the mean that its buffer gave last, and when to look again.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    cursor: Cursor,
    every: Duration,
    /// The last look, and whether one before it had found the place.
    looked: Option<Duration>,
    placed: bool,
    mean: Option<f64>,
}

impl Buffer {
    pub fn new(every: Duration) -> Self {
        Buffer { every, ..Buffer::default() }
    }

    /// Whether the driver is to be asked now. `latest`: its latest value, which costs little and is known at each sample.
    pub fn is_due(&self, now: Duration, latest: Option<f64>) -> bool {
        let Some(looked) = self.looked else { return true };
        let since = now.saturating_sub(looked);
        let (Some(mean), Some(latest)) = (self.mean, latest) else { return !self.placed || since >= self.every };
        let wakes = mean <= AT_REST_PERCENT && latest > AT_REST_PERCENT;
        let moved = (latest - mean).abs() > MOVED_PERCENT && since >= MOVED_EVERY;
        wakes || moved || since >= self.every
    }

    /// What the driver is to be asked for.
    pub fn last_seen(&self) -> Option<u64> {
        self.cursor.last_seen()
    }

    /// What it has answered. A driver that measures slower than it is asked has nothing newer, and some stop measuring while the
    /// GPU rests: so that means neither idle nor unknown. The latest value is the mean of the driver's own last period, and stands.
    pub fn read(&mut self, now: Duration, entries: impl Iterator<Item = Entry>, latest: Option<f64>) {
        self.placed = self.looked.replace(now).is_some();
        self.mean = self.cursor.mean(entries);
        if let (None, Some(latest)) = (self.mean, latest) {
            self.cursor.nothing_but(latest);
        }
    }

    /// Percent of the time that something was computed, by the last look; `None`: the latest value has to do.
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

    #[test]
    fn the_buffer_is_looked_at_twice_to_begin_with_then_seldom_and_when_a_resting_gpu_wakes() {
        let at = Duration::from_secs;
        let mut buffer = Buffer::new(at(10));
        assert!(buffer.is_due(at(0), Some(0.0)));
        buffer.read(at(0), [entry(SECOND, 0.0)].into_iter(), Some(0.0));
        assert!(buffer.is_due(at(1), Some(0.0)), "the first look has only found the place");
        buffer.read(at(1), [entry(2 * SECOND, 0.0)].into_iter(), Some(0.0));
        assert_eq!(buffer.mean(), Some(0.0));
        assert!(!buffer.is_due(at(10), Some(0.0)) && buffer.is_due(at(11), Some(0.0)));
        assert!(buffer.is_due(at(2), Some(3.0)), "it was at rest, and is not");
        buffer.read(at(2), [entry(3 * SECOND, 0.5)].into_iter(), Some(3.0));
        assert!(buffer.is_due(at(3), Some(100.0)), "what little was counted of its first moment is not what it does");
        buffer.read(at(3), [entry(4 * SECOND, 60.0)].into_iter(), Some(100.0));
        assert!(!buffer.is_due(at(4), Some(0.0)) && !buffer.is_due(at(12), Some(80.0)), "that it works is known");
        assert!(buffer.is_due(at(6), Some(0.0)) && buffer.is_due(at(6), Some(100.0)), "it does something else");
        buffer.read(at(12), std::iter::empty(), Some(5.0));
        assert_eq!(buffer.mean(), None, "nothing newer: the latest value has to do");
        assert!(!buffer.is_due(at(13), Some(5.0)) && buffer.is_due(at(22), None));
    }

    /// What the driver of an NVIDIA H100 counted of a training, second by second (docs/gpu-check.md).
    fn training() -> Vec<f64> {
        let packed = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpu/train.jsonl.zst"));
        let text = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
        let percent = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["gpu_percent"].as_f64().unwrap();
        text.lines().map(percent).collect()
    }

    #[test]
    fn a_real_training_is_told_as_it_was_by_a_third_of_the_looks() {
        let counted = training();
        let mut buffer = Buffer::new(BUFFER_EVERY);
        let (mut told, mut looks, mut seen) = (Vec::new(), 0, 0);
        for (second, latest) in counted.iter().enumerate() {
            let now = Duration::from_secs(second as u64);
            if buffer.is_due(now, Some(*latest)) {
                let new = (seen..=second).map(|at| entry((at as u64 + 1) * SECOND, counted[at]));
                buffer.read(now, new, Some(*latest));
                (looks, seen) = (looks + 1, second + 1);
            }
            told.push(buffer.mean().unwrap_or(*latest));
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        assert!((mean(&told) - mean(&counted)).abs() < 3.0, "{} of {}: {told:?} {counted:?}", mean(&told), mean(&counted));
        assert!(looks * 3 <= counted.len(), "{looks} looks in {} seconds", counted.len());
        let late = |at: usize| counted[at] > 20.0 && told[at..counted.len().min(at + 2)].iter().all(|told| *told <= AT_REST_PERCENT);
        assert!(!(0..counted.len()).any(late), "work that was seen two seconds late: {told:?} {counted:?}");
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
