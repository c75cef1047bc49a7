//! The only place that picks adapters for ports.
//!
//! What must never live here: a decision about a job.

use std::sync::Arc;

use crate::adapters::system_clock::SystemClock;
use crate::ports;

/// The time, for whoever may not name a port.
pub type Clock = Arc<dyn ports::Clock>;

/// The machine's own clock.
pub fn clock() -> Clock {
    Arc::new(SystemClock)
}
