//! Verdicts on a running workload: idle, stalled, limits, hardware, spot notices, checkpoint
//! interval.

pub(crate) mod activity_signals;
pub(crate) mod checkpoint_interval;
pub(crate) mod coverage;
pub(crate) mod hardware;
pub(crate) mod idle;
pub mod idle_cost;
pub(crate) mod limits;
pub(crate) mod spot_notice;
pub(crate) mod stall;
pub(crate) mod supervise;
pub(crate) mod supervise_facts;
pub(crate) mod verdict;
