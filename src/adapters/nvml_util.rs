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

/// As much of the buffer as the first reading uses: what is older was before we looked.
const FIRST_LOOK_MICROS: u64 = 1_000_000;

/// After so many readings without a newer entry the driver's clock is taken to have stepped back (it is the wall clock),
/// and the buffer is read from its beginning. Fewer, and a driver that pauses its buffer makes us count entries twice.
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
    pub fn mean(&mut self, entries: impl Iterator<Item = Entry>) -> Option<f64> {
        let mut fresh: Vec<Entry> = entries.filter(|entry| self.is_fresh(entry)).collect();
        let Some(newest) = fresh.iter().map(|entry| entry.at_micros).max() else {
            self.nothing();
            return None;
        };
        fresh.sort_unstable_by_key(|entry| entry.at_micros);
        let begin = match self.last_micros {
            Some(last) => last,
            None => newest.saturating_sub(FIRST_LOOK_MICROS),
        };
        fresh.retain(|entry| entry.at_micros > begin);
        self.last_micros = Some(newest);
        self.empty = 0;
        weighted(begin, &fresh)
    }

    /// The driver has nothing newer.
    pub fn nothing(&mut self) {
        self.empty += 1;
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
    fn the_first_look_is_one_second_long() {
        let old_load = (0..100).map(|number| entry(100 * SECOND + number * 200_000, if number < 95 { 100.0 } else { 0.0 }));
        assert_eq!(Cursor::default().mean(old_load), Some(0.0));
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
    fn after_a_step_of_the_clock_the_buffer_is_read_again() {
        let mut cursor = Cursor { last_micros: Some(500 * SECOND), empty: 0 };
        for _ in 0..EMPTY_READINGS_MAX {
            assert_eq!(cursor.mean(std::iter::empty()), None);
        }
        assert_eq!(cursor.mean([entry(100 * SECOND, 70.0)].into_iter()), Some(70.0));
    }
}
