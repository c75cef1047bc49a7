//! The only source of chance in a world: a seed, forked by concern. One more roll of one fork does
//! not change the others.

use std::sync::Mutex;
use std::time::Duration;

/// SplitMix64: every seed is a good one, and a fork is another seed.
#[derive(Debug)]
pub struct Dice(Mutex<u64>);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(Mutex::new(seed))
    }

    /// Separate dice for one concern.
    #[must_use]
    pub fn fork(&self, concern: &str) -> Dice {
        let state = *self.0.lock().expect("the lock is not poisoned");
        let mixed =
            concern.bytes().fold(state ^ 0x6c61_6d70, |mixed, byte| mix(mixed ^ u64::from(byte)));
        Dice::new(mixed)
    }

    fn next(&self) -> u64 {
        let mut state = self.0.lock().expect("the lock is not poisoned");
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(*state)
    }

    /// In `0..below`.
    pub fn roll(&self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    /// True with this chance in percent.
    pub fn percent(&self, chance: u64) -> bool {
        self.roll(100) < chance
    }

    pub fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }

    /// Milliseconds between two lengths.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(self.roll(span + 1))
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
