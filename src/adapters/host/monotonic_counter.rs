//! Counters that never go back, built from counters that do.
//!
//! A sum over processes shrinks when one ends, a cgroup vanishes with its unit, and a new workload
//! starts at zero. Policies see differences, so such a step must read as zero, and never as a
//! jump.
//!
//! Not here: the source of a number.

/// A counter that remembers what it has counted.
#[derive(Debug)]
pub(crate) struct MonotonicCounter<K> {
    source: Option<K>,
    last: u64,
    total: u64,
}

impl<K> Default for MonotonicCounter<K> {
    fn default() -> Self {
        MonotonicCounter { source: None, last: 0, total: 0 }
    }
}

impl<K: PartialEq> MonotonicCounter<K> {
    /// Takes the source's value; returns the total. A step back counts as zero. So does a change of
    /// source: values of two sources cannot be subtracted.
    pub fn feed(&mut self, source: K, raw: u64) -> u64 {
        match &self.source {
            None => self.total = raw,
            Some(before) if *before == source => self.total += raw.saturating_sub(self.last),
            Some(_) => {}
        }
        self.source = Some(source);
        self.last = raw;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_never_goes_back() {
        let mut counter = MonotonicCounter::default();
        assert_eq!(counter.feed("tree", 100), 100);
        assert_eq!(counter.feed("tree", 150), 150);
        assert_eq!(counter.feed("tree", 20), 150, "a process ended and took its 130 with it");
        assert_eq!(counter.feed("tree", 25), 155);
        assert_eq!(counter.feed("cgroup", 9_000), 155, "another source is another beginning");
        assert_eq!(counter.feed("cgroup", 9_010), 165);
    }
}
