//! Death at any call: a controller whose ports go through a process of the false world, which dies
//! at its n-th call, before or after the effect; or stands still there for a while, as a laptop
//! does that is closed.

use std::sync::Arc;
use std::time::Duration;

use lamplighter::ports::{Clock, Cloud, Store};
use lamplighter::sim::{SimProcess, Through};

use lamp_test_support::virtual_clock::VirtualClock;

/// One that dies once so many calls are over.
pub fn dying(calls: u64, after: bool) -> Arc<SimProcess> {
    SimProcess::mortal(None, Some((calls + 1, after)))
}

/// One that stands still then.
pub fn pausing(
    calls: u64,
    after: bool,
    clock: &Arc<VirtualClock>,
    pause: Duration,
) -> Arc<SimProcess> {
    SimProcess::pausing(calls + 1, after, Arc::clone(clock) as Arc<dyn Clock>, pause)
}

pub fn store(life: &Arc<SimProcess>, store: Arc<dyn Store>) -> Arc<dyn Store> {
    Through::<dyn Store>::new(life, store)
}

pub fn cloud(life: &Arc<SimProcess>, cloud: Arc<dyn Cloud>) -> Arc<dyn Cloud> {
    Through::<dyn Cloud>::new(life, cloud)
}
