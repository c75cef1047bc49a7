//! Machines that a sweep ends, and machines that it leaves alone.

pub(crate) mod crowded_account;
pub(crate) mod foreign;
pub(crate) mod guard;
pub(crate) mod hosts;
pub(crate) mod ignored_requests;
pub(crate) mod kept_machine;
pub(crate) mod residue;
pub(crate) mod sweep;
pub(crate) mod unstoppable;
pub(crate) mod visit;
