//! Idle, stalled, or at work.

pub(crate) mod hardware;
pub(crate) mod idle;
pub(crate) mod idle_laws;
pub(crate) mod recordings;
pub(crate) mod script;
pub(crate) mod stall;
pub(crate) mod supervise;
