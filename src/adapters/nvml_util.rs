//! Utilisation over an interval, from the driver's buffer of short samples.
//!
//! One reading a second of a GPU that waits for its data every other moment is a coin toss; the driver keeps what it
//! measured several times a second, and the mean of all of it is what happened. What must never live here: calls.

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

/// After so many readings of a working GPU without a newer entry the driver's clock is taken to have stepped back (on some
/// drivers it is the wall clock), and the place in the buffer is looked up again. Fewer, and a driver that measures slowly
/// would be looked up for nothing; more only prolongs the time in which the latest value has to do.
const EMPTY_READINGS_MAX: u32 = 5;

/// Where we are in one buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    last_micros: Option<u64>,
    empty: u32,
}

impl Cursor {
    /// What the driver is to be asked for.
    pub fn last_seen(&self) -> Option<u64> {
        self.last_micros
    }

    /// The mean since the previous call, each entry weighted by the time it stands for; `None` if nothing is new.
    ///
    /// The first call only looks up where the buffer ends: some drivers stop measuring while the GPU rests, and what is in
    /// the buffer then may be an hour old.
    pub fn mean(&mut self, entries: impl Iterator<Item = Entry>) -> Option<f64> {
        let mut fresh: Vec<Entry> = entries.filter(|entry| self.is_fresh(entry)).collect();
        fresh.sort_unstable_by_key(|entry| entry.at_micros);
        let newest = fresh.last()?.at_micros;
        self.empty = 0;
        self.last_micros.replace(newest).and_then(|begin| weighted(begin, &fresh))
    }

    /// The buffer had nothing newer, and this is the driver's latest value. A GPU at rest may leave its buffer as it is.
    pub fn nothing_but(&mut self, latest: f64) {
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
    fn a_gpu_at_rest_keeps_its_place() {
        let mut cursor = Cursor { last_micros: Some(500 * SECOND), empty: 0 };
        for _ in 0..100 {
            cursor.nothing_but(0.0);
        }
        assert_eq!(cursor.last_seen(), Some(500 * SECOND));
    }
}
