//! The active faults of the world, and until when each one lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sim::kernel::virtual_time::Timeline;

/// A fault that lasts for a while. The index in [`Weather`] is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldFault {
    StoreDown,
    /// A quarter of the calls fails before the effect, a quarter loses its reply, some hang.
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
    /// Machines that end now take twenty minutes, unless they are forced.
    StuckEnds,
    /// Machines that are launched now are not shown for four minutes.
    LateShows,
    DiskFull,
    NvmlLost,
    MetadataDown,
    /// The user's session has expired: EC2 and the store refuse the workstation until a new login.
    SignedOut,
    /// The machines' role has lost its permissions in the store.
    RoleGone,
    /// EC2 withdraws machines that are launched now before they run.
    Withdraws,
    /// Machines that are launched now never run an agent: the kernel hangs, or user data ends after
    /// the deadline unit.
    BadBoots,
    /// No machine can power itself off.
    PowerBroken,
    /// As `BadBoots`: this one without an agent, the next one with a kernel that hangs.
    NoAgents,
    DarkBoots,
}

const TROUBLES: usize = WorldFault::DarkBoots as usize + 1;

pub struct Weather {
    timeline: Arc<Timeline>,
    /// When each ends, nanoseconds of the timeline.
    until: [AtomicU64; TROUBLES],
}

impl Weather {
    pub fn new(timeline: Arc<Timeline>) -> Self {
        Weather { timeline, until: Default::default() }
    }

    pub fn begin(&self, trouble: WorldFault, lasts: Duration) {
        let until = u64::try_from((self.timeline.now() + lasts).as_nanos()).unwrap_or(u64::MAX);
        self.until[trouble as usize].fetch_max(until, Ordering::Relaxed);
    }

    pub fn is(&self, trouble: WorldFault) -> bool {
        self.timeline.now()
            < Duration::from_nanos(self.until[trouble as usize].load(Ordering::Relaxed))
    }

    /// All is well from now on.
    pub fn clear(&self) {
        self.until.iter().for_each(|until| until.store(0, Ordering::Relaxed));
    }
}
