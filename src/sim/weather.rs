//! What is wrong with the world just now, and until when.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::timeline::Timeline;

/// A standing trouble. The order is that of [`Weather`]'s table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    StoreDown,
    /// A quarter of the calls fails before its effect, a quarter loses its reply after it, some hang.
    StoreLossy,
    /// A new object is not listed for half a minute.
    StoreStale,
    LaptopOffline,
    MachineOffline,
    /// Describe fails, as in a zone's outage.
    Ec2Down,
    Ec2Throttled,
    Ec2Lossy,
    /// Describe answers with what was true some seconds ago.
    Ec2Stale,
    NoCapacityA,
    NoCapacityB,
    QuotaFull,
    /// The spot price is above every bid.
    PriceHigh,
    /// Machines that end now take twenty minutes over it, unless they are forced.
    StuckEnds,
    /// Machines that are launched now are not shown for four minutes.
    LateShows,
    DiskFull,
    NvmlLost,
    MetadataDown,
}

const TROUBLES: usize = Trouble::MetadataDown as usize + 1;

pub struct Weather {
    timeline: Arc<Timeline>,
    until: Mutex<[Duration; TROUBLES]>,
}

impl Weather {
    pub fn new(timeline: Arc<Timeline>) -> Self {
        Weather { timeline, until: Mutex::new([Duration::ZERO; TROUBLES]) }
    }

    pub fn begin(&self, trouble: Trouble, lasts: Duration) {
        let until = self.timeline.now() + lasts;
        let mut table = self.table();
        let slot = &mut table[trouble as usize];
        *slot = until.max(*slot);
    }

    pub fn is(&self, trouble: Trouble) -> bool {
        self.timeline.now() < self.table()[trouble as usize]
    }

    /// All is well from now on.
    pub fn clear(&self) {
        *self.table() = [Duration::ZERO; TROUBLES];
    }

    fn table(&self) -> MutexGuard<'_, [Duration; TROUBLES]> {
        self.until.lock().expect("nobody panics while holding the table: it is only read and set")
    }
}
