//! The laws of every simulated world, and the observer that checks them.

pub(crate) mod ends;
pub(crate) mod gang_laws;
pub(crate) mod laws;
pub(crate) mod observer;
pub(crate) mod observer_heartbeat;
pub(crate) mod observer_minutes;
pub(crate) mod observer_saves;
pub(crate) mod outcomes;
pub(crate) mod receipt_check;
pub(crate) mod saves;
