//! What is wrong with the world just now, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sim::kernel::virtual_time::Timeline;

/// A standing trouble. The order is that of [`Weather`]'s table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    StoreDown,
    /// A quarter of the calls fails before its effect, a quarter loses its reply after it, some
    /// hang.
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
    /// The session of whoever is at the workstation is over: EC2 and the store take nothing from
    /// there until somebody signs in anew.
    SignedOut,
    /// Somebody took from the machines' role what it may do in the store.
    RoleGone,
    /// EC2 withdraws what is launched now before it runs.
    Withdraws,
    /// On what is launched now nothing of ours ever comes up: its kernel hangs, or its user data
    /// got no further than the deadline unit.
    BadBoots,
    /// No machine can be put out from within.
    PowerBroken,
    /// As `BadBoots`, and surely the one or the other.
    NoAgents,
    DarkBoots,
}

const TROUBLES: usize = Trouble::DarkBoots as usize + 1;

pub struct Weather {
    timeline: Arc<Timeline>,
    /// Nanoseconds of the timeline.
    until: [AtomicU64; TROUBLES],
}

impl Weather {
    pub fn new(timeline: Arc<Timeline>) -> Self {
        Weather { timeline, until: Default::default() }
    }

    pub fn begin(&self, trouble: Trouble, lasts: Duration) {
        let until = u64::try_from((self.timeline.now() + lasts).as_nanos()).unwrap_or(u64::MAX);
        self.until[trouble as usize].fetch_max(until, Ordering::Relaxed);
    }

    pub fn is(&self, trouble: Trouble) -> bool {
        self.timeline.now()
            < Duration::from_nanos(self.until[trouble as usize].load(Ordering::Relaxed))
    }

    /// All is well from now on.
    pub fn clear(&self) {
        self.until.iter().for_each(|until| until.store(0, Ordering::Relaxed));
    }
}
