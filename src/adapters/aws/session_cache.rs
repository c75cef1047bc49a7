//! The answers of EC2 that one session remembers, so that it does not ask twice within minutes.
//!
//! They end with the program. The types of answers about images, subnets, groups and keys are here;
//! the questions are in `aws::ec2`. Not here: the state of a running machine.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::adapters::host::system_clock::SystemClock;
use crate::instance::MachineRef;
use crate::job::ImageChoice;
use crate::market::{Arch, Region};
use crate::ports::Clock;

/// Answers by question. The caller decides how old an answer may be.
pub struct Remembered<K, V>(Mutex<BTreeMap<K, (Duration, V)>>);

/// A map with more entries forgets the older half. Running machines are entered again at each look.
const ENTRIES_MAX: usize = 20_000;

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Remembered(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Clone> Remembered<K, V> {
    fn map(&self) -> MutexGuard<'_, BTreeMap<K, (Duration, V)>> {
        // Each change is a single call, so a panic elsewhere leaves the map consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, unless it is older than this.
    pub fn get(&self, key: &K, trusted: Duration) -> Option<V> {
        let now = SystemClock.mono();
        self.map()
            .get(key)
            .filter(|(at, _)| now.saturating_sub(*at) <= trusted)
            .map(|(_, value)| value.clone())
    }

    pub fn put(&self, key: K, value: V) {
        let mut map = self.map();
        if map.len() >= ENTRIES_MAX && !map.contains_key(&key) {
            let mut told: Vec<Duration> = map.values().map(|(at, _)| *at).collect();
            let middle = told.len() / 2;
            let middle = *told.select_nth_unstable(middle).1;
            map.retain(|_, (at, _)| *at >= middle);
        }
        map.insert(key, (SystemClock.mono(), value));
    }

    /// Inserts it with this time of the monotonic clock.
    #[cfg(test)]
    pub fn put_at(&self, key: K, value: V, at: Duration) {
        self.map().insert(key, (at, value));
    }

    pub fn forget(&self, key: &K) {
        self.map().remove(key);
    }

    /// How long ago the key was inserted; inserts it if it is missing.
    pub fn since(&self, key: &K, value: V) -> Duration {
        let now = SystemClock.mono();
        now.saturating_sub(self.map().entry(key.clone()).or_insert((now, value)).0)
    }
}

/// How long answers about images and networks are valid, so that a relaunch after an interruption
/// asks nothing twice. If this is longer, the program sees a repair on the console late.
pub const TRUSTED: Duration = Duration::from_secs(10 * 60);

/// The facts about an image that a launch needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchImage {
    pub id: String,
    pub name: String,
    pub root_device: String,
    /// The size of its own disk, the smallest that holds it.
    pub disk_gib_min: u32,
    pub arch: Arch,
}

/// A subnet that machines may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSubnet {
    pub id: String,
    pub zone: String,
    pub network: String,
    pub free: i32,
    /// Its machines get a public address by default.
    pub gives_address: bool,
    /// Its network makes every machine a dedicated one, whatever a launch asks for.
    pub dedicated: bool,
}

/// A security group, and whether it has inbound rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSecurityGroup {
    pub id: String,
    pub network: String,
    pub lets_in: bool,
}

/// The customer's own default key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskKey {
    pub id: String,
    /// `Enabled`, `Disabled`, ... (AWS KMS developer guide, "Key states of AWS KMS keys"); `None`:
    /// unknown.
    pub state: Option<String>,
    /// Whether the role of spot machines may use it; `None`: unknown.
    pub serves_spot: Option<bool>,
}

/// All remembered answers.
#[derive(Default)]
pub struct Ec2Memory {
    /// Machines that a call did not find, and since when.
    pub missing: Remembered<MachineRef, ()>,
    /// The owner of each machine that we launched or saw. Only machines of that owner are
    /// terminated, stopped, started or tagged.
    pub owners: Remembered<MachineRef, String>,
    /// Machines with our owner tag that are left alone for their other tags, and were reported:
    /// once, not at each look.
    pub odd: Remembered<MachineRef, ()>,
    /// Why a spot request ended, by its id. EC2 does not change this any more.
    pub spot_ends: Remembered<String, String>,
    /// Resources that were left behind, and their owner. Only these may be removed.
    pub residue: Remembered<String, String>,
    pub images: Remembered<(Region, ImageChoice, Arch), LaunchImage>,
    pub subnets: Remembered<Region, Vec<LaunchSubnet>>,
    /// Subnets that had no free address for a launch, by their id.
    pub full_subnets: Remembered<String, ()>,
    pub groups: Remembered<Region, Vec<LaunchSecurityGroup>>,
    /// The default key of disks, where it is the customer's own.
    pub disk_keys: Remembered<Region, Option<DiskKey>>,
    /// Regions that have the user's key pair.
    pub key_pairs: Remembered<Region, ()>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_is_asked_again() {
        let memory = Remembered::default();
        memory.put("a", 1);
        assert_eq!(memory.get(&"a", Duration::from_secs(60)), Some(1));
        memory.map().insert("b", (Duration::ZERO, 2));
        assert_eq!(memory.get(&"b", Duration::ZERO), None, "this computer has run for longer");
        assert!(memory.since(&"b", 3) > Duration::ZERO);
        assert_eq!(memory.since(&"c", 3), Duration::ZERO);
        memory.forget(&"a");
        assert_eq!(memory.get(&"a", Duration::from_secs(60)), None);
    }

    /// Ten thousand that live, told of once more since as many that are gone.
    #[test]
    fn what_is_told_of_again_and_again_is_not_forgotten() {
        let (memory, secs) = (Remembered::default(), Duration::from_secs);
        (0..ENTRIES_MAX / 2).for_each(|gone| memory.put_at(gone, (), secs(1)));
        (0..ENTRIES_MAX / 2).for_each(|lives| memory.put_at(ENTRIES_MAX + lives, (), secs(2)));
        memory.put(ENTRIES_MAX, ());
        assert_eq!(memory.map().len(), ENTRIES_MAX, "it is there already");
        memory.put(3 * ENTRIES_MAX, ());
        let lives = (0..ENTRIES_MAX / 2)
            .filter(|lives| memory.map().contains_key(&(ENTRIES_MAX + lives)))
            .count();
        assert_eq!((lives, memory.map().len()), (ENTRIES_MAX / 2, ENTRIES_MAX / 2 + 1));
    }
}
